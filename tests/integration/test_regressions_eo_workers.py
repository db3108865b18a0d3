"""Regression cases EO, workers and databases: money moves exactly once. Named by their ids in the list of cases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import DatabaseError, connection

from agentsite import dbtime
from agentsite.canonical import canonical
from runs import orchestrator, store
from runs.contracts import Outcome, RunState
from runs.models import Attempt, Event, Run, Write
from tests.between import due_in_s, make_due, put_back
from tests.world import KEY, World, worker_dies
from tools.contracts import SentMark


def approved(world: World) -> Run:
    run = world.start()
    world.approve(run)
    return run


def once(world: World) -> tuple[int, set[str]]:
    """P.n, and P.keys."""
    return len(world.refunds()), world.sandbox.keys()


# --- B27: the answer came, the database refused it ----------------------------------------------------------------

REFUSES = {
    "sqlite": (
        "CREATE TRIGGER refuses BEFORE UPDATE ON runs_write WHEN NEW.state = 'confirmed' "
        "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END",
        "DROP TRIGGER refuses",
    ),
    "postgresql": (
        "CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'the disk is full'; END $$ "
        "LANGUAGE plpgsql; CREATE TRIGGER refuses BEFORE UPDATE ON runs_write FOR EACH ROW "
        "WHEN (NEW.state = 'confirmed') EXECUTE FUNCTION refuse()",
        "DROP TRIGGER refuses ON runs_write; DROP FUNCTION refuse",
    ),
}  # fmt: skip


@contextmanager
def database_refuses_the_result() -> Iterator[None]:
    """No write of ours can be saved as confirmed meanwhile."""
    create, drop = REFUSES[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(create)
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(drop)


def test_b27_a_result_the_database_refused_leaves_the_intent_and_is_reconciled(world: World) -> None:
    run = approved(world)
    with database_refuses_the_result():
        with pytest.raises(DatabaseError, match="the disk is full"):
            world.resume(run)
        left = world.fresh(run)
        assert (left.status, left.reason, left.lease_token) == ("executing", None, None)
        assert (world.writes(run), once(world)) == ([(KEY, "sent")], (1, {KEY}))
        make_due(run)  # the next worker finds it, and cannot save it either
        with pytest.raises(DatabaseError, match="the disk is full"):
            world.resume(run)
        again = world.fresh(run)
        assert (again.status, again.version, world.writes(run)) == ("executing", left.version, [(KEY, "sent")])
    make_due(run)
    run = world.resume(run)
    assert (run.status, run.outcome, once(world)) == ("completed", "refunded", (1, {KEY}))
    assert (len(world.sandbox.posts()), run.write_attempts) == (1, 1)
    assert [e["key"] for e in world.events(run, "write.reconciled")] == [KEY]


# --- B29: a call that is longer than a lease ----------------------------------------------------------------------


def _marks(run: Run) -> tuple[RunState, SentMark]:
    """A worker that has marked the write as sent, and then is slow: its state and its right to send."""
    worker_dies(run, after="intent")
    claimed = store.claim(str(run.pk))
    assert claimed is not None
    state = store.load(str(run.pk), claimed.token)
    assert state.open_write is not None
    mark = store.mark_sent(state, state.open_write)
    assert mark is not None
    return store.load(str(run.pk), claimed.token), mark


def _lease_lapses(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(lease_until=dbtime.now() - timedelta(seconds=1))


def _saves_late(run: Run, state: RunState, handled: Outcome) -> None:
    """The slow worker comes back with its answer, and changes nothing."""
    before = (Run.objects.values().get(pk=run.pk), Write.objects.values().get(), Event.objects.count())
    with pytest.raises(store.Fenced):
        store.checkpoint(state, handled, keep=True)
    assert (Run.objects.values().get(pk=run.pk), Write.objects.values().get(), Event.objects.count()) == before


def test_b29_others_leave_a_live_write_alone_and_look_it_up_once_its_lease_is_over(world: World) -> None:
    run = approved(world)
    state, mark = _marks(run)
    handled = orchestrator.send(state, orchestrator.ticket(state), mark)
    looked = len(world.sandbox.calls("method=GET"))
    for _ in range(3):
        assert world.step(run) is None
    assert (len(world.sandbox.posts()), len(world.sandbox.calls("method=GET"))) == (1, looked)
    _lease_lapses(run)
    run = world.resume(run)
    assert (run.status, run.outcome, run.write_attempts) == ("completed", "refunded", 1)
    assert (once(world), len(world.sandbox.posts())) == ((1, {KEY}), 1)
    _saves_late(run, state, handled)


def test_b29_a_post_that_arrives_after_another_s_is_the_same_refund(world: World) -> None:
    """The first worker had marked and not sent: its POST comes when the second has long done the work."""
    run = approved(world)
    state, mark = _marks(run)
    _lease_lapses(run)
    run = world.resume(run)
    assert (run.status, run.outcome, run.write_attempts) == ("completed", "refunded", 2)
    handled = orchestrator.send(state, orchestrator.ticket(state), mark)
    assert (once(world), len(world.sandbox.posts())) == ((1, {KEY}), 2)
    assert len({canonical(p["body"]) for p in world.sandbox.posts()}) == 1
    _saves_late(run, state, handled)
    assert Attempt.objects.count() == 2


# --- B31: a list that lags ----------------------------------------------------------------------------------------


def _answered_and_not_listed(world: World) -> Run:
    """The refund was answered as made; the first read of the list does not show it."""
    world.settings(RETRY_S="30")
    world.sandbox.fault("POST /v1/refunds", "hide:forever")
    run = world.resume(approved(world))
    assert (run.status, run.waiting_for, world.writes(run)) == ("executed", "refund", [(KEY, "confirmed")])
    return run


def test_b31_two_reads_that_miss_the_refund_are_followed_by_one_that_shows_it(world: World) -> None:
    run = _answered_and_not_listed(world)
    [made] = world.refunds()
    waits = [due_in_s(run)]
    make_due(run)
    run = world.resume(run)
    waits.append(due_in_s(run))
    assert (run.status, world.writes(run)) == ("executed", [(KEY, "confirmed")])
    assert 20 < waits[0] <= 30 and 50 < waits[1] <= 60
    world.sandbox.control(f"/_refunds/{made['refund_id']}", shown=True)
    make_due(run)
    run = world.resume(run)
    assert (run.status, run.outcome, run.verification["passed"]) == ("completed", "refunded", True)
    assert (once(world), len(world.sandbox.posts())) == ((1, {KEY}), 1)


def test_b31_a_refund_that_is_never_listed_goes_to_a_person_with_its_id(world: World) -> None:
    run = _answered_and_not_listed(world)
    [made] = world.refunds()
    put_back(Write.objects.all(), absent_at=601, seen_at=1000)
    make_due(run)
    run = world.resume(run)
    assert (run.status, run.reason, run.outcome) == ("escalated", "verification_inconclusive", "handed_to_staff")
    [write] = Write.objects.all()
    assert (write.state, write.refund_id) == ("confirmed", made["refund_id"])
    assert (once(world), len(world.sandbox.posts())) == ((1, {KEY}), 1)
    assert f"with the reference {made['refund_id']}" in world.said(run)
    assert "did not go through" not in world.said(run) and "has been made and confirmed" not in world.said(run)
