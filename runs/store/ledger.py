"""What our own rows say of an order: its epoch, every write of ours on it, the running totals. Part of the store.

One statement each; writes nothing. An order on which we never wrote has no guard, and its epoch is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import Any
from uuid import UUID

from django.db import connection

from agentsite import dbtime, questions, statements
from agentsite.money import Money
from agentsite.questions import Question, Row
from tools.contracts import OwnWrite, UsedSoFar

GONE = ("not_sent", "refused", "failed")
ORDER_WINDOW = timedelta(days=30)
_OWN = (
    "w.key", "w.run_id", "w.payment_id", "w.amount_minor", "w.currency", "w.state", "w.refund_id", "w.intent_at",
    "w.customer_id", "w.watch_at", "w.watched", "w.customer_window", "w.tenant_window",
    "(SELECT MIN(t.sent_at) FROM runs_attempt t WHERE t.write_id = w.key)",
)  # fmt: skip
_WRITES = "SELECT {own} FROM runs_write w WHERE w.tenant_id = %s AND w.order_id = %s"
# The window's name is worked out once, so that an index finds each counter by it.
_STANDING = ("at.day", "at.hour", "g.epoch", "d.count", "d.amount_minor", "h.count", "h.amount_minor", *_OWN)
_OF_ORDER = """
FROM (SELECT {day} AS day, {hour} AS hour) AS at
LEFT JOIN runs_orderguard g ON g.tenant_id = %s AND g.order_id = %s
LEFT JOIN runs_counter d ON d.tenant_id = %s AND d.scope = 'customer_day' AND d.subject = %s AND d.currency = %s
  AND d."window" = at.day
LEFT JOIN runs_counter h ON h.tenant_id = %s AND h.scope = 'tenant_hour' AND h.subject = '' AND h.currency = %s
  AND h."window" = at.hour
LEFT JOIN runs_write w ON w.tenant_id = %s AND w.order_id = %s
"""
_WINDOW = {
    "postgresql": ("to_char(clock_timestamp() AT TIME ZONE 'UTC', '{0}')", "YYYY-MM-DD", 'YYYY-MM-DD"T"HH24'),
    "sqlite": ("strftime('{0}', 'now')", "%%Y-%%m-%%d", "%%Y-%%m-%%dT%%H"),
}


@dataclass(frozen=True, kw_only=True)
class OrderStanding:
    """An order in our own books at one moment; `epoch` is read with all the rest, and before any live fact."""

    epoch: int
    own: tuple[OwnWrite, ...]
    used: UsedSoFar


def order_standing(
    tenant_id: str, customer_id: str, order_id: str, currency: str, *, leave_out: str
) -> OrderStanding:  # fmt: skip
    """The order's epoch, to be compared in the intent; our writes on it; what the agent refunded and holds open on it
    in 30 days, and the totals of the running windows, without the write whose key is `leave_out`."""
    return questions.ask(standing_question(tenant_id, customer_id, order_id, currency, leave_out=leave_out))


def standing_question(
    tenant_id: str, customer_id: str, order_id: str, currency: str, *, leave_out: str
) -> Question[OrderStanding]:  # fmt: skip
    """What `order_standing` asks, for whoever asks more with it."""
    order = (tenant_id, order_id)
    return Question(
        columns=(dbtime.now_sql(), *_STANDING), rest=_of_order(connection.vendor),
        params=[*order, tenant_id, customer_id, currency, tenant_id, currency, *order],
        read=partial(_stands, currency, leave_out),
    )  # fmt: skip


def _stands(currency: str, leave_out: str, rows: Sequence[Row]) -> OrderStanding:
    now, day, hour, epoch, *totals = rows[0][:8]
    writes = [row[8:] for row in rows if row[8] is not None]
    again = next((w for w in writes if w[0] == leave_out and w[4] == currency), None)
    used = UsedSoFar(
        agent_on_order_minor=_on_order(writes, currency, dbtime.moment(now), leave_out),
        customer_day=_less(totals[:2], again if again and again[11] == day else None),
        tenant_hour=_less(totals[2:], again if again and again[12] == hour else None),
    )
    return OrderStanding(epoch=epoch or 0, own=tuple(_own(w) for w in writes), used=used)


def own_writes(tenant_id: str, order_id: str) -> tuple[OwnWrite, ...]:
    """Every write of ours on an order, whatever run made it (`write-path.md` 3)."""
    with statements.cursor() as cursor:
        cursor.execute(_WRITES.format(own=", ".join(_OWN)), [tenant_id, order_id])
        return tuple(_own(row) for row in cursor.fetchall())


def used_so_far(tenant_id: str, customer_id: str, order_id: str, currency: str, *, leave_out: str) -> UsedSoFar:
    """What the agent refunded and holds open on the order in 30 days, and the totals of the running windows."""
    return order_standing(tenant_id, customer_id, order_id, currency, leave_out=leave_out).used


@lru_cache(maxsize=2)
def _of_order(vendor: str) -> str:
    text, day, hour = _WINDOW[vendor]
    return _OF_ORDER.format(day=text.format(day), hour=text.format(hour))


def _on_order(writes: Sequence[Row], currency: str, now: datetime | None, leave_out: str) -> int:
    assert now is not None, "the database always knows the time"
    return sum(
        w[3] for w in writes
        if w[4] == currency and w[5] not in GONE and w[0] != leave_out and _moment(w[7]) >= now - ORDER_WINDOW
    )  # fmt: skip


def _less(used: Sequence[int | None], write: Row | None) -> tuple[int, int]:
    """A total without a write that is counted in it and is being released once more."""
    count, minor = used[0] or 0, used[1] or 0
    return (count - 1, minor - write[3]) if write else (count, minor)


def _own(w: Row) -> OwnWrite:
    return OwnWrite(
        key=w[0], run_id=str(w[1] if isinstance(w[1], UUID) else UUID(w[1])), payment_id=w[2],
        amount=Money(minor=w[3], currency=w[4]), state=w[5], refund_id=w[6], intent_at=_moment(w[7]),
        first_sent_at=dbtime.moment(w[13]), customer_id=w[8],
        # Only what was verified is watched, from then on.
        verified=w[5] == "confirmed" and bool(w[9] or w[10]),
    )  # fmt: skip


def _moment(value: Any) -> datetime:
    found = dbtime.moment(value)
    assert found is not None, "a write has its intent's time"
    return found
