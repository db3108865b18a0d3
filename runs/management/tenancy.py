"""Door: sets up a tenant: its profile's revisions and its first policy documents. Used by commands alone.

A profile is never changed: a new one is a new revision, for runs to come.
"""

from __future__ import annotations

from pathlib import Path

from django.db import transaction
from pydantic import ValidationError

from agentsite.tenants import profiles
from agentsite.tenants.models import AgentProfile, Site, Tenant
from agentsite.tenants.profiles import Profile
from tools import registry
from tools.contracts import Json
from tools.models import PolicyDocument
from tools.policy import documents

DEFAULT_TENANT = "t_acme_in"
POLICIES = Path(__file__).resolve().parent.parent / "policies"
SHIPPED_POLICY = "POL-REF-004"
DEFAULT_PROFILE: Json = {
    "agent": "refunds",
    "read_tools": ["get_order", "get_payments", "get_refund_status", "search_policy"],
    "write_tools": {
        "issue_refund": {
            "by_currency": {
                "INR": {
                    "max_amount": "5000.00",
                    "requires_approval_above": "1000.00",
                    "two_people_above": "4000.00",
                }
            }
        }
    },
    "limits": {
        "max_model_calls": 12,
        "deadline_ms": 30000,
        "max_write_attempts": 2,
        "max_input_tokens": 60000,
        "max_output_tokens": 8000,
        "max_cost": {"amount": "1.00", "currency": "USD"},
    },
    "policy_pin": "POL-REF-004@v4",
    "approval_ttl_s": 86400,
    "queue_owner": "refunds@acme.example",
    "aggregates": {
        "INR": {
            "customer_day": {"count": 3, "amount": "5000.00"},
            "tenant_hour": {"count": 100, "amount": "200000.00"},
        }
    },
    "approved_ttl_s": 3600,
}


class BadProfile(Exception):
    """A profile that may not be used; `faults` has one line a field, without values."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


def read_profile(document: Json) -> Profile:
    """A profile this code can serve: known fields, known tools. Raises BadProfile."""
    try:
        profile = profiles.parse(document)
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False)
        raise BadProfile([f"{'.'.join(map(str, e['loc'])) or 'profile'}: {e['msg']}" for e in found]) from None
    faults = registry.check_profile(profile)
    if faults:
        raise BadProfile(faults)
    return profile


def put_tenant(tenant_id: str) -> bool:
    """The tenant and the site's row exist; returns whether the tenant is new."""
    Site.objects.get_or_create(id=1)
    return Tenant.objects.get_or_create(id=tenant_id)[1]


def put_profile(tenant_id: str, document: Json) -> int | None:
    """The revision made of a profile document, or None where it equals the one in force."""
    agent = read_profile(document).agent
    with transaction.atomic():
        Tenant.objects.select_for_update().get(id=tenant_id)  # two at once make two revisions, in turn
        newest = AgentProfile.objects.filter(tenant_id=tenant_id, agent=agent).order_by("-revision").first()
        if newest is not None and newest.document == document:
            return None
        revision = newest.revision + 1 if newest else 1
        AgentProfile.objects.create(tenant_id=tenant_id, agent=agent, revision=revision, document=document)
    return revision


def has_profile(tenant_id: str, agent: str) -> bool:
    return AgentProfile.objects.filter(tenant_id=tenant_id, agent=agent).exists()


def put_policies(tenant_id: str) -> list[str]:
    """The shipped documents loaded for a tenant that has no version of that policy; the ids of those loaded."""
    if PolicyDocument.objects.filter(tenant_id=tenant_id, doc_id=SHIPPED_POLICY).exists():
        return []  # the tenant's own versions are the word; ours must not become current again
    return list(documents.load_directory(POLICIES, tenant_id))


def has_policy(tenant_id: str, pin: str) -> bool:
    """Whether the tenant has the exact version a profile pins."""
    doc_id, _, version = pin.rpartition("@v")
    return PolicyDocument.objects.filter(tenant_id=tenant_id, doc_id=doc_id, version=int(version)).exists()
