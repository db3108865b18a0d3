"""Around the intent: what a customer may still stop, lost answers, and refunds that are not what was asked."""

from __future__ import annotations

import json
import time

import pytest

from agentsite.tenants.models import Site, Tenant
from runs.models import Qualification
from tests.world import KEY, World, final, gather, inr, refund, s0, turn

FOUND = "We found two captured payments of 2,000.00 INR each on order 8472, which costs 2,000.00 INR."


def test_message_before_the_intent_voids_the_approval_and_the_run_gathers_again(world: World) -> None:
    """M105."""
    run = world.start(script=[*gather(), refund(), final(), final()])
    world.approve(run)
    world.message(run, "Please do not refund, I found the money.")
    run = world.resume(run)
    assert (run.status, run.outcome, world.posts()) == ("completed", "answered", [])
    assert (world.approval(run).status, world.approval(run).void_reason) == ("void", "customer_message")


def test_cancel_before_the_intent_refunds_nothing_and_after_it_is_reconciled(world: World) -> None:
    """M22, B81."""
    early = world.start("req-early")
    world.approve(early)
    world.cancel(early)
    early = world.resume(early)
    assert (early.status, early.outcome, world.posts()) == ("cancelled", "cancelled", [])
    late = world.start("req-late")
    world.approve(late, by="lead_18")
    world.sandbox.fault("POST /v1/refunds", "drop_after")
    world.settings(RETRY_S="2")
    assert world.resume(late).status == "executing"
    world.cancel(late)
    late = world.resume(late, until="completed")
    assert (late.outcome, len(world.refunds())) == ("refunded", 1)
    assert "has been made and confirmed" in world.said(late)


@pytest.mark.parametrize("mode", ["drop_after", "delay_after:2.5", "status_after:500", "garbage", "empty", "truncate"])
def test_lost_answer_of_a_refund_is_looked_up_and_never_repeated(world: World, mode: str) -> None:
    """M50: unknown is not failed."""
    world.settings(WRITE_TIMEOUT_S="0.5")
    world.sandbox.fault("POST /v1/refunds", mode)
    run = world.start()
    world.approve(run)
    run = world.resume(run, until="completed")
    assert (run.outcome, len(world.refunds()), len(world.posts())) == ("refunded", 1, 1)
    assert [e["key"] for e in world.events(run, "write.unknown")] == [KEY]


@pytest.mark.parametrize("mode", ["drop_before", "status:503"])
def test_refund_that_never_arrived_goes_again_under_its_key(world: World, mode: str) -> None:
    world.sandbox.fault("POST /v1/refunds", mode)
    run = world.start()
    world.approve(run)
    run = world.resume(run, until="completed")
    assert (run.outcome, len(world.refunds()), run.write_attempts) == ("refunded", 1, 2)
    assert (len(world.sandbox.posts()), set(world.posts())) == (2, {("pay_9002", "2000.00", KEY)})


@pytest.mark.parametrize(("mode", "made"), [("drop_before", 0), ("hide:60", 1)])
def test_system_that_promises_nothing_is_asked_once_and_then_a_person(world: World, mode: str, made: int) -> None:
    """`write-path.md` 4: neither keys nor a settling time: no list proves an absence, so nothing goes again."""
    world.profile(commerce={
        "url": world.sandbox.url, "read_token_env": "COMMERCE_READ_TOKEN", "write_token_env": "COMMERCE_WRITE_TOKEN",
        "honours_keys": False, "settle_s": None,
    })  # fmt: skip
    world.settings(RECONCILE_FOR_S="0.5", COMMERCE_READ_TOKEN="sandbox-read", COMMERCE_WRITE_TOKEN="sandbox-write")
    world.sandbox.fault("POST /v1/refunds", mode)
    if made:
        world.sandbox.fault("POST /v1/refunds", "drop_after")
    run = world.start()
    world.approve(run)
    run = world.resume(run, until="escalated")
    assert (run.reason, world.writes(run)) == ("outcome_unknown", [(KEY, "unknown")])
    assert (len(world.sandbox.posts()), len(world.refunds())) == (1, made)
    assert "No refund has been issued" not in world.said(run)


