"""Door: policy documents and circuit breakers to look at. Read-only; imports no runs and no approvals."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest

from agentsite.tenants.console import ReadOnly, TenantFilter, staff
from agentsite.tenants.models import visible_tenants
from tools import breaker
from tools.models import Breaker, PolicyDocument, PolicyPassage


class Passages(admin.TabularInline):  # type: ignore[type-arg]
    """The sections of a document, in their order."""

    model = PolicyPassage
    fields = ("position", "section", "text")
    readonly_fields = fields
    extra = 0
    can_delete = False
    ordering = ("position",)

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

    list_display = ("doc_id", "version", "title", "status", "tenant_id", "effective_from", "effective_until")
    list_filter = ("status", TenantFilter)
    search_fields = ("^doc_id", "title")
    fields = (
        "tenant", "doc_id", "version", "title", "status", "effective_from", "effective_until", "content_hash",
        "loaded_at", "body",
    )  # fmt: skip
    readonly_fields = fields
    inlines = (Passages,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("tenant")


@admin.register(Breaker)
class BreakerAdmin(ReadOnly):
    """What is left alone at this moment and for how long; an account begins with its tenant, if it has one."""

    list_display = ("dependency", "account", "state", "failures", "opened_at", "open_until", "probe_until")
    search_fields = ("^dependency", "^account")
    fields = ("dependency", "account", "state", "failures", "opened_at", "open_until", "probe_until", "updated_at")
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

    @admin.display(description="state")
    def state(self, row: Any) -> str:
        return breaker.state(row, row.now)
