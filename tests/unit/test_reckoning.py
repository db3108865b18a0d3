"""What is owed, on which payment, and what is left alone: the offline investigator on many sets of facts."""

from __future__ import annotations

import pytest

from runs.contracts import Final
from runs.inference import offline
from runs.states import Status
from tests.unit.offline_turns import paid, prose, turn
from tests.unit.states_8472 import (
    PAYMENTS,
    gathered,
    order,
    payment,
    refund,
    state,
    wire,
    write,
)
from tools.contracts import Json

ONE = PAYMENTS[:1]
HALF_PAST = "2026-10-20T08:30:00Z"
NINE_IN_BERLIN = "2026-10-20T09:00:00+02:00"
CANCELLED = order(due="0.00", status="cancelled")
UNSENT = order(due="0.00", status="pending")


# --- what is owed, and on which payment --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"payments": PAYMENTS[::-1]}, ("pay_9002", "2000.00", "duplicate_capture")),
        (
            {"payments": [payment("pay_b", captured_at=None), payment("pay_a", captured_at=None)]},
            ("pay_b", "2000.00", "duplicate_capture"),
        ),
        (
            {"payments": [payment("p1", captured_at=NINE_IN_BERLIN), payment("p2", captured_at=HALF_PAST)]},
            ("p2", "2000.00", "duplicate_capture"),
        ),
        ({"of_order": CANCELLED, "payments": ONE}, ("pay_9001", "2000.00", "order_cancelled")),
        ({"of_order": UNSENT, "payments": ONE}, ("pay_9001", "2000.00", "order_cancelled")),
        ({"of_order": order(due="1500.50"), "payments": ONE}, ("pay_9001", "499.50", "items_returned")),
        ({"of_order": order(due="0.00"), "payments": ONE}, ("pay_9001", "2000.00", "items_returned")),
        ({"of_order": order(due="1990.00", status="pending"), "payments": ONE}, ("pay_9001", "10.00", "price_reduced")),
        ({"payments": [payment("p1", "2100.00")]}, ("p1", "100.00", "captured_in_excess")),
        # More is owed than one payment has left: the one with the most to give comes first.
        (
            {"of_order": order(due="0.00"), "payments": [payment("p1", "500.00"), payment("p2", "1500.00")]},
            ("p2", "1500.00", "items_returned"),
        ),
        (
            {"of_order": order(due="0.00"), "payments": [payment("p1", "900.00"), payment("p2", "1100.00")],
             "refunds": [refund("rf_1", "p2", "400.00")]},
            ("p1", "900.00", "items_returned"),
        ),
        # The later capture has been given back in part, so the earlier one can carry the whole.
        (
            {"of_order": order(due="0.00"), "payments": PAYMENTS, "refunds": [refund("rf_1", "pay_9002", "500.00")]},
            ("pay_9001", "2000.00", "items_returned"),
        ),
        ({"refunds": [refund("rf_1", "pay_9002", state="failed")]}, ("pay_9002", "2000.00", "duplicate_capture")),
        ({"refunds": [refund("rf_1", "pay_9002", state="canceled")]}, ("pay_9002", "2000.00", "duplicate_capture")),
        ({"refunds": [refund("rf_1", "pay_9002", "500.00")]}, ("pay_9001", "1500.00", "duplicate_capture")),
        # A disputed payment leaves the sum together with its refunds.
        (
            {"payments": [*PAYMENTS, payment("pay_9003", state="disputed")], "refunds": [refund("rf_1", "pay_9003")]},
            ("pay_9002", "2000.00", "duplicate_capture"),
        ),
        ({"payments": [*PAYMENTS, payment("pay_9003", state="failed")]}, ("pay_9002", "2000.00", "duplicate_capture")),
        ({"payments": [*PAYMENTS, payment("p3", state="authorised")]}, ("pay_9002", "2000.00", "duplicate_capture")),
        # Nothing is proposed on a payment that is given back already.
        (
            {"payments": [payment("p1"), payment("p2", state="refunded"), payment("p3", "100.00")],
             "refunds": [refund("rf_1", "p2")]},
            ("p1", "100.00", "duplicate_capture"),
        ),
        (
            {"of_order": {**order(), "total": wire("500", "JPY"), "amount_due": wire("500", "JPY")},
             "payments": [payment("p1", "500", "JPY"), payment("p2", "500", "JPY")]},
            ("p2", "500", "duplicate_capture"),
        ),
        ({"of_order": {**order(), "amount_due": None}}, ("pay_9002", "2000.00", "duplicate_capture")),
    ],
)  # fmt: skip
def test_refund_is_what_the_facts_owe_on_the_payment_that_can_carry_it(facts: Json, expected: tuple[str, ...]) -> None:
    assert paid(turn(state(gathered(**facts), status=Status.GATHERING, model_calls=2))) == expected


