"""What a person sees before and after deciding, as plain values. Reads approvals and runs; writes nothing.

The hash over what was shown goes with the decision: a page that changed since cannot approve.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from agentsite import clock, dbtime
from agentsite.canonical import sha256
from agentsite.tenants.models import Site, Tenant
from agentsite.text import visible
from approvals import labels, permits, queue, reasons, risk
from approvals.admin.following import MAX_EVENTS, Pair, Progress, progress, timeline
from approvals.admin.rereading import shown as shown_changes
from approvals.changes import Change
from approvals.models import Approval, Decision
from approvals.states import Approved
from runs.models import Input, Run

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MAX_MESSAGES = 30
RISK_TONE = {risk.ORDINARY: "plain", risk.RAISED: "wait", risk.HIGH: "bad"}


@dataclass(frozen=True, kw_only=True)
class EvidenceRow:
    obs_id: str
    tool: str
    fact: str
    source: str
    ok: bool
    at: datetime | None
    age: str


@dataclass(frozen=True, kw_only=True)
class CheckRow:
    name: str
    label: str
    ok: bool
    numbers: tuple[Pair, ...]


@dataclass(frozen=True, kw_only=True)
class Said:
    """Somebody's own words, at a time."""

    who: str
    at: datetime
    text: str


@dataclass(frozen=True, kw_only=True)
class DecisionRow:
    by: str
    decision: str
    at: datetime
    reason: str
    code: str
    attested: str
    refusal: str
    address: str


@dataclass(frozen=True, kw_only=True)
class Risk:
    """How much care this needs, and what makes it so."""

    name: str
    tone: str
    why: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Reread:
    """The last time the live facts were read again: what moved since the proposal, or why nothing was read."""

    at: str
    changes: tuple[Change, ...]
    error: str


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The right-hand side: may this person decide, and if not, why."""

    asks: bool
    may: bool
    why_not: str
    remaining: int


@dataclass(frozen=True, kw_only=True)
class Screen:
    """One review page, whole."""

    approval: Approval
    run: Run | None
    amount: str
    action: str
    rule: str
    status: str
    tone: str
    expires_in: str
    action_rows: tuple[Pair, ...]
    hash_short: str
    screen_hash: str
    panel: Panel
    evidence: tuple[EvidenceRow, ...]
    checks: tuple[CheckRow, ...]
    words: str
    live_facts: tuple[Pair, ...]
    facts_read_at: str
    reread: Reread
    may_reread: bool
    risk: Risk
    said: tuple[Said, ...]
    shown_later: tuple[Said, ...]
    earlier: Approval | None
    decisions: tuple[DecisionRow, ...]
    attempts: tuple[DecisionRow, ...]
    progress: Progress | None
    timeline: tuple[labels.EventRow, ...]
    paused: str
    now: datetime


def build(approval: Approval, user: User) -> Screen:
    """The page of one approval for one user, at this moment of the database's clock."""
    now, run = dbtime.now(), run_of(approval)
    decided = _decisions(approval)
    return Screen(
        approval=approval, run=run, now=now, amount=labels.amount(approval.amount_minor, approval.currency),
        action=labels.TOOL.get(approval.tool, labels.spoken(approval.tool)),
        rule=labels.rule(approval.rule, approval.currency), status=_status(approval, now),
        tone=labels.tone(approval.status), expires_in=labels.duration((approval.expires_at - now).total_seconds()),
        action_rows=tuple(_pairs(approval.args)), hash_short=labels.short_hash(approval.action_hash),
        screen_hash=screen_hash(approval), panel=panel(approval, user),
        evidence=tuple(_evidence(e, now) for e in approval.evidence),
        checks=tuple(_check(c, approval.currency) for c in approval.checks),
        words=_words(approval),
        live_facts=tuple(_live_facts(approval)), facts_read_at=str(approval.facts.get("read_at", "")),
        reread=_reread(approval), may_reread=_may_reread(approval, user), risk=_risk(approval),
        said=_said(run), shown_later=tuple(_shown(m) for m in approval.messages_shown),
        earlier=Approval.objects.filter(pk=approval.earlier).first() if approval.earlier else None,
        decisions=tuple(d for d in decided if not d.refusal), attempts=tuple(d for d in decided if d.refusal),
        progress=None if approval.status == Approved.PENDING else progress(approval, run), timeline=timeline(run),
        paused=_paused(approval.tenant_id),
    )  # fmt: skip


