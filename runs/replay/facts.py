"""Rebuilds what the gate and the verifier read from what they wrote down of it. Pure; asks nobody.

The gate keeps the order, its payments and refunds, and the numbers of its checks; of our own writes on other runs it
keeps only what they came to, so one that no list shows comes back as a write without a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from agentsite import money
from agentsite.clock import parse_rfc3339
from agentsite.money import CurrencyMismatch, Money
from runs.contracts import RunState, SeenWrite
from runs.replay.record import Happened, Step
from tools import rules
from tools.contracts import Json, Order, OrderFacts, OwnWrite, Payment, PolicyState, Refund, UsedSoFar

UNKNOWN_TIME = datetime.min.replace(tzinfo=UTC)


def inputs_of(decided: Happened, check: str) -> Json:
    """The numbers a recorded check looked at; empty where it was not reached."""
    checks: list[Json] = (decided.payload or {}).get("checks", [])
    numbers: Json = next((c.get("inputs", {}) for c in checks if c["name"] == check), {})
    return numbers


def ok(decided: Happened, check: str) -> bool | None:
    """A recorded check's verdict; None where it was not reached."""
    return next((c["ok"] for c in (decided.payload or {}).get("checks", ()) if c["name"] == check), None)


def compared(step: Step) -> Json:
    """What a step says of evidence that was read again: ids, ages, what of it changed; empty where none was."""
    decided, told = step.first("gate.decided"), step.first("evidence.compared")
    return told.meta if told is not None else inputs_of(decided, "evidence_fresh") if decided is not None else {}


def signed(wire: Json) -> Money:
    """Money from its wire object, a negative difference too."""
    amount = str(wire["amount"])
    found = money.parse({**wire, "amount": amount.removeprefix("-")})
    return Money(minor=-found.minor, currency=found.currency) if amount.startswith("-") else found


def of_decision(decided: Happened, own: tuple[OwnWrite, ...], leave_out: str) -> OrderFacts:
    """The live facts behind a recorded decision."""
    shown = (decided.payload or {})["facts"]
    known = OrderFacts(
        order=_order(shown["order"]), payments=tuple(_payments(shown, decided)), own=own, epoch=0,
        refunds=tuple(_refund(r, shown["order"]["order_id"]) for r in shown["refunds"]),
        read_at=parse_rfc3339(shown["read_at"]),
    )  # fmt: skip
    known = replace(known, own=(*own, *_named(shown)))
    return replace(known, own=(*known.own, *_unlisted(decided, known, leave_out)))


def _named(shown: Json) -> Iterable[OwnWrite]:
    """Writes of the customer's other runs that no list showed then."""
    for n, row in enumerate(shown.get("ours", ())):
        yield OwnWrite(
            key=f"named:{n:04}", run_id="", payment_id=row["payment_id"], amount=signed(row["amount"]),
            state=row["state"], refund_id=row["refund_id"], intent_at=UNKNOWN_TIME, first_sent_at=None,
            customer_id=shown["order"]["customer_id"], verified=row["verified"],
        )  # fmt: skip


def _order(o: Json) -> Order:
    return Order(
        order_id=o["order_id"], customer_id=o["customer_id"], total=signed(o["total"]),
        amount_due=signed(o["amount_due"]), status=o["status"], note="",
    )  # fmt: skip


def _payments(shown: Json, decided: Happened) -> Iterable[Payment]:
    target = (decided.payload or {})["action"]["args"].get("payment_id")
    for p in shown["payments"]:
        foreign = p["payment_id"] == target and ok(decided, "payment_not_of_order") is False
        yield Payment(
            payment_id=p["payment_id"], order_id="another order" if foreign else shown["order"]["order_id"],
            state=p["state"], amount=signed(p["amount"]), captured_at=p["captured_at"], note="",
        )  # fmt: skip


def _refund(r: Json, order_id: str) -> Refund:
    return Refund(
        refund_id=r["refund_id"], payment_id=r["payment_id"], order_id=order_id, state=r["state"],
        amount=signed(r["amount"]), idempotency_key=r.get("idempotency_key"), metadata=r.get("metadata"),
        created_at=None,
    )  # fmt: skip


def _unlisted(decided: Happened, known: OrderFacts, leave_out: str) -> Iterable[OwnWrite]:
    """Writes of ours on this order that were counted then and are not of this run: by what the checks came to."""
    numbers, left = inputs_of(decided, "nothing_refundable"), inputs_of(decided, "amount_exceeds_payment")
    if not numbers:
        return
    whole = signed(numbers["refunded"]) - rules.refunded(known, leave_out=leave_out)
    here = Money(minor=0, currency=whole.currency)
    if left:
        here = rules.left_on(known, left["payment_id"], leave_out=leave_out) - signed(left["left"])
        yield from _unnamed(left["payment_id"], here)
    yield from _unnamed("another payment", whole - here)


def _unnamed(payment_id: str, amount: Money) -> Iterable[OwnWrite]:
    if amount.minor > 0:
        yield OwnWrite(
            key=f"unlisted:{payment_id}", run_id="", payment_id=payment_id, amount=amount, state="confirmed",
            refund_id=None, intent_at=UNKNOWN_TIME, first_sent_at=None,
        )  # fmt: skip


def nothing_left(facts: OrderFacts) -> OrderFacts:
    """The same order with all that was captured being due: nothing of it may be given back."""
    return replace(facts, order=replace(facts.order, amount_due=rules.captured(facts)))


