"""Door: prepared stores that private sites begin with, and their environment. Imports no room but the floor."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Self

import psycopg
from psycopg import sql

from agentsite import env
from agentsite.private.servers import Postgres, Redis

EMBEDDED, SQLITE_REDIS, POSTGRES_REDIS = "E", "S", "P"
TENANT, APPROVER = "t_acme_in", "lead_17"
PASSWORD = "correct horse battery staple"
STUCK_S = 90.0
KEPT = ("PATH", "HOME", "LANG", "TMPDIR")
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


class SiteFailed(AssertionError):
    """A private site could not be prepared or started; the message ends with what its processes said last."""


def clean_environment(**more: str) -> Environ:
    """Nothing of the settings of whoever calls."""
    kept = {name: value for name, value in env.child_environment().items() if name in KEPT}
    return {**kept, **COMMON, **more}


def manage(environment: Environ, *arguments: str) -> str:
    """What a management command printed. Raises SiteFailed with its words where it failed."""
    done = subprocess.run(  # noqa: S603 - a command of our own
        [sys.executable, "manage.py", *arguments], cwd=env.ROOT, env=environment, capture_output=True, text=True,
        timeout=STUCK_S, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise SiteFailed(f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
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
        if "cluster" in vars(self):
            self.cluster.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def new_store(self, setup: str, folder: Path) -> str:
        """A fresh prepared store's DATABASE_URL; for E its file lies where the embedded default looks."""
        if setup == POSTGRES_REDIS:
            return self._copy_database()
        file = folder / "agentsite.sqlite3"
        shutil.copyfile(self._file, file)
        return f"sqlite:///{file}"

    def new_broker(self) -> Redis:
        """A broker that runs, a site's own."""
        return Redis().start()

    @cached_property
    def cluster(self) -> Postgres:
        """The one PostgreSQL cluster, started at first use by the thread that asks."""
        return Postgres(durable=True).start()

    @cached_property
    def _file(self) -> Path:
        file = self.folder / "prepared.sqlite3"
        self._prepare(f"sqlite:///{file}", "sqlite")
        with sqlite3.connect(file) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        return file

    @cached_property
    def _template(self) -> str:
        self._prepare(self.cluster.create_database("prepared"), "postgres")
        return "prepared"

    def _copy_database(self) -> str:
        self._made += 1
        name, template = f"site{self._made}", self._template
        with psycopg.connect(self.cluster.url, autocommit=True) as connection:
            copy = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
            connection.execute(copy.format(sql.Identifier(name), sql.Identifier(template)))
        return self.cluster.url.rpartition("/")[0] + "/" + name

    def _prepare(self, url: str, kind: str) -> None:
        environment = clean_environment(DATABASE_URL=url, VAR_DIR=str(self.folder), APPROVER_PASSWORD=PASSWORD)
        manage(environment, "migrate", "--verbosity=0")
        manage(environment, "bootstrap")
        manage(environment, "create_approver", APPROVER, f"--tenant={TENANT}")
        made = manage(environment, "create_token", f"--tenant={TENANT}", "--name=shop", "--json")
        self.tokens[kind] = json.loads(made)["token"]
