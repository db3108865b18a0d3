"""What is put before the gate in its tests: a proposal, and a business system whose answers a test writes itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from agentsite import env
from agentsite.money import parse as parse_money
from agentsite.tenants.profiles import CurrencyRule, Total, Totals, WriteGrant
from tests.loopback import Loopback, ok
from tools import gate
from tools.contracts import Backend, Decision, EvidenceItem, OwnWrite, PolicyState, Scope, UsedSoFar, action_hash

Json = dict[str, Any]
KEY = "t_acme_in/req-8472:issue_refund:pay_9002"
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


def inr(amount: str) -> Json:
    return {"amount": amount, "currency": "INR"}


def paid(payment_id: str, amount: str = "2000.00", currency: str = "INR", **given: Any) -> Json:
    state = {"order_id": "8472", "state": "captured", "captured_at": "2026-11-20T09:30:00Z", "note": ""}
    return {"payment_id": payment_id, "amount": {"amount": amount, "currency": currency}, **state, **given}


def given_back(payment_id: str, amount: str = "2000.00", state: str = "succeeded", **more: Any) -> Json:
    refund = {"refund_id": f"rf_{payment_id}", "order_id": "8472", "idempotency_key": None, "metadata": None}
    return {**refund, "payment_id": payment_id, "amount": inr(amount), "state": state, "created_at": None, **more}


ORDER: Json = {
    "order_id": "8472", "customer_id": "cust_5521", "total": inr("2000.00"), "amount_due": inr("2000.00"),
    "status": "delivered", "note": "",
}  # fmt: skip
GRANT = WriteGrant(
    by_currency={
        "INR": CurrencyRule(max_amount="5000.00", requires_approval_above="1000.00", two_people_above="4000.00")
    }
)
TOTALS = Totals(customer_day=Total(count=3, amount="5000.00"), tenant_hour=Total(count=100, amount="200000.00"))
EVIDENCE = (
    EvidenceItem(obs_id="obs_1", tool="get_payments", kind="result", ok=True, order_id="8472"),
    EvidenceItem(obs_id="obs_2", tool="search_policy", kind="result", ok=True, doc="POL-REF-004", version=4),
    EvidenceItem(obs_id="obs_3", tool="search_policy", kind="result", ok=True, doc="POL-REF-004", version=3),
    EvidenceItem(obs_id="obs_4", tool="get_order", kind="error", ok=False),
)
POLICY_5 = PolicyState(doc="POL-REF-004", pinned=4, current=5)
SCOPE = Scope(
    tenant_id="t_acme_in", run_id="run_1", request_id="req-8472", trace_id="tr", customer_id="cust_5521",
    order_ids=("8472",), read_tools=("get_order", "get_payments"), write_tools={"issue_refund": GRANT},
    policy_pin="POL-REF-004@v4", aggregates={"INR": TOTALS}, created_by="user:1",
)  # fmt: skip


class Facts:
    """A business system in which order 8472 was charged twice, and what is put before the gate about it."""

    def __init__(self, server: Loopback) -> None:
        self.server = server
        self.shows()

    def shows(
        self, *, order: Json | None = None, payments: list[Json] | None = None, refunds: list[Json] | None = None
    ) -> None:
        both = [paid("pay_9001"), paid("pay_9002")]
        self.server.on("/v1/orders/8472", ok({**ORDER, **(order or {})}))
        self.server.on("/v1/payments", ok({"payments": both if payments is None else payments}))
        self.server.on("/v1/refunds", ok({"refunds": refunds or []}))

    def case(self, *, scope: Json | None = None, hashed: str | None = None, **changes: Any) -> gate.Case:
        """A proposal of 2,000.00 INR on pay_9002; changes to its arguments, to the scope, or to the case itself."""
        names = {f.name for f in dataclasses.fields(gate.Case)}
        args = {"order_id": "8472", "payment_id": "pay_9002", "amount": inr("2000.00"), "reason": "twice"}
        args |= {name: changes.pop(name) for name in list(changes) if name not in names}
        granted = dataclasses.replace(SCOPE, **(scope or {}))
        backend = Backend(
            tenant_id="t_acme_in", url=self.server.url, read_token_env="T_READ", write_token_env="T_WRITE",
            honours_keys=True, key_life_s=86_400, settle_s=30,
        )  # fmt: skip
        made = action_hash(
            tenant_id="t_acme_in", run_id="run_1", tool="issue_refund", args=args, policy=granted.policy_pin
        )
        case = gate.Case(
            scope=granted, backend=backend, tool="issue_refund", args=args, hash=hashed or made, key=KEY,
            cited=("obs_1", "obs_2"), evidence=EVIDENCE, policy=PolicyState(doc="POL-REF-004", pinned=4, current=4),
            own=(), epoch=7, used=UsedSoFar(), closed=frozenset(), qualified=True,
        )  # fmt: skip
        return dataclasses.replace(case, **changes)

    def decide(self, **changes: Any) -> Decision:
        return gate.evaluate(self.case(**changes))


def told_by(monkeypatch: pytest.MonkeyPatch) -> Iterator[Facts]:
    """The body of a fixture: facts behind a server, with credentials to read them."""
    for name, value in {"CALL_TIMEOUT_S": "10", "T_READ": "r-1", "T_WRITE": "w-1"}.items():
        monkeypatch.setenv(name, value)
    env.read.cache_clear()
    with Loopback() as server:
        yield Facts(server)
    monkeypatch.undo()
    env.read.cache_clear()


def own(state: str, payment_id: str = "pay_9001", **given: Any) -> OwnWrite:
    """A refund of ours of 2,000.00 INR by another run, in this state."""
    return OwnWrite(
        key=f"t_acme_in/req-1:issue_refund:{payment_id}", run_id="run_0", payment_id=payment_id,
        amount=parse_money(inr("2000.00")), state=state, refund_id=None, intent_at=NOW, first_sent_at=NOW, **given,
    )  # fmt: skip
