"""Door: one crash campaign: private servers and site, customers at work, trouble by a seed, then the count.

It ends by itself within its deadline, whatever becomes of the site, and leaves no process and no file behind.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg

from agentsite import clock
from agentsite.private.binaries import postgres_bindir, redis_binary
from runs.chaos import calls, verdict, workload
from runs.chaos.business import KINDS, BusinessSystem
from runs.chaos.ground import POSTGRES_REDIS, SQLITE_REDIS, TENANT, Ground
from runs.chaos.people import Shop, Staff
from runs.chaos.site import QUEUES, Site
from runs.chaos.trouble import Trouble
from runs.chaos.verdict import Measured, Verdict
from runs.chaos.watch import Watch

SETUPS = {"postgres": POSTGRES_REDIS, "sqlite": SQLITE_REDIS}
CUSTOMERS = 8
LOOK_S = 0.2
STAFF_S, PENDING_FOR_S = 0.3, 3.0
# No trouble while fewer than this share of a queue's workers lives: then nothing is under way that could be lost.
LIVING_SHARE = 0.5
REVIVAL_S = 30.0
LOAD_ENDS_AT = 0.85
AWAY = (psycopg.OperationalError, psycopg.InterfaceError, sqlite3.OperationalError)
PERIODS = {
    "PENDING_POLL_S": "1", "RECONCILE_FOR_S": "120", "VERIFY_FOR_S": "60", "WRITES_PROCESSES": "1",
    "PASSES_THREADS": "4", "LOG_FORMAT": "json",
}  # fmt: skip
SCRIPT = {
    "turns": [{"say": {"tool": "search_policy", "args": {"query": "charged twice"}, "evidence": []}, "delay_s": 0.8}],
    "then": "offline",
}  # fmt: skip
RECORD = (
    "SELECT r.request_id, e.seq, e.type, e.at, e.version, e.meta FROM runs_event e JOIN runs_run r ON r.id = e.run_id "
    "ORDER BY r.request_id, e.seq"
)
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is asked of a campaign; `deadline_s` bounds all of it after the site is up."""

    runs: int
    database: str
    workers: int
    seed: int
    provider: str
    deadline_s: float
    keep: Path | None = None


