"""The approved status: everything is checked again, then the intent, the point of no return (`write-path.md` 1)."""

from __future__ import annotations

from dataclasses import replace

from runs.contracts import Intent, NewEvent, NewObservation, Outcome, PendingAction, RunState
from runs.orchestrator import endings, fresh, proposals, shadowing
from runs.orchestrator.later import Later
from runs.orchestrator.ports import Ports
from runs.orchestrator.waits import message
from runs.states import On, Status
from tools import gate
from tools.contracts import ApprovalTicket, Release, Withheld
from tools.errors import ReadFailed

HOLD_S = 1.0
RESTORED_HOLD_S = 5.0
MAX_HOLD_S = 60.0


def approved(run: RunState, ports: Ports) -> Outcome | Later:
    """Everything again, directly before the intent; a message or a cancel that came first wins."""
    pending = run.pending
    assert pending is not None, "approved holds an action"
    if endings.has(run, "cancel"):
        return endings.cancel(run)
    if endings.has(run, "message"):
        return message(run, pending)
    if not proposals.fits(pending):
        return endings.escalate(run, "approval_invalid")
    ticket = _ticket(run)
    try:
        case, qualification = proposals.case_of(run, pending, ports)
        ports.leave_database()
        released = gate.release(case, ticket, decision_id=pending.decision_id, read=ports.read_facts)
        found = fresh.compare(run, pending, ports) if _rests(released) else ()
    except ReadFailed as error:
        return proposals.unreachable(run, error, ports)
    if _moved(run, ticket, released, found):
        return _not_true_any_more(run, pending, found)
    if isinstance(released, Withheld):
        return _withheld(run, pending, _noted(released, found))
    if ticket is None and _was_asked(run, pending):
        # A person was asked and the yes is gone: that nobody would be asked today is a new decision, on a new proposal.
        return proposals.superseded(run, pending)
    outcome = _intend(run, pending, released, qualification, needs_person=ticket is not None)
    return replace(outcome, events=fresh.event(found))


def _rests(released: Release | Withheld) -> bool:
    """Whether something is about to be done, or asked, on the evidence of this action."""
    return isinstance(released, Release) or released.kind == "ask_afresh"


def _moved(run: RunState, ticket: ApprovalTicket | None, released: Release | Withheld, found: fresh.Found) -> bool:
    """Whether the evidence is not true any more. Nobody's yes and a new question rest on every word of it; a yes stands
    where no more than words moved, or what the review page showed him as moved before he said it."""
    if ticket is None or isinstance(released, Withheld):
        return any(one.changed for one in found)
    shown = run.approval.shown_changes if run.approval else ()
    return any(one.sways(shown) for one in found)


def _not_true_any_more(run: RunState, pending: PendingAction, found: fresh.Found) -> Outcome:
    """Denied, an open approval void with it: the model proposes anew on what is true now."""
    decided = proposals.decided(fresh.denied(found), pending, pending.decision_id)
    return Outcome(
        on=On.RELEASE_DENIED, events=(decided,), observations=fresh.notes(pending, found), clear_pending=True,
        void_approval=fresh.CHANGED, retries=0,
    )  # fmt: skip


def _noted(withheld: Withheld, found: fresh.Found) -> Withheld:
    """What is asked afresh, with the evidence that was read again for it."""
    decision = withheld.decision
    return replace(withheld, decision=fresh.judged(decision, found)) if decision is not None and found else withheld


def _was_asked(run: RunState, pending: PendingAction) -> bool:
    """Whether a person was asked about this very action, by the proposal's rule or at a release."""
    a = run.approval
    voided = a is not None and a.status == "void" and a.action_hash == pending.action_hash
    return voided or pending.rule != gate.OWN_AUTHORITY


def _ticket(run: RunState) -> ApprovalTicket | None:
    a = run.approval
    if a is None or a.status in ("void", "expired", "consumed", "rejected"):
        return None
    return ApprovalTicket(
        approval_id=a.approval_id, status=a.status, action_hash=a.action_hash, required=a.required, large=a.large,
        deciders=a.deciders, execute_by=a.execute_by, deciders_permitted=a.deciders_permitted, in_time=not a.late,
    )  # fmt: skip


