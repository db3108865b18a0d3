"""Shadow mode (M110): the agent proposes and nothing is written, whatever the gate says and whenever it was entered."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from agentsite.refusals import Refusal
from agentsite.tenants import shadowing
from agentsite.tenants.models import ShadowChange
from approvals.models import Approval
from runs import replay, store
from runs.models import Event, Run, Shadow, Write
from runs.store import shadows
from tests.world import KEY, TENANT, World, final, gather, inr, refund, s0, worker_dies

Json = dict[str, Any]
TAKEN_OVER = "A member of our team is looking at your request."
NONE_ISSUED = "No refund has been issued for this request."
ACTION = {
    "tool": "issue_refund", "args": {"order_id": "8472", "payment_id": "pay_9002", "amount": inr("2000.00")},
}  # fmt: skip


@pytest.fixture
def keeps_changes(transactional_db: None) -> Iterator[None]:
    """A database as it is outside tests: on SQLite their flush takes the trigger away that keeps rows."""
    stand = importlib.import_module("agentsite.tenants.migrations.0006_shadow_changes_stand")
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(stand.SQLITE[1])
        yield
        if connection.vendor == "sqlite":
            cursor.execute("DROP TRIGGER tenants_shadowchange_kept")


def enter(reason: str = "a new model") -> None:
    assert shadowing.enter(TENANT, by="ops_3", reason=reason)


def leave() -> None:
    assert shadowing.leave(TENANT, by="ops_3", reason="it has earned it", figures={})


def handed_over(world: World, run: Run) -> Shadow:
    """That the run ended in shadow mode with nothing written, and its customer knows no more than is true."""
    run = world.fresh(run)
    assert (run.status, run.reason, run.outcome) == ("escalated", "shadow_mode", "handed_to_staff")
    assert (world.posts(), world.refunds(), run.reply) == ([], [], None)
    assert not Write.objects.exclude(state="not_sent").exists()
    assert not Approval.objects.filter(status__in=("pending", "approved")).exists()
    said = world.said(run)
    assert said.endswith(f"{NONE_ISSUED} {TAKEN_OVER}")
    return Shadow.objects.get(run=run)


def proposed_event(run: Run) -> Event:
    return Event.objects.get(run=run, type="shadow.proposed")


# --- what a run of a tenant in shadow mode does ------------------------------------------------------------------


def test_allowed_write_is_a_proposal_and_no_refund(world: World) -> None:
    world.limits(requires_approval_above="5000.00")
    enter()
    row = handed_over(world, run := world.start())
    assert (row.proposed, row.decision, row.rule) == (ACTION, "allow", "refund_within_own_authority")
    assert (row.tenant_id, row.order_ids, row.verdict, row.staff) == (TENANT, ["8472"], "open", None)
    assert row.compare_at is not None and (row.compare_at - row.at).total_seconds() == 86_400
    event, action = proposed_event(run), run.pending_action
    assert action is not None and event.meta == {
        "tool": "issue_refund", "order_id": "8472", "payment_id": "pay_9002", "amount": inr("2000.00"),
        "decision": "allow", "rule": "refund_within_own_authority", "action_hash": action["action_hash"],
    }  # fmt: skip
    assert run.model_calls == 3 and Event.objects.filter(run=run, type="gate.decided").count() == 1


@pytest.mark.parametrize(("two_people_above", "people"), [("4000.00", 1), ("1500.00", 2)])
def test_write_that_needs_people_asks_nobody(world: World, two_people_above: str, people: int) -> None:
    world.limits(two_people_above=two_people_above)
    enter()
    row = handed_over(world, run := world.start())
    assert (row.proposed, row.decision) == (ACTION, "needs_approval")
    assert row.rule == "refund_above_1000_requires_approval"
    assert Approval.objects.count() == 0
    assert Event.objects.get(run=run, type="gate.decided").meta["required"] == people


def test_denied_proposal_goes_back_to_the_model(world: World) -> None:
    enter()
    script = [*gather(), refund(amount="9000.00"), refund(), final()]
    row = handed_over(world, run := world.start(script=script))
    assert row.proposed == ACTION
    assert [e.meta["decision"] for e in Event.objects.filter(run=run, type="gate.decided").order_by("seq")] == [
        "deny",
        "needs_approval",
    ]


def test_conclusion_without_a_write_is_told_to_staff_alone(world: World) -> None:
    world.seed(amount_due=inr("4000.00"))
    enter()
    row = handed_over(world, run := world.start(script=[*gather(), final()]))
    assert (row.proposed, row.decision, row.rule, row.order_ids) == (None, "", "", ["8472"])
    event = proposed_event(run)
    assert event.meta == {"tool": None, "outcome": "no_refund_due"}
    assert event.payload is not None and "nothing is left to refund" in event.payload["draft"]
    assert not Event.objects.filter(run=run, type="reply.sent").exists()
    assert "nothing is left" not in world.said(run)


def test_end_that_is_no_conclusion_counts_for_nothing(world: World) -> None:
    enter()
    world.profile(limits={**_limits(), "max_model_calls": 1})
    capped = world.start()
    assert (capped.status, capped.reason) == ("escalated", "budget_exhausted")
    cancelled = world.admit("req-2")
    world.cancel(cancelled)
    assert world.resume(cancelled).status == "cancelled"
    assert (Shadow.objects.count(), world.posts()) == (0, [])


def _limits() -> Json:
    from runs.management.tenancy import DEFAULT_PROFILE

    limits: Json = DEFAULT_PROFILE["limits"]
    return limits


def test_mode_is_frozen_into_the_contract(world: World) -> None:
    enter()
    run = world.admit()
    assert run.contract["shadow"] is True
    leave()
    handed_over(world, world.resume(run))
    later = world.start("req-2")
    assert (later.contract["shadow"], later.status) == (False, "awaiting_approval")
    world.approve(later)
    assert world.resume(later, until="completed").outcome == "refunded"


def test_run_in_shadow_gets_no_intent_even_past_its_handlers(world: World) -> None:
    """The barrier is the store's: a release that no handler stopped commits no intent."""
    world.limits(requires_approval_above="5000.00")
    run = world.admit()
    world.patch.setattr("runs.orchestrator.shadowing.applies", lambda run, ports: False)
    shadowing.enter(TENANT, by="ops_3", reason="now")
    row = handed_over(world, world.resume(run))
    assert row.decision == "allow"
    assert not Event.objects.filter(run=run, type="write.intent").exists()


