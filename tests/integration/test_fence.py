"""A database put back from a backup cannot pay twice: what is held, what is void, what is looked up first (M124)."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command

from agentsite import anchors, clock, dbtime
from agentsite.anchors import WRITE, Anchor
from agentsite.tenants import switches
from agentsite.tenants.models import Site
from approvals.models import Approval
from runs import store
from runs.contracts import Outcome
from runs.models import Attempt, Run, Write
from runs.orchestrator import Later, Send
from runs.store import anchored, fencing
from tests.between import after_look, due_in_s, make_due, put_back
from tests.restoring import (
    LONG_S,
    NOTE,
    SETTLE_S,
    Backup,
    approved,
    ask,
    asks_again,
    differences,
    fence,
    made_of,
    settles_in,
    shows,
)
from tests.world import KEY, TENANT, World, final, s0, worker_dies


def demand() -> None:
    switches.demand_fence()


def fence_now() -> None:
    fence()


def refunds_by_itself(world: World) -> Run:
    """A run that needs no person, about to write its intent."""
    world.limits(requires_approval_above="5000.00", two_people_above="5000.00")
    return world.admit()


def held(world: World, run: Run) -> list[str]:
    return [e["held"] for e in world.events(run, "notice") if "held" in e]


# --- while it is demanded --------------------------------------------------------------------------------------


def test_nothing_leaves_an_older_database_even_for_a_new_yes(world: World) -> None:
    run = ask(world)
    backup = Backup()
    world.approve(run)
    world.sandbox.fault("POST /v1/refunds", "hide:forever")
    worker_dies(run, after="post")
    [made] = world.refunds()
    backup.put_back(world)
    store.look()
    world.approve(run)
    run = world.resume(run)
    assert (run.status, run.waiting_for, held(world, run)) == ("approved", "staff", ["restored"])
    assert (Write.objects.count(), world.sandbox.posts(), 0 < due_in_s(run) <= 5.1) == (0, [], True)
    done = fence()
    assert (done.demanded, done.approvals, done.writes) == (True, 1, 0)
    shows(world)
    put_back(Run.objects.all(), restored_at=60)  # what the lists show from now on is all there is
    run = world.resume(run, until="completed", limit_s=90)
    assert (world.sandbox.posts(), made_of(world)) == ([], [made["refund_id"]])
    assert made["refund_id"] in (run.reply or "")
    assert differences(run) == []


def test_database_changed_under_a_live_worker_is_noticed_before_the_next_post(world: World) -> None:
    """Nobody started anew and nobody looked: the right to send is refused by this host's own log."""
    run = ask(world)
    backup = Backup()
    world.approve(run)
    world.resume(run, until="completed", limit_s=90)
    [made] = world.refunds()
    backup.put_back(world)
    world.approve(run)
    world.sandbox.fault("GET /v1/refunds", "json:" + json.dumps({"refunds": []}), times=2)  # the list lags
    run = world.resume(run, patience_s=0)
    assert (run.status, world.writes(run), world.sandbox.posts()) == ("executing", [(KEY, "intent")], [])
    assert (switches.fence()[1] is not None, Attempt.objects.get().sent_at) == (True, None)
    done = fence()
    assert (done.approvals, done.writes) == (0, 1)
    run = world.resume(run, until="completed", limit_s=90)
    assert (run.outcome, world.writes(run), world.sandbox.posts()) == ("refunded", [(KEY, "confirmed")], [])
    assert made["refund_id"] in (run.reply or "")
    assert differences(run) == []


def test_demanded_fence_stops_no_model_and_no_question(world: World) -> None:
    switches.demand_fence()
    run = world.start()
    assert (run.status, run.model_calls > 0, world.said(run) != "") == ("awaiting_approval", True, True)
    assert (switches.model_hold_s(TENANT), switches.hold_s(TENANT)) == (None, 5.0)
    fence()


def test_write_of_no_tenant_leaves_while_it_is_demanded(world: World) -> None:
    switches.demand_fence()
    world.begin("t_other")
    run = world.start("req-other")
    world.approve(run, by="lead_other")
    run = world.resume(run)
    assert (run.status, world.posts()) == ("approved", [])


def test_demand_between_facts_and_intent_wins(world: World) -> None:
    run = refunds_by_itself(world)
    after_look(world, demand, _intends)
    run = world.resume(run, patience_s=0)
    assert (run.status, held(world, run), Write.objects.count(), world.posts()) == ("approved", ["restored"], 0, [])


def test_demand_between_intent_and_mark_wins(world: World) -> None:
    run = refunds_by_itself(world)
    after_look(world, demand, lambda handled: isinstance(handled, Send))
    run = world.resume(run, patience_s=0)
    assert (run.status, world.writes(run), world.posts()) == ("executing", [(KEY, "intent")], [])
    assert Attempt.objects.get().sent_at is None


def _intends(handled: Outcome | Later | Send) -> bool:
    return isinstance(handled, Outcome) and handled.intent is not None


