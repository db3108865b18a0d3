"""The scenario `parked`: thousands of runs that wait for a person: what they hold of memory, CPU and disk.

All come in by REST and are parked by the site's own workers, in refund-8472's instant world. Imports no zone and no
keeper.
"""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import redis

from agentsite import clock
from agentsite.private.processes import wait_until
from runs.bench import admission, engines, openloop, premises, resources
from runs.bench.numbers import above_zero, whole
from runs.chaos.ground import POSTGRES_REDIS, Ground, SiteFailed
from runs.chaos.site import Site

RUNS, WINDOW_S, SETTLE_S = 10_000, 15.0, 5.0
WARM_UP, WAVE, RATE = 20, 100, 500.0
"""WAVE: so many are sent at once, and the next ones when these are admitted: nobody measures the door here."""
BASE_S, A_RUN_S = 120.0, 0.5
MUST, AIM = {"memory_mb": 20.0, "idle": 1.0, "kb_a_run": 6.0}, {"memory_mb": 10.0, "idle": 0.5, "kb_a_run": 3.0}
PARKED = "SELECT count(*) FROM runs_run WHERE status = 'awaiting_approval'"
STATUSES = "SELECT status, coalesce(reason, ''), count(*) FROM runs_run GROUP BY status, reason"
SIZE = "SELECT pg_database_size(current_database())"
TABLES = (
    "SELECT c.relname, pg_table_size(c.oid) - coalesce(pg_total_relation_size(nullif(c.reltoastrelid, 0)), 0), "
    "coalesce(pg_total_relation_size(nullif(c.reltoastrelid, 0)), 0), pg_indexes_size(c.oid), "
    "(SELECT count(*) FROM pg_index WHERE indrelid = c.oid) FROM pg_class c "
    "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND n.nspname = 'public'"
)
INDEXES = (
    "SELECT indexrelid::regclass::text, pg_relation_size(indexrelid) FROM pg_index i "
    "JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'public'"
)
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Weight:
    """Bytes a run that one table grew by: its rows, what of them lies apart for its length, its indexes."""

    table: str
    rows: int
    apart: int
    indexes: int
    number_of_indexes: int

    @property
    def all(self) -> int:
        return self.rows + self.apart + self.indexes


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What was measured. Memory (PSS) in MB of 1,000,000 bytes, CPU in per cent of one core while nothing happens.

    `memory_mb`: what the workers' processes grew by; `server_mb`: what PostgreSQL's processes grew by, `redis_mb`: the
    broker; `bytes_a_run`: what the database grew by, after a checkpoint and before any vacuum; `vacuumed_bytes_a_run`:
    after it; `weights` and `index_bytes`: the same by table and by index, the heaviest first.
    """

    runs: int
    parked: int
    took_s: float
    memory_mb: float
    memory_before_mb: float
    server_mb: float
    redis_mb: float
    idle: float
    idle_postgres: float
    idle_redis: float
    window_s: float
    bytes_a_run: int
    vacuumed_bytes_a_run: int
    weights: tuple[Weight, ...]
    index_bytes: dict[str, int]
    elsewhere: dict[str, int]
    load: tuple[float, float]

    @property
    def fault(self) -> str | None:
        return None if self.parked == self.runs else f"{self.parked} of {self.runs} runs are parked: {self.elsewhere}"

    def wire(self) -> dict[str, object]:
        return {**asdict(self), "kb_a_run": round(self.bytes_a_run / 1000, 3), "must": MUST, "aim": AIM}

    def lines(self) -> list[tuple[str, str]]:
        heavy = [
            (f"… {one.table}", f"{one.all} bytes a run: {one.rows} rows, {one.apart} apart, {one.indexes} in "
                               f"{one.number_of_indexes} indexes")
            for one in self.weights if one.all >= 20
        ]  # fmt: skip
        return [
            ("runs awaiting approval", f"{self.parked} of {self.runs}, admitted and parked in {self.took_s:.0f} s "
                                       f"({self.parked / self.took_s:.1f} a second)"),
            ("memory of the workers", f"{self.memory_mb:+.1f} MB on {self.memory_before_mb:.0f} "
                                      f"(must ≤ {MUST['memory_mb']:g})"),
            ("memory of the servers", f"PostgreSQL {self.server_mb:+.1f} MB, broker {self.redis_mb:+.1f} MB"),
            ("idle CPU of the workers", f"{self.idle:.2f} % of a core over {self.window_s:.0f} s (must ≤ "
                                        f"{MUST['idle']:g})"),
            ("idle CPU beside them", f"PostgreSQL {self.idle_postgres:.2f} %, broker {self.idle_redis:.2f} %"),
            ("database", f"{self.bytes_a_run} bytes a run, {self.vacuumed_bytes_a_run} after a vacuum (must ≤ "
                         f"{MUST['kb_a_run'] * 1000:g})"),
            *heavy, ("load of the machine", f"{self.load[0]:.1f} before, {self.load[1]:.1f} after"),
        ]  # fmt: skip


class _ParkingSite(engines.InstantSite):
    """Its workers stand in the instant world; its web process is any site's."""

    def spawn(self, role: str) -> None:
        if role == "web":
            Site.spawn(self, role)
        else:
            super().spawn(role)


