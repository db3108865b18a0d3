"""A pass of the sweeper does not grow with what has ended, nor with what waits for people."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from agentsite import env
from tests.conftest import MakeSite, Say
from tests.scale import crowd
from tests.system.business import Business
from tests.system.people import Client, Staff
from tests.system.site import Site

pytestmark = [pytest.mark.own_services, pytest.mark.long]
FINISHED, PARKED, ROUNDS = 100_000, 10_000, 20
MOST_MS = {"P": 50.0, "S": 100.0}
LIMIT_S = 240


def one_of_each(site: Site) -> None:
    """A run that is over and one that waits for a person; then the site stands still."""
    site.start()
    runs = crowd.admit(Client(site), ["w1", "w2"])
    waiting = {order: Client(site).wait_for(run_id, "awaiting_approval") for order, run_id in runs.items()}
    Staff(site).approve(waiting["w1"]["approval"])
    assert Client(site).wait_for(runs["w1"], "completed")["outcome"] == "refunded"
    site.kill()


def measured(site: Site, finished: int, parked: int) -> Any:
    command = [sys.executable, "-m", "tests.scale.sweeps", str(finished), str(parked), str(ROUNDS)]
    environment = {**site.environment, "DATABASE_URL": site.database}
    done = subprocess.run(
        command, cwd=env.ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("setup", ["P", "S"])
def test_sweeper_pass_does_not_grow_with_what_is_over_or_parked(
    setup: str, make_site: MakeSite, business: Business, say: Say
) -> None:
    site = make_site(setup)
    crowd.prepare(site, business, ["w1", "w2"])
    one_of_each(site)
    few, many = measured(site, 1, 1), measured(site, FINISHED, PARKED)
    assert (many["finished"], many["parked"], many["found"]) == (FINISHED, PARKED, 0)
    database = {"P": "PostgreSQL", "S": "SQLite"}[setup]
    say(
        f"sweeper pass on {database}: {many['median_ms']:.1f} ms (p95 {many['p95_ms']:.1f}) with {FINISHED:,} runs "
        f"over and {PARKED:,} parked; {few['median_ms']:.1f} ms (p95 {few['p95_ms']:.1f}) with one of each"
    )
    assert many["median_ms"] < MOST_MS[setup], many["plan"]
