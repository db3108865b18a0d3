"""Door: tenants, profiles and tokens to look at; staff assigned to tenants; tokens revoked, never made or shown; and
the stop switches, flipped by a POST with a reason.

Tokens are made by `create_token`, which shows a secret once; only its hash is kept, and not even that is shown here.
"""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html

from agentsite import telemetry
from agentsite.tenants import accounts, signin, switches  # noqa: F401 - accounts registers users and groups
from agentsite.tenants.console import ReadOnly, TenantFilter, staff
from agentsite.tenants.models import AgentProfile, ServiceToken, Site, StaffTenant, Tenant
from agentsite.text import has_forbidden, storable

PAUSE = "runs.pause_tenant"

admin.site.site_header = admin.site.site_title = "Agent console"
admin.site.index_title = "Overview"
admin.site.login_form = signin.Form
admin.site.site_url = None
admin.site.enable_nav_sidebar = False  # the lists and the review page need its width


class Switched(ReadOnly):
    """A page with a stop switch. `stops` says what stands still while it is thrown."""

    change_form_template = "admin/tenants/switched.html"
    stops = ""

    def get_urls(self) -> list[URLPattern]:
        switch = path(
            "<path:object_id>/switch/", self.admin_site.admin_view(self.switch_view),
            name=f"tenants_{self.opts.model_name}_switch",
        )  # fmt: skip
        return [switch, *super().get_urls()]

    def may_flip(self, request: HttpRequest) -> bool:
        return staff(request).has_perm(PAUSE)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Who may stop it may look at it."""
        return self.may_flip(request) or super().has_view_permission(request, obj)

    def get_list_display(self, request: HttpRequest) -> Any:
        columns = super().get_list_display(request)
        return (*columns, "button") if self.may_flip(request) else columns

    @admin.display(description="stop switch")
    def button(self, row: Any) -> str:
        word = "Resume" if row.paused else "Stop"
        tone = " resume" if row.paused else ""
        return format_html('<a class="switch{}" href="{}" aria-label="{} {}">{}…</a>', tone, self._url(row), word,
                           self._named(row), word)  # fmt: skip

    def _named(self, row: Any) -> str:
        return str(row) if isinstance(row, Tenant) else "the whole site"

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        row = self.seen_or_404(request, object_id)
        more = {"may_flip": self.may_flip(request), "row": row, "switch": self._url(row)}
        return super().change_view(request, str(row.pk), form_url, {**(extra_context or {}), **more})

    def switch_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """What would be stopped or resumed, and why. The GET changes nothing; the POST flips the switch."""
        row = self.seen_or_404(request, object_id)
        if not self.may_flip(request):
            raise PermissionDenied
        reason = request.POST.get("reason", "").strip()
        if request.method == "POST" and reason and not has_forbidden(reason):
            self._flip(request, row, stop=request.POST.get("to") == "stopped", reason=reason)
            return HttpResponseRedirect(reverse(f"admin:tenants_{self.opts.model_name}_change", args=[quote(row.pk)]))
        if request.method == "POST":
            messages.error(request, "A reason is needed, in plain text.")
        context = {
            **self.admin_site.each_context(request), "opts": self.opts, "row": row, "stops": self.stops,
            "title": f"Stop switch: {self._named(row)}", "subtitle": None,
            "max_reason": switches.MAX_REASON, "switch": self._url(row),
        }  # fmt: skip
        request.current_app = self.admin_site.name
        status = 400 if request.method == "POST" else 200
        return TemplateResponse(request, "admin/tenants/switch.html", context, status=status)

    def _flip(self, request: HttpRequest, row: Any, *, stop: bool, reason: str) -> None:
        tenant_id = row.pk if isinstance(row, Tenant) else None
        if not switches.flip(tenant_id, stop=stop, by=staff(request).get_username(), reason=reason):
            messages.info(request, "It was so already; nothing changed.")
            return
        self.log_change(request, row, f"{'Stopped' if stop else 'Resumed'}: {storable(reason)}")
        messages.success(request, "Stopped. Nothing further leaves." if stop else "Resumed. What waited goes on.")

    def _url(self, row: Any) -> str:
        return reverse(f"admin:tenants_{self.opts.model_name}_switch", args=[quote(row.pk)])


@admin.register(Tenant)
class TenantAdmin(Switched):
    """Tenants and whether their writes are stopped."""

    tenant_lookup = "pk"
    stops = "Every write of this tenant. Reading, asking the model and approving go on; what is approved waits."
    list_display = ("id", "name", "paused", "paused_reason", "paused_by", "created_at")
    search_fields = ("^id", "name")
    fields = ("id", "name", "paused", "paused_reason", "paused_by", "paused_at", "created_at")
    readonly_fields = fields


@admin.register(Site)
class SiteAdmin(Switched):
    """The one row with the switch of the whole site; for whoever may see every tenant."""

    stops = "Every model call and every write of every tenant. Runs keep their place and wait."
    list_display = ("named", "paused", "paused_reason", "paused_by", "paused_at")
    fields = ("paused", "paused_reason", "paused_by", "paused_at", "fence_demanded_at", "fenced_at")
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return Site.objects.all()

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.may_flip(request)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.may_flip(request)

    def may_flip(self, request: HttpRequest) -> bool:
        return switches.may_stop_site(staff(request))

    @admin.display(description="site")
    def named(self, row: Site) -> str:
        return "The whole site"


@admin.register(AgentProfile)
class AgentProfileAdmin(ReadOnly):
    """Every revision of every profile; the newest is in force for runs to come."""

    list_display = ("tenant_id", "agent", "revision", "created_at")
    list_filter = (TenantFilter,)
    fields = ("tenant", "agent", "revision", "created_at", "as_json")
    readonly_fields = fields

    @admin.display(description="document")
    def as_json(self, row: AgentProfile) -> str:
        words = storable(json.dumps(row.document, indent=2, ensure_ascii=False))
        return format_html('<pre tabindex="0">{}</pre>', words)


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
