"""How a proposal of shadow mode compares with what staff did. A paper: no Django, no clock, no rows.

Where it cannot be told, it says so: a share of agreement is worth nothing if doubt was counted for us (M110).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agentsite import money
from agentsite.money import Money

AGREE, OVERREACH, MISS, UNCLEAR, OPEN = "agree", "overreach", "miss", "unclear", "open"


@dataclass(frozen=True, kw_only=True)
class Made:
    """A refund that staff made; `at` None where the business system does not say when."""

    refund_id: str
    order_id: str
    payment_id: str
    amount: Money
    at: datetime | None

    def wire(self) -> dict[str, Any]:
        return {
            "refund_id": self.refund_id, "order_id": self.order_id, "payment_id": self.payment_id,
            "amount": self.amount.wire(),
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Proposed:
    order_id: str
    payment_id: str
    amount: Money


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """`why` is a slug; `over` the money that we would have refunded and staff did not."""

    verdict: str
    why: str
    over: Money | None = None


def judge(proposed: Proposed | None, made: Sequence[Made]) -> Verdict:
    """The verdict on one proposal; `made` are the refunds of staff that count, since the request came in.

    Refunds on several orders are no one's to assign: unclear. Where a proposal goes too far in one thing and not far
    enough in another, too far is what is told.
    """
    if len({one.order_id for one in made}) > 1:
        return Verdict(verdict=UNCLEAR, why="several_orders")
    if proposed is None:
        return Verdict(verdict=MISS, why="staff_refunded") if made else Verdict(verdict=AGREE, why="nothing_refunded")
    if any(one.amount.currency != proposed.amount.currency for one in made):
        return Verdict(verdict=UNCLEAR, why="another_currency")
    return _amounts(proposed, made)


def _amounts(proposed: Proposed, made: Sequence[Made]) -> Verdict:
    there = [m.amount for m in made if (m.order_id, m.payment_id) == (proposed.order_id, proposed.payment_id)]
    given = money.total(there, proposed.amount.currency)
    if given < proposed.amount:
        why = "staff_refunded_less" if there else "staff_refunded_another_payment" if made else "staff_refunded_nothing"
        return Verdict(verdict=OVERREACH, why=why, over=proposed.amount - given)
    if given > proposed.amount or len(made) > len(there):
        return Verdict(verdict=MISS, why="staff_refunded_more")
    return Verdict(verdict=AGREE, why="same_refund")
