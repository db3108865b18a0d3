"""Run states of req-8472 built by hand, for tests that need no database."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from agentsite.canonical import sha256
from agentsite.money import Money
from agentsite.money import parse as parse_money
from agentsite.tenants.profiles import CurrencyRule, Limits, WriteGrant
from runs.contracts import (
    Actor,
    Contract,
    GrantedScope,
    RunState,
    SeenAttempt,
    SeenObservation,
    SeenTurn,
    SeenWrite,
    ToolSchema,
)
from runs.states import Status
from tools.contracts import Json, Proposal

START = datetime(2026, 10, 28, 11, 20, tzinfo=UTC)
GOAL = "Order 8472 was charged twice, and my refund has not arrived. Please investigate and resolve it."
READ_NAMES = ("get_order", "get_payments", "get_refund_status", "search_policy")
OF_ORDER: Json = {
    "type": "object",
    "properties": {"order_id": {"type": "string"}},
    "required": ["order_id"],
    "additionalProperties": False,
}
QUERY: Json = {
    "type": "object",
    "properties": {"query": {"type": "string"}},
    "required": ["query"],
    "additionalProperties": False,
}
REFUND: Json = {
    "type": "object",
    "properties": {
        "order_id": {"type": "string"},
        "payment_id": {"type": "string"},
        "amount": {"type": "object", "properties": {"amount": {"type": "string"}, "currency": {"type": "string"}}},
        "reason": {"type": "string"},
        "evidence": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["order_id", "payment_id", "amount", "reason", "evidence"],
    "additionalProperties": False,
}
TOOLS = (
    ToolSchema(name="get_order", summary="The order as it is now.", parameters=OF_ORDER, writes=False),
    ToolSchema(name="get_payments", summary="Every payment of an order.", parameters=OF_ORDER, writes=False),
    ToolSchema(name="get_refund_status", summary="Every refund of an order.", parameters=OF_ORDER, writes=False),
    ToolSchema(name="search_policy", summary="Passages of the policies.", parameters=QUERY, writes=False),
    ToolSchema(name="issue_refund", summary="Propose to refund an amount.", parameters=REFUND, writes=True),
)


def wire(amount: str, currency: str = "INR") -> dict[str, str]:
    return {"amount": amount, "currency": currency}


def contract(
    *, goal: str = GOAL, order_ids: tuple[str, ...] | None = ("8472",), customer: str = "cust_5521"
) -> Contract:
    rule = CurrencyRule(max_amount="5000.00", requires_approval_above="1000.00")
    return Contract(
        request_id="req-8472",
        trace_id="0af7651916cd43dd8448eb211c80319c",
        tenant_id="t_acme_in",
        agent="refunds",
        actor=Actor(customer_id=customer),
        goal=goal,
        scope=GrantedScope(
            order_ids=order_ids,
            read_tools=READ_NAMES,
            write_tools={"issue_refund": WriteGrant(by_currency={"INR": rule})},
        ),
        limits=Limits(),
        idempotency_root="req-8472",
        policy_version_pin="POL-REF-004@v4",
        approval_ttl_s=86_400,
        approved_ttl_s=3_600,
        aggregates={},
        queue_owner="",
        manual_qualification=True,
        profile_revision=1,
        created_by="client",
    )


def turns_of(observations: Iterable[SeenObservation]) -> tuple[SeenTurn, ...]:
    """The turns whose calls these observations answer."""
    calls: dict[int, dict[str, Proposal]] = {}
    for o in sorted(observations, key=lambda o: o.position):
        if named := re.fullmatch(r"m([0-9]+)\.[0-9]+", o.call_id):
            asked = Proposal(call_id=o.call_id, tool=o.source, args=o.args)
            calls.setdefault(int(named.group(1)), {}).setdefault(o.call_id, asked)
    return tuple(seen_turn(number, *found.values()) for number, found in sorted(calls.items()))


def seen_turn(number: int, *proposals: Proposal, **changes: Any) -> SeenTurn:
    fresh = SeenTurn(
        number=number, route="offline:investigator", answered_model="investigator", prompt_version="", final=None,
        proposals=proposals, error=None,
    )  # fmt: skip
    return dataclasses.replace(fresh, **changes)


def state(observations: Iterable[SeenObservation] = (), **changes: Any) -> RunState:
    """A run that was told this, by turns that made the calls it answers."""
    observations = tuple(observations)
    goal = {k: changes.pop(k) for k in ("goal", "order_ids", "customer") if k in changes}
    fresh = RunState(
        run_id="0199-8472",
        tenant_id="t_acme_in",
        request_id="req-8472",
        trace_id="0af7651916cd43dd8448eb211c80319c",
        agent="refunds",
        contract=contract(**goal),
        status=Status.ACCEPTED,
        reason=None,
        waiting_for=None,
        resume_status=None,
        dependency=None,
        status_since=START,
        created_at=START,
        version=1,
        last_input_seq=0,
        folded_input_seq=0,
        pending=None,
        verification=None,
        model_calls=0,
        write_attempts=0,
        input_tokens=0,
        output_tokens=0,
        cost_micros=0,
        active_ms=0,
        repairs=0,
        retries=0,
        voids=0,
        attempts=1,
        lease="lease",
        now=START + timedelta(seconds=5),
        observations=observations,
        turns=turns_of(observations),
        writes=(),
        approval=None,
        inputs=(),
    )
    return dataclasses.replace(fresh, **changes)


def seen(position: int, source: str, content: Any, **changes: Any) -> SeenObservation:
    fresh = SeenObservation(
        obs_id=f"obs_{position}",
        position=position,
        call_id="",
        span="",
        kind="result",
        source=source,
        args={},
        content=content,
        content_hash=sha256(None),
        meta={},
        fetched_at=START + timedelta(milliseconds=250 * position),
    )
    return dataclasses.replace(fresh, **changes)


def order(total: str = "2000.00", due: str = "2000.00", status: str = "delivered", currency: str = "INR") -> Json:
    return {
        "order_id": "8472",
        "customer_id": "cust_5521",
        "total": wire(total, currency),
        "amount_due": wire(due, currency),
        "status": status,
        "note": "",
    }


def payment(payment_id: str, amount: str = "2000.00", currency: str = "INR", **changes: Any) -> Json:
    at = f"2026-10-20T09:00:{len(payment_id):02d}Z"
    fresh = {"payment_id": payment_id, "order_id": "8472", "state": "captured", "captured_at": at, "note": ""}
    return {**fresh, "amount": wire(amount, currency), **changes}


def refund(refund_id: str, payment_id: str, amount: str = "2000.00", currency: str = "INR", **changes: Any) -> Json:
    fresh = {"refund_id": refund_id, "payment_id": payment_id, "order_id": "8472", "state": "succeeded"}
    return {**fresh, "amount": wire(amount, currency), "created_at": "2026-10-21T09:00:00Z", **changes}


def passage(version: int = 4, *, current: bool = True, doc: str = "POL-REF-004") -> Json:
    text = "A duplicate capture on an order is given back to the original payment method."
    return {"doc": doc, "version": version, "section": "Duplicate captures", "text": text, "current": current}


def call(position: int, tool: str, call_id: str, content: Any, **changes: Any) -> SeenObservation:
    args: Json = {"query": "duplicate capture refund"} if tool == "search_policy" else {"order_id": "8472"}
    return seen(position, tool, content, call_id=call_id, **{"args": args, **changes})


PAYMENTS = [
    payment("pay_9001", captured_at="2026-10-20T09:00:00Z"),
    payment("pay_9002", captured_at="2026-10-20T09:00:41Z"),
]


def gathered(
    *,
    of_order: Json | None = None,
    payments: list[Json] | None = None,
    refunds: list[Json] | None = None,
    passages: list[Json] | None = None,
) -> list[SeenObservation]:
    """The four reads of req-8472, any of them with other content."""
    paid = {"order_id": "8472", "payments": PAYMENTS if payments is None else payments}
    given = {"order_id": "8472", "refunds": refunds or []}
    found = {"passages": [passage()] if passages is None else passages}
    return [
        call(1, "get_order", "m1.1", order() if of_order is None else of_order),
        call(2, "get_payments", "m1.2", paid),
        call(3, "search_policy", "m2.1", found),
        call(4, "get_refund_status", "m2.2", given),
    ]


def write(payment_id: str, amount: str = "2000.00", **changes: Any) -> SeenWrite:
    money: Money = parse_money(wire(amount))
    sent = SeenAttempt(number=1, prepared_at=START, sent_at=START, gives_up_at=START, answer="refund")
    fresh = SeenWrite(
        key=f"t_acme_in/req-8472:issue_refund:{payment_id}",
        order_id="8472",
        payment_id=payment_id,
        tool="issue_refund",
        args={},
        action_hash="sha256:0",
        approval_id="A-2291",
        decision_id="d1",
        body="{}",
        origin="http://127.0.0.1:8090",
        amount=money,
        state="confirmed",
        refund_id=f"rf_{payment_id}",
        refund_state="succeeded",
        call_id="m3.1",
        intent_at=START,
        unknown_since=None,
        absent_at=None,
        seen_at=None,
        executed_at=START,
        looks=0,
        attempts=(sent,),
    )
    return dataclasses.replace(fresh, **changes)


def proposal(tool: str, args: Json, call_id: str = "m1.1", evidence: tuple[str, ...] = ()) -> Proposal:
    return Proposal(call_id=call_id, tool=tool, args=args, evidence=evidence)
