"""The typed facts of a run from which every text for its customer is made. A paper: no Django, no clock, no model text.

Facts come from results of the system of record and from our own writes alone: never from a note, a policy text, a
model's words, an argument a model chose or what the customer wrote.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from agentsite import money
from agentsite.money import Money
from runs.clauses import Clause
from runs.contracts import SeenObservation
from tools import rules

RECORDS = ("get_order", "get_payments", "get_refund_status")
OUR_REFUNDS = "our_refunds"
"""The source of an observation of our own writes in other runs of this customer that no list shows."""
PRECEDENTS = ("search_cases", "session_history")
"""Sources of what happened in other cases: evidence of nothing in this one."""
ID = re.compile(r"[A-Za-z0-9_.:@/-]{1,128}")
MADE_NOTHING = frozenset({"not_sent", "refused", "failed"})


@dataclass(frozen=True, kw_only=True)
class StoryPayment:
    payment_id: str
    state: str
    amount: Money


@dataclass(frozen=True, kw_only=True)
class StoryRefund:
    """A refund on record; `refund_id` is empty for one of ours that the provider has not named (yet)."""

    refund_id: str
    payment_id: str
    state: str
    amount: Money


@dataclass(frozen=True, kw_only=True)
class StoryOrder:
    """What the system of record said of one order; None: not read, which is never the same as empty.

    `ours` are refunds of this customer's other runs, known from our own writes alone.
    """

    order_id: str
    total: Money | None = None
    amount_due: Money | None = None
    payments: tuple[StoryPayment, ...] | None = None
    refunds: tuple[StoryRefund, ...] | None = None
    refunds_whole: bool = False
    ours: tuple[StoryRefund, ...] = ()

    def on_record(self) -> tuple[StoryRefund, ...]:
        """Every refund we know of, each once: what the list says of one stands for what our own record says."""
        listed = self.refunds or ()
        ids, alike = {r.refund_id for r in listed}, {(r.payment_id, r.amount) for r in listed}
        unnamed = (r for r in self.ours if not r.refund_id and (r.payment_id, r.amount) not in alike)
        return (*listed, *(r for r in self.ours if r.refund_id and r.refund_id not in ids), *unnamed)

    def left(self) -> Money | None:
        """captured - refunded - amount_due by what was read; None where something was not, or currencies mix."""
        if self.amount_due is None or self.payments is None or self.refunds is None or not self.refunds_whole:
            return None
        if any(not r.refund_id for r in self.on_record()):
            return None  # nobody knows yet what becomes of it
        disputed = {p.payment_id for p in self.payments if p.state == rules.DISPUTED}
        taken = [p.amount for p in self.payments if p.state in rules.TAKEN]
        given = [r.amount for r in self.on_record() if rules.counted(r.state) and r.payment_id not in disputed]
        try:
            currency = self.amount_due.currency
            return money.total(taken, currency) - money.total(given, currency) - self.amount_due
        except money.CurrencyMismatch:
            return None


@dataclass(frozen=True, kw_only=True)
class StoryWrite:
    """A write of the run, in one of the contract's write states; `refund_id` where the provider gave one."""

    state: str
    amount: Money
    refund_id: str | None
    payment_id: str
    order_id: str


@dataclass(frozen=True, kw_only=True)
class StoryApproval:
    """The run's latest approval; `reason` is what the person who decided wrote."""

    status: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Story:
    status: str
    reason: str | None
    outcome: str | None
    waiting_for: str | None
    language: str
    orders: tuple[StoryOrder, ...]
    unread: tuple[str, ...]
    policies: tuple[tuple[str, int], ...]
    writes: tuple[StoryWrite, ...]
    approval: StoryApproval | None
    dependency: str | None
    cancel_asked: bool
    said: str | None = None
    """What a person wrote to the customer when he finished the run by hand."""
    question: str | None = None
    """What the customer was asked, while the run waits for the answer: model prose that passed the reply's check."""
    clauses: tuple[Clause, ...] = ()
    """What of the policies the reply quotes, as code checked it at the moment of the reply."""
    forgotten: bool = False
    """The record was put back from a backup and refunds were not listed since: one may exist that it does not know."""

    @property
    def has_confirmed_write(self) -> bool:
        return any(w.state == "confirmed" for w in self.writes)

    @property
    def has_open_write(self) -> bool:
        """A write whose effect may exist and is not confirmed; a state we do not know is one."""
        return any(w.state != "confirmed" and w.state not in MADE_NOTHING for w in self.writes)

    @property
    def others_refunds(self) -> tuple[StoryRefund, ...]:
        """Refunds on record that are no write of this run."""
        ours = {w.refund_id for w in self.writes}
        return tuple(r for o in self.orders for r in o.on_record() if r.refund_id not in ours)