@pytest.mark.parametrize(
    "facts",
    [
        {"payments": PAYMENTS[:1]},
        {"payments": []},
        {"refunds": [refund("rf_1", "pay_9002")]},
        {"refunds": [refund("rf_1", "pay_9002", state="pending")]},
        {"refunds": [refund("rf_1", "pay_9002", state="never_heard_of")]},
        {"refunds": [refund("rf_1", "pay_9001"), refund("rf_2", "pay_9002")]},
        {"payments": [PAYMENTS[0], {**PAYMENTS[1], "state": "disputed"}]},
        {"payments": [PAYMENTS[0], {**PAYMENTS[1], "state": "authorised"}]},
    ],
)
def test_nothing_is_proposed_where_nothing_is_owed(facts: Json) -> None:
    found = turn(state(gathered(**facts), status=Status.GATHERING, model_calls=2))
    assert prose(found) == offline.NOTHING_DUE
    assert isinstance(found, Final)
    assert found.evidence == ("obs_2", "obs_4", "obs_3.1", "obs_1")


@pytest.mark.parametrize(
    "facts",
    [
        {"of_order": order(currency="GBP")},
        {"payments": [PAYMENTS[0], payment("p2", currency="USD")]},
        {"refunds": [refund("rf_1", "pay_9001", "1.00", "USD")]},
        {"of_order": {**order(), "amount_due": wire("2000.00", "USD")}},
    ],
)
def test_several_currencies_are_for_a_person(facts: Json) -> None:
    assert prose(turn(state(gathered(**facts), status=Status.GATHERING, model_calls=2))) == offline.PERSON


@pytest.mark.parametrize(
    "facts",
    [
        {"of_order": {**order(), "total": "2000"}},
        {"of_order": {**order(), "amount_due": wire("2000.001")}},
        {"of_order": {**order(), "order_id": "8473"}},
        {"payments": [{**PAYMENTS[0], "amount": {"amount": 2000, "currency": "INR"}}]},
        {"payments": [{**PAYMENTS[0], "order_id": "8473"}]},
        {"payments": [{**PAYMENTS[0], "payment_id": None}]},
        {"payments": ["pay_9001"]},
        {"refunds": [{**refund("rf_1", "pay_9001"), "amount": None}]},
        {"refunds": [5]},
    ],
)
def test_facts_of_another_shape_are_not_concluded_from(facts: Json) -> None:
    assert prose(turn(state(gathered(**facts), status=Status.GATHERING, model_calls=2))) == offline.UNCONFIRMED


# --- several writes ----------------------------------------------------------------------------------------------


def test_more_that_is_owed_is_proposed_on_another_payment_after_verification() -> None:
    facts: Json = {"of_order": order(due="0.00"), "payments": [payment("p1", "1500.00"), payment("p2", "500.00")]}
    first = state(gathered(**facts), status=Status.GATHERING, model_calls=2)
    assert paid(turn(first)) == ("p1", "1500.00", "items_returned")
    done = state(gathered(**facts), status=Status.VERIFIED, model_calls=3, writes=(write("p1", "1500.00"),))
    assert paid(turn(done)) == ("p2", "500.00", "items_returned")
    both = state(gathered(**facts), status=Status.VERIFIED, writes=(write("p1", "1500.00"), write("p2", "500.00")))
    assert prose(turn(both)) == offline.THANKS


def test_own_write_that_the_provider_lists_counts_once() -> None:
    facts: Json = {"payments": [*PAYMENTS, payment("pay_9003", captured_at="2026-10-20T09:01:00Z")],
                   "refunds": [refund("rf_pay_9003", "pay_9003")]}  # fmt: skip
    run = state(gathered(**facts), status=Status.VERIFIED, model_calls=4, writes=(write("pay_9003"),))
    assert paid(turn(run)) == ("pay_9002", "2000.00", "duplicate_capture")


@pytest.mark.parametrize("how", ["pending", "unknown", "sent", "intent"])
def test_own_write_of_unknown_effect_counts_as_given_back(how: str) -> None:
    run = state(gathered(), status=Status.GATHERING, writes=(write("pay_9002", state=how, refund_id=None),))
    assert prose(turn(run)) == offline.THANKS


def test_payment_whose_write_was_sent_in_vain_is_closed_and_left_to_a_person() -> None:
    facts: Json = {"of_order": order(due="0.00"), "payments": PAYMENTS[:1]}
    spent = write("pay_9001", state="refused", refund_id=None)
    assert prose(turn(state(gathered(**facts), status=Status.GATHERING, writes=(spent,)))) == offline.PERSON
    never = write("pay_9001", state="not_sent", refund_id=None, attempts=())
    assert paid(turn(state(gathered(**facts), status=Status.GATHERING, writes=(never,))))[0] == "pay_9001"
