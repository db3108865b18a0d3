"""The business system of a private site, and what tests ask it about refunds. Imports neither pytest nor Django."""

from __future__ import annotations

from typing import Any

from agentsite.private.processes import wait_until
from tests.sandbox_process import Document, Sandbox, inr

CAPTURED_AT = ("2026-11-20T09:30:00.000Z", "2026-11-20T09:30:41.000Z")
KEY = "t_acme_in/req-8472:issue_refund:pay_9002"


def order(order_id: str, **given: Any) -> Document:
    """An order of cust_5521 for 2,000.00 INR, charged once too often by the payments that go with it."""
    return {
        "order_id": order_id, "customer_id": "cust_5521", "total": inr("2000.00"), "amount_due": inr("2000.00"),
        "status": "delivered", "note": "", **given,
    }  # fmt: skip


def captures(order_id: str, *payment_ids: str) -> list[Document]:
    """Captures of 2,000.00 INR each, 41 seconds apart."""
    return [
        {
            "payment_id": payment_id, "order_id": order_id, "state": "captured", "amount": inr("2000.00"),
            "captured_at": CAPTURED_AT[number % 2], "note": "",
        }
        for number, payment_id in enumerate(payment_ids)
    ]  # fmt: skip


class Business(Sandbox):
    """A sandbox process; `posts` are the refund requests it received, `made` the refunds that exist."""

    @property
    def url(self) -> str:
        return str(self.http.base_url).rstrip("/")

    def seed_double_charge(self, *, reset: bool = True) -> None:
        """Order 8472: due 2,000.00 INR, captured twice."""
        self.control("/_seed", reset=reset, orders=[order("8472")], payments=captures("8472", "pay_9001", "pay_9002"))

    def seed_double_charges(self, *order_ids: str) -> None:
        """Further orders charged twice: order N by pay_Na and pay_Nb."""
        payments = [p for i in order_ids for p in captures(i, f"pay_{i}a", f"pay_{i}b")]
        self.control("/_seed", orders=[order(i) for i in order_ids], payments=payments)

    def posts(self) -> list[Document]:
        """Every POST of a refund that arrived, in order."""
        return self.calls("method=POST&path=/v1/refunds")

    def keys(self) -> set[str]:
        """The distinct idempotency keys that were ever sent."""
        return {str(call["idempotency_key"]) for call in self.posts()}

    def made_on(self, order_id: str) -> list[Document]:
        return [refund for refund in self.made() if refund["order_id"] == order_id]

    def open_calls(self, method: str, path: str) -> list[Document]:
        """Requests whose answer is still held back."""
        return [call for call in self.calls(f"method={method}&path={path}") if call["status"] is None]

    def holds(self, method: str, path: str, *, limit_s: float = 30) -> bool:
        """Whether, within the limit, a request hangs in a delay; such calls are what a kill is aimed at."""
        return wait_until(lambda: bool(self.open_calls(method, path)), limit_s)
