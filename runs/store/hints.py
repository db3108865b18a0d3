"""Finds due runs nobody works on, and marks when a hint for one was last sent. Part of the store.

Compare-and-set on the mark, in database time, so that two passes never hint for one row.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connection

from agentsite import dbtime
from runs.models import LIVE_VALUES
from runs.store.lease import raw_id

BATCH = 500
GRACE_S = 3.0
MAX_GRACE_S = 300.0
_LIVE = ", ".join(f"'{value}'" for value in LIVE_VALUES)


@dataclass(frozen=True, kw_only=True)
class Due:
    run_id: str
    status: str
    tries: int


def due_unhinted() -> list[Due]:
    """Due, unleased (or with a dead lease), and not hinted for within their back-off; oldest first."""
    now = dbtime.now_sql()
    power = "POWER(2, LEAST(enqueue_tries, 8))" if connection.vendor == "postgresql" else "(1 << MIN(enqueue_tries, 8))"
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
        f"SELECT id, status, enqueue_tries FROM runs_run WHERE status IN ({_LIVE}) "
        f"AND (due_at <= {now} OR (status = 'awaiting_approval' AND {decided})) "
        f"AND (lease_token IS NULL OR lease_until < {now}) AND (enqueued_at IS NULL OR {quiet}) "
        "ORDER BY due_at LIMIT %s"
    )
    with connection.cursor() as cursor:
        cursor.execute(sql, [BATCH])
        return [Due(run_id=_text(row[0]), status=row[1], tries=row[2]) for row in cursor.fetchall()]


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
