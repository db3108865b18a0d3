"""Door: what a campaign's customers ask for: refunds large and small, nothing due, a second request on one order.

Pure: a seed decides everything. Imports nothing of ours.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
LARGE, SMALL, NOTHING, AGAIN = "large", "small", "nothing", "again"
SHARES = {LARGE: 50, SMALL: 25, NOTHING: 15, AGAIN: 10}
PRICES = {LARGE: "2000.00", SMALL: "500.00", NOTHING: "800.00"}
CURRENCY = "INR"
CAPTURED_AT = ("2026-11-20T09:30:00.000Z", "2026-11-20T09:30:41.000Z")
PROFILE: Json = {
    "agent": "refunds", "read_tools": ["get_order", "get_payments", "get_refund_status", "search_policy"],
    "write_tools": {
        "issue_refund": {"by_currency": {CURRENCY: {"max_amount": "5000.00", "requires_approval_above": "1000.00"}}}
    },
    "policy_pin": "POL-REF-004@v4",
}  # fmt: skip
"""The shipped one without totals: a campaign asks for more in an hour than a shop does."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One request; `owed` is what its order may get back in all, as a decimal string, None where nothing is due."""

    request_id: str
    order_id: str
    kind: str
    owed: str | None

    def body(self) -> Json:
        """The request as a client program sends it."""
        return {
            "request_id": self.request_id, "order_ids": [self.order_id],
            "goal": f"Order {self.order_id} was charged twice, and my refund has not arrived.",
            "actor": {"customer_id": f"cust_{self.order_id}"},
        }  # fmt: skip


def cases(count: int, seed: int) -> list[Case]:
    """That many requests, in the order they are sent; a second request follows the first one of its order closely."""
    chance, made = random.Random(seed), list[Case]()  # noqa: S311 - a seed that repeats is the point
    for number in range(count):
        kind = chance.choices(list(SHARES), weights=list(SHARES.values()))[0]
        owing = [case for case in made[-6:] if case.owed is not None]
        if kind == AGAIN and owing:
            first = chance.choice(owing)
            made.append(Case(request_id=f"req-{number}", order_id=first.order_id, kind=AGAIN, owed=first.owed))
            continue
        kind = LARGE if kind == AGAIN else kind
        owed = PRICES[kind] if kind != NOTHING else None
        made.append(Case(request_id=f"req-{number}", order_id=f"o{number}", kind=kind, owed=owed))
    return made


def seed_of(all_cases: list[Case]) -> Json:
    """What the business system must know before: an order each, charged twice where something is owed."""
    firsts = [case for case in all_cases if case.kind != AGAIN]
    return {"orders": [_order(case) for case in firsts], "payments": [p for case in firsts for p in _payments(case)]}


def _order(case: Case) -> Json:
    price = {"amount": PRICES[case.kind], "currency": CURRENCY}
    return {
        "order_id": case.order_id, "customer_id": f"cust_{case.order_id}", "total": price, "amount_due": price,
        "status": "delivered",
    }  # fmt: skip


def _payments(case: Case) -> list[Json]:
    names = ("a", "b") if case.owed is not None else ("a",)
    return [
        {
            "payment_id": f"pay_{case.order_id}{name}", "order_id": case.order_id, "state": "captured",
            "amount": {"amount": PRICES[case.kind], "currency": CURRENCY}, "captured_at": at,
        }
        for name, at in zip(names, CAPTURED_AT, strict=False)
    ]  # fmt: skip
