"""The scenario `admission`: POST /api/v1/runs at a fixed rate, whatever the site makes of it; no run twice, none lost.

Requests are sent in an open loop and timed from the moment each was due. Imports no zone and no keeper.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from agentsite.private.processes import wait_until
from runs.bench import openloop, premises
from runs.bench.numbers import above_zero
from runs.bench.openloop import Answers
from runs.bench.premises import Json
from runs.bench.resources import cpu_s, family
from runs.chaos.site import Site

ADMITTED, WARM_UP, LIMIT_S = 202, 200, 30.0
COUNTED = "SELECT count(*), count(DISTINCT request_id) FROM runs_run"
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Times in milliseconds from the moment a request was due. `runs`: requests that became rows, `twice`: rows beyond
    one a request; `cpu_ms`: of the web process, a request; `late_ms`: the client's own delay, at the 95th percentile.
    """

    rate: float
    seconds: float
    workers: bool
    sent: int
    admitted: int
    refused: dict[str, int]
    runs: int
    twice: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    most_ms: float
    late_ms: float
    cpu_ms: float
    load: tuple[float, float]

    @property
    def fault(self) -> str | None:
        if self.admitted == self.runs == self.sent and not self.twice:
            return None
        return f"{self.sent} requests, {self.admitted} admitted, {self.runs} runs, {self.twice} twice: {self.refused}"

    def wire(self) -> dict[str, object]:
        return asdict(self)

    def lines(self) -> list[tuple[str, str]]:
        return [
            ("requests", f"{self.sent} at {self.rate:g} a second, workers {'' if self.workers else 'not '}running"),
            ("admitted", f"{self.admitted}, {self.runs} runs, {self.twice} twice, refused {self.refused or 'none'}"),
            ("answered, p50", f"{self.p50_ms} ms"), ("answered, p95", f"{self.p95_ms} ms"),
            ("answered, p99", f"{self.p99_ms} ms"), ("answered, the slowest", f"{self.most_ms} ms"),
            ("sent too late, p95", f"{self.late_ms} ms"), ("CPU of the web process", f"{self.cpu_ms} ms a request"),
            ("load of the machine", f"{self.load[0]:.1f} before, {self.load[1]:.1f} after"),
        ]  # fmt: skip


def measure(rate: float, seconds: float, *, workers: bool, say: Say) -> Figures:
    """Everything from the first server to the figures. Raises what `premises` raises."""
    with premises.premises() as grounds:
        say("starting private servers and the web process …")
        site = grounds.site("site", WORKER_QUEUES="passes")
        premises.grant(site)
        site.start("web")
        if workers:
            site.spawn("worker1")
            wait_until(lambda: bool(site.consumers()), LIMIT_S)
        ask(site, "warm", min(WARM_UP, max(1, round(rate * seconds))), rate)
        before, load = int(premises.one(site, COUNTED)), premises.load()
        say(f"{rate:g} requests a second for {seconds:g} s …")
        return _figures(site, before, load, workers, *timed(site, "bench", max(1, round(rate * seconds)), rate))


def timed(site: Site, name: str, count: int, rate: float) -> tuple[Answers, float, float]:
    """The answers, and the CPU of the web process, in seconds, with the rate they were sent at."""
    pids = family(site.pid("web"))
    spent_s = cpu_s(pids)
    answers = ask(site, name, count, rate)
    return answers, cpu_s(pids) - spent_s, rate


def ask(site: Site, name: str, count: int, rate: float) -> Answers:
    """As many requests, each of a customer and on an order of its own."""
    bodies = [json.dumps(request(f"{name}-{number:06}")).encode() for number in range(count)]
    headers = {"Authorization": f"Bearer {site.token}", "Content-Type": "application/json"}
    return openloop.post(f"{site.url}/api/v1/runs", bodies, headers=headers, rate=rate, limit_s=LIMIT_S)


def request(order: str) -> Json:
    """What a client program sends, as long as customers write."""
    goal = (
        f"I was charged twice for my order {order}: my bank shows the same amount on two days running. I wrote to you "
        "about it a week ago and have heard nothing since. Please look into it and return what you took too much."
    )
    return {
        "request_id": f"req-{order}", "order_ids": [order], "goal": goal, "actor": {"customer_id": f"cust_{order}"},
    }  # fmt: skip


def _figures(
    site: Site, before: int, load: float, workers: bool, answers: Answers, spent_s: float, rate: float
) -> Figures:
    sent, (rows, different) = len(answers.took_ms), site.rows(COUNTED)[0]
    refused = {str(status): count for status, count in answers.statuses.items() if status != ADMITTED}
    return Figures(
        rate=rate, seconds=sent / rate, workers=workers, sent=sent, admitted=answers.statuses.get(ADMITTED, 0),
        refused=refused, runs=different - before, twice=rows - different,
        p50_ms=round(answers.at(0.5), 1), p95_ms=round(answers.at(0.95), 1), p99_ms=round(answers.at(0.99), 1),
        most_ms=round(answers.at(1), 1), late_ms=round(answers.late_ms, 1), cpu_ms=round(spent_s / sent * 1000, 2),
        load=(load, premises.load()),
    )  # fmt: skip


class _Admission:
    help = (
        "POST /api/v1/runs in an open loop at a fixed rate, throttle lifted: the times of the answers, from the "
        "moment each request was due; that every request became one run, and no request was refused."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--rate", type=above_zero, default=200.0, metavar="N", help="requests a second (200)")
        parser.add_argument("--seconds", type=above_zero, default=20.0, metavar="S", help="for how long (20)")
        parser.add_argument("--with-workers", action="store_true", help="a worker runs what is admitted meanwhile")

    def run(self, options: Mapping[str, Any], say: Say) -> Figures:
        return measure(options["rate"], options["seconds"], workers=options["with_workers"], say=say)


SCENARIO = _Admission()
