"""Waits for a dependency: a due time in the row, doubling, bounded; never a held worker."""

from __future__ import annotations

import hashlib
from typing import Any

from agentsite.env import Environment
from runs.contracts import NewEvent, Outcome, RunState
from runs.orchestrator.endings import fold
from runs.states import On

MAX_BACKOFF_S = 300.0
MAX_ASKED_S = 3600.0
SPREAD = 0.2


def backoff_s(run: RunState, settings: Environment) -> float:
    """Seconds until the next try: RETRY_S, doubled each time, at most five minutes."""
    return float(min(settings.RETRY_S * 2 ** min(run.retries, 16), MAX_BACKOFF_S))


def wait_s(run: RunState, settings: Environment, asked_s: float | None) -> float:
    """The same, or longer where the dependency or its breaker asked for that; an hour at most."""
    return max(backoff_s(run, settings), min(asked_s or 0.0, MAX_ASKED_S))


def spread_s(run: RunState, wait_s: float) -> float:
    """The same, up to a fifth longer: runs that one outage stopped together do not all come back in one instant (M56).

    Never shorter than what was asked for; of this run and this wait alone, so that its replay waits as long.
    """
    drawn = hashlib.sha256(f"{run.run_id}:{run.version}".encode()).digest()[0] / 256
    return wait_s * (1 + SPREAD * drawn)


def waited_too_long(run: RunState, settings: Environment) -> bool:
    """Whether the dependency has given no answer for DEPENDENCY_FOR_S, however few tries that were."""
    return run.down_since is not None and (run.now - run.down_since).total_seconds() > settings.DEPENDENCY_FOR_S


def park(run: RunState, dependency: str, wait_s: float, *, tried: bool = True, **more: Any) -> Outcome:
    """Park the run until `dependency` may be back; the customer is told what is not known.

    `tried` False: nothing was called, its breaker being open; that is no try.
    """
    events = (*more.pop("events", ()), NewEvent(type="notice", meta={"dependency": dependency, "wait_s": wait_s}))
    observations, folded = fold(run)
    return Outcome(
        on=On.DEPENDENCY_DOWN, waiting_for="dependency", due_in_s=spread_s(run, wait_s), dependency=dependency,
        retries=run.retries + 1 if tried else run.retries, events=events, folded=folded,
        observations=(*more.pop("observations", ()), *observations), **more,
    )  # fmt: skip


def back(run: RunState) -> Outcome:
    """The wait is over: back to where the run was, which tries again."""
    assert run.resume_status is not None, "a parked run remembers where it was"
    note = NewEvent(type="notice", meta={"back": run.dependency})
    return Outcome(on=On.DEPENDENCY_BACK, resume=run.resume_status, events=(note,))
