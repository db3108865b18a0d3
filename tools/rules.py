"""The arithmetic of refunds: what counts, what is left, which listed refund is ours. A paper: no Django, clock or HTTP.

Every sum raises `money.CurrencyMismatch` where two currencies would meet; the gate turns that into a denial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from agentsite.canonical import canonical_text
from agentsite.money import CurrencyMismatch, Money, parse, total, zero
from tools.contracts import Json, OrderFacts, OwnWrite, Payment, Refund, Scope

NOT_REFUNDED = frozenset({"failed", "canceled"})
NEVER_MADE = frozenset({"not_sent", "refused", "failed"})
TAKEN = frozenset({"captured", "refunded"})
DISPUTED = "disputed"


@dataclass(frozen=True, kw_only=True)
class Match:
    """The listed refund that is a write of ours. `ambiguous`: several may be it, so nobody can tell."""

    refund: Refund | None = None
    by: Literal["refund_id", "key", "metadata", "likeness"] | None = None
    ambiguous: bool = False


@dataclass(frozen=True, kw_only=True)
class _Item:
    payment_id: str
    amount: Money


# --- which listed refund is ours ---------------------------------------------------------------------------


def match(own: OwnWrite, refunds: Sequence[Refund], *, claimed: AbstractSet[str]) -> Match:
    """The listed refund made by `own`: by refund id, then key, then our metadata, then likeness.

    `claimed` holds refund ids known to belong to other writes of ours; only likeness looks at it.
    """
    found = _firm_match(own, refunds)
    return found if found.refund else _likeness(own, refunds, claimed)


def claimed_by_others(own: Iterable[OwnWrite], key: str) -> set[str]:
    """Refund ids that belong to writes of ours other than the one under `key`."""
    return {o.refund_id for o in own if o.refund_id and o.key != key}


def _firm_match(own: OwnWrite, refunds: Sequence[Refund]) -> Match:
    if own.refund_id and (found := _pick(refunds, lambda r: r.refund_id == own.refund_id)):
        return Match(refund=found, by="refund_id")
    if found := _pick(refunds, lambda r: r.idempotency_key == own.key):
        return Match(refund=found, by="key")
    if found := _pick(refunds, lambda r: _metadata_key(r) == own.key):
        return Match(refund=found, by="metadata")
    return Match()


def _pick(refunds: Sequence[Refund], is_ours: Callable[[Refund], bool]) -> Refund | None:
    # A provider that honours no keys may list several under ours: one that moved money is the one to look at.
    return min((r for r in refunds if is_ours(r)), key=lambda r: (not counted(r.state), r.refund_id), default=None)


def _metadata_key(refund: Refund) -> object:
    listed = refund.metadata or {}
    return listed.get("idempotency_key") or listed.get("key")


def _likeness(own: OwnWrite, refunds: Sequence[Refund], claimed: AbstractSet[str]) -> Match:
    if own.first_sent_at is None:
        return Match()
    alike = {r.refund_id: r for r in refunds if _alike(own, r, own.first_sent_at) and r.refund_id not in claimed}
    if len(alike) != 1:
        return Match(ambiguous=len(alike) > 1)
    return Match(refund=next(iter(alike.values())), by="likeness")


def _alike(own: OwnWrite, refund: Refund, first_sent_at: datetime) -> bool:
    bare = not refund.idempotency_key and not refund.metadata
    same = (refund.payment_id, refund.amount) == (own.payment_id, own.amount)
    return bare and same and not _created_before(refund.created_at, first_sent_at)


def _created_before(created_at: str | None, first_sent_at: datetime) -> bool:
    """Whether a listed time is surely earlier; one that is missing or unreadable proves nothing."""
    try:
        created = datetime.fromisoformat((created_at or "").replace("Z", "+00:00"))
    except ValueError:
        return False
    if created.tzinfo is None:
        return False
    # In whole seconds: a list that cuts fractions would place our own refund before the attempt that made it.
    return created < first_sent_at.replace(microsecond=0)


# --- what counts as refunded (`write-path.md` 3) -----------------------------------------------------------


def counted(state: str) -> bool:
    """Whether a refund in this state counts as refunded: every state but failed and canceled, unknown words too."""
    return state not in NOT_REFUNDED


def refunded(facts: OrderFacts, *, leave_out: str | None) -> Money:
    """All that counts as refunded on the order, in the order's currency.

    `leave_out` is the key of the write being released or re-sent. Where the list already shows that very write,
    the listed refund still counts: a write that is known to exist must not be sent again.
    """
    return total([i.amount for i in _items(facts, leave_out)], facts.order.total.currency)


def refunded_on(facts: OrderFacts, payment_id: str, *, leave_out: str | None) -> Money:
    """What counts as refunded on one payment, in that payment's currency (the order's where it is not known)."""
    payment = _payments(facts).get(payment_id)
    currency = payment.amount.currency if payment else facts.order.total.currency
    return total([i.amount for i in _items(facts, leave_out) if i.payment_id == payment_id], currency)


def captured(facts: OrderFacts) -> Money:
    """The sum of payments that were taken: captured or refunded; disputed ones are out."""
    taken = [p.amount for p in _payments(facts).values() if p.state in TAKEN]
    return total(taken, facts.order.total.currency)


def excess(facts: OrderFacts, *, leave_out: str | None) -> Money:
    """captured - refunded - amount_due, disputed payments out together with their refunds; negative: over-refunded."""
    disputed = {p.payment_id for p in _payments(facts).values() if p.state == DISPUTED}
    given = [i.amount for i in _items(facts, leave_out) if i.payment_id not in disputed]
    return captured(facts) - total(given, facts.order.total.currency) - facts.order.amount_due


def left_on(facts: OrderFacts, payment_id: str, *, leave_out: str | None) -> Money:
    """What may still be refunded on the payment itself; nothing on one that is unknown, not captured or refunded."""
    payment = _payments(facts).get(payment_id)
    if payment is None:
        return zero(facts.order.total.currency)
    if payment.state != "captured":
        return zero(payment.amount.currency)
    return payment.amount - refunded_on(facts, payment_id, leave_out=leave_out)


def _payments(facts: OrderFacts) -> dict[str, Payment]:
    """This order's payments by id. One that is listed twice is one payment, and the less refundable row holds."""
    mine: dict[str, Payment] = {}
    for payment in facts.payments:
        if payment.order_id == facts.order.order_id:
            known = mine.get(payment.payment_id, payment)
            mine[payment.payment_id] = min(known, payment, key=_refundability)
    return mine


