"""Keeper: the only writer of approvals and decisions. Knows no runs, no gate, no model; imports none of them.

Every change is a condition met by row count, against the database's clock. A decision commits together with its own
append-only row; a refused attempt leaves one too. What a model wrote never reaches a status here (M45).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractUser
from django.db import connection, models, transaction
from django.db.models import Q
from django.db.models.expressions import RawSQL

from agentsite import clock, dbtime, queues, redaction, statements, telemetry
from agentsite.money import Money
from agentsite.refusals import Refusal
from agentsite.text import storable
from approvals import answers, notices, permits, risk, standing
from approvals.answers import MAX_REASON as MAX_REASON
from approvals.answers import SPOKEN as SPOKEN
from approvals.answers import Attempt, Shown
from approvals.answers import Decided as Decided
from approvals.models import Approval, Decision
from approvals.standing import Said
from approvals.states import OPEN, Approved, check

DEFAULT_APPROVED_TTL_S = 3600
MAX_MESSAGE = 4000
MAX_MESSAGES_SHOWN = 50
OPEN_VALUES = sorted(s.value for s in OPEN)
# One statement each: a run is its own approval's only user, and at most one of a run's approvals is open.
_CONSUME = (
    "UPDATE approvals_approval SET status = 'consumed', ended_at = {now} WHERE id = %s AND action_hash = %s "
    "AND status = 'approved' AND execute_by > {now}"
)
_VOID = (
    "UPDATE approvals_approval SET status = 'void', ended_at = {now}, void_reason = %s WHERE run_id = %s "
    "AND status IN ('approved', 'pending') RETURNING id"
)
NOT_FOUND = ("not-found", "There is no such thing.", "No approval of yours has this id.")


@dataclass(frozen=True, kw_only=True)
class Question:
    """Everything a person is asked: the exact action, why a person is needed, what it rests on, how long it may wait.

    `ttl_s` is the life of the question, `approved_ttl_s` that of a yes, both in seconds from database time.
    """

    tenant_id: str
    run_id: str
    request_id: str
    call_id: str
    tool: str
    args: dict[str, Any]
    action_hash: str
    policy: str
    rule: str
    checks: list[dict[str, Any]]
    evidence: list[dict[str, Any]]
    customer_id: str
    order_id: str
    payment_id: str
    amount: Money
    created_by: str
    ttl_s: float
    facts: dict[str, Any] = field(default_factory=dict)
    required: int = 1
    large: bool = False
    approved_ttl_s: int = DEFAULT_APPROVED_TTL_S
    attestation: str = ""


# --- asking ------------------------------------------------------------------------------------------------


def ask(question: Question) -> str:
    """Inserts a pending approval and returns its id, inside the caller's transaction.

    Raises IntegrityError while the run has another open approval: it must be void first.
    """
    assert connection.in_atomic_block, "an approval is asked for in the transaction of the transition that needs it"
    now, void, earlier = standing.before(question.run_id, question.action_hash)
    row = Approval.objects.create(
        **_columns(question),
        risk=_risk(question, void_before=void),
        earlier=earlier,
        requested_at=now,
        expires_at=now + timedelta(seconds=question.ttl_s),
        notices_until=now + timedelta(seconds=question.ttl_s * notices.HALF),
    )
    notices.leave(notices.ASKED, row, now=now)
    return row.id


def _columns(q: Question) -> dict[str, Any]:
    return {
        "tenant_id": q.tenant_id, "run_id": UUID(q.run_id), "request_id": q.request_id, "call_id": q.call_id,
        "tool": q.tool, "args": q.args, "action_hash": q.action_hash, "policy": q.policy, "rule": q.rule,
        "checks": q.checks, "facts": {**q.facts, "approved_ttl_s": q.approved_ttl_s}, "evidence": q.evidence,
        "customer_id": q.customer_id, "order_id": q.order_id, "payment_id": q.payment_id,
        "amount_minor": q.amount.minor, "currency": q.amount.currency, "created_by": q.created_by,
        "required": q.required, "large": q.large, "attestation": answers.statement(q.attestation),
    }  # fmt: skip


def _risk(q: Question, *, void_before: bool) -> int:
    return risk.level(
        risk.why(large=q.large, required=q.required, checks=q.checks, void_before=void_before, written_since=False)
    )


# --- deciding ----------------------------------------------------------------------------------------------


def decide(
    approval_id: str,
    user: AbstractUser,
    decision: str,
    action_hash: str,
    reason: str,
    *,
    reason_code: str = "",
    attestation: str = "",
    address: str = "",
    screen_hash: str = "",
    shown: Shown | None = None,
    approved_ttl_s: int | None = None,
) -> Decided:
    """Records one person's answer, once, in a transaction of its own; then nudges the run.

    `shown`, of a door with a page: a yes counts only where the locked row shows what `screen_hash` was made of.
    Raises Refusal: 404 `not-found`; 403 `own-run`, `not-permitted`; 409 `action-changed`, `screen-changed`,
    `approval-void`, `approval-expired`, `already-decided`; 422 `reason-required`, `reason-too-long`, `unknown-reason`,
    `attestation-required`; 400 `invalid-decision`. Every refusal of an approval the user may see is kept as a row that
    does not count.
    """
    if decision not in SPOKEN:
        raise Refusal(400, "invalid-decision", "A decision is exactly approve or reject.")
    # Durable: when the door answers, decision or refusal is on disk, whatever happens to the answer.
    with transaction.atomic(durable=True):
        row, fresh = _visible(approval_id, user)
        now, said = standing.said(row.pk)
        attempt = Attempt(
            user=fresh, decision=decision, action_hash=action_hash, reason=redaction.text(storable(reason)).strip(),
            reason_code=storable(reason_code)[:40], attestation=attestation, address=address[:64],
            screen_hash=screen_hash[:80], now=now,
        )  # fmt: skip
        result = _answer(row, attempt, said, shown, approved_ttl_s)
        if isinstance(result, Refusal):
            _record(row, attempt, refusal=result.slug)
    if isinstance(result, Refusal):
        raise result
    return result


def refuse(
    approval_id: str, user: AbstractUser, refusal: Refusal, *, by: str, decision: str = "", action_hash: str = "",
    address: str = "", screen_hash: str = "",
) -> Refusal:  # fmt: skip
    """Keeps an attempt that a door itself turns down (a token, a stale screen) and returns the refusal to raise."""
    with transaction.atomic(durable=True):
        found = Decision.objects.create(
            approval_id=approval_id, user_id=user.pk, by=storable(by)[:200], counted=False, refusal=refusal.slug[:40],
            decision=decision if decision in SPOKEN else "", action_hash=storable(action_hash)[:80],
            address=address[:64], screen_hash=screen_hash[:80], at=dbtime.now(),
        )  # fmt: skip
        _tell(found)
    return refusal


def _visible(approval_id: str, user: AbstractUser) -> tuple[Approval, permits.Person]:
    """The row, locked, and the user as the database knows him now; 404 for what he may not see (B75)."""
    fresh = permits.person(user.pk)
    scope = Q() if fresh.is_superuser else Q(tenant_id__in=fresh.tenants)
    row = Approval.objects.select_for_update().filter(scope, pk=storable(approval_id)).first()
    if row is None:
        raise Refusal(404, *NOT_FOUND)
    return row, fresh


def _answer(
    row: Approval, attempt: Attempt, said: tuple[Said, ...], shown: Shown | None, approved_ttl_s: int | None
) -> Decided | Refusal:
    refusal = answers.barred(row, attempt)
    if refusal:
        return refusal
    mine = next((one for one in said if one.user_id == attempt.user.pk), None)
    if mine and mine.decision == attempt.decision:
        return _standing(row, mine)
    if mine or row.status != Approved.PENDING:
        return answers.already(row)
    given = sum(one.decision == "approve" for one in said)
    return answers.unfit(row, attempt, shown) or _take(row, attempt, given, approved_ttl_s)


def _standing(row: Approval, mine: Said) -> Decided:
    return Decided(
        kind="same-again", approval_id=row.id, status=row.status, decision=mine.decision, by=mine.by, at=mine.at,
        remaining=remaining(row),
    )  # fmt: skip


def _take(row: Approval, attempt: Attempt, given: int, approved_ttl_s: int | None) -> Decided | Refusal:
    """The decision counts: its row first, then the status by compare-and-set where it was the last one needed.

    `given`: how many have approved before.
    """
    _record(row, attempt)
    left = max(0, row.required - given - 1) if attempt.decision == "approve" else 0
    status = row.status
    if left:
        notices.leave(notices.SECOND_PERSON, row)
    if left == 0:
        status = SPOKEN[attempt.decision]
        check(Approved(row.status), Approved(status))
        moved = Approval.objects.filter(
            pk=row.pk, status=Approved.PENDING, action_hash=attempt.action_hash, expires_at__gt=attempt.now
        ).update(status=status, **_ending(row, attempt, approved_ttl_s))
        assert moved == 1, "the row was locked, so nobody else can have moved it"
        transaction.on_commit(partial(_nudge, str(row.run_id), status), robust=True)
    return Decided(
        kind="recorded", approval_id=row.id, status=status, decision=attempt.decision,
        by=attempt.user.name, at=attempt.now, remaining=left,
    )  # fmt: skip


def _ending(row: Approval, attempt: Attempt, approved_ttl_s: int | None) -> dict[str, Any]:
    said = {"decided_at": attempt.now, "decided_by": attempt.user.name, "reason": attempt.told,
            "reason_code": attempt.reason_code}  # fmt: skip
    if attempt.decision == "reject":
        return said | {"ended_at": attempt.now}
    lives_s = approved_ttl_s if approved_ttl_s is not None else row.facts.get("approved_ttl_s", DEFAULT_APPROVED_TTL_S)
    return said | {"execute_by": attempt.now + timedelta(seconds=lives_s)}


def _record(row: Approval, attempt: Attempt, refusal: str = "") -> None:
    found = Decision.objects.create(
        approval=row, user_id=attempt.user.pk, by=attempt.user.name, decision=attempt.decision,
        counted=not refusal, refusal=refusal, reason=attempt.reason[:MAX_REASON], reason_code=attempt.reason_code,
        attested="" if refusal or attempt.decision != "approve" else row.attestation,
        action_hash=storable(attempt.action_hash)[:80], screen_hash=storable(attempt.screen_hash)[:80],
        address=attempt.address, at=attempt.now,
    )  # fmt: skip
    _tell(found)


def _tell(found: Decision) -> None:
    """A line in the log for a decision, or for one that was not taken; never what a person wrote."""
    row = found.approval
    told = {
        "run_id": str(row.run_id), "tenant": row.tenant_id, "request_id": row.request_id, "approval_id": row.id,
        "by": found.by, "decision": found.decision, "counted": found.counted, "refusal": found.refusal,
        "at": clock.rfc3339(found.at),
    }  # fmt: skip
    transaction.on_commit(partial(telemetry.log, "decision.recorded", **told), robust=True)


def _nudge(run_id: str, status: str) -> None:
    """After the commit: a hint. A broker that is down costs seconds, never the decision (B06).

    A yes is folded by whoever makes the write, with its intent; a no by whoever asks the model again.
    """
    queues.nudge(run_id, "approved" if status == Approved.APPROVED else "awaiting_approval")


# --- using, ending -----------------------------------------------------------------------------------------


def consume(approval_id: str, action_hash: str) -> bool:
    """approved -> consumed, where the hash is equal and `execute_by` has not passed; the intent transaction's own."""
    assert connection.in_atomic_block, "an approval is consumed in the transaction that writes the intent"
    check(Approved.APPROVED, Approved.CONSUMED)
    with statements.cursor() as cursor:
        cursor.execute(_CONSUME.format(now=_now_sql()), [approval_id, action_hash])
        return bool(cursor.rowcount == 1)


