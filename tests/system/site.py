"""A complete private site as real processes, in the set-ups E, S and P. Imports neither pytest nor Django.

Everything is a child of the thread that starts it and dies with it. `Ground` is what the sites of one session share: a
migrated and bootstrapped store to copy, and the one PostgreSQL cluster.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import httpx
import psycopg
from psycopg import sql

from tests.processes import HOST, children, die_with_parent, free_port, is_alive, wait_until
from tests.services import Postgres, Redis

ROOT = Path(__file__).resolve().parents[2]
EMBEDDED, SQLITE_REDIS, POSTGRES_REDIS = "E", "S", "P"
TENANT, APPROVER = "t_acme_in", "lead_17"
PASSWORD = "correct horse battery staple"
START_S, STUCK_S = 60.0, 90.0
QUEUES = ("passes", "writes", "maintenance")
COMMON = {
    "SECRET_KEY": "a secret of private sites alone, long enough for Django's own liking",
    "AUDIT_KEY": "k1:an audit key of private sites alone", "INSECURE_HTTP": "1", "LOG_FORMAT": "json",
    "COMMERCE_READ_TOKEN": "sandbox-read", "COMMERCE_WRITE_TOKEN": "sandbox-write", "COMMERCE_HONOURS_KEYS": "1",
    "COMMERCE_SETTLE_S": "1", "THROTTLE_RUNS": "1000000/min", "THROTTLE_READS": "1000000/min",
    "LEASE_S": "3", "SWEEP_S": "0.5", "RETRY_S": "0.5", "CALL_TIMEOUT_S": "5", "WRITE_TIMEOUT_S": "6",
    "MODEL_TIMEOUT_S": "10", "PASSES_THREADS": "8", "WRITES_PROCESSES": "2", "PYTHONUNBUFFERED": "1",
}  # fmt: skip
"""What every private site is told: periods shrunk to seconds, the sandbox declared to honour keys."""

Environ = dict[str, str]


def clean_environment(**more: str) -> Environ:
    """Nothing of the developer's settings, nothing of the test run's own."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, **COMMON, **more}


def manage(environment: Environ, *arguments: str) -> str:
    """What a management command printed. Raises AssertionError with its words where it failed."""
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True,
        timeout=STUCK_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Ground:
    """Prepared stores: migrations, `bootstrap`, one approver and one token of the default tenant, made once each."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="agentsite-ground-"))
        self.tokens: dict[str, str] = {}
        self._made = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if "_cluster" in vars(self):
            self._cluster.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def new_store(self, setup: str, folder: Path) -> str:
        """A fresh prepared store's DATABASE_URL; for E its file lies where the embedded default looks."""
        if setup == POSTGRES_REDIS:
            return self._copy_database()
        file = folder / "agentsite.sqlite3"
        shutil.copyfile(self._file, file)
        return f"sqlite:///{file}"

    @cached_property
    def _file(self) -> Path:
        file = self.folder / "prepared.sqlite3"
        self._prepare(f"sqlite:///{file}", "sqlite")
        with sqlite3.connect(file) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        return file

    @cached_property
    def _cluster(self) -> Postgres:
        return Postgres(durable=True).start()

    @cached_property
    def _template(self) -> str:
        self._prepare(self._cluster.create_database("prepared"), "postgres")
        return "prepared"

    def _copy_database(self) -> str:
        self._made += 1
        name, template = f"site{self._made}", self._template
        with psycopg.connect(self._cluster.url, autocommit=True) as connection:
            copy = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
            connection.execute(copy.format(sql.Identifier(name), sql.Identifier(template)))
        return self._cluster.url.rpartition("/")[0] + "/" + name

    def _prepare(self, url: str, kind: str) -> None:
        environment = clean_environment(DATABASE_URL=url, VAR_DIR=str(self.folder), APPROVER_PASSWORD=PASSWORD)
        manage(environment, "migrate", "--verbosity=0")
        manage(environment, "bootstrap")
        manage(environment, "create_approver", APPROVER, f"--tenant={TENANT}")
        self.tokens[kind] = json.loads(
            manage(environment, "create_token", f"--tenant={TENANT}", "--name=shop", "--json")
        )["token"]


