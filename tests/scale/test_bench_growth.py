"""`bench growth` in small, and the world its runs grow in: what an order says, when a run ends."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace

import pytest

from runs.bench import growth
from runs.bench.growth import Figures, Grown
from tests.bench import growing
from tests.scale.benched import bench

GROWN = Grown(
    calls=4, kb=40.0, kb_a_step=8.0, whole_kb_a_step=10.0, step_ms=9.0, first_ms=9.0, last_ms=9.0
)  # fmt: skip
FIGURES = Figures(
    runs=(GROWN,), bare_kb=8.0, kb_ratio=1.0, ms_ratio=1.0, rounds=3, passes=1, wrong=[], load=(0.0, 0.0)
)  # fmt: skip


@pytest.mark.own_services
@pytest.mark.long
@pytest.mark.timeout(900)
def test_bench_growth_measures_each_length_in_small() -> None:
    found = bench("growth", "--calls=2,6", "--rounds=1")
    assert [run["calls"] for run in found["runs"]] == [2, 6]
    assert found["wrong"] == []
    for run in found["runs"]:
        assert run["kb_a_step"] > 2, "less than the observation alone"
        assert run["whole_kb_a_step"] == pytest.approx(run["kb"] / run["calls"], abs=0.01)
        assert min(run["step_ms"], run["first_ms"], run["last_ms"]) > 0
    assert found["kb_ratio"] > 0 and found["ms_ratio"] > 0
    assert found["bare_kb"] < found["runs"][0]["kb"]


def test_observation_that_grows_a_run_is_two_kilobytes_and_does_not_compress() -> None:
    one, other = growing.order("grow-4-a.0"), growing.order("grow-4-a.1")
    text = json.dumps(one).encode()
    assert 2000 <= len(text) <= 2300
    assert len(zlib.compress(one["note"].encode())) > 0.7 * growing.NOTE_BYTES  # letters of a 64-letter alphabet
    assert one["note"] != other["note"]
    assert one["customer_id"] == other["customer_id"] == "cust_grow-4-a"


@pytest.mark.parametrize(("used", "said"), [
    (0, {"tool": "get_order", "args": {"order_id": "grow-2-a.0"}}),
    (1, {"tool": "get_order", "args": {"order_id": "grow-2-a.1"}}),
    (2, {"final": "Thank you for your patience.", "evidence": []}),
])  # fmt: skip
def test_growing_model_reads_as_often_as_its_run_says_then_ends(used: int, said: dict[str, object]) -> None:
    goal = '<goal customer="cust_grow-2-a">"What became of my orders?"</goal>'
    text = f"{goal}\nmodel_calls_used: 7\n\n[5] TASK STATE SNAPSHOT\nmodel_calls_used: {used}\nwrites: []\n"
    assert json.loads(growing.said(text)) == said


def test_bench_growth_fails_where_a_run_ended_otherwise() -> None:
    assert FIGURES.fault is None
    assert replace(FIGURES, wrong=["grow-4-r0 ended ('escalated', 3)"]).fault == "grow-4-r0 ended ('escalated', 3)"


def test_step_is_the_log_beyond_a_run_without_a_read() -> None:
    runs = [
        growth._Run(bytes=size, steps_ms=[8.0, 8.0, 8.0, 8.0, 12.0, 12.0, 12.0, 12.0]) for size in (9, 26000, 90000)
    ]
    grown = growth._grown(8, runs, bare=10_000)
    assert (grown.kb, grown.kb_a_step, grown.whole_kb_a_step) == (26.0, 2.0, 3.25)
    assert (grown.step_ms, grown.first_ms, grown.last_ms) == (10.0, 8.0, 12.0)
