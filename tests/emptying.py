"""Empties the database after a test that committed: only tables with rows in them, and by DELETE.

Django truncates all of them, each with its files and those of its indexes, and makes the rows of permissions and
content types anew: more time than most tests take. Those rows stay here; a test that takes one away puts it back.
"""

from __future__ import annotations

from functools import lru_cache

import django.test
from django.db import connection, transaction

STAY = frozenset({"django_migrations", "django_content_type", "auth_permission"})


def install() -> None:
    """From here on a test with a transactional database leaves it this way."""
    django.test.TransactionTestCase._fixture_teardown = _empty  # type: ignore[attr-defined]


def _empty(_case: object) -> None:
    tables = _with_rows()
    if not tables:
        return
    deletes = "; ".join(f"DELETE FROM {connection.ops.quote_name(table)}" for table in tables)
    with connection.constraint_checks_disabled(), transaction.atomic(), connection.cursor() as cursor:
        if connection.vendor == "postgresql":  # triggers, those of foreign keys too, are for rows of users
            cursor.execute(f"SET LOCAL session_replication_role = replica; {deletes}")
        else:
            for statement in deletes.split("; "):
                cursor.execute(statement)


def _with_rows() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(_looks())
        return [str(row[0]) for row in cursor.fetchall()]


@lru_cache(maxsize=1)
def _looks() -> str:
    names = sorted(set(connection.introspection.django_table_names(include_views=False)) - STAY)
    quoted = connection.ops.quote_name
    return " UNION ALL ".join(f"SELECT '{name}' WHERE EXISTS (SELECT 1 FROM {quoted(name)})" for name in names)
