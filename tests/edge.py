"""What tests of the edge share: a tenant with the default profile, its tokens, its staff, and requests as clients send
them."""

from __future__ import annotations

import json
from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import Client

from agentsite.tenants.models import AgentProfile, StaffTenant, Tenant
from runs.management import staff, tenancy

Json = dict[str, Any]
RUNS = "/api/v1/runs"


def tenant(tenant_id: str = "t_acme_in", **changes: Any) -> Tenant:
    """A tenant with the shipped profile, with changes to its top level."""
    row = Tenant.objects.create(id=tenant_id)
    document = {**tenancy.DEFAULT_PROFILE, **changes}
    AgentProfile.objects.create(tenant=row, agent="refunds", revision=1, document=document)
    return row


def token(tenant_id: str = "t_acme_in", *, scopes: str = "runs:write,runs:read", name: str = "shop") -> str:
    return staff.make_token(tenant_id=tenant_id, name=name, scopes=scopes.split(","))


def client(bearer: str) -> Client:
    return Client(headers={"Authorization": f"Bearer {bearer}"})


def staff_client(username: str, *tenants: str, permissions: tuple[str, ...] = (), csrf: bool = False) -> Client:
    user = User.objects.create(username=username, is_staff=True)
    user.user_permissions.add(*Permission.objects.filter(codename__in=permissions))
    for tenant_id in tenants:
        StaffTenant.objects.create(user=user, tenant_id=tenant_id)
    signed_in = Client(enforce_csrf_checks=csrf)
    signed_in.force_login(user)
    return signed_in


def body(request_id: str = "req-8472", **changes: Any) -> Json:
    return {
        "request_id": request_id,
        "goal": "Order 8472 was charged twice, and my refund has not arrived.",
        "actor": {"customer_id": "cust_5521", "session_id": "sess_91c", "channel": "chat"},
        "order_ids": ["8472"],
        **changes,
    }


def post(sender: Client, path: str, data: Any = None, **headers: str) -> Any:
    """A POST of JSON (or of a raw string or bytes as they are)."""
    raw = data if isinstance(data, str | bytes) else json.dumps({} if data is None else data)
    return sender.post(path, data=raw, content_type="application/json", headers=headers)


def admitted(sender: Client, request_id: str = "req-8472", **changes: Any) -> Json:
    answer = post(sender, RUNS, body(request_id, **changes))
    assert answer.status_code == 202, answer.content
    shown: Json = answer.json()
    return shown


def pointers(answer: Any) -> list[str]:
    return [error["pointer"] for error in answer.json()["errors"]]
