"""Door: freshness incidents for the owner of a tenant's policies, to look at and to close. Imports no runs."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db import transaction
from django.db.models import F, QuerySet
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html

from agentsite.tenants.console import ReadOnly, TenantFilter, staff, tenants_of
from agentsite.text import visible
from tools.models import PolicyIncident
from tools.policy import standing

MAX_OWNERS = 200


class StateFilter(admin.SimpleListFilter):
    """What still needs its owner, and what somebody has dealt with."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("open", "Open"), ("closed", "Closed")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[PolicyIncident]) -> QuerySet[PolicyIncident]:
        chosen = self.value()
        return queryset.filter(closed_at__isnull=chosen == "open") if chosen in ("open", "closed") else queryset


class OwnerFilter(admin.SimpleListFilter):
    """Owners of the incidents this user sees."""

    title = "owner"
    parameter_name = "owner"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        tenants = tenants_of(request)
        rows = PolicyIncident.objects.exclude(owner="").order_by("owner")
        mine = rows if tenants is None else rows.filter(tenant_id__in=tenants)
        return [(owner, visible(owner)) for owner in mine.values_list("owner", flat=True).distinct()[:MAX_OWNERS]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[PolicyIncident]) -> QuerySet[PolicyIncident]:
        return queryset.filter(owner=self.value()) if self.value() else queryset


@admin.register(PolicyIncident)
class PolicyIncidentAdmin(ReadOnly):
    """Pinned versions that are not current, and how many runs abstained for it: the open ones first."""

    list_display = ("policy", "state", "in_force", "tenant_id", "owned_by", "runs", "last_run", "last_seen_at")
    list_filter = (StateFilter, OwnerFilter, TenantFilter)
    search_fields = ("^doc_id", "^owner", "^last_run_id")
    search_help_text = "Document id, owner, or the last run's id"
    ordering = (F("closed_at").asc(nulls_first=True), "-last_seen_at", "-id")
    fields = (
        "policy", "in_force", "tenant", "owned_by", "runs", "last_run", "first_seen_at", "last_seen_at", "state",
        "closed_at", "closer",
    )  # fmt: skip
    readonly_fields = fields
    actions = ("close",)

    def has_close_permission(self, request: HttpRequest) -> bool:
        return staff(request).has_perm("tools.change_policyincident")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Who may close it may look at it."""
        return self.has_close_permission(request) or super().has_view_permission(request, obj)

    @admin.action(description="Close selected incidents", permissions=["close"])
    def close(self, request: HttpRequest, queryset: QuerySet[PolicyIncident]) -> None:
        """Each open one is closed and recorded with the person; a run that abstains again opens another."""
        with transaction.atomic():
            closed = standing.close(list(queryset), by=staff(request).get_username())
            for row in closed:
                self.log_change(request, row, "Closed.")
        if closed:
            messages.success(request, f"Closed: {', '.join(map(str, closed))}")
        else:
            messages.info(request, "They were closed already; nothing changed.")

    @admin.display(description="pinned policy", ordering="doc_id")
    def policy(self, row: PolicyIncident) -> str:
        return str(row)

    @admin.display(description="in effect", ordering="current")
    def in_force(self, row: PolicyIncident) -> str:
        return f"v{row.current}" if row.current is not None else "no version"

    @admin.display(description="owner", ordering="owner")
    def owned_by(self, row: PolicyIncident) -> str:
        return visible(row.owner) or "–"

    @admin.display(description="closed by")
    def closer(self, row: PolicyIncident) -> str:
        return visible(row.closed_by) or "–"

    @admin.display(description="last run")
    def last_run(self, row: PolicyIncident) -> str:
        try:
            url = reverse("admin:runs_run_change", args=[row.last_run_id])
        except NoReverseMatch:
            return visible(row.last_run_id)
        return format_html('<a href="{}">{}</a>', url, visible(row.last_run_id))

    @admin.display(description="state", ordering="closed_at")
    def state(self, row: PolicyIncident) -> str:
        tone, word = ("bad", "Open") if row.closed_at is None else ("good", "Closed")
        return format_html('<span class="badge badge-{}">{}</span>', tone, word)
