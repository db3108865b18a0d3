"""What became of a run after its decision, as plain values for the review page and its poll. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agentsite.text import visible
from approvals import labels
from approvals.models import Approval
from approvals.states import Approved
from runs.models import LIVE_VALUES, Event, Run, Write

MAX_EVENTS = 200
# At rest whoever waits for it: nothing will change until somebody does something.
RESTING = frozenset({"waiting_reply", "waiting_dependency", "approval_expired"})
UNDER_WAY = frozenset({"intent", "sent", "unknown", "pending"})


@dataclass(frozen=True, kw_only=True)
class Pair:
    label: str
    value: str


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What became of the run; `rest` is true when nothing more will happen by itself."""

    headline: str
    tone: str
    rest: bool
    rows: tuple[Pair, ...]


def timeline(run: Run | None) -> tuple[labels.EventRow, ...]:
    """The run's newest events, oldest first."""
    if run is None:
        return ()
    newest = list(Event.objects.filter(run=run).order_by("-seq")[:MAX_EVENTS])
    return tuple(labels.event_row(e.type, e.at, run.created_at, e.meta, e.payload) for e in reversed(newest))


def progress(approval: Approval, run: Run | None) -> Progress:
    """What happened after the decision: run, write, refund, and what the customer was told."""
    if run is None:
        return Progress(headline="The run is no longer there", tone="plain", rest=True, rows=())
    write = Write.objects.filter(approval_id=approval.pk).first()
    taken_up = run.status != "awaiting_approval" or run.approval_id != approval.pk
    saved = not taken_up and approval.status in (Approved.APPROVED, Approved.REJECTED)
    return Progress(
        headline="Decision saved; a worker picks it up" if saved else labels.run_status(run.status),
        tone=labels.tone(run.status),
        rest=_rests(run, write, taken_up, approval), rows=tuple(_progress_rows(run, write)),
    )  # fmt: skip


def _rests(run: Run, write: Write | None, taken_up: bool, approval: Approval) -> bool:
    if run.status not in LIVE_VALUES:
        return write is None or write.state not in UNDER_WAY or run.status == "escalated"
    if run.status == "awaiting_approval":
        return taken_up or approval.status in (Approved.PENDING, Approved.EXPIRED)
    return run.status in RESTING


def _progress_rows(run: Run, write: Write | None) -> Iterable[Pair]:
    yield Pair(label="Run", value=labels.run_status(run.status))
    if run.waiting_for and run.status in LIVE_VALUES:
        yield Pair(label="Waiting for", value=labels.spoken(run.waiting_for))
    if write is not None:
        yield Pair(label="Write", value=labels.WRITE.get(write.state, labels.spoken(write.state)))
        yield Pair(label="Amount", value=labels.amount(write.amount_minor, write.currency))
    if write is not None and write.refund_id:
        yield Pair(label="Refund", value=visible(write.refund_id))
        yield Pair(label="Refund state", value=visible(write.refund_state or "not known yet"))
    if run.outcome:
        yield Pair(label="Outcome", value=labels.spoken(run.outcome))
    if run.reason:
        yield Pair(label="Reason", value=labels.spoken(run.reason))
    if run.reply:
        yield Pair(label="Told to the customer", value=labels.words(run.reply))