def void(run_id: str, reason: str) -> str | None:
    """The run's open approval becomes void; its id, or None where none was open."""
    for status in OPEN:
        check(status, Approved.VOID)
    with statements.cursor() as cursor:
        cursor.execute(_VOID.format(now=_now_sql()), [reason[:80], standing.raw_id(run_id)])
        found = cursor.fetchone()
    return str(found[0]) if found else None


def expire(approval_id: str) -> bool:
    """pending -> expired, only once `expires_at` has come by the database's clock. Never a rejection (M35)."""
    over = _move(Q(pk=approval_id, expires_at__lte=_database_now()), (Approved.PENDING,), Approved.EXPIRED)
    if over:
        notices.leave(notices.EXPIRED, Approval.objects.get(pk=approval_id))
    return over


def remind(limit: int) -> int:
    """Leaves the reminders whose time has come, each once; returns how many approvals were looked at (M44)."""
    now = dbtime.now()
    rows = list(Approval.objects.filter(notices_until__lte=now).order_by("notices_until")[:limit])
    for row in rows:
        with transaction.atomic():
            kind, following = notices.reminder(row, now)
            mine = Approval.objects.filter(pk=row.pk, notices_until=row.notices_until).update(notices_until=following)
            if mine == 1 and kind is not None:
                notices.leave(kind, row)
    return len(rows)


