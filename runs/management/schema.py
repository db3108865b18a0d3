"""Door: whether the database is there and has every migration of this code. Reads the migration table alone."""

from __future__ import annotations

from socket import create_connection

from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.executor import MigrationExecutor

CONNECT_S = 2.0


def missing_migrations() -> list[str]:
    """Names (`app.migration`) this code has and the database does not. Raises DatabaseError where it is away."""
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [f"{migration.app_label}.{migration.name}" for migration, _ in plan]


def fault() -> str | None:
    """One line on what is wrong with the database, or None where it answers and lacks nothing."""
    away = unreachable()
    if away is not None:
        return away
    try:
        missing = missing_migrations()
    except (DatabaseError, InterfaceError) as error:
        return f"the database cannot be used ({_why(error)}): check DATABASE_URL and VAR_DIR"
    if missing:
        return f"{len(missing)} migrations are missing ({missing[0]} first): run `manage.py migrate`"
    return None


def _why(error: Exception) -> str:
    # A server's own words may repeat what stands in DATABASE_URL.
    return str(error) if connection.vendor == "sqlite" else type(error).__name__


def unreachable() -> str | None:
    """Whether nobody listens where the database should be: asked first, since a pool tries for many seconds."""
    host, port = connection.settings_dict.get("HOST") or "", connection.settings_dict.get("PORT") or 5432
    if connection.vendor == "sqlite" or not host or host.startswith("/"):
        return None
    try:
        create_connection((host, int(port)), timeout=CONNECT_S).close()
    except OSError as error:
        return f"the database at {host}:{port} cannot be reached ({type(error).__name__}): check DATABASE_URL"
    return None
