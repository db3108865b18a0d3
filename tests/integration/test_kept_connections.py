"""What a process keeps of PostgreSQL: statements that are planned once, connections from task to task, no other's."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import (
    DataError,
    IntegrityError,
    InternalError,
    OperationalError,
    ProgrammingError,
    connection,
    transaction,
)
from django.db.backends.postgresql import base as theirs

from agentsite import statements
from agentsite.celery import app
from agentsite.fixup import _Worker
from agentsite.postgres import base
from runs.store import whole

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="a file has no server"),
]
UNKNOWN = "00000000-0000-0000-0000-000000000000"


@pytest.fixture(autouse=True)
def _new_pool() -> None:
    """No connection of an earlier test is left, nor what was prepared on it."""
    wrapper: Any = connection
    wrapper.close()
    wrapper.close_pool()


def _backend() -> int:
    with statements.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def test_statement_of_the_hot_path_is_planned_once_for_all_values() -> None:
    for _ in range(3):
        whole.read(UNKNOWN)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT generic_plans, custom_plans FROM pg_prepared_statements "
            "WHERE statement LIKE '%%FROM runs_run r WHERE r.id%%'"
        )
        assert cursor.fetchall() == [(3, 0)]


def test_statement_of_anybody_else_is_not_prepared() -> None:
    for _ in range(12):
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM runs_run WHERE status = %s", ["nobody's"])
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%%nobody%%'")
        assert cursor.fetchone() == (0,)


def test_forked_worker_keeps_its_connection_from_task_to_task() -> None:
    worker: Any = _Worker(app)
    worker.worker = SimpleNamespace(pool_cls="celery.concurrency.prefork")
    first = _backend()
    worker._close_database()
    assert connection.connection is None, "between two tasks nobody holds one"
    assert _backend() == first


def test_application_uses_the_fixup_that_keeps_them() -> None:
    assert [type(one.worker_fixup) for one in vars(app)["_fixups"]] == [_Worker]


def test_forked_process_speaks_on_no_connection_of_its_parent() -> None:
    first = _backend()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        found = "inherited" if vars(theirs.DatabaseWrapper)["_connection_pools"] else "own"
        os.write(writing, found.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100) == b"own"
    assert _backend() == first, "the parent's goes on"


def test_server_that_answered_is_not_knocked_at_for_each_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    knocked = list[Any]()

    def knock(place: Any, timeout: float) -> socket.socket:
        knocked.append(place)
        return socket.socket()

    monkeypatch.setattr(base, "create_connection", knock)
    monkeypatch.setattr(base.DatabaseWrapper, "_answered", (-base.ANSWERED_FOR_S, ()))
    wrapper: Any = connection
    for _ in range(50):
        wrapper._ask_whether_there((0, 0, 0))
    assert len(knocked) == 1
    wrapper._ask_whether_there((0, 0, 1))
    assert len(knocked) == 2, "a connection broke: it may be away"


# --- what the hot cursor says of what went wrong ------------------------------------------------------------------


def _asked(sql: str, *given: Any) -> Any:
    with statements.cursor() as cursor:
        cursor.execute(sql, given)
        return cursor.fetchone()[0]


@pytest.mark.parametrize("value", [0, 7, 40_000, 2**40, -(2**62)])
def test_number_of_any_size_is_read_as_it_was_written(value: int) -> None:
    assert _asked("SELECT CASE WHEN 1 > 0 THEN %s ELSE 0 END + 0", value) == value


@pytest.mark.parametrize("value", ["plain", "हिन्दी 🙏", "it's \\ 100 %", "", None])
def test_text_is_read_as_it_was_written(value: str | None) -> None:
    assert _asked("SELECT CAST(%s AS text)", value) == value
    assert _asked("SELECT CAST(%s AS text) || ' 5 %%'", value) == (None if value is None else f"{value} 5 %")


def test_text_that_no_database_holds_is_refused_and_not_cut() -> None:
    with pytest.raises(DataError, match="NUL"):
        _asked("SELECT CAST(%s AS text)", "a\x00b")


def test_broken_constraint_is_djangos_error_and_undoes_the_transaction() -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        _asked("INSERT INTO tenants_site (id, paused, paused_reason, paused_by) VALUES (1, false, '', '') RETURNING 1")
        _asked("INSERT INTO tenants_site (id, paused, paused_reason, paused_by) VALUES (1, false, '', '') RETURNING 1")
    assert _asked("SELECT count(*) FROM tenants_site WHERE id = 1") == 0


def test_statement_after_an_error_within_a_transaction_is_refused() -> None:
    with transaction.atomic():
        with pytest.raises(ProgrammingError):
            _asked("SELECT nothing_there")
        with pytest.raises(InternalError):
            _asked("SELECT 1")


def test_connection_that_is_cut_is_an_operational_error_and_the_next_one_works() -> None:
    pid = _backend()
    with ThreadPoolExecutor(1) as another:
        another.submit(_terminate, pid).result()
    with pytest.raises(OperationalError):
        _backend()
    connection.close()
    assert _backend() != pid


def _terminate(pid: int) -> None:
    """From a thread, which has a connection of its own."""
    try:
        assert _asked("SELECT pg_terminate_backend(%s, 5000)", pid)
    finally:
        connection.close()


def test_rows_that_were_changed_are_counted_as_those_that_were_read() -> None:
    with statements.cursor() as cursor:
        cursor.execute("UPDATE tenants_site SET paused = FALSE WHERE id = %s", [77])
        assert (cursor.rowcount, cursor.fetchone(), cursor.fetchall()) == (0, None, [])
        cursor.execute("SELECT n FROM generate_series(1, 3) AS n")
        assert (cursor.rowcount, cursor.fetchone(), cursor.fetchall()) == (3, (1,), [(2,), (3,)])
