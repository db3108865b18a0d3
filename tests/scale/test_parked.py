"""Runs that wait for a person cost next to nothing, and survive everything that can end around them."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from agentsite import env
from agentsite.private.processes import children, command_of, spawn
from tests.conftest import MakeSite, Say
from tests.scale import copies, cpu, crowd
from tests.system.business import Business
from tests.system.people import Client, Staff
from tests.system.site import Ground, Site

pytestmark = [pytest.mark.own_services, pytest.mark.long]
IDLE_SHARE = 0.03
WINDOW_S = 25.0
SETTLE_S = 8.0
AS_SHIPPED = {"SWEEP_S": "1", "LEASE_S": "15", "RETRY_S": "2", "PASSES_THREADS": "16", "WRITES_PROCESSES": "2"}


def park_copies(site: Site, count: int) -> None:
    """Copies of a run that is parked at this moment, whole."""
    with psycopg.connect(site.database, autocommit=True) as postgres:
        row = postgres.execute("SELECT id FROM runs_run WHERE status = 'awaiting_approval' LIMIT 1").fetchone()
        assert row is not None
        with postgres.transaction():
            copies.make(postgres.cursor(), row[0], count, new_id=lambda made: made)
        postgres.execute("VACUUM ANALYZE")


@contextmanager
def beat_of(site: Site) -> Iterator[int]:
    """Beat as the Procfile starts it; its pid."""
    command = [sys.executable, "-m", "celery", "-A", "agentsite", "beat", f"--schedule={site.folder / 'beat'}"]
    beat = spawn(command, site.environment, cwd=env.ROOT, log=site.folder / "beat.log")
    try:
        yield beat.pid
    finally:
        beat.kill()
        beat.wait()


def pids_of(site: Site) -> dict[str, int]:
    """The site's own first processes by their role, and its broker."""
    marks = {"web": f"web --port {site.port} "} | {role: f"worker --name {role} " for role in site.roles[1:]}
    mine = {pid: command_of(pid) for pid in children(os.getpid())}
    found = {role: pid for role, mark in marks.items() for pid, command in mine.items() if mark in command}
    assert set(found) == set(site.roles) and site.broker is not None
    return found | {"redis": site.broker.pid}


@pytest.mark.timeout(600)
def test_ten_thousand_parked_runs_cost_under_three_percent_of_a_core(
    make_site: MakeSite, ground: Ground, business: Business, say: Say
) -> None:
    site = make_site("P", **AS_SHIPPED)
    orders = crowd.names("p", 20)
    crowd.prepare(site, business, orders)
    site.start()
    crowd.admit(Client(site), orders)
    crowd.wait_for(site, len(orders), "awaiting_approval", limit_s=90)
    park_copies(site, 10_000 - len(orders))
    assert crowd.count_of(site, "awaiting_approval") == 10_000
    with beat_of(site) as beat:
        time.sleep(SETTLE_S)
        roots = {**pids_of(site), "beat": beat, "postgres": ground.cluster.pid}
        used = cpu.measure(roots, WINDOW_S)
    say(f"idle with 10,000 parked runs:\n    {used.table()}")
    assert crowd.count_of(site, "awaiting_approval") == 10_000
    assert used.share < IDLE_SHARE


@pytest.mark.timeout(1200)
def test_thousand_parked_runs_outlive_every_process_and_the_broker(
    make_site: MakeSite, ground: Ground, business: Business, say: Say
) -> None:
    site = make_site("P", workers=2)
    assert site.broker is not None
    orders = crowd.names("k", 1000)
    crowd.prepare(site, business, orders)
    site.start()
    began = time.monotonic()
    crowd.admit(Client(site), orders)
    crowd.wait_for(site, len(orders), "awaiting_approval", limit_s=600)
    parked_s = time.monotonic() - began
    before = {approval["approval_id"]: approval for approval in crowd.waiting(Staff(site))}
    assert len(before) == 1000

    site.kill()
    site.broker.kill()
    ground.cluster.restart_at_once()
    site.broker.start()
    began = time.monotonic()
    site.start()
    staff = Staff(site)
    listed = {approval["approval_id"]: approval for approval in crowd.waiting(staff)}
    back_s = time.monotonic() - began
    assert {key: a["expires_at"] for key, a in listed.items()} == {key: a["expires_at"] for key, a in before.items()}
    assert business.posts() == []

    chosen = list(listed.values())[::10]
    began = time.monotonic()
    answers = crowd.approve_at_once(staff, chosen)
    clicked_s = time.monotonic() - began
    assert [answer.status_code for answer in answers] == [200] * 100
    crowd.wait_for(site, 100, "completed", limit_s=120)
    done_s = time.monotonic() - began
    say(
        f"1,000 runs parked in {parked_s:.0f} s; all listed {back_s:.1f} s after everything was killed; "
        f"100 approved at once in {clicked_s:.1f} s and refunded in {done_s:.1f} s"
    )
    check_one_hundred_refunded(site, business, [a["action"]["args"]["order_id"] for a in chosen])
    left = {approval["approval_id"]: approval["expires_at"] for approval in crowd.waiting(staff)}
    gone = {approval["approval_id"] for approval in chosen}
    assert left == {key: a["expires_at"] for key, a in before.items() if key not in gone}


def check_one_hundred_refunded(site: Site, business: Business, orders: list[str]) -> None:
    """One refund on each of these orders, none elsewhere, and nothing else moved."""
    assert Counter(refund["order_id"] for refund in business.made()) == Counter(dict.fromkeys(orders, 1))
    assert len(business.posts()) == 100
    ended = site.rows("SELECT o.order_id FROM runs_run r JOIN runs_runorder o ON o.run_id = r.id "
                      "WHERE r.status = 'completed' AND r.outcome = 'refunded'")  # fmt: skip
    assert sorted(row[0] for row in ended) == sorted(orders)
    assert crowd.count_of(site, "awaiting_approval") == 900