def own_of(run: RunState, order_id: str) -> tuple[OwnWrite, ...]:
    """This run's writes on an order, as the gate is told of them."""
    return tuple(_own(run, w) for w in run.writes if w.order_id == order_id)


def _own(run: RunState, w: SeenWrite) -> OwnWrite:
    sent = [a.sent_at for a in w.attempts if a.sent_at is not None]
    return OwnWrite(
        key=w.key, run_id=run.run_id, payment_id=w.payment_id, amount=w.amount, state=w.state, refund_id=w.refund_id,
        intent_at=w.intent_at, first_sent_at=min(sent, default=None),
    )  # fmt: skip


def policy_of(decided: Happened | None, sent: Happened | None, pin: str, *, stale: bool) -> PolicyState:
    """The registry's word of then: as the gate saw it, or as the reply was made by it (`sent`); else the pinned
    version was current, unless the record says stale."""
    doc, _, version = pin.rpartition("@v")
    current: int | None = None if stale else int(version)
    superseded = sent.meta.get("superseded", ()) if sent is not None else ()
    if decided is not None and (seen := inputs_of(decided, "policy_stale")):
        current, superseded = seen["registry_current"], seen.get("superseded", ())
    return PolicyState(doc=doc, pinned=int(version), current=current, superseded=frozenset(superseded))


def used_of(decided: Happened | None) -> UsedSoFar:
    """The totals of then, from the numbers of the checks that looked at them."""
    if decided is None:
        return UsedSoFar()
    within, ceiling = inputs_of(decided, "within_own_authority"), inputs_of(decided, "amount_exceeds_ceiling")
    on_order = signed(ceiling["with_earlier"]) - signed(ceiling["requested"]) if ceiling else None
    return UsedSoFar(
        agent_on_order_minor=on_order.minor if on_order else 0, customer_day=_used(within, "customer_day"),
        tenant_hour=_used(within, "tenant_hour"),
    )  # fmt: skip


def _used(within: Json, window: str) -> tuple[int, int]:
    count, minor = within.get(window, {}).get("used", (0, 0))
    return count, minor


# --- what a verification read --------------------------------------------------------------------------------


def of_verification(payload: Json, known: OrderFacts, key: str) -> OrderFacts:
    """The facts behind a recorded verification of the write under `key`: what it found, and an order that leaves what
    it said is left."""
    found: Json | None = payload.get("found")
    named = payload.get("refund_id")
    known = replace(known, own=tuple(replace(o, refund_id=named) if o.key == key else o for o in known.own))
    others = [r for r in payload.get("other_refunds", ()) if r not in {k.refund_id for k in known.refunds}]
    listed = [r for r in known.refunds if found is None or r.refund_id != found["refund_id"]]
    zero = Money(minor=0, currency=known.order.total.currency)
    beside = [_listed(known, refund_id, "unlisted", zero) for refund_id in others]
    refunds = (*listed, *beside, *([_refund(found, found["order_id"])] if found else []))
    return _leaving(replace(known, refunds=refunds), payload.get("excess_after"))


def _leaving(facts: OrderFacts, excess_after: Json | None) -> OrderFacts:
    try:
        now = rules.excess(facts, leave_out=None)
    except CurrencyMismatch:
        return facts
    due = facts.order.amount_due
    if excess_after is not None:
        due = due + (now - signed(excess_after))
    return replace(facts, order=replace(facts.order, amount_due=due))


def listed_write(write: SeenWrite, event: Happened, content: Any) -> Refund:
    """A write of ours as a look-up found it; the amount by the observation of it, else as it was asked for."""
    seen: Json = content if isinstance(content, dict) and content.get("refund_id") == event.meta["refund_id"] else {}
    return Refund(
        refund_id=event.meta["refund_id"], payment_id=seen.get("payment_id", write.payment_id),
        order_id=seen.get("order_id", write.order_id), state=event.meta["state"],
        amount=signed(seen["amount"]) if "amount" in seen else write.amount, idempotency_key=write.key, metadata=None,
        created_at=None,
    )  # fmt: skip


def alike(write: SeenWrite) -> Sequence[Refund]:
    """Two refunds that nobody can tell apart from the write."""
    return [
        Refund(
            refund_id=f"alike_{n}", payment_id=write.payment_id, order_id=write.order_id, state="succeeded",
            amount=write.amount, idempotency_key=None, metadata=None, created_at=None,
        )
        for n in (1, 2)
    ]  # fmt: skip


def with_write(facts: OrderFacts, write: SeenWrite, state: str) -> OrderFacts:
    """The facts with this write's refund on the list, in some state."""
    shown = _listed(facts, str(write.refund_id), write.payment_id, write.amount, state=state, key=write.key)
    return replace(facts, refunds=(*(r for r in facts.refunds if r.refund_id != write.refund_id), shown))


def without_write(facts: OrderFacts, write: SeenWrite) -> OrderFacts:
    """The facts of a list that does not show the write (yet)."""
    return replace(facts, refunds=tuple(r for r in facts.refunds if r.refund_id != write.refund_id))


def _listed(
    facts: OrderFacts, refund_id: str, payment_id: str, amount: Money, *, state: str = "succeeded",
    key: str | None = None,
) -> Refund:  # fmt: skip
    return Refund(
        refund_id=refund_id, payment_id=payment_id, order_id=facts.order.order_id, state=state, amount=amount,
        idempotency_key=key, metadata=None, created_at=None,
    )  # fmt: skip
