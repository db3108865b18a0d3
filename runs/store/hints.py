"""Finds due runs nobody works on, and marks when a hint for one was last sent. Part of the store.

Compare-and-set on the mark, in database time, so that two passes never hint for one row.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connection

from agentsite import dbtime, queues
from runs.models import LIVE_VALUES
from runs.store.lease import raw_id

BATCH = 500
GRACE_S = 3.0
MAX_GRACE_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Due:
    run_id: str
    status: str
    tries: int


def due_unhinted(queue: str, *, patient: bool) -> list[Due]:
    """Runs of a queue that are due, unleased (or with a dead lease) and not hinted for lately; oldest first.

    `patient`: the back-off doubles with each hint. Where the queue is empty there is nothing to be patient for.
    """
    now, tries = dbtime.now_sql(), "enqueue_tries" if patient else "0"
    power = f"POWER(2, LEAST({tries}, 8))" if connection.vendor == "postgresql" else f"(1 << MIN({tries}, 8))"
    if connection.vendor == "postgresql":
        quiet = f"enqueued_at < {now} - make_interval(secs => LEAST({GRACE_S} * {power}, {MAX_GRACE_S}))"
    else:
        quiet = (
            "enqueued_at < strftime('%%Y-%%m-%%d %%H:%%M:%%f','now',"
            f"'-' || MIN({GRACE_S} * {power}, {MAX_GRACE_S}) || ' seconds')"
        )
    decided = (
        "EXISTS (SELECT 1 FROM approvals_approval a WHERE a.id = runs_run.approval_id "
        "AND a.status IN ('approved', 'rejected'))"
    )
    sql = (
        f"SELECT id, status, enqueue_tries FROM runs_run WHERE status IN ({_statuses(queue)}) "
        f"AND (due_at <= {now} OR (status = 'awaiting_approval' AND {decided})) "
        f"AND (lease_token IS NULL OR lease_until < {now}) AND (enqueued_at IS NULL OR {quiet}) "
        "ORDER BY due_at LIMIT %s"
    )
    with connection.cursor() as cursor:
        cursor.execute(sql, [BATCH])
        return [Due(run_id=_text(row[0]), status=row[1], tries=row[2]) for row in cursor.fetchall()]


def _statuses(queue: str) -> str:
    return ", ".join(f"'{value}'" for value in LIVE_VALUES if queues.queue_for(value) == queue)


def _text(raw: object) -> str:
    return str(raw) if isinstance(raw, uuid.UUID) else str(uuid.UUID(str(raw)))


def mark_hinted(one: Due) -> bool:
    """Compare-and-set on the hint's time, so that two passes never hint for one row."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE runs_run SET enqueued_at = {dbtime.now_sql()}, enqueue_tries = enqueue_tries + 1 "
            "WHERE id = %s AND enqueue_tries = %s",
            [raw_id(one.run_id), one.tries],
        )
        marked: int = cursor.rowcount
    return marked == 1


def unmark_hinted(rest: Sequence[Due]) -> None:
    """The broker did not take these hints: the next pass sends them."""
    with connection.cursor() as cursor:
        for one in rest:
            cursor.execute(
                "UPDATE runs_run SET enqueued_at = NULL, enqueue_tries = %s WHERE id = %s AND enqueue_tries = %s",
                [one.tries, raw_id(one.run_id), one.tries + 1],
            )
