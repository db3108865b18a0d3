"""The durability mechanism: finds due runs that nobody works on, and hints for them again.

Independent of beat and of any delivered task: a thread in every worker parent and in the embedded process, one pass
at a time across the fleet by one lease row. Bounded batches, back-off a row, and never more hints than messages
are missing: a naive sweeper melts the system exactly when it is slow.
"""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass

from django.db import close_old_connections, connection, connections

from agentsite import clock, dbtime, env, queues, telemetry
from runs import fleet, store
from runs.models import Sweeper
from runs.store import Due

LEASE_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Pass:
    """What a pass did: rows found due, hints published, whether the broker answered; None fields: not our turn."""

    found: int
    published: int
    broker: bool


def sweep() -> Pass | None:
    """One pass; None where another process sweeps now."""
    token = secrets.token_hex(16)
    if not _take(token):
        return None
    started = clock.monotonic()
    chosen: list[Due] = []
    found = 0
    try:
        for queue in (queues.WRITES, queues.PASSES):
            marked, due = _choose(queue)
            chosen, found = chosen + marked, found + due
        late = [*store.due_writes(), *store.due_watches()]
    finally:
        _give_back(token)
    published, broker = _publish(chosen)
    for key in late if broker else ():
        queues.nudge_settle(key)
    _note(found, published, round((clock.monotonic() - started) * 1000))
    return Pass(found=found, published=published, broker=broker)


def _take(token: str) -> bool:
    Sweeper.objects.bulk_create([Sweeper(id=1)], ignore_conflicts=True)
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE runs_sweeper SET token = %s, until = {dbtime.plus_sql()} "
            f"WHERE id = 1 AND (until IS NULL OR until < {dbtime.now_sql()})",
            [token, dbtime.plus_param(LEASE_S)],
        )
        taken: int = cursor.rowcount
    return taken == 1


def _give_back(token: str) -> None:
    Sweeper.objects.filter(id=1, token=token).update(until=None)


def _note(found: int, published: int, took_ms: int) -> None:
    row = Sweeper.objects.get(id=1)
    Sweeper.objects.filter(id=1).update(
        last_pass_at=dbtime.now(), last_pass_ms=took_ms, last_found=found, published=row.published + published
    )


def _choose(queue: str) -> tuple[list[Due], int]:
    """At most as many hints as rows are due beyond the messages that still wait; each row marked. And rows found."""
    depth = queues.depth(queue)
    due = store.due_unhinted(queue, patient=depth > 0)
    missing = max(0, len(due) - depth)
    return [one for one in due[:missing] if store.mark_hinted(one)], len(due)


def _publish(chosen: list[Due]) -> tuple[int, bool]:
    """Hint for the chosen rows; the first refusal of the broker ends the pass and gives the rest back."""
    for number, one in enumerate(chosen):
        if not queues.nudge(one.run_id, one.status):
            store.unmark_hinted(chosen[number:])
            return number, False
    return len(chosen), True


class Thread(threading.Thread):
    """Sweeps for as long as its process lives: at once at start, then every SWEEP_S."""

    def __init__(self, *, kind: str, queue_names: str = "", url: str = "") -> None:
        super().__init__(name="sweeper", daemon=True)
        self._ends = threading.Event()
        self._process = fleet.Me(kind=kind, queues=queue_names, url=url)

    def run(self) -> None:
        while not self._ends.is_set():
            wait = self._pass()
            self._ends.wait(wait)
        self._farewell()

    def _pass(self) -> float:
        try:
            close_old_connections()
            self._process.seen()
            sweep()
            return env.read().SWEEP_S
        except Exception as error:  # noqa: BLE001 - a database that is away comes back; the next pass tries again
            telemetry.count("sweeps_failed")
            telemetry.log("sweeper.failed", error=type(error).__name__)
            return env.read().SWEEP_S
        finally:
            connections.close_all()

    def _farewell(self) -> None:
        try:
            self._process.gone()
        except Exception as error:  # noqa: BLE001 - the row ages out by itself
            telemetry.log("fleet.farewell_failed", error=type(error).__name__)
        finally:
            connections.close_all()

    def stop(self) -> None:
        """Ask the thread to end; join it afterwards."""
        self._ends.set()