@contextmanager
def site_of(passes: int) -> Iterator[tuple[Site, Ground]]:
    """Web and worker, running. Raises SiteFailed, ServiceError or MissingServer."""
    engines.check()
    with premises.folder() as folder, Ground() as ground:
        site = _ParkingSite(POSTGRES_REDIS, ground, folder / "site", passes)
        try:
            premises.grant(site)
            site.manage("qualify", engines.INSTANT["AGENT_MODELS"], "--reason=bench")
            yield site.start(), ground
        finally:
            site.close()


@dataclass(frozen=True, kw_only=True)
class _State:
    """A site at one moment: bytes of its store, MB of its processes."""

    size: int
    tables: dict[str, tuple[int, int, int, int]]
    indexes: dict[str, int]
    workers_mb: float
    server_mb: float
    redis_mb: float


def measure(runs: int, window_s: float, passes: int, say: Say) -> Figures:
    """Everything from the first server to the figures. Raises what `site_of` raises."""
    say("starting private servers, a web process and a worker …")
    with site_of(passes) as (site, ground):
        _park(site, "warm", WARM_UP, already=0)
        time.sleep(SETTLE_S)
        before, load = _state(site, ground), premises.load()
        say(f"parking {runs} runs …")
        began = clock.monotonic()
        _park(site, "parked", runs, already=WARM_UP)
        took_s = clock.monotonic() - began
        say(f"{runs} runs wait after {took_s:.0f} s; looking on for {window_s:g} s …")
        time.sleep(SETTLE_S)
        idle = _idle(site, ground, window_s)
        after = _state(site, ground)
        parked, elsewhere = int(premises.one(site, PARKED)) - WARM_UP, _elsewhere(site)
        premises.settle(site.database)
        vacuumed = int(premises.one(site, SIZE)) - before.size
        weights, indexes = _weights(before, after, runs)
        return Figures(
            runs=runs, parked=parked, took_s=round(took_s, 1), memory_mb=round(after.workers_mb - before.workers_mb, 1),
            memory_before_mb=round(before.workers_mb, 1), server_mb=round(after.server_mb - before.server_mb, 1),
            redis_mb=round(after.redis_mb - before.redis_mb, 2), idle=idle["workers"], idle_postgres=idle["postgres"],
            idle_redis=idle["redis"], window_s=window_s, bytes_a_run=round((after.size - before.size) / runs),
            vacuumed_bytes_a_run=round(vacuumed / runs), weights=weights, index_bytes=indexes, elsewhere=elsewhere,
            load=(load, premises.load()),
        )  # fmt: skip


