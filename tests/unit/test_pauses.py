"""Waits for a dependency: doubled, bounded, and spread so that a crowd does not come back in one instant."""

from __future__ import annotations

import pytest

from agentsite.env import Environment
from runs.orchestrator import pauses
from tests.unit.states_8472 import state


@pytest.mark.parametrize(("retries", "expected"), [(0, 2), (1, 4), (5, 64), (7, 256), (8, 300), (5000, 300)])
def test_wait_doubles_with_every_try_up_to_five_minutes(retries: int, expected: float) -> None:
    assert pauses.backoff_s(state(retries=retries), Environment(RETRY_S=2)) == expected


@pytest.mark.parametrize(("asked", "expected"), [(None, 8), (3, 8), (100, 100), (10**9, 3600)])
def test_named_time_is_heeded_where_it_is_longer_and_for_an_hour_at_most(asked: float | None, expected: float) -> None:
    assert pauses.wait_s(state(retries=2), Environment(RETRY_S=2), asked) == expected


def test_runs_that_wait_alike_come_back_apart_and_none_of_them_early() -> None:
    waits = sorted(pauses.spread_s(state(run_id=f"run-{n}"), 60) for n in range(200))
    assert 60 <= waits[0] < 61 and 71 < waits[-1] < 72
    seconds = [sum(int(w) == second for w in waits) for second in range(60, 72)]
    assert max(seconds) < 40, "more than a fifth of them in one second of twelve"


def test_each_wait_of_a_run_is_spread_anew_and_a_replay_waits_the_same() -> None:
    waits = {pauses.spread_s(state(version=n), 60) for n in range(1, 50)}
    assert len(waits) > 30
    assert pauses.spread_s(state(version=7), 60) == pauses.spread_s(state(version=7), 60)
