"""Paper: the console's words for slugs, times and money. Imports no Django, no clock, no rows.

Everything that customers, providers or models wrote passes `visible`, `words` or `pretty` on its way to a page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from agentsite import money, telemetry
from agentsite.text import storable, visible

MAX_VALUE = 400
MAX_PRETTY = 20_000

STATUS = {
    "pending": "Needs a decision",
    "approved": "Approved",
    "rejected": "Rejected",
    "expired": "Expired, undecided",
    "void": "Void",
    "consumed": "Approved and used",
}
RUN = {
    "accepted": "Accepted",
    "gathering": "Gathering evidence",
    "action_proposed": "Action proposed",
    "awaiting_approval": "Waiting for a decision",
    "approved": "Approved, about to run",
    "executing": "Sending to the business system",
    "executed": "Sent, being verified",
    "verified": "Verified",
    "waiting_dependency": "Waiting for a system that is down",
    "waiting_reply": "Waiting for the customer",
    "approval_expired": "Approval expired",
    "completed": "Completed",
    "escalated": "Handed to a person",
    "cancelled": "Cancelled",
    "failed": "Failed",
}
TONE = {
    "pending": "wait", "awaiting_approval": "wait", "waiting_reply": "wait", "waiting_dependency": "wait",
    "approved": "good", "consumed": "good", "verified": "good", "completed": "good", "confirmed": "good",
    "rejected": "bad", "failed": "bad", "escalated": "bad", "unknown": "bad", "refused": "bad",
    "approval_expired": "bad",
}  # fmt: skip
WRITE = {
    "intent": "Recorded, not sent yet",
    "sent": "Sent, no answer yet",
    "unknown": "Outcome unknown: being looked up",
    "pending": "Accepted, not settled yet",
    "confirmed": "Confirmed by the business system",
    "failed": "Failed at the business system",
    "refused": "Refused by the business system",
    "not_sent": "Never sent",
}
TOOL = {"issue_refund": "Refund to the original payment"}
RULE = {
    "customer_day_total_requires_approval": "This customer's total for the day needs approval",
    "tenant_hour_total_requires_approval": "The hour's total needs approval",
    "sensitive_words_require_approval": "The customer's words need a person's decision",
}
# A check is named after the denial it would be; people read what holds.
CHECK = {
    "tool_not_in_scope": "Tool is in this run's scope",
    "tool_never_allowed": "Tool is not forbidden",
    "tool_blocked": "Tool is not blocked by the site",
    "tool_too_dangerous": "Tool's danger fits its permission",
    "secret_not_allowed": "Secrets stand where the tool takes them",
    "sensitive_words": "Sensitive words of the customer",
    "route_not_qualified": "Model may propose writes",
    "order_out_of_scope": "Order is in this run's scope",
    "write_already_made": "First write on this payment",
    "evidence_missing": "Evidence is cited",
    "unknown_evidence": "Cited evidence exists",
    "order_not_read": "The order's records were read first",
    "precedent_is_no_evidence": "No other case is cited as proof",
    "policy_stale": "Policy version is current",
    "evidence_fresh": "Evidence read long ago was read again",
    "order_exists": "Order exists",
    "order_not_yours": "Order is the customer's own",
    "payment_not_of_order": "Payment is of this order",
    "payment_disputed": "Payment is not disputed",
    "payment_not_captured": "Payment was captured",
    "currency_mismatch": "One currency throughout",
    "amount_not_positive": "Amount is above zero",
    "nothing_refundable": "Something is left to refund",
    "amount_exceeds_refundable": "Within what may be refunded",
    "amount_exceeds_payment": "Within what is left on the payment",
    "no_limit_for_currency": "Currency has a ceiling",
    "amount_exceeds_ceiling": "Within the ceiling",
    "within_own_authority": "Against the approval threshold",
}
NUMBER = {
    "registry_current": "current", "max_excess": "refundable", "amount_due": "order costs",
    "order_customer": "order's customer", "actor": "asked for by", "with_earlier": "with earlier refunds",
    "large": "needs two people", "customer_day": "customer today", "tenant_hour": "tenant this hour",
}  # fmt: skip
_THRESHOLD = re.compile(r"([a-z_]+)_above_([0-9]+(?:\.[0-9]+)?)_requires_approval")


@dataclass(frozen=True, kw_only=True)
class EventRow:
    """One line of a timeline; `offset` counts from the run's admission."""

    offset: str
    type: str
    summary: str
    at: datetime


def spoken(slug: str) -> str:
    """A slug as words: `order_owned_by_actor` -> `Order owned by actor`."""
    text = visible(slug).replace("_", " ").strip()
    return text[:1].upper() + text[1:]


def status(slug: str) -> str:
    return STATUS.get(slug, spoken(slug))


def run_status(slug: str) -> str:
    return RUN.get(slug, spoken(slug))


def tone(slug: str) -> str:
    return TONE.get(slug, "plain")


def rule(slug: str, currency: str = "") -> str:
    """Why a person is needed, in words: what stands in the queue; the slug itself goes into a tooltip."""
    match = _THRESHOLD.fullmatch(slug)
    if match:
        whole, dot, decimals = match[2].partition(".")
        above = f"{int(whole):,}{dot}{decimals} {visible(currency)}".strip()
        return f"{spoken(match[1])} above {above} needs approval"
    return RULE.get(slug, spoken(slug))


