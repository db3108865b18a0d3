"""Handlers of the waiting statuses: they call nobody, they only look at what doors and timers left."""

from __future__ import annotations

from dataclasses import replace

from runs.contracts import NewEvent, NewObservation, Outcome, PendingAction, RunState, SeenApproval
from runs.orchestrator import endings, proposals
from runs.orchestrator.later import Later, until
from runs.orchestrator.pauses import back
from runs.orchestrator.ports import Ports
from runs.states import On
from runs.store.admit import VOIDS_BY_MESSAGE
from tools.errors import ReadFailed


def awaiting_approval(run: RunState, ports: Ports) -> Outcome | Later:
    """Fold what came: a cancel, a message, a decision, the end of the approval's life; else wait on."""
    approval, pending = run.approval, run.pending
    assert approval is not None and pending is not None, "awaiting_approval holds an approval and its action"
    if endings.has(run, "cancel"):
        return endings.cancel(run)
    if approval.status == "rejected":
        return _rejected(approval, pending)  # a message that came with it stays unread: gathering answers to it
    if endings.has(run, "message") or approval.status in ("void", "consumed"):
        return message(run, pending)
    if approval.status == "approved":
        return Outcome(on=On.APPROVAL_GRANTED, events=(_decided(approval),), folded=_folded(run))
    if approval.status == "pending" and approval.expired:
        return _expired(run, pending, ports.settings().ASK_AGAIN_FOR_S)
    return until(run.now, approval.expires_at)


def _folded(run: RunState) -> int | None:
    return endings.fold(run)[1]


def message(run: RunState, pending: PendingAction) -> Outcome:
    """A customer's message before the intent: it voids the approval once; afterwards it is shown on it."""
    gone = run.approval is not None and run.approval.status in ("void", "consumed")
    if run.voids < VOIDS_BY_MESSAGE or gone:
        return proposals.superseded(run, pending)
    observations, folded = endings.fold(run)
    wait = (run.approval.expires_at - run.now).total_seconds() if run.approval else 0.0
    waiting = run.approval is not None and run.approval.status == "pending"
    return Outcome(
        on=On.MESSAGE_SHOWN, observations=observations, folded=folded, waiting_for=run.waiting_for,
        due_in_s=max(0.0, wait) if waiting else 0.0,
    )  # fmt: skip


def _decided(approval: SeenApproval) -> NewEvent:
    meta = {
        "approval_id": approval.approval_id, "decision": approval.status, "by": approval.decided_by,
        "deciders": list(approval.deciders), "action_hash": approval.action_hash,
    }  # fmt: skip
    return NewEvent(type="approval.decided", meta=meta, payload={"reason": approval.reason})


def _rejected(approval: SeenApproval, pending: PendingAction) -> Outcome:
    """The rejection reaches model, audit and customer with its reason (M41)."""
    content = {"decision": "rejected", "reason": approval.reason}
    note = NewObservation(
        kind="decision", source=pending.tool, content=content, call_id=pending.call_id, args=pending.args
    )
    return Outcome(
        on=On.APPROVAL_REJECTED, events=(_decided(approval),), observations=(note,), clear_pending=True
    )  # fmt: skip


def _expired(run: RunState, pending: PendingAction, ask_again_for_s: float) -> Outcome:
    owner = run.contract.queue_owner
    told = NewEvent(type="notice", meta={"to": "queue_owner", "error": "approval_expired"}, payload={"owner": owner})
    if not run.confirmed:
        return Outcome(
            on=On.APPROVAL_EXPIRED, expire_approval=True, waiting_for="staff", events=(told,), folded=_folded(run),
            due_in_s=ask_again_for_s,
        )  # fmt: skip
    note = NewObservation(
        kind="denial", source=pending.tool, content={"error": "denied", "rule": "approval_expired"},
        call_id=pending.call_id, args=pending.args,
    )  # fmt: skip
    return Outcome(
        on=On.APPROVAL_EXPIRED, expire_approval=True, observations=(note,), clear_pending=True, events=(told,),
        folded=_folded(run),
    )  # fmt: skip


def approval_expired(run: RunState, ports: Ports) -> Outcome | Later:
    """Live, waiting for staff: they may ask again, the customer may write; in the end it is handed over."""
    pending = run.pending
    assert pending is not None, "an expired approval keeps its action"
    if endings.has(run, "cancel"):
        return endings.cancel(run)
    if endings.has(run, "message"):
        return proposals.superseded(run, pending)
    if endings.has(run, "ask_again"):
        return _ask_again(run, pending, ports)
    waited, patience_s = (run.now - run.status_since).total_seconds(), ports.settings().ASK_AGAIN_FOR_S
    if waited >= patience_s:
        return endings.escalate(run, "approval_expired")
    return Later(due_in_s=max(0.05, patience_s - waited))


def _ask_again(run: RunState, pending: PendingAction, ports: Ports) -> Outcome | Later:
    """The old approval is not revived: the gate runs afresh on the facts of now."""
    if not proposals.fits(pending):
        return endings.escalate(run, "approval_invalid")
    try:
        decision, found = proposals.judge(run, pending, ports)
    except ReadFailed as error:
        # The request of staff stays unread, so it is tried again.
        return Later(due_in_s=5.0) if error.retryable else endings.escalate(run, "dependency_unavailable")
    outcome = proposals.answered(run, pending, decision, found, 0)
    return replace(outcome, folded=_folded(run))


def waiting_reply(run: RunState, ports: Ports) -> Outcome | Later:
    """The customer's answer, a cancel, or the end of patience."""
    if endings.has(run, "cancel"):
        return endings.cancel(run)
    if endings.has(run, "message"):
        observations, folded = endings.fold(run)
        return Outcome(on=On.ANSWERED, observations=observations, folded=folded)
    waited, patience_s = (run.now - run.status_since).total_seconds(), ports.settings().REPLY_FOR_S
    if waited >= patience_s:
        return endings.escalate(run, "needs_a_person")
    return Later(due_in_s=max(0.05, patience_s - waited))


def waiting_dependency(run: RunState, ports: Ports) -> Outcome | Later:
    """Due again: go back and try."""
    if endings.has(run, "cancel"):
        return endings.cancel(run)
    return back(run)
