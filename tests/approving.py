"""What tests of the human's room share: a run that waits, its question, and people who may or may not decide."""

from __future__ import annotations

import uuid
from datetime import timedelta
from functools import lru_cache
from typing import Any

from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import Permission, User
from django.db import transaction
from django.test import Client

from agentsite import dbtime
from agentsite.money import Money
from agentsite.tenants.models import StaffTenant, Tenant
from approvals import queue
from approvals.models import Approval, Decision
from runs.models import Event, Input, Run, Write
from tools.contracts import action_hash

TENANT = "t_acme_in"
PASSWORD = "correct horse battery"
GOAL = "Order 8472 was charged twice, and my refund has not arrived."
DECIDER = ("view_approval", "decide_approval", "view_run")
POLICY = "POL-REF-004@v4"


def tenant(tenant_id: str = TENANT) -> Tenant:
    return Tenant.objects.get_or_create(id=tenant_id)[0]


def person(
    name: str = "lead_17", *, tenants: tuple[str, ...] = (TENANT,), may: tuple[str, ...] = DECIDER, **columns: Any
) -> User:
    """A member of staff with these permissions, assigned to these tenants."""
    user = User.objects.create(username=name, password=_hashed(), is_staff=True, **columns)
    user.user_permissions.set(Permission.objects.filter(codename__in=may))
    for tenant_id in tenants:
        StaffTenant.objects.create(user=user, tenant=tenant(tenant_id))
    return user


@lru_cache(maxsize=1)
def _hashed() -> str:
    """Made once: a hash costs a third of a second, on purpose."""
    return PBKDF2PasswordHasher().encode(PASSWORD, "of the tests alone", iterations=1)


def run(*, tenant_id: str = TENANT, request_id: str = "req-8472", goal: str = GOAL, created_by: str = "user:0") -> Run:
    """A run that waits for an approval, with a short history."""
    now = dbtime.now()
    row = Run.objects.create(
        tenant=tenant(tenant_id), request_id=request_id, body_hash="sha256:0", trace_id=uuid.uuid4().hex,
        agent="refunds", customer_id="cust_5521", contract={"goal": goal}, release="0.1.0", created_by=created_by,
        status="awaiting_approval", waiting_for="approval", status_since=now, version=6,
        created_at=now - timedelta(seconds=4), updated_at=now, model_calls=3,
    )  # fmt: skip
    row.orders.create(tenant_id=tenant_id, order_id="8472")
    story: list[tuple[str, dict[str, Any]]] = [
        ("run.accepted", {"request_id": request_id}),
        ("tool.observed", {"obs_id": "obs_1", "tool": "get_order"}),
        ("gate.decided", {"kind": "needs_approval", "rule": "refund_above_1000_requires_approval"}),
        ("run.status", {"from": "action_proposed", "to": "awaiting_approval", "reason": None}),
    ]
    for seq, (kind, meta) in enumerate(story, start=1):
        event(row, seq, kind, meta)
    return row


def event(row: Run, seq: int, kind: str, meta: dict[str, Any]) -> Event:
    at = row.created_at + timedelta(seconds=seq)
    return Event.objects.create(
        run=row, seq=seq, type=kind, at=at, version=seq, meta=meta, digest="", prev="", mac="", key_id="k1"
    )


def wrote(row: Run, text: str, seq: int = 50) -> Input:
    at = dbtime.now()
    return Input.objects.create(run=row, seq=seq, kind="message", message_id=str(seq), text=text, by="u", at=at)


def question(row: Run, **changes: Any) -> queue.Question:
    """The refund of pay_9002 for 2,000.00 INR, as the gate asks about it."""
    args = changes.pop("args", None) or {
        "order_id": "8472", "payment_id": "pay_9002", "amount": {"amount": "2000.00", "currency": "INR"},
        "reason": "duplicate_capture",
    }  # fmt: skip
    columns: dict[str, Any] = {
        "tenant_id": row.tenant_id, "run_id": str(row.pk), "request_id": row.request_id, "call_id": "c3",
        "tool": "issue_refund", "args": args, "policy": POLICY, "rule": "refund_above_1000_requires_approval",
        "action_hash": action_hash(
            tenant_id=row.tenant_id, run_id=str(row.pk), tool="issue_refund", args=args, policy=POLICY
        ),
        "checks": CHECKS, "evidence": evidence(), "facts": FACTS, "customer_id": "cust_5521", "order_id": "8472",
        "payment_id": "pay_9002", "amount": Money(minor=200_000, currency="INR"), "created_by": row.created_by,
        "ttl_s": 86_400, "approved_ttl_s": 3_600,
    }  # fmt: skip
    return queue.Question(**{**columns, **changes})


def ask(row: Run, **changes: Any) -> str:
    """Asks, and lets the run point at the question as the store does."""
    with transaction.atomic():
        approval_id = queue.ask(question(row, **changes))
        Run.objects.filter(pk=row.pk).update(approval_id=approval_id)
    return approval_id


