"""The durability mechanism: finds due runs that nobody works on, and hints for them again.

Independent of beat and of any delivered task: a thread in every worker parent and in the embedded process, one pass
at a time across the fleet by one lease row. Bounded batches, back-off a row, and never more hints than messages
are missing: a naive sweeper melts the system exactly when it is slow.
"""

from __future__ import annotations

import os
import random
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from django.db import close_old_connections, connections

from agentsite import clock, dbtime, env, queues, statements, telemetry
from approvals import notify
from runs import fleet, retention, store
from runs.models import Sweeper
from runs.store import Due, at_rest, hints, parcels, shadows

LEASE_S = 10.0
SOONEST = 0.75
"""Of SWEEP_S: a fleet that wakes at odd moments makes about one pass in that time, however many processes it has."""
STANDS_BY = 2
"""Times SWEEP_S: how long a process waits that found another one at it, or just done."""
LATE_ROOM = 10
"""Messages that wait in a queue, above which nothing is added that can wait: it counts as waiting too."""
_ROUNDS = notify.Rounds()
HINTED = (queues.WRITES, queues.PASSES)
SEEN_S = fleet.ALIVE_S / 3
_FORKS = threading.Lock()
"""Held by a pass of the thread, and by whoever forks. A pool of processes is filled up again at any moment, and a child
that inherits an open connection is a second user of it: that may destroy SQLite's file, and does PostgreSQL's talk."""
os.register_at_fork(before=_FORKS.acquire, after_in_parent=_FORKS.release, after_in_child=_FORKS.release)


@dataclass(frozen=True, kw_only=True)
class Pass:
    """What a pass did: rows found due, hints published, whether the broker answered where it was asked."""

    found: int
    published: int
    broker: bool


def sweep(*, every_s: float = 0.0) -> Pass | None:
    """One pass; None where another process sweeps now, or ended a pass just now as passes come `every_s` seconds."""
    token, started = secrets.token_hex(16), clock.monotonic()
    rests = _take(token, every_s * SOONEST)
    if rests is None:
        return None
    if rests:
        return Pass(found=0, published=0, broker=True)
    try:
        found, chosen, broker = _look()
        late = [*store.due_writes(), *store.due_watches()]
    finally:
        _give_back(token)
    published, broker = _publish(chosen) if broker else (0, False)
    for key in late if late and broker and _has_room(queues.WRITES) else ():
        queues.nudge_settle(key)
    _note(found, published, round((clock.monotonic() - started) * 1000))
    _tell(broker)
    return Pass(found=found, published=published, broker=broker)


def _take(token: str, quiet_s: float) -> bool | None:
    """Take the lease; where nothing at all is due, as most passes find, note such a pass at once and leave it free.

    True: such a pass; False: the lease is taken; None: another process has it, or swept just now.
    """
    taken = _take_row(token, quiet_s)
    if taken is not None or _row_exists():
        return taken
    Sweeper.objects.bulk_create([Sweeper(id=1)], ignore_conflicts=True)
    return _take_row(token, quiet_s)


def _row_exists() -> bool:
    with statements.cursor() as cursor:
        cursor.execute("SELECT 1 FROM runs_sweeper WHERE id = 1")
        return cursor.fetchone() is not None


def _take_row(token: str, quiet_s: float) -> bool | None:
    """One statement, which a site at rest asks each second. A time that lies ahead of any this code writes is of a
    clock that was set back since, and holds nobody."""
    now, plus = dbtime.now_sql(), dbtime.plus_sql()
    due, given = ("1 = 1", []) if _ROUNDS.turns() else at_rest.question(HINTED)
    held, ahead = dbtime.plus_param(LEASE_S), dbtime.plus_param(2 * LEASE_S)
    with statements.cursor() as cursor:
        cursor.execute(
            f"WITH q AS MATERIALIZED (SELECT {due} AS due) "
            f"UPDATE runs_sweeper SET token = %s, until = CASE WHEN q.due THEN {plus} END, "
            f"last_pass_at = CASE WHEN q.due THEN last_pass_at ELSE {now} END, "
            f"last_pass_ms = CASE WHEN q.due THEN last_pass_ms ELSE {dbtime.spent_ms_sql()} END, "
            "last_found = CASE WHEN q.due THEN last_found ELSE 0 END FROM q "
            f"WHERE id = 1 AND (until IS NULL OR until < {now} OR until > {plus}) "
            f"AND (last_pass_at IS NULL OR last_pass_at <= {plus} OR last_pass_at > {plus}) RETURNING until",
            [*given, token, held, ahead, dbtime.plus_param(-quiet_s), held],
        )
        row = cursor.fetchone()
    return None if row is None else row[0] is None


def _give_back(token: str) -> None:
    Sweeper.objects.filter(id=1, token=token).update(until=None)


