"""`bench refund`, a handful of runs on real processes: every figure is there, and the counts are what they must be."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import call_command

from runs.bench.goals import GOALS, ONE, SIX

pytestmark = [pytest.mark.own_services, pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    out = io.StringIO()
    call_command("bench", "refund", "--quick", "--json", stdout=out)
    (line,) = out.getvalue().splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def test_bench_refund_measures_every_engine(document: dict[str, Any]) -> None:
    assert list(document["engines"]) == sorted(["floor", ONE, SIX])
    for name, found in document["engines"].items():
        assert all(value > 0 for value in found.values()), (name, found)
        assert found["alone_p95_ms"] >= found["alone_p50_ms"]
        assert found["cpu_ms"] >= found["cpu_workers_ms"]


def test_bench_refund_judges_every_goal_that_is_about_it(document: dict[str, Any]) -> None:
    judged = [goal.judge({"refund": document}) for goal in GOALS if goal.scenario == "refund"]
    assert [one.goal.figure for one in judged if one.measured is None] == []


def test_floor_is_nine_commits_and_six_messages(document: dict[str, Any]) -> None:
    floor = document["engines"]["floor"]
    assert floor["messages"] == 6
    assert 9 <= floor["commits"] < 10  # the database's own housekeeping may commit, too
    assert floor["wal_kb"] < 8


def test_six_passes_a_task_take_fewer_messages(document: dict[str, Any]) -> None:
    one, six = (document["engines"][name]["messages"] for name in (ONE, SIX))
    assert six < one <= 7


def test_bench_refund_measures_the_embedded_default(document: dict[str, Any]) -> None:
    embedded = document["embedded"]
    assert embedded["default_cpu_ms"] > 0 and embedded["loop_cpu_ms"] > 0
    assert embedded["ratio"] > 0


def test_whole_bench_in_small_measures_every_goal() -> None:
    out = io.StringIO()
    call_command("bench", "--quick", "--json", stdout=out)
    whole = json.loads(out.getvalue())
    assert (whole["failed"], whole["goals"]) == ({}, None)
    assert [goal.figure for goal in GOALS if goal.judge(whole["scenarios"]).measured is None] == []
