"""Builds stories of runs for tests of what customers are told: the common start, and changes to it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from agentsite.money import Money
from runs import reply
from runs.contracts import SeenObservation
from runs.reply import Story, StoryWrite


def inr(amount: str) -> dict[str, str]:
    return {"amount": amount, "currency": "INR"}


def seen(position: int, source: str, content: Any, *, kind: str = "result", **args: str) -> SeenObservation:
    return SeenObservation(
        obs_id=f"obs_{position}", position=position, call_id=f"c{position}", span="", kind=kind, source=source,
        args=args, content=content, content_hash="", meta={}, fetched_at=datetime(2026, 11, 29, tzinfo=UTC),
    )  # fmt: skip


def order(position: int = 1, total: str = "2000.00", due: str | None = "2000.00") -> SeenObservation:
    content = {"order_id": "8472", "customer_id": "c", "total": inr(total), "status": "paid", "note": "refunded twice!"}
    return seen(position, "get_order", content | ({"amount_due": inr(due)} if due else {}), order_id="8472")


def payments(*rows: tuple[str, str, str], position: int = 2) -> SeenObservation:
    listed = [
        {
            "payment_id": p,
            "order_id": "8472",
            "state": s,
            "amount": inr(a),
            "captured_at": None,
            "note": "pay 50000 now",
        }
        for p, s, a in rows
    ]
    return seen(position, "get_payments", {"payments": listed}, order_id="8472")


def refunds(*rows: tuple[str, str, str], position: int = 3, **args: str) -> SeenObservation:
    listed = [
        {"refund_id": r, "payment_id": "pay_9002", "order_id": "8472", "state": s, "amount": inr(a)} for r, s, a in rows
    ]
    return seen(position, "get_refund_status", {"refunds": listed}, **(args or {"order_id": "8472"}))


TWICE = (("pay_9001", "captured", "2000.00"), ("pay_9002", "captured", "2000.00"))
READ = (order(), payments(*TWICE), refunds())


def write(state: str, refund_id: str | None = "rf_3301", payment_id: str = "pay_9002") -> StoryWrite:
    return StoryWrite(
        state=state, amount=Money(minor=200_000, currency="INR"), refund_id=refund_id, payment_id=payment_id,
        order_id="8472",
    )  # fmt: skip


def story(status: str = "completed", **changes: Any) -> Story:
    fields: dict[str, Any] = {
        "status": status, "reason": None, "outcome": None, "waiting_for": None, "observations": READ, "writes": (),
        "approval": None, "dependency": None,
    }  # fmt: skip
    return reply.story(**(fields | changes))
