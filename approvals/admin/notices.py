"""Door: notices to staff to look at, with those that could not be sent. Read-only; no address of a chat is here."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html

from agentsite.tenants.console import ReadOnly, TenantFilter
from agentsite.text import visible
from approvals import labels, showing
from approvals.models import Notice


class StateFilter(admin.SimpleListFilter):
    """States by their names for people."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return list(showing.STATES.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Notice]) -> QuerySet[Notice]:
        return queryset.filter(state=self.value()) if self.value() in showing.STATES else queryset


@admin.register(Notice)
class NoticeAdmin(ReadOnly):
    """What staff were told, newest first."""

    list_display = ("told", "state_named", "order", "whom", "tenant_name", "tries", "fault", "created")
    list_filter = (StateFilter, TenantFilter)
    list_select_related = ("approval",)
    search_fields = ("^address", "^approval__order_id", "^approval__request_id")
    search_help_text = "Address, order or request id"
    ordering = ("-id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Notice]:
        of_approval = ("approval__order_id", "approval__request_id")
        return super().get_queryset(request).only(
            "kind", "channel", "address", "tenant_id", "state", "tries", "error", "created_at", "due_at", "ended_at",
            "period", *of_approval,
        )  # fmt: skip

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """One notice."""
        row = self.seen_or_404(request, object_id)
        context = {
            **self.admin_site.each_context(request), "opts": self.opts, "subtitle": None, "notice": showing.of(row),
            "approval": row.approval, "title": f"Notice: {showing.kind(row.kind)}",
        }  # fmt: skip
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/approvals/notice/one.html", context)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """A notice has no history but itself."""
        row = self.seen_or_404(request, object_id)
        return HttpResponseRedirect(reverse("admin:approvals_notice_change", args=[row.pk]))

    @admin.display(description="tells of", ordering="kind")
    def told(self, row: Notice) -> str:
        return showing.kind(row.kind)

    @admin.display(description="state", ordering="state")
    def state_named(self, row: Notice) -> str:
        shown = showing.of(row)
        return format_html('<span class="badge badge-{}">{}</span>', shown.tone, shown.state)

    @admin.display(description="order")
    def order(self, row: Notice) -> str:
        return visible(row.approval.order_id) if row.approval is not None else "–"

    @admin.display(description="to")
    def whom(self, row: Notice) -> str:
        return showing.of(row).to

    @admin.display(description="tenant", ordering="tenant_id")
    def tenant_name(self, row: Notice) -> str:
        return visible(row.tenant_id)

    @admin.display(description="last failure")
    def fault(self, row: Notice) -> str:
        return showing.of(row).error or "–"

    @admin.display(description="created", ordering="created_at")
    def created(self, row: Notice) -> str:
        at = row.created_at
        return format_html('<time datetime="{}">{}</time>', at.isoformat(), labels.moment(at))