def _move(which: Q, old: Iterable[Approved], new: Approved, **columns: Any) -> bool:
    for status in old:
        check(status, new)
    rows = Approval.objects.filter(which, status__in=[s.value for s in old])
    return rows.update(status=new.value, ended_at=_database_now(), **columns) == 1


def _database_now() -> RawSQL:
    return RawSQL(_now_sql(), [], output_field=models.DateTimeField())  # noqa: S611 - a constant of our own


def _now_sql() -> str:
    # SQLite compares times as text: its milliseconds in the microseconds that Django stores, or equal is not equal.
    return dbtime.now_sql().replace("%%f", "%%f000")


def show_message(approval_id: str, text: str, at: datetime) -> None:
    """Puts a customer's message on the approval's page; from a run's second void on, messages void nothing."""
    with transaction.atomic():
        row = Approval.objects.select_for_update().get(pk=approval_id)
        shown = [*row.messages_shown, {"text": storable(text)[:MAX_MESSAGE], "at": answers.when(at)}]
        raised = max(row.risk, risk.RAISED)
        Approval.objects.filter(pk=approval_id).update(messages_shown=shown[-MAX_MESSAGES_SHOWN:], risk=raised)


def show_reread(approval_id: str, reread: dict[str, Any]) -> bool:
    """Puts what a new reading of the live facts found on a pending approval's page; False where it was decided."""
    return Approval.objects.filter(pk=approval_id, status=Approved.PENDING).update(reread=reread) == 1


