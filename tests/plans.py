"""How a database means to run the statements that something sends: which walk a whole table, and which an index."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from django.db import connection

BIG = frozenset({
    "runs_run", "runs_event", "runs_write", "runs_turn", "runs_observation", "runs_webhook", "runs_shadow",
    "approvals_approval", "approvals_notice",
})  # fmt: skip
"""Tables that grow with every run."""
WALKED = frozenset({
    "run_due", "one_open_write_per_order", "one_open_approval_per_run", "approval_risk", "shadow_to_compare",
})  # fmt: skip
"""Indexes that hold only what is open, so that walking one of them whole is no walk of the table."""


@dataclass(frozen=True, kw_only=True)
class Statement:
    sql: str
    plan: str


def statements_of(act: Callable[[], object]) -> list[Statement]:
    """Every SELECT that `act` sends, with its plan made from the very parameters it was sent with."""
    sent: list[tuple[str, Any]] = []

    def note(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.lstrip().startswith("SELECT") and "FROM" in sql:
            sent.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        act()
    return [Statement(sql=sql, plan=_plan(sql, params)) for sql, params in sent]


def _plan(sql: str, params: Any) -> str:
    explain = "EXPLAIN (COSTS OFF) " if connection.vendor == "postgresql" else "EXPLAIN QUERY PLAN "
    with connection.cursor() as cursor:
        cursor.execute(explain + sql, params)
        return "\n".join(str(row[-1]) for row in cursor.fetchall())


def looks_at_all(statement: Statement, walked: Collection[str], big: Collection[str] = BIG) -> bool:
    """Whether the plan walks a big table, or an index of one that is not among those that may be walked.

    PostgreSQL reads small tables whole, whatever indexes there are: there, `big` are those with many rows in fact.
    """
    return any(_walks(statement.plan, walked, big))


def _walks(plan: str, walked: Collection[str], big: Collection[str]) -> Iterator[bool]:
    lines = plan.splitlines()
    for number, line in enumerate(lines):
        if found := re.search(r"Seq Scan on (\w+)", line):
            yield found.group(1) in big
        elif found := re.search(r"Index (?:Only )?Scan (?:Backward )?using (\w+) on (\w+)", line):
            bound = "Index Cond" in "".join(lines[number + 1 : number + 2])
            yield found.group(2) in big and not bound and found.group(1) not in walked
        elif found := re.search(r"Bitmap Index Scan on (\w+)", line):
            yield "Index Cond" not in "".join(lines[number + 1 : number + 2]) and found.group(1) not in walked
        elif found := re.match(r"\s*SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?", line):
            yield _of_sqlite(found.group(1)) and found.group(2) not in walked


def _of_sqlite(name: str) -> bool:
    """Whether a name in SQLite's plan is a big table, or short for one in our statements."""
    return name in BIG or name in ("w", "e", "r")
