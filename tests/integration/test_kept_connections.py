"""What a process keeps of PostgreSQL: statements that are planned once, connections from task to task, no other's."""

from __future__ import annotations

import os
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
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


def _backend() -> int:
    with statements.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def test_statement_of_the_hot_path_is_planned_once_for_all_values() -> None:
    for _ in range(3):
        whole.read(UNKNOWN)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement LIKE '%%FROM runs_run r%%'"
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
