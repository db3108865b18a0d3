"""Door: a complete private site as real processes, in the set-ups E, S and P, with its rows read beside it.

Everything is a child of the thread that starts it and dies with it. Imports no zone and no keeper; needs no Django.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import psycopg

from agentsite.private.processes import is_alive, wait_until
from runs.chaos.ground import (
    EMBEDDED,
    PASSWORD,
    POSTGRES_REDIS,
    SQLITE_REDIS,
    TENANT,
    Environ,
    Ground,
    SiteFailed,
    clean_environment,
    manage,
)
from runs.chaos.running import Processes
from tools.adapters import http

START_S = 60.0
QUEUES = ("passes", "writes", "maintenance")


class Site(Processes):
    """One site: `start` it, knock at its doors under `url`, kill what you like."""

    def __init__(
        self, setup: str, ground: Ground, folder: Path, commerce_url: str, *, workers: int = 1, **environment: str
    ) -> None:
        assert setup in (EMBEDDED, SQLITE_REDIS, POSTGRES_REDIS), setup
        super().__init__(folder)
        self.setup, self.workers, self._served = setup, workers, False
        self.database = ground.new_store(setup, folder)
        self.token = ground.tokens["postgres" if setup == POSTGRES_REDIS else "sqlite"]
        self.broker = None if setup == EMBEDDED else ground.new_broker()
        self.environment: Environ = clean_environment(VAR_DIR=str(folder), COMMERCE_URL=commerce_url, **environment)
        if self.broker is not None:
            self.environment = {"DATABASE_URL": self.database, "BROKER_URL": self.broker.url} | self.environment

    # --- processes ---

    @property
    def roles(self) -> list[str]:
        if self.setup == EMBEDDED:
            return ["up"]
        return ["web", *(f"worker{n}" for n in range(1, self.workers + 1))]

    def start(self, *roles: str) -> Self:
        """Starts what is named (all by default) and returns when it serves. Raises SiteFailed."""
        for role in roles or self.roles:
            self.spawn(role)
        if not wait_until(self._serves, START_S):
            raise SiteFailed(f"the site did not start\n{self.tails()}")
        self._served = True
        return self

    def restart(self, *roles: str) -> None:
        """Kills and starts again, on the same store."""
        named = roles or tuple(self._running)
        self.kill(*named)
        self.start(*named)

    def close(self) -> None:
        self.kill()
        if self.broker is not None:
            self.broker.close()

    def consumers(self) -> Counter[str]:
        """Worker processes that said they live and do live, by the queue they consume."""
        rows = self.rows("SELECT queues, pid FROM runs_process WHERE kind = 'worker'")
        return Counter(str(queue) for queue, pid in rows if is_alive(int(pid)))

    def _serves(self) -> bool:
        dead = self.ended()
        if dead and not self._served and all(role in ("web", "up") and self.move(role) for role in dead):
            return False  # nobody was told of its address yet
        if dead:
            raise SiteFailed(f"{dead} ended by itself\n{self.tails()}")
        workers = sum(1 for role in self._running if role.startswith("worker"))
        if ("web" in self._running or "up" in self._running) and not self.answers():
            return False
        return self.consumers().total() >= workers * len(QUEUES)

    def answers(self) -> bool:
        """Whether the web process does."""
        try:
            http.shared().request("GET", f"{self.url}/health/live", headers={}, timeout_s=5)
        except http.HttpError:
            return False
        return True

    # --- its store and its records ---

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What the store holds, read beside the site. Raises psycopg's or sqlite3's OperationalError."""
        if self.setup == POSTGRES_REDIS:
            with psycopg.connect(self.database, autocommit=True) as postgres:
                return list(postgres.execute(query.encode()))
        with self._sqlite() as sqlite:
            return sqlite.execute(query).fetchall()

    @contextmanager
    def _sqlite(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(f"file:{self.database.removeprefix('sqlite:///')}?mode=ro", uri=True, timeout=20)
        try:
            yield connection
        finally:
            connection.close()

    def is_held(self) -> bool:
        """Whether some worker holds a run at this moment."""
        return bool(self.rows("SELECT 1 FROM runs_run WHERE lease_token IS NOT NULL"))

    def tails(self, lines: int = 25) -> str:
        """The ends of all logs, for the message of whoever fails."""
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
