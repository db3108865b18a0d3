"""Takes a due run for this process, and on PostgreSQL reads it by the very statement. Part of the store."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentsite import dbtime, env, queues, statements
from runs.contracts import SCHEMA
from runs.models import LIVE_VALUES
from runs.states import Status
from runs.store import lease, prefixes, whole
from runs.store.lease import raw_id

GIVEN_BACK = 8
"""Times the hint for a run that only newer code can read is sent again at once."""
# A decision on its approval makes a waiting run due: approvals may not write runs, so the claim looks.
_DECIDED = (
    "(status = 'awaiting_approval' AND EXISTS (SELECT 1 FROM approvals_approval a WHERE a.run_id = runs_run.id "
    "AND a.id = runs_run.approval_id AND a.status IN ('approved', 'rejected', 'void')))"
)
_GRANTED = _DECIDED.replace("IN ('approved', 'rejected', 'void')", "= 'approved'")
_TOLD = "RETURNING status, attempts, version"
# What belongs to a run is seen as it was when the statement began. Where the claim waited for a commit on the row, that
# is older than the row itself, and is not used.
_AT_ONE_MOMENT = (
    "(SELECT s.version = r.version AND s.last_seq = r.last_seq AND s.last_input_seq = r.last_input_seq "
    "FROM runs_run s WHERE s.id = r.id)"
)


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """`read`: the run as the claim found it, for `load`; None where it has to be asked for."""

    run_id: str
    token: str
    status: Status
    attempts: int
    version: int
    read: prefixes.Read | None = None


def claim(run_id: str) -> Claimed | None:
    """Take a due run for this process, counting the try before the work; None where it is not due, held or not ours."""
    token = secrets.token_hex(16)
    taken = _with_the_run(run_id, token) if dbtime.on_postgres() else _alone(run_id, token)
    if taken is None:
        _leave_to_newer(run_id)
    return taken


def _alone(run_id: str, token: str) -> Claimed | None:
    sql, params = _update(run_id, token)
    row = _asked(f"{sql} {_TOLD}", params)
    return None if row is None else _claimed(run_id, token, row)


def _with_the_run(run_id: str, token: str) -> Claimed | None:
    sql, params = _update(run_id, token)
    known = prefixes.of(run_id)
    seen, given = whole.seen(known.past)
    told = f"r.status, r.attempts, r.version, {_AT_ONE_MOMENT}, {seen}"
    row = _asked(f"WITH r AS ({sql} RETURNING runs_run.*) SELECT {told} FROM r", [*params, *given])
    if row is None:
        return None
    return _claimed(run_id, token, row, prefixes.Read(found=row[4:], known=known) if row[3] else None)


def _update(run_id: str, token: str) -> tuple[str, list[Any]]:
    """The compare-and-set, with its parameters; what it returns comes behind it."""
    now, plus, (ours, age) = dbtime.now_sql(), dbtime.plus_sql(), lease.readable()
    sql = (
        f"UPDATE runs_run SET lease_token = %s, lease_until = {plus}, lease_deadline = {plus}, "
        f"attempts = attempts + 1 WHERE id = %s AND {_mine()} "
        f"AND (lease_token IS NULL OR lease_until < {now}) AND (due_at <= {now} OR {_DECIDED}) AND {ours}{lease.lax()}"
    )
    held = (dbtime.plus_param(env.read().LEASE_S), dbtime.plus_param(lease.handler_deadline_s()))
    return sql, [token, *held, raw_id(run_id), *age]


def _mine() -> str:
    """Statuses whose queue this process consumes: a late hint must not run money work without its credential.

    Who writes may begin with the yes that leads to the write: it is folded with the write's own intent.
    """
    consumed = env.read().queues
    names = [value for value in LIVE_VALUES if queues.queue_for(value) in consumed]
    mine = f"status IN ({', '.join(repr(name) for name in names) or repr('')})"
    return f"({mine} OR {_GRANTED})" if queues.WRITES in consumed else mine


def _asked(sql: str, params: Sequence[Any]) -> tuple[Any, ...] | None:
    with statements.cursor() as cursor:
        cursor.execute(sql, params)
        row: tuple[Any, ...] | None = cursor.fetchone()
    return row


def _claimed(run_id: str, token: str, row: tuple[Any, ...], read: prefixes.Read | None = None) -> Claimed:
    return Claimed(run_id=run_id, token=token, status=Status(row[0]), attempts=row[1], version=row[2], read=read)


def _leave_to_newer(run_id: str) -> None:
    """The hint for a run that only newer code can read was taken in vain: a sweeper of that code may send another.

    A few times at once; where nobody of that code consumes the queue, the row's own back-off holds.
    """
    with statements.cursor() as cursor:
        cursor.execute(
            f"UPDATE runs_run SET enqueued_at = NULL WHERE id = %s AND schema > {SCHEMA} AND lease_token IS NULL "
            f"AND enqueue_tries < {GIVEN_BACK}",
            [raw_id(run_id)],
        )