def _note(found: int, published: int, took_ms: int) -> None:
    """What a pass came to."""
    with statements.cursor() as cursor:
        cursor.execute(
            f"UPDATE runs_sweeper SET last_pass_at = {dbtime.now_sql()}, last_pass_ms = %s, last_found = %s, "
            "published = published + %s WHERE id = 1",
            [took_ms, found, published],
        )


def _look() -> tuple[int, list[Due], bool]:
    """How many runs want a hint, those marked to get one now, and whether the broker answered where it was asked."""
    if not any(store.due_unhinted(queue, patient=False) for queue in HINTED):
        return 0, [], True  # as most passes end
    waiting = _waiting()
    found, chosen = _choose(waiting)
    return found, chosen, waiting is not None


def _tell(broker: bool) -> None:
    """Have due webhooks and notices sent and due proposals compared; while there are some, the next pass asks again."""
    due = [
        (parcels.due(), queues.nudge_deliver), (_ROUNDS.look(), queues.nudge_notify),
        (shadows.due(), queues.nudge_compare),
    ]  # fmt: skip
    if broker and any(found for found, _ in due) and _has_room(queues.MAINTENANCE):
        for found, nudge in due:
            if found:
                nudge()


def _has_room(queue: str) -> bool:
    """Whether what can wait may join a queue: a late look never crowds out a refund."""
    try:
        return queues.depth(queue) < LATE_ROOM
    except queues.BrokerAway:
        return False


def _waiting() -> dict[str, int] | None:
    """Messages that still wait, by queue; None where the broker cannot say: then nothing can be sent either."""
    try:
        return {queue: queues.depth(queue) for queue in HINTED}
    except queues.BrokerAway:
        return None


def _choose(waiting: Mapping[str, int] | None) -> tuple[int, list[Due]]:
    """How many runs want a hint, and those of them that are marked to get one now."""
    found, chosen = 0, list[Due]()
    for queue in HINTED:
        depth = waiting[queue] if waiting is not None else 0
        due = store.due_unhinted(queue, patient=depth > 0)
        found += len(due)
        if waiting is not None:
            chosen += [one for one in due[: _missing(queue, due, depth)] if store.mark_hinted(one)]
    return found, chosen


def _missing(queue: str, due: list[Due], depth: int) -> int:
    """Messages a queue lacks: rows that are due, hinted for lately or not, beyond the messages that still wait."""
    if not due or depth == 0:
        return len(due)
    return max(0, hints.count_due(queue) - depth)


def _publish(chosen: list[Due]) -> tuple[int, bool]:
    """Hint for the chosen rows; the first refusal of the broker ends the pass and gives the rest back."""
    for number, one in enumerate(chosen):
        if not queues.nudge(one.run_id, one.status, insist=True, trace_id=one.trace_id):
            store.unmark_hinted(chosen[number:])
            return number, False
    return len(chosen), True


def _by_chance(mean: float) -> float:
    """Who stands by must change places with a sweeper it wakes in step with: only one of two deployments may reach
    the broker, or read the runs, that lack a hint."""
    return random.uniform(1, 2 * mean - 1)  # noqa: S311 - no secret


class Thread(threading.Thread):
    """Sweeps for as long as its process lives: at once at start, then every SWEEP_S; else stands by."""

    def __init__(self, *, kind: str, queue_names: str = "", url: str = "") -> None:
        super().__init__(name="sweeper", daemon=True)
        self._ends = threading.Event()
        self._process = fleet.Me(kind=kind, queues=queue_names, url=url)
        self._seen_at = -SEEN_S
        self._retention = retention.Rounds()

    def run(self) -> None:
        while not self._ends.is_set():
            wait = self._pass()
            self._ends.wait(wait)
        self._farewell()

    def _pass(self) -> float:
        with _FORKS:
            return self._pass_alone()

    def _pass_alone(self) -> float:
        """One pass, after which this thread holds no connection."""
        try:
            close_old_connections()
            self._say_so()
            every_s = env.read().SWEEP_S
            done = sweep(every_s=every_s)
            if done is not None:
                self._retention.perhaps()
            return every_s if done and done.broker else every_s * _by_chance(STANDS_BY)
        except Exception as error:  # noqa: BLE001 - a database that is away comes back; the next pass tries again
            telemetry.count("sweeps_failed")
            telemetry.log("sweeper.failed", error=type(error).__name__)
            return env.read().SWEEP_S
        finally:
            connections.close_all()

    def _say_so(self) -> None:
        if clock.monotonic() - self._seen_at >= SEEN_S:
            self._process.seen()
            self._seen_at = clock.monotonic()

    def _farewell(self) -> None:
        with _FORKS:
            self._gone()

    def _gone(self) -> None:
        try:
            self._process.gone()
        except Exception as error:  # noqa: BLE001 - the row ages out by itself
            telemetry.log("fleet.farewell_failed", error=type(error).__name__)
        finally:
            connections.close_all()

    def stop(self) -> None:
        """Ask the thread to end; join it afterwards."""
        self._ends.set()