# --- reading -----------------------------------------------------------------------------------------------


def open_until(at: datetime, *, after: str, limit: int) -> list[tuple[str, str]]:
    """(id, run) of approvals asked until then that still wait for a person or for their use, in the order of ids."""
    rows = Approval.objects.filter(requested_at__lte=at, status__in=OPEN_VALUES, id__gt=after).order_by("id")
    return [(approval_id, str(run_id)) for approval_id, run_id in rows.values_list("id", "run_id")[:limit]]


def newest() -> datetime | None:
    """When the last open approval was asked for: later than now where a clock was set back."""
    still_open = Approval.objects.filter(status__in=OPEN_VALUES).order_by("-requested_at")
    return still_open.values_list("requested_at", flat=True).first()


def latest(run_id: str) -> Approval | None:
    """The run's newest approval, whatever its status."""
    return Approval.objects.filter(run_id=run_id).order_by("-requested_at").first()


def deciders(approval_id: str) -> tuple[str, ...]:
    """Names of those whose approval counts, in the order they decided."""
    counted = Decision.objects.filter(approval_id=approval_id, counted=True, decision="approve")
    return tuple(counted.order_by("id").values_list("by", flat=True))


def remaining(approval: Approval) -> int:
    """How many people must still approve; 0 once it is no longer pending."""
    if approval.status != Approved.PENDING:
        return 0
    given = Decision.objects.filter(approval_id=approval.pk, counted=True, decision="approve").count()
    return max(0, approval.required - given)


def permitted(approval_id: str) -> bool:
    """Whether everyone who approved is still active, still permitted, and still sees the tenant (M36).

    A yes without the statement that was asked for, taken by a process that knew of none, is no yes. Inside the intent
    transaction the grants are held, so that a revocation is seen here or comes after the intent.
    """
    return permits.still_hold(approval_id)
