"""The scenario `growth`: what a step costs as its run grows: bytes of PostgreSQL's log, and time.

One run each with so many model calls, each adding an observation of 2 KB that does not compress. Caps are lifted by
configuration; what a prompt shows is compacted as anywhere. Imports no zone and no keeper.
"""

from __future__ import annotations

import statistics
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import psycopg

from agentsite import env
from agentsite.private.processes import spawn, wait_until
from runs.bench import engines, premises
from runs.bench.numbers import ratio, whole, wholes
from runs.bench.wal import Log
from runs.chaos import calls
from runs.chaos.ground import POSTGRES_REDIS, Ground, SiteFailed
from runs.chaos.site import Site

CALLS, ROUNDS, ENDS = (4, 16, 64, 128), 3, 4
"""ENDS: so many steps at the beginning and at the end of the longest run are compared."""
LIMITS = {
    "max_model_calls": 10_000, "deadline_ms": 3_600_000, "max_input_tokens": 1_000_000_000,
    "max_output_tokens": 100_000_000,
}  # fmt: skip
LIFTED = {"LOOP_REMIND_AT": "100", "LOOP_STOP_AT": "1000"}
MUST_KB, AIM_KB, MUST_MS, AIM_MS = 1.1, 1.0, 1.5, 1.2
BASE_S, A_CALL_S = 60.0, 2.0
ENDED = "SELECT status, model_calls FROM runs_run WHERE request_id = '{}' AND completed_at IS NOT NULL"
STARTED = (
    "SELECT extract(epoch FROM t.started_at) FROM runs_turn t JOIN runs_run r ON r.id = t.run_id "
    "WHERE r.request_id = '{}' ORDER BY t.number"
)
OBSERVED = (
    "SELECT count(*), coalesce(min(length(content)), 0) FROM runs_observation o JOIN runs_run r ON r.id = o.run_id "
    "WHERE r.request_id = '{}' AND source = 'get_order' AND kind = 'result'"
)
LEAST_BYTES = 2000
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Grown:
    """A run of `calls` reads, by the medians of its rounds. `kb`: of log in all; `kb_a_step`: beyond what a run with
    no read costs, for each read; `whole_kb_a_step`: all of it, for each read. Times in milliseconds: of a step, from
    the beginning of one model call to that of the next, of the first and of the last ENDS."""

    calls: int
    kb: float
    kb_a_step: float
    whole_kb_a_step: float
    step_ms: float
    first_ms: float
    last_ms: float


