"""Tells a run's story as typed facts for the customer's texts. Part of the store; writes nothing."""

from __future__ import annotations

from agentsite.money import Money, parse
from approvals.models import Approval
from runs import clauses, languages, reply
from runs.contracts import RunState, SeenWrite
from runs.models import Event, Input, Run, Write
from runs.states import Status
from runs.store.load import listed_from, observations

FOUND_BY_STAFF = "found_by_staff"
STAFF = "staff:"
"""How the `by` of an input begins that staff left; anybody else's is the client's."""


def story(run_id: str) -> reply.Story:
    """The story of a run as its rows stand now."""
    row = Run.objects.get(id=run_id)
    approval = Approval.objects.filter(id=row.approval_id).first() if row.approval_id else None
    seen = observations(run_id)
    return reply.story(
        status=row.status, reason=row.reason, outcome=row.outcome, waiting_for=row.waiting_for,
        observations=seen,
        writes=[
            _story_write(w.state, _minor(w), w.currency, w.refund_id, w.payment_id, w.order_id)
            for w in Write.objects.filter(run_id=run_id).order_by("intent_at")
        ],
        approval=_story_approval(approval.status, approval.reason) if approval else None,
        dependency=row.dependency, cancel_asked=_client_cancelled(run_id),
        said=row.reply if row.outcome == "resolved_by_staff" else None,
        language=languages.of_customer(_goal(row), seen),
        listed_from=listed_from(row.restored_at, row.tenant_id, row.agent),
        clauses=_clauses(run_id) if row.status == Status.COMPLETED else (),
    )  # fmt: skip


def first_story(row: Run) -> reply.Story:
    """The same of a run that was made just now: nothing but its request is there to be looked for."""
    return reply.story(
        status=row.status, reason=None, outcome=None, waiting_for=None, observations=(), writes=[], approval=None,
        dependency=None, language=languages.of_customer(_goal(row), ()),
        listed_from=listed_from(row.restored_at, row.tenant_id, row.agent),
    )  # fmt: skip


def _clauses(run_id: str) -> tuple[clauses.Clause, ...]:
    """Those of the run's reply, a correction of it included; none once it was erased."""
    sent = Event.objects.filter(run_id=run_id, type="reply.sent").order_by("seq").first()
    return clauses.of_wire((sent.payload or {}).get("clauses")) if sent is not None else ()


def _goal(row: Run) -> str:
    """The customer's words; none where the contract's row holds what no code of ours wrote."""
    contract: object = row.contract
    return str(contract.get("goal", "")) if isinstance(contract, dict) else ""


def _client_cancelled(run_id: str) -> bool:
    """Whether the customer's side asked: what staff cancel, the customer did not ask for."""
    return Input.objects.filter(run_id=run_id, kind="cancel").exclude(by__startswith=STAFF).exists()


def _minor(write: Write) -> int:
    """What was asked; what was refunded where a person found another amount and settled the write by it."""
    made = parse(write.result["amount"]).minor if write.state == "confirmed" and write.result else write.amount_minor
    by_hand = made != write.amount_minor and write.tries.filter(answer=FOUND_BY_STAFF).exists()
    return made if by_hand else write.amount_minor


def story_of(
    run: RunState, *, status: Status, outcome: str | None, reason: str | None = None,
    quoted: tuple[clauses.Clause, ...] = (),
) -> reply.Story:  # fmt: skip
    """The story as a handler sees it, in the status it is about to reach."""
    return reply.story(
        status=status.value, reason=reason, outcome=outcome, waiting_for=None, observations=run.observations,
        writes=[_from_seen(w) for w in run.writes],
        approval=_story_approval(run.approval.status, run.approval.reason) if run.approval else None,
        dependency=run.dependency,
        cancel_asked=any(i.kind == "cancel" and not i.by.startswith(STAFF) for i in run.inputs),
        listed_from=run.listed_from, language=languages.of_customer(run.contract.goal, run.observations),
        clauses=quoted,
    )  # fmt: skip


def _from_seen(w: SeenWrite) -> reply.StoryWrite:
    return _story_write(w.state, w.amount.minor, w.amount.currency, w.refund_id, w.payment_id, w.order_id)


def _story_write(
    state: str, minor: int, currency: str, refund_id: str | None, payment_id: str, order_id: str
) -> reply.StoryWrite:
    return reply.StoryWrite(
        state=state, amount=Money(minor=minor, currency=currency), refund_id=refund_id, payment_id=payment_id,
        order_id=order_id,
    )  # fmt: skip


def _story_approval(status: str, reason: str) -> reply.StoryApproval:
    return reply.StoryApproval(status=status, reason=reason)
