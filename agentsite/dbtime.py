"""Database time in SQL: leases, due times and expiries compare on one clock, whatever the workers' clocks say.

PostgreSQL's `now()` stands still inside a transaction, so it is `clock_timestamp()`; SQLite 3.40 has no
sub-second `unixepoch`, so it is `strftime` in the text form Django stores.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from django.db import connection


@lru_cache(maxsize=1)
def on_postgres() -> bool:
    """Whether this process's database is PostgreSQL: asked dozens of times a run, and never another answer."""
    return str(connection.vendor) == "postgresql"


def now_sql() -> str:
    """An SQL expression for this instant."""
    if on_postgres():
        return "clock_timestamp()"
    return "strftime('%%Y-%%m-%%d %%H:%%M:%%f','now')"


def plus_sql() -> str:
    """An SQL expression for this instant plus one parameter of seconds (see `plus_param`)."""
    if on_postgres():
        return "(clock_timestamp() + make_interval(secs => %s))"
    return "strftime('%%Y-%%m-%%d %%H:%%M:%%f','now',%s)"


def plus_param(seconds: float) -> Any:
    """The parameter that goes with `plus_sql`."""
    return float(seconds) if on_postgres() else f"{seconds:+.3f} seconds"


def spent_ms_sql() -> str:
    """An SQL expression for the whole milliseconds since this statement came: zero on SQLite, whose clock stands still
    within one."""
    if on_postgres():
        return "CAST(EXTRACT(EPOCH FROM clock_timestamp() - statement_timestamp()) * 1000 AS integer)"
    return "0"


def moment(value: Any) -> datetime | None:
    """An aware UTC datetime from a raw column (text on SQLite)."""
    if value is None or isinstance(value, datetime):
        return value if value is None or value.tzinfo else value.replace(tzinfo=UTC)
    parsed = datetime.fromisoformat(str(value))
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def param(value: datetime | None) -> Any:
    """A datetime as a raw parameter that compares with stored columns."""
    if value is None or on_postgres():
        return value
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")


def now() -> datetime:
    """This instant by the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT " + now_sql().replace("%%", "%"))
        row = cursor.fetchone()
    found = moment(row[0])
    assert found is not None
    return found