def test_refund_of_another_amount_than_asked_is_a_mismatch_and_nothing_follows(world: World) -> None:
    """M53."""
    world.sandbox.fault("POST /v1/refunds", 'amount:{"amount": "1500.00", "currency": "INR"}')
    run = world.start()
    world.approve(run)
    run = world.resume(run)
    assert (run.status, run.reason, len(world.posts())) == ("escalated", "verification_failed", 1)
    assert run.verification["expected"]["amount"] == inr("2000.00")
    assert run.verification["found"]["amount"] == inr("1500.00")
    assert run.outcome == "handed_to_staff"
    assert world.said(run) == (
        f"{FOUND} A refund of 2,000.00 INR to payment pay_9002 on order 8472 has been submitted with the reference "
        f"{world.refunds()[0]['refund_id']}; we have not confirmed it yet. What we see of it does not match what was "
        "asked for; a specialist is checking it."
    )


def test_refund_made_beside_us_shows_as_over_refunded(world: World) -> None:
    world.may_over_refund = True
    world.sandbox.fault("POST /v1/refunds", "hide:3")
    run = world.start()
    world.approve(run)
    run = world.resume(run, patience_s=0.0)
    assert run.status == "executed"
    beside = world.sandbox.control("/_refunds", payment_id="pay_9001", amount=inr("2000.00"))
    run = world.resume(run, until="escalated")
    assert (run.reason, len(world.posts())) == ("over_refunded", 1)
    assert run.verification["other_refunds"] == [beside["refund_id"]]


def test_second_message_is_shown_on_the_approval_and_voids_nothing(world: World) -> None:
    """`write-path.md` 6: from the second void in a run on, a message is shown and the decision stands."""
    run = world.start(script=[*gather(), refund(), refund(), final()])
    world.message(run, "Is anybody there?")
    run = world.resume(run)
    first = world.approval(run)
    assert (run.status, run.voids, first.status) == ("awaiting_approval", 1, "pending")
    world.message(run, "Hello?")
    run = world.resume(run)
    assert (run.status, world.approval(run).id) == ("awaiting_approval", first.id)
    assert world.approval(run).status == "pending"
    assert [m["text"] for m in world.approval(run).messages_shown] == ["Hello?"]
    world.approve(run)
    assert (world.resume(run).outcome, len(world.posts())) == ("refunded", 1)


@pytest.mark.parametrize("switch", ["site", "tenant"])
def test_paused_writes_hold_an_approved_refund_and_let_it_go_afterwards(world: World, switch: str) -> None:
    """M119's two switches at the point of no return."""
    row = (Site if switch == "site" else Tenant).objects.all()
    run = world.start()
    world.approve(run)
    row.update(paused=True)
    run = world.resume(run)
    assert (run.status, run.waiting_for, world.posts()) == ("approved", "staff", [])
    assert world.approval(run).status == "approved"
    row.update(paused=False)
    world.later(run, 10)
    assert (world.resume(run, until="completed").outcome, len(world.posts())) == ("refunded", 1)


def test_route_that_lost_its_qualification_after_the_approval_writes_nothing(world: World) -> None:
    """M103: checked at the proposal and again at the release."""
    run = world.start()
    world.approve(run)
    Qualification.objects.update(revoked=True)
    run = world.resume(run)
    assert (run.status, run.reason, world.posts()) == ("escalated", "route_not_qualified", [])
    assert world.start("req-2", script=s0()).status == "awaiting_approval"
    Qualification.objects.update(revoked=True)
    assert world.start("req-3", script=[*gather(), turn(text="{}", model="another")]).reason == "repair_exhausted"


def test_answer_under_another_model_s_name_may_not_propose_a_write(world: World) -> None:
    said = turn(text=json.dumps(refund()), model="somebody-else")
    run = world.start(script=[*gather(), said])
    assert (run.status, run.reason, world.posts()) == ("escalated", "route_not_qualified", [])


