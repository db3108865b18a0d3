"""Door: policy documents and circuit breakers to look at. Read-only; imports no runs and no approvals."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest

from agentsite.tenants.console import ReadOnly, TenantFilter, staff
from agentsite.tenants.models import visible_tenants
from agentsite.text import storable, visible
from tools import breaker
from tools.models import Breaker, PolicyDocument, PolicyPassage


class Passages(admin.TabularInline):  # type: ignore[type-arg]
    """The sections of a document, in their order."""

    model = PolicyPassage
    fields = ("position", "heading", "words")
    readonly_fields = fields
    extra = 0
    can_delete = False
    ordering = ("position",)

    @admin.display(description="section")
    def heading(self, row: PolicyPassage) -> str:
        return visible(row.section)

    @admin.display(description="text")
    def words(self, row: PolicyPassage) -> str:
        return storable(row.text)

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        # Whoever may see the document may see its sections.
        return request.user.has_perm("tools.view_policydocument")


@admin.register(PolicyDocument)
class PolicyDocumentAdmin(ReadOnly):
    """Every version of every policy; which one is current is a status here, never a wording."""

    list_display = ("doc", "version", "named", "status", "tenant_id", "effective_from", "effective_until")
    list_filter = ("status", TenantFilter)
    search_fields = ("^doc_id", "title")
    fields = (
        "tenant", "doc", "version", "named", "status", "effective_from", "effective_until", "content_hash",
        "loaded_at", "words",
    )  # fmt: skip
    readonly_fields = fields
    inlines = (Passages,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("tenant")

    @admin.display(description="doc id", ordering="doc_id")
    def doc(self, row: PolicyDocument) -> str:
        return visible(row.doc_id)

    @admin.display(description="title", ordering="title")
    def named(self, row: PolicyDocument) -> str:
        return visible(row.title)

    @admin.display(description="body")
    def words(self, row: PolicyDocument) -> str:
        return storable(row.body)


@admin.register(Breaker)
class BreakerAdmin(ReadOnly):
    """What is left alone at this moment and for how long; an account begins with its tenant, if it has one."""

    list_display = ("of", "at", "state", "failures", "opened_at", "open_until", "probe_until")
    search_fields = ("^dependency", "^account")
    fields = ("of", "at", "state", "failures", "opened_at", "open_until", "probe_until", "updated_at")
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = Breaker.objects.annotate(now=breaker.Later(0)).order_by("dependency", "account")
        tenants = visible_tenants(staff(request))
        if tenants is None:
            return rows
        mine = Q(pk__in=[])
        for tenant_id in tenants:
            mine |= Q(account__startswith=f"{tenant_id}@")
        return rows.filter(mine)

    @admin.display(description="dependency", ordering="dependency")
    def of(self, row: Breaker) -> str:
        return visible(row.dependency)

    @admin.display(description="account", ordering="account")
    def at(self, row: Breaker) -> str:
        return visible(row.account)

    @admin.display(description="state")
    def state(self, row: Any) -> str:
        return breaker.state(row, row.now)
