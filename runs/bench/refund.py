"""The scenario `refund`: what a run of refund-8472 costs this product, beside the floor, in interleaved rounds.

Four turns of an instant model, four reads, an approval from another process, one write. Imports no zone, no keeper.
"""

from __future__ import annotations

import os
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentsite.private.binaries import postgres_bindir, redis_binary
from runs.bench import engines, resources, wal
from runs.bench.embedded import Embedded
from runs.bench.embedded import measure as measure_embedded
from runs.bench.engines import Engine
from runs.bench.figures import Costs, Figures, Round
from runs.bench.numbers import whole
from runs.chaos.ground import Ground

PASSES = (1, 6)
PAUSE_S, TAIL_S = 0.05, 0.3
"""Seconds after a run, and after a crowd: what comes after the end belongs to it."""
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Size:
    """Rounds, and runs a round: one after the other, and at once, after some to warm up; of the embedded default."""

    rounds: int = 3
    alone: int = 30
    crowd: int = 200
    embedded: int = 40
    warm: int = 3


QUICK = Size(rounds=1, alone=2, crowd=3, embedded=2, warm=1)


@dataclass(frozen=True, kw_only=True)
class Ring:
    """The engines in the order they are measured, on one cluster."""

    engines: tuple[Engine, ...]
    log: wal.Log
    cluster: int


@contextmanager
def ring() -> Iterator[Ring]:
    """Everything started, everybody stopped. Raises SiteFailed, ServiceError or MissingServer."""
    redis_binary(), postgres_bindir()
    engines.check()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentsite-bench-")))
        ground = stack.enter_context(Ground())
        all_of_them = []
        for passes in PASSES:
            engine, site = engines.ours(ground, folder / f"ours{passes}", passes)
            stack.callback(site.close), stack.callback(engine.driver.close), stack.callback(engine.go)
            engine.stop()
            all_of_them.append(engine)
        floor = engines.Floor(ground, folder / "floor")
        stack.callback(floor.close)
        floor.engine.stop()
        cluster = ground.cluster
        yield Ring(engines=(*all_of_them, floor.engine), log=wal.Log(cluster), cluster=cluster.pid)


def measure(size: Size, say: Say) -> Figures:
    """Everything from the first server to the figures. Raises what `ring` raises."""
    load = os.getloadavg()[0]
    say("starting private servers, three sets of workers and who admits and approves …")
    rounds = list[dict[str, Costs]]()
    with ring() as here:
        for number in range(1, size.rounds + 1):
            say(f"round {number} of {size.rounds} …")
            rounds.append({one.name: _measured(here, one, size, number) for one in here.engines})
    say("the embedded default, beside the same loop with no broker …")
    embedded: Embedded = measure_embedded(size.embedded, size.rounds)
    return Figures(rounds=tuple(rounds), embedded=embedded, size=vars(size), load=(load, os.getloadavg()[0]))


def _measured(here: Ring, engine: Engine, size: Size, number: int) -> Costs:
    engine.go()
    try:
        engine.driver.ask(do="alone", orders=_orders(f"w{number}", size.warm), pause_s=PAUSE_S)
        alone = _alone(here, engine, _orders(f"a{number}", size.alone))
        crowd = _crowd(here, engine, _orders(f"c{number}", size.crowd))
        return Costs(**alone, **crowd)
    finally:
        engine.stop()


def _alone(here: Ring, engine: Engine, orders: list[str]) -> Round:
    """Counts are exact here: nothing else is under way."""
    mark, messages = here.log.mark(), engine.messages()
    told = engine.driver.ask(do="alone", orders=orders, pause_s=PAUSE_S)
    time.sleep(TAIL_S)
    written, runs = here.log.since(mark), len(orders)
    return {
        "alone_s": tuple(told["took_s"]), "commits": written.commits / runs, "wal_kb": written.bytes / runs / 1000,
        "messages": (engine.messages() - messages) / runs,
    }  # fmt: skip


def _crowd(here: Ring, engine: Engine, orders: list[str]) -> Round:
    """CPU is of workers, database and broker; the driver's own is apart."""
    assert engine.broker.pid
    roots = (engine.workers, here.cluster, engine.broker.pid)
    before = [resources.spent_s([root]) for root in roots]
    told = engine.driver.ask(do="crowd", orders=orders)
    time.sleep(TAIL_S)
    workers, database, broker = (resources.spent_s([root]) - was for root, was in zip(roots, before, strict=True))
    a_run = 1000 / len(orders)
    return {
        "rate": len(orders) / told["took_s"], "cpu_ms": (workers + database + broker) * a_run,
        "cpu_workers_ms": workers * a_run, "cpu_database_ms": database * a_run,
        "driver_cpu_ms": told["own_cpu_s"] * a_run, "memory_mb": engine.memory_mb(),
    }  # fmt: skip


def _orders(name: str, count: int) -> list[str]:
    return [f"{name}-{number}" for number in range(count)]


class _Refund:
    help = (
        "A refund from request to reply with an approval, gate and audit on: engine time alone, runs a second many at "
        "once, CPU, durable commits, log, messages, memory, one pass a task and six, beside a bare Celery chain, in "
        "interleaved rounds; and the embedded default beside the same loop with no broker. Figures are medians."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        usual = Size()
        parser.add_argument("--rounds", type=whole, default=usual.rounds, metavar="N", help="of everything (3)")
        parser.add_argument("--alone", type=whole, default=usual.alone, metavar="N", help="one by one, a round (30)")
        parser.add_argument("--crowd", type=whole, default=usual.crowd, metavar="N", help="at once, a round (200)")
        parser.add_argument("--quick", action="store_true", help="a handful of runs: that it works, no figures")

    def run(self, options: Mapping[str, Any], say: Say) -> Figures:
        if options["quick"]:
            return measure(QUICK, say)
        return measure(Size(rounds=options["rounds"], alone=options["alone"], crowd=options["crowd"]), say)


SCENARIO = _Refund()
