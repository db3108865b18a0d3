"""Cases of the past as rows alone: ended runs with what they left, made without running anything."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from agentsite import dbtime
from agentsite.canonical import sha256
from agentsite.tenants.models import Tenant
from agentsite.tenants.profiles import Limits, WriteGrant
from runs.contracts import SCHEMA, Actor, Contract, GrantedScope
from runs.models import Event, Observation, Run, RunOrder, Write

Json = dict[str, Any]
T, ME, OTHER = "t_acme_in", "cust_5521", "cust_77"
PIN = "POL-REF-004@v4"


def contract(goal: str, *, tenant: str = T, customer: str = ME, session: str | None = None, **more: Any) -> Json:
    scope = GrantedScope(
        order_ids=("8472",), read_tools=("get_order", "get_payments", "search_policy"),
        write_tools={"issue_refund": WriteGrant(by_currency={})}, people_tools=("escalate",),
    )  # fmt: skip
    made = Contract(
        request_id="req-1", trace_id="0" * 32, tenant_id=tenant, agent="refunds",
        actor=Actor(customer_id=customer, session_id=session), goal=goal, scope=scope, limits=Limits(),
        idempotency_root="req-1", policy_version_pin=PIN, approval_ttl_s=60, approved_ttl_s=60, aggregates={},
        queue_owner="", manual_qualification=True, profile_revision=1, created_by="tests",
    )  # fmt: skip
    return {**made.model_dump(mode="json"), **more}


def past(
    goal: str, *, tenant: str = T, customer: str = ME, session: str | None = None, outcome: str | None = "refunded",
    status: str = "completed", days: float = 1, request_id: str = "", **columns: Any,
) -> Run:  # fmt: skip
    """A run that ended so many days ago, with its request alone."""
    Tenant.objects.get_or_create(id=tenant)
    at = dbtime.now() - timedelta(days=days)
    number = Run.objects.count() + 1
    values = {
        "contract": contract(goal, tenant=tenant, customer=customer, session=session),
        "completed_at": at,
        **columns,
    }
    run = Run.objects.create(
        tenant_id=tenant, version=2, request_id=request_id or f"past-{number}", body_hash="", trace_id="0" * 32,
        agent="refunds", customer_id=customer, schema=SCHEMA, release="test", created_by="tests", status=status,
        outcome=outcome, status_since=at, created_at=at, updated_at=at, **values,
    )  # fmt: skip
    event(run, "run.status", {"from": "accepted", "to": status})
    return run


def done(run: Run, *, reason: str = "duplicate_capture", note: str = "") -> Run:
    """What a refund after a person's yes leaves behind."""
    args = worked(run, reason=reason, note=note)
    Write.objects.create(
        key=f"{run.tenant_id}/{run.request_id}:issue_refund:pay_9002", run=run, tenant_id=run.tenant_id,
        order_id="8472", payment_id="pay_9002", tool="issue_refund", args=args, action_hash="", decision_id="d",
        body="{}", origin="https://shop.example", amount_minor=200_000, currency="INR", state="confirmed",
        refund_id=f"rf_{run.request_id}", call_id="c3", customer_id=run.customer_id, intent_at=dbtime.now(),
    )  # fmt: skip
    return run


def worked(run: Run, *, order_id: str = "8472", reason: str = "duplicate_capture", note: str = "") -> Json:
    """Everything of it but its write; the arguments of that one."""
    RunOrder.objects.create(run=run, tenant_id=run.tenant_id, order_id=order_id)
    args = {"order_id": order_id, "payment_id": "pay_9002", "reason": reason}
    results = [("get_order", "result"), ("issue_refund", "denial"), ("issue_refund", "result"), ("customer", "message")]
    for position, (source, kind) in enumerate(results, start=1):
        content = {"note": note, "order_id": order_id}
        Observation.objects.create(
            run=run, obs_id=f"obs_{position}", position=position, call_id="" if kind == "message" else f"c{position}",
            kind=kind, source=source, args=args, content=content, content_hash=sha256(content), fetched_at=dbtime.now(),
        )  # fmt: skip
    event(run, "gate.decided", {"decision": "deny", "rule": "evidence_missing"}, payload={"action": {"args": args}})
    event(run, "gate.decided", {"decision": "needs_approval", "rule": "refund_above_1000_requires_approval"})
    event(run, "approval.decided", {"decision": "approved", "by": "lead_17"}, payload={"reason": note})
    return args


def event(run: Run, kind: str, meta: Json, payload: Json | None = None) -> None:
    seq = Event.objects.filter(run=run).count() + 1
    Event.objects.create(
        run=run, seq=seq, type=kind, at=dbtime.now(), version=2, meta=meta, payload=payload, digest="", prev="", mac="",
        key_id="",
    )  # fmt: skip
    Run.objects.filter(pk=run.pk).update(last_seq=seq)
