"""The engines that are measured side by side: this product's workers, and the floor's, each with broker and driver.

Both stand on one PostgreSQL cluster, with a database and a broker of their own. Whoever is not being measured is
stopped like a clock. Imports no zone and no keeper; the instant world and the floor are beside the tests.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path

import redis

from agentsite import env
from agentsite.private.processes import spawn, wait_until
from agentsite.private.servers import Redis
from runs.bench import resources
from runs.bench.driver import Driver
from runs.bench.stage import AS_SHIPPED
from runs.chaos.ground import EMBEDDED, POSTGRES_REDIS, Environ, Ground, SiteFailed, clean_environment
from runs.chaos.site import Site

START_S = 60.0
INSTANT = {"COMMERCE_URL": "http://instant.invalid", "AGENT_MODELS": "offline:instant"}
SHIPPED = {**AS_SHIPPED, "PASSES_THREADS": "16", "WRITE_TIMEOUT_S": "20"}
BESIDE = env.ROOT / "tests" / "bench"


class Missing(SiteFailed):
    """This installation came without the folder of tests, where the floor is."""


def check() -> None:
    if not (BESIDE / "floor.py").is_file():
        raise Missing("the floor and the instant world are in tests/bench, which this installation came without")


def module(name: str, refunds: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", f"tests.bench.{name}", str(refunds), *arguments]


class InstantSite(Site):
    """A site whose processes have the instant world in place of a business system and a model."""

    def __init__(self, setup: str, ground: Ground, folder: Path, passes: int) -> None:
        more = {**SHIPPED, **INSTANT, "AGENT_PASSES_PER_TASK": str(passes)}
        super().__init__(setup, ground, folder, more.pop("COMMERCE_URL"), workers=1, **more)
        self.refunds = folder / "refunds"
        self.refunds.mkdir()

    def spawn(self, role: str) -> None:
        kind = role.rstrip("0123456789")
        command = module("entry", self.refunds, kind, "--name", role)
        self._running[role] = spawn(command, self.environment, cwd=env.ROOT, log=self.folder / f"{role}.log")

    def driver(self, what: str, *arguments: str) -> Driver:
        """`drive` beside workers, `loop` without any, `up` within the embedded process."""
        environment = {**self.environment, "DATABASE_URL": self.database}
        if what == "up" or self.setup == EMBEDDED:
            environment.pop("BROKER_URL", None)
        return Driver(module("entry", self.refunds, what, *arguments), environment, self.folder / f"{what}.log")


@dataclass(kw_only=True)
class Engine:
    """One engine, its workers running. `workers`: the process whose descendants do the work."""

    name: str
    driver: Driver
    workers: int
    broker: Redis
    _stopped: bool = field(default=False)

    def stop(self) -> None:
        """Takes no CPU until `go`."""
        self._signal(signal.SIGSTOP, stopped=True)

    def go(self) -> None:
        self._signal(signal.SIGCONT, stopped=False)

    def _signal(self, number: signal.Signals, *, stopped: bool) -> None:
        if self._stopped is not stopped:
            os.killpg(self.workers, number)
            self._stopped = stopped

    def memory_mb(self) -> float:
        """Of its workers."""
        return resources.pss_mb(resources.family(self.workers))

    def messages(self) -> int:
        """That were ever put on its broker's queues."""
        with redis.Redis.from_url(self.broker.url) as client:
            stats = client.info("commandstats")
        return int(stats.get("cmdstat_lpush", {}).get("calls", 0))


def ours(ground: Ground, folder: Path, passes: int) -> tuple[Engine, InstantSite]:
    """This product on PostgreSQL and Redis, its worker command with three children as shipped. Close the site."""
    site = InstantSite(POSTGRES_REDIS, ground, folder, passes)
    assert site.broker is not None
    driver = site.driver("drive")
    site.start("worker1")
    name = f"ours, {passes} pass{'es' if passes > 1 else ''} a task"
    return Engine(name=name, driver=driver, workers=site.pid("worker1"), broker=site.broker), site


class Floor:
    """The floor's database, broker, workers and driver."""

    def __init__(self, ground: Ground, folder: Path) -> None:
        self.refunds = folder / "refunds"
        self.refunds.mkdir(parents=True)
        self.broker = Redis().start()
        database = ground.cluster.create_database("floor")
        environment: Environ = clean_environment(FLOOR_DATABASE=database, FLOOR_BROKER=self.broker.url)
        driver = Driver(module("floor", self.refunds, "drive"), environment, folder / "drive.log")
        self._log = folder / "worker.log"
        self._workers = spawn(module("floor", self.refunds, "worker"), environment, cwd=env.ROOT, log=self._log)
        if not wait_until(self._is_ready, START_S):
            raise SiteFailed(f"the floor did not start: {self._log.read_text()[-800:]}")
        self.engine = Engine(name="floor", driver=driver, workers=self._workers.pid, broker=self.broker)

    def _is_ready(self) -> bool:
        if self._workers.poll() is not None:
            raise SiteFailed(f"the floor ended by itself: {self._log.read_text()[-800:]}")
        return "ready." in self._log.read_text()

    def close(self) -> None:
        os.killpg(self._workers.pid, signal.SIGKILL)
        self._workers.wait(START_S)
        self.engine.driver.close()
        self.broker.close()