# --- entered while runs live -------------------------------------------------------------------------------------


def test_entering_reaches_a_run_that_was_only_accepted(world: World) -> None:
    run = world.admit()
    enter()
    assert run.contract["shadow"] is False
    assert handed_over(world, world.resume(run)).proposed == ACTION


def test_entering_ends_a_question_that_nobody_answered(world: World) -> None:
    run = world.start()
    assert run.status == "awaiting_approval"
    enter()
    assert shadows.wake(TENANT) == 1
    row = handed_over(world, world.resume(run))
    assert (row.proposed, row.decision) == (ACTION, "needs_approval")
    asked = world.approval(run)
    assert (asked.status, asked.void_reason) == ("void", "shadow_mode")
    with pytest.raises(Refusal, match="void"):
        world.approve(run)


@pytest.mark.parametrize("folded", [False, True])
def test_entering_voids_an_approval_that_was_given(world: World, folded: bool) -> None:
    run = world.start()
    world.approve(run)
    if folded:
        worker_dies(run, after="approved")
    enter()
    row = handed_over(world, world.resume(run))
    assert (row.proposed, row.decision) == (ACTION, "needs_approval")
    assert (world.approval(run).status, world.approval(run).void_reason) == ("void", "shadow_mode")


def test_what_a_person_rejected_is_told_as_ever(world: World) -> None:
    run = world.start(script=[*gather(), refund(), final()])
    world.reject(run, "The goods were kept.")
    enter()
    run = world.resume(run)
    assert (run.status, run.outcome, world.posts()) == ("completed", "rejected", [])
    assert "The goods were kept." in world.said(run)
    assert Shadow.objects.count() == 0


def test_entering_closes_an_intent_that_was_never_sent(world: World) -> None:
    run = world.start()
    world.approve(run)
    worker_dies(run, after="intent")
    enter()
    row = handed_over(world, world.resume(run))
    assert (row.proposed, row.decision) == (ACTION, "needs_approval")
    write = Write.objects.get(key=KEY)
    assert (write.state, write.closed_at is not None) == ("not_sent", True)
    result = Event.objects.get(run=run, type="write.result")
    assert result.meta == {"key": KEY, "state": "not_sent", "error": "shadow_mode"}


