"""How a run ends: escalated, cancelled, failed, or completed with a reply whose facts were observed."""

from __future__ import annotations

from typing import Any

from runs import reply
from runs.contracts import NewEvent, NewObservation, Outcome, RunState
from runs.states import On, Status
from runs.store import tell

DOUBTED = ("verification_failed", "verification_inconclusive")


def fold(run: RunState) -> tuple[tuple[NewObservation, ...], int | None]:
    """The unread messages as observations, and the sequence number up to which inputs are then read."""
    if not run.inputs:
        return (), None
    messages = tuple(
        NewObservation(kind="message", source="customer", content={"text": i.text}, fetched_at=i.at)
        for i in run.inputs
        if i.kind == "message"
    )
    return messages, run.inputs[-1].seq


def has(run: RunState, kind: str) -> bool:
    return any(i.kind == kind for i in run.inputs)


def escalate(run: RunState, reason: str, **more: Any) -> Outcome:
    """Hand the run to staff with its evidence; what was done stays told."""
    outcome = "refund_failed" if reason == "refund_failed" else None
    # An answer that said yes is no confirmed refund while the independent look at it disagrees or cannot find it.
    doubted = 1 if reason in DOUBTED and run.open_write is None else 0
    outcome = outcome or ("partly_refunded" if len(run.confirmed) > doubted else "handed_to_staff")
    observations, folded = fold(run)
    observations = (*more.pop("observations", ()), *observations)
    events = (*more.pop("events", ()), NewEvent(type="notice", meta={"to": "staff", "error": reason}))
    return Outcome(
        on=On.ESCALATED, reason=reason, outcome=outcome, events=events, observations=observations, folded=folded, **more
    )


def cancel(run: RunState) -> Outcome:
    """Cancel a run that has no write under way."""
    observations, folded = fold(run)
    outcome = "partly_refunded" if run.confirmed else "cancelled"
    return Outcome(
        on=On.CANCELLED, reason="cancelled_by_client", outcome=outcome, folded=folded, observations=observations,
        clear_pending=True,
    )  # fmt: skip


def complete(run: RunState, prose: str | None, *, dropped: str | None = None, **more: Any) -> Outcome:
    """Send the reply: facts rendered by code, with prose only where the check kept it."""
    outcome = end_of(run)
    observations, folded = fold(run)
    story = tell.story_of(run, status=Status.COMPLETED, outcome=outcome)
    composed = reply.compose(story, prose)
    events = list(more.pop("events", ()))
    if dropped or composed.dropped:
        events.append(NewEvent(type="reply.rejected", meta={"error": dropped or composed.dropped}))
    events.append(NewEvent(type="reply.sent", payload={"text": composed.text}))
    return Outcome(
        on=On.REPLY_SENT, outcome=outcome, reply=composed.text, events=tuple(events), folded=folded,
        observations=observations, clear_pending=True, **more,
    )  # fmt: skip


def end_of(run: RunState) -> str:
    """The outcome of a run that completes, from its record alone."""
    if run.confirmed:
        return "refunded"
    if any(o.kind == "decision" for o in run.observations):
        return "rejected"
    story = tell.story_of(run, status=Status.COMPLETED, outcome=None)
    return "no_refund_due" if nothing_owed(story) else "answered"


def nothing_owed(story: reply.Story) -> bool:
    """Whether every order that was read leaves nothing to give back, by whole records alone."""
    left = [order.left() for order in story.orders]
    return bool(left) and all(one is not None and one.minor <= 0 for one in left)