@dataclass(frozen=True, kw_only=True)
class Figures:
    """`kb_ratio`: a step's log in the longest run against the shortest; `ms_ratio`: its last steps against its first.
    `bare_kb`: log of a run with no read, admission and end. `wrong`: runs that did not end as they must."""

    runs: tuple[Grown, ...]
    bare_kb: float
    kb_ratio: float | None
    ms_ratio: float | None
    rounds: int
    passes: int
    wrong: list[str]
    load: tuple[float, float]

    @property
    def fault(self) -> str | None:
        return "; ".join(self.wrong[:3]) or None

    def wire(self) -> dict[str, object]:
        return asdict(self)

    def lines(self) -> list[tuple[str, str]]:
        told = [
            (
                f"{one.calls} model calls",
                f"{one.kb_a_step:.2f} KB a step ({one.whole_kb_a_step:.2f} with admission and end), {one.step_ms:.1f} "
                f"ms a step; the first {ENDS} {one.first_ms:.1f} ms, the last {ENDS} {one.last_ms:.1f} ms",
            )
            for one in self.runs
        ]
        first, last = self.runs[0].calls, self.runs[-1].calls
        return [
            *told, ("a run without a read", f"{self.bare_kb:.1f} KB"),
            (f"KB a step, {last} against {first}", f"{self.kb_ratio} (must ≤ {MUST_KB}, aim ≤ {AIM_KB})"),
            (f"time of a step at {last}, last against first", f"{self.ms_ratio} (must ≤ {MUST_MS}, aim ≤ {AIM_MS})"),
            ("measured", f"medians of {self.rounds} runs each, {self.passes} passes a task, compacted as usual"),
            ("load of the machine", f"{self.load[0]:.1f} before, {self.load[1]:.1f} after"),
        ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Run:
    """What one run came to: bytes of log by all processes of the site, and milliseconds of each step."""

    bytes: int
    steps_ms: list[float]


class _GrowingSite(engines.InstantSite):
    """Its workers stand in the world where runs grow; its web process is any site's."""

    def spawn(self, role: str) -> None:
        if role == "web":
            Site.spawn(self, role)
            return
        command = engines.module("growing", self.refunds, "worker", "--name", role)
        self._running[role] = spawn(command, self.environment, cwd=env.ROOT, log=self.folder / f"{role}.log")


class Growing:
    """A site whose runs grow, and the log of its cluster."""

    def __init__(self, site: Site, log: Log) -> None:
        self._site, self._log, self.wrong = site, log, list[str]()

    def one(self, reads: int, name: str) -> _Run:
        """A run with so many reads, from its admission to its end, alone on the site. Raises SiteFailed."""
        key = f"grow-{reads}-{name}"
        mark = self._log.mark()
        self._admit(key)
        ended = ENDED.format(key)
        if not wait_until(lambda: bool(self._site.rows(ended)), BASE_S + A_CALL_S * reads):
            raise SiteFailed(f"{key} did not end\n{self._site.tails(5)}")
        size = self._log.since(mark).bytes
        self._check(key, reads, self._site.rows(ended)[0])
        started = [float(row[0]) for row in self._site.rows(STARTED.format(key))]
        return _Run(bytes=size, steps_ms=[(b - a) * 1000 for a, b in pairwise(started)])

    def _admit(self, key: str) -> None:
        headers = {"Authorization": f"Bearer {self._site.token}"}
        body = {
            "request_id": key, "goal": "What became of my orders?", "actor": {"customer_id": f"cust_{key}"},
        }  # fmt: skip
        calls.document(calls.call("POST", f"{self._site.url}/api/v1/runs", headers=headers, body=body), 202)

    def _check(self, key: str, reads: int, row: Sequence[Any]) -> None:
        seen, least = self._site.rows(OBSERVED.format(key))[0]
        if (*row, seen) != ("completed", reads + 1, reads) or (reads and least < LEAST_BYTES):
            self.wrong.append(f"{key} ended {row} with {seen} observations of {least} bytes or more")


@contextmanager
def growing(passes: int) -> Iterator[tuple[Growing, Site]]:
    """Everything started. Raises SiteFailed, ServiceError or MissingServer."""
    engines.check()
    with premises.folder() as folder, Ground() as ground:
        _leave_no_vacuum(ground)
        site = _GrowingSite(POSTGRES_REDIS, ground, folder / "site", passes)
        site.environment |= LIFTED
        try:
            premises.grant(site, **LIMITS)
            site.start()
            yield Growing(site, Log(ground.cluster)), site
        finally:
            site.close()


def _leave_no_vacuum(ground: Ground) -> None:
    """Its log of a moment belongs to no run: what it comes to now is what other runs left."""
    with psycopg.connect(ground.cluster.url, autocommit=True) as postgres:
        postgres.execute("ALTER SYSTEM SET autovacuum = off")
        postgres.execute("SELECT pg_reload_conf()")


def measure(counts: Sequence[int], rounds: int, passes: int, say: Say) -> Figures:
    """Everything from the first server to the figures. Raises what `growing` raises."""
    say("starting private servers, a web process and a worker …")
    with growing(passes) as (world, _):
        world.one(counts[0], "warm")
        load, found = premises.load(), dict[int, list[_Run]]()
        for number in range(rounds):
            for reads in (0, *counts):
                say(f"round {number + 1} of {rounds}: {reads} reads …")
                found.setdefault(reads, []).append(world.one(reads, f"r{number}"))
        bare = statistics.median(run.bytes for run in found[0])
        grown = tuple(_grown(reads, found[reads], bare) for reads in counts)
        return Figures(
            runs=grown, bare_kb=round(bare / 1000, 2), rounds=rounds, passes=passes, wrong=world.wrong,
            kb_ratio=ratio(grown[-1].kb_a_step, grown[0].kb_a_step),
            ms_ratio=ratio(grown[-1].last_ms, grown[-1].first_ms), load=(load, premises.load()),
        )  # fmt: skip


def _grown(reads: int, runs: Sequence[_Run], bare: float) -> Grown:
    def median(of: Callable[[_Run], float]) -> float:
        return round(statistics.median(map(of, runs)), 3)

    size = median(lambda run: run.bytes)
    return Grown(
        calls=reads, kb=round(size / 1000, 2), kb_a_step=round((size - bare) / reads / 1000, 3),
        whole_kb_a_step=round(size / reads / 1000, 3), step_ms=median(lambda run: statistics.mean(run.steps_ms)),
        first_ms=median(lambda run: statistics.mean(run.steps_ms[:ENDS])),
        last_ms=median(lambda run: statistics.mean(run.steps_ms[-ENDS:])),
    )  # fmt: skip


class _Growth:
    help = (
        "Runs with 4, 16, 64 and 128 model calls, each adding an observation of 2 KB: KB of PostgreSQL's log a step "
        "(whole pages left out), and the time of a step, first against last. Needs the folder of tests."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--calls", type=wholes(1), default=CALLS, metavar="N,N,…", help="model calls of each run (4,16,64,128)"
        )
        parser.add_argument("--rounds", type=whole, default=ROUNDS, metavar="N", help="runs of each length (3)")
        parser.add_argument("--passes", type=whole, default=1, metavar="N", help="passes a task may run on (1)")

    def run(self, options: Mapping[str, Any], say: Say) -> Figures:
        return measure(options["calls"], options["rounds"], options["passes"], say)


SCENARIO = _Growth()
