"""Regression cases RS: what a refund means, in states, currencies and amounts. Named by their ids in the list."""

from __future__ import annotations

import re
from typing import Any

import pytest

from approvals.models import Approval
from runs.models import Counter, Run, Write
from tests.system.business import captures, order
from tests.world import KEY, World, final, gather, inr, refund, s0, worker_dies

FOUND = "We found two captured payments of 2,000.00 INR each on order 8472, which costs 2,000.00 INR."


def approved(world: World, **start: Any) -> Run:
    run = world.start(**start)
    world.approve(run)
    return run


# --- B33: pending is pending ---------------------------------------------------------------------------------


def _pending(world: World) -> tuple[Run, str]:
    """A run whose refund the provider calls pending, and the refund's id."""
    world.settings(PENDING_POLL_S="1")
    world.sandbox.fault("POST /v1/refunds", "state:pending")
    run = world.resume(approved(world))
    [made] = world.refunds()
    return run, made["refund_id"]


def test_b33_a_pending_refund_is_told_as_submitted_and_polled(world: World) -> None:
    run, refund_id = _pending(world)
    assert (run.status, run.waiting_for, run.outcome) == ("executed", "refund", None)
    assert world.writes(run) == [(KEY, "pending")]
    assert run.due_at is not None and run.due_at > run.updated_at
    assert world.said(run) == (
        "We are waiting for a refund to be confirmed. A refund of 2,000.00 INR to payment pay_9002 on order 8472 has "
        f"been submitted with the reference {refund_id}; it is not confirmed yet."
    )


def test_b33_a_pending_refund_that_succeeds_is_verified_and_answered(world: World) -> None:
    run, refund_id = _pending(world)
    world.sandbox.control(f"/_refunds/{refund_id}", state="succeeded")
    run = world.resume(run, until="completed")
    assert (run.outcome, world.writes(run), len(world.posts())) == ("refunded", [(KEY, "confirmed")], 1)
    assert f"has been made and confirmed; its reference is {refund_id}" in str(run.reply)


def test_b33_a_pending_refund_that_fails_goes_to_staff_and_nothing_follows_by_itself(world: World) -> None:
    run, refund_id = _pending(world)
    world.sandbox.control(f"/_refunds/{refund_id}", state="failed")
    run = world.resume(run, until="escalated")
    assert (run.reason, run.outcome, len(world.posts())) == ("refund_failed", "refund_failed", 1)
    assert world.writes(run) == [(KEY, "failed")]
    assert {"to": "staff", "error": "refund_failed"} in world.events(run, "notice")
    assert world.said(run) == (
        f"{FOUND} A refund of 2,000.00 INR to payment pay_9002 on order 8472 with the reference {refund_id} did not go "
        "through. A specialist is looking at it and will decide what happens next."
    )


@pytest.mark.parametrize("word", ["requires_action", "in_review"])
def test_b33_a_word_for_not_yet_counts_as_refunded_and_never_as_failed(world: World, word: str) -> None:
    world.settings(PENDING_POLL_S="5")
    world.sandbox.fault("POST /v1/refunds", f"state:{word}")
    run = world.resume(approved(world))
    assert (run.status, run.waiting_for) == ("executed", "refund")
    second = world.start("req-2", script=s0(refund("pay_9001")))
    assert (second.status, world.rules(second), len(world.posts())) == ("completed", ["nothing_refundable"], 1)


# --- B35: which states count -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "status", "rules"),
    [
        ("failed", "awaiting_approval", []), ("canceled", "awaiting_approval", []),
        ("pending", "completed", ["nothing_refundable"]), ("succeeded", "completed", ["nothing_refundable"]),
        ("requires_action", "completed", ["nothing_refundable"]), ("odd_word", "completed", ["nothing_refundable"]),
    ],
)  # fmt: skip
def test_b35_an_earlier_refund_counts_unless_it_came_to_nothing(
    world: World, state: str, status: str, rules: list[str]
) -> None:
    earlier = {"refund_id": "rf_1", "order_id": "8472", "payment_id": "pay_9002", "amount": inr("2000.00")}
    world.seed(refunds=[{**earlier, "state": state}])
    run = world.start()
    assert (run.status, world.rules(run), world.posts()) == (status, rules, [])
    if status == "awaiting_approval":
        world.approve(run)
        assert (world.resume(run).outcome, len(world.posts())) == ("refunded", 1)


# --- B36: a disputed payment -----------------------------------------------------------------------------------


def _dispute(world: World, state: str = "disputed") -> None:
    world.seed(payments=[{"payment_id": "pay_9002", "state": state}])


def test_b36_a_disputed_payment_is_denied_and_goes_to_a_person(world: World) -> None:
    _dispute(world)
    run = world.start()
    assert (run.status, run.reason, world.rules(run)) == ("escalated", "needs_a_person", ["payment_disputed"])
    assert (world.posts(), Approval.objects.count()) == ([], 0)
    assert "A payment of 2,000.00 INR on it is disputed with the bank." in world.said(run)


