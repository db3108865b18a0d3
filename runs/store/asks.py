"""Asks, voids and expires a run's approval inside the transition's transaction. Part of the store."""

from __future__ import annotations

from agentsite.tenants.models import current_profile
from approvals import queue
from approvals.states import OPEN
from runs.contracts import NewApproval, NewEvent, Outcome, RunState
from runs.errors import RunError
from runs.states import TERMINAL, On, Status

# Leaving one of these for anything but those voids an open approval in the same transaction (contract, section 4).
HOLDING = frozenset({Status.AWAITING_APPROVAL, Status.APPROVAL_EXPIRED, Status.APPROVED})
KEEPING = frozenset({Status.EXECUTING, Status.APPROVED, Status.WAITING_DEPENDENCY, Status.AWAITING_APPROVAL})


class DecidedMeanwhile(RunError):
    """A person decided in the instant we expired the approval: look again."""

    slug = "decided_meanwhile"


def apply(run: RunState, outcome: Outcome, to: Status) -> tuple[str | None, tuple[NewEvent, ...]]:
    """(new approval id or None, the events of what was done to approvals)."""
    happened: list[NewEvent] = []
    if outcome.on is On.MESSAGE_SHOWN and run.approval is not None:
        for message in (i for i in run.inputs if i.kind == "message"):
            queue.show_message(run.approval.approval_id, message.text, message.at)
    if outcome.expire_approval:
        happened.append(_expire(run))
    reason = why_void(run, outcome, to)
    if reason is not None and _may_be_open(run):
        happened.extend(_void(run, reason))
    if outcome.approval is None:
        return None, tuple(happened)
    approval_id = queue.ask(_question(run, outcome.approval))
    happened.append(requested_event(approval_id, outcome.approval))
    return approval_id, tuple(happened)


def _may_be_open(run: RunState) -> bool:
    """One that is over stays so, and a newer one comes with a transition of the run alone."""
    return run.approval is not None and run.approval.status in OPEN


def why_void(run: RunState, outcome: Outcome, to: Status) -> str | None:
    """The reason for which a transition voids an approval that is open, or None where it leaves it alone."""
    reason = outcome.void_approval or ("asked_afresh" if outcome.approval else None)
    leaves = run.status in HOLDING and to not in KEEPING
    if reason is None and (leaves or to in TERMINAL) and not outcome.expire_approval:
        return outcome.reason or outcome.on.value
    return reason


def _expire(run: RunState) -> NewEvent:
    assert run.approval is not None, "only a run with an approval can see it expire"
    if not queue.expire(run.approval.approval_id):
        raise DecidedMeanwhile(run.approval.approval_id)
    return expired_event(run.approval.approval_id)


def expired_event(approval_id: str) -> NewEvent:
    return NewEvent(type="approval.expired", meta={"approval_id": approval_id})


def _void(run: RunState, reason: str) -> list[NewEvent]:
    approval_id = queue.void(run.run_id, reason)
    if approval_id is None:
        return []
    return [void_event(approval_id, reason)]


def void_event(approval_id: str, reason: str) -> NewEvent:
    return NewEvent(type="approval.void", meta={"approval_id": approval_id, "reason": reason})


def requested_event(approval_id: str, new: NewApproval) -> NewEvent:
    return NewEvent(
        type="approval.requested",
        meta={
            "approval_id": approval_id, "action_hash": new.pending.action_hash, "rule": new.decision.rule,
            "required": new.decision.required,
        },
    )  # fmt: skip


def _question(run: RunState, new: NewApproval) -> queue.Question:
    pending = new.pending
    return queue.Question(
        tenant_id=run.tenant_id, run_id=run.run_id, request_id=run.request_id, call_id=pending.call_id,
        tool=pending.tool, args=pending.args, action_hash=pending.action_hash, policy=new.policy,
        rule=new.decision.rule, checks=[c.wire() for c in new.decision.checks], facts=new.decision.facts,
        evidence=[
            {
                "obs_id": e.obs_id, "tool": e.tool, "fact": e.fact, "fetched_at": e.fetched_at, "doc": e.doc,
                "version": e.version, "section": e.section, "ok": e.ok,
            }
            for e in new.evidence
        ],
        customer_id=run.contract.actor.customer_id, order_id=new.order_id, payment_id=new.payment_id,
        amount=new.amount, created_by=run.contract.created_by, required=new.decision.required,
        large=new.decision.large, ttl_s=run.contract.approval_ttl_s, approved_ttl_s=run.contract.approved_ttl_s,
        attestation=_attestation(run),
    )  # fmt: skip


def _attestation(run: RunState) -> str:
    """What the tenant asks an approver to state now; frozen into the approval, not into the run (M117)."""
    profile = current_profile(run.tenant_id, run.contract.agent)
    return profile.attestation if profile is not None else ""