def run_of(approval: Approval) -> Run | None:
    return Run.objects.filter(pk=approval.run_id).first()


def screen_hash(approval: Approval) -> str:
    """The hash over everything shown that may sway a decision; ages and clocks are not in it."""
    return sha256({
        "v": 2, "approval_id": approval.pk, "action_hash": approval.action_hash, "rule": approval.rule,
        "checks": approval.checks, "facts": approval.facts, "evidence": approval.evidence,
        "messages_shown": approval.messages_shown, "expires_at": clock.rfc3339(approval.expires_at),
        "changed": [c.wire() for c in shown_changes(approval)], "attestation": approval.attestation,
    })  # fmt: skip


def _status(approval: Approval, now: datetime) -> str:
    # The sweeper may be a second behind; the page never offers what the database would refuse.
    late = approval.status == Approved.PENDING and approval.expires_at <= now
    return labels.status(Approved.EXPIRED if late else approval.status)


def panel(approval: Approval, user: User) -> Panel:
    """Whether this person may decide it now."""
    asks = approval.status == Approved.PENDING and approval.expires_at > dbtime.now()
    why = permits.objection(approval, user)
    text = f"{why.title} {why.detail}" if why else ""
    if not why and Decision.objects.filter(approval=approval, user_id=user.pk, counted=True).exists():
        text = "You have decided. A second, different person must agree before anything runs."
    return Panel(asks=asks, may=asks and not text, why_not=text if asks else "", remaining=queue.remaining(approval))


def _reread(approval: Approval) -> Reread:
    found = approval.reread or {}
    error = str(found.get("error", ""))
    return Reread(at=str(found.get("read_at", "")), changes=shown_changes(approval), error=labels.spoken(error))


def _may_reread(approval: Approval, user: User) -> bool:
    return approval.status == Approved.PENDING and user.has_perm(permits.DECIDE)


def _risk(approval: Approval) -> Risk:
    before = Approval.objects.filter(
        run_id=approval.run_id, status=Approved.VOID, requested_at__lt=approval.requested_at
    )
    why = risk.why(
        large=approval.large, required=approval.required, checks=approval.checks, void_before=before.exists(),
        written_since=bool(approval.messages_shown),
    )  # fmt: skip
    name = risk.NAMES.get(approval.risk, str(approval.risk))
    return Risk(name=name, tone=RISK_TONE.get(approval.risk, "bad"), why=tuple(words for _, words in why))


def _pairs(values: dict[str, Any]) -> Iterable[Pair]:
    for name in sorted(values):
        yield Pair(label=visible(name), value=labels.value(values[name]))


def _evidence(item: dict[str, Any], now: datetime) -> EvidenceRow:
    at = _moment(item.get("fetched_at"))
    parts = [item.get("doc"), f"v{item['version']}" if item.get("version") is not None else None, item.get("section")]
    return EvidenceRow(
        obs_id=visible(str(item.get("obs_id", ""))), tool=visible(str(item.get("tool", ""))),
        fact=labels.value(item.get("fact") or ""), source=" · ".join(visible(str(p)) for p in parts if p),
        ok=item.get("ok", True) is True, at=at, age=labels.duration((now - at).total_seconds()) if at else "",
    )  # fmt: skip


def _moment(text: Any) -> datetime | None:
    try:
        return clock.parse_rfc3339(text) if isinstance(text, str) and text else None
    except ValueError:
        return None


def _check(item: dict[str, Any], currency: str) -> CheckRow:
    inputs = item.get("inputs")
    rows = labels.numbers(inputs, currency) if isinstance(inputs, dict) else []
    return CheckRow(
        name=visible(str(item.get("name", ""))), label=labels.check(str(item.get("name", ""))),
        ok=item.get("ok") is True, numbers=tuple(Pair(label=name, value=value) for name, value in rows),
    )  # fmt: skip


