"""A cursor for the statements of the hot path: on PostgreSQL the server plans each once a connection. Imports no room.

Django's own cursor writes values into the text, so that no two statements are alike to the server; and psycopg's spends
longer on a statement than the server does, so this one speaks with the layer beneath it (`psycopg.pq`). Errors are
Django's, a transaction that is broken stays so, and what is read and written is the same; `connection.execute_wrapper`
sees none of it. A pooler between us and PostgreSQL has to keep a client's prepared statements (PgBouncer 1.21 does).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Protocol

from django.db import DEFAULT_DB_ALIAS, connections

MAX_PREPARED = 1000
"""Statements that a connection keeps: more than there are, as the rows of an insert vary, and none is planned twice."""
_MARK = re.compile(r"%([s%])")
_SMALLINT, _INTEGER = 21, 23
"""Numbers of PostgreSQL's types: that a number is small makes no other statement of it."""


class Cursor(Protocol):
    """What every driver's cursor has."""

    @property
    def rowcount(self) -> int: ...
    def execute(self, sql: str, params: Any = None) -> Any: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> Any: ...


@contextmanager
def cursor() -> Iterator[Cursor]:
    """A cursor within the caller's transaction. Parameters are `%s`, a percent sign is `%%`."""
    here = connections[DEFAULT_DB_ALIAS]  # asked for once: Django looks for the thread's own each time
    if here.vendor != "postgresql":
        with here.cursor() as plain:
            yield plain
        return
    here.ensure_connection()
    here.validate_no_broken_transaction()
    with here.wrap_database_errors:
        yield _Prepared(here.connection)


class _Prepared:
    """Every statement is prepared at its first use, and its rows are here when `execute` returns."""

    rowcount = -1

    def __init__(self, link: Any) -> None:
        self._link = link
        self._rows: list[tuple[Any, ...]] = []
        self._next = 0

    def execute(self, sql: str, params: Sequence[Any] = ()) -> None:
        """Raises the driver's errors. A transaction is begun by Django's own BEGIN, never by a statement."""
        assert self._link.autocommit, "else this statement, which begins nothing, would commit by itself"
        kept, pgconn = _kept(self._link), self._link.pgconn
        values, types = _written(kept.transformer, params)
        result = pgconn.exec_prepared(kept.name_of(pgconn, sql, types), values)
        kept.check(pgconn, result)
        kept.transformer.set_pgresult(result)
        self._rows = kept.transformer.load_rows(0, result.ntuples, tuple)
        self._next, self.rowcount = 0, result.ntuples if result.nfields else (result.command_tuples or 0)

    def fetchone(self) -> tuple[Any, ...] | None:
        if self._next >= len(self._rows):
            return None
        self._next += 1
        return self._rows[self._next - 1]

    def fetchall(self) -> list[tuple[Any, ...]]:
        rest, self._next = self._rows[self._next :], len(self._rows)
        return rest


class _Kept:
    """What belongs to one connection: names of what it has prepared, and how values are written and read on it."""

    def __init__(self, link: Any) -> None:
        from psycopg.adapt import Transformer  # only where there is a PostgreSQL

        from agentsite.postgres.base import check

        self.transformer: Any = Transformer(link)
        self.check = check
        self._names: dict[tuple[str, tuple[int, ...]], bytes] = {}

    def name_of(self, pgconn: Any, sql: str, types: tuple[int, ...]) -> bytes:
        name = self._names.get((sql, types))
        if name is None:
            if len(self._names) >= MAX_PREPARED:
                self.check(pgconn, pgconn.exec_(b"DEALLOCATE ALL"))
                self._names.clear()
            name = b"agentsite_%d" % len(self._names)
            self.check(pgconn, pgconn.prepare(name, _numbered(sql), types))
            self._names[sql, types] = name
        return name


def _kept(link: Any) -> _Kept:
    found: _Kept | None = link.__dict__.get("agentsite_kept")
    if found is None:
        found = link.agentsite_kept = _Kept(link)
    return found


def _written(transformer: Any, params: Sequence[Any] | None) -> tuple[list[Any], tuple[int, ...]]:
    """The values as texts, and the numbers of their types. Raises DataError for what no text of PostgreSQL holds."""
    if not params:
        return [], ()
    values: list[Any] = transformer.dump_sequence(params, _texts(len(params)))
    return values, tuple(_INTEGER if one == _SMALLINT else one for one in transformer.types)


@lru_cache(maxsize=1024)
def _texts(count: int) -> list[Any]:
    from psycopg.adapt import PyFormat

    return [PyFormat.TEXT] * count


@lru_cache(maxsize=4096)
def _numbered(sql: str) -> bytes:
    """With `$1`, `$2` in place of each `%s`."""
    numbers = iter(range(1, sql.count("%s") + 1))
    return _MARK.sub(lambda mark: f"${next(numbers)}" if mark[1] == "s" else "%", sql).encode()
