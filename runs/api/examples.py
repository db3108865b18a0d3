"""Door: the examples of the OpenAPI document: one refund, as the calls show it. Values; imports nothing of ours."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
RUN_ID = "019a2f3e-6c1d-7a40-9f3e-2b6d1c0e8472"
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
APPROVAL_ID = "apr_019a2f3e6c3b7d1e"
HASH = "sha256:" + "5f" * 32
KEY = "t_acme_in/req-8472:issue_refund:pay_9002"
AMOUNT = {"amount": "2000.00", "currency": "INR"}
GOAL = "Order 8472 was charged twice, and my refund has not arrived."
ACTOR = {"customer_id": "cust_5521", "session_id": "sess_91c", "channel": "chat"}
ARGS = {"order_id": "8472", "payment_id": "pay_9002", "amount": AMOUNT, "reason": "duplicate_capture"}
RUN: Json = {
    "run_id": RUN_ID, "request_id": "req-8472", "trace_id": TRACE_ID, "tenant_id": "t_acme_in", "agent": "refunds",
    "status": "awaiting_approval", "waiting_for": "approval", "version": 6, "outcome": None, "reason": None,
    "contract": {"goal": GOAL, "actor": ACTOR, "request_id": "req-8472", "policy_version_pin": "POL-REF-004@v4"},
    "usage": {
        "model_calls": 3, "write_attempts": 0, "input_tokens": 8260, "output_tokens": 490,
        "cost": {"amount": "0.0123", "currency": "USD"}, "active_ms": 3912,
    },
    "pending_action": {"tool": "issue_refund", "args": ARGS, "evidence": ["obs_p1"], "idempotency_key": KEY},
    "approval": {
        "approval_id": APPROVAL_ID, "status": "pending", "action_hash": HASH,
        "expires_at": "2026-11-30T12:00:00.000Z", "approver": None,
    },
    "writes": [], "verification": None,
    "versions": {
        "model": "offline:investigator", "prompt": "refunds@3", "tools": "2026-11", "policy": "POL-REF-004@v4",
        "release": "0.1.0",
    },
    "customer_message": "A refund has been proposed and waits for a person to look at it.", "reply": None,
    "customer_url": "https://agent.example/c/…", "attachments": [], "created_at": "2026-11-29T12:00:00.000Z",
    "updated_at": "2026-11-29T12:00:04.000Z", "completed_at": None,
}  # fmt: skip
EVENT: Json = {
    "seq": 7, "type": "run.status", "at": "2026-11-29T12:00:04.000Z", "span": None, "version": 6,
    "data": {"from": "action_proposed", "to": "awaiting_approval", "reason": None},
}  # fmt: skip
STREAM = (
    "retry: 2000\n\nid: 7\nevent: run.status\n"
    'data: {"seq":7,"type":"run.status","at":"2026-11-29T12:00:04.000Z","span":null,"version":6,'
    '"data":{"from":"action_proposed","to":"awaiting_approval","reason":null}}\n\n:\n\n'
)
OBSERVATION: Json = {
    "id": "obs_p1", "kind": "result", "tool": "get_payments", "span": "s1", "source": "get_payments",
    "args": {"order_id": "8472"}, "content": {"payments": []}, "content_hash": HASH,
    "fetched_at": "2026-11-29T12:00:02.000Z", "took_ms": 41,
}  # fmt: skip
PROBLEM: Json = {
    "type": "invalid-request", "title": "The request is not valid.", "status": 400,
    "detail": "/goal: String should have at least 1 character", "instance": "/api/v1/runs", "trace_id": TRACE_ID,
    "errors": [{"pointer": "/goal", "code": "string_too_short", "detail": "String should have at least 1 character"}],
}  # fmt: skip
REQUESTS: Json = {
    "runs_create": {
        "request_id": "req-8472", "goal": GOAL, "actor": ACTOR, "order_ids": ["8472"], "agent": "refunds",
        "limits": {"max_model_calls": 12, "deadline_ms": 30000, "max_write_attempts": 2},
        "callback_url": "https://shop.example/hooks/refunds",
    },
    "runs_message": {"text": "It was order 8472.", "message_id": "m-1"},
    "runs_feedback": {"rating": "up", "text": "Quick and clear."},
    "runs_cancel": {"reason": "The customer found the refund."},
    "approvals_decide": {"decision": "approve", "action_hash": HASH, "reason": "charged twice"},
}  # fmt: skip
"""By operation."""

EXAMPLES: Json = {
    "RunView": RUN,
    "RunPage": {"results": [RUN], "next": None, "previous": None},
    "EventPage": {"results": [EVENT], "next": None},
    "ObservationPage": {"results": [OBSERVATION], "next": None},
    "MessageView": {"run_id": RUN_ID, "message_id": "m-1", "seq": 9, "status": "waiting_reply"},
    "FeedbackView": {"run_id": RUN_ID, "rating": "up", "text": "Quick and clear."},
}
"""By the component's name."""
