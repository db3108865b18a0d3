"""Waits for a dependency: a due time in the row, doubling, bounded; never a held worker."""

from __future__ import annotations

from typing import Any

from agentsite import env
from runs.contracts import NewEvent, Outcome, RunState
from runs.orchestrator.endings import fold
from runs.states import On

MAX_BACKOFF_S = 300.0


def _backoff(retries: int) -> float:
    return float(min(env.read().RETRY_S * 2 ** min(retries, 16), MAX_BACKOFF_S))


def backoff_s(run: RunState) -> float:
    """Seconds until the next try: RETRY_S, doubled each time, at most five minutes."""
    return _backoff(run.retries)


def waited_too_long(run: RunState) -> bool:
    """Whether the waits so far sum up to more than DEPENDENCY_FOR_S."""
    return sum(_backoff(n) for n in range(run.retries)) > env.read().DEPENDENCY_FOR_S


def park(run: RunState, dependency: str, wait_s: float, **more: Any) -> Outcome:
    """Park the run until `dependency` may be back; the customer is told what is not known."""
    events = (*more.pop("events", ()), NewEvent(type="notice", meta={"dependency": dependency, "wait_s": wait_s}))
    observations, folded = fold(run)
    return Outcome(
        on=On.DEPENDENCY_DOWN, waiting_for="dependency", due_in_s=wait_s, dependency=dependency,
        retries=run.retries + 1, events=events, folded=folded,
        observations=(*more.pop("observations", ()), *observations), **more,
    )  # fmt: skip


def back(run: RunState) -> Outcome:
    """The wait is over: back to where the run was, which tries again."""
    assert run.resume_status is not None, "a parked run remembers where it was"
    note = NewEvent(type="notice", meta={"back": run.dependency})
    return Outcome(on=On.DEPENDENCY_BACK, resume=run.resume_status, events=(note,))
