"""Orders, payments and refunds as rows, and how each is shown; knows nothing of HTTP and decides nothing."""

import json
import secrets
import sqlite3
from dataclasses import dataclass

from tools.sandbox.behaviour import Behaviour
from tools.sandbox.moment import now_s, now_text
from tools.sandbox.money import Money
from tools.sandbox.refusals import Document, Refused, canonical

_BY_FILTER = {
    "order_id": "SELECT * FROM refunds WHERE order_id = ? ORDER BY created_at, seq",
    "payment_id": "SELECT * FROM refunds WHERE payment_id = ? ORDER BY created_at, seq",
    "idempotency_key": "SELECT * FROM refunds WHERE idempotency_key = ? ORDER BY created_at, seq",
}

# Every state counts, an unknown one too, but the two in which no money left.
_OF_PAYMENT = """SELECT COALESCE(SUM(minor), 0) AS minor FROM refunds
    WHERE payment_id = ? AND state NOT IN ('failed', 'canceled')"""
_OF_ORDER = """SELECT COALESCE(SUM(minor), 0) AS minor FROM refunds
    WHERE order_id = ? AND currency = ? AND state NOT IN ('failed', 'canceled')"""

FOREVER = 1e18
"""A moment that never comes, in seconds since the epoch."""


@dataclass(frozen=True, kw_only=True)
class NewRefund:
    """A refund about to be written; `made_at` 0 lets it be listed at once whatever the lag."""

    order_id: str
    payment_id: str
    amount: Money
    state: str = "succeeded"
    idempotency_key: str | None = None
    metadata: Document | None = None
    reason: str | None = None
    approval_id: str | None = None
    refund_id: str | None = None
    created_at: str | None = None
    made_at: float = 0
    shown_from: float = 0


def find_order(db: sqlite3.Connection, order_id: str) -> Document:
    """The order on the wire; raises `Refused` 404."""
    row = db.execute("SELECT document FROM orders WHERE order_id = ?", (order_id,)).fetchone()
    if row is None:
        raise Refused(404, "order-not-found")
    found: Document = json.loads(row["document"])
    return found


def find_payment(db: sqlite3.Connection, payment_id: str) -> sqlite3.Row:
    """The payment's row; raises `Refused` 404."""
    row: sqlite3.Row | None = db.execute("SELECT * FROM payments WHERE payment_id = ?", (payment_id,)).fetchone()
    if row is None:
        raise Refused(404, "payment-not-found")
    return row


def find_refund(db: sqlite3.Connection, refund_id: str) -> sqlite3.Row:
    """The refund's row; raises `Refused` 404."""
    row: sqlite3.Row | None = db.execute("SELECT * FROM refunds WHERE refund_id = ?", (refund_id,)).fetchone()
    if row is None:
        raise Refused(404, "refund-not-found")
    return row


def list_payments(db: sqlite3.Connection, order_id: str) -> list[Document]:
    """All payments of an order; raises `Refused` 404 for an order that does not exist."""
    find_order(db, order_id)
    rows = db.execute("SELECT * FROM payments WHERE order_id = ? ORDER BY seq", (order_id,))
    return [show_payment(row) for row in rows]


def list_refunds(db: sqlite3.Connection, wanted: dict[str, str], behaviour: Behaviour) -> list[Document]:
    """The refunds that match every filter and are not lagging or hidden, oldest first."""
    # One filter finds few rows by its index; the others look at those.
    first = next(iter(wanted))
    rows = db.execute(_BY_FILTER[first], (wanted[first],)).fetchall()
    return [show_refund(row, behaviour) for row in rows if _matches(row, wanted) and _is_listed(row, behaviour)]


def refunded_of_payment(db: sqlite3.Connection, payment_id: str) -> int:
    """What left a payment, in its minor units, shown in lists or not."""
    return int(db.execute(_OF_PAYMENT, (payment_id,)).fetchone()["minor"])


def refunded_of_order(db: sqlite3.Connection, order_id: str, currency: str) -> Money:
    """What left an order over all its payments, shown in lists or not."""
    return Money(minor=int(db.execute(_OF_ORDER, (order_id, currency)).fetchone()["minor"]), currency=currency)


def insert_refund(db: sqlite3.Connection, new: NewRefund) -> sqlite3.Row:
    """Writes a refund and returns its row; an id is made where none is given."""
    refund_id = new.refund_id or _new_refund_id(db)
    values = (
        *(refund_id, new.order_id, new.payment_id, new.state, new.amount.minor, new.amount.currency),
        *(new.idempotency_key, None if new.metadata is None else canonical(new.metadata), new.reason),
        *(new.approval_id, new.created_at or now_text(), new.made_at, new.shown_from),
    )
    db.execute(
        "INSERT INTO refunds (refund_id, order_id, payment_id, state, minor, currency, idempotency_key, metadata,"
        " reason, approval_id, created_at, made_at, shown_from) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        values,
    )
    return find_refund(db, refund_id)


def show_payment(row: sqlite3.Row) -> Document:
    """The payment on the wire, with whatever further fields it was seeded with."""
    known = {"payment_id": row["payment_id"], "order_id": row["order_id"], "state": row["state"]}
    return {**known, "amount": _amount(row), **json.loads(row["document"])}


def show_refund(row: sqlite3.Row, behaviour: Behaviour) -> Document:
    """The refund on the wire, as much of it as this kind of provider keeps."""
    metadata = row["metadata"] if behaviour.lists_metadata else None
    return {
        **{name: row[name] for name in ("refund_id", "payment_id", "order_id", "state")},
        "amount": _amount(row),
        "idempotency_key": row["idempotency_key"] if behaviour.lists_keys else None,
        "metadata": None if metadata is None else json.loads(metadata),
        "created_at": row["created_at"],
    }


def _matches(row: sqlite3.Row, wanted: dict[str, str]) -> bool:
    return all(row[name] == value for name, value in wanted.items())


def _is_listed(row: sqlite3.Row, behaviour: Behaviour) -> bool:
    now = now_s()
    return bool(row["shown_from"] <= now and row["made_at"] + behaviour.lag_s <= now)


def _amount(row: sqlite3.Row) -> Document:
    return Money(minor=row["minor"], currency=row["currency"]).document()


def _new_refund_id(db: sqlite3.Connection) -> str:
    # The counter makes it unique, the random part keeps a reader from guessing the next one.
    count = db.execute("SELECT COALESCE(MAX(seq), 0) + 1 AS seq FROM refunds").fetchone()["seq"]
    return f"rf_{count}{secrets.token_hex(4)}"