def _refundability(payment: Payment) -> tuple[int, int, str]:
    return {"captured": 2, "refunded": 1}.get(payment.state, 0), payment.amount.minor, payment.state


def _listed(facts: OrderFacts) -> dict[str, Refund]:
    """The provider's refunds of this order by id; a doubled row counts if either does, with the larger amount."""
    payments, listed = _payments(facts), dict[str, Refund]()
    for refund in facts.refunds:
        if refund.order_id == facts.order.order_id or refund.payment_id in payments:
            known = listed.get(refund.refund_id, refund)
            winner = min(known, refund, key=lambda r: (not counted(r.state), r.state, r.payment_id))
            listed[refund.refund_id] = replace(winner, amount=_larger(known.amount, refund.amount))
    return listed


def _items(facts: OrderFacts, leave_out: str | None) -> list[_Item]:
    """The union of the provider's list and our own writes, each once."""
    listed = _listed(facts)
    matched = _matches(facts.own, list(listed.values()))
    items = {i: _Item(payment_id=r.payment_id, amount=r.amount) for i, r in listed.items() if counted(r.state)}
    extra: list[_Item] = []
    for own in facts.own:
        if own.key == leave_out or own.state in NEVER_MADE:
            continue
        found = matched[own.key]
        if found.refund is not None and counted(found.refund.state):
            item = items[found.refund.refund_id]
            items[found.refund.refund_id] = replace(item, amount=_larger(item.amount, own.amount))
        elif _by_our_record(own, found):
            extra.append(_Item(payment_id=own.payment_id, amount=own.amount))
    return [*items.values(), *extra]


