"""The arithmetic of refunds (`write-path.md` 3), by examples and by properties."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsite.money import CurrencyMismatch, Money
from tools import rules
from tools.contracts import Order, OrderFacts, OwnWrite, Payment, Refund

START = datetime(2026, 11, 29, 12, 0, 0, 350_000, tzinfo=UTC)
KEY = "t_acme_in/req-8472:issue_refund:pay_9002"


def inr(rupees: int) -> Money:
    return Money(minor=rupees * 100, currency="INR")


def payment(payment_id: str = "pay_9001", state: str = "captured", amount: Money | None = None) -> Payment:
    return Payment(
        payment_id=payment_id, order_id="8472", state=state, amount=amount or inr(2000), captured_at=None, note=""
    )


def refund(refund_id: str = "rf_1", state: str = "succeeded", amount: Money | None = None, **more: Any) -> Refund:
    fields: dict[str, Any] = {
        "refund_id": refund_id, "payment_id": "pay_9002", "order_id": "8472", "state": state,
        "amount": amount or inr(2000), "idempotency_key": None, "metadata": None, "created_at": None,
    }  # fmt: skip
    return Refund(**(fields | more))


def own(state: str = "confirmed", **more: Any) -> OwnWrite:
    fields: dict[str, Any] = {
        "key": KEY, "run_id": "r1", "payment_id": "pay_9002", "amount": inr(2000), "state": state, "refund_id": None,
        "intent_at": START, "first_sent_at": START,
    }  # fmt: skip
    return OwnWrite(**(fields | more))


def facts(
    refunds: tuple[Refund, ...] = (), writes: tuple[OwnWrite, ...] = (), payments: tuple[Payment, ...] | None = None,
    total: Money | None = None, due: Money | None = None,
) -> OrderFacts:  # fmt: skip
    whole = total or inr(2000)
    order = Order(order_id="8472", customer_id="c", total=whole, amount_due=due or whole, status="paid", note="")
    return OrderFacts(
        order=order, payments=payments or (payment("pay_9001"), payment("pay_9002")), refunds=refunds, own=writes,
        epoch=0, read_at=START,
    )  # fmt: skip


# --- matching ----------------------------------------------------------------------------------------------


def test_match_finds_by_refund_id_before_anything_else() -> None:
    listed = [refund("rf_1", idempotency_key=KEY), refund("rf_2")]
    found = rules.match(own(refund_id="rf_2"), listed, claimed=set())
    assert (found.refund, found.by, found.ambiguous) == (listed[1], "refund_id", False)


@pytest.mark.parametrize(
    ("listed", "by"),
    [
        ({"idempotency_key": KEY}, "key"),
        ({"metadata": {"run_id": "r1", "key": KEY}}, "metadata"),
        ({"metadata": {"idempotency_key": KEY}}, "metadata"),
    ],
)
def test_match_finds_by_key_and_by_metadata(listed: dict[str, Any], by: str) -> None:
    found = rules.match(own(), [refund("rf_0", idempotency_key="another"), refund("rf_1", **listed)], claimed=set())
    assert found.refund is not None
    assert (found.refund.refund_id, found.by) == ("rf_1", by)


def test_match_by_key_prefers_the_refund_that_moved_money() -> None:
    listed = [refund("rf_1", "failed", idempotency_key=KEY), refund("rf_2", "succeeded", idempotency_key=KEY)]
    found = rules.match(own(), listed, claimed=set())
    assert found.refund == listed[1]


def test_match_by_likeness_takes_the_one_unclaimed_refund() -> None:
    listed = [refund("rf_1"), refund("rf_2")]
    found = rules.match(own("unknown"), listed, claimed={"rf_1"})
    assert (found.refund, found.by) == (listed[1], "likeness")


def test_match_by_likeness_is_ambiguous_for_several() -> None:
    assert rules.match(own("unknown"), [refund("rf_1"), refund("rf_2")], claimed=set()) == rules.Match(ambiguous=True)


@pytest.mark.parametrize(
    "listed",
    [
        {"amount": inr(1999)},
        {"amount": Money(minor=200_000, currency="USD")},
        {"payment_id": "pay_9001"},
        {"idempotency_key": "another"},
        {"metadata": {"key": "another"}},
        {"created_at": "2026-11-29T11:59:59Z"},
    ],
)
def test_match_by_likeness_refuses_what_is_surely_another(listed: dict[str, Any]) -> None:
    assert rules.match(own("unknown"), [refund(**listed)], claimed=set()) == rules.Match()


@pytest.mark.parametrize(
    "created_at",
    [None, "", "yesterday", "2026-11-29T12:00:00", "2026-11-29T12:00:00Z", "2026-11-29T17:30:00+05:30"],
)
def test_match_by_likeness_takes_what_is_not_surely_earlier(created_at: str | None) -> None:
    found = rules.match(own("unknown"), [refund(created_at=created_at)], claimed=set())
    assert found.refund is not None


def test_match_by_likeness_never_serves_a_write_that_was_not_sent() -> None:
    assert rules.match(own("intent", first_sent_at=None), [refund()], claimed=set()) == rules.Match()


def test_claimed_by_others_leaves_out_the_write_itself() -> None:
    writes = [own(refund_id="rf_1"), own(key="k2", refund_id="rf_2"), own(key="k3")]
    assert rules.claimed_by_others(writes, KEY) == {"rf_2"}


# --- sums --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("succeeded", True), ("pending", True), ("requires_action", True), ("failed", False), ("canceled", False),
        ("cancelled", True), ("", True), ("half_done", True),
    ],
)  # fmt: skip
def test_counted_takes_every_state_but_failed_and_canceled(state: str, expected: bool) -> None:
    assert rules.counted(state) is expected


@pytest.mark.parametrize(("state", "left"), [("failed", 2000), ("pending", 0), ("canceled", 2000), ("odd", 0)])
def test_excess_follows_the_refund_state(state: str, left: int) -> None:
    """B35."""
    assert rules.excess(facts((refund("rf_1", state),)), leave_out=None) == inr(left)


@pytest.mark.parametrize(
    ("state", "counts"),
    [
        ("intent", True), ("sent", True), ("unknown", True), ("pending", True), ("confirmed", True),
        ("failed", False), ("refused", False), ("not_sent", False),
    ],
)  # fmt: skip
def test_refunded_counts_own_writes_that_the_list_does_not_show(state: str, counts: bool) -> None:
    assert rules.refunded(facts(writes=(own(state),)), leave_out=None) == inr(2000 if counts else 0)


def test_refunded_counts_a_write_and_its_listed_refund_once_with_the_larger_amount() -> None:
    both = facts((refund("rf_1", amount=inr(1500)),), (own(refund_id="rf_1"),))
    assert rules.refunded(both, leave_out=None) == inr(2000)
    larger = facts((refund("rf_1", amount=inr(2500)),), (own(refund_id="rf_1"),))
    assert rules.refunded(larger, leave_out=None) == inr(2500)


def test_refunded_leaves_out_the_write_being_released() -> None:
    assert rules.refunded(facts(writes=(own("intent"),)), leave_out=KEY) == inr(0)


def test_refunded_still_counts_the_listed_refund_of_the_write_being_resent() -> None:
    shown = facts((refund("rf_1", idempotency_key=KEY),), (own("unknown"),))
    assert rules.refunded(shown, leave_out=KEY) == inr(2000)


def test_refunded_believes_the_list_that_our_own_refund_failed() -> None:
    assert rules.refunded(facts((refund("rf_1", "failed"),), (own(refund_id="rf_1"),)), leave_out=None) == inr(0)


def test_refunded_does_not_take_a_failed_refund_that_is_only_alike_for_ours() -> None:
    assert rules.refunded(facts((refund("rf_1", "failed"),), (own("unknown"),)), leave_out=None) == inr(2000)


def test_refunded_counts_ambiguous_refunds_beside_the_unknown_write() -> None:
    doubtful = facts(
        (refund("rf_1", amount=inr(500)), refund("rf_2", amount=inr(500))), (own("sent", amount=inr(500)),)
    )
    assert rules.refunded(doubtful, leave_out=None) == inr(1500)


def test_refunded_counts_a_doubled_row_once() -> None:
    doubled = facts((refund("rf_1", amount=inr(500)), refund("rf_1", "failed", amount=inr(700))))
    assert rules.refunded(doubled, leave_out=None) == inr(700)


def test_likeness_gives_one_refund_to_one_write_only() -> None:
    writes = (own("unknown"), own("confirmed", key="k2", intent_at=START + timedelta(minutes=1)))
    assert rules.refunded(facts((refund("rf_1"),), writes), leave_out=None) == inr(4000)


def test_captured_counts_captured_and_refunded_payments_alone() -> None:
    states = ("captured", "refunded", "authorised", "failed", "disputed", "odd")
    whole = facts(payments=tuple(payment(f"p{n}", s, inr(10**n)) for n, s in enumerate(states)))
    assert rules.captured(whole) == inr(11)


def test_captured_counts_a_doubled_payment_once_and_ignores_other_orders() -> None:
    foreign = replace(payment("pay_x"), order_id="9999")
    assert rules.captured(facts(payments=(payment(), payment(), foreign))) == inr(2000)
    assert rules.captured(facts(payments=(payment(), payment(state="disputed")))) == inr(0)


def test_excess_lets_disputed_payments_leave_with_their_refunds() -> None:
    disputed = facts((refund("rf_1"),), payments=(payment("pay_9001"), payment("pay_9002", "disputed")))
    assert rules.excess(disputed, leave_out=None) == inr(0)
    assert rules.refunded(disputed, leave_out=None) == inr(2000)


def test_excess_is_negative_where_more_was_refunded_than_due() -> None:
    twice = (refund("rf_1"), refund("rf_2", payment_id="pay_9001"))
    assert rules.excess(facts(twice), leave_out=None) == inr(-2000)


def test_excess_uses_what_the_order_still_costs() -> None:
    assert rules.excess(facts(due=inr(500)), leave_out=None) == inr(3500)


def test_left_on_is_what_the_payment_has_left() -> None:
    some = facts((refund("rf_1", amount=inr(700)),))
    assert rules.left_on(some, "pay_9002", leave_out=None) == inr(1300)
    assert rules.left_on(some, "pay_9001", leave_out=None) == inr(2000)
    assert rules.refunded_on(some, "pay_9002", leave_out=None) == inr(700)


@pytest.mark.parametrize("state", ["refunded", "authorised", "failed", "disputed", "odd"])
def test_left_on_is_nothing_where_the_payment_is_not_captured(state: str) -> None:
    assert rules.left_on(facts(payments=(payment(state=state),)), "pay_9001", leave_out=None) == inr(0)


def test_left_on_is_nothing_for_an_unknown_payment() -> None:
    assert rules.left_on(facts(), "pay_7", leave_out=None) == inr(0)


@pytest.mark.parametrize(
    "mixed",
    [
        facts(total=Money(minor=200_000, currency="GBP")),
        facts((refund(amount=Money(minor=1, currency="GBP")),)),
        facts(writes=(own(amount=Money(minor=1, currency="GBP")),)),
        facts(due=Money(minor=1, currency="GBP")),
        facts((refund("rf_1"),), (own(refund_id="rf_1", amount=Money(minor=1, currency="GBP")),)),
    ],
)
def test_excess_raises_where_currencies_would_meet(mixed: OrderFacts) -> None:
    """B40."""
    with pytest.raises(CurrencyMismatch):
        rules.excess(mixed, leave_out=None)


def test_sums_ignore_a_payment_that_was_never_taken_in_another_currency() -> None:
    other = payment("pay_9003", "failed", Money(minor=5, currency="USD"))
    assert rules.excess(facts(payments=(payment("pay_9001"), payment("pay_9002"), other)), leave_out=None) == inr(2000)


# --- properties --------------------------------------------------------------------------------------------

amounts = st.integers(min_value=1, max_value=3000).map(inr)
some_ids = st.sampled_from(["rf_1", "rf_2", "rf_3", "rf_4"])
some_payments = st.sampled_from(["pay_9001", "pay_9002"])
refund_states = st.sampled_from(["succeeded", "pending", "requires_action", "failed", "canceled", "odd"])
keys = st.sampled_from([None, "k1", "k2", "foreign"])
listed_refunds = st.builds(
    lambda i, p, s, a, k: refund(i, s, a, payment_id=p, idempotency_key=k),
    some_ids, some_payments, refund_states, amounts, keys,
)  # fmt: skip
write_states = st.sampled_from(["intent", "sent", "unknown", "pending", "confirmed", "failed", "refused", "not_sent"])
writes_made = st.lists(
    st.builds(
        lambda k, p, s, a, r: own(s, key=k, payment_id=p, amount=a, refund_id=r),
        st.sampled_from(["k1", "k2", "k3"]), some_payments, write_states, amounts, st.none() | some_ids,
    ),
    max_size=3, unique_by=lambda w: w.key,
)  # fmt: skip


@given(st.lists(listed_refunds, max_size=5, unique_by=lambda r: r.refund_id), writes_made, st.randoms())
def test_sums_do_not_depend_on_the_order_of_lists(
    listed: list[Refund], writes: list[OwnWrite], chance: random.Random
) -> None:
    one = facts(tuple(listed), tuple(writes))
    chance.shuffle(listed)
    chance.shuffle(writes)
    other = facts(tuple(listed), tuple(writes), payments=(payment("pay_9002"), payment("pay_9001")))
    assert rules.refunded(one, leave_out=None) == rules.refunded(other, leave_out=None)
    assert rules.excess(one, leave_out="k1") == rules.excess(other, leave_out="k1")


@given(st.lists(listed_refunds, max_size=4, unique_by=lambda r: r.refund_id), writes_made)
def test_a_failed_refund_of_somebody_else_changes_nothing(listed: list[Refund], writes: list[OwnWrite]) -> None:
    before = facts(tuple(listed), tuple(writes))
    after = replace(before, refunds=(*before.refunds, refund("rf_9", "failed", inr(1), idempotency_key="foreign")))
    assert rules.refunded(after, leave_out=None) == rules.refunded(before, leave_out=None)


@given(st.lists(listed_refunds, max_size=5, unique_by=lambda r: r.refund_id), writes_made)
def test_the_union_lies_between_its_larger_part_and_the_sum_of_both(
    listed: list[Refund], writes: list[OwnWrite]
) -> None:
    union = rules.refunded(facts(tuple(listed), tuple(writes)), leave_out=None)
    list_alone = rules.refunded(facts(tuple(listed)), leave_out=None)
    ours_alone = rules.refunded(facts(writes=tuple(writes)), leave_out=None)
    assert list_alone <= union <= list_alone + ours_alone


@given(st.lists(st.tuples(some_payments, amounts), max_size=4))
def test_a_write_with_its_refund_listed_counts_once(made: list[tuple[str, Money]]) -> None:
    writes = tuple(own(key=f"k{n}", payment_id=p, amount=a, refund_id=f"rf_{n}") for n, (p, a) in enumerate(made))
    listed = tuple(refund(f"rf_{n}", payment_id=p, amount=a) for n, (p, a) in enumerate(made))
    assert rules.refunded(facts(listed, writes), leave_out=None) == rules.refunded(facts(listed), leave_out=None)


# --- the body ----------------------------------------------------------------------------------------------


def body(**changes: Any) -> str:
    arguments: dict[str, Any] = {
        "order_id": "8472", "payment_id": "pay_9002", "amount": inr(2000).wire(), "reason": "duplicate_capture",
        "approval_id": "apr_1", "decision_id": "dec_1", "run_id": "r1", "key": KEY,
        "expected_refunded": inr(0).wire(),
    }  # fmt: skip
    return rules.post_body(**(arguments | changes))


def test_post_body_is_canonical_and_exact() -> None:
    assert body() == (
        '{"amount":{"amount":"2000.00","currency":"INR"},"approval_id":"apr_1",'
        '"expected_refunded":{"amount":"0.00","currency":"INR"},'
        '"metadata":{"key":"t_acme_in/req-8472:issue_refund:pay_9002","run_id":"r1"},'
        '"order_id":"8472","payment_id":"pay_9002","reason":"duplicate_capture"}'
    )


def test_post_body_names_the_decision_where_no_person_approved() -> None:
    sent = json.loads(body(approval_id=None))
    assert sent["approval_id"] is None
    assert sent["metadata"] == {"run_id": "r1", "key": KEY, "decision_id": "dec_1"}
