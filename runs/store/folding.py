"""What an outcome makes of a run, as values: no query, no clock, no zone.

Shared by the checkpoint, which writes it as rows, and by a replay, which keeps it in memory.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from agentsite.canonical import sha256
from runs.contracts import NewEvent, Outcome, RunState, SeenObservation, WriteChange
from runs.states import TERMINAL, Status


def fields(run: RunState, outcome: Outcome, to: Status) -> dict[str, Any]:
    """The fields of RunState that a transition changes, with their new values."""
    changed: dict[str, Any] = {
        "status": to,
        "reason": outcome.reason if outcome.reason is not None else (run.reason if to in TERMINAL else None),
        "waiting_for": outcome.waiting_for if to not in TERMINAL else None,
        "resume_status": run.status if to is Status.WAITING_DEPENDENCY else None,
        "dependency": outcome.dependency,
        "version": run.version + 1,
        "active_ms": run.active_ms + outcome.active_ms,
        "repairs": run.repairs if outcome.repairs is None else outcome.repairs,
        "retries": run.retries if outcome.retries is None else outcome.retries,
        "down_since": _down_since(run, outcome, to),
        "voids": run.voids + outcome.voids,
        "folded_input_seq": outcome.folded if outcome.folded is not None else run.folded_input_seq,
    }
    if outcome.pending is not None or outcome.clear_pending:
        changed["pending"] = outcome.pending
    if outcome.verification is not None:
        changed["verification"] = outcome.verification
    if outcome.window_tokens is not None:
        changed["window_tokens"] = outcome.window_tokens
    return changed | _usage(run, outcome)


def _usage(run: RunState, outcome: Outcome) -> dict[str, Any]:
    """What model calls used: the turn's, and that of calls that brought none."""
    used = [u for u in (outcome.turn, outcome.spent) if u is not None]
    changed: dict[str, Any] = {
        "input_tokens": run.input_tokens + sum(u.input_tokens for u in used),
        "output_tokens": run.output_tokens + sum(u.output_tokens for u in used),
        "cost_micros": run.cost_micros + sum(u.cost_micros for u in used),
    }
    if outcome.turn is not None:
        return changed | {"model_calls": run.model_calls + 1, "turn_requests": 0}
    return changed | {"turn_requests": run.turn_requests + outcome.requests}


def _down_since(run: RunState, outcome: Outcome, to: Status) -> datetime | None:
    """The start of an outage is kept through every try of it; an answer, a turn of the model included, ends it."""
    if to is Status.WAITING_DEPENDENCY:
        return run.down_since or run.now
    answered = outcome.retries == 0 or outcome.turn is not None
    return None if answered else run.down_since


def observed(run: RunState, outcome: Outcome) -> tuple[SeenObservation, ...]:
    """The outcome's observations as the run will see them, numbered after those it has."""
    return tuple(
        SeenObservation(
            obs_id=f"obs_{position}", position=position, call_id=o.call_id, span=o.span, kind=o.kind, source=o.source,
            args=o.args, content=o.content, content_hash=sha256(o.content), meta=o.meta,
            fetched_at=o.fetched_at or run.now,
        )
        for position, o in enumerate(outcome.observations, start=len(run.observations) + 1)
    )  # fmt: skip


def status_event(run: RunState, outcome: Outcome, to: Status) -> tuple[NewEvent, ...]:
    """The event of a change of status; none where it stays."""
    if to is run.status:
        return ()
    meta: dict[str, Any] = {"from": run.status.value, "to": to.value, "reason": outcome.reason}
    return (NewEvent(type="run.status", meta={**meta, "on": outcome.on.value}),)


def write_fields(
    change: WriteChange, now: datetime, *, unknown_since: datetime | None, executed_at: datetime | None
) -> dict[str, Any]:
    """The fields of SeenWrite that a change sets; both times are the write's own before it."""
    values: dict[str, Any] = {"state": change.state}
    if change.refund is not None:
        values |= {"refund_id": change.refund.refund_id, "refund_state": change.refund.state, "seen_at": now}
    if change.state == "unknown" and unknown_since is None:
        values["unknown_since"] = now
    if change.absent:
        values["absent_at"] = now
    if change.state in ("confirmed", "pending") and executed_at is None:
        values["executed_at"] = now
    return values
