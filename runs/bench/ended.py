"""The scenario `ended`: admission, the sweeper's pass and the list of approvals beside a million ended runs, and none.

Two sites of one making stand side by side on one PostgreSQL cluster; one has a past. They are asked in turns. Imports
no zone and no keeper.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agentsite import clock, env
from agentsite.private.processes import wait_until
from runs.bench import admission, premises, seeding
from runs.bench.numbers import above_zero, nearest, ratio, whole
from runs.bench.openloop import Answers
from runs.bench.premises import Json, Premises
from runs.chaos import calls
from runs.chaos.ground import SiteFailed
from runs.chaos.people import Staff
from runs.chaos.site import Site
from runs.chaos.workload import CAPTURED_AT, CURRENCY
from tools.adapters.http import Reply

FIRST, WAITING, WARM_UP = "bench-first", 30, 20
"""Approvals that wait on both sites: what the list shows is the same."""
PASSES, PAGES, ROUNDS = 30, 10, 3
MUST, AIM = 1.5, 1.2
LIMIT_S = 180.0
NEEDS_ME, DECIDED = "/admin/approvals/approval/", "/admin/approvals/approval/?view=decided"
SIZE = "SELECT pg_database_size(current_database())"
PENDING = "SELECT count(*) FROM approvals_approval WHERE status = 'pending'"
ENDED = "SELECT count(*) FROM runs_run WHERE completed_at IS NOT NULL"
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Side:
    """One site's times in milliseconds: admission from the moment a request was due; medians of passes and of pages.

    `ended`: runs that are over; `waiting`: approvals; `size_mb`: of its database, in 1,000,000 bytes; `refused`:
    answers but 202; `due`: runs that a pass found due, which none is.
    """

    ended: int
    size_mb: int
    admission_p50_ms: float
    admission_p95_ms: float
    sweep_ms: float
    list_ms: float
    decided_ms: float
    waiting: int
    refused: int
    due: int


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Both sides; `ratios`: the one with a past against the other. `seeded_s`: what making it took."""

    full: Side
    empty: Side
    ratios: dict[str, float | None]
    rounds: int
    rate: float
    seeded_s: float
    load: tuple[float, float]

    @property
    def fault(self) -> str | None:
        refused, due = self.full.refused + self.empty.refused, self.full.due + self.empty.due
        return f"{refused} requests refused, {due} runs due though none is" if refused or due else None

    def wire(self) -> dict[str, object]:
        return {**asdict(self), "must": MUST, "aim": AIM}

    def lines(self) -> list[tuple[str, str]]:
        full, empty = self.full, self.empty
        pairs = {
            "admission, p50": (full.admission_p50_ms, empty.admission_p50_ms),
            "admission, p95": (full.admission_p95_ms, empty.admission_p95_ms),
            "sweeper pass": (full.sweep_ms, empty.sweep_ms), "approval list": (full.list_ms, empty.list_ms),
            "list of what was decided": (full.decided_ms, empty.decided_ms),
        }  # fmt: skip
        told = [(name, f"{one} ms, {other} ms on the empty one") for name, (one, other) in pairs.items()]
        return [
            ("runs ended", f"{full.ended} in {full.size_mb} MB, seeded in {self.seeded_s:.0f} s; {empty.ended} on the "
                           f"empty one; {WAITING} approvals wait on both"),
            *told, *((f"ratio: {name}", f"{value} (must ≤ {MUST})") for name, value in self.ratios.items()),
            ("asked", f"in {self.rounds} rounds of turns; admission at {self.rate:g} requests a second"),
            ("load of the machine", f"{self.load[0]:.1f} before, {self.load[1]:.1f} after"),
        ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Asked:
    """`count` ended runs; `rounds` of turns, each with requests at `rate` a second for `seconds`."""

    count: int
    rounds: int = ROUNDS
    rate: float = 20.0
    seconds: float = 10.0


def measure(asked: Asked, say: Say) -> Figures:
    """Everything from the first server to the figures. Raises what `premises` raises."""
    with premises.premises() as grounds:
        say("starting private servers and a site, on which a few runs are made …")
        empty = grounds.site("empty")
        run_id = _some_runs(grounds, empty)
        full = grounds.copy(empty, "full")
        say(f"making {asked.count} ended runs …")
        began = clock.monotonic()
        seeding.fill(grounds.ground.cluster, full.database, run_id, asked.count, say)
        for site in (empty, full):
            premises.settle(site.database)
        seeded_s, load = clock.monotonic() - began, premises.load()
        say(f"seeded in {seeded_s:.0f} s; asking both sites in turns …")
        return _figures(asked, {"empty": _Asking(empty), "full": _Asking(full)}, seeded_s, load)


def _some_runs(grounds: Premises, site: Site) -> str:
    """One run that ended with a refund, and some that wait for a person; then the site stands still. The first's id."""
    orders = [f"bench-{number:06}" for number in range(WAITING)]
    grounds.business.control("/_seed", **charged_twice([FIRST, *orders]))
    premises.grant(site)
    site.start()
    _admit(site, [FIRST])
    wait(site, 1, "awaiting_approval")
    Staff(site.url).approve_all()
    wait(site, 1, "completed")
    _admit(site, orders)
    wait(site, WAITING, "awaiting_approval")
    site.kill()
    return str(premises.one(site, "SELECT id FROM runs_run WHERE status = 'completed'"))


def charged_twice(orders: Sequence[str]) -> Json:
    """What a business system must know of these orders, each of a customer of its own."""
    price = {"amount": "2000.00", "currency": CURRENCY}
    known = [
        {"order_id": o, "customer_id": f"cust_{o}", "total": price, "amount_due": price, "status": "delivered"}
        for o in orders
    ]
    paid = [
        {"payment_id": f"pay_{o}{n}", "order_id": o, "state": "captured", "amount": price, "captured_at": at}
        for o in orders for n, at in enumerate(CAPTURED_AT)
    ]  # fmt: skip
    return {"orders": known, "payments": paid}


def _admit(site: Site, orders: Sequence[str]) -> None:
    headers = {"Authorization": f"Bearer {site.token}"}
    for order in orders:
        body = admission.request(order)
        calls.document(calls.call("POST", f"{site.url}/api/v1/runs", headers=headers, body=body), 202)


def wait(site: Site, count: int, status: str) -> None:
    """Until so many runs are in a status. Raises SiteFailed where that never happens."""
    query = f"SELECT count(*) FROM runs_run WHERE status = '{status}'"  # noqa: S608 - a word of ours
    if not wait_until(lambda: int(premises.one(site, query)) >= count, LIMIT_S):
        told = site.rows("SELECT status, reason, count(*) FROM runs_run GROUP BY status, reason")
        raise SiteFailed(f"waited for {count} {status}: {told}\n{site.tails()}")


# --- one side ----------------------------------------------------------------------------------------------------


class _Person(Staff):
    """Somebody signed in, who looks at pages."""

    def page(self, path: str) -> Reply:
        if not self._cookies:
            self._sign_in()
        return calls.call("GET", self._url + path, headers=self._cookie())

    def took_ms(self, path: str) -> list[float]:
        """Whole answers, after one that warms. Raises calls.Refused."""
        times = []
        for number in range(PAGES + 1):
            began = clock.monotonic()
            reply = self.page(path)
            if reply.status != 200:
                raise calls.Refused(f"{reply.status} on {path}")
            times += [(clock.monotonic() - began) * 1000] if number else []
        return times


class _Asking:
    """One site, asked several times; its web process runs all the while, and no worker."""

    def __init__(self, site: Site) -> None:
        self.site, self.ended = site, int(premises.one(site, ENDED))
        self.waiting = int(premises.one(site, PENDING))
        self.size_mb = round(int(premises.one(site, SIZE)) / 1_000_000)
        self.sweeps, self.pages, self.decided = list[float](), list[float](), list[float]()
        self.answers, self.due = list[Answers](), 0
        self._person: _Person | None = None

    def start(self) -> None:
        self.site.start("web")
        self._person = _Person(self.site.url)
        admission.ask(self.site, "warm", WARM_UP, WARM_UP)

    def sweep(self) -> None:
        more = {"DATABASE_URL": self.site.database, "DJANGO_SETTINGS_MODULE": "agentsite.settings"}
        done = subprocess.run(  # noqa: S603 - a command of our own
            [sys.executable, "-m", "runs.bench.sweeping", f"--passes={PASSES}"], cwd=env.ROOT,
            env={**self.site.environment, **more}, capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise SiteFailed(f"sweeping: {done.stderr[-2000:]}")
        told = json.loads(done.stdout.splitlines()[-1])
        self.sweeps += told["took_ms"]
        self.due += told["found"]

    def look(self) -> None:
        assert self._person is not None
        self.pages += self._person.took_ms(NEEDS_ME)
        self.decided += self._person.took_ms(DECIDED)

    def ask(self, number: int, rate: float, seconds: float) -> None:
        self.answers.append(admission.ask(self.site, f"round{number}", max(1, round(rate * seconds)), rate))

    def side(self) -> Side:
        took_ms = [ms for answers in self.answers for ms in answers.took_ms]
        refused = sum(n for answers in self.answers for status, n in answers.statuses.items() if status != 202)
        return Side(
            ended=self.ended, size_mb=self.size_mb, admission_p50_ms=round(nearest(took_ms, 0.5), 1),
            admission_p95_ms=round(nearest(took_ms, 0.95), 1), sweep_ms=round(statistics.median(self.sweeps), 2),
            list_ms=round(statistics.median(self.pages), 1), decided_ms=round(statistics.median(self.decided), 1),
            waiting=self.waiting, refused=refused, due=self.due,
        )  # fmt: skip


def _figures(asked: Asked, sides: Mapping[str, _Asking], seeded_s: float, load: float) -> Figures:
    """What changes nothing comes first: a run that is admitted is due, and a pass would find it."""
    both = list(sides.values())
    for _ in range(asked.rounds):
        for side in both:
            side.sweep()
    for side in both:
        side.start()
    for _ in range(asked.rounds):
        for side in both:
            side.look()
    for number in range(asked.rounds):
        for side in both:
            side.ask(number, asked.rate, asked.seconds)
    full, empty = sides["full"].side(), sides["empty"].side()
    ratios = {
        "admission_p95": ratio(full.admission_p95_ms, empty.admission_p95_ms),
        "sweeper_pass": ratio(full.sweep_ms, empty.sweep_ms), "approval_list": ratio(full.list_ms, empty.list_ms),
    }  # fmt: skip
    return Figures(
        full=full, empty=empty, ratios=ratios, rounds=asked.rounds, rate=asked.rate, seeded_s=round(seeded_s, 1),
        load=(load, premises.load()),
    )  # fmt: skip


class _Ended:
    help = (
        "What is asked of a site with a million ended runs, and of one with none, in turns: POST /api/v1/runs, a pass "
        "of the sweeper, the approvers' list. The past is seeded by SQL as copies of one real run."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--count", type=whole, default=1_000_000, metavar="N", help="runs of the past (1000000)")
        parser.add_argument("--rounds", type=whole, default=ROUNDS, metavar="N", help="turns of each site (3)")
        parser.add_argument("--rate", type=above_zero, default=20.0, metavar="N", help="requests a second (20)")
        parser.add_argument("--seconds", type=above_zero, default=10.0, metavar="S", help="of requests, a turn (10)")

    def run(self, options: Mapping[str, Any], say: Say) -> Figures:
        asked = Asked(
            count=options["count"], rounds=options["rounds"], rate=options["rate"], seconds=options["seconds"]
        )  # fmt: skip
        return measure(asked, say)


SCENARIO = _Ended()