def _intend(
    run: RunState, pending: PendingAction, release: Release, qualification: int | None, *, needs_person: bool
) -> Outcome:
    intent = Intent(
        release=release, pending=pending, seen_input_seq=run.last_input_seq, route_qualification=qualification,
        needs_person=needs_person, attempt=1,
    )  # fmt: skip
    return Outcome(on=On.RELEASED, intent=intent, retries=0)


def _withheld(run: RunState, pending: PendingAction, withheld: Withheld) -> Outcome | Later:
    events: tuple[NewEvent, ...] = ()
    if withheld.decision is not None:
        events = (proposals.decided(withheld.decision, pending, pending.decision_id),)
    if withheld.kind == "escalate":
        return endings.escalate(run, withheld.rule, events=events)
    if withheld.kind == "hold":
        return hold(run, withheld.hold_s, waiting_for="staff", why=withheld.rule)
    if withheld.kind == "ask_afresh" and withheld.decision is not None:
        return _ask_afresh(run, pending, withheld, events)
    return _no_longer(run, pending, withheld, events)


def _ask_afresh(run: RunState, pending: PendingAction, withheld: Withheld, events: tuple[NewEvent, ...]) -> Outcome:
    """A new approval by the gate of this moment; where none is needed any more, one is asked all the same."""
    decision = withheld.decision
    assert decision is not None
    decision = replace(decision, kind="needs_approval", required=max(1, decision.required))
    return Outcome(
        on=On.RELEASE_ASKED_AFRESH, events=events, approval=proposals.approval_for(run, pending, decision),
        waiting_for="approval", due_in_s=float(run.contract.approval_ttl_s), retries=0,
    )  # fmt: skip


def _no_longer(run: RunState, pending: PendingAction, withheld: Withheld, events: tuple[NewEvent, ...]) -> Outcome:
    notes = (
        proposals.refusal(pending, withheld.decision)
        if withheld.decision
        else (
            NewObservation(
                kind="denial", source=pending.tool, content={"error": "denied", "rule": withheld.rule},
                call_id=pending.call_id, args=pending.args,
            ),
        )
    )  # fmt: skip
    return Outcome(
        on=On.RELEASE_DENIED,
        events=events,
        observations=notes,
        clear_pending=True,
        void_approval=withheld.rule,
        retries=0,
    )


def hold(run: RunState, seconds: float, *, waiting_for: str, why: str) -> Outcome | Later:
    """Not now: the approval stays as it is, the facts are read again in a moment."""
    if run.waiting_for == waiting_for:
        held = (run.now - run.status_since).total_seconds()
        return _held_too_long(run, why) or Later(due_in_s=max(seconds, min(held / 4, MAX_HOLD_S)))
    events = (NewEvent(type="notice", meta={"held": why}),)
    return Outcome(on=On.RELEASE_HELD, waiting_for=waiting_for, due_in_s=seconds, events=events, retries=0)


def _held_too_long(run: RunState, why: str) -> Outcome | None:
    """A hold without an approval ends with the life an approval would have had."""
    held = (run.now - run.status_since).total_seconds()
    if held < run.contract.approved_ttl_s or run.pending is None or run.approval is not None:
        return None
    return _no_longer(run, run.pending, Withheld(kind="denied", rule=why), ())


def intent_lost(run: RunState, which: str) -> Outcome | Later | None:
    """A condition of the intent failed and nothing happened: the status that fits. None: look afresh at once.

    A write of ours is no sooner closed as never made than the database that it stands in was fenced.
    """
    if run.status is Status.EXECUTING:
        held = (run.now - run.status_since).total_seconds()
        return Later(due_in_s=max(RESTORED_HOLD_S, min(held / 4, MAX_HOLD_S)))
    pending = run.pending
    assert pending is not None
    if which == "shadow":
        return shadowing.proposed(run, pending)
    if which in ("epoch", "order_busy", "fenced"):
        return hold(run, HOLD_S, waiting_for="order", why=which)
    if which in ("paused", "restored", "tenant_hour"):
        return hold(run, RESTORED_HOLD_S, waiting_for="staff", why=which)
    if which == "route":
        return endings.escalate(run, "route_not_qualified")
    if which == "attempts":
        return endings.escalate(run, "budget_exhausted")
    if which == "key_used":
        return _no_longer(run, pending, Withheld(kind="denied", rule="write_already_made"), ())
    return None
