"""Months of ended runs in one go: copies of a run that really ended, by INSERT … SELECT into PostgreSQL.

A copy differs in ids, names and times alone, and has what lists, admission and the sweeper may come upon: the run, its
orders, approval, decision and write, and its first event. Rows are read beside the site; only databases made for a
bench are ever filled. Imports no zone and no keeper.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from agentsite.private.servers import Postgres

DAYS = 90
"""Over which the copies ended, evenly; the newest a moment before the one that they are copies of."""
WATCHED = (1, 3, 7, 14, 30)
"""Days after its end at which a confirmed refund is looked at again."""
DAY_MS = 86_400_000
TASKS = 2
QUICK = (
    "SET session_replication_role = replica",  # the rows fit by their making: nobody looks each reference up
    "SET synchronous_commit = off", "SET work_mem = '256MB'", "SET maintenance_work_mem = '512MB'",
)  # fmt: skip
HASTY = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "8GB"}
TIMES = "timestamp with time zone"

# The nth copy, by expressions over n and {step}, the milliseconds from one to the next; `t` is the row copied from.
AGE = "({count} - n) * {step}::bigint"
AGO = f"make_interval(secs => ({AGE}) / 1000.0)"
HASH = "md5(n::text)"
RUN_ID = (
    "(lpad(to_hex({born} - " + AGE + "), 12, '0') || '7' || "
    f"substr({HASH}, 1, 3) || '8' || substr({HASH}, 4, 15))::uuid"
)
APPROVAL_ID = "'apr_' || substr(md5('a' || n), 1, 20)"
NAMES = {
    "request_id": "'req-old-' || n", "order_id": "'old-' || n", "payment_id": "'pay_old-' || n",
    "customer_id": "'cust_old-' || n / 2", "trace_id": "md5('t' || n)", "approval_id": APPROVAL_ID,
    "refund_id": "'ref_' || substr(md5('r' || n), 1, 16)",
}  # fmt: skip
KEY = "'t_acme_in/req-old-' || n || ':issue_refund:pay_old-' || n"
LOOKS = " ".join(f"WHEN {AGE} < {days * DAY_MS} THEN t.closed_at - {AGO} + interval '{days} days'" for days in WATCHED)


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Which rows of the first run are copied, and what becomes of columns that `NAMES` does not tell."""

    name: str
    of_run: str
    changed: Mapping[str, str]


_OF_RUN = "t.run_id = {run}"
TABLES = (
    _Table(name="runs_run", of_run="t.id = {run}", changed={"id": RUN_ID}),
    _Table(name="approvals_approval", of_run=_OF_RUN,
           changed={"id": APPROVAL_ID, "run_id": RUN_ID, "notices_until": "NULL"}),
    _Table(name="runs_event", of_run="t.run_id = {run} AND t.seq = 1", changed={"run_id": RUN_ID}),
    _Table(name="runs_write", of_run=_OF_RUN, changed={
        "key": KEY, "run_id": RUN_ID, "look_at": "NULL", "watch_at": f"CASE {LOOKS} END", "decision_id": APPROVAL_ID,
    }),
    _Table(name="approvals_decision", changed={"approval_id": APPROVAL_ID},
           of_run="t.approval_id IN (SELECT id FROM approvals_approval WHERE run_id = {run})"),
    _Table(name="runs_runorder", of_run=_OF_RUN, changed={"run_id": RUN_ID}),
)  # fmt: skip
MADE = "SELECT status, outcome FROM runs_run WHERE id = %s"


class NotEnded(AssertionError):
    """The run to be copied is not one that ended with a refund."""


def fill(cluster: Postgres, database: str, run_id: str, count: int, say: Callable[[str], None]) -> None:
    """`count` more runs that ended as this one did, with approval, decision and write, in a database of this
    cluster, which trades its safety for speed meanwhile. Raises NotEnded."""
    with psycopg.connect(database, autocommit=True) as postgres:
        if postgres.execute(MADE, [run_id]).fetchone() != ("completed", "refunded"):
            raise NotEnded(run_id)
        indexes = _without_indexes(postgres)
        statements = [_copying(postgres, table, run_id, count) for table in TABLES]
    with _hasty(cluster):
        _side_by_side(database, statements)
        say(f"rows are made; making {len(indexes)} indexes again …")
        _side_by_side(database, indexes)


@contextmanager
def _hasty(cluster: Postgres) -> Iterator[None]:
    """Nothing waits for the disk; at the end all of it is there, and the cluster is as it was."""
    with psycopg.connect(cluster.url, autocommit=True) as postgres:
        for name, value in HASTY.items():
            postgres.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
        postgres.execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            for name in HASTY:
                postgres.execute(f"ALTER SYSTEM RESET {name}".encode())
            postgres.execute("SELECT pg_reload_conf()")
            os.sync()


def _side_by_side(database: str, statements: Sequence[str]) -> None:
    def run(statement: str) -> None:
        with psycopg.connect(database, autocommit=True) as postgres:
            for setting in QUICK:
                postgres.execute(setting.encode())
            postgres.execute(statement.encode())

    with ThreadPoolExecutor(TASKS) as tasks:
        list(tasks.map(run, statements))


def _copying(postgres: psycopg.Connection, table: _Table, run_id: str, count: int) -> str:
    columns = _columns(postgres, table.name)
    changed = {**NAMES, **table.changed}
    values = [_value(name, kind, changed) for name, kind in columns.items()]
    chosen = ", ".join(values).format(count=count, step=DAYS * DAY_MS // count, born=_born(run_id))
    listed = ", ".join(f'"{name}"' for name in columns)
    where = table.of_run.format(run=f"'{run_id}'")
    source = f"{table.name} t CROSS JOIN generate_series(1, {count}) n"
    return f"INSERT INTO {table.name} ({listed}) SELECT {chosen} FROM {source} WHERE {where}"  # noqa: S608


def _value(name: str, kind: str, changed: Mapping[str, str]) -> str:
    """What is in no row of the first run stays out of the copies, where a name of a copy's own would fill it."""
    if name in NAMES:
        return f'CASE WHEN t."{name}" IS NULL THEN NULL ELSE {changed[name]} END'
    return changed.get(name) or (f't."{name}" - {AGO}' if kind == TIMES else f't."{name}"')


def _columns(postgres: psycopg.Connection, table: str) -> dict[str, str]:
    """Those that a copy is told, with their types: a serial number comes by itself."""
    found = postgres.execute(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = %s "
        "AND is_identity = 'NO' AND is_generated = 'NEVER' ORDER BY ordinal_position",
        [table],
    )
    return {str(name): str(kind) for name, kind in found}


def _born(run_id: str) -> int:
    """The moment in the first run's time-ordered id, in milliseconds."""
    return int(run_id.replace("-", "")[:12], 16)


def _without_indexes(postgres: psycopg.Connection) -> list[str]:
    """Takes away the indexes that hold no constraint, which many rows fill faster in one go; how to make them again."""
    found = postgres.execute(
        "SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid) FROM pg_index i "
        "WHERE i.indrelid::regclass::text = ANY(%s) "
        "AND NOT EXISTS (SELECT 1 FROM pg_constraint c WHERE c.conindid = i.indexrelid)",
        [[table.name for table in TABLES]],
    ).fetchall()
    for name, _ in found:
        postgres.execute(f"DROP INDEX {name}".encode())
    return [str(made) for _, made in found]
