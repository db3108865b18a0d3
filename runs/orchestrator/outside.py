"""Before a call outside: no database connection is held while the world takes its time."""

from __future__ import annotations

from django.db import connection


def without_connection() -> None:
    """Give this thread's connection back; the next query takes one again. Inside a transaction it is kept."""
    if not connection.in_atomic_block:
        connection.close()
