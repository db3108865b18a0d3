"""Customers and staff of a site on several machines, and the count at the end. Imports neither pytest nor Django."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from agentsite.private.processes import HOST
from runs.chaos import calls, verdict, workload
from runs.chaos.people import Shop, Staff
from runs.chaos.verdict import Measured
from runs.chaos.workload import Case
from tests.machines.fleet import Fleet

_numbers = itertools.count(1)
INVARIANTS = """
from types import SimpleNamespace as World
import httpx
from tests import invariants
here = httpx.HTTPTransport(local_address="{here}")
http = httpx.Client(base_url="{url}", timeout=30, trust_env=False, transport=here)
made, posts = http.get("/_state").json()["refunds"], http.get("/_calls?method=POST&path=/v1/refunds").json()["calls"]
sandbox = World(http=http, posts=lambda: posts)
invariants.check_all(World(may_over_refund=False, sandbox=sandbox, before=[], refunds=lambda: made, heard={{}}))
"""


@dataclass(frozen=True, kw_only=True)
class Doors:
    """They knock at the first machine whatever becomes of the others; `faults`: answers that nobody may get."""

    shop: Shop
    pool: ThreadPoolExecutor
    faults: list[str]

    def admit(self, cases: Collection[Case]) -> None:
        list(self.pool.map(lambda case: self.shop.admit(case.body()), cases))


@contextmanager
def opened(fleet: Fleet) -> Iterator[Doors]:
    """Whatever is asked is approved, until the block ends."""
    over, faults, staff = threading.Event(), list[str](), Staff(fleet.site.url)

    def approve() -> None:
        while not over.wait(0.3):
            try:
                staff.approve_all()
            except (calls.NoAnswer, calls.Refused) as error:
                faults.append(str(error))

    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(4))
        thread = threading.Thread(target=approve, daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(over.set)
        yield Doors(shop=Shop(fleet.site.url, fleet.site.token, over), pool=pool, faults=faults)


def some(fleet: Fleet, count: int) -> list[Case]:
    """Fresh cases of all kinds, known to the business system."""
    batch = next(_numbers)
    made = [
        replace(case, request_id=f"{case.request_id}-{batch}", order_id=f"{case.order_id}-{batch}")
        for case in workload.cases(count, seed=batch)
    ]
    fleet.seed(made)
    return made


def of_small_refunds(fleet: Fleet, count: int) -> list[Case]:
    """Fresh cases that no person is asked about, an order each."""
    batch, owed = next(_numbers), workload.PRICES[workload.SMALL]
    made = [
        Case(request_id=f"req-{n}-{batch}", order_id=f"o{n}-{batch}", kind=workload.SMALL, owed=owed)
        for n in range(count)
    ]  # fmt: skip
    fleet.seed(made)
    return made


def names(cases: Collection[Case]) -> set[str]:
    return {case.request_id for case in cases}


def nothing_lost_nothing_doubled(fleet: Fleet, faults: list[str]) -> None:
    """All that was ever asked, by the rows of the site and the ledger of the business system."""
    measured = Measured(kills={}, other_trouble={}, faults_met={}, recovery_s={}, recovered=0, took_s=0, doors=faults)
    refunds = fleet.business.made()
    found = verdict.judge(fleet.site, fleet.cases, refunds, measured)
    assert (found.lost, found.doubled, found.missing, found.stuck, found.doors) == ([], 0, 0, 0, [])
    assert found.completed == len(fleet.cases), fleet.told("not completed")
    owing = {case.order_id: 1 for case in fleet.cases if case.owed is not None}
    assert Counter(refund["order_id"] for refund in refunds) == owing
    fleet.site.manage("shell", "-v", "0", "-c", INVARIANTS.format(url=fleet.business.url, here=HOST))
    logs = [f"--anchors={log}" for host in fleet.hosts for log in host.logs() if log.exists()]
    assert fleet.site.manage("verify_audit", *logs).startswith("Whole: ")
