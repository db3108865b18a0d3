"""Who may work on a run, and what a door leaves meanwhile: nothing is lost, pushed away or done without a right."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from agentsite.refusals import Refusal
from agentsite.tenants.models import Site
from approvals import queue
from approvals.models import Approval
from runs import store
from runs.advance import advance
from runs.models import Attempt, Event, Input, Run, Write
from runs.orchestrator import Later, Send
from tests.between import after_look, due_in_s, make_due, put_back
from tests.world import KEY, World, final, gather, inr, refund, worker_dies

Walk = Literal["approved", "intent"]


def decided(world: World, **start: Any) -> Run:
    run = world.start(**start)
    world.approve(run)
    return run


# --- a hint on the wrong process claims nothing ----------------------------------------------------------------


def claims_nothing(world: World, run: Run, queues_here: str) -> None:
    """A hint for the run in a process of these queues leaves its row as it was."""
    before = Run.objects.values().get(pk=run.pk)
    world.settings(WORKER_QUEUES=queues_here)
    assert (advance(str(run.pk)), store.claim(str(run.pk))) == (None, None)
    assert Run.objects.values().get(pk=run.pk) == before
    world.settings(WORKER_QUEUES="passes,writes,maintenance")


@pytest.mark.parametrize("after", ["approved", "intent"])
def test_late_hint_on_a_passes_process_runs_no_money_work(world: World, after: Walk) -> None:
    run = decided(world)
    worker_dies(run, after=after)
    claims_nothing(world, run, "passes")
    assert (world.posts(), run.write_attempts) == ([], 0)
    assert (world.resume(run).outcome, len(world.posts())) == ("refunded", 1)


def test_late_hint_on_a_passes_process_verifies_no_refund(world: World) -> None:
    world.sandbox.fault("POST /v1/refunds", "state:pending")
    world.settings(PENDING_POLL_S="5")
    run = world.resume(decided(world))
    assert run.status == "executed"
    make_due(run)
    claims_nothing(world, run, "passes,maintenance")


def test_late_hint_on_a_writes_process_calls_no_model(world: World) -> None:
    run = world.admit()
    assert run.status == "accepted"
    claims_nothing(world, run, "writes")
    run = world.resume(run)
    world.reject(run)
    claims_nothing(world, run, "writes,maintenance")  # a decided approval makes it due all the same
    run = world.resume(run)
    assert (run.status, run.outcome) == ("completed", "rejected")


def test_passes_process_leaves_the_run_where_its_money_work_begins(world: World) -> None:
    run = decided(world)
    world.settings(WORKER_QUEUES="passes")
    assert [world.step(run), world.step(run)] == ["approved", None]
    run = world.fresh(run)
    assert (run.lease_token, run.attempts, world.approval(run).status) == (None, 0, "approved")
    world.settings(WORKER_QUEUES="writes")
    assert [world.step(run), world.step(run), len(world.posts())] == ["verified", None, 1]
    world.settings(WORKER_QUEUES="passes")
    assert world.resume(run).outcome == "refunded"


# --- nothing is marked sent that cannot be sent ----------------------------------------------------------------


def test_process_without_the_credential_spends_no_attempt_and_prepares_none(world: World) -> None:
    named = {"read_token_env": "T_READ", "write_token_env": "T_WRITE", "honours_keys": True, "settle_s": 0.2}
    world.settings(T_READ="sandbox-read")
    world.profile(commerce={"url": world.sandbox.url, **named})
    run = decided(world)
    for _ in range(3):
        run = world.resume(run)
        assert (run.status, run.write_attempts, world.writes(run)) == ("executing", 0, [(KEY, "intent")])
        assert 0 < due_in_s(run) <= 1
        make_due(run)
        put_back(Write.objects.all(), intent_at=60)
    [attempt] = Attempt.objects.all()
    assert (attempt.sent_at, world.posts(), world.events(run, "write.released_again")) == (None, [], [])
    world.settings(T_WRITE="sandbox-write")
    make_due(run)
    run = world.resume(run)
    assert (run.outcome, run.write_attempts, len(world.posts())) == ("refunded", 1, 1)


TAMPERED: dict[str, dict[str, Any]] = {
    "amount": {"args": {"order_id": "8472", "payment_id": "pay_9002", "amount": inr("4000.00"), "reason": "x"}},
    "hash": {"action_hash": "sha256:" + "0" * 64},
    "body": {"body": '{"order_id":"8472","payment_id":"pay_9001"}'},
}


@pytest.mark.parametrize("columns", TAMPERED.values(), ids=TAMPERED)
def test_tampered_write_is_never_marked_and_ends_as_not_sent(world: World, columns: dict[str, Any]) -> None:
    run = decided(world)
    worker_dies(run, after="intent")
    Write.objects.update(**columns)
    for _ in range(10):
        make_due(run)
        try:
            run = world.resume(run, patience_s=0)
            break
        except AssertionError:
            assert Attempt.objects.get().sent_at is None
    assert (run.status, run.reason, run.write_attempts) == ("escalated", "needs_a_person", 0)
    assert (world.writes(run), world.sandbox.posts()) == ([(KEY, "not_sent")], [])


# --- an input while a handler runs -----------------------------------------------------------------------------


def test_message_while_a_handler_decides_to_wait_is_not_pushed_away(world: World) -> None:
    run = world.start(script=[*gather(), refund(), final(), final()])
    make_due(run)
    after_look(world, lambda: world.message(run, "Stop, I found it."), lambda handled: isinstance(handled, Later))
    assert world.step(run) is None
    assert due_in_s(run) <= 0
    run = world.resume(run)
    assert (run.status, run.outcome, world.approval(run).status) == ("completed", "answered", "void")


def test_cancel_while_a_held_release_decides_to_wait_is_not_pushed_away(world: World) -> None:
    run = decided(world)
    Site.objects.update_or_create(id=1, defaults={"paused": True})
    run = world.resume(run)
    assert (run.status, run.waiting_for) == ("approved", "staff")
    make_due(run)
    after_look(world, lambda: world.cancel(run), lambda handled: True)
    world.step(run)
    assert due_in_s(run) <= 0
    run = world.resume(run)
    assert (run.status, world.approval(run).status, world.posts()) == ("cancelled", "void", [])


def test_release_with_nothing_new_waits_as_long_as_its_handler_said(world: World) -> None:
    run = world.start()
    make_due(run)
    assert world.step(run) is None
    assert 86_000 < due_in_s(run) <= 86_400


@pytest.mark.parametrize("was_sent", [False, True])
def test_cancel_after_a_fresh_release_and_before_its_commit_stops_the_resend(world: World, was_sent: bool) -> None:
    run = decided(world)
    if was_sent:
        world.sandbox.fault("POST /v1/refunds", "drop_before")
        worker_dies(run, after="post")
    else:
        worker_dies(run, after="intent")
    before = len(world.sandbox.posts())
    after_look(
        world, lambda: world.cancel(run), lambda handled: isinstance(handled, Send) and handled.resend is not None
    )
    world.step(run)
    assert Input.objects.filter(run=run, kind="cancel").count() == 1
    assert (len(world.sandbox.posts()), world.events(run, "write.released_again")) == (before, [])
    assert world.fresh(run).status == "executing"
    world.later(run, 60)
    run = world.resume(run, until="cancelled")
    assert (world.writes(run), world.refunds(), len(world.sandbox.posts())) == ([(KEY, "not_sent")], [], before)


# --- a decision and a message that come together ---------------------------------------------------------------


def test_rejection_then_a_message_are_both_told_and_nothing_is_asked_again(world: World) -> None:
    run = world.start(script=[*gather(), refund(), final(), final()])
    first = world.approval(run)
    world.reject(run, "the card was replaced")
    world.message(run, "Any news?")
    run = world.resume(run)
    assert (run.status, run.outcome, Approval.objects.count()) == ("completed", "rejected", 1)
    [decision] = world.events(run, "approval.decided")
    assert (decision["approval_id"], decision["decision"], decision["by"]) == (first.id, "rejected", "lead_17")
    kinds = list(run.observations.filter(kind__in=("decision", "message")).order_by("position").values_list("kind"))
    assert kinds == [("decision",), ("message",)]
    assert (run.voids, world.approval(run).status) == (0, "rejected")
    assert "The reason given: “the card was replaced”" in str(run.reply)


def test_first_message_voids_the_approval_before_any_worker_ran(world: World) -> None:
    run = world.start(script=[*gather(), refund(), refund(), final()])
    first = world.approval(run)
    world.message(run, "Please wait.")
    assert (world.approval(run).status, world.approval(run).void_reason) == ("void", "customer_message")
    assert (world.fresh(run).status, world.events(run, "approval.void")) == (
        "awaiting_approval", [{"approval_id": first.id, "reason": "customer_message"}],
    )  # fmt: skip
    with pytest.raises(Refusal) as late:
        world.approve(run)
    assert (late.value.status, late.value.slug) == (409, "approval-void")
    run = world.resume(run)
    second = world.approval(run)
    assert (run.status, run.voids, second.id != first.id, second.status) == ("awaiting_approval", 1, True, "pending")


def test_first_message_voids_an_approval_that_was_granted(world: World) -> None:
    run = decided(world, script=[*gather(), refund(), final(), final()])
    world.message(run, "I take it back.")
    assert (world.approval(run).status, world.approval(run).decided_by) == ("void", "lead_17")
    run = world.resume(run)
    assert (run.status, run.outcome, world.posts()) == ("completed", "answered", [])


def test_second_message_voids_nothing_and_is_shown_on_the_approval(world: World) -> None:
    run = world.start(script=[*gather(), refund(), refund(), final()])
    world.message(run, "First.")
    run = world.resume(run)
    second = world.approval(run)
    world.message(run, "Second.")
    world.leave(run, "ask_again", "by staff")  # a staff act is no message and is not shown as one
    assert world.approval(run).status == "pending"
    run = world.resume(run)
    shown = world.approval(run)
    assert (shown.id, shown.status, [m["text"] for m in shown.messages_shown]) == (second.id, "pending", ["Second."])
    world.approve(run)
    assert (world.resume(run).outcome, len(world.posts())) == ("refunded", 1)


def test_approval_that_an_operator_voided_is_asked_about_afresh(world: World) -> None:
    run = world.start(script=[*gather(), refund(), refund(), final()])
    first = world.approval(run)
    assert queue.void(str(run.pk), "operator") == first.id
    make_due(run)
    run = world.resume(run)
    second = world.approval(run)
    assert (run.status, run.voids, second.id != first.id, second.status) == ("awaiting_approval", 0, True, "pending")
    assert ("awaiting_approval", "gathering") in world.transitions(run)
    [note] = run.observations.filter(kind="denial")
    assert note.content == {"error": "superseded", "because": "its approval was voided"}
    world.approve(run)
    assert (world.resume(run).outcome, len(world.posts())) == ("refunded", 1)


# --- while a dependency is down --------------------------------------------------------------------------------


@pytest.mark.parametrize(("act", "status"), [("cancel", "cancelled"), ("escalate", "escalated")])
def test_end_while_waiting_for_a_dependency_voids_the_approval(world: World, act: str, status: str) -> None:
    run = decided(world)
    world.settings(RETRY_S="5")
    world.sandbox.fault("GET /v1/refunds", "status:503", times=0)
    run = world.resume(run)
    assert (run.status, run.resume_status, world.approval(run).status) == ("waiting_dependency", "approved", "approved")
    world.leave(run, act)
    run = world.resume(run)
    assert (run.status, world.approval(run).status, world.posts()) == (status, "void", [])
    assert Event.objects.filter(run=run, type="approval.void").count() == 1


def test_ask_again_during_an_outage_is_tried_again(world: World) -> None:
    run = world.start()
    Approval.objects.update(expires_at=run.created_at)
    make_due(run)
    run = world.resume(run)
    assert run.status == "approval_expired"
    world.leave(run, "ask_again")
    world.sandbox.fault("GET /v1/payments", "status:503", times=0)
    run = world.resume(run)
    assert (run.status, Approval.objects.count()) == ("approval_expired", 1)
    assert 0 < due_in_s(run) <= 5
    world.sandbox.control("/_faults", clear=True)
    make_due(run)
    run = world.resume(run)
    assert (run.status, world.approval(run).status, Approval.objects.count()) == ("awaiting_approval", "pending", 2)
    world.approve(run)
    assert (world.resume(run).outcome, len(world.posts())) == ("refunded", 1)
