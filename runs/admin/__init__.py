"""Door: runs to look at, each with everything that led to what it did, and the few acts that staff may do to one.

Rows are read-only: an act is a page of its own, a POST with a reason, that calls a keeper. Imports no control.

Staff see the runs of their tenants; what customers, providers and models wrote is shown escaped and visible.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html

from agentsite import dbtime
from agentsite.refusals import Refusal
from agentsite.tenants.console import ReadOnly, TenantFilter, staff
from agentsite.text import visible
from approvals import labels
from approvals.models import Approval, Decision
from runs import budgets, reply, store
from runs.admin import acts, writes
from runs.models import LIVE_VALUES, OPEN_WRITES, Draft, Event, Input, Observation, Run, Turn, Write
from runs.store.by_hand import MAX_NOTE, MAX_TEXT, RESOLVED

MAX_TURNS = 100
MAX_OBSERVATIONS = 300
MAX_DECISIONS = 200
MAX_EVENTS = 500
STUCK_AFTER = timedelta(minutes=1)


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


class NeedsFilter(admin.SimpleListFilter):
    """What waits for staff: the list a day begins with."""

    title = "needs"
    parameter_name = "needs"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("finish", "To finish by hand"), ("settle", "A write to settle"), ("ask", "Approval expired"),
                ("stuck", "Stuck")]  # fmt: skip

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        chosen = {"finish": _to_finish, "settle": _to_settle, "ask": _to_ask, "stuck": _stuck}.get(self.value() or "")
        return queryset.filter(chosen()) if chosen else queryset


def _to_finish() -> Q:
    handed_over = Q(status__in=("escalated", "failed")) & ~Q(outcome__in=(RESOLVED, "refunded"))
    return handed_over | Q(outcome="refund_failed") | Q(status="completed", outcome="partly_refunded")


def _to_settle() -> Q:
    return Q(pk__in=Write.objects.filter(writes.for_a_person()).values("run_id"))


def _to_ask() -> Q:
    return Q(status="approval_expired")


def _stuck() -> Q:
    """Due for a minute, and nobody works on it."""
    now = dbtime.now()
    return Q(status__in=LIVE_VALUES, due_at__lt=now - STUCK_AFTER) & (Q(lease_until=None) | Q(lease_until__lt=now))


@admin.register(Run)
class RunAdmin(ReadOnly):
    """The list of runs, newest first, and one run's whole story on one page."""

    list_display = ("request", "state", "order", "customer", "tenant_name", "ended_as", "created")
    list_filter = (NeedsFilter, StatusFilter, WaitingFilter, TenantFilter)
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
            "title": f"Run {visible(run.request_id)}", "acts": self._acts(request, run),
            "to_settle": Write.objects.filter(writes.for_a_person(), run=run) if _settles(request) else (),
        }  # fmt: skip
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/runs/run/story.html", context)

    def get_urls(self) -> list[URLPattern]:
        act = path("<path:object_id>/act/<slug:slug>/", self.admin_site.admin_view(self.act_view), name="runs_run_act")
        return [act, *super().get_urls()]

    def _acts(self, request: HttpRequest, run: Run) -> list[acts.Act]:
        return acts.offered(run) if staff(request).has_perm(acts.PERMISSION) else []

    def act_view(self, request: HttpRequest, object_id: str, slug: str) -> HttpResponse:
        """One act: what it would do, and why it is done. The GET changes nothing; the POST does it and leads back."""
        run, act = self.seen_or_404(request, object_id), acts.ACTS.get(slug)
        if act is None:
            raise Http404("there is no such page")
        if not staff(request).has_perm(acts.PERMISSION):
            raise PermissionDenied
        status = 200
        if request.method == "POST":
            refused = _perform(request, run, act)
            if refused is None:
                return HttpResponseRedirect(reverse("admin:runs_run_change", args=[run.pk]))
            status = refused.status
        context = {
            **self.admin_site.each_context(request), "opts": self.opts, "run": run, "act": act, "subtitle": None,
            "title": f"{act.button}: {visible(run.request_id)}", "offered": act.offered(run), "sent": request.POST,
            "told": reply.customer_message(store.story(str(run.pk))), "max_note": MAX_NOTE, "max_text": MAX_TEXT,
            "state": labels.run_status(run.status), "open_writes": Write.objects.filter(run=run, state__in=OPEN_WRITES),
        }  # fmt: skip
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/runs/run/act.html", context, status=status)

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


def _settles(request: HttpRequest) -> bool:
    return staff(request).has_perm("runs.view_write") and staff(request).has_perm(writes.PERMISSION)


def _perform(request: HttpRequest, run: Run, act: acts.Act) -> Refusal | None:
    sent = request.POST
    form = acts.Form(
        reason=sent.get("reason", ""), note=sent.get("note", ""), text=sent.get("text", ""),
        seen_seq=writes.number(sent.get("seen_seq", "")),
    )  # fmt: skip
    try:
        messages.success(request, acts.perform(act, run, form, staff(request).get_username()))
    except Refusal as refusal:
        messages.error(request, f"{refusal.title} {refusal.detail}".strip())
        return refusal
    return None


def _story(run: Run) -> dict[str, Any]:
    """Everything of a run that its page shows; each list has a limit."""
    return {
        "run": run,
        "orders": [o.order_id for o in run.orders.all()[:20]],
        "goal": str(run.contract.get("goal", "")),
        "cost": "{amount} {currency}".format(**budgets.cost(run.contract, run.cost_micros)) if run.cost_micros else "",
        "inputs": Input.objects.filter(run=run).order_by("seq")[:MAX_DECISIONS],
        "approvals": Approval.objects.filter(run_id=run.pk).order_by("requested_at")[:MAX_DECISIONS],
        "decisions": _decisions(run),
        "writes": Write.objects.filter(run=run).prefetch_related("tries").order_by("intent_at")[:MAX_DECISIONS],
        "turns": Turn.objects.filter(run=run).order_by("number")[:MAX_TURNS],
        # One that a dead worker left behind is older than whatever the run did since.
        "draft": Draft.objects.filter(run=run, at__gt=run.updated_at).first() if run.status in LIVE_VALUES else None,
        "observations": Observation.objects.filter(run=run).order_by("position")[:MAX_OBSERVATIONS],
        "timeline": _timeline(run), "told": reply.customer_message(store.story(str(run.pk))),
    }  # fmt: skip


def _decisions(run: Run) -> QuerySet[Decision]:
    return Decision.objects.filter(approval__run_id=run.pk).order_by("id")[:MAX_DECISIONS]


def _timeline(run: Run) -> list[labels.EventRow]:
    newest = Event.objects.filter(run=run).order_by("-seq")[:MAX_EVENTS]
    return [labels.event_row(e.type, e.at, run.created_at, e.meta, e.payload) for e in reversed(newest)]
