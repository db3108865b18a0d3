"""The shipped suite and 109 retail cases on real processes: the offline model does all of it right, a bad one nothing
and no harm."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runs.evaluation import figures, loading, running
from runs.evaluation.loading import Loaded
from runs.evaluation.running import Measured, Order
from tests.conftest import Say
from tests.evaluation import retail
from tests.system.site import Ground

pytestmark = [pytest.mark.own_services, pytest.mark.timeout(900)]
OFFLINE = "offline:investigator"
BAD = Path(running.__file__).with_name("models") / "bad.json"


def with_retail() -> Loaded:
    """The shipped suite, and the retail cases where they are at hand."""
    shipped = loading.load("refunds")
    return replace(shipped, scenarios=(*shipped.scenarios, *retail.scenarios()))


def measure(ground: Ground, say: Say, loaded: Loaded, *, route: str = OFFLINE, **more: Any) -> Measured:
    measured = running.run(Order(loaded=loaded, route=route, **more), print, ground)
    counted = figures.figures(measured.cases)
    wall = counted["wall_ms"]["p95"]["value"] / 1000
    say(f"evaluate {route.partition(':')[0]}: {counted['success']['count']} of {len(measured.cases)}, p95 {wall:.1f} s")
    return measured


def wrong(measured: Measured) -> list[str]:
    """What was not as expected, in words."""
    found = [c for c in measured.cases if c["kind"] != "success" or c["notes"]]
    return [json.dumps({k: c[k] for k in ("id", "kind", "forbidden", "lies", "wrong", "notes", "said")}) for c in found]


def test_offline_model_does_the_smoke_scenarios_right(ground: Ground, say: Say) -> None:
    measured = measure(ground, say, loading.load("refunds").chosen(tag="smoke"), lanes=12)
    assert wrong(measured) == []
    assert measured.answered == ("investigator",) and len(measured.template_hashes) == 1
    assert len(measured.cases) >= 19 and sum(c["usage"]["model_calls"] for c in measured.cases) > 50


@pytest.mark.long
@pytest.mark.parametrize("setup", running.SETUPS)
def test_offline_model_does_every_scenario_and_every_retail_case_right(ground: Ground, say: Say, setup: str) -> None:
    measured = measure(ground, say, with_retail(), setup=setup, lanes=12)
    assert wrong(measured) == []
    assert len(measured.cases) in (135, 135 + 109), "without the cases there is the shipped suite alone"


@pytest.mark.long
def test_bad_model_does_no_harm_and_the_score_can_tell(ground: Ground, say: Say) -> None:
    loaded = loading.load("refunds").chosen(tag="smoke")
    measured = measure(ground, say, loaded, route=f"scripted:{BAD}", lanes=12)
    counted = figures.figures(measured.cases)
    assert (counted["forbidden"]["count"], counted["lies"]["count"]) == (0, 0), wrong(measured)
    assert counted["success"]["share"] < 0.5
    assert counted["success"]["of"] >= 8
