"""Door: runs to look at, each with everything that led to what it did. Read-only; writes nothing, imports no control.

Staff see the runs of their tenants; what customers, providers and models wrote is shown escaped and visible.
"""

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
from approvals import labels
from approvals.models import Approval, Decision
from runs.models import Event, Input, Observation, Run, Turn, Write

MAX_TURNS = 100
MAX_OBSERVATIONS = 300
MAX_DECISIONS = 200
MAX_EVENTS = 500


class StatusFilter(admin.SimpleListFilter):
    """Statuses by their names for people."""

    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return list(labels.RUN.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        return queryset.filter(status=self.value()) if self.value() else queryset


class WaitingFilter(admin.SimpleListFilter):
    """What a run waits for."""

    title = "waiting for"
    parameter_name = "waiting_for"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(wait, labels.spoken(wait)) for wait in ("approval", "reply", "dependency", "refund", "order", "staff")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        return queryset.filter(waiting_for=self.value()) if self.value() else queryset


@admin.register(Run)
class RunAdmin(ReadOnly):
    """The list of runs, newest first, and one run's whole story on one page."""

    list_display = ("request", "state", "order", "customer", "tenant_name", "ended_as", "created")
    list_filter = (StatusFilter, WaitingFilter, TenantFilter)
    search_fields = ("^request_id", "^customer_id", "^id", "^trace_id", "^orders__order_id")
    search_help_text = "Request, customer, order, run or trace id"
    ordering = ("-created_at", "-id")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Run]:
        heavy = ("contract", "pending_action", "verification", "reply", "versions")
        return super().get_queryset(request).defer(*heavy).prefetch_related("orders")

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """One run: request, writes, decisions, model turns, observations and events."""
        run = self.seen_or_404(request, object_id)
        context = {
            **self.admin_site.each_context(request), **_story(run), "opts": self.opts, "subtitle": None,
            "title": f"Run {visible(run.request_id)}",
        }  # fmt: skip
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/runs/run/story.html", context)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """A run's history is its events, which its page shows."""
        run = self.seen_or_404(request, object_id)
        return HttpResponseRedirect(reverse("admin:runs_run_change", args=[run.pk]) + "#timeline")

    @admin.display(description="request", ordering="request_id")
    def request(self, row: Run) -> str:
        return visible(row.request_id)

    @admin.display(description="status", ordering="status")
    def state(self, row: Run) -> str:
        text = labels.run_status(row.status)
        return format_html('<span class="badge badge-{}">{}</span>', labels.tone(row.status), text)

    @admin.display(description="order")
    def order(self, row: Run) -> str:
        return ", ".join(visible(o.order_id) for o in row.orders.all()) or "–"

    @admin.display(description="customer", ordering="customer_id")
    def customer(self, row: Run) -> str:
        return visible(row.customer_id)

    @admin.display(description="tenant", ordering="tenant_id")
    def tenant_name(self, row: Run) -> str:
        return visible(row.tenant_id)

    @admin.display(description="outcome")
    def ended_as(self, row: Run) -> str:
        return labels.spoken(row.outcome) if row.outcome else "–"

    @admin.display(description="created", ordering="created_at")
    def created(self, row: Run) -> str:
        at = row.created_at
        return format_html('<time datetime="{}">{}</time>', at.isoformat(), labels.moment(at))


def _story(run: Run) -> dict[str, Any]:
    """Everything of a run that its page shows; each list has a limit."""
    return {
        "run": run,
        "orders": [o.order_id for o in run.orders.all()[:20]],
        "goal": str(run.contract.get("goal", "")),
        "cost": labels.amount(run.cost_micros // 10_000, "USD") if run.cost_micros else "",
        "messages": Input.objects.filter(run=run).order_by("seq")[:MAX_DECISIONS],
        "approvals": Approval.objects.filter(run_id=run.pk).order_by("requested_at")[:MAX_DECISIONS],
        "decisions": _decisions(run),
        "writes": Write.objects.filter(run=run).prefetch_related("tries").order_by("intent_at")[:MAX_DECISIONS],
        "turns": Turn.objects.filter(run=run).order_by("number")[:MAX_TURNS],
        "observations": Observation.objects.filter(run=run).order_by("position")[:MAX_OBSERVATIONS],
        "timeline": _timeline(run),
    }


def _decisions(run: Run) -> QuerySet[Decision]:
    return Decision.objects.filter(approval__run_id=run.pk).order_by("id")[:MAX_DECISIONS]


def _timeline(run: Run) -> list[labels.EventRow]:
    newest = Event.objects.filter(run=run).order_by("-seq")[:MAX_EVENTS]
    return [labels.event_row(e.type, e.at, run.created_at, e.meta, e.payload) for e in reversed(newest)]