def story(
    *, status: str, reason: str | None, outcome: str | None, waiting_for: str | None,
    observations: Sequence[SeenObservation], writes: Sequence[StoryWrite], approval: StoryApproval | None,
    dependency: str | None, cancel_asked: bool = False, language: str = "en", said: str | None = None,
    listed_from: datetime | None = None, clauses: tuple[Clause, ...] = (),
) -> Story:  # fmt: skip
    """The story of a run. `writes` in the order of their intents; what cannot be read is left out, never guessed."""
    found = _Found()
    # Orders first: an empty list of payments speaks only of an order the records know.
    for seen in sorted(observations, key=lambda o: (o.source != "get_order", o.position)):
        found.take(seen)
    return Story(
        status=status, reason=reason, outcome=outcome, waiting_for=waiting_for, language=language,
        orders=tuple(found.orders.values()), unread=tuple(sorted({source for source, _, _ in found.failed})),
        policies=tuple(found.policies), writes=tuple(writes), approval=approval, dependency=dependency,
        cancel_asked=cancel_asked, said=said, clauses=clauses, forgotten=is_forgotten(observations, listed_from),
        question=_question(observations) if status == "waiting_reply" else None,
    )  # fmt: skip


def _question(observations: Sequence[SeenObservation]) -> str | None:
    asked = [o for o in observations if o.source == "ask" and o.ok]
    newest = max(asked, key=lambda o: o.position, default=None)
    return str(newest.content["question"]) if newest is not None else None


def is_forgotten(observations: Sequence[SeenObservation], listed_from: datetime | None) -> bool:
    """Whether the refunds of some order were not listed whole since the run came back from a backup (M124).

    `listed_from`: from then on a list shows whatever was made before; None where the run never came back.
    """
    if listed_from is None:
        return False
    orders = {str(o.args.get("order_id", "")) for o in observations if o.source in RECORDS} - {""}
    listed = {
        str(o.args.get("order_id", "")) for o in observations
        if o.source == "get_refund_status" and o.ok and "payment_id" not in o.args and o.fetched_at > listed_from
    }  # fmt: skip
    return not orders or bool(orders - listed)


class _Unreadable(ValueError):
    """A row that is not what a record looks like: the whole answer then counts as not read."""


