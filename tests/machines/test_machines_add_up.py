"""Workers on a second host add up: as many runs again, until processors or the database are all used.

What is asserted is a site that waits for its model most of the time, as sites do, so that it holds on a busy machine.
What two hosts make of a model that answers at once, on a processor each, is measured and printed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from agentsite import clock
from agentsite.private.processes import wait_until
from runs.bench.resources import cpu_s, family
from runs.chaos.workload import Case
from tests.conftest import Say
from tests.machines import network
from tests.machines.doors import names, nothing_lost_nothing_doubled, of_small_refunds, opened
from tests.machines.fleet import WORKERS, Fleet, started

pytestmark = [pytest.mark.own_services, pytest.mark.long, pytest.mark.timeout(1200)]

SLOW_RUNS, FAST_RUNS = 18, 60
THREADS, THINKS = 2, (2.0, 2.0, 2.0)
"""A host's calls at once, and the seconds of a run's first three: one run in three seconds, with little work."""
GROWS, STUCK_S = 1.3, 240.0
SPANS = (
    "SELECT r.request_id, min(e.at), max(e.at) FROM runs_event e JOIN runs_run r ON r.id = e.run_id "
    "WHERE e.type <> 'run.accepted' GROUP BY r.request_id"
)


@pytest.fixture
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    if reason := network.unavailable():
        pytest.skip(reason)
    with started(tmp_path_factory.mktemp("machines"), "far1", "far2", PASSES_THREADS=str(THREADS)) as made:
        yield made


def ended_per_second(fleet: Fleet, count: int) -> float:
    """Of so many runs at once: from the first one's first step to the last one's end, by the record."""
    with opened(fleet) as doors:
        cases = of_small_refunds(fleet, count)
        doors.admit(cases)
        assert wait_until(lambda: fleet.ended() >= names(cases), STUCK_S), fleet.told("not ended")
    assert doors.faults == []
    return count / span_s(fleet, cases)


def span_s(fleet: Fleet, cases: list[Case]) -> float:
    spans = [(begun, ended) for request, begun, ended in fleet.site.rows(SPANS) if request in names(cases)]
    seconds: float = (max(ended for _, ended in spans) - min(begun for begun, _ in spans)).total_seconds()
    return seconds


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Runs a second of a model that thinks, and of one that answers at once; what part of a processor each had then."""

    slow: float
    fast: float
    used: dict[str, float]

    def __str__(self) -> str:
        shares = ", ".join(f"{who} {share:.2f}" for who, share in self.used.items())
        return f"{self.slow:.2f} runs/s with slow calls, {self.fast:.1f} with instant ones (of a core: {shares})"


def measured(fleet: Fleet) -> Measured:
    fleet.thinks(*THINKS)
    slow = ended_per_second(fleet, SLOW_RUNS)
    fleet.thinks()
    before, began = used_s(fleet), clock.monotonic()
    fast = ended_per_second(fleet, FAST_RUNS)
    after, took_s = used_s(fleet), clock.monotonic() - began
    return Measured(slow=slow, fast=fast, used={who: (after[who] - before[who]) / took_s for who in after})


def used_s(fleet: Fleet) -> dict[str, float]:
    """Seconds of CPU so far, by who had them."""
    roots = {host.name: host.pid(WORKERS) for host in fleet.hosts if host.runs()}
    roots |= {"web": fleet.site.pid("web"), "business system": fleet.business.process.pid}
    roots |= {"PostgreSQL": fleet.cluster.pid, "Redis": fleet.broker.pid}
    return {who: cpu_s(family(pid)) for who, pid in roots.items()}


def test_second_host_adds_to_what_waits_for_models(fleet: Fleet, say: Say) -> None:
    first, second = fleet.hosts
    cores = sorted(os.sched_getaffinity(0))
    first.cores, second.cores = str(cores[0]), str(cores[-1])
    first.start()
    alone = measured(fleet)
    say(f"one host: {alone}")
    second.start()
    both = measured(fleet)
    say(f"two hosts: {both}")
    say(f"{both.slow / alone.slow:.2f} and {both.fast / alone.fast:.2f} times as many, on {len(cores)} cores in all")
    assert both.slow >= GROWS * alone.slow
    assert len(second.heads()) >= (SLOW_RUNS + FAST_RUNS) / 4, "the second host had hardly a share"
    nothing_lost_nothing_doubled(fleet, [])
