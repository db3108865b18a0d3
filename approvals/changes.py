"""Paper: what moved in an order's facts between two readings, field by field. Imports no Django, no clock, no rows.

Only what may sway a decision counts: the order's status and money, its payments, its refunds. Notes are no facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from approvals.labels import value
from tools import rules
from tools.contracts import OrderFacts

NOT_THERE = "not there"
ORDER = (("status", "status"), ("costs", "amount_due"), ("total", "total"))
MOST = 50

Fields = dict[tuple[str, str], str]
"""(thing, its field) to the value as it is shown, such as `("payment pay_9002", "state")` to `captured`."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One field, as the gate read it and as it is now."""

    what: str
    old: str
    new: str

    def wire(self) -> dict[str, str]:
        return {"what": self.what, "old": self.old, "new": self.new}


def between(stored: Mapping[str, Any], now: OrderFacts) -> tuple[Change, ...]:
    """What is other than in an approval's stored `facts`, in a fixed order, at most MOST of them."""
    old, new = _stored(stored), _live(now)
    old |= _known_before(stored, old, new)
    moved = (key for key in sorted({*old, *new}) if old.get(key) != new.get(key))
    found = (Change(what=" ".join(key), old=old.get(key, NOT_THERE), new=new.get(key, NOT_THERE)) for key in moved)
    return tuple(islice(found, MOST))


def moved(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Change, ...]:
    """What is other between two stored facts, or the same parts of two, in a fixed order: all of it."""
    before, after = _stored(old), _stored(new)
    keys = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    return tuple(
        Change(what=" ".join(key), old=before.get(key, NOT_THERE), new=after.get(key, NOT_THERE)) for key in keys
    )


def order_gone(stored: Mapping[str, Any]) -> tuple[Change, ...]:
    """The one change where the business system no longer knows the order."""
    order = stored.get("order") or {}
    return (Change(what="order", old=value(order.get("order_id", "")), new=NOT_THERE),)


def _stored(facts: Mapping[str, Any]) -> Fields:
    order = facts.get("order") or {}
    fields = {("order", name): value(order.get(key)) for name, key in ORDER}
    return fields | _listed("payment", facts.get("payments")) | _listed("refund", facts.get("refunds"))


def _known_before(facts: Mapping[str, Any], old: Fields, new: Fields) -> Fields:
    """Refunds of our own record that no list showed then: listed now they are no news, unless they failed."""
    fields: Fields = {}
    for row in facts.get("ours") or ():
        thing = f"refund {value(row.get('refund_id'))}"
        state = new.get((thing, "state"))
        if (thing, "state") not in old and state is not None:
            fields[thing, "state"] = state if rules.counted(state) else "made by us, not listed"
            fields[thing, "amount"] = value(row.get("amount"))
    return fields


def _live(facts: OrderFacts) -> Fields:
    order = facts.order
    fields = {("order", "status"): value(order.status), ("order", "costs"): value(order.amount_due.wire()),
              ("order", "total"): value(order.total.wire())}  # fmt: skip
    payments = [{"payment_id": p.payment_id, "state": p.state, "amount": p.amount.wire()} for p in facts.payments]
    refunds = [{"refund_id": r.refund_id, "state": r.state, "amount": r.amount.wire()} for r in facts.refunds]
    return fields | _listed("payment", payments) | _listed("refund", refunds)


def _listed(kind: str, rows: Iterable[Mapping[str, Any]] | None) -> Fields:
    fields: Fields = {}
    for row in rows or ():
        thing = f"{kind} {value(row.get(f'{kind}_id'))}"
        fields[thing, "state"] = value(row.get("state"))
        fields[thing, "amount"] = value(row.get("amount"))
    return fields
