"""Keeper: what stands of a run's approvals at the moment one is asked for or decided: a statement each. Writes nothing.

Knows no runs, no gate, no model; imports none of them.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import connection

from agentsite import dbtime, statements

_DECISIONS = (
    "SELECT {now}, d.user_id, d.decision, d.by, d.at FROM (SELECT 1 AS one) AS once "
    "LEFT JOIN approvals_decision d ON d.approval_id = %s AND d.counted ORDER BY d.id"
)
_BEFORE = (
    "SELECT {now}, a.requested_at, a.id, a.status, CASE WHEN a.execute_by IS NULL THEN '' ELSE a.action_hash END "
    "FROM (SELECT 1 AS one) AS once LEFT JOIN approvals_approval a ON a.run_id = %s ORDER BY a.requested_at"
)


class Said(NamedTuple):
    """A decision that counts; a person who was removed since has no id."""

    user_id: int | None
    decision: str
    by: str
    at: datetime


def said(approval_id: str) -> tuple[datetime, tuple[Said, ...]]:
    """This moment, and the decisions that count, in their order."""
    with statements.cursor() as cursor:
        cursor.execute(_DECISIONS.format(now=dbtime.now_sql()), [approval_id])
        rows = cursor.fetchall()
    found = ((user_id, decision, by, dbtime.moment(at)) for _, user_id, decision, by, at in rows)
    return _moment(rows[0][0]), tuple(Said(one, what, by, at) for one, what, by, at in found if at is not None)


def before(run_id: str, action_hash: str) -> tuple[datetime, bool, str | None]:
    """When the run's next question is asked, whether an earlier one is void, and the newest void one of the same action
    that had been approved.

    Database time, but after the run's last approval: SQLite's clock counts milliseconds, two can share one.
    """
    with statements.cursor() as cursor:
        cursor.execute(_BEFORE.format(now=dbtime.now_sql()), [raw_id(run_id)])
        rows = cursor.fetchall()
    void = [row for row in rows if row[3] == "void"]
    same = [row[2] for row in void if row[4] == action_hash]
    now, last = _moment(rows[0][0]), dbtime.moment(rows[-1][1])
    at = max(now, last + timedelta(microseconds=1)) if last is not None else now
    return at, bool(void), same[-1] if same else None


def raw_id(run_id: str) -> UUID | str:
    """A run's id as a raw parameter: a UUID on PostgreSQL, hex without dashes on SQLite."""
    return UUID(run_id) if connection.vendor == "postgresql" else UUID(run_id).hex


def _moment(value: object) -> datetime:
    found = dbtime.moment(value)
    assert found is not None, "the database always knows the time"
    return found
