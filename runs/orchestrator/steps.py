"""Which handler a status has; crash loops; and what follows when the intent's conditions did not hold."""

from __future__ import annotations

from collections.abc import Callable

from runs.contracts import Outcome, RunState
from runs.orchestrator import (
    endings,
    evidence_first,
    prechecks,
    proposals,
    releasing,
    sending,
    shadowing,
    turns,
    verifying,
    waits,
)
from runs.orchestrator.later import Later, Send
from runs.orchestrator.ports import LIVE, Ports
from runs.states import MODEL_TURN, On, Status
from tools.contracts import Release, SentMark

Handled = Outcome | Later | Send
HANDLERS: dict[Status, Callable[[RunState, Ports], Handled]] = {
    Status.ACTION_PROPOSED: proposals.gate_write,
    Status.AWAITING_APPROVAL: waits.awaiting_approval,
    Status.APPROVAL_EXPIRED: waits.approval_expired,
    Status.WAITING_REPLY: waits.waiting_reply,
    Status.WAITING_DEPENDENCY: waits.waiting_dependency,
    Status.APPROVED: releasing.approved,
    Status.EXECUTING: sending.executing,
    Status.EXECUTED: verifying.executed,
}


def step(run: RunState, ports: Ports = LIVE) -> Handled:
    """One handler of the run's status. It writes nothing; what it returns is checkpointed by the caller."""
    return shadowing.held_back(run, _handled(run, ports), ports)


def _handled(run: RunState, ports: Ports) -> Handled:
    if run.attempts > ports.settings().MAX_STEP_ATTEMPTS and run.status not in (Status.EXECUTING, Status.EXECUTED):
        return _crash_loop(run)
    if endings.has(run, "escalate") and run.status not in (Status.EXECUTING, Status.EXECUTED, Status.VERIFIED):
        return endings.escalate(run, "escalated_by_staff")
    if (said := prechecks.look(run)) is not None:
        return said
    if run.status in (Status.ACCEPTED, Status.GATHERING, Status.VERIFIED):
        return _investigate(run, ports)
    if endings.has(run, "cancel") and run.status is Status.ACTION_PROPOSED:
        return endings.cancel(run)
    if (ended := shadowing.stood(run, ports)) is not None:
        return ended
    return HANDLERS[run.status](run, ports)


def _crash_loop(run: RunState) -> Outcome:
    """A step that keeps killing its worker ends here, decided by one that did not die."""
    if run.status is Status.VERIFIED:
        return endings.complete(run, None)
    return endings.escalate(run, "worker_crash_loop")


def _investigate(run: RunState, ports: Ports) -> Outcome | Later:
    if endings.has(run, "cancel"):
        return endings.complete(run, None) if run.status is Status.VERIFIED else endings.cancel(run)
    if run.unanswered:
        return proposals.investigated(run, ports)
    if evidence_first.wanted(run, ports.settings()):
        return evidence_first.find(run, ports)
    if endings.has(run, "message"):
        observations, folded = endings.fold(run)
        return Outcome(on=On.MESSAGE_FOLDED, observations=observations, folded=folded)
    held_s = ports.held_s(run.tenant_id)
    return turns.model_turn(run, ports) if held_s is None else Later(due_in_s=held_s)


def asks_model(run: RunState, ports: Ports = LIVE) -> bool:
    """Whether the run's next step is a model turn, by its status and by what it has to do before one."""
    ready = run.status in MODEL_TURN and not run.unanswered
    return ready and not evidence_first.wanted(run, ports.settings())


def send(run: RunState, release: Release, mark: SentMark, ports: Ports = LIVE) -> Outcome:
    """POST the write by the right of its mark."""
    return sending.send(run, release, mark, ports)


def can_send(run: RunState, release: Release, ports: Ports = LIVE) -> bool:
    """Whether this process holds what a send needs: asked before the mark, which spends an attempt."""
    return sending.can_send(run, release, ports)


def resolve_intent(run: RunState, which: str) -> Outcome | Later | None:
    """The status that fits when a condition of the intent did not hold; None: run the handler again."""
    return releasing.intent_lost(run, which)
