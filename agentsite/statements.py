"""A cursor for the statements of the hot path: on PostgreSQL the server plans each once a connection. Imports no room.

Django's own cursor writes values into the text, so that no two statements are alike to the server. Errors are Django's,
a transaction that is broken stays so, and what is read and written is the same; `connection.execute_wrapper` sees none
of it. A pooler between us and PostgreSQL has to keep a client's prepared statements (PgBouncer 1.21 does).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from django.db import connection

MAX_PREPARED = 1000
"""Statements that a connection keeps: more than there are, as the rows of an insert vary, and none is planned twice."""


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
    if connection.vendor != "postgresql":
        with connection.cursor() as plain:
            yield plain
        return
    from psycopg import Cursor as Binding  # only where there is a PostgreSQL

    connection.ensure_connection()
    connection.validate_no_broken_transaction()
    link: Any = connection.connection
    link.prepared_max = MAX_PREPARED
    with connection.wrap_database_errors, Binding(link) as binding:
        yield _Prepared(binding)


class _Prepared:
    """Every statement is prepared at its first use."""

    def __init__(self, binding: Any) -> None:
        self._binding = binding
        self.fetchone, self.fetchall = binding.fetchone, binding.fetchall

    @property
    def rowcount(self) -> int:
        return int(self._binding.rowcount)

    def execute(self, sql: str, params: Any = None) -> Any:
        return self._binding.execute(sql, params, prepare=True)
