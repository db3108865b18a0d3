"""Many rows of one real run, by INSERT … SELECT: what a database looks like after months. Imports no Django.

The copies differ in their ids and request ids alone. Their chain of events was made for the first one.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

RUN = "runs_run"
APPROVAL = "approvals_approval"
WRITE = "runs_write"
GENERATED = ("ended_as",)
RECORD = ("runs_runorder", "runs_event", "runs_turn", "runs_observation")
"""A run's bulky rows; without them a copy is good for whoever reads runs, approvals and writes alone."""


class Cursor(Protocol):
    """What psycopg's cursor and Django's have in common; parameters are `%s`."""

    @property
    def description(self) -> Any: ...
    def execute(self, query: Any, params: Any = ...) -> Any: ...
    def executemany(self, query: Any, params: Any) -> Any: ...


def make(
    cursor: Cursor, run_id: object, count: int, *, new_id: Callable[[uuid.UUID], object], record: bool = True
) -> None:
    """`count` copies of the run with its approval and writes, and with its whole record where asked.

    `run_id` and what `new_id` makes of a UUID are ids as the database holds them.
    """
    cursor.execute(f"CREATE TEMPORARY TABLE copies (run_id {_type(new_id)}, name varchar(40))")
    rows = [(new_id(uuid.uuid4()), secrets.token_hex(10)) for _ in range(count)]
    cursor.executemany("INSERT INTO copies (run_id, name) VALUES (%s, %s)", rows)
    named = "'apr_' || copies.name"
    asked = {"request_id": "'copy-' || copies.name"}
    again = f"CASE WHEN t.approval_id IS NULL THEN NULL ELSE {named} END"
    _copy(cursor, RUN, "id", run_id, {"id": "copies.run_id", **asked, "approval_id": again})
    _copy(cursor, APPROVAL, "run_id", run_id, {"id": named, "run_id": "copies.run_id", **asked})
    keyed = {"key": "t.key || copies.name", "run_id": "copies.run_id", "approval_id": again}
    _copy(cursor, WRITE, "run_id", run_id, keyed)
    for table in RECORD if record else ():
        _copy(cursor, table, "run_id", run_id, {"run_id": "copies.run_id"}, without=("id",))
    cursor.execute("DROP TABLE copies")


def _type(new_id: Callable[[uuid.UUID], object]) -> str:
    return "uuid" if isinstance(new_id(uuid.UUID(int=0)), uuid.UUID) else "char(32)"


def _copy(
    cursor: Cursor, table: str, column: str, run_id: object, changed: dict[str, str], *, without: Iterable[str] = ()
) -> None:
    names = [name for name in _columns(cursor, table) if name not in without]
    values = [changed.get(name, f't."{name}"') for name in names]
    into = ", ".join(f'"{name}"' for name in names)
    cursor.execute(
        f"INSERT INTO {table} ({into}) SELECT {', '.join(values)} FROM {table} t CROSS JOIN copies "
        f"WHERE t.{column} = %s",
        [run_id],
    )


def _columns(cursor: Cursor, table: str) -> Sequence[str]:
    cursor.execute(f"SELECT * FROM {table} WHERE 1 = 0")
    return [column[0] for column in cursor.description if column[0] not in GENERATED]
