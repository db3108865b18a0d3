"""`POST /v1/refunds`: the rules by which the business system makes a refund, in one transaction."""

import sqlite3
from dataclasses import dataclass, field, replace

from tools.sandbox.behaviour import Behaviour, current_behaviour
from tools.sandbox.faults import Fault, take_making_faults
from tools.sandbox.ledger import (
    FOREVER,
    NewRefund,
    find_payment,
    find_refund,
    insert_refund,
    refunded_of_order,
    refunded_of_payment,
    show_refund,
)
from tools.sandbox.moment import now_s
from tools.sandbox.money import Money, parse_money
from tools.sandbox.refusals import (
    Document,
    Refused,
    canonical,
    invalid,
    optional_object,
    optional_text,
    parse_object,
    refuse_unknown,
    text_of,
)

REFUNDABLE = frozenset({"captured", "refunded"})
"""Payment states whose money was taken and is ours to give back; nothing is left on a `refunded` one."""

_FIELDS = frozenset({"order_id", "payment_id", "amount", "reason", "approval_id", "metadata", "expected_refunded"})


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A valid request for a refund; `body` is its canonical text, `key` is None only where keys mean nothing."""

    order_id: str
    payment_id: str
    amount: Money
    reason: str
    approval_id: str | None
    metadata: Document | None
    expected_refunded: Money | None
    key: str | None
    body: str = field(repr=False)


def post_refund(db: sqlite3.Connection, key: str | None, body: Document, target: str) -> tuple[int, Document]:
    """The status and the refund: 201 for a new one, 200 for that of an earlier equal request; raises `Refused`."""
    behaviour = current_behaviour(db)
    asked = _parse(body, key, behaviour)
    if behaviour.honours_keys and (earlier := _earlier(db, asked, behaviour)):
        return 200, show_refund(earlier, behaviour)
    _check(db, asked, behaviour)
    made = insert_refund(db, _bent(_new(asked), take_making_faults(db, "POST", target)))
    _remember(db, asked, made["refund_id"])
    return 201, show_refund(made, behaviour)


def _parse(body: Document, key: str | None, behaviour: Behaviour) -> Asked:
    refuse_unknown(body, _FIELDS)
    return Asked(
        order_id=text_of(body, "order_id"),
        payment_id=text_of(body, "payment_id"),
        amount=_positive(body),
        reason=_reason(body),
        approval_id=optional_text(body, "approval_id"),
        metadata=optional_object(body, "metadata"),
        expected_refunded=_expected(body),
        key=_key(key, behaviour),
        body=canonical(body),
    )


def _positive(body: Document) -> Money:
    amount = parse_money(body.get("amount"), "amount")
    if amount.minor == 0:
        raise invalid("amount: more than nothing is expected")
    return amount


def _reason(body: Document) -> str:
    reason = body.get("reason")
    if not isinstance(reason, str) or len(reason) > 2000:
        raise invalid("reason: a text of 2000 characters at most is expected")
    # A lone surrogate is legal JSON and no text: it could not be stored.
    return reason.encode("utf-8", "replace").decode()


def _expected(body: Document) -> Money | None:
    value = body.get("expected_refunded")
    return None if value is None else parse_money(value, "expected_refunded")


def _key(key: str | None, behaviour: Behaviour) -> str | None:
    if not key and behaviour.honours_keys:
        raise Refused(400, "idempotency-key-required")
    if key and (len(key) > 512 or not key.isprintable()):
        raise invalid("Idempotency-Key: 512 printable characters at most are expected")
    return key or None


def _earlier(db: sqlite3.Connection, asked: Asked, behaviour: Behaviour) -> sqlite3.Row | None:
    """The refund made under this key while the key lives; raises `Refused` 409 where the body was another."""
    born_after = now_s() - behaviour.key_life_s
    query = "SELECT body, refund_id FROM keys WHERE key = ? AND made_at > ?"
    row = db.execute(query, (asked.key, born_after)).fetchone()
    if row is None:
        return None
    if row["body"] != asked.body:
        raise Refused(409, "idempotency-key-reused")
    return find_refund(db, row["refund_id"])


def _check(db: sqlite3.Connection, asked: Asked, behaviour: Behaviour) -> None:
    payment = find_payment(db, asked.payment_id)
    if payment["order_id"] != asked.order_id:
        raise Refused(422, "payment-of-another-order")
    if payment["currency"] != asked.amount.currency:
        raise Refused(422, "currency-mismatch")
    if payment["state"] not in REFUNDABLE:
        raise Refused(422, "payment-not-refundable", f"the payment is {payment['state']}")
    if behaviour.supports_expected_refunded:
        _check_expected(db, asked)
    if behaviour.check_remaining:
        _check_remaining(db, asked, payment)


def _check_expected(db: sqlite3.Connection, asked: Asked) -> None:
    expected = asked.expected_refunded
    if expected is None:
        return
    if expected.currency != asked.amount.currency:
        raise Refused(422, "currency-mismatch")
    if expected != refunded_of_order(db, asked.order_id, expected.currency):
        raise Refused(409, "facts-changed")


def _check_remaining(db: sqlite3.Connection, asked: Asked, payment: sqlite3.Row) -> None:
    left = payment["minor"] - refunded_of_payment(db, asked.payment_id)
    if payment["state"] == "refunded" or asked.amount.minor > left:
        raise Refused(422, "amount-exceeds-remaining")


def _new(asked: Asked) -> NewRefund:
    return NewRefund(
        order_id=asked.order_id,
        payment_id=asked.payment_id,
        amount=asked.amount,
        idempotency_key=asked.key,
        metadata=asked.metadata,
        reason=asked.reason,
        approval_id=asked.approval_id,
        made_at=now_s(),
    )


def _bent(new: NewRefund, faults: dict[str, Fault]) -> NewRefund:
    """The refund as the faults asked for make it: another state or amount than expected, or out of sight."""
    if "state" in faults:
        new = replace(new, state=faults["state"].argument)
    if "amount" in faults:
        new = replace(new, amount=parse_money(parse_object(faults["amount"].argument.encode()), "amount"))
    if "hide" in faults:
        new = replace(new, shown_from=min(FOREVER, now_s() + faults["hide"].seconds))
    return new


def _remember(db: sqlite3.Connection, asked: Asked, refund_id: str) -> None:
    # Written where keys are not honoured too, so that a later change of behaviour finds them; the last one wins.
    if asked.key:
        values = (asked.key, asked.body, refund_id, now_s())
        db.execute("INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?)", values)
