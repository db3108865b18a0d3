"""Open writes of a database that was put back: prepared is no proof of never sent; looked up first, then the rules."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from agentsite import clock, dbtime
from runs import orchestrator, store
from runs.errors import Fenced
from runs.models import Attempt, Event, Run, Write
from runs.orchestrator import Send
from runs.store.anchored import demands
from tests.between import make_due, put_back
from tests.restoring import (
    LONG_S,
    NOTE,
    SETTLE_S,
    Backup,
    approved,
    differences,
    fence,
    made_of,
    sends,
    settles_in,
    shows,
)
from tests.world import KEY, World, final, gather, refund, worker_dies

IGNORES = {"honours_keys": False, "lists_keys": False, "check_remaining": False, "supports_expected_refunded": False}
FORGETS = {"key_life_s": 0.2, "check_remaining": False, "supports_expected_refunded": False}


def test_fence_between_intent_and_mark_fences_the_worker_out(world: World) -> None:
    settles_in(world)
    run = approved(world)
    worker_dies(run, after="intent")
    claimed = store.claim(str(run.pk))
    assert claimed is not None
    state = store.load(str(run.pk), claimed.token)
    assert orchestrator.step(state) == Send() or isinstance(orchestrator.step(state), Send)
    done = fence()
    assert (done.approvals, done.writes, state.open_write is not None) == (0, 1, True)
    assert state.open_write is not None
    with pytest.raises(Fenced):
        store.mark_sent(state, state.open_write)
    attempt, write = Attempt.objects.get(), Write.objects.get()
    assert (attempt.sent_at, attempt.gives_up_at, attempt.answer) == (attempt.prepared_at, done.at, "")
    assert (write.state, write.unknown_since, world.fresh(run).write_attempts) == ("unknown", done.at, 0)
    assert world.events(run, "write.doubted") == [
        {"key": KEY, "was": "intent", "attempts": [1], "by": "shell", "fenced_at": clock.rfc3339(done.at),
         "note": NOTE}
    ]  # fmt: skip
    run = world.resume(run, until="completed", limit_s=90)
    marked = Attempt.objects.exclude(number=1).get().sent_at
    assert marked is not None and marked > done.at + timedelta(seconds=SETTLE_S)
    assert (run.outcome, len(world.sandbox.posts()), len(world.refunds())) == ("refunded", 1, 1)
    assert differences(run) == []


@pytest.mark.parametrize("kind", [{}, IGNORES, FORGETS], ids=["honours", "ignores", "forgets"])
def test_prepared_is_no_proof_after_a_restore(world: World, kind: dict[str, Any]) -> None:
    """The backup was taken after the intent; the refund went out after it, and is listed late."""
    keyed, life_s = "0" if kind is IGNORES else "1", "0.2" if kind is FORGETS else "86400"
    settles_in(world, LONG_S, COMMERCE_HONOURS_KEYS=keyed, COMMERCE_KEY_LIFE_S=life_s)
    world.sandbox.control("/_config", **kind)
    run = approved(world)
    worker_dies(run, after="intent")
    backup = Backup()
    world.sandbox.fault("POST /v1/refunds", "hide:forever")
    sends(run)
    [made] = world.refunds()
    backup.put_back(world)
    store.look()
    run = world.resume(run, patience_s=0)
    assert (run.status, world.sandbox.posts()) == ("executing", [])
    assert fence().writes == 1
    for _ in range(3):
        make_due(run)
        run = world.resume(run, patience_s=0)
    assert (run.status, world.writes(run), world.sandbox.posts()) == ("executing", [(KEY, "unknown")], [])
    shows(world)
    make_due(run)
    run = world.resume(run, until="completed", limit_s=90)
    assert (run.outcome, world.writes(run)) == ("refunded", [(KEY, "confirmed")])
    assert (world.sandbox.posts(), made_of(world)) == ([], [made["refund_id"]])
    assert made["refund_id"] in (run.reply or "")
    assert differences(run) == []


def test_write_of_a_system_that_promises_nothing_goes_to_a_person(world: World) -> None:
    world.profile(commerce={
        "url": world.sandbox.url, "read_token_env": "COMMERCE_READ_TOKEN", "write_token_env": "COMMERCE_WRITE_TOKEN",
        "honours_keys": False, "settle_s": None,
    })  # fmt: skip
    world.settings(RECONCILE_FOR_S="0.5", COMMERCE_READ_TOKEN="sandbox-read", COMMERCE_WRITE_TOKEN="sandbox-write")
    run = approved(world)
    worker_dies(run, after="intent")
    fence()
    run = world.resume(run, until="escalated", limit_s=90)
    assert (run.reason, world.writes(run), world.sandbox.posts()) == ("outcome_unknown", [(KEY, "unknown")], [])


def test_sent_write_is_quiet_no_sooner_than_the_fence(world: World) -> None:
    """What was sent before the backup may have been sent again after it."""
    run = approved(world)
    worker_dies(run, after="sent")
    put_back(Attempt.objects.all(), sent_at=7200, gives_up_at=7100)
    put_back(Write.objects.all(), absent_at=100, unknown_since=7000)
    sent_at = Attempt.objects.get().sent_at
    done = fence()
    attempt, write = Attempt.objects.get(), Write.objects.get()
    assert (attempt.sent_at, attempt.gives_up_at, write.absent_at, write.unknown_since) == (
        sent_at, done.at, None, done.at,
    )  # fmt: skip
    assert fence().writes == 1  # by the time of the second one it may have been sent again


def test_pending_refund_stays_pending(world: World) -> None:
    world.sandbox.fault("POST /v1/refunds", "state:pending")
    run = world.resume(approved(world))
    assert world.writes(run) == [(KEY, "pending")]
    put_back(Attempt.objects.all(), gives_up_at=1)
    assert fence().writes == 1
    assert world.writes(run) == [(KEY, "pending")]
    world.sandbox.control(f"/_refunds/{world.refunds()[0]['refund_id']}", state="succeeded")
    assert world.resume(run, until="completed", limit_s=90).outcome == "refunded"
    assert len(world.sandbox.posts()) == 1


def test_closed_write_is_left_alone(world: World) -> None:
    run = world.resume(approved(world), until="completed", limit_s=90)
    before = Attempt.objects.get().gives_up_at
    done = fence()
    assert (done.approvals, done.writes, Attempt.objects.get().gives_up_at) == (0, 0, before)
    assert not Event.objects.filter(run=run, type__in=("write.doubted", "approval.void")).exists()


def test_open_write_of_an_ended_run_is_no_longer_proven_unsent(world: World) -> None:
    """It is settled by two looks after the fence, not by the first."""
    settles_in(world, 0.4)
    run = approved(world)
    worker_dies(run, after="intent")
    past = dbtime.now() - timedelta(hours=2)
    Run.objects.filter(pk=run.pk).update(
        status="escalated", reason="outcome_unknown", outcome="handed_to_staff", due_at=None, completed_at=past
    )
    assert fence().writes == 1
    assert (world.fresh(run).due_at, store.due_writes()) == (None, [KEY])
    assert (orchestrator.settle(KEY), world.writes(run)) == ("put_off", [(KEY, "unknown")])
    Run.objects.filter(pk=run.pk).update(status="executing", due_at=dbtime.now(), completed_at=None, outcome=None,
                                         reason=None)  # fmt: skip
    assert world.resume(run, until="completed", limit_s=90).outcome == "refunded"
    assert len(world.sandbox.posts()) == 1


@pytest.mark.parametrize("moment", ["demanded", "fenced"])
def test_run_put_back_claims_no_absence_that_nobody_has_seen_since(world: World, moment: str) -> None:
    """The hours that the backup forgot may hold a refund: "none was issued" needs a list read after it."""
    run = world.start(script=[*gather(), refund(), final()])
    backup = Backup()
    world.approve(run)
    assert world.resume(run).outcome == "refunded"
    backup.put_back(world)
    assert demands() if moment == "demanded" else fence().approvals == 1
    run = world.fresh(run)
    assert "could not confirm whether a refund has been issued" in world.said(run)
    if moment == "demanded":
        world.reject(run)
    world.scripts[str(run.pk)] = world.route([final()])
    run = world.resume(run)
    assert (run.status, run.reason, run.outcome) == ("escalated", "needs_a_person", "handed_to_staff")
    assert "No refund has been issued" not in world.said(run)
    assert (len(world.refunds()), world.sandbox.posts(), differences(run)) == (1, [], [])


@pytest.mark.parametrize(("site_s", "tenant_s"), [(0.2, None), (LONG_S, None), (0.2, LONG_S)])
def test_run_put_back_says_what_a_list_read_since_shows(world: World, site_s: float, tenant_s: float | None) -> None:
    """What counts is what the tenant's own business system promises of its lists, where its profile names one."""
    settles_in(world, site_s, COMMERCE_READ_TOKEN="sandbox-read", COMMERCE_WRITE_TOKEN="sandbox-write")
    if tenant_s is not None:
        world.profile(commerce={
            "url": world.sandbox.url, "read_token_env": "COMMERCE_READ_TOKEN", "honours_keys": True,
            "write_token_env": "COMMERCE_WRITE_TOKEN", "settle_s": tenant_s,
        })  # fmt: skip
    run = world.start(script=[*gather(), refund(), *gather(), final()])
    backup = Backup()
    world.approve(run)
    made = world.resume(run)
    assert made.outcome == "refunded"
    backup.put_back(world)
    fence()
    put_back(Run.objects.all(), restored_at=1)  # from then on the lists keep their promise, in their time
    run = world.resume(run)
    assert (run.status, run.outcome) == ("completed", "no_refund_due")
    assert world.refunds()[0]["refund_id"] in (run.reply or "")
    settled = LONG_S not in (site_s, tenant_s)
    further = "No further refund has been issued" if settled else "could not confirm whether a further refund has been"
    assert further in (run.reply or "") and differences(run) == []