def _park(site: Site, name: str, count: int, *, already: int) -> None:
    """Admits so many runs, wave by wave, and waits until they are parked. Raises SiteFailed."""
    headers = {"Authorization": f"Bearer {site.token}", "Content-Type": "application/json"}
    for first in range(0, count, WAVE):
        orders = [f"{name}-{number:06}" for number in range(first, min(first + WAVE, count))]
        bodies = [json.dumps(admission.request(order)).encode() for order in orders]
        url = f"{site.url}/api/v1/runs"
        answers = openloop.post(url, bodies, headers=headers, rate=RATE, limit_s=BASE_S)
        if answers.statuses != {admission.ADMITTED: len(orders)}:
            raise SiteFailed(f"{answers.statuses} on admitting {len(orders)} runs\n{site.tails(5)}")
    if not wait_until(lambda: int(premises.one(site, PARKED)) >= already + count, BASE_S + A_RUN_S * count):
        raise SiteFailed(f"not all runs were parked: {site.rows(STATUSES)}\n{site.tails(5)}")


def _roots(site: Site, ground: Ground) -> dict[str, int]:
    assert site.broker is not None
    return {"workers": site.pid("worker1"), "postgres": ground.cluster.pid, "redis": site.broker.pid}


def _state(site: Site, ground: Ground) -> _State:
    """After a checkpoint, so that nothing that is yet to be written is missing."""
    premises.checkpoint(site.database)
    mb = {name: resources.pss_mb(resources.family(pid)) for name, pid in _roots(site, ground).items()}
    assert site.broker is not None
    with redis.Redis.from_url(site.broker.url) as client:
        held = int(client.info("memory")["used_memory"])
    return _State(
        size=int(premises.one(site, SIZE)), tables={str(row[0]): tuple(row[1:]) for row in site.rows(TABLES)},
        indexes={str(name): int(size) for name, size in site.rows(INDEXES)}, workers_mb=mb["workers"],
        server_mb=mb["postgres"], redis_mb=held / 1_000_000,
    )  # fmt: skip


def _idle(site: Site, ground: Ground, window_s: float) -> dict[str, float]:
    """Per cent of one core, by who takes it; what came and went meanwhile counts with its parent."""
    roots = _roots(site, ground)
    before, began = {name: resources.spent_s([pid]) for name, pid in roots.items()}, clock.monotonic()
    time.sleep(window_s)
    took_s = clock.monotonic() - began
    return {name: round((resources.spent_s([pid]) - before[name]) / took_s * 100, 2) for name, pid in roots.items()}


def _elsewhere(site: Site) -> dict[str, int]:
    return {f"{status} {reason}".strip(): int(count) for status, reason, count in site.rows(STATUSES)}


def _weights(before: _State, after: _State, runs: int) -> tuple[tuple[Weight, ...], dict[str, int]]:
    """What each table and each index grew by, in bytes a run, the heaviest first."""
    weights = []
    for table, (rows, apart, indexes, number) in after.tables.items():
        old = before.tables[table]
        weights.append(Weight(
            table=table, rows=round((rows - old[0]) / runs), apart=round((apart - old[1]) / runs),
            indexes=round((indexes - old[2]) / runs), number_of_indexes=number,
        ))  # fmt: skip
    grown = {name: round((size - before.indexes.get(name, 0)) / runs) for name, size in after.indexes.items()}
    named = {name: size for name, size in sorted(grown.items(), key=lambda item: -item[1]) if size > 0}
    return tuple(sorted(weights, key=lambda one: -one.all)), named


class _Parked:
    help = (
        "10,000 runs that await approval, parked by the site's own workers: what the workers' memory and the database "
        "grow by, and the CPU of the site while they wait. Needs the folder of tests."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--runs", type=whole, default=RUNS, metavar="N", help="that wait (10000)")
        parser.add_argument("--window", type=above_zero, default=WINDOW_S, metavar="S", help="to look on idle (15)")
        parser.add_argument("--passes", type=whole, default=1, metavar="N", help="passes a task may run on (1)")

    def run(self, options: Mapping[str, Any], say: Say) -> Figures:
        return measure(options["runs"], options["window"], options["passes"], say)


SCENARIO = _Parked()
