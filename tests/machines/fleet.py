"""One site on several machines: servers and web on the first, workers on further ones, each with a folder of its own.

Imports neither pytest nor Django.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx

from agentsite import env
from agentsite.private.processes import HOST, children, spawn, wait_until
from agentsite.private.servers import Postgres, Redis
from runs.chaos import workload
from runs.chaos.running import Processes
from runs.chaos.verdict import ENDED
from tests.machines.network import Machine, Network
from tests.system.business import Business
from tests.system.site import POSTGRES_REDIS, QUEUES, START_S, TENANT, Ground, Site

DATABASE, BROKER, BUSINESS = SERVICES = ("database", "broker", "business")
URLS = dict(zip(SERVICES, ("DATABASE_URL", "BROKER_URL", "COMMERCE_URL"), strict=True))
WORKERS, HEADS, ANCHORS = "worker1", "heads.jsonl", "anchors.jsonl"
ALIVE = "SELECT host, queues, pid, hung, seen_at FROM runs_process WHERE kind = 'worker'"
PERIODS = {
    "PENDING_POLL_S": "1", "RECONCILE_FOR_S": "120", "VERIFY_FOR_S": "60", "PASSES_THREADS": "4",
    "WRITES_PROCESSES": "2",
}  # fmt: skip
Json = dict[str, Any]


class SharedGround(Ground):
    """Stores and brokers that further machines reach."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self._network = network

    def new_broker(self) -> Redis:
        return Redis(also_on=self._network.address(BROKER)).start()

    @cached_property
    def cluster(self) -> Postgres:
        return Postgres(durable=True, also_on=self._network.address(DATABASE)).start()


class Provider(Business):
    """The business system, on an address that the machines reach; its controls are called by way of the loopback."""

    def __init__(self, file: Path, address: str) -> None:
        super().__init__(file, bind=address)
        ours = httpx.HTTPTransport(local_address=HOST)
        self.http = httpx.Client(base_url=self.url, timeout=30, trust_env=False, transport=ours)


class Host(Processes):
    """Workers on a machine of their own: own folder, own index, own logs, own name; `cores` bounds their processors."""

    def __init__(self, machine: Machine, site: Site, folder: Path, addresses: Json) -> None:
        super().__init__(folder)
        self.machine, self.name, self.cores = machine, machine.name, ""
        self._site = site
        elsewhere = {"DATABASE_URL": addresses[DATABASE], "BROKER_URL": addresses[BROKER]}
        self.environment = {**site.environment, **elsewhere, "VAR_DIR": str(folder)}

    def spawn(self, role: str) -> None:
        pinned = ["taskset", "--cpu-list", self.cores] if self.cores else []
        command = [*self.machine.enter(), *pinned, sys.executable, "manage.py", "worker", "--name", role]
        self._running[role] = spawn(command, self.environment, cwd=env.ROOT, log=self.folder / f"{role}.log")

    def start(self) -> None:
        """Returns when all its consumers are there."""
        self.spawn(WORKERS)
        assert wait_until(lambda: len(self.consumers()) == len(QUEUES), START_S), self.said()

    def runs(self) -> bool:
        return WORKERS in self._running

    def consumers(self, since: datetime | None = None) -> dict[str, int]:
        """Hung threads by queue, of its processes that said since then, or ever, that they live."""
        mine = set(children(self.pid(WORKERS)))
        rows = [row for row in self._site.rows(ALIVE) if row[0] == self.name and row[2] in mine]
        return {queue: hung for _, queue, _, hung, seen_at in rows if since is None or seen_at > since}

    def logs(self) -> list[Path]:
        """What this host keeps outside the database of what it committed and sent."""
        return [self.folder / name for name in (HEADS, ANCHORS)]

    def heads(self) -> dict[str, int]:
        """The newest event that this host committed, by run."""
        return {str(line["run"]): int(line["seq"]) for line in _lines(self.folder / HEADS)}

    def sent(self) -> set[str]:
        """Runs of which this host marked a write as sent."""
        return {str(line["run"]) for line in _lines(self.folder / ANCHORS) if line["kind"] == "write"}

    def said(self) -> str:
        return "".join(log.read_text() for log in sorted(self.folder.glob("*.log")))

    def linked(self, service: str) -> int:
        """Connections to a service that this host takes for whole."""
        return self.machine.connections(urlsplit(self.environment[URLS[service]]).netloc.rpartition("@")[2])


