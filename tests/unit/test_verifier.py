"""The independent check after a write (`write-path.md` 5, M53): every verdict, and what it rests on."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from agentsite.canonical import canonical
from agentsite.money import Money
from runs.contracts import Checked, SeenAttempt, SeenWrite
from runs.verifier import check
from tools import rules
from tools.contracts import Order, OrderFacts, OwnWrite, Payment, Refund

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
AT = "2026-11-29T12:00:05.000Z"
KEY = "t_acme_in/req-8472:issue_refund:pay_9002"
METADATA = {"run_id": "r1", "key": KEY}


def inr(rupees: int) -> Money:
    return Money(minor=rupees * 100, currency="INR")


def write(**changes: Any) -> SeenWrite:
    body = rules.post_body(
        order_id="8472", payment_id="pay_9002", amount=inr(2000).wire(), reason="duplicate_capture",
        approval_id="apr_1", decision_id="dec_1", run_id="r1", key=KEY, expected_refunded=inr(0).wire(),
    )  # fmt: skip
    attempt = SeenAttempt(number=1, prepared_at=NOW, sent_at=NOW, gives_up_at=None, answer="created")
    fields: dict[str, Any] = {
        "key": KEY, "order_id": "8472", "payment_id": "pay_9002", "tool": "issue_refund", "args": {},
        "action_hash": "", "approval_id": "apr_1", "decision_id": "dec_1", "body": body, "amount": inr(2000),
        "origin": "http://127.0.0.1:8090", "seen_at": None,
        "state": "confirmed", "refund_id": "rf_3301", "refund_state": "succeeded", "call_id": "c1", "intent_at": NOW,
        "unknown_since": None, "absent_at": None, "executed_at": NOW, "looks": 0, "attempts": (attempt,),
    }  # fmt: skip
    return SeenWrite(**(fields | changes))


def refund(refund_id: str = "rf_3301", **changes: Any) -> Refund:
    fields: dict[str, Any] = {
        "refund_id": refund_id, "payment_id": "pay_9002", "order_id": "8472", "state": "succeeded",
        "amount": inr(2000), "idempotency_key": KEY, "metadata": METADATA, "created_at": "2026-11-29T12:00:01Z",
    }  # fmt: skip
    return Refund(**(fields | changes))


def facts(refunds: tuple[Refund, ...], own: tuple[OwnWrite, ...] = ()) -> OrderFacts:
    order = Order(
        order_id="8472", customer_id="c", total=inr(2000), amount_due=inr(2000), status="paid", note=""
    )  # fmt: skip
    payments = tuple(
        Payment(payment_id=p, order_id="8472", state="captured", amount=inr(2000), captured_at=None, note="")
        for p in ("pay_9001", "pay_9002")
    )
    return OrderFacts(order=order, payments=payments, refunds=refunds, own=own, epoch=1, read_at=NOW)


def checked(*refunds: Refund, **changes: Any) -> Checked:
    return check(write(**changes), refunds=refunds, facts=facts(refunds), waited_s=1.5, at=AT)


def test_check_passes_a_refund_that_succeeded_and_equals_the_action() -> None:
    result = checked(refund())
    assert (result.verdict, result.refund) == ("passed", refund())
    assert result.record == {
        "check": "refund_matches_intent",
        "passed": True,
        "at": AT,
        "verdict": "passed",
        "refund_id": "rf_3301",
        "expected": {
            "refund_id": "rf_3301", "order_id": "8472", "payment_id": "pay_9002", "amount": inr(2000).wire(),
            "state": "succeeded", "idempotency_key": KEY, "metadata": METADATA,
        },
        "found": {
            "refund_id": "rf_3301", "order_id": "8472", "payment_id": "pay_9002", "amount": inr(2000).wire(),
            "state": "succeeded", "idempotency_key": KEY, "metadata": METADATA,
        },
        "waited_ms": 1500,
        "excess_after": inr(0).wire(),
    }  # fmt: skip
    assert canonical(result.record)


@pytest.mark.parametrize("kept", [{"idempotency_key": None}, {"metadata": None}, {"metadata": {"theirs": "x"}}])
def test_check_passes_where_the_list_keeps_no_key_or_metadata_of_ours(kept: dict[str, Any]) -> None:
    assert checked(refund(**kept)).verdict == "passed"


def test_check_passes_a_refund_found_by_likeness_after_a_lost_answer() -> None:
    result = checked(refund(idempotency_key=None, metadata=None), refund_id=None)
    assert (result.verdict, result.record["refund_id"]) == ("passed", "rf_3301")


@pytest.mark.parametrize("state", ["pending", "requires_action", "on_hold"])
def test_check_keeps_pending_pending_and_shows_unknown_words(state: str) -> None:
    """B33: pending is neither passed nor failed."""
    result = checked(refund(state=state))
    assert (result.verdict, result.record["passed"]) == ("pending", False)
    assert result.record["found"]["state"] == state


@pytest.mark.parametrize("state", ["failed", "canceled"])
def test_check_reports_a_failed_refund(state: str) -> None:
    assert checked(refund(state=state)).verdict == "failed"


def test_check_says_not_shown_for_a_list_without_it() -> None:
    """B31: a list that does not show it yet concludes nothing."""
    result = checked()
    assert (result.verdict, result.refund) == ("not_shown", None)
    assert (result.record["found"], result.record["refund_id"]) == (None, "rf_3301")


def test_check_says_not_shown_where_several_refunds_may_be_ours() -> None:
    bare = {"idempotency_key": None, "metadata": None}
    result = checked(refund("rf_1", **bare), refund("rf_2", **bare), refund_id=None)
    assert (result.verdict, result.record["ambiguous"]) == ("not_shown", True)


@pytest.mark.parametrize(
    ("found", "differs"),
    [
        ({"amount": inr(1500)}, ["amount"]),
        ({"amount": Money(minor=200_000, currency="USD")}, ["amount"]),
        ({"payment_id": "pay_9001"}, ["payment_id"]),
        ({"order_id": "9999"}, ["order_id"]),
        ({"refund_id": "rf_77"}, ["refund_id"]),
        ({"idempotency_key": "another"}, ["idempotency_key"]),
        ({"metadata": {"run_id": "r2", "key": KEY}}, ["metadata.run_id"]),
        ({"metadata": {"run_id": "r1", "key": "another"}}, ["metadata.key"]),
        ({"amount": inr(1), "state": "pending"}, ["amount"]),
    ],
)
def test_check_sets_asked_and_done_side_by_side(found: dict[str, Any], differs: list[str]) -> None:
    result = checked(refund(**found))
    assert (result.verdict, result.record["differs"]) == ("mismatch", differs)
    assert result.record["expected"]["amount"] == {"amount": "2000.00", "currency": "INR"}
    assert result.record["found"]["amount"] == refund(**found).amount.wire()


@pytest.mark.parametrize("state", ["succeeded", "pending"])
def test_check_alarms_where_somebody_refunded_beside_us(state: str) -> None:
    other = refund("rf_9", payment_id="pay_9001", idempotency_key=None, metadata=None)
    result = checked(refund(state=state), other)
    assert result.verdict == "over_refunded"
    assert (result.record["refund_id"], result.record["other_refunds"]) == ("rf_3301", ["rf_9"])
    assert result.record["excess_after"] == {"amount": "-2000.00", "currency": "INR"}


def test_check_ignores_a_failed_refund_beside_ours() -> None:
    assert checked(refund(), refund("rf_9", state="failed", idempotency_key="another")).verdict == "passed"


def test_check_counts_our_own_write_once_with_its_listed_refund() -> None:
    stored = OwnWrite(
        key=KEY, run_id="r1", payment_id="pay_9002", amount=inr(2000), state="unknown", refund_id=None, intent_at=NOW,
        first_sent_at=NOW,
    )  # fmt: skip
    result = check(write(), refunds=[refund()], facts=facts((), (stored,)), waited_s=0, at=AT)
    assert result.verdict == "passed"


def test_check_counts_a_write_of_another_run_that_the_list_hides() -> None:
    other = OwnWrite(
        key="t_acme_in/req-b:issue_refund:pay_9001", run_id="r2", payment_id="pay_9001", amount=inr(2000),
        state="confirmed", refund_id="rf_2", intent_at=NOW, first_sent_at=NOW,
    )  # fmt: skip
    result = check(write(), refunds=[refund()], facts=facts((refund(),), (other,)), waited_s=0, at=AT)
    assert result.verdict == "over_refunded"


def test_check_never_takes_a_refund_that_another_write_claims() -> None:
    bare = refund("rf_2", idempotency_key=None, metadata=None)
    other = OwnWrite(
        key="k2", run_id="r2", payment_id="pay_9002", amount=inr(2000), state="confirmed", refund_id="rf_2",
        intent_at=NOW, first_sent_at=NOW,
    )  # fmt: skip
    result = check(write(refund_id=None), refunds=[bare], facts=facts((bare,), (other,)), waited_s=0, at=AT)
    assert result.verdict == "not_shown"


def test_check_does_not_pass_where_currencies_mix_on_the_order() -> None:
    euros = refund("rf_9", payment_id="pay_9001", amount=Money(minor=1, currency="EUR"), idempotency_key="another")
    result = checked(refund(), euros)
    assert (result.verdict, result.record["passed"]) == ("over_refunded", False)


def test_check_compares_with_the_body_that_was_sent() -> None:
    changed = write(body=write().body.replace("r1", "r9"))
    result = check(changed, refunds=[refund()], facts=facts((refund(),)), waited_s=0, at=AT)
    assert result.record["differs"] == ["metadata.run_id"]
    assert replace(result.refund or refund("x"), state="succeeded") == refund()
