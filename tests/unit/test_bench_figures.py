"""The arithmetic of `bench`: medians of rounds, ratios within a round, verdicts, what a log of changes says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from runs.bench import wal
from runs.bench.embedded import Embedded
from runs.bench.figures import Costs, Figures, against, medians
from runs.bench.goals import GOALS, ONE, SIX, Goal
from runs.bench.table import Table

GOAL = Goal(figure="a thing", scenario="refund", path=("engines", "ours", "wal_kb"), must=24, aim=12)
DUMPED = """\
rmgr: Heap        len (rec/tot):    176/   176, tx:        751, lsn: 0/01A5D5B0, prev 0/01A5D578, desc: INSERT off 7 \
flags 0x00, blkref #0: rel 1663/16384/16783 blk 0
rmgr: Btree       len (rec/tot):     64/  6064, tx:        751, lsn: 0/01A5D660, prev 0/01A5D5B0, desc: INSERT_LEAF \
off 3, blkref #0: rel 1663/16384/16790 blk 1 FPW
rmgr: Transaction len (rec/tot):     34/    34, tx:        751, lsn: 0/01A5D6A0, prev 0/01A5D660, desc: COMMIT \
2026-11-30 20:00:00.000000 UTC
rmgr: Transaction len (rec/tot):     34/    34, tx:        752, lsn: 0/01A5D6C8, prev 0/01A5D6A0, desc: ABORT \
2026-11-30 20:00:00.000000 UTC
pg_waldump: first record is after 0/1A5D578, at 0/1A5D5B0, skipping over 56 bytes
"""


def costs(*alone_s: float, **given: float) -> Costs:
    rest = dict.fromkeys(
        ("commits", "wal_kb", "messages", "rate", "cpu_ms", "cpu_workers_ms", "cpu_database_ms", "driver_cpu_ms",
         "memory_mb"), 1.0,
    )  # fmt: skip
    return Costs(alone_s=alone_s, **{**rest, **given})


def figures(ours: Costs, floor: Costs) -> Figures:
    return Figures(
        rounds=({ONE: ours, SIX: ours, "floor": floor},), embedded=Embedded(default_ms=(60.0,), loop_ms=(20.0,)),
        size={"rounds": 1}, load=(0.0, 0.1),
    )  # fmt: skip


def test_medians_are_of_the_rounds_and_percentiles_of_each() -> None:
    found = medians([costs(0.010, 0.020, 0.090, rate=10), costs(0.030, rate=50), costs(0.040, 0.050, rate=20)])
    assert (found["alone_p50_ms"], found["alone_p95_ms"], found["rate"], found["commits"]) == (30, 50, 20, 1)


def test_ratio_is_the_median_of_each_rounds_own_one() -> None:
    """The second round was slow for both: its ratio counts, its figures do not spoil the others'."""
    ours = [costs(0.02, rate=40, cpu_ms=20), costs(0.5, rate=2, cpu_ms=300), costs(0.03, rate=60, cpu_ms=30)]
    floor = [costs(0.01, rate=80, cpu_ms=10), costs(0.1, rate=8, cpu_ms=100), costs(0.01, rate=80, cpu_ms=20)]
    assert against(ours, floor) == {"alone_p50": 3.0, "rate": 0.5, "cpu": 2.0}


@pytest.mark.parametrize(
    ("value", "verdict"), [(12, "aim met"), (12.1, "met"), (24, "met"), (24.1, "MISSED"), (None, "not measured")]
)
def test_verdict_of_what_is_better_the_less_there_is(value: float | None, verdict: str) -> None:
    judged = GOAL.judge({"refund": {"engines": {"ours": {"wal_kb": value}}}})
    assert (judged.verdict, judged.measured) == (verdict, value)


@pytest.mark.parametrize(("value", "verdict"), [(0.59, "MISSED"), (0.6, "met"), (0.79, "met"), (0.8, "aim met")])
def test_verdict_of_what_is_better_the_more_there_is(value: float, verdict: str) -> None:
    goal = Goal(figure="runs/s", scenario="refund", path=("rate",), must=0.6, aim=0.8, at_least=True)
    judged = goal.judge({"refund": {"rate": value}})
    assert judged.verdict == verdict
    assert judged.line() == ("runs/s", f"{value:g}  must ≥ 0.6, aim ≥ 0.8: {verdict}")


@pytest.mark.parametrize("documents", [{}, {"refund": {}}, {"refund": {"engines": {"ours": None}}}, {"refund": None}])
def test_what_was_not_measured_is_never_met(documents: Mapping[str, Any]) -> None:
    assert GOAL.judge(documents).verdict == "not measured"


def test_goals_find_their_figures_in_what_refund_says() -> None:
    measured = figures(costs(0.02, rate=8, cpu_ms=20, messages=6), costs(0.01, rate=10, cpu_ms=20))
    table = Table(measured={"refund": measured})
    found = {one.goal.figure: (one.measured, one.verdict) for one in table.judged if one.goal.scenario == "refund"}
    assert len(found) == 13 and all(value is not None for value, _ in found.values())
    assert found["runs/s many at once, against the floor, one pass a task"] == (0.8, "aim met")
    assert found["runs/s many at once, against the floor, six passes a task"] == (0.8, "MISSED")
    assert found["one run alone, p50, against the floor, six passes a task"] == (2.0, "MISSED")
    assert found["CPU a run, against the floor, one pass a task"] == (1.0, "met")
    assert found["messages a run, one pass a task"] == (6.0, "met")
    assert found["embedded default, CPU a run, against the loop with no broker"] == (3.0, "met")


def test_a_missed_goal_is_no_fault_and_what_was_not_measured_is() -> None:
    measured = figures(costs(9.0), costs(0.01))
    assert Table(measured={"refund": measured}).fault is None
    assert Table(measured={}, failed={"refund": "2 of 3 runs"}).fault == "refund: 2 of 3 runs"
    assert {one.verdict for one in Table(measured={}, failed={"refund": "lost"}).judged} == {"not measured"}


def test_every_goal_says_more_is_aimed_at_than_must_be() -> None:
    assert [g.figure for g in GOALS if (g.aim < g.must) == g.at_least] == []
    assert len({g.figure for g in GOALS}) == len(GOALS)


def test_log_of_changes_counts_commits_and_bytes_without_whole_pages() -> None:
    written = wal.read(DUMPED)
    assert (written.commits, written.bytes) == (1, 176 + 64 + 34 + 34)
    assert written.by_place[("Btree INSERT_LEAF", "16790")] == 64
    assert written.records[("Heap INSERT", "16783")] == 1