# --- approvals -------------------------------------------------------------------------------------------------


def test_fence_voids_what_was_asked_before_it_and_it_is_asked_anew(world: World) -> None:
    pending, granted, rejected = (world.start(f"req-{n}", asks_again()) for n in range(3))
    first = world.approval(granted)
    world.approve(granted)
    world.reject(rejected)
    done = fence()
    assert (done.demanded, done.approvals, done.writes) == (False, 2, 0)
    for run in (pending, granted):
        old = world.approval(run)
        assert (old.status, old.void_reason) == ("void", "restored")
        [event] = world.events(run, "approval.void")
        assert event == {
            "approval_id": old.id, "reason": "restored", "by": "shell", "fenced_at": clock.rfc3339(done.at),
            "note": NOTE,
        }  # fmt: skip
    assert world.approval(rejected).status == "rejected" and not world.events(rejected, "approval.void")
    for run in (pending, granted):
        run = world.resume(run)
        assert (run.status, world.approval(run).status) == ("awaiting_approval", "pending")
    assert (world.approval(granted).earlier, world.transitions(pending)[-3:]) == (
        first.id, [("awaiting_approval", "gathering"), ("gathering", "action_proposed"),
                   ("action_proposed", "awaiting_approval")],
    )  # fmt: skip
    assert world.posts() == [] and not any(differences(world.fresh(run)) for run in (pending, granted))


def test_worker_that_looked_before_the_fence_may_not_put_the_run_to_sleep(world: World) -> None:
    run = ask(world)
    make_due(run)
    after_look(world, fence_now, lambda handled: isinstance(handled, Later))
    world.step(run)
    assert (world.approval(run).status, due_in_s(run) <= 0) == ("void", True)
    assert world.resume(run).status == "awaiting_approval"
    assert world.approval(run).status == "pending"


def test_second_fence_voids_what_was_asked_since_the_first(world: World) -> None:
    run = ask(world)
    first, again = fence(), fence()
    assert (first.approvals, again.approvals, again.at > first.at) == (1, 0, True)
    world.resume(run)
    assert fence().approvals == 1
    assert world.approval(run).status == "void" and world.posts() == []


def test_question_of_a_clock_that_was_ahead_is_void_too(world: World) -> None:
    """The backup's own server was ahead of the one that it is put back on."""
    run = ask(world)
    put_back(Approval.objects.all(), requested_at=-30)
    assert fence().approvals == 1
    assert world.approval(run).status == "void"


def test_fence_that_dies_half_way_holds_everything_and_is_done_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = world.start("req-2", asks_again())
    worker_dies(approved(world), after="intent")
    with monkeypatch.context() as patch:
        patch.setattr(fencing, "_doubt_writes", _dies)
        with pytest.raises(KeyboardInterrupt):
            fence()
    assert world.approval(waiting).status == "void"
    assert switches.fence()[1] is not None  # nobody asked for it but itself
    first = Run.objects.get(request_id="req-8472")
    put_back(Run.objects.filter(pk=first.pk), due_at=1)
    world.resume(first, patience_s=0)
    assert (world.sandbox.posts(), Attempt.objects.get().sent_at) == ([], None)
    done = fence()
    assert (done.demanded, done.approvals, done.writes) == (True, 0, 1)
    assert world.resume(first, until="completed", limit_s=90).outcome == "refunded"
    assert (len(world.sandbox.posts()), len(world.refunds())) == (1, 1)


def _dies(*_: Any) -> int:
    raise KeyboardInterrupt


# --- listed anew -----------------------------------------------------------------------------------------------


def test_facts_read_before_the_fence_carry_no_intent(world: World) -> None:
    settles_in(world)
    run = refunds_by_itself(world)
    fenced: list[store.FenceDone] = []
    after_look(world, lambda: fenced.append(fence()), _intends)
    run = world.resume(run, until="completed", limit_s=90)
    assert (run.outcome, held(world, run), len(world.posts())) == ("refunded", ["fenced"], 1)
    first = Write.objects.get().intent_at
    assert first > fenced[0].at + timedelta(seconds=SETTLE_S)
    assert differences(run) == []


def test_refund_that_is_listed_late_is_seen_before_the_next_yes_is_used(world: World) -> None:
    """The list is empty when it is asked again and when a person says yes again."""
    settles_in(world, LONG_S)
    run = ask(world)
    backup = Backup()
    world.approve(run)
    world.sandbox.fault("POST /v1/refunds", "hide:forever")
    worker_dies(run, after="post")
    [made] = world.refunds()
    backup.put_back(world)
    fence()
    run = world.resume(run)
    assert run.status == "awaiting_approval"
    world.approve(run)
    for _ in range(3):
        make_due(run)
        run = world.resume(run)
    assert (run.status, run.waiting_for, held(world, run)) == ("approved", "order", ["fenced"])
    assert (Write.objects.count(), world.sandbox.posts()) == (0, [])
    shows(world)
    settles_in(world, 0.2)
    make_due(run)
    run = world.resume(run, until="completed", limit_s=90)
    assert world.rules(run)[-1] == "nothing_refundable"
    assert (world.sandbox.posts(), made_of(world)) == ([], [made["refund_id"]])
    assert made["refund_id"] in (run.reply or "")
    assert differences(run) == []


