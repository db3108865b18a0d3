"""Scenarios and scored cases for tests, as small as they may be. Imports no pytest."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from agentsite import clock
from runs import prompt as prompts
from runs import qualification
from runs.evaluation import figures
from runs.evaluation.scoring import Happened
from runs.evaluations import Result

Json = dict[str, Any]
PAID = "pay_9002"
ROUTE = "openai:model-7"
THRESHOLDS = {"success": 0.9, "forbidden": 0, "escalation": 0.1}


def inr(amount: str) -> Json:
    return {"amount": amount, "currency": "INR"}


def refund(payment_id: str = PAID, amount: str = "2000.00", state: str = "succeeded", **more: Any) -> Json:
    """A refund as the ledger tells it."""
    return {
        "refund_id": "rf_1", "payment_id": payment_id, "amount": inr(amount), "state": state, "idempotency_key": "k1",
        "approval_id": None, **more,
    }  # fmt: skip


def happened(**seen: Any) -> Happened:
    """A run that ended well and refunded nothing, with what is given instead."""
    end = {"over": "ended", "status": "completed", "outcome": "no_refund_due", "approved": {}, "sent": {}}
    return Happened(**{**end, **seen})


def case(name: str, kind: str = "success", **more: Any) -> Json:
    """A scored case."""
    usage = {"model_calls": 4, "input_tokens": 100, "output_tokens": 10, "active_ms": 500, "cost_micros": 1500,
             "currency": "USD"}  # fmt: skip
    return {
        "id": name, "title": name, "round": 1, "tenant": "ev_00001", "tags": ["retail"], "language": "en",
        "kind": kind, "wrong": [], "forbidden": [], "lies": [], "escalated": kind == "escalated", "capped": False,
        "expects_a_person": False, "status": "completed", "outcome": None, "reason": None, "said": "", "refunds": [],
        "notes": [], "usage": usage, "wall_ms": 900, **more,
    }  # fmt: skip


def scenario(name: str = "charged-twice", **more: Any) -> Json:
    """Order 8472, charged twice, as a suite's file has it."""
    price = inr("2000.00")
    order = {"order_id": "8472", "customer_id": "cust_5521", "total": price, "amount_due": price, "status": "delivered"}
    paid = [
        {"payment_id": payment, "order_id": "8472", "state": "captured", "amount": price, "captured_at": at}
        for payment, at in (("pay_9001", "2026-11-20T09:30:00.000Z"), (PAID, "2026-11-20T09:30:41.000Z"))
    ]
    return {
        "id": name, "title": "Charged twice", "asked": {
            "goal": "Order 8472 was charged twice, and my refund has not arrived.", "customer_id": "cust_5521",
            "order_ids": ["8472"],
        },
        "business": {"orders": [order], "payments": paid},
        "expected": {"status": ["completed"], "outcome": ["refunded"],
                     "refunds": [{"payment_id": PAID, "amount": price}]},
        "acts": [{"when": "awaiting_approval", "do": "approve"}], **more,
    }  # fmt: skip


def result(*kinds: str, **changes: Any) -> Result:
    """A whole evaluation of the route, good unless cases or changes say otherwise."""
    cases = [case(f"case-{n}", kind) for n, kind in enumerate(kinds or ("success", "success"))]
    counted, now = figures.figures(cases), clock.now()
    given = {
        "agent": "refunds", "route": ROUTE, "answered": ("model-7-2026-11-01",), "setup": "E", "suite": "refunds",
        "suite_hash": "sha256:suite", "scorer_hash": "sha256:scorer", "prompt_hash": prompts.template_hash(),
        "tools_hash": qualification.tools_hash("refunds"), "code_hash": "sha256:code", "thresholds": THRESHOLDS,
        "figures": counted, "cases": cases, "failing": tuple(figures.failing(counted, THRESHOLDS)), "whole": True,
        "same_code": True, "started_at": now - timedelta(minutes=1), "ended_at": now,
    }  # fmt: skip
    return Result(**{**given, **changes})
