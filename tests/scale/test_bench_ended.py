"""`bench ended` in small: a site with a past beside one without, and the same asked of both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runs.bench.ended import WAITING, Figures, Side
from tests.scale.benched import bench

SIDE = Side(
    ended=1, size_mb=10, admission_p50_ms=5.0, admission_p95_ms=9.0, sweep_ms=3.0, list_ms=40.0, decided_ms=30.0,
    waiting=WAITING, refused=0, due=0,
)  # fmt: skip
FIGURES = Figures(full=SIDE, empty=SIDE, ratios={}, rounds=3, rate=20.0, seeded_s=1.0, load=(0.0, 0.0))


@pytest.mark.own_services
@pytest.mark.long
@pytest.mark.timeout(900)
def test_bench_ended_asks_both_sites_in_small() -> None:
    found = bench("ended", "--count=300", "--rounds=1", "--rate=5", "--seconds=1")
    full, empty = found["full"], found["empty"]
    assert (full["ended"], empty["ended"]) == (301, 1)
    assert full["waiting"] == empty["waiting"] == WAITING
    assert [side["refused"] + side["due"] for side in (full, empty)] == [0, 0]
    assert set(found["ratios"]) == {"admission_p95", "sweeper_pass", "approval_list"}
    assert all(value > 0 for value in found["ratios"].values())


def test_bench_ended_fails_where_a_pass_finds_what_is_over() -> None:
    assert FIGURES.fault is None
    assert replace(FIGURES, full=replace(SIDE, due=1)).fault is not None
    assert replace(FIGURES, empty=replace(SIDE, refused=1)).fault is not None
