"""A step of a run touches no index: which columns the indexes are over, and what the migration makes of rows."""

from __future__ import annotations

import re

import pytest
from django.db import connection, transaction
from django.db.migrations.executor import MigrationExecutor

from agentsite import dbtime
from runs.admin import lists
from runs.models import Event, Run
from tests import approving

pytestmark = pytest.mark.django_db(transaction=True)
BEFORE, NOW = [("runs", "0014_narrow_rows")], [("runs", "0015_steps_touch_no_index")]
POSTGRES = connection.vendor == "postgresql"
ENDS = {"outcome", "reason"}
EACH_STEP = ENDS | {"status", "version", "last_seq", "chain_head", "lease_token", "lease_until", "updated_at"}


def _migrated(to: list[tuple[str, str]]) -> None:
    MigrationExecutor(connection).migrate(to)


def _rows(sql: str) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def _indexes() -> dict[str, str]:
    """The statement that makes each index of the runs' table, by name."""
    if POSTGRES:
        return _texts("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'runs_run'")
    return _texts("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'runs_run' AND sql <> ''")


def _texts(sql: str) -> dict[str, str]:
    return {str(name): str(text) for name, text in _rows(sql)}


def _updates() -> tuple[int, int]:
    """(updates, those that touched no index) of runs' rows by this connection, of late."""
    ((all_of_them, hot),) = _rows(
        "SELECT pg_stat_get_xact_tuples_updated('runs_run'::regclass), "
        "pg_stat_get_xact_tuples_hot_updated('runs_run'::regclass)"
    )
    return int(str(all_of_them)), int(str(hot))


def test_index_over_a_run_holds_nothing_that_a_step_changes() -> None:
    """But for outcome and reason, which only few steps change, in the two indexes over ended runs."""
    found = _indexes()
    assert {"run_due", "run_ended", "run_ended_as", "run_newest"} <= found.keys()
    for name, text in found.items():
        columns = set(re.findall(r"\w+", text[text.index("(") :])) - (ENDS if name.startswith("run_ended") else set())
        assert not columns & EACH_STEP, text


@pytest.mark.skipif(not POSTGRES, reason="SQLite writes an index only where its own columns change")
def test_step_of_a_run_touches_no_index_and_its_end_does() -> None:
    row = approving.run()
    with transaction.atomic():
        updates, hot = _updates()
        Run.objects.filter(pk=row.pk).update(status="approved", version=7, lease_token="t", updated_at=dbtime.now())
        assert _updates() == (updates + 1, hot + 1)
        Run.objects.filter(pk=row.pk).update(status="completed", outcome="refunded", completed_at=dbtime.now())
        assert _updates() == (updates + 2, hot + 1)


def test_status_at_the_end_is_the_database_s_own_copy() -> None:
    row = approving.run()
    assert Run.objects.get(pk=row.pk).ended_as is None
    Run.objects.filter(pk=row.pk).update(status="escalated", completed_at=dbtime.now())
    assert Run.objects.get(pk=row.pk).ended_as == "escalated"
    assert [run.pk for run in Run.objects.filter(lists.OVER, ended_as="escalated")] == [row.pk]
    assert not Run.objects.filter(lists.LIVES).exists()


def test_migration_keeps_rows_and_goes_back() -> None:
    live, over = approving.run(request_id="live"), approving.run(request_id="over")
    Run.objects.filter(pk=over.pk).update(status="failed", completed_at=dbtime.now())
    try:
        _migrated(BEFORE)
        assert "status" in _indexes()["run_due"] and re.search(r"\(\W*status", _indexes()["run_ended_as"])
        written = _rows("SELECT request_id, status FROM runs_run ORDER BY request_id")
        assert written == [("live", "awaiting_approval"), ("over", "failed")]
    finally:
        _migrated(NOW)
    assert dict(Run.objects.values_list("pk", "ended_as")) == {live.pk: None, over.pk: "failed"}
    assert Event.objects.filter(run=live).count() == Event.objects.filter(run=over).count() > 0
    assert re.search(r"\(\W*ended_as", _indexes()["run_ended_as"])
