"""What doors and clocks do between a handler's look and its checkpoint, and rows set back in time, in one process.

A test of a race that needs no second process: the input is committed exactly where another process would commit it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, connections, transaction
from django.db.models import QuerySet

from agentsite import dbtime
from runs import orchestrator
from runs.contracts import RunState
from runs.models import Run
from runs.orchestrator.steps import Handled
from tests.world import World

STUCK_S = 30.0


def after_look(world: World, act: Callable[[], None], when: Callable[[Handled], bool]) -> None:
    """Once, after the first handler whose result fits `when` and before that result is committed, `act` happens."""
    real, done = orchestrator.step, list[bool]()

    def step(run: RunState, *ports: Any) -> Handled:
        handled = real(run, *ports)
        if not done and when(handled):
            done.append(True)
            act()
        return handled

    world.patch.setattr(orchestrator, "step", step)


def ago(seconds: float) -> datetime:
    """So many seconds before this instant of the database; negative ones are still to come."""
    return dbtime.now() - timedelta(seconds=seconds)


def put_back(rows: QuerySet[Any], **seconds: float) -> None:
    """Sets columns of rows to so many seconds ago."""
    rows.update(**{column: ago(s) for column, s in seconds.items()})


def make_due(run: Run) -> None:
    put_back(Run.objects.filter(pk=run.pk), due_at=0.01)


LONGEST = 1.2
"""How much longer than it was asked to a parked run may wait, as a factor."""


def due_in_s(run: Run) -> float:
    """Seconds until a run is due; negative where it is due already."""
    due = Run.objects.get(pk=run.pk).due_at
    assert due is not None, "an ended run is due never"
    return (due - dbtime.now()).total_seconds()


def at_once(calls: list[Any]) -> list[Any]:
    """The answers of calls that leave together, each in a thread of its own."""
    gate, answers = threading.Barrier(len(calls)), [None] * len(calls)

    def one(number: int) -> None:
        try:
            gate.wait(30)
            answers[number] = calls[number]()
        finally:
            connection.close()

    threads = [threading.Thread(target=one, args=(n,)) for n in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return answers


@contextmanager
def commit_hangs_on(run_id: str) -> Iterator[None]:
    """Another connection has the row of a run, and its commit does not come (PostgreSQL: SQLite has one writer)."""
    locked, done = threading.Event(), threading.Event()

    def hang() -> None:
        try:
            with transaction.atomic():
                Run.objects.select_for_update().get(pk=run_id)
                locked.set()
                assert done.wait(STUCK_S)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as other:
        held = other.submit(hang)
        assert locked.wait(STUCK_S)
        try:
            yield
        finally:
            done.set()
            held.result(STUCK_S)