def decide(approval: Approval, user: User, decision: str = "approve", **changes: Any) -> queue.Decided:
    sent = {"action_hash": approval.action_hash, "reason": "", **changes}
    return queue.decide(approval.pk, user, decision, sent.pop("action_hash"), sent.pop("reason"), **sent)


def counted(approval: Approval) -> list[tuple[str, str]]:
    return list(Decision.objects.filter(approval=approval, counted=True).values_list("by", "decision"))


def consume(approval: Approval, action_hash: str | None = None) -> bool:
    with transaction.atomic():
        return queue.consume(approval.pk, action_hash or approval.action_hash)


def signed_in(user: User, **options: Any) -> Client:
    client = Client(**options)
    client.force_login(user)
    return client


def body(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, path
    return answer.content.decode()


def confirmed(approval: Approval) -> None:
    run = Run.objects.get(pk=approval.run_id)
    Write.objects.create(
        key="t_acme_in/req-8472:issue_refund:pay_9002", run=run, tenant_id=run.tenant_id, order_id="8472",
        payment_id="pay_9002", tool="issue_refund", args=approval.args, action_hash=approval.action_hash,
        approval_id=approval.pk, decision_id="d", body="{}", amount_minor=200_000, currency="INR", state="confirmed",
        refund_id="rf_3301", refund_state="succeeded", call_id="c3", customer_id="cust_5521", intent_at=run.updated_at,
    )  # fmt: skip
    Run.objects.filter(pk=run.pk).update(status="completed", outcome="refunded", waiting_for=None, reply="Done.")


def shift(approval: Approval, **seconds: float) -> None:
    """Moves times of the row to so many seconds from the database's now."""
    now = dbtime.now()
    Approval.objects.filter(pk=approval.pk).update(**{k: now + timedelta(seconds=v) for k, v in seconds.items()})


def inr(amount: str) -> dict[str, str]:
    return {"amount": amount, "currency": "INR"}


def evidence() -> list[dict[str, Any]]:
    at = (dbtime.now() - timedelta(seconds=41)).isoformat()
    rows = [
        ("obs_1", "get_order", "order 8472, 2,000.00 INR in all, 2,000.00 INR due", None),
        ("obs_2", "get_payments", "pay_9001 captured 2,000.00 INR; pay_9002 captured 2,000.00 INR", None),
        ("obs_3", "get_refund_status", "no refund exists", None),
        ("obs_4", "search_policy", "POL-REF-004@v4 Duplicate capture", 4),
    ]
    return [
        {"obs_id": obs, "tool": tool, "fact": fact, "fetched_at": at, "doc": "POL-REF-004" if version else None,
         "version": version, "section": "Duplicate capture" if version else None, "ok": True}
        for obs, tool, fact, version in rows
    ]  # fmt: skip


CHECKS: list[dict[str, Any]] = [
    {"name": "tool_not_in_scope", "ok": True, "inputs": {"tool": "issue_refund"}},
    {"name": "policy_stale", "ok": True, "inputs": {"pinned": 4, "registry_current": 4, "doc": "POL-REF-004"}},
    {"name": "order_not_yours", "ok": True, "inputs": {"order_customer": "cust_5521", "actor": "cust_5521"}},
    {"name": "payment_not_of_order", "ok": True, "inputs": {"payment_id": "pay_9002"}},
    {
        "name": "amount_exceeds_refundable",
        "ok": True,
        "inputs": {
            "captured": inr("4000.00"), "refunded": inr("0.00"), "amount_due": inr("2000.00"), "refunds": [],
            "max_excess": inr("2000.00"), "requested": inr("2000.00"),
        },
    },
    {
        "name": "amount_exceeds_ceiling",
        "ok": True,
        "inputs": {"limit": inr("5000.00"), "requested": inr("2000.00"), "with_earlier": inr("2000.00")},
    },
    {
        "name": "within_own_authority",
        "ok": True,
        "inputs": {
            "threshold": inr("1000.00"), "with_earlier": inr("2000.00"), "large": False,
            "customer_day": {"used": [0, 0], "limit": [3, 500_000]}, "tenant_hour": {"used": [0, 0], "limit": None},
        },
    },
]  # fmt: skip
FACTS: dict[str, Any] = {
    "read_at": "2026-11-29T12:00:00.000Z",
    "order": {"order_id": "8472", "customer_id": "cust_5521", "status": "delivered", "total": inr("2000.00"),
              "amount_due": inr("2000.00")},
    "payments": [
        {"payment_id": "pay_9001", "state": "captured", "amount": inr("2000.00"), "captured_at": None},
        {"payment_id": "pay_9002", "state": "captured", "amount": inr("2000.00"), "captured_at": None},
    ],
    "refunds": [],
}  # fmt: skip
