"""One site for all seams of a set-up: four tenants with a provider each, and a proxy in front of everything outside."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psycopg

from agentsite.private.processes import HOST
from tests.crash.seams.providers import HONOURS, PROVIDERS, Provider
from tests.proxy import Proxy
from tests.system.business import Business
from tests.system.people import Client, Json, Staff, request_8472
from tests.system.site import APPROVER, PASSWORD, Ground, Site

MODEL_S = 0.7
EXPIRY, EXPIRY_S = "t_expiry", 3
PERIODS = {
    "LEASE_S": "2", "WRITE_TIMEOUT_S": "3", "CALL_TIMEOUT_S": "3", "RECONCILE_FOR_S": "6", "VERIFY_FOR_S": "60",
    "WRITES_PROCESSES": "4", "SEAM_READ": "sandbox-read", "SEAM_WRITE": "sandbox-write",
}  # fmt: skip
"""Four writes at once, so that one kill finds all four tenants at the same seam."""

PEOPLE = """
import io, json
from pathlib import Path
from django.core.management import call_command
tokens = dict()
call_command("qualify", {route!r}, reason="the offline model, after a slow first turn", stdout=io.StringIO())
for tenant in {tenants!r}:
    call_command("create_tenant", tenant, profile=Path({folder!r}, tenant + ".json"), stdout=io.StringIO())
    call_command("create_approver", {approver!r}, tenant=tenant, stdout=io.StringIO())
    said = io.StringIO()
    call_command("create_token", tenant=tenant, name="shop", json=True, stdout=said)
    tokens[tenant] = json.loads(said.getvalue())["token"]
print(json.dumps(tokens))
"""


class Stage:
    """Everything a seam needs; `close` ends every process."""

    def __init__(self, setup: str, ground: Ground, folder: Path) -> None:
        self.setup = setup
        self.pool = ThreadPoolExecutor(16)
        self.businesses = {p.name: Business(folder / f"{p.name}.sqlite3") for p in PROVIDERS}
        self.couriers = {name: _proxy(b.url) for name, b in self.businesses.items()}
        script = folder / "script.json"
        script.write_text(json.dumps({"turns": [_slow_turn()], "then": "offline"}))
        self.site = Site(setup, ground, folder / "site", HOST, workers=1, AGENT_MODELS=f"scripted:{script}", **PERIODS)
        assert self.site.broker is not None
        self.broker = _proxy(self.site.broker.url)
        self.site.environment["BROKER_URL"] = self.broker.in_front_of(self.site.broker.url)
        self.database: Proxy | None = None
        if setup == "P":
            self.database = _proxy(self.site.database)
            self.site.environment["DATABASE_URL"] = self.database.in_front_of(self.site.database)
        self._people(f"scripted:{script}")
        self.site.start()
        self.clients = {tenant: Client(self.site, token) for tenant, token in self._tokens.items()}
        self.staff = Staff(self.site)

    def _people(self, route: str) -> None:
        """Tenants, approver and tokens by the site's own commands, in one process: each start costs seconds."""
        profiles = {provider.tenant: provider.profile(self._url(provider)) for provider in PROVIDERS}
        profiles[EXPIRY] = HONOURS.profile(self._url(HONOURS), approval_ttl_s=EXPIRY_S)
        for provider in PROVIDERS:
            self.businesses[provider.name].control("/_config", **provider.behaviour)
        for tenant, profile in profiles.items():
            (self.site.folder / f"{tenant}.json").write_text(json.dumps(profile))
        script = PEOPLE.format(folder=str(self.site.folder), tenants=list(profiles), approver=APPROVER, route=route)
        told = self.site.manage("shell", "-v", "0", "-c", script, APPROVER_PASSWORD=PASSWORD)
        self._tokens: dict[str, str] = json.loads(told.splitlines()[-1])

    def _url(self, provider: Provider) -> str:
        return f"http://{HOST}:{self.couriers[provider.name].port}"

    def close(self) -> None:
        self.site.close()
        self.pool.shutdown(wait=False, cancel_futures=True)
        for proxy in (*self.couriers.values(), self.broker, self.database):
            if proxy is not None:
                proxy.close()
        for business in self.businesses.values():
            business.__exit__()

    # --- what tests read and turn beside the site ---

    def execute(self, statement: str) -> None:
        """The test's own hand in the store, beside every proxy."""
        if self.setup == "P":
            with psycopg.connect(self.site.database, autocommit=True) as postgres:
                postgres.execute(statement.encode())
            return
        with self._sqlite() as sqlite:
            sqlite.execute(statement)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """SQLite's one write lock in the test's own hand."""
        with self._sqlite() as sqlite:
            sqlite.execute("BEGIN IMMEDIATE")
            yield
            sqlite.execute("ROLLBACK")

    @contextmanager
    def _sqlite(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self.site.database.removeprefix("sqlite:///"), timeout=20, isolation_level=None)
        try:
            yield connection
        finally:
            connection.close()

    def statuses(self, request_ids: list[str]) -> dict[str, str]:
        names = ", ".join(f"'{one}'" for one in request_ids)
        return dict(self.site.rows(f"SELECT request_id, status FROM runs_run WHERE request_id IN ({names})"))

    def leased(self, request_ids: list[str]) -> int:
        names = ", ".join(f"'{one}'" for one in request_ids)
        held = f"SELECT count(*) FROM runs_run WHERE lease_token IS NOT NULL AND request_id IN ({names})"
        return int(self.site.rows(held)[0][0])

    # --- what people do ---

    def admit(self, tenant: str, order_id: str) -> Future[httpx.Response]:
        body = request_8472(f"req-{order_id}", order_id=order_id)
        return self.pool.submit(self.clients[tenant].post_run, body)

    def pending(self, order_ids: list[str]) -> list[Json]:
        """Approvals that wait for an answer, of these orders alone."""
        listed = self.staff.approvals(status="pending")
        return [a for a in listed if a["action"]["args"]["order_id"] in order_ids]

    def decide(self, approval: Json) -> Future[httpx.Response]:
        return self.pool.submit(self.staff.decide, approval)

    def each(self, call: Callable[[Business], None]) -> None:
        for business in self.businesses.values():
            call(business)


def _proxy(url: str) -> Proxy:
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    return Proxy(parts.hostname, parts.port)


def _slow_turn() -> Json:
    return {"say": {"tool": "search_policy", "args": {"query": "charged twice"}, "evidence": []}, "delay_s": MODEL_S}
