"""A person's word on policies: adds a version, makes one current or withdraws it, closes incidents. Never imports runs.

Each is one transaction; what concerns versions is under the lock that every load takes, and holds only for what the
person saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction

from agentsite import clock, telemetry
from agentsite.tenants.models import Tenant
from tools.models import PolicyDocument, PolicyIncident
from tools.policy.documents import PolicyChanged, UnknownTenant, changed, load, parse


class Moved(Exception):
    """The version, or the one that is current, is no longer what the person saw."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What a person saw: the version's own status and text, and the version that is current (None: there is none)."""

    status: str
    content_hash: str
    current: int | None


@dataclass(frozen=True, kw_only=True)
class Added:
    """What became of a text: `new` False: it was stored so already. `stood_back_for`: the newer version that stays
    current although this one says it is."""

    document: PolicyDocument
    new: bool
    stood_back_for: int | None = None


@transaction.atomic
def add(tenant_id: str, text: str, *, by: str) -> Added:
    """A version that was not there is stored; one that was stays as it is, in every column. Raises PolicyError."""
    parsed = parse(text, tenant_id=tenant_id)
    if not Tenant.objects.select_for_update(no_key=True).filter(id=tenant_id).exists():
        raise UnknownTenant(f"there is no tenant {tenant_id}")
    family = PolicyDocument.objects.filter(tenant_id=tenant_id, doc_id=parsed.doc_id)
    before = _kept(family.filter(version=parsed.version).first())
    document = load(tenant_id, text)
    newer = family.filter(status="current", version__gt=parsed.version).values_list("version", flat=True).first()
    is_ended = parsed.status == "current" and document.status == "superseded" and newer is None
    if before is not None and (is_ended or before != _kept(document)):
        raise PolicyChanged(f"{document} is stored with another title, status or dates; its own page can change those")
    if before is None:
        telemetry.log("policy.added", tenant=tenant_id, policy=str(document), status=document.status, by=by)
    return Added(
        document=document, new=before is None, stood_back_for=newer if parsed.status == "current" else None
    )  # fmt: skip


def _kept(row: PolicyDocument | None) -> tuple[object, ...] | None:
    if row is None:
        return None
    return row.pk, row.title, row.status, row.effective_from, row.effective_until, row.content_hash


@transaction.atomic
def close(incidents: Sequence[PolicyIncident], *, by: str) -> list[PolicyIncident]:
    """Those that were open are closed; returns these."""
    values = {"closed_at": clock.now(), "closed_by": by[:150]}
    return [i for i in incidents if PolicyIncident.objects.filter(pk=i.pk, closed_at=None).update(**values)]


def seen(document: PolicyDocument) -> Standing:
    """How a version stands now."""
    family = PolicyDocument.objects.filter(tenant_id=document.tenant_id, doc_id=document.doc_id, status="current")
    current = family.values_list("version", flat=True).first()
    return Standing(status=document.status, content_hash=document.content_hash, current=current)


def make_current(pk: int, *, as_seen: Standing, by: str) -> PolicyDocument:
    """The version is current, and the one that was is superseded. Raises Moved."""
    return _set(pk, "current", as_seen, by)


def withdraw(pk: int, *, as_seen: Standing, by: str) -> PolicyDocument:
    """The version is superseded, and its document has no current one unless another is. Raises Moved."""
    return _set(pk, "superseded", as_seen, by)


@transaction.atomic
def _set(pk: int, status: str, as_seen: Standing, by: str) -> PolicyDocument:
    tenant_id = PolicyDocument.objects.values_list("tenant_id", flat=True).get(pk=pk)
    Tenant.objects.select_for_update(no_key=True).get(id=tenant_id)
    document = PolicyDocument.objects.get(pk=pk)
    if seen(document) != as_seen or document.status == status:
        raise Moved
    if status == "current":
        family = PolicyDocument.objects.filter(tenant_id=tenant_id, doc_id=document.doc_id)
        family.filter(status="current").update(status="superseded")
    PolicyDocument.objects.filter(pk=pk).update(status=status)
    changed(tenant_id)
    telemetry.log("policy.status", tenant=tenant_id, policy=str(document), status=status, by=by)
    document.refresh_from_db()
    return document
