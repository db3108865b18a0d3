"""Runs brought to the point of no return, and threads let loose on them at the same moment."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest
from django.db import connections

from agentsite import dbtime
from runs.advance import advance
from runs.models import Event, Run
from tests.system.business import Business
from tests.world import ENDED, World, final, reads, refund

T = TypeVar("T")
ALL_READS = ("get_order", "get_payments", "get_refund_status", "search_policy")
SPREAD_S = 0.06
"""A release takes about this long, so delays drawn from it put the other thread before, inside and after it."""
SURELY_S = 0.5


class Contest:
    """A world whose runs each have an order of their own, or share one."""

    def __init__(self, business: Business, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.business = business
        self.world = World(business, folder, patch)
        self.world.profile(aggregates={})  # a hundred refunds in one hour are no question here
        self.random = random.Random(8472)

    def people_are_needed_above(self, amount: str) -> None:
        self.world.limits(requires_approval_above=amount)

    def proposes(self, order_id: str, payment_id: str, *, request_id: str | None = None) -> Run:
        """A run about an order that exists, driven until its refund of 2,000.00 was allowed, or needs a person."""
        again = reads("get_refund_status", order_id=order_id)
        script = [reads(*ALL_READS, order_id=order_id), refund(payment_id, order_id=order_id), again, final()]
        run = self.world.admit(request_id or f"req-{order_id}", script, order_ids=[order_id])
        self.world.step(run)
        return self.world.fresh(run)

    def race(self, *contestants: Callable[[], T], first: int | None = None) -> list[T]:
        """Runs them at once, each with a connection of its own; what they returned.

        Each waits a short random while; with `first`, all but that one wait until it is surely over.
        """
        gate = threading.Barrier(len(contestants))
        draw = [self.random.uniform(0, SPREAD_S) for _ in contestants]
        waits_s = draw if first is None else [0.0 if n == first else SURELY_S for n in range(len(contestants))]

        def one(number: int) -> T:
            gate.wait()
            time.sleep(waits_s[number])
            try:
                return contestants[number]()
            finally:
                connections.close_all()

        with ThreadPoolExecutor(len(contestants)) as pool:
            return list(pool.map(one, range(len(contestants))))

    def finish(self, run: Run) -> Run:
        """Drives a run until it rests; what it waited for at this moment is over at once."""
        if self.world.fresh(run).status not in ENDED:
            Run.objects.filter(pk=run.pk).update(due_at=dbtime.now() - timedelta(seconds=1))
        return self.world.resume(run)

    def posts_on(self, order_id: str) -> int:
        return sum(1 for post in self.business.posts() if post["body"]["order_id"] == order_id)


def released(run: Run) -> Callable[[], object]:
    """One pass of the writes worker."""
    return lambda: advance(str(run.pk))


def seq_of(run: Run, kind: str) -> int | None:
    """Where the first event of a kind stands in a run's record, or None."""
    return Event.objects.filter(run=run, type=kind).order_by("seq").values_list("seq", flat=True).first()