@pytest.mark.parametrize("change", ["permission", "tenant", "inactive"])
def test_decider_who_may_no_longer_decide_is_asked_about_afresh(world: World, change: str) -> None:
    """M36, M115: the approver's right is checked at the release, and a new approval is asked of somebody else."""
    run = world.start()
    world.approve(run)
    lead = world.person()
    if change == "permission":
        lead.user_permissions.clear()
    elif change == "tenant":
        lead.staff_tenants.all().delete()
    else:
        type(lead).objects.filter(pk=lead.pk).update(is_active=False)
    first = world.approval(run)
    run = world.resume(run)
    second = world.approval(run)
    assert (run.status, second.status, world.posts()) == ("awaiting_approval", "pending", [])
    assert second.id != first.id
    world.approve(run, by="lead_18")
    assert (world.resume(run).outcome, len(world.posts())) == ("refunded", 1)


def test_yes_that_is_too_old_is_asked_about_afresh(world: World) -> None:
    world.profile(approved_ttl_s=1)
    run = world.start()
    world.approve(run)
    time.sleep(1.05)
    run = world.resume(run)
    assert (run.status, world.approval(run).status, world.posts()) == ("awaiting_approval", "pending", [])


def test_write_attempts_used_up_are_only_looked_up_and_handed_to_a_person(world: World) -> None:
    """M52: two attempts that nobody answered, a list that shows nothing: closed as never made, once that is proven.

    A refund that a person approved and that we did not get made is no answered request, whatever the model says.
    """
    world.sandbox.fault("POST /v1/refunds", "status:503", times=0)
    run = world.start()
    world.approve(run)
    run = world.resume(run)
    assert (run.status, world.writes(run)) == ("executing", [(KEY, "unknown")])
    world.later(run, 10)
    run = world.resume(run, until="escalated")
    assert (world.writes(run), run.write_attempts, len(world.sandbox.posts())) == ([(KEY, "not_sent")], 2, 2)
    assert (run.reason, run.outcome, run.reply, world.refunds()) == ("needs_a_person", "handed_to_staff", None, [])
    assert "No refund has been issued for this request." in world.said(run)


def test_outage_at_the_verification_concludes_nothing(world: World) -> None:
    """M58: no list is no answer; the refund is neither verified nor missing, and nothing is sent for it."""
    world.settings(PENDING_POLL_S="5", RETRY_S="5")
    world.sandbox.fault("POST /v1/refunds", "state:pending")
    run = world.start()
    world.approve(run)
    assert world.resume(run).status == "executed"
    [made] = world.refunds()
    world.sandbox.control(f"/_refunds/{made['refund_id']}", state="succeeded")
    for mode in ("status:503", "empty", 'json:{"refunds":[],"error":"busy"}'):
        world.sandbox.control("/_faults", clear=True)
        world.sandbox.fault("GET /v1/refunds", mode, times=0)
        world.later(run, 60)
        run = world.resume(run)
        assert (run.status, run.verification, world.writes(run)) == ("executed", None, [(KEY, "pending")])
    world.sandbox.control("/_faults", clear=True)
    world.later(run, 60)
    assert (world.resume(run, until="completed").outcome, len(world.posts())) == ("refunded", 1)


def test_second_refund_in_doubt_is_not_called_confirmed_because_the_first_was(world: World) -> None:
    world.seed(amount_due=inr("0.00"))
    run = world.start(script=[*gather(), refund("pay_9001", "999.00"), refund("pay_9002", "999.00"), final()])
    world.approve(run)
    world.sandbox.fault("POST /v1/refunds", 'amount:{"amount": "500.00", "currency": "INR"}')
    run = world.resume(run)
    assert (run.status, run.reason, run.outcome) == ("escalated", "verification_failed", "partly_refunded")
    first, second = (r["refund_id"] for r in world.refunds())
    assert f"to payment pay_9001 on order 8472 has been made and confirmed; its reference is {first}" in world.said(run)
    assert f"to payment pay_9002 on order 8472 has been submitted with the reference {second};" in world.said(run)
