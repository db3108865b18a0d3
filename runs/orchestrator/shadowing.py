"""A run in shadow mode: what its handlers conclude goes to staff as a proposal; nothing is written or told (M110).

Like a handler it looks and returns; the barrier itself is the store's, in the transaction of the intent and the mark.
"""

from __future__ import annotations

from typing import TypeVar

from runs.contracts import NewEvent, Outcome, PendingAction, RunState, SeenWrite
from runs.orchestrator import endings
from runs.orchestrator.ports import Ports
from runs.states import On, Status
from tools import gate
from tools.contracts import Json

T = TypeVar("T")
REASON = "shadow_mode"
EVENT = "shadow.proposed"
JUDGED = {
    On.GATE_ALLOWED: "allow", On.GATE_NEEDS_APPROVAL: "needs_approval", On.RELEASE_ASKED_AFRESH: "needs_approval",
}  # fmt: skip
CONCLUDED = ("no_refund_due", "answered")
"""Ends that are the agent's own conclusion; what was refunded, or rejected by a person, is told as ever."""
STANDING = (Status.AWAITING_APPROVAL, Status.APPROVED)
CARRIED = ("turn", "pending", "active_ms", "repairs", "retries", "versions", "requests", "spent", "window_tokens")


def applies(run: RunState, ports: Ports) -> bool:
    """Whether the run may only propose: it was admitted in shadow mode, or its tenant is in it at this moment."""
    return run.contract.shadow or ports.in_shadow(run.tenant_id)


def stood(run: RunState, ports: Ports) -> Outcome | None:
    """The end of a run whose write waits for a decision or a release when its tenant enters shadow mode, else None.

    What a customer, or a person who said no, left before that goes its own way first.
    """
    if run.status not in STANDING or run.pending is None or endings.has(run, "message") or endings.has(run, "cancel"):
        return None
    if run.approval is not None and run.approval.status not in ("pending", "approved"):
        return None
    return proposed(run, run.pending) if applies(run, ports) else None


def held_back(run: RunState, handled: T, ports: Ports) -> T | Outcome:
    """What a handler returned; in a run in shadow mode its end in the place of a conclusion."""
    if not isinstance(handled, Outcome) or not _concludes(handled) or not applies(run, ports):
        return handled
    kept = {name: getattr(handled, name) for name in CARRIED}
    events = tuple(e for e in handled.events if e.type != "reply.sent")
    if handled.on is On.REPLY_SENT:
        told = NewEvent(type=EVENT, meta={"tool": None, "outcome": handled.outcome}, payload={"draft": handled.reply})
        return endings.escalate(run, REASON, events=(*events, told), clear_pending=True, **kept)
    pending = handled.pending or run.pending
    assert pending is not None, "a decision is about an action"
    told = _proposed(pending.tool, pending.args, pending.action_hash, JUDGED[handled.on], pending.rule)
    return endings.escalate(run, REASON, events=(*events, told), **kept)


def _concludes(outcome: Outcome) -> bool:
    if outcome.on is On.REPLY_SENT:
        return outcome.outcome in CONCLUDED
    return outcome.on in JUDGED


def proposed(run: RunState, pending: PendingAction) -> Outcome:
    """The end of a run whose write was allowed before, or approved: its approval is void, staff have the proposal."""
    asked = run.approval is not None and run.approval.action_hash == pending.action_hash
    decision = "needs_approval" if asked or pending.rule != gate.OWN_AUTHORITY else "allow"
    told = _proposed(pending.tool, pending.args, pending.action_hash, decision, pending.rule)
    return endings.escalate(run, REASON, events=(told,))


def never_made(run: RunState, write: SeenWrite, closed: Outcome) -> Outcome:
    """The end of a run whose write was committed to before and surely made nothing: it closes, and never goes out."""
    decision = "needs_approval" if write.approval_id else "allow"
    rule = run.pending.rule if run.pending is not None and run.pending.key == write.key else ""
    told = _proposed(write.tool, write.args, write.action_hash, decision, rule)
    return endings.escalate(
        run, REASON, write=closed.write, observations=closed.observations, events=(*closed.events, told),
        clear_pending=True,
    )  # fmt: skip


def _proposed(tool: str, args: Json, action_hash: str, decision: str, rule: str) -> NewEvent:
    meta = {
        "tool": tool, "order_id": args["order_id"], "payment_id": args["payment_id"], "amount": args["amount"],
        "decision": decision, "rule": rule, "action_hash": action_hash,
    }  # fmt: skip
    return NewEvent(type=EVENT, meta=meta, payload={"action": {"tool": tool, "args": args}})