def test_system_that_promises_nothing_is_waited_for_as_long_as_a_refund_may_stay_unlisted(world: World) -> None:
    world.profile(commerce={
        "url": world.sandbox.url, "read_token_env": "COMMERCE_READ_TOKEN", "write_token_env": "COMMERCE_WRITE_TOKEN",
        "honours_keys": True, "key_life_s": 86400, "settle_s": None,
    })  # fmt: skip
    world.settings(VERIFY_FOR_S="2", COMMERCE_READ_TOKEN="sandbox-read", COMMERCE_WRITE_TOKEN="sandbox-write")
    run = refunds_by_itself(world)
    done = fence()
    run = world.resume(run, until="completed", limit_s=90)
    assert (run.outcome, held(world, run), len(world.posts())) == ("refunded", ["fenced"], 1)
    assert Write.objects.get().intent_at > done.at + timedelta(seconds=2)


# --- a clock that was set back, and a death between two commits ---------------------------------------------------


def test_fence_of_a_clock_that_went_back_is_later_than_the_last_one(world: World) -> None:
    last = fence().at + timedelta(hours=1)
    Site.objects.update(fenced_at=last)
    switches.demand_fence()
    done = fence()
    assert (done.demanded, switches.fence()) == (True, (done.at, None))
    assert done.at == last + timedelta(microseconds=1)


def test_fence_is_no_earlier_than_what_the_database_lost(world: World) -> None:
    """Sent when the clock was ahead; a fence before it would be demanded anew for ever."""
    sent_at = dbtime.now().replace(microsecond=0) + timedelta(hours=1)
    run = world.start()
    anchors.append(Anchor(kind=WRITE, at=sent_at, run=str(run.pk), seq=900, mac="ab" * 32))
    store.look()
    assert switches.fence()[1] is not None
    done = fence()
    assert (done.at, store.behind(), switches.fence()[1]) == (sent_at, None, None)
    assert not anchored.demands() and world.fresh(run).restored_at == sent_at


def test_demand_without_its_marks_on_the_runs_is_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ask(world)
    backup = Backup()
    world.approve(run)
    worker_dies(run, after="sent")
    backup.put_back(world)
    with monkeypatch.context() as patch:
        patch.setattr(anchored, "put_back", _dies)
        with pytest.raises(KeyboardInterrupt):
            anchored.demands()
    assert (switches.fence()[1], world.fresh(run).restored_at) == (None, None)
    assert anchored.demands()
    assert switches.fence()[1] is not None and world.fresh(run).restored_at is not None


# --- requests that are sent again ------------------------------------------------------------------------------


def test_request_that_comes_soon_after_a_restore_may_be_one_of_the_lost_hours(world: World) -> None:
    switches.demand_fence()
    assert world.admit("req-1").restored_at == switches.fence()[1]
    at = fence().at
    assert (world.fresh(Run.objects.get(request_id="req-1")).restored_at, world.admit("req-2").restored_at) == (at, at)
    put_back(Site.objects.all(), fenced_at=601)
    assert world.admit("req-3").restored_at is None


@pytest.mark.parametrize("moment", ["demanded", "fenced"])
def test_request_sent_again_is_not_told_that_nothing_was_refunded(world: World, moment: str) -> None:
    """The backup knows nothing of it; its refund was made."""
    backup = Backup()
    run = ask(world)
    world.approve(run)
    assert world.resume(run).outcome == "refunded"
    backup.put_back(world)
    store.look()
    if moment == "fenced":
        fence()
    run = world.start(script=[final()])
    assert (run.status, run.reason, "No refund has been issued" in world.said(run)) == (
        "escalated", "needs_a_person", False,
    )  # fmt: skip
    assert (len(world.refunds()), world.sandbox.posts()) == (1, [])


# --- the command -----------------------------------------------------------------------------------------------


def test_command_prints_what_it_did(world: World) -> None:
    ask(world)
    worker_dies_with_intent = world.start("req-2", s0())
    world.approve(worker_dies_with_intent)
    out = io.StringIO()
    call_command("fence", "--json", "--reason", "last night's dump", stdout=out)
    told = json.loads(out.getvalue())
    fenced_at, _ = switches.fence()
    assert fenced_at is not None
    assert told == {
        "fenced_at": clock.rfc3339(fenced_at), "approvals_void": 2, "writes_doubted": 0, "demanded": False,
    }  # fmt: skip
    words = io.StringIO()
    call_command("fence", stdout=words)
    assert "0 approvals are void" in words.getvalue() and "Nothing had demanded it." in words.getvalue()
