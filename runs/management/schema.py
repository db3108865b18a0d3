"""Door: whether the database has every migration of this code. Reads the migration table alone."""

from __future__ import annotations

from django.db import connection
from django.db.migrations.executor import MigrationExecutor


def missing_migrations() -> list[str]:
    """Names (`app.migration`) this code has and the database does not. Raises DatabaseError where it is away."""
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [f"{migration.app_label}.{migration.name}" for migration, _ in plan]
