"""The hand of the test: puts orders, payments and refunds where it wants them, past every rule of the interface."""

import json
import sqlite3

from tools.sandbox.ledger import (
    FOREVER,
    NewRefund,
    find_payment,
    find_refund,
    insert_refund,
    show_payment,
)
from tools.sandbox.moment import now_s, parse_moment
from tools.sandbox.money import Money, parse_money
from tools.sandbox.refusals import (
    Document,
    canonical,
    invalid,
    optional_object,
    optional_text,
    refuse_unknown,
    text_of,
)
from tools.sandbox.store import EMPTY, EMPTY_ORDER

LIMIT = 10_000
"""Rows of one kind in one seed."""

_REFUND_FIELDS = frozenset(
    {
        *("refund_id", "order_id", "payment_id", "amount", "state", "idempotency_key", "metadata"),
        *("reason", "approval_id", "created_at"),
    }
)


def seed(db: sqlite3.Connection, body: Document) -> Document:
    """Applies one seed in the order reset, clear_order, orders, payments, refunds; all of it or nothing.

    A row that exists is changed in the fields given; null removes an optional one. Raises `Refused` 400.
    """
    refuse_unknown(body, frozenset({"reset", "clear_order", "orders", "payments", "refunds"}))
    if body.get("reset"):
        reset(db)
    if body.get("clear_order") is not None:
        clear_order(db, text_of(body, "clear_order"))
    counts = {}
    for name, put in (("orders", _put_order), ("payments", _put_payment), ("refunds", _put_refund)):
        rows = _rows(body, name)
        for row in rows:
            put(db, row)
        counts[name] = len(rows)
    return counts


def reset(db: sqlite3.Connection) -> None:
    """A new world: ledger, keys, calls, faults and configuration are gone."""
    for statement in EMPTY:
        db.execute(statement)


def clear_order(db: sqlite3.Connection, order_id: str) -> None:
    """Forgets one order with its payments, refunds and their keys."""
    for statement in EMPTY_ORDER:
        db.execute(statement, (order_id,))


def make_refund_beside(db: sqlite3.Connection, body: Document) -> sqlite3.Row:
    """A refund made by somebody else in the business system's own console: no key, no rule, subject to the lag."""
    refuse_unknown(body, _REFUND_FIELDS - {"refund_id"})
    return insert_refund(db, _new_refund(db, body, made_at=now_s()))


def change_refund(db: sqlite3.Connection, refund_id: str, body: Document) -> sqlite3.Row:
    """Changes an existing refund's state or amount, or with `shown` puts it into or out of the lists."""
    refuse_unknown(body, frozenset({"state", "amount", "shown"}))
    row = find_refund(db, refund_id)
    amount = _positive(body["amount"]) if "amount" in body else Money(minor=row["minor"], currency=row["currency"])
    state = text_of(body, "state", limit=32) if "state" in body else row["state"]
    shown_from = row["shown_from"]
    if "shown" in body:
        shown_from = 0 if body["shown"] else FOREVER
    db.execute(
        "UPDATE refunds SET state = ?, minor = ?, currency = ?, shown_from = ? WHERE refund_id = ?",
        (state, amount.minor, amount.currency, shown_from, refund_id),
    )
    return find_refund(db, refund_id)


def _rows(body: Document, name: str) -> list[Document]:
    rows = body.get(name) or []
    if not isinstance(rows, list) or len(rows) > LIMIT or not all(isinstance(row, dict) for row in rows):
        raise invalid(f"{name}: a list of {LIMIT} objects at most is expected")
    return rows


def _merged(old: Document, new: Document) -> Document:
    return {name: value for name, value in {**old, **new}.items() if value is not None}


def _put_order(db: sqlite3.Connection, row: Document) -> None:
    order_id = text_of(row, "order_id")
    found = db.execute("SELECT document FROM orders WHERE order_id = ?", (order_id,)).fetchone()
    order = {"status": "open", "note": "", **_merged(json.loads(found["document"]) if found else {}, row)}
    text_of(order, "customer_id")
    for name in ("total", "amount_due"):
        if name == "total" or name in order:
            order[name] = parse_money(order.get(name), name, exact=False).document()
    db.execute("INSERT OR REPLACE INTO orders VALUES (?, ?)", (order_id, canonical(order)))


def _put_payment(db: sqlite3.Connection, row: Document) -> None:
    payment_id = text_of(row, "payment_id")
    found = db.execute("SELECT * FROM payments WHERE payment_id = ?", (payment_id,)).fetchone()
    payment = _merged(show_payment(found) if found else {"state": "captured", "note": ""}, row)
    amount = parse_money(payment.pop("amount", None), "amount", exact=False)
    values = (text_of(payment, "order_id"), text_of(payment, "state", limit=32), amount.minor, amount.currency)
    for name in ("payment_id", "order_id", "state"):
        del payment[name]
    # captured_at stands in every payment, null while nothing was captured.
    further = canonical({"captured_at": None, **payment})
    db.execute(
        "INSERT INTO payments (payment_id, order_id, state, minor, currency, document) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (payment_id) DO UPDATE SET order_id = excluded.order_id, state = excluded.state,"
        " minor = excluded.minor, currency = excluded.currency, document = excluded.document",
        (payment_id, *values, further),
    )


def _put_refund(db: sqlite3.Connection, row: Document) -> None:
    refuse_unknown(row, _REFUND_FIELDS)
    refund_id = text_of(row, "refund_id")
    found = db.execute("SELECT * FROM refunds WHERE refund_id = ?", (refund_id,)).fetchone()
    new = _new_refund(db, _merged(_seeded(found) if found else {}, row), made_at=0)
    db.execute("DELETE FROM refunds WHERE refund_id = ?", (refund_id,))
    insert_refund(db, new)


def _seeded(row: sqlite3.Row) -> Document:
    metadata = row["metadata"]
    known = {name: row[name] for name in _REFUND_FIELDS - {"amount", "metadata"}}
    amount = Money(minor=row["minor"], currency=row["currency"]).document()
    return {**known, "amount": amount, "metadata": None if metadata is None else json.loads(metadata)}


def _new_refund(db: sqlite3.Connection, body: Document, *, made_at: float) -> NewRefund:
    payment_id = text_of(body, "payment_id")
    created_at = optional_text(body, "created_at")
    return NewRefund(
        refund_id=optional_text(body, "refund_id"),
        order_id=optional_text(body, "order_id") or find_payment(db, payment_id)["order_id"],
        payment_id=payment_id,
        amount=_positive(body.get("amount")),
        state=optional_text(body, "state", limit=32) or "succeeded",
        idempotency_key=optional_text(body, "idempotency_key", limit=512),
        metadata=optional_object(body, "metadata"),
        reason=optional_text(body, "reason", limit=2000),
        approval_id=optional_text(body, "approval_id"),
        created_at=parse_moment(created_at, "created_at") if created_at else None,
        made_at=made_at,
    )


def _positive(value: object) -> Money:
    amount = parse_money(value, "amount", exact=False)
    if amount.minor == 0:
        raise invalid("amount: more than nothing is expected")
    return amount
