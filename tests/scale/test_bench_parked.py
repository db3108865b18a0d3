"""`bench parked` in small: every run is parked by the site itself, and each table's growth is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runs.bench.parked import Figures, Weight
from tests.scale.benched import bench

FIGURES = Figures(
    runs=10, parked=10, took_s=1.0, memory_mb=1.0, memory_before_mb=400.0, server_mb=1.0, redis_mb=0.0, idle=0.1,
    idle_postgres=0.1, idle_redis=0.1, window_s=15.0, bytes_a_run=5000, vacuumed_bytes_a_run=5000,
    weights=(Weight(table="runs_run", rows=3000, apart=1000, indexes=1000, number_of_indexes=9),), index_bytes={},
    elsewhere={"awaiting_approval": 10}, load=(0.0, 0.0),
)  # fmt: skip


@pytest.mark.own_services
@pytest.mark.long
@pytest.mark.timeout(900)
def test_bench_parked_parks_every_run_and_weighs_it() -> None:
    found = bench("parked", "--runs=12", "--window=1")
    assert (found["runs"], found["parked"]) == (12, 12)
    assert found["elsewhere"] == {"awaiting_approval": 12 + 20}  # with those that warmed it up
    weights = {one["table"]: one for one in found["weights"]}
    assert {"runs_run", "runs_event", "approvals_approval"} <= set(weights)
    assert found["kb_a_run"] == pytest.approx(found["bytes_a_run"] / 1000, abs=0.001)
    assert found["memory_before_mb"] > 50
    assert min(found["idle"], found["idle_postgres"], found["idle_redis"]) >= 0


def test_bench_parked_fails_where_a_run_is_elsewhere() -> None:
    assert FIGURES.fault is None
    lost = replace(FIGURES, parked=9, elsewhere={"awaiting_approval": 9, "escalated loop_detected": 1})
    assert lost.fault == "9 of 10 runs are parked: {'awaiting_approval': 9, 'escalated loop_detected': 1}"


def test_weight_of_a_table_is_rows_what_lies_apart_and_indexes() -> None:
    assert FIGURES.weights[0].all == 5000
