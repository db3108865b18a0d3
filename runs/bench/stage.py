"""What a scenario stands on: private servers, a business system, a model provider, a site with runs admitted.

All of it ends with the block that made it. Imports no zone and no keeper.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agentsite import env
from agentsite.private.binaries import postgres_bindir, redis_binary
from agentsite.private.processes import HOST, free_port, spawn, wait_until
from runs.chaos import calls
from runs.chaos.business import KINDS, BusinessSystem
from runs.chaos.ground import POSTGRES_REDIS, TENANT, Ground, SiteFailed, clean_environment
from runs.chaos.site import Site
from runs.chaos.workload import CAPTURED_AT, CURRENCY, PROFILE, Json

# Calls that are held until all are under way take as long as it takes to begin them all: no run may be ended for that.
LIMITS = {"deadline_ms": 3_600_000}
ROUTE = "openai:bench"
START_S = 30.0
CUSTOMERS = 8
AS_SHIPPED = {
    "LEASE_S": "15", "SWEEP_S": "1", "RETRY_S": "2", "CALL_TIMEOUT_S": "8", "MODEL_TIMEOUT_S": "60",
    "WRITES_PROCESSES": "2",
}  # fmt: skip
"""Periods as a site has them where nobody sets any; private sites shrink them."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A site of web and workers, its web process running; the model provider's `/counts` tell what it saw."""

    site: Site
    provider_url: str

    def counts(self) -> Json:
        found: Json = calls.document(calls.call("GET", f"{self.provider_url}/counts"))
        return found

    def number(self, query: str) -> int:
        """The one number that a query of the site's rows yields."""
        return int(self.site.rows(query)[0][0])

    def start_worker(self, number: int) -> int:
        """A worker command's process id; it begins by itself with what waits."""
        self.site.spawn(f"worker{number}")
        return self.site.pid(f"worker{number}")

    def logs(self) -> str:
        """What the workers said."""
        return "".join(log.read_text() for log in self.site.folder.glob("worker*.log"))

    def admit(self, orders: list[str]) -> None:
        """One run an order, by REST. Raises calls.NoAnswer, calls.Refused."""
        headers = {"Authorization": f"Bearer {self.site.token}"}

        def one(order: str) -> None:
            body = _request(order)
            calls.document(calls.call("POST", f"{self.site.url}/api/v1/runs", headers=headers, body=body), 202)

        with ThreadPoolExecutor(CUSTOMERS) as customers:
            list(customers.map(one, orders))


def names(count: int) -> list[str]:
    """Order ids as the provider tells them in a prompt."""
    return [f"bench-{number:06}" for number in range(count)]


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How the model provider answers: each call takes `seconds`, streamed in `pieces`; with `hold` their time begins
    when so many are under way at once."""

    seconds: float
    pieces: int = 1
    hold: int = 0


@contextmanager
def prepared(orders: list[str], pace: Pace, **environment: str) -> Iterator[Stage]:
    """Everything started but the workers. Raises SiteFailed, ServiceError or MissingServer."""
    redis_binary(), postgres_bindir()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentsite-bench-")))
        ground = stack.enter_context(Ground())
        business = BusinessSystem(folder, KINDS["honours"])
        stack.callback(business.close)
        business.control("/_seed", **_seed(orders))
        provider_url = stack.enter_context(provider(folder, pace))
        site = Site(
            POSTGRES_REDIS, ground, folder / "site", business.url, workers=1, AGENT_MODELS=ROUTE,
            OPENAI_BASE_URL=f"{provider_url}/v1", OPENAI_API_KEY="a key of the bench alone",
            **{**AS_SHIPPED, **environment},
        )  # fmt: skip
        stack.callback(site.close)
        site.create_tenant(TENANT, {**PROFILE, "limits": LIMITS})
        site.start("web")
        yield Stage(site=site, provider_url=provider_url)


@contextmanager
def provider(folder: Path, pace: Pace) -> Iterator[str]:
    """A model provider's origin. Raises SiteFailed."""
    port, log = free_port(), folder / "provider.log"
    command = [sys.executable, "-m", "runs.bench.provider", "--port", str(port)]
    given = [f"--{name}={value}" for name, value in asdict(pace).items()]
    process = spawn([*command, *given], clean_environment(), cwd=env.ROOT, log=log)
    try:
        if not wait_until(lambda: "listening" in log.read_text(), START_S):
            raise SiteFailed(f"the model provider did not start: {log.read_text()[-500:]}")
        yield f"http://{HOST}:{port}"
    finally:
        process.kill()
        process.wait(10)


def _request(order: str) -> Json:
    return {
        "request_id": f"req-{order}", "order_ids": [order], "goal": f"What became of my order {order}?",
        "actor": {"customer_id": f"cust_{order}"},
    }  # fmt: skip


def _seed(orders: list[str]) -> Json:
    price: Any = {"amount": "800.00", "currency": CURRENCY}
    known = [
        {"order_id": o, "customer_id": f"cust_{o}", "total": price, "amount_due": price, "status": "delivered"}
        for o in orders
    ]
    paid = [
        {"payment_id": f"pay_{o}", "order_id": o, "state": "captured", "amount": price, "captured_at": CAPTURED_AT[0]}
        for o in orders
    ]
    return {"orders": known, "payments": paid}