def test_mark_is_refused_between_intent_and_post(world: World) -> None:
    """The worker that holds the fresh intent in its hands finds the mode entered when it marks the attempt."""
    run = world.start()
    world.approve(run)
    worker_dies(run, after="intent")
    claimed = store.claim(str(run.pk))
    assert claimed is not None
    state = store.load(str(run.pk), claimed.token)
    assert state.open_write is not None
    enter()
    assert store.mark_sent(state, state.open_write) is None
    store.release(str(run.pk), claimed.token, 0)
    handed_over(world, world.resume(run))


@pytest.mark.parametrize("after", ["sent", "post"])
def test_write_that_was_sent_is_reconciled_as_ever(world: World, after: Any) -> None:
    world.settings(COMMERCE_HONOURS_KEYS="0")
    run = world.start()
    world.approve(run)
    worker_dies(run, after=after)
    enter()
    run = world.resume(run)
    world.later(run, 60)
    run = world.resume(run, patience_s=2)
    if after == "post":
        assert (run.status, run.outcome, len(world.posts())) == ("completed", "refunded", 1)
        assert world.refunds()[0]["refund_id"] in world.said(run)
        assert Shadow.objects.count() == 0
    else:
        assert handed_over(world, run).proposed == ACTION


def test_lost_answer_is_never_sent_again_though_keys_are_honoured(world: World) -> None:
    run = world.start()
    world.approve(run)
    worker_dies(run, after="sent")
    enter()
    run = world.resume(run)
    assert (run.status, world.posts()) == ("executing", [])
    world.later(run, 60)
    handed_over(world, world.resume(run, patience_s=2))


def test_leaving_lets_the_next_run_write(world: World) -> None:
    world.limits(requires_approval_above="5000.00")
    enter()
    handed_over(world, world.start())
    leave()
    assert world.start("req-2").outcome == "refunded"
    assert len(world.posts()) == 1


# --- the record of the switch ------------------------------------------------------------------------------------


def test_changes_are_rows_with_reason_person_and_figures(world: World) -> None:
    enter("a new model")
    assert shadowing.enter(TENANT, by="ops_4", reason="again") is False
    assert shadowing.leave(TENANT, by="boss", reason="earned", figures={"counts": {"agree": 40}})
    assert shadowing.leave(TENANT, by="boss", reason="twice", figures={}) is False
    rows = [(c.shadow, c.by, c.reason, c.figures) for c in shadowing.history(TENANT)]
    assert rows == [(False, "boss", "earned", {"counts": {"agree": 40}}), (True, "ops_3", "a new model", {})]


@pytest.mark.parametrize("reason", ["", "  \n", "a\x00b"])
def test_change_without_a_reason_is_refused(world: World, reason: str) -> None:
    for change in (lambda: enter(reason), lambda: shadowing.leave(TENANT, by="b", reason=reason, figures={})):
        with pytest.raises(Refusal) as caught:
            change()
        assert caught.value.slug == "reason-missing"
    assert (shadowing.stands(TENANT), ShadowChange.objects.count()) == (False, 0)


def test_change_cannot_be_altered_or_removed(world: World, keeps_changes: None) -> None:
    enter()
    rows = ShadowChange.objects.all()
    for alter in (lambda: rows.update(by="somebody else"), lambda: rows.update(figures={}), lambda: rows.delete()):
        with pytest.raises(DatabaseError, match="stands as it was recorded"), transaction.atomic():
            alter()
    assert rows.get().by == "ops_3"


# --- replay ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["frozen", "draft", "accepted", "asked", "approved", "intent", "sent"])
def test_record_of_a_shadow_run_plays_the_same(world: World, how: str) -> None:
    script = [*gather(), final()] if how == "draft" else s0()
    if how in ("frozen", "draft"):
        enter()
    run = world.admit(script=script) if how == "accepted" else world.start(script=script)
    if how in ("approved", "intent", "sent"):
        world.approve(run)
        worker_dies(run, after=how)  # type: ignore[arg-type]
    if how not in ("frozen", "draft"):
        enter()
        shadows.wake(TENANT)
    run = world.resume(run)
    world.later(run, 60)
    run = world.resume(run, patience_s=2)
    assert run.reason == "shadow_mode"
    record = json.loads(json.dumps(replay.export(run)))
    played = replay.play(record)
    assert played.differences == ()
    assert played.left == 0
