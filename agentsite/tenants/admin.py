"""Door: tenants, profiles and tokens to look at; staff assigned to tenants; tokens revoked, never made or shown.

Tokens are made by `create_token`, which shows a secret once; only its hash is kept, and not even that is shown here.
"""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.html import format_html

from agentsite import telemetry
from agentsite.tenants.console import ReadOnly, TenantFilter, staff
from agentsite.tenants.models import AgentProfile, ServiceToken, StaffTenant, Tenant
from agentsite.text import storable

admin.site.site_header = admin.site.site_title = "Agent console"
admin.site.index_title = "Overview"
admin.site.site_url = None
admin.site.enable_nav_sidebar = False  # the lists and the review page need its width


@admin.register(Tenant)
class TenantAdmin(ReadOnly):
    """Tenants and whether their writes are stopped."""

    tenant_lookup = "pk"
    list_display = ("id", "name", "paused", "paused_reason", "created_at")
    search_fields = ("^id", "name")
    fields = ("id", "name", "paused", "paused_reason", "created_at")
    readonly_fields = fields


@admin.register(AgentProfile)
class AgentProfileAdmin(ReadOnly):
    """Every revision of every profile; the newest is in force for runs to come."""

    list_display = ("tenant_id", "agent", "revision", "created_at")
    list_filter = (TenantFilter,)
    fields = ("tenant", "agent", "revision", "created_at", "as_json")
    readonly_fields = fields

    @admin.display(description="document")
    def as_json(self, row: AgentProfile) -> str:
        return format_html("<pre>{}</pre>", storable(json.dumps(row.document, indent=2, ensure_ascii=False)))


@admin.register(StaffTenant)
class StaffTenantAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Which tenants a staff user sees. Superusers alone assign: anybody else could assign himself."""

    list_display = ("user", "tenant")
    list_filter = (TenantFilter,)
    list_select_related = ("user", "tenant")
    search_fields = ("user__username", "^tenant__id")

    def has_module_permission(self, request: HttpRequest) -> bool:
        return staff(request).is_superuser

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return staff(request).is_superuser

    def has_add_permission(self, request: HttpRequest) -> bool:
        return staff(request).is_superuser

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return staff(request).is_superuser

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return staff(request).is_superuser


@admin.register(ServiceToken)
class ServiceTokenAdmin(ReadOnly):
    """Tokens by name. Deleting one revokes it at once."""

    list_display = ("name", "tenant_id", "scopes", "user", "created", "expiry")
    list_display_links = None
    list_filter = (TenantFilter,)
    list_select_related = ("user",)
    search_fields = ("name", "^tenant__id")
    fields = ("name", "tenant", "scopes", "user", "created", "expiry")
    readonly_fields = fields
    actions = ("revoke",)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return staff(request).has_perm("tenants.delete_servicetoken")

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        # Django's own bulk deletion names rows by their hash.
        return {name: action for name, action in super().get_actions(request).items() if name != "delete_selected"}

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """No page of its own: it would name the token by its hash; `revoke` names it by its name."""
        raise Http404("tokens are revoked from the list")

    @admin.action(description="Revoke selected tokens", permissions=["delete"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ServiceToken]) -> None:
        names = [_name(token) for token in queryset]
        queryset.delete()
        telemetry.log("tokens.revoked", by=f"user:{staff(request).pk}", names=names)
        self.message_user(request, f"Revoked: {', '.join(names)}", messages.SUCCESS)


def _name(token: ServiceToken) -> str:
    return f"{token.name} ({token.tenant_id}: {token.scopes})"
