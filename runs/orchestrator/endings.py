"""How a run ends: escalated, cancelled, failed, or completed with a reply whose facts were observed."""

from __future__ import annotations

from typing import Any

from runs import reply
from runs.clauses import NOTHING, Quoted
from runs.contracts import NewEvent, NewObservation, Outcome, RunState, SeenInput
from runs.states import On, Status
from runs.store import tell
from runs.store.tell import STAFF
from runs.story import RECORDS
from tools import rules

GIVEN_UP = ("not_sent_in_time", "proven_absent", "settled_by_staff", "access_refused", "tool_blocked")
"""Why a write that was allowed was never made, by no fault of the request."""
DOUBTED = ("verification_failed", "verification_inconclusive")
NOT_THERE = ("not_found", "order_not_yours", "order_out_of_scope", "tool_out_of_scope")
"""What reads say of an order that is not there for this customer: an answer about it, and no outage."""


def fold(run: RunState) -> tuple[tuple[NewObservation, ...], int | None]:
    """The unread messages as observations, and the sequence number up to which inputs are then read."""
    if not run.inputs:
        return (), None
    messages = tuple(
        NewObservation(kind="message", source="customer", content=_said(i), fetched_at=i.at)
        for i in run.inputs
        if i.kind == "message"
    )
    return messages, run.inputs[-1].seq


def _said(message: SeenInput) -> dict[str, Any]:
    files = {"attachments": list(message.attachments)} if message.attachments else {}
    return {"text": message.text, **files}


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
    by_staff = all(i.by.startswith(STAFF) for i in run.inputs if i.kind == "cancel")
    reason = "cancelled_by_staff" if by_staff else "cancelled_by_client"
    return Outcome(
        on=On.CANCELLED, reason=reason, outcome=outcome, folded=folded, observations=observations,
        clear_pending=True,
    )  # fmt: skip


def complete(
    run: RunState, prose: str | None, *, dropped: str | None = None, quoted: Quoted = NOTHING, **more: Any
) -> Outcome:
    """Send the reply: facts rendered by code, clauses that it quotes, with prose only where the check kept it.

    A refund that was allowed and that we did not get made is no completed request, nor is one whose records could not
    be read: a person takes it over.
    """
    if left_unmade(run):
        return escalate(run, "needs_a_person", clear_pending=True, **more)
    outcome = end_of(run)
    if outcome == "answered" and left_unread(run):
        return escalate(run, "dependency_unavailable", clear_pending=True, **more)
    story = tell.story_of(run, status=Status.COMPLETED, outcome=outcome, quoted=quoted.clauses)
    if story.forgotten and not run.writes and not any(rules.counted(r.state) for r in story.others_refunds):
        return escalate(run, "needs_a_person", clear_pending=True, **more)
    observations, folded = fold(run)
    composed = reply.compose(story, prose)
    events = list(more.pop("events", ()))
    if dropped or composed.dropped:
        events.append(NewEvent(type="reply.rejected", meta={"error": dropped or composed.dropped}))
    events.append(_sent(composed.text, quoted))
    return Outcome(
        on=On.REPLY_SENT, outcome=outcome, reply=composed.text, events=tuple(events), folded=folded,
        observations=observations, clear_pending=True, **more,
    )  # fmt: skip


def _sent(text: str, quoted: Quoted) -> NewEvent:
    said = {"clauses": [clause.wire() for clause in quoted.clauses]} if quoted.clauses else {}
    return NewEvent(type="reply.sent", meta=quoted.meta(), payload={"text": text, **said})


def end_of(run: RunState) -> str:
    """The outcome of a run that completes, from its record alone."""
    if run.confirmed:
        return "refunded"
    if any(o.kind == "decision" for o in run.observations):
        return "rejected"
    story = tell.story_of(run, status=Status.COMPLETED, outcome=None)
    return "no_refund_due" if nothing_owed(story) else "answered"


def left_unmade(run: RunState) -> bool:
    """Whether the last word on a write is that tries, time or our own right ran out, and none is confirmed."""
    last = next((w for w in reversed(run.writes) if w.state in ("not_sent", "refused")), None)
    if last is None or run.confirmed:
        return False
    words = [o for o in run.observations if o.source == last.tool and o.kind in ("denial", "decision", "result")]
    # A model that proposes it once more is told that its one write is spent: that changes nothing about what is left.
    rules = [rule for o in words if (rule := o.content.get("rule")) != "write_already_made"]
    return bool(rules) and rules[-1] in GIVEN_UP


def left_unread(run: RunState) -> bool:
    """Whether the last look at a record of an order that is there brought no answer: nothing can rest on that (M58)."""
    looks = [o for o in run.observations if o.source in RECORDS and o.kind in ("result", "error")]
    last = {(o.source, o.args.get("order_id")): o for o in looks}
    there = {order_id for (source, order_id), look in last.items() if source == "get_order" and look.ok}
    return any(
        not look.ok and (order_id in there or look.content.get("error") not in NOT_THERE)
        for (_, order_id), look in last.items()
    )


def nothing_owed(story: reply.Story) -> bool:
    """Whether every order that was read leaves nothing to give back, by whole records alone."""
    left = [order.left() for order in story.orders]
    return bool(left) and all(one is not None and one.minor <= 0 for one in left)
