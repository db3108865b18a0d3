"""Two complete deployments on one database, one of them killed, where only one can read what the other admits.

On PostgreSQL they share one Redis as a rolling deploy does: each hint may reach the release that cannot use it. The two
embedded processes on one file have a broker each: each hint may lie in the process that is dead.
"""

from __future__ import annotations

import random
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentsite import env
from agentsite.private.processes import spawn, wait_until
from tests.conftest import Say
from tests.system.business import Business
from tests.system.people import ENDED, Client, Json, Staff, request_8472
from tests.system.site import STUCK_S, Ground, Site

pytestmark = pytest.mark.own_services

RUNS = 2
CONSUMED = ("passes", "writes")
LEFT_OUT = (".git", ".venv", "var", "docs", "tests", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache")
NEWER = {
    "runs/contracts.py": [
        ("\nSCHEMA = 4\n", "\nSCHEMA = 5\n"),
        ("bool\n    profile_revision: int\n", "bool\n    tone: str = 'warm'\n    profile_revision: int\n"),
    ],
    "runs/store/admit.py": [("[accepted])", "[accepted, NewEvent(type='run.greeted', meta={'tone': 'warm'})])")],
}  # fmt: skip
"""What a next release might change: a contract with one more field, its schema number, and an event of a new type."""


class Deployment(Site):
    """A site that runs from a tree of its own, and may stand on the store and the broker of another."""

    tree = env.ROOT

    def joins(self, first: Site) -> None:
        """Before the start: the other's database, and its broker where there is one."""
        self.database, self.token = first.database, first.token
        for name in ("DATABASE_URL", "BROKER_URL", "VAR_DIR"):
            if name in first.environment:
                self.environment[name] = first.environment[name]

    def spawn(self, role: str) -> None:
        kind = role.rstrip("0123456789")
        more = ["--port", str(self.port)] if kind in ("up", "web") else ["--name", role, "--queues", ",".join(CONSUMED)]
        command = [sys.executable, "manage.py", kind, *more]
        self._running[role] = spawn(command, self.environment, cwd=self.tree, log=self.folder / f"{role}.log")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two deployments and whoever knocks at their doors."""

    older: Deployment
    newer: Deployment
    business: Business
    roles: dict[str, tuple[str, ...]]

    def open_cases(self, site: Site, prefix: str) -> dict[str, str]:
        """Run ids by order, admitted through one of the two."""
        orders, client = [f"{prefix}{n}" for n in range(RUNS)], Client(site)
        self.business.seed_double_charges(*orders)
        return {order: client.admit(request_8472(f"req-{order}", order_id=order)) for order in orders}

    def start(self, site: Site) -> None:
        for role in self.roles[site.environment["RELEASE"]]:
            site.spawn(role)

    def serves(self) -> None:
        """Both do, with every consumer."""
        assert wait_until(lambda: self.older.answers() and self.newer.answers(), STUCK_S), self.older.tails()
        consumers = len(CONSUMED) * sum(role.startswith("worker") for roles in self.roles.values() for role in roles)
        assert wait_until(lambda: self.older.consumers().total() == consumers, STUCK_S), self.newer.tails()

    def all_finish(self, through: Site, runs: dict[str, str]) -> list[Json]:
        """Each run completes by itself once somebody approved it, with one refund that was asked for once."""
        client, staff = Client(through), Staff(through)
        for run_id in runs.values():
            approve(client, staff, run_id)
        ended = [client.wait_for(run_id, "completed") for run_id in runs.values()]
        for order, run in zip(runs, ended, strict=True):
            (refund,) = self.business.made_on(order)
            assert (refund["payment_id"], run["outcome"]) == (f"pay_{order}b", "refunded")
            assert len([p for p in self.business.posts() if p["body"]["order_id"] == order]) == 1
            assert len(client.runs(request_id=f"req-{order}")) == 1
        return ended


def approve(client: Client, staff: Staff, run_id: str) -> None:
    """Where nobody did yet."""
    assert wait_until(lambda: client.run(run_id)["approval"] is not None, STUCK_S), client.told(run_id, "no approval")
    approval = client.run(run_id)["approval"]
    if approval["status"] == "pending":
        staff.approve(approval)


def releases(runs: list[Json]) -> set[str]:
    return {run["versions"]["release"] for run in runs}


def moment(say: Say) -> None:
    """Some time in the life of a run, another one in each session."""
    pause_s = random.uniform(0.2, 2.5)
    time.sleep(pause_s)
    say(f"killed after {pause_s:.2f} s")


def next_release(folder: Path) -> Path:
    """A copy of the tree with the changes of NEWER."""
    tree = folder / "newer"
    shutil.copytree(env.ROOT, tree, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
    for name, changes in NEWER.items():
        text = (tree / name).read_text()
        for old, new in changes:
            assert text.count(old) == 1, f"{name} no longer holds {old!r} once"
            text = text.replace(old, new)
        (tree / name).write_text(text)
    return tree


@pytest.fixture(scope="module")
def pair(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """P: two code versions, one Redis."""
    folder = tmp_path_factory.mktemp("versions")
    with Business(folder / "business.sqlite3") as business:
        older = Deployment("P", ground, folder / "older-site", business.url, RELEASE="1.0")
        newer = Deployment("P", ground, folder / "newer-site", business.url, RELEASE="2.0")
        newer.tree = next_release(folder)
        newer.joins(older)
        roles: dict[str, tuple[str, ...]] = {"1.0": ("web", "worker1"), "2.0": ("web", "worker2")}
        both = Pair(older=older, newer=newer, business=business, roles=roles)
        try:
            both.start(older)
            both.start(newer)
            yield both
        finally:
            newer.close()
            older.close()


def test_runs_that_only_the_newer_release_can_read_wait_for_it_and_harm_nobody(pair: Pair, say: Say) -> None:
    pair.serves()
    mine, others = pair.open_cases(pair.older, "c"), pair.open_cases(pair.newer, "d")
    moment(say)
    pair.newer.kill()
    assert releases(pair.all_finish(pair.older, mine)) == {"1.0"}
    client = Client(pair.older)
    for run_id in others.values():
        assert client.run(run_id)["status"] not in ENDED, client.told(run_id, "the older release ended it")
        assert "run.greeted" in [event["type"] for event in client.events(run_id)]
    pair.start(pair.newer)
    back_at = time.monotonic()
    assert releases(pair.all_finish(pair.older, others)) == {"2.0"}
    say(f"newer back: its {RUNS} runs finished {time.monotonic() - back_at:.1f} s after")


@pytest.mark.long
def test_runs_of_both_releases_finish_on_the_newer_when_the_older_dies(pair: Pair, say: Say) -> None:
    pair.serves()
    mine, others = pair.open_cases(pair.older, "a"), pair.open_cases(pair.newer, "b")
    moment(say)
    pair.older.kill()
    killed_at = time.monotonic()
    assert releases(pair.all_finish(pair.newer, mine)) == {"1.0"}
    assert releases(pair.all_finish(pair.newer, others)) == {"2.0"}
    say(f"older killed: {2 * RUNS} runs finished {time.monotonic() - killed_at:.1f} s after")


def test_two_embedded_processes_share_one_file_and_one_dies(ground: Ground, tmp_path: Path, say: Say) -> None:
    with Business(tmp_path / "business.sqlite3") as business:
        one = Deployment("E", ground, tmp_path / "one", business.url, RELEASE="1.0")
        other = Deployment("E", ground, tmp_path / "other", business.url, RELEASE="2.0")
        other.joins(one)
        roles: dict[str, tuple[str, ...]] = {"1.0": ("up",), "2.0": ("up",)}
        both = Pair(older=one, newer=other, business=business, roles=roles)
        try:
            both.start(one)
            both.start(other)
            both.serves()
            runs, others = both.open_cases(one, "e"), both.open_cases(other, "f")
            moment(say)
            one.kill()
            killed_at = time.monotonic()
            assert releases(both.all_finish(other, runs)) == {"1.0"}
            assert releases(both.all_finish(other, others)) == {"2.0"}
            say(f"one of two embedded killed: {2 * RUNS} runs finished {time.monotonic() - killed_at:.1f} s after")
        finally:
            one.close()
            other.close()
