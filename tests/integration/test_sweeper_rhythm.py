"""How often a fleet sweeps, and what a pass looks at: one pass in SWEEP_S, whoever makes it, and no row that waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from agentsite import dbtime, queues
from approvals.models import Approval
from runs import store, sweeper
from runs.models import OPEN_WRITES, Process, Run, Sweeper, Write
from runs.store import at_rest, hints, settled
from tests.between import put_back
from tests.world import World, in_new_process

POSTGRES = connection.vendor == "postgresql"


@contextmanager
def no_scans() -> Iterator[None]:
    """Of a few rows PostgreSQL rightly reads all; what is asked is whether it could do without."""
    with connection.cursor() as cursor:
        if POSTGRES:
            cursor.execute("SET enable_seqscan = off")
        yield
        if POSTGRES:
            cursor.execute("RESET enable_seqscan")


def test_pass_is_not_made_again_while_the_last_one_is_fresh(world: World) -> None:
    assert sweeper.sweep(every_s=10) is not None
    assert sweeper.sweep(every_s=10) is None
    put_back(Sweeper.objects.all(), last_pass_at=10 * sweeper.SOONEST + 0.5)
    assert sweeper.sweep(every_s=10) is not None
    assert sweeper.sweep() is not None  # whoever asks for one by hand gets it


FORKS = """
import os, threading
from runs import sweeper
inside, go, forked = threading.Event(), threading.Event(), threading.Event()
def slow(**_):
    inside.set()
    go.wait(20)
sweeper.sweep = slow
thread = sweeper.Thread(kind="worker")
thread._say_so = lambda: None
thread.start()
def fork():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    forked.set()
assert inside.wait(20)
threading.Thread(target=fork, daemon=True).start()
early = forked.wait(0.5)
go.set()
print(early, forked.wait(20), flush=True)
os._exit(0)
"""


def test_no_process_is_forked_while_a_pass_holds_a_connection() -> None:
    """A pool of processes is filled up at any moment; what a child inherits of SQLite destroys the file."""
    assert in_new_process(FORKS) == "False True"


@pytest.mark.parametrize("column", ["last_pass_at", "until"])
def test_times_of_a_clock_that_was_set_back_hold_no_sweeper(world: World, column: str) -> None:
    sweeper.sweep()
    put_back(Sweeper.objects.all(), **({"last_pass_at": 60.0} | {column: -3600.0}))
    assert sweeper.sweep(every_s=1) is not None


def test_hints_are_counted_no_further_than_their_column_holds(world: World) -> None:
    run = world.admit()
    Run.objects.update(enqueue_tries=hints.MOST_TRIES, enqueued_at=None)
    [due] = store.due_unhinted(queues.PASSES, patient=False)
    assert store.mark_hinted(due) and world.fresh(run).enqueue_tries == hints.MOST_TRIES


@pytest.mark.parametrize(("tries", "again"), [(7, True), (8, False)])
def test_hint_that_older_code_took_is_sent_again_at_once_a_few_times(world: World, tries: int, again: bool) -> None:
    run = world.admit()
    Run.objects.update(schema=99, enqueue_tries=tries, enqueued_at=dbtime.now())
    assert store.claim(str(run.pk)) is None
    assert (world.fresh(run).enqueued_at is None) is again


def test_late_looks_wait_while_the_queue_of_writes_is_crowded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    hinted: list[str] = []
    monkeypatch.setattr(queues, "nudge_settle", hinted.append)
    monkeypatch.setattr(store, "due_writes", lambda: ["a write"])
    monkeypatch.setattr(store, "due_watches", list)
    monkeypatch.setattr(at_rest, "question", lambda _: ("1 = 1", list[object]()))
    for depth in (sweeper.LATE_ROOM, sweeper.LATE_ROOM - 1):
        monkeypatch.setattr(queues, "depth", lambda queue, depth=depth: depth)
        sweeper.sweep()
    assert hinted == ["a write"]


def test_pass_that_finds_nothing_asks_the_broker_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = world.start()
    asked: list[str] = []

    def depth(queue: str) -> int:
        asked.append(queue)
        return 0

    monkeypatch.setattr(queues, "depth", depth)
    done = sweeper.sweep()
    assert done is not None and (done.found, done.published, done.broker, asked) == (0, 0, True, [])
    put_back(Run.objects.filter(pk=run.pk), due_at=1, enqueued_at=60)
    done = sweeper.sweep()
    assert done is not None and (done.found, done.published) == (1, 1)
    assert asked == [queues.WRITES, queues.PASSES]


def test_process_says_that_it_lives_at_once_and_then_now_and_again(world: World) -> None:
    thread = sweeper.Thread(kind="worker", queue_names="passes")
    thread._say_so()
    first = Process.objects.get().seen_at
    thread._say_so()
    assert Process.objects.get().seen_at == first
    thread._seen_at -= sweeper.SEEN_S
    thread._say_so()
    assert Process.objects.get().seen_at > first


def test_decision_is_found_by_the_approval_of_this_moment_alone(world: World) -> None:
    """An approval that was rejected before the one that waits now makes nothing due."""
    run = world.start()
    waiting = world.approval(run)
    older = Approval.objects.get(pk=waiting.pk)
    older.pk, older.status = "apr_older", "rejected"
    older.save(force_insert=True)
    assert store.due_unhinted(queues.PASSES, patient=False) == []
    world.approve(run)
    put_back(Run.objects.filter(pk=run.pk), enqueued_at=60)
    assert [due.run_id for due in store.due_unhinted(queues.PASSES, patient=False)] == [str(run.pk)]
    assert hints.count_due(queues.PASSES) == 1
    Approval.objects.filter(pk="apr_older").delete()


def test_run_that_is_decided_and_due_is_counted_once(world: World) -> None:
    run = world.start()
    world.approve(run)
    put_back(Run.objects.filter(pk=run.pk), due_at=1, enqueued_at=60)
    assert [due.run_id for due in store.due_unhinted(queues.PASSES, patient=False)] == [str(run.pk)]
    assert hints.count_due(queues.PASSES) == 1


@pytest.mark.parametrize("queue", [queues.PASSES, queues.WRITES])
def test_look_for_due_runs_walks_the_index_of_what_lives(world: World, queue: str) -> None:
    world.start()
    with no_scans():
        rows, params = hints._due(queue)
        with connection.cursor() as cursor:
            cursor.execute(("EXPLAIN " if POSTGRES else "EXPLAIN QUERY PLAN ") + rows, params)
            plan = "\n".join(str(row[-1]) for row in cursor.fetchall())
    walks = "Index Cond: (due_at <= statement_timestamp())" if POSTGRES else "runs_run USING INDEX run_due (due_at<?)"
    assert "run_due" in plan and walks in plan, plan
    assert "Seq Scan on runs_run" not in plan and "SCAN runs_run" not in plan, plan


def test_look_for_open_writes_of_ended_runs_walks_an_index_of_open_writes(world: World) -> None:
    """Two indexes hold open writes alone; which is cheaper is PostgreSQL's to say by the rows of the moment."""
    looks = Write.objects.filter(state__in=OPEN_WRITES, look_at__lte=dbtime.now(), run__status__in=settled.ENDED)
    with no_scans():
        plan = looks.order_by("look_at").explain()
    walks = ("write_to_look_up", "one_open_write_per_order") if POSTGRES else ("write_to_look_up (look_at<?)",)
    assert any(index in plan for index in walks), plan
    assert "Seq Scan on runs_write" not in plan and "SCAN runs_write" not in plan, plan
