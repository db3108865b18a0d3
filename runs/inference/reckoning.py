"""What an order may still get back, and on which payment, from observations alone. Imports no Django and no zone.

captured - refunded - amount_due, as the business system's contract has it; every amount in one currency or no answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agentsite import money
from agentsite.money import Money
from tools.contracts import Json

CAPTURED = frozenset({"captured", "refunded"})
NOT_REFUNDED = frozenset({"failed", "canceled"})
NOT_MADE = frozenset({"not_sent", "refused", "failed"})


class Unreadable(ValueError):
    """An observation of another shape than its tool promises: nothing is concluded from it."""


class MixedCurrencies(ValueError):
    """The order, its payments and its refunds are not in one currency: for a person."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A captured payment: its amount, what is left to give on it, and whether this run may still write on it."""

    payment_id: str
    state: str
    amount: Money
    left: Money
    captured_at: str
    closed: bool

    @property
    def age(self) -> tuple[float, str]:
        return _moment(self.captured_at), self.payment_id


@dataclass(frozen=True, kw_only=True)
class Account:
    """An order reckoned up. `owed` may be negative: then somebody gave too much."""

    order_id: str
    order_status: str
    total: Money
    amount_due: Money
    owed: Money
    lines: tuple[Line, ...]

    def choose(self) -> tuple[Line, Money] | None:
        """The payment to give on and how much, or None where no payment is open to it."""
        open_lines = [p for p in self.lines if p.state == "captured" and not p.closed and p.left.minor > 0]
        twins = [p for p in open_lines if p.left == p.amount == self.owed and self._captured_as_much(p) > 1]
        if twins:
            return max(twins, key=lambda p: p.age), self.owed
        if not open_lines:
            return None
        best = max(open_lines, key=lambda p: (p.left.minor, p.age))
        return best, min(best.left, self.owed, key=lambda m: m.minor)

    def _captured_as_much(self, line: Line) -> int:
        return sum(p.amount == line.amount for p in self.lines)

    @property
    def duplicate(self) -> bool:
        """Whether an amount was captured more than once."""
        return any(self._captured_as_much(p) > 1 for p in self.lines)

    def reason(self) -> str:
        """Why money is owed, as far as the order's own fields show."""
        status = self.order_status.lower()
        if self.duplicate and (self.amount_due >= self.total or any(p.amount == self.owed for p in self.lines)):
            return "duplicate_capture"
        if status.startswith("cancel"):
            return "order_cancelled"
        if self.amount_due >= self.total:
            return "captured_in_excess"
        if status in ("delivered", "returned", "partially_returned", "return_requested"):
            return "items_returned"
        return "price_reduced" if self.amount_due.minor else "order_cancelled"


def account(*, order: Any, payments: Any, refunds: Any, writes: Iterable[Any]) -> Account:
    """The order reckoned up from three observations and this run's own writes. Raises Unreadable, MixedCurrencies."""
    order_id, order = _id(order, "order_id"), _object(order)
    total = _money(order.get("total"))
    due = total if order.get("amount_due") is None else _money(order["amount_due"])
    captured = [p for p in _listed(payments, "payments", order_id) if _text(p.get("state")) in CAPTURED]
    mine = [w for w in map(_object, writes) if w.get("order_id") == order_id]
    given = _given(_listed(refunds, "refunds", order_id), mine, {_id(p, "payment_id") for p in captured})
    amounts = [_money(p.get("amount")) for p in captured]
    if len({m.currency for m in [total, due, *amounts, *(amount for _, amount in given)]}) > 1:
        raise MixedCurrencies(order_id)
    closed = {_text(w.get("payment_id")) for w in mine if w.get("sent") is True or w.get("state") != "not_sent"}
    refunded = money.total([amount for _, amount in given], due.currency)
    return Account(
        order_id=order_id,
        order_status=_text(order.get("status")),
        total=total,
        amount_due=due,
        owed=money.total(amounts, due.currency) - refunded - due,
        lines=tuple(_line(p, given, closed) for p in captured),
    )


def _given(refunds: list[Json], mine: list[Json], captured: set[str]) -> list[tuple[str, Money]]:
    """(payment, amount) of everything given back on the captured payments, our own unlisted writes included."""
    listed = [r for r in refunds if _text(r.get("state")) not in NOT_REFUNDED]
    known = {_text(r.get("refund_id")) for r in refunds} - {""}
    own = [w for w in mine if _text(w.get("state")) not in NOT_MADE and _text(w.get("refund_id")) not in known]
    pairs = [(_id(entry, "payment_id"), _money(entry.get("amount"))) for entry in [*listed, *own]]
    return [(payment_id, amount) for payment_id, amount in pairs if payment_id in captured]


def _line(payment: Json, given: list[tuple[str, Money]], closed: set[str]) -> Line:
    payment_id, amount = _id(payment, "payment_id"), _money(payment.get("amount"))
    return Line(
        payment_id=payment_id,
        state=_text(payment.get("state")),
        amount=amount,
        left=amount - money.total([m for target, m in given if target == payment_id], amount.currency),
        captured_at=_text(payment.get("captured_at")),
        closed=payment_id in closed,
    )


def _listed(content: Any, name: str, order_id: str) -> list[Json]:
    """The entries of a list observation. One about another order, or none at all, makes it unreadable."""
    entries = _object(content).get(name)
    if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        raise Unreadable(name)
    if any(e.get("order_id", order_id) != order_id for e in [content, *entries]):
        raise Unreadable(name)
    return entries


def _money(wire: Any) -> Money:
    try:
        return money.parse(wire)
    except money.BadMoney as error:
        raise Unreadable(error.field) from None


def _id(entry: Any, name: str) -> str:
    value = _object(entry).get(name)
    if not isinstance(value, str) or not value:
        raise Unreadable(name)
    return value


def _object(value: Any) -> Json:
    if not isinstance(value, dict):
        raise Unreadable("object")
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return moment.timestamp() if moment.tzinfo else 0.0
    except (ValueError, OverflowError):
        return 0.0