class Site:
    """One site: `start` it, knock at its doors under `url`, kill what you like."""

    def __init__(
        self, setup: str, ground: Ground, folder: Path, commerce_url: str, *, workers: int = 1, **environment: str
    ) -> None:
        assert setup in (EMBEDDED, SQLITE_REDIS, POSTGRES_REDIS), setup
        self.setup, self.folder, self.workers, self.port = setup, folder, workers, free_port()
        folder.mkdir(parents=True)
        self.database = ground.new_store(setup, folder)
        self.token = ground.tokens["postgres" if setup == POSTGRES_REDIS else "sqlite"]
        self.broker = None if setup == EMBEDDED else Redis().start()
        self.environment = clean_environment(VAR_DIR=str(folder), COMMERCE_URL=commerce_url, **environment)
        if self.broker is not None:
            self.environment |= {"DATABASE_URL": self.database, "BROKER_URL": self.broker.url}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    # --- processes ---

    @property
    def roles(self) -> list[str]:
        if self.setup == EMBEDDED:
            return ["up"]
        return ["web", *(f"worker{n}" for n in range(1, self.workers + 1))]

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self, *roles: str) -> Self:
        """Starts what is named (all by default) and returns when it serves."""
        for role in roles or self.roles:
            self._start(role)
        assert wait_until(self._serves, START_S), f"the site did not start\n{self.tails()}"
        return self

    def kill(self, *roles: str) -> None:
        """SIGKILL to whole process groups, all of them by default: no farewell of anybody."""
        groups = {role: self._running.pop(role) for role in roles or list(self._running)}
        for process in groups.values():
            os.killpg(process.pid, signal.SIGKILL)
        for process in groups.values():
            process.wait(10)

    def stop(self, *roles: str) -> None:
        """An orderly end, as a supervisor asks for it; what will not end is killed and fails the test."""
        for role in roles or list(self._running):
            self._running[role].send_signal(signal.SIGTERM)
        for role in roles or list(self._running):
            self._running.pop(role).wait(START_S)

    def restart(self, *roles: str) -> None:
        """Kills and starts again, on the same store."""
        named = roles or tuple(self._running)
        self.kill(*named)
        self.start(*named)

    def kill_child(self, queue: str, role: str = "worker1") -> int:
        """SIGKILL to a worker's child process of one queue with its pool; the worker command starts another."""
        (child,) = [pid for pid in children(self._running[role].pid) if f"-Q {queue} " in _command_of(pid)]
        os.kill(child, signal.SIGSTOP)  # so that it replaces nobody meanwhile
        family = [child, *children(child)]
        for pid in family:
            os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: not any(map(is_alive, family)), 10)
        return child

    def close(self) -> None:
        self.kill()
        if self.broker is not None:
            self.broker.close()

    def _start(self, role: str) -> None:
        kind = role.rstrip("0123456789")
        more = ["--port", str(self.port)] if kind in ("up", "web") else ["--name", role]
        with (self.folder / f"{role}.log").open("ab") as log:
            self._running[role] = subprocess.Popen(
                [sys.executable, "manage.py", kind, *more], cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=die_with_parent(),
            )  # fmt: skip

    def _serves(self) -> bool:
        dead = [role for role, process in self._running.items() if process.poll() is not None]
        assert not dead, f"{dead} ended by itself\n{self.tails()}"
        workers = sum(1 for role in self._running if role.startswith("worker"))
        if "web" in self._running or "up" in self._running:
            try:
                httpx.get(f"{self.url}/health/live", timeout=5, trust_env=False)
            except httpx.TransportError:
                return False
        return self._consumers() >= workers * len(QUEUES)

    def _consumers(self) -> int:
        """Worker processes that said they live and do live."""
        rows = self.rows("SELECT pid FROM runs_process WHERE kind = 'worker'")
        return sum(1 for (pid,) in rows if is_alive(int(pid)))

    # --- its store and its records ---

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What the store holds, read beside the site."""
        if self.setup == POSTGRES_REDIS:
            with psycopg.connect(self.database, autocommit=True) as postgres:
                return list(postgres.execute(query.encode()))
        sqlite = sqlite3.connect(f"file:{self.database.removeprefix('sqlite:///')}?mode=ro", uri=True, timeout=20)
        try:
            return sqlite.execute(query).fetchall()
        finally:
            sqlite.close()

    def is_held(self) -> bool:
        """Whether some worker holds a run at this moment."""
        return bool(self.rows("SELECT 1 FROM runs_run WHERE lease_token IS NOT NULL"))

    def tails(self, lines: int = 25) -> str:
        """The ends of all logs, for the message of a failed test."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"== {log.name}\n" + "\n".join(log.read_text().splitlines()[-lines:]) for log in logs)

    # --- people and tenants ---

    def manage(self, *arguments: str, **environment: str) -> str:
        return manage({**self.environment, "DATABASE_URL": self.database, **environment}, *arguments)

    def create_tenant(self, tenant: str, profile: dict[str, Any]) -> None:
        """A tenant with this profile; on one that exists, a new revision of it."""
        file = self.folder / f"{tenant}.json"
        file.write_text(json.dumps(profile))
        self.manage("create_tenant", tenant, f"--profile={file}")

    def create_token(self, tenant: str, name: str = "shop") -> str:
        made = json.loads(self.manage("create_token", f"--tenant={tenant}", f"--name={name}", "--json"))
        return str(made["token"])

    def create_approver(self, username: str, tenant: str = TENANT) -> None:
        """Somebody who may decide, with PASSWORD."""
        self.manage("create_approver", username, f"--tenant={tenant}", APPROVER_PASSWORD=PASSWORD)


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
