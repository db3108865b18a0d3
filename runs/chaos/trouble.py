"""Door: what a campaign does to its site, by a seed: kills, trouble of broker and database, faults of the provider.

Runs in the thread that started the processes, since they end with it. Imports no zone and no keeper.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import redis

from agentsite.private.processes import children, wait_until
from agentsite.private.servers import Postgres
from runs.chaos import calls
from runs.chaos.business import LATE_S, BusinessSystem
from runs.chaos.site import Site

KILLS = {"passes child": 6, "writes child": 6, "pool process": 4, "worker parent": 3, "whole worker": 2, "web": 2}
"""Kinds of kill, and how often one is chosen beside the others."""
POST_FAULTS = (
    "drop_before", "drop_after", "drop_after", "status:503", "status_after:503", f"delay:{LATE_S}", "delay_after:3",
    "truncate", "garbage", "state:pending", "state:pending", f"hide:{LATE_S}", "hide:1",
)  # fmt: skip
READ_FAULTS = ("status:503", "drop_before", "drop_after", "truncate", "garbage", "delay_after:2", "empty")
SLOWED = ("GET /v1/orders", "GET /v1/refunds", "POST /v1/refunds")
AIM_S = 1.5
KILLS_PER_RUN, POSTS_PER_RUN, READS_PER_RUN = 0.32, 0.3, 0.2
RUNS_PER_FLUSH, RUNS_PER_RESTART = 40, 100


@dataclass(kw_only=True)
class Done:
    """What was done, by kind."""

    kills: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)


class Trouble:
    """A shuffled list of what will happen; `next` does one of it."""

    def __init__(self, site: Site, business: BusinessSystem, cluster: Postgres | None, *, runs: int, seed: int) -> None:
        self._site, self._business, self._cluster = site, business, cluster
        self._chance = random.Random(seed)  # noqa: S311 - a seed that repeats is the point
        self.done = Done()
        self.left = self._plan(runs)

    def _plan(self, runs: int) -> list[Callable[[], bool]]:
        """Every step returns whether it found something to hit; one that did not is tried again later."""
        flushes, restarts = -(-runs // RUNS_PER_FLUSH), -(-runs // RUNS_PER_RESTART)
        steps: list[Callable[[], bool]] = [self._kill] * round(runs * KILLS_PER_RUN)
        steps += [self._fault_post] * round(runs * POSTS_PER_RUN) + [self._fault_read] * round(runs * READS_PER_RUN)
        steps += [self._flush] * flushes + [self._restart_broker] * restarts
        steps += [self._restart_database] * restarts if self._cluster is not None else []
        self._chance.shuffle(steps)
        return steps

    def next(self) -> str | None:
        """Does the next step; its kind where it may have taken work from somebody, else None."""
        step = self.left.pop()
        if not step():
            self.left.insert(self._chance.randrange(len(self.left) + 1), step)
            return None
        return None if step in (self._fault_post, self._fault_read) else step.__name__.strip("_")

    def pause_s(self) -> float:
        return self._chance.uniform(0.1, 1.5)

    # --- kills ---

    def _kill(self) -> bool:
        self._slow_down()
        (kind,) = self._chance.choices(list(KILLS), weights=list(KILLS.values()))
        role = f"worker{self._chance.randint(1, self._site.workers)}"
        hit = {
            "passes child": lambda: self._kill_child("passes", role),
            "writes child": lambda: self._kill_child("writes", role),
            "pool process": lambda: self._kill_pool_process(role),
            "worker parent": lambda: self._kill_and_start(role, self._site.kill_parent),
            "whole worker": lambda: self._kill_and_start(role, self._site.kill),
            "web": lambda: self._kill_and_start("web", self._site.kill),
        }[kind]()
        self.done.kills[kind] += hit
        return hit

    def _kill_child(self, queue: str, role: str) -> bool:
        if self._site.child(queue, role) is None:
            return False
        self._site.kill_child(queue, role)
        return True

    def _kill_pool_process(self, role: str) -> bool:
        """One process of the writes pool, as the kernel does it to whom has too much memory."""
        child = self._site.child("writes", role)
        pool = children(child) if child is not None else []
        if not pool:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._chance.choice(pool), signal.SIGKILL)
        return True

    def _kill_and_start(self, role: str, kill: Callable[[str], None]) -> bool:
        kill(role)
        self._site.spawn(role)
        return True

    def _slow_down(self) -> None:
        """The next calls take their time, and then the kill comes: it is meant to find somebody at work."""
        for match in SLOWED:
            self._fault(match, f"delay_after:{self._chance.uniform(0.5, 2.0):.2f}")
        wait_until(self._site.is_held, AIM_S)

    # --- broker, database, provider ---

    def _flush(self) -> bool:
        assert self._site.broker is not None
        with redis.Redis.from_url(self._site.broker.url, socket_timeout=5) as link:
            link.flushall()
        self.done.others["broker flushed"] += 1
        return True

    def _restart_broker(self) -> bool:
        assert self._site.broker is not None
        self._site.broker.kill()
        self._site.broker.start()
        self.done.others["broker killed"] += 1
        return True

    def _restart_database(self) -> bool:
        assert self._cluster is not None
        self._cluster.restart_at_once()
        self.done.others["database restarted"] += 1
        return True

    def _fault_post(self) -> bool:
        return self._fault("POST /v1/refunds", self._chance.choice(POST_FAULTS))

    def _fault_read(self) -> bool:
        return self._fault("GET /v1", self._chance.choice(READ_FAULTS))

    def _fault(self, match: str, mode: str) -> bool:
        with contextlib.suppress(calls.NoAnswer):
            self._business.fault(match, mode)
        return True