def test_b36_a_dispute_that_opens_after_the_approval_stops_the_write(world: World) -> None:
    run = approved(world)
    _dispute(world)
    run = world.resume(run)
    assert (run.status, run.reason, world.approval(run).status) == ("escalated", "needs_a_person", "void")
    assert (world.posts(), Write.objects.count()) == ([], 0)
    assert world.events(run, "gate.decided")[-1]["rule"] == "payment_disputed"


def test_b36_a_dispute_that_opens_before_a_re_send_stops_it(world: World) -> None:
    run = approved(world)
    worker_dies(run, after="sent")
    _dispute(world)
    assert (world.resume(run).status, world.writes(run)) == ("executing", [(KEY, "unknown")])
    world.later(run, 10)
    run = world.resume(run, until="escalated")
    assert (world.posts(), world.writes(run), run.reason) == ([], [(KEY, "not_sent")], "needs_a_person")


def test_b36_a_dispute_that_was_won_is_captured_again_and_refundable(world: World) -> None:
    _dispute(world)
    _dispute(world, "captured")
    assert (world.resume(approved(world)).outcome, len(world.posts())) == ("refunded", 1)


def test_b36_the_other_payment_of_a_disputed_order_is_measured_without_it(world: World) -> None:
    """Disputed money leaves the sum: one capture of 2,000 for an order of 2,000 leaves nothing."""
    _dispute(world)
    run = world.start(script=s0(refund("pay_9001")))
    assert (run.status, world.rules(run), world.posts()) == ("completed", ["nothing_refundable"], [])


# --- B38 and B40: currencies -------------------------------------------------------------------------------------


def money(amount: str, currency: str) -> dict[str, str]:
    return {"amount": amount, "currency": currency}


def _in(world: World, currency: str, amount: str, *, rule: dict[str, str] | None = None, paid_in: str = "") -> None:
    """Order 8472 for this amount, captured twice; `rule` is the currency's grant."""
    payments = [{**p, "amount": money(amount, paid_in or currency)} for p in captures("8472", "pay_9001", "pay_9002")]
    wanted = order("8472", total=money(amount, currency), amount_due=money(amount, currency))
    world.sandbox.control("/_seed", reset=True, orders=[wanted], payments=payments)
    if rule is not None:
        world.profile(write_tools={"issue_refund": {"by_currency": {currency: rule}}})


def test_b38_yen_have_no_minor_unit_anywhere(world: World) -> None:
    _in(world, "JPY", "500", rule={"max_amount": "5000", "requires_approval_above": "100"})
    run = world.start(script=s0(refund(amount="500", currency="JPY")))
    assert run.status == "awaiting_approval"
    page = world.browser().get(f"/admin/approvals/approval/{world.approval(run).id}/change/").content.decode()
    assert re.search(r"\b500\s+JPY|JPY\s+500\b", page) and "500.00" not in page and "5.00" not in page
    world.approve(run)
    run = world.resume(run)
    [post] = world.sandbox.posts()
    assert post["body"]["amount"] == money("500", "JPY")
    assert (run.outcome, Write.objects.get().amount_minor) == ("refunded", 500)
    assert "A refund of 500 JPY to payment pay_9002 on order 8472 has been made and confirmed" in str(run.reply)


@pytest.mark.parametrize("amount", ["500.00", "500.5", "0.5"])
def test_b38_yen_with_decimals_are_invalid(world: World, amount: str) -> None:
    _in(world, "JPY", "500", rule={"max_amount": "5000", "requires_approval_above": "100"})
    run = world.start(script=[*gather(), refund(amount=amount, currency="JPY")])
    assert (run.status, [e["error"] for e in world.errors(run)]) == ("escalated", ["invalid_arguments"] * 3)
    assert world.posts() == []


def test_b38_a_currency_without_a_limit_is_denied_and_never_compared_as_a_bare_number(world: World) -> None:
    _in(world, "JPY", "500")
    run = world.start(script=s0(refund(amount="500", currency="JPY")))
    assert (run.status, world.rules(run), world.posts()) == ("completed", ["no_limit_for_currency"], [])


def test_b38_a_currency_of_three_decimals_is_whole_to_the_last_fils(world: World) -> None:
    _in(world, "KWD", "1.250", rule={"max_amount": "5.000", "requires_approval_above": "2.000"})
    run = world.start(script=s0(refund(amount="1.25", currency="KWD")))
    assert (run.outcome, Write.objects.get().amount_minor) == ("refunded", 1250)
    assert world.posts() == [("pay_9002", "1.250", KEY)]


def test_b40_a_proposal_in_another_currency_is_a_mismatch(world: World) -> None:
    rule = {"max_amount": "200000.00", "requires_approval_above": "1000.00"}
    _in(world, "INR", "98633.00")
    world.profile(write_tools={"issue_refund": {"by_currency": {"INR": rule, "GBP": rule}}})
    run = world.start(script=s0(refund(amount="1000.00", currency="GBP")))
    assert (run.status, world.rules(run), world.posts()) == ("completed", ["currency_mismatch"], [])


