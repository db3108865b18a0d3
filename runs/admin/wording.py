"""Runs and their events in the words of a person who supports customers. Pure: no query, no markup."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentsite.text import visible
from approvals import labels
from runs.models import Event, Run

EVENT = {
    "run.accepted": "Request accepted", "run.status": "Moved on", "run.hurried": "Retried by staff",
    "run.resolved": "Finished by hand", "run.corrected": "Outcome corrected", "prompt.built": "Prompt made",
    "model.called": "Model asked", "model.replied": "Model answered", "model.invalid": "Answer not usable",
    "model.failed": "Model gave no answer", "model.escalated": "Model asked for a person",
    "route.switched": "Next model tried", "route.passed_over": "Model passed over", "tool.observed": "Read",
    "tool.error": "Read failed", "evidence.found": "Evidence for the request found",
    "evidence.compared": "Old evidence read again", "gate.decided": "Gate decided",
    "approval.requested": "A person was asked",
    "approval.decided": "A person decided", "approval.expired": "Approval expired, undecided",
    "approval.void": "Approval void", "write.intent": "Refund recorded, to be sent",
    "write.released_again": "To be sent again", "write.sent": "Refund sent", "write.result": "Answer to the refund",
    "write.unknown": "Outcome not known yet", "write.reconciled": "Refund found", "write.looked": "Looked up",
    "write.verified": "Refund verified", "write.mismatch": "Refund does not match",
    "write.settled_by_staff": "Settled by staff", "write.doubted": "In doubt after a restore",
    "reply.sent": "Reply sent", "reply.rejected": "Draft of the reply dropped", "customer.told": "Customer told",
    "customer.asked": "Customer asked", "message.received": "Customer wrote", "cancel.requested": "Cancel asked for",
    "reminder": "Model reminded", "loop.stopped": "Repetition stopped", "notice": "Note",
    "shadow.proposed": "Proposed in shadow mode",
}  # fmt: skip
NEXT = {
    "accepted": "Nothing was done yet; a worker takes it up by itself.",
    "gathering": "It reads and asks its model by itself; nothing is needed from you.",
    "action_proposed": "The model proposed a refund; the gate checks it on live facts.",
    "awaiting_approval": "It does nothing until a person decides, or until the approval expires.",
    "approved": "Everything is checked once more, then the refund is sent.",
    "executing": "The refund is on its way, or is being looked up; it is never sent twice.",
    "executed": "The business system has the refund; it is now read back independently.",
    "verified": "The refund is verified; the reply is being written.",
    "waiting_dependency": "It goes on by itself once the system answers again.",
    "waiting_reply": "It goes on when the customer answers.",
    "approval_expired": "Nobody decided in time; that is no rejection. Ask again, take it over or cancel it.",
    "escalated": "A person finishes it: nothing more happens by itself.",
    "failed": "No code could go on with it: a person finishes it.",
}


def event(kind: str) -> str:
    return EVENT.get(kind, labels.spoken(kind.replace(".", " ")))


def summary(happened: Event) -> str:
    """What an event of the commonest kinds says, in words; empty where its data say it best themselves."""
    meta = happened.meta if isinstance(happened.meta, dict) else {}
    if happened.type == "run.status" and "to" in meta:
        why = f", because: {labels.spoken(str(meta['reason'])).lower()}" if meta.get("reason") else ""
        return f"{_status(meta.get('from'))} → {_status(meta['to'])}{why}"
    if happened.type == "prompt.built":
        return visible(str(meta.get("version", "")))
    if happened.type == "gate.decided":
        return f"{labels.spoken(str(meta.get('decision', '')))}: {labels.rule(str(meta.get('rule', '')))}"
    if happened.type == "evidence.found":
        return labels.found(meta)
    return ""


def _status(slug: Any) -> str:
    return labels.run_status(str(slug))


def standing(run: Run) -> Iterator[str]:
    """Where a run stands, in a sentence or two: what happens next, and by whom."""
    if run.status in NEXT and run.outcome != "resolved_by_staff":
        yield NEXT[run.status]
    if run.status == "waiting_dependency" and run.dependency:
        yield f"The system is: {labels.spoken(run.dependency).lower()}."
    if run.waiting_for == "order":
        yield "Another refund on this order is not settled; one goes at a time."
    if run.outcome == "resolved_by_staff":
        yield "A person finished it by hand."