def _matches(own: Sequence[OwnWrite], refunds: Sequence[Refund]) -> dict[str, Match]:
    """Each write's refund; firm matches are made first, so that likeness claims only what nobody else owns."""
    found = {o.key: _firm_match(o, refunds) for o in own}
    claimed = {m.refund.refund_id for m in found.values() if m.refund}
    for write in sorted(own, key=lambda o: (o.intent_at, o.key)):
        if found[write.key].refund is None and write.state not in NEVER_MADE:
            found[write.key] = likely = _likeness(write, refunds, claimed)
            claimed |= {likely.refund.refund_id} if likely.refund else set()
    return found


def _by_our_record(own: OwnWrite, found: Match) -> bool:
    """Whether a write counts though no listed refund that counts is it.

    The list's word that a refund failed wins over our record, but only for one that is surely ours.
    """
    listed = found.refund is not None and counted(found.refund.state)
    return not listed and own.state not in NEVER_MADE and found.by in (None, "likeness")


def unlisted(facts: OrderFacts, scope: Scope) -> Json:
    """`{"ours": […]}`: what other runs of this customer refunded or hold open here and no list shows; else nothing.

    Each with `refund_id` (null until the provider named it), `payment_id`, `amount`, `state`, `verified`.
    """
    try:
        matched = _matches(facts.own, list(_listed(facts).values()))
    except CurrencyMismatch:
        return {}  # a list that contradicts itself tells nothing; the gate's checks say so
    rows = [
        {
            "refund_id": own.refund_id, "payment_id": own.payment_id, "amount": own.amount.wire(), "state": own.state,
            "verified": own.verified,
        }
        for own in sorted(facts.own, key=lambda o: (o.intent_at, o.key))
        if own.run_id != scope.run_id and own.customer_id == scope.customer_id
        and _by_our_record(own, matched[own.key])
    ]  # fmt: skip
    return {"ours": rows} if rows else {}


def _larger(one: Money, other: Money) -> Money:
    return one if one >= other else other


# --- totals that need a person ------------------------------------------------------------------------------


def customer_limit(scope: Scope, currency: str) -> tuple[int, int] | None:
    """(count, minor units) one customer may get a day without a person, or None where no total is set."""
    totals = scope.aggregates.get(currency)
    if totals is None or totals.customer_day is None:
        return None
    amount = parse({"amount": totals.customer_day.amount, "currency": currency})
    return totals.customer_day.count, amount.minor


def tenant_limit(scope: Scope, currency: str) -> tuple[int, int] | None:
    """(count, minor units) all writes of the tenant may come to in an hour, or None."""
    totals = scope.aggregates.get(currency)
    if totals is None or totals.tenant_hour is None:
        return None
    amount = parse({"amount": totals.tenant_hour.amount, "currency": currency})
    return totals.tenant_hour.count, amount.minor


# --- the one body that goes on the wire --------------------------------------------------------------------


def post_body(
    *, order_id: str, payment_id: str, amount: Json, reason: str, approval_id: str | None, decision_id: str,
    run_id: str, key: str, expected_refunded: Json,
) -> str:  # fmt: skip
    """The canonical JSON text of `POST /v1/refunds`: a pure function of the action, its release and its key.

    Without a person's approval the gate's own decision is named in the metadata. `amount` is money's wire object.
    """
    metadata = {"run_id": run_id, "key": key, **({"decision_id": decision_id} if approval_id is None else {})}
    return canonical_text({
        "order_id": order_id, "payment_id": payment_id, "amount": amount, "reason": reason,
        "approval_id": approval_id, "metadata": metadata, "expected_refunded": expected_refunded,
    })  # fmt: skip