def test_b40_an_order_and_its_payment_in_two_currencies_are_for_nobody_to_convert(world: World) -> None:
    rule = {"max_amount": "200000.00", "requires_approval_above": "1000.00"}
    _in(world, "GBP", "900.00", paid_in="INR")
    world.profile(write_tools={"issue_refund": {"by_currency": {"INR": rule, "GBP": rule}}})
    for number, currency in enumerate(("INR", "GBP")):
        run = world.start(f"req-{number}", script=s0(refund(amount="100.00", currency=currency)))
        assert (run.status, world.rules(run)) == ("completed", ["currency_mismatch"])
    assert world.posts() == []


# --- B42: amounts that read two ways ---------------------------------------------------------------------------------

AMBIGUOUS = [
    "2,000", "2.000", "1.000,50", "2 000", "₹2,000", "２０００", "6,95", "2e3", "+2000", "-2000", "2000.", ".5", "0",
    "02000",
]  # fmt: skip


@pytest.mark.parametrize("amount", AMBIGUOUS)
def test_b42_an_amount_that_reads_two_ways_is_refused_with_what_was_expected(world: World, amount: str) -> None:
    run = world.start(script=[*gather(), refund(amount=amount)])
    assert (run.status, run.reason, run.model_calls) == ("escalated", "repair_exhausted", 5)
    for error in world.errors(run):
        assert (error["error"], error["field"]) == ("invalid_arguments", "amount.amount")
        assert error["expected"].startswith("a decimal amount")
    assert len([raw for raw in world.raw_turns(run) if "issue_refund" in raw]) == 3
    assert (world.posts(), Approval.objects.count(), Write.objects.count()) == ([], 0, 0)


def test_b42_an_amount_put_right_is_one_repair(world: World) -> None:
    run = world.start(script=[*gather(), refund(amount="2,000"), refund(amount="2000"), final()])
    assert (run.status, world.approval(run).args["amount"]) == ("awaiting_approval", inr("2000.00"))


def test_b42_the_page_has_no_field_for_an_amount(world: World) -> None:
    run = world.start()
    page = world.browser().get(f"/admin/approvals/approval/{world.approval(run).id}/change/").content.decode()
    names = set(re.findall(r'<(?:input|textarea|select|button)[^>]*\bname="([^"]+)"', page))
    deciding = {"csrfmiddlewaretoken", "action_hash", "screen_hash", "decision", "reason_code", "reason"}
    assert names - deciding <= {"hold", "for", "back"}, "who looks at it, and nothing of what is done"


# --- B44: one record for one refund -----------------------------------------------------------------------------------


def test_b44_one_refund_seen_three_times_is_one_record(world: World) -> None:
    """Seen before our result was saved, right after, and once more beside an unrelated refund."""
    world.seed(amount_due=inr("0.00"), payments=captures("8472", "pay_9001", "pay_9002", "pay_9003"))
    world.sandbox.fault("POST /v1/refunds", "state:pending")
    world.settings(PENDING_POLL_S="0.3")
    run = approved(world)
    worker_dies(run, after="post")
    run = world.resume(run, patience_s=0.1)
    [made] = world.refunds()
    assert (run.status, world.writes(run)) == ("executed", [(KEY, "pending")])
    totals = list(Counter.objects.order_by("scope").values_list("scope", "count", "amount_minor"))
    world.resume(run, patience_s=0.1)
    beside = world.sandbox.control("/_refunds", payment_id="pay_9003", amount=inr("2000.00"))
    world.sandbox.control(f"/_refunds/{made['refund_id']}", state="succeeded")
    run = world.resume(run, until="completed")
    [write] = Write.objects.all()
    assert (write.refund_id, write.state) == (made["refund_id"], "confirmed")
    assert beside["refund_id"] != write.refund_id
    assert list(Counter.objects.order_by("scope").values_list("scope", "count", "amount_minor")) == totals
    assert (len(world.posts()), run.outcome) == (1, "refunded")
    assert run.observations.filter(source="issue_refund").count() == 1


def _one_beside_us(world: World, after: Any) -> tuple[Run, str, Write]:
    """A refund of the same payment and amount, without key and data, appears while the outcome of ours is open."""
    world.seed(amount_due=inr("0.00"), payments=[{"payment_id": "pay_9002", "amount": inr("4000.00")}])
    run = approved(world)
    worker_dies(run, after=after)
    beside = world.sandbox.control("/_refunds", payment_id="pay_9002", amount=inr("2000.00"))["refund_id"]
    return world.resume(run, until="completed"), beside, Write.objects.get()


def test_b44_a_refund_made_beside_us_is_not_taken_for_ours(world: World) -> None:
    run, beside, write = _one_beside_us(world, "post")
    assert (run.outcome, write.state, write.refund_id == beside) == ("refunded", "confirmed", False)
    assert (len(world.posts()), len(world.refunds())) == (1, 2)


def test_b44_a_refund_made_beside_us_before_our_post_makes_its_frozen_body_refused(world: World) -> None:
    run, beside, write = _one_beside_us(world, "intent")
    assert (run.outcome, write.state, write.refund_id) == ("answered", "refused", None)
    assert [r["refund_id"] for r in world.refunds()] == [beside]
    assert world.sandbox.posts()[0]["status"] == 409