def run(order: Order, say: Say) -> Verdict:
    """Everything from the first server to the count. Raises SiteFailed, ServiceError or MissingServer."""
    _need_servers(order.database)
    folder = Path(tempfile.mkdtemp(prefix="agentsite-chaos-"))
    try:
        with ExitStack() as stack:
            ground = stack.enter_context(Ground())
            kind = KINDS[order.provider]
            business, route = BusinessSystem(folder, kind), _route(folder)
            stack.callback(business.close)
            site = Site(
                SETUPS[order.database], ground, folder / "site", business.url, workers=order.workers,
                AGENT_MODELS=route, **PERIODS, **kind.promises,
            )  # fmt: skip
            stack.callback(site.close)
            site.create_tenant(TENANT, workload.PROFILE)
            site.manage("qualify", route, "--reason", "the offline model, after a slow first turn")
            say(f"starting {order.workers} workers and the web process on {order.database} and Redis …")
            site.start()
            cluster = ground.cluster if order.database == "postgres" else None
            trouble = Trouble(site, business, cluster, runs=order.runs, seed=order.seed)
            found = Campaign(order, site, business, trouble, say).run()
            if order.keep is not None:
                (folder / "records.jsonl").write_text(records(site))
            return found
    finally:
        if order.keep is not None:
            shutil.copytree(folder, order.keep, dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def _need_servers(database: str) -> None:
    """Raises MissingServer before anything is prepared."""
    redis_binary()
    if database == "postgres":
        postgres_bindir()


def records(site: Site) -> str:
    """Every event of every run, one a line in its order: what there is to read where a campaign failed."""
    rows = site.rows(RECORD)
    names = ("request_id", "seq", "type", "at", "version", "meta")
    return "".join(json.dumps(dict(zip(names, map(str, row), strict=True))) + "\n" for row in rows)


def _route(folder: Path) -> str:
    """A model that takes a moment before its first answer, so that kills find model calls too."""
    script = folder / "script.json"
    script.write_text(json.dumps(SCRIPT))
    return f"scripted:{script}"


class Campaign:
    """Customers and staff in threads; kills and restarts in this one, which the processes are bound to."""

    def __init__(self, order: Order, site: Site, business: BusinessSystem, trouble: Trouble, say: Say) -> None:
        self._order, self._site, self._business, self._trouble, self._say = order, site, business, trouble, say
        self._cases = workload.cases(order.runs, order.seed)
        self._watch, self._over = Watch(site), threading.Event()
        self._faults: list[str] = []

    def run(self) -> Verdict:
        """Raises calls.Refused where the site answered a customer or staff as it never may."""
        self._business.control("/_seed", **workload.seed_of(self._cases))
        started = clock.monotonic()
        self._ends_at = started + self._order.deadline_s
        staff = [threading.Thread(target=work, daemon=True) for work in (self._staff, self._clerk)]
        for thread in staff:
            thread.start()
        with ThreadPoolExecutor(CUSTOMERS) as customers:
            asked = self._under_fire(customers)
            self._say(f"trouble is over after {clock.monotonic() - started:.0f} s; waiting for every run to end …")
            self._until_all_end()
            self._over.set()
        for thread in staff:
            thread.join()
        self._faults += [str(error) for future in asked if (error := future.exception()) is not None]
        return self._count(clock.monotonic() - started)

    # --- the trouble ---

    def _under_fire(self, customers: ThreadPoolExecutor) -> list[Future[None]]:
        """Does the plan step by step, letting customers in at such a pace that runs are under way all the time."""
        shop, waiting = Shop(self._site.url, self._site.token, self._over), list(self._cases)
        steps = len(self._trouble.left)
        pace, asked = len(waiting) / (steps * LOAD_ENDS_AT), list[Future[None]]()
        for number in range(1, 10 * steps):
            while waiting and len(asked) < number * pace:
                asked.append(customers.submit(shop.admit, waiting.pop(0).body()))
            if not self._trouble.left or clock.monotonic() > self._ends_at:
                break
            self._revive()
            self._strike()
            self._wait(self._trouble.pause_s())
        asked += [customers.submit(shop.admit, case.body()) for case in waiting]
        return asked

    def _strike(self) -> None:
        hit = self._trouble.next()
        if hit is not None:
            with suppress(*AWAY):
                self._watch.hit()

    def _revive(self) -> None:
        """Waits, within a limit, until every queue has workers enough again; starts what ended by itself."""
        enough, until = self._site.workers * LIVING_SHARE, clock.monotonic() + REVIVAL_S
        while clock.monotonic() < min(until, self._ends_at):
            self._restart_ended()
            with suppress(*AWAY):
                living = self._site.consumers()
                if all(living[queue] >= enough for queue in QUEUES):
                    return
            self._wait(LOOK_S)

    def _restart_ended(self) -> None:
        """As a supervisor would: a process that gave up, say for a database that is away, is started again."""
        for role in self._site.ended():
            self._trouble.done.others[f"{role.rstrip('0123456789')} gave up"] += 1
            self._site.kill(role)
            self._site.spawn(role)

    def _wait(self, seconds: float) -> None:
        until = clock.monotonic() + seconds
        while True:
            with suppress(*AWAY):
                self._watch.look()
            left = until - clock.monotonic()
            if left <= 0:
                return
            self._over.wait(min(LOOK_S, left))

    def _until_all_end(self) -> None:
        while clock.monotonic() < self._ends_at:
            self._restart_ended()
            with suppress(*AWAY):
                if self._all_ended():
                    return
            self._wait(LOOK_S)

    def _all_ended(self) -> bool:
        ended = sum(1 for row in self._site.rows(verdict.RUNS) if row[1] in verdict.ENDED)
        return ended == len(self._cases)

    # --- people ---

    def _staff(self) -> None:
        """Approves what is asked, until the campaign is over; a site that is away is asked again."""
        staff = Staff(self._site.url)
        while not self._over.wait(STAFF_S):
            try:
                staff.approve_all()
            except calls.NoAnswer:
                continue
            except calls.Refused as refused:
                self._faults.append(f"staff was refused: {refused}")

    def _clerk(self) -> None:
        """Lets pending refunds succeed, some time after they were made."""
        while not self._over.wait(PENDING_FOR_S):
            with suppress(calls.NoAnswer):
                self._business.settle_pending()

    # --- the count ---

    def _count(self, took_s: float) -> Verdict:
        done, recovered_s = self._trouble.done, self._watch.recovered_s
        measured = Measured(
            kills=dict(done.kills), other_trouble=dict(done.others), faults_met=dict(self._business.faults_met()),
            recovery_s=verdict.percentiles(recovered_s), recovered=len(recovered_s), took_s=round(took_s, 1),
            doors=sorted(set(self._faults)),
        )  # fmt: skip
        return verdict.judge(self._site, self._cases, self._business.refunds(), measured)