def _words(approval: Approval) -> str:
    """The customer's words by which the gate asked for a person, or asked beside another reason; "" where none were."""
    named = [c.get("inputs", {}).get("words") for c in approval.checks if c.get("name") == "sensitive_words"]
    return labels.value(named[0]) if named and named[0] else ""


def _live_facts(approval: Approval) -> Iterable[Pair]:
    facts = approval.facts
    order = facts.get("order")
    if isinstance(order, dict):
        yield Pair(label="Order", value=_line(order, ("order_id", "status")))
        yield Pair(label="Costs now", value=labels.value(order.get("amount_due")))
        yield Pair(label="Order total", value=labels.value(order.get("total")))
    for payment in facts.get("payments", []):
        yield Pair(label="Payment", value=_line(payment, ("payment_id", "state", "amount")))
    for refund in facts.get("refunds", []):
        yield Pair(label="Refund", value=_line(refund, ("refund_id", "state", "amount", "payment_id")))
    for ours in facts.get("ours", []):
        line = _line(ours, ("refund_id", "state", "amount", "payment_id"))
        yield Pair(label="Refund of ours, not listed", value=line)
    if isinstance(order, dict) and not facts.get("refunds") and not facts.get("ours"):
        yield Pair(label="Refund", value="none exists")


def _line(item: dict[str, Any], names: tuple[str, ...]) -> str:
    return " · ".join(labels.value(item[n]) for n in names if item.get(n) is not None)


def _said(run: Run | None) -> tuple[Said, ...]:
    if run is None:
        return ()
    contract: object = run.contract
    words = str(contract.get("goal", "")) if isinstance(contract, dict) else ""
    goal = Said(who="Request", at=run.created_at, text=labels.words(words))
    written = Input.objects.filter(run=run, kind="message")
    # The newest: a decision rests on what the customer says now, however much he wrote before.
    newest = list(written.order_by("-seq")[:MAX_MESSAGES])[::-1]
    shown = (Said(who="Message", at=m.at, text=labels.words(m.text)) for m in newest)
    left_out = written.count() - len(newest)
    return (goal, *((_left_out(left_out, run),) if left_out > 0 else ()), *shown)


def _left_out(count: int, run: Run) -> Said:
    text = f"{count} earlier message{'' if count == 1 else 's'} not shown here: see the run's own page"
    return Said(who="Left out", at=run.created_at, text=text)


def _shown(message: dict[str, Any]) -> Said:
    at = _moment(message.get("at")) or clock.now()
    return Said(who="Message after the proposal", at=at, text=labels.words(str(message.get("text", ""))))


def _decisions(approval: Approval) -> list[DecisionRow]:
    """Every decision that counts, and the newest attempts that do not: however many there are, they hide none."""
    refused = approval.decisions.filter(counted=False).order_by("-id")[:MAX_EVENTS]
    rows = [*approval.decisions.filter(counted=True).order_by("id"), *reversed(refused)]
    return [
        DecisionRow(
            by=visible(d.by), decision=d.decision or "unreadable", at=d.at, reason=labels.words(d.reason),
            refusal=d.refusal if not d.counted else "", address=visible(d.address), code=_reason(d.reason_code),
            attested=labels.words(d.attested),
        )
        for d in rows
    ]  # fmt: skip


def _reason(code: str) -> str:
    known = reasons.KNOWN.get(code)
    return known.label if known else visible(code)


def _paused(tenant_id: str) -> str:
    site = Site.objects.filter(pk=1, paused=True).first()
    if site is not None:
        return f"Every write of this site is stopped. {labels.words(site.paused_reason)}".strip()
    tenant = Tenant.objects.filter(pk=tenant_id, paused=True).first()
    if tenant is not None:
        return f"Writes of {tenant.pk} are stopped. {labels.words(tenant.paused_reason)}".strip()
    return ""
