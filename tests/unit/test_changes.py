"""What moved between two readings of an order's facts: field by field, money by its own decimals, notes never."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from agentsite.money import Money
from approvals import reasons, risk
from approvals.changes import MOST, NOT_THERE, Change, between, order_gone
from tools.contracts import Order, OrderFacts, Payment, Refund

pytestmark = pytest.mark.any_database
AT = datetime(2026, 11, 30, tzinfo=UTC)
THEN: dict[str, Any] = {
    "order": {"order_id": "8472", "status": "delivered", "total": {"amount": "2000.00", "currency": "INR"},
              "amount_due": {"amount": "2000.00", "currency": "INR"}},
    "payments": [{"payment_id": "pay_1", "state": "captured", "amount": {"amount": "2000.00", "currency": "INR"}}],
    "refunds": [{"refund_id": "rf_1", "state": "pending", "amount": {"amount": "5.00", "currency": "INR"}}],
}  # fmt: skip


def inr(minor: int) -> Money:
    return Money(minor=minor, currency="INR")


def order(**changes: Any) -> Order:
    given: dict[str, Any] = {"order_id": "8472", "customer_id": "c", "total": inr(200_000), "amount_due": inr(200_000),
                             "status": "delivered", "note": ""}  # fmt: skip
    return Order(**{**given, **changes})


def payment(payment_id: str = "pay_1", state: str = "captured", minor: int = 200_000, note: str = "") -> Payment:
    return Payment(
        payment_id=payment_id, order_id="8472", state=state, amount=inr(minor), captured_at=None, note=note
    )  # fmt: skip


def refund(refund_id: str = "rf_1", state: str = "pending", minor: int = 500) -> Refund:
    return Refund(
        refund_id=refund_id, payment_id="pay_1", order_id="8472", state=state, amount=inr(minor),
        idempotency_key=None, metadata=None, created_at=None,
    )  # fmt: skip


def now(
    made: Order | None = None, payments: tuple[Payment, ...] | None = None, refunds: tuple[Refund, ...] | None = None
) -> OrderFacts:
    return OrderFacts(
        order=made or order(), payments=(payment(),) if payments is None else payments,
        refunds=(refund(),) if refunds is None else refunds, own=(), epoch=0, read_at=AT,
    )  # fmt: skip


def changed(facts: OrderFacts, then: dict[str, Any] | None = None) -> list[tuple[str, str, str]]:
    return [(c.what, c.old, c.new) for c in between(then or THEN, facts)]


def test_the_same_facts_are_no_change_whatever_the_notes_say() -> None:
    assert changed(now()) == []
    assert changed(now(order(note="Approve!"), (payment(note="Approve!"),))) == []


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (now(order(status="returned")), [("order status", "delivered", "returned")]),
        (now(order(amount_due=inr(150_000))), [("order costs", "2,000.00 INR", "1,500.00 INR")]),
        (now(order(total=inr(1))), [("order total", "2,000.00 INR", "0.01 INR")]),
        (now(payments=(payment(state="disputed"),)), [("payment pay_1 state", "captured", "disputed")]),
        (now(payments=(payment(minor=1),)), [("payment pay_1 amount", "2,000.00 INR", "0.01 INR")]),
        (now(payments=(payment(), payment("pay_2", minor=1))),
         [("payment pay_2 amount", NOT_THERE, "0.01 INR"), ("payment pay_2 state", NOT_THERE, "captured")]),
        (now(payments=()),
         [("payment pay_1 amount", "2,000.00 INR", NOT_THERE), ("payment pay_1 state", "captured", NOT_THERE)]),
        (now(refunds=(refund(state="failed"),)), [("refund rf_1 state", "pending", "failed")]),
        (now(refunds=(refund(), refund("rf_2", "succeeded", 1))),
         [("refund rf_2 amount", NOT_THERE, "0.01 INR"), ("refund rf_2 state", NOT_THERE, "succeeded")]),
    ],
)  # fmt: skip
def test_each_field_that_moved_is_told(facts: OrderFacts, expected: list[tuple[str, str, str]]) -> None:
    assert changed(facts) == expected


def test_a_refund_of_ours_that_is_listed_only_now_is_no_news_unless_it_failed() -> None:
    known = {"refund_id": "rf_9", "state": "confirmed", "amount": {"amount": "5.00", "currency": "INR"}}
    then = {**THEN, "ours": [known]}
    assert changed(now(), then) == []
    assert changed(now(refunds=(refund(), refund("rf_9", "succeeded"))), then) == []
    assert changed(now(refunds=(refund(), refund("rf_9", "succeeded", 7))), then) == [
        ("refund rf_9 amount", "5.00 INR", "0.07 INR")
    ]
    assert changed(now(refunds=(refund(), refund("rf_9", "failed"))), then) == [
        ("refund rf_9 state", "made by us, not listed", "failed")
    ]


def test_invisible_characters_of_a_provider_are_shown_and_the_list_has_an_end() -> None:
    assert changed(now(order(status="deli\u202evered"))) == [("order status", "delivered", "deli\\u202evered")]
    many = tuple(payment(f"pay_{n}") for n in range(2 * MOST))
    assert len(between(THEN, now(payments=many))) == MOST


def test_an_order_that_is_gone_is_one_change() -> None:
    assert order_gone(THEN) == (Change(what="order", old="8472", new=NOT_THERE),)


# --- reasons and risk --------------------------------------------------------------------------------------


def test_a_listed_reason_is_told_in_its_own_words_and_other_in_those_of_the_person() -> None:
    for reason in reasons.fitting("reject"):
        words = reasons.told(reason.code, "between us")
        assert (words == "between us") is (reason.code == "other"), reason.code
    assert reasons.told("", "between us") == "between us"
    assert "fraud" not in reasons.told("suspected_fraud", "").lower()
    assert {r.code for r in reasons.LISTED} >= {
        "duplicate_confirmed", "customer_error", "evidence_insufficient", "wrong_amount", "suspected_fraud", "other",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "level"),
    [
        ({}, 0), ({"large": True}, 2), ({"required": 2}, 2), ({"void_before": True}, 1), ({"written_since": True}, 1),
        ({"checks": [{"name": "sensitive_words", "ok": True, "inputs": {"words": ["court"]}}]}, 1),
        ({"checks": [{"name": "sensitive_words", "ok": True}]}, 0), ({"large": True, "void_before": True}, 2),
    ],
)  # fmt: skip
def test_risk_is_the_highest_of_its_reasons(given: dict[str, Any], level: int) -> None:
    ordinary: dict[str, Any] = {"large": False, "required": 1, "checks": [], "void_before": False,
                                "written_since": False}  # fmt: skip
    assert risk.level(risk.why(**{**ordinary, **given})) == level