def check(name: str) -> str:
    return CHECK.get(name, spoken(name))


def numbers(inputs: Mapping[str, Any], currency: str) -> list[tuple[str, str]]:
    """What a check looked at, as (name, value): the numbers a person needs to judge it."""
    return [(NUMBER.get(name, spoken(name).lower()), _number(thing, currency)) for name, thing in inputs.items()]


def _number(thing: Any, currency: str) -> str:
    if isinstance(thing, dict) and set(thing) == {"used", "limit"}:
        return _total(thing["used"], thing["limit"], currency)
    return value(thing)


def _total(used: Any, limit: Any, currency: str) -> str:
    try:
        (count, minor) = used
        spent = f"{count} refunds, {amount(minor, currency)}"
        return f"{spent} of at most {limit[0]}, {amount(limit[1], currency)}" if limit else spent
    except (TypeError, ValueError, IndexError):
        return f"{value(used)} of {value(limit)}"


def moment(at: datetime) -> str:
    """An absolute time that names its zone, such as `29 Nov 2026, 12:00:05 UTC`."""
    return at.astimezone(UTC).strftime("%d %b %Y, %H:%M:%S UTC").lstrip("0")


def duration(seconds: float) -> str:
    """Two units at most: `41 s`, `27 min`, `23 h 59 min`, `3 d 4 h`. Rounded down, never below zero."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def offset(seconds: float) -> str:
    """A timeline's left edge: tenths of a second while they matter."""
    return f"{max(0.0, seconds):.1f} s" if seconds < 100 else duration(seconds)


def amount(minor: int, currency: str) -> str:
    """`2,000.00 INR` by the currency's own decimals; the plain integer where the code is none of ours."""
    try:
        return str(money.Money(minor=minor, currency=currency))
    except money.BadMoney:
        return f"{minor} {visible(currency)} (minor units)"


def value(thing: Any) -> str:
    """One line for any JSON value: money as money, text with every invisible character written out."""
    if isinstance(thing, dict) and set(thing) == {"amount", "currency"}:
        try:
            return str(money.parse(thing))
        except money.BadMoney:
            pass
    if isinstance(thing, bool) or thing is None:
        return {True: "yes", False: "no", None: "none"}[thing]
    if isinstance(thing, dict):
        return _cut(" · ".join(f"{visible(str(k))} {value(v)}" for k, v in thing.items()))
    if isinstance(thing, list | tuple):
        return _cut(", ".join(value(v) for v in thing) or "none")
    return _cut(visible(str(thing)))


def words(text: str) -> str:
    """Somebody's own words: line breaks and letter joiners stay, everything else invisible is written out."""
    return storable(text)


def pretty(thing: Any) -> str:
    """JSON to read, secrets replaced, nothing invisible; cut where it would flood the page."""
    text = storable(json.dumps(telemetry.redact(thing), indent=2, ensure_ascii=False, default=str))
    return text if len(text) <= MAX_PRETTY else text[:MAX_PRETTY] + "\n… cut"


def short_hash(full: str) -> str:
    """`sha256:9c1e0f22…`: enough to compare by eye; the whole stands beside it."""
    return visible(full[:15]) + "…" if len(full) > 16 else visible(full)


# Hashes and ids that no reader compares in a timeline; the run's page shows each event whole.
UNSAID = frozenset({
    "hash", "tools", "action_hash", "trace_id", "decision_id", "facts", "checks", "release", "finish_reason", "agent",
    "idempotency_key", "on", "expected", "found", "metadata",
})  # fmt: skip


def event_row(kind: str, at: datetime, began: datetime, meta: Any, payload: Any) -> EventRow:
    """An event for a timeline; its payload is None once erased."""
    data = {**(meta or {}), **(payload or {})}
    since = offset((at - began).total_seconds())
    return EventRow(offset=since, type=visible(kind), summary=event(kind, data), at=at)


def found(data: Mapping[str, Any]) -> str:
    """What stood in the evidence before the first model call."""
    words = {"passages": "policy passage", "cases": "earlier request"}
    counted = [(data[name], word) for name, word in words.items() if isinstance(data.get(name), int)]
    return ", ".join(f"{number} {word}{'' if number == 1 else 's'}" for number, word in counted)


def event(kind: str, data: Mapping[str, Any]) -> str:
    """What an event says, in one line."""
    if kind == "evidence.found":
        return found(data)
    if kind == "run.status" and "to" in data:
        why = f" ({visible(str(data['reason']))})" if data.get("reason") else ""
        return f"{visible(str(data.get('from', '')))} → {visible(str(data['to']))}{why}"
    said = {name: thing for name, thing in data.items() if name not in UNSAID}
    return _cut(" · ".join(_pairs(telemetry.redact(said).items())))


def _pairs(items: Iterable[tuple[str, Any]]) -> Iterable[str]:
    for name, thing in items:
        if thing not in (None, "", [], {}):
            yield f"{visible(str(name))} {value(thing)}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_VALUE else text[:MAX_VALUE] + "…"