def _lines(file: Path) -> list[Json]:
    """The whole lines of a log that others write to."""
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1] if line]


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """A site whose workers are on `hosts` alone; the script says how slowly its model thinks at first."""

    site: Site
    hosts: list[Host]
    business: Provider
    broker: Redis
    cluster: Postgres
    script: Path
    cases: list[workload.Case] = field(default_factory=list)

    def thinks(self, *turns: float) -> None:
        """From now on each run's first model calls take so many seconds, the others none."""
        self.script.write_text(script(*turns))

    def seed(self, cases: list[workload.Case]) -> None:
        self.cases.extend(cases)
        self.business.control("/_seed", **workload.seed_of(cases))

    def ended(self) -> set[str]:
        """Requests whose runs have ended."""
        return {str(row[0]) for row in self.site.rows(f"SELECT request_id FROM runs_run WHERE status IN {ENDED}")}

    def told(self, words: str) -> str:
        """What a failed test says."""
        rows = self.site.rows("SELECT request_id, status, reason, due_at, lease_until, attempts FROM runs_run")
        hosts = "".join(f"\n== {host.name}\n{host.said()[-6000:]}" for host in self.hosts)
        return f"{words}: {[row for row in rows if row[1] != 'completed']}{hosts}"


def script(*turns: float) -> str:
    """A model that first looks for policies, taking so many seconds each time, and then works as the offline one."""
    say = [{"tool": "search_policy", "args": {"query": f"charged twice {number}"}, "evidence": []}
           for number in range(len(turns))]  # fmt: skip
    slow = [{"say": one, "delay_s": seconds} for one, seconds in zip(say, turns, strict=True)]
    return json.dumps({"turns": slow, "then": "offline"})


@contextmanager
def started(folder: Path, *names: str, **environment: str) -> Iterator[Fleet]:
    """The first machine serves; the workers of none of the named hosts are started yet."""
    with ExitStack() as stack:
        network = stack.enter_context(Network(*SERVICES))
        ground = stack.enter_context(SharedGround(network))
        business = stack.enter_context(Provider(folder / "business.sqlite3", network.address(BUSINESS)))
        route = folder / "script.json"
        route.write_text(script())
        given = {"AGENT_MODELS": f"scripted:{route}", **PERIODS, **environment}
        site = Site(POSTGRES_REDIS, ground, folder / "site", business.url, workers=0, **given)
        stack.callback(site.close)
        assert site.broker is not None
        site.create_tenant(TENANT, workload.PROFILE)
        site.manage("qualify", f"scripted:{route}", "--reason", "the offline model, after slow first turns")
        site.start("web")
        urls = {
            DATABASE: _at(site.database, network.address(DATABASE)),
            BROKER: _at(site.broker.url, network.address(BROKER)),
        }
        hosts = [_host(stack, network, site, urls, name, n) for n, name in enumerate(names, start=2)]
        yield Fleet(site=site, hosts=hosts, business=business, broker=site.broker, cluster=ground.cluster, script=route)


def _host(stack: ExitStack, network: Network, site: Site, urls: Json, name: str, number: int) -> Host:
    machine = Machine(network, name, number, site.folder)
    stack.callback(machine.close)
    host = Host(machine, site, site.folder.parent / name, urls)
    stack.callback(host.kill)
    return host


def _at(url: str, address: str) -> str:
    """The same URL at another address of its host."""
    parts = urlsplit(url)
    credentials, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{credentials}{at}{address}:{host.rpartition(':')[2]}"))
