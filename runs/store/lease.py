"""Renews leases and gives runs back: compare-and-set on the lease, in database time. Part of the store."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from django.db import connection

from agentsite import dbtime, env, statements
from runs.contracts import SCHEMA

NEWER_FOR_S = 86400.0
"""How long a run of a newer schema is left to newer code; due and untouched for a day, it is anybody's, and fails by
name. One that waits for a person touches nothing for days and is due to nobody meanwhile."""
RENEWED_AT_ONCE = 100
"""Leases a statement."""

# A lease saves time and protects nothing: version and token fence. A database that crashes may forget one, so nobody
# waits for the disk; whatever is committed after it is on the disk together with it.
_LAX = {"postgresql": " AND set_config('synchronous_commit', 'off', true) = 'off'"}


@lru_cache(maxsize=4096)
def raw_id(run_id: str) -> uuid.UUID | str:
    """A run id as a raw parameter: a UUID on PostgreSQL, hex without dashes on SQLite."""
    parsed = uuid.UUID(run_id)
    return parsed if dbtime.on_postgres() else parsed.hex


def lax() -> str:
    """A condition that is always met, and by which the statement's commit waits for no disk."""
    return _LAX.get(connection.vendor, "")


def handler_deadline_s() -> float:
    """The longest a handler may take: its calls' timeouts and five seconds; a lease is never renewed past it."""
    settings = env.read()
    model = settings.MODEL_TIMEOUT_S
    write = settings.WRITE_TIMEOUT_S + 2 * settings.CALL_TIMEOUT_S
    reads = 3 * settings.CALL_TIMEOUT_S
    return max(model, write, reads) + 5


def readable() -> tuple[str, list[Any]]:
    """An SQL condition, with its parameters: this code may be asked to go on with the row.

    Two releases on one database: what the newer admitted waits for the newer, whoever gets its hint.
    """
    old, age = dbtime.plus_sql(), dbtime.plus_param(-NEWER_FOR_S)
    return f"(schema <= {SCHEMA} OR (due_at < {old} AND updated_at < {old}))", [age, age]


def renew(leases: Sequence[tuple[str, str]]) -> frozenset[str]:
    """Prolong leases (run id, token) that still live, never past their handlers' own deadlines; the tokens that live.

    A few statements for all: one a lease would take a process with a thousand of them longer than a lease lasts.
    """
    renewed: set[str] = set()
    for first in range(0, len(leases), RENEWED_AT_ONCE):
        renewed |= _renew(leases[first : first + RENEWED_AT_ONCE])
    return frozenset(renewed)


def _renew(leases: Sequence[tuple[str, str]]) -> set[str]:
    each, now, plus = ", ".join(["%s"] * len(leases)), dbtime.now_sql(), dbtime.plus_sql()
    live = f"id IN ({each}) AND lease_token IN ({each}) AND lease_until >= {now} AND lease_deadline > {now}"
    which = [*(raw_id(run_id) for run_id, _ in leases), *(token for _, token in leases)]
    lease = dbtime.plus_param(env.read().LEASE_S)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(_beside_locks(live, plus), [*which, lease])
        else:
            cursor.execute(
                f"UPDATE runs_run SET lease_until = MIN({plus}, lease_deadline) WHERE {live} RETURNING lease_token",
                [lease, *which],
            )
        return {str(row[0]) for row in cursor.fetchall()}


def _beside_locks(live: str, plus: str) -> str:
    """A row that is locked is passed over, not waited for: a commit that hangs would else hold, through this statement,
    every other run of its process. Nobody can claim it meanwhile, and its lease still counts as living."""
    return (
        f"WITH live AS (SELECT id, lease_token FROM runs_run WHERE {live}), "
        "free AS (SELECT r.id FROM runs_run r JOIN live USING (id, lease_token) FOR UPDATE OF r SKIP LOCKED), "
        f"renewed AS (UPDATE runs_run SET lease_until = LEAST({plus}, lease_deadline) "
        "FROM free WHERE runs_run.id = free.id) SELECT lease_token FROM live"
    )


def release(
    run_id: str, token: str, due_in_s: float | None, *, seen: int | None = None, failed: bool = False
) -> None:  # fmt: skip
    """Give a run back without a transition, due in so many seconds (None: as it was).

    `seen` is the last input the handler looked at: one that came later keeps the run due at once. A handler that
    returned clears the count of tries; one that raised (`failed`) keeps it, so a loop ends. The count of a write whose
    step kept killing its workers stays: it is only looked up from then on.
    """
    changes = ["lease_token = NULL", "lease_until = NULL", "lease_deadline = NULL"]
    params: list[Any] = []
    if not failed:
        changes.append("attempts = CASE WHEN status = 'executing' AND attempts > %s THEN attempts ELSE 0 END")
        params.append(env.read().MAX_STEP_ATTEMPTS)
    if due_in_s is not None:
        changes.append(f"due_at = CASE WHEN last_input_seq = {'%s' if seen is not None else 'last_input_seq'} "
                       f"THEN {dbtime.plus_sql()} ELSE due_at END")  # fmt: skip
        params += [seen, dbtime.plus_param(due_in_s)] if seen is not None else [dbtime.plus_param(due_in_s)]
        changes.append(f"enqueued_at = {dbtime.now_sql() if due_in_s <= 0 else 'NULL'}, enqueue_tries = 0")
    sql = f"UPDATE runs_run SET {', '.join(changes)} WHERE id = %s AND lease_token = %s{lax()}"
    with statements.cursor() as cursor:
        cursor.execute(sql, [*params, raw_id(run_id), token])


def due_now(run_id: str) -> bool:
    """Whether a hint is worth sending: the run is free and due."""
    with statements.cursor() as cursor:
        cursor.execute(
            f"SELECT 1 FROM runs_run WHERE id = %s AND lease_token IS NULL AND due_at <= {dbtime.now_sql()}",
            [raw_id(run_id)],
        )
        return cursor.fetchone() is not None
