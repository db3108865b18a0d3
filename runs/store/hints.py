"""Finds due runs nobody works on, and marks when a hint for one was last sent. Part of the store.

Compare-and-set on the mark, in database time, so that two passes never hint for one row.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection

from agentsite import dbtime, env, queues
from runs.models import LIVE_VALUES
from runs.states import Status
from runs.store.lease import raw_id, readable

BATCH = 500
GRACE_S = 3.0
MOST_TRIES = 1000
"""The column is small; the back-off has long ended its growth."""
AWAITING = Status.AWAITING_APPROVAL.value


@dataclass(frozen=True, kw_only=True)
class Due:
    run_id: str
    status: str
    tries: int
    trace_id: str = ""


def max_grace_s() -> float:
    """The longest a due run waits for its next hint: about a lease, as for any other step whose worker died."""
    return max(2 * GRACE_S, env.read().LEASE_S)


def due_unhinted(queue: str, *, patient: bool) -> list[Due]:
    """Runs of a queue that are due, unleased (or with a dead lease) and not hinted for lately; oldest first.

    `patient`: the back-off doubles with each hint. Where the queue is empty there is nothing to be patient for.
    """
    rows, params = unhinted(queue, patient=patient)
    with connection.cursor() as cursor:
        cursor.execute(f"{rows} ORDER BY due_at LIMIT %s", [*params, BATCH])
        return [
            Due(run_id=_text(row[0]), status=row[1], tries=row[2], trace_id=row[3]) for row in cursor.fetchall()
        ]  # fmt: skip


def unhinted(queue: str, *, patient: bool) -> tuple[str, list[Any]]:
    """The statement of `due_unhinted`, without order and limit, and its parameters."""
    rows, params = _due(queue)
    which = f"enqueued_at IS NULL OR {_quiet(patient)}"
    return f"SELECT id, status, enqueue_tries, trace_id FROM ({rows}) due WHERE {which}", params


def count_due(queue: str) -> int:
    """Runs of a queue that a worker could take now, hinted for or not: as many messages it should hold."""
    rows, params = _due(queue)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM ({rows}) due", params)
        return int(cursor.fetchone()[0])


def _due(queue: str) -> tuple[str, list[Any]]:
    """Rows that are due, and with them runs whose approval was decided while their own time is still ahead.

    Each half walks an index and sees next to nothing of what waits or has ended. For that SQLite needs the partial
    index's own condition, word for word, and to be told which table comes first (CROSS JOIN). A decision on an
    approval that has expired since needs no look: its run is due by then.
    """
    now, (ours, params) = instant(), readable()
    columns = "id, status, enqueue_tries, enqueued_at, due_at, trace_id"
    free = f"(lease_token IS NULL OR lease_until < {now}) AND {ours}"
    due = (
        f"SELECT {columns} FROM runs_run WHERE completed_at IS NULL AND status IN ({_statuses(queue)}) "
        f"AND due_at <= {now} AND {free}"
    )
    if queues.queue_for(AWAITING) != queue:
        return due, params
    decided = (
        "(SELECT id AS decided_id, run_id AS decided_run FROM approvals_approval "
        f"WHERE status IN ('approved', 'rejected', 'void') AND expires_at > {now}) a"
    )
    told = (
        f"SELECT {columns} FROM {decided} CROSS JOIN runs_run WHERE id = decided_run AND approval_id = decided_id "
        f"AND status = '{AWAITING}' AND due_at > {now} AND {free}"
    )
    return f"{due} UNION ALL {told}", params + params


def instant() -> str:
    """This instant, as a value known before the rows are: `clock_timestamp()` is none, and searches no index."""
    return "statement_timestamp()" if connection.vendor == "postgresql" else f"(SELECT {dbtime.now_sql()})"


def _quiet(patient: bool) -> str:
    now, tries, most = dbtime.now_sql(), "enqueue_tries" if patient else "0", max_grace_s()
    if connection.vendor == "postgresql":
        power = f"POWER(2, LEAST({tries}, 8))"
        return f"enqueued_at < {now} - make_interval(secs => LEAST({GRACE_S} * {power}, {most}))"
    wait = f"MIN({GRACE_S} * (1 << MIN({tries}, 8)), {most})"
    return f"enqueued_at < strftime('%%Y-%%m-%%d %%H:%%M:%%f','now','-' || {wait} || ' seconds')"


def _statuses(queue: str) -> str:
    return _listed([value for value in LIVE_VALUES if queues.queue_for(value) == queue])


def _listed(values: Sequence[str]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def _text(raw: object) -> str:
    return str(raw) if isinstance(raw, uuid.UUID) else str(uuid.UUID(str(raw)))


def mark_hinted(one: Due) -> bool:
    """Compare-and-set on the hint's time, so that two passes never hint for one row.

    A row that is locked is passed over: somebody is at it, and to wait for a commit that hangs would hold up the hints
    of all others.
    """
    beside_locks = " FOR UPDATE SKIP LOCKED" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE runs_run SET enqueued_at = {dbtime.now_sql()}, enqueue_tries = %s WHERE id = "
            f"(SELECT id FROM runs_run WHERE id = %s AND enqueue_tries = %s{beside_locks})",
            [min(one.tries + 1, MOST_TRIES), raw_id(one.run_id), one.tries],
        )
        marked: int = cursor.rowcount
    return marked == 1


def unmark_hinted(rest: Sequence[Due]) -> None:
    """The broker did not take these hints: the next pass sends them."""
    with connection.cursor() as cursor:
        for one in rest:
            cursor.execute(
                "UPDATE runs_run SET enqueued_at = NULL, enqueue_tries = %s WHERE id = %s AND enqueue_tries = %s",
                [one.tries, raw_id(one.run_id), min(one.tries + 1, MOST_TRIES)],
            )