class _Found:
    """Collects observations in their order; what was read later stands for what was read before."""

    def __init__(self) -> None:
        self.orders: dict[str, StoryOrder] = {}
        self.policies: dict[tuple[str, int], None] = {}
        self.failed: set[tuple[str, str, str]] = set()

    def take(self, seen: SeenObservation) -> None:
        if seen.erased:
            return
        if seen.source == "search_policy" and seen.ok:
            # Of what stood before any call only the best passage counts as consulted: nobody asked for the others.
            self.policies.update(dict.fromkeys(_policies(seen.content)[: None if seen.call_id else 1]))
        if seen.source == OUR_REFUNDS and seen.ok:
            self._ours(seen)
        if seen.source not in RECORDS or seen.kind not in ("result", "error"):
            return
        order_id, payment_id = (str(seen.args.get(name, "")) for name in ("order_id", "payment_id"))
        try:
            self._take_record(seen)
        except _Unreadable:
            self.failed.add((seen.source, order_id, payment_id))
        else:
            self.failed -= {f for f in self.failed if f == (seen.source, order_id, payment_id or f[2])}

    def _take_record(self, seen: SeenObservation) -> None:
        if not seen.ok or not isinstance(seen.content, dict):
            raise _Unreadable
        takers = {"get_order": self._order, "get_payments": self._payments, "get_refund_status": self._refunds}
        takers[seen.source](seen)

    def _order(self, seen: SeenObservation) -> None:
        total = _money(seen.content, "total")
        due = total if seen.content.get("amount_due") is None else _money(seen.content, "amount_due")
        order_id = _id(seen.content, "order_id")
        self._change(order_id, total=total, amount_due=due)

    def _payments(self, seen: SeenObservation) -> None:
        for order_id, rows in self._by_order(seen, "payments").items():
            self._change(order_id, payments=tuple({p.payment_id: p for p in map(_payment, rows)}.values()))

    def _refunds(self, seen: SeenObservation) -> None:
        whole = "order_id" in seen.args and "payment_id" not in seen.args
        for order_id, rows in self._by_order(seen, "refunds").items():
            known = self._known(order_id)
            # A list of one payment's refunds adds to what is known and proves nothing about the order.
            before = {} if whole else {r.refund_id: r for r in known.refunds or ()}
            refunds = tuple((before | {r.refund_id: r for r in map(_refund, rows)}).values())
            if whole or refunds:
                self._change(order_id, refunds=refunds, refunds_whole=whole or known.refunds_whole)

    def _ours(self, seen: SeenObservation) -> None:
        """Written by our own gate from our own writes: what is not readable here is a fault of ours."""
        self._change(seen.content["order_id"], ours=tuple(_our_refund(row) for row in seen.content["refunds"]))

    def _by_order(self, seen: SeenObservation, name: str) -> dict[str, list[dict[str, Any]]]:
        """Rows by the order they name. An empty answer speaks of the order asked for, if the records know it."""
        rows = seen.content.get(name)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise _Unreadable
        asked = seen.args.get("order_id")
        grouped: dict[str, list[dict[str, Any]]] = {asked: []} if asked in self.orders else {}
        for row in rows:
            grouped.setdefault(_id(row, "order_id"), []).append(row)
        return grouped

    def _known(self, order_id: str) -> StoryOrder:
        return self.orders.get(order_id, StoryOrder(order_id=order_id))

    def _change(self, order_id: str, **fields: Any) -> None:
        self.orders[order_id] = replace(self._known(order_id), **fields)


def _payment(row: dict[str, Any]) -> StoryPayment:
    return StoryPayment(payment_id=_id(row, "payment_id"), state=_word(row), amount=_money(row, "amount"))


def _refund(row: dict[str, Any]) -> StoryRefund:
    ids = {name: _id(row, name) for name in ("refund_id", "payment_id")}
    return StoryRefund(**ids, state=_word(row), amount=_money(row, "amount"))


def _our_refund(row: dict[str, Any]) -> StoryRefund:
    """One of our own writes: made only once that was verified, under way while it is not."""
    state = "succeeded" if row["verified"] else "pending"
    return StoryRefund(
        refund_id=row["refund_id"] or "", payment_id=row["payment_id"], state=state, amount=_money(row, "amount")
    )


def _id(row: dict[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not ID.fullmatch(value) or "//" in value:
        raise _Unreadable
    return value


def _word(row: dict[str, Any]) -> str:
    value = row.get("state")
    if not isinstance(value, str):
        raise _Unreadable
    return value


def _money(row: dict[str, Any], name: str) -> Money:
    try:
        return money.parse(row.get(name))
    except money.BadMoney:
        raise _Unreadable from None


def _policies(content: Any) -> list[tuple[str, int]]:
    """Documents and versions of the current passages of a policy search, from their metadata."""
    passages = content.get("passages") if isinstance(content, dict) else None
    rows = [p for p in passages if isinstance(p, dict)] if isinstance(passages, list) else []
    return [
        (p["doc"], p["version"]) for p in rows
        if p.get("current") is True and isinstance(p.get("doc"), str) and ID.fullmatch(p["doc"])
        and isinstance(p.get("version"), int)
    ]  # fmt: skip
