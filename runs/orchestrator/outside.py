"""Before a call outside: no database connection is held while the world takes its time."""

from __future__ import annotations

from django.db import connection


def without_connection() -> None:
    """Give this thread's connection back; the next query takes one again. Inside a transaction it is kept.

    And so is an SQLite file: nobody queues for it, and whoever closes it last writes its log back each time.
    """
    if connection.vendor != "sqlite" and not connection.in_atomic_block:
        connection.close()
