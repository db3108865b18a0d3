"""Door: runs to look at, each with everything that led to what it did, and the few acts that staff may do to one.

Rows are read-only: an act is a page of its own, a POST with a reason, that calls a keeper. Imports no control but
`runs.explain`, which builds a prompt again from the record and calls nothing.

Staff see the runs of their tenants; what customers, providers and models wrote is shown escaped and visible.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from agentsite.refusals import Refusal
from agentsite.tenants.console import ReadOnly, TenantFilter, staff
from agentsite.tenants.models import visible_tenants
from agentsite.text import visible
from approvals import labels
from runs import reply, store
from runs.admin import acts, bulk, files, lists, page, prompts, slo, tail, writes
from runs.admin import evaluations as evaluations
from runs.admin import shadow as shadow
from runs.admin import webhooks as webhooks
from runs.admin.columns import RunColumns
from runs.models import OPEN_WRITES, Run, Turn, Write
from runs.store.by_hand import MAX_NOTE, MAX_TEXT

FILTERS = (
    lists.NeedsFilter, lists.StatusFilter, lists.WaitingFilter, lists.OutcomeFilter, lists.ReasonFilter,
    lists.EndedFilter, lists.ThumbFilter, TenantFilter,
)  # fmt: skip
HEAVY = ("contract", "pending_action", "verification", "reply", "versions")


@admin.register(Run)
class RunAdmin(RunColumns, ReadOnly):
    """The list of runs, newest first, and one run's whole story on one page."""

    change_list_template = "admin/runs/change_list.html"
    list_display = ("request", "state", "order", "customer", "tenant_name", "ended_as", "created")
    list_filter = FILTERS
    search_fields = ("^request_id", "^customer_id", "^id", "^trace_id", "^orders__order_id")
    search_help_text = "Request, customer, order, run or trace id"
    ordering = ("-created_at", "-id")
    actions = ("retry_now",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Run]:
        return super().get_queryset(request).defer(*HEAVY).prefetch_related("orders")

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        chosen = request.GET.get("needs", "")
        tabs = lists.tabs(
            lists.RUN_VIEWS, "needs", chosen, lambda: super(RunAdmin, self).get_queryset(request), "All runs"
        )
        more = {"tabs": list(tabs), "view_says": lists.says(lists.RUN_VIEWS, chosen)}
        return super().changelist_view(request, {**more, **(extra_context or {})})

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """A whole id is found by an index; only what is none is looked for as the beginning of one."""
        exact = lists.exact(queryset, search_term, visible_tenants(staff(request)))
        return (exact, False) if exact is not None else super().get_search_results(request, queryset, search_term)

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return staff(request).has_perm(acts.PERMISSION)

    @admin.action(description="Retry now", permissions=["operate"])
    def retry_now(self, request: HttpRequest, queryset: QuerySet[Run]) -> HttpResponse | None:
        """Chosen runs are due at once, for one reason."""
        return bulk.retry_now(self, request, queryset)

    # --- one run ---

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        own = [
            path("slo/", view(partial(slo.page, self)), name="runs_run_slo"),
            path("slo/<slug:tenant_id>/objective/", view(partial(slo.objective, self)), name="runs_run_objective"),
            path("tail/", view(partial(tail.page, self)), name="runs_run_tail"),
            path("<path:object_id>/act/<slug:slug>/", view(self.act_view), name="runs_run_act"),
            path("<path:object_id>/prompt/<int:number>/", view(self.prompt_view), name="runs_run_prompt"),
            path("<path:object_id>/now/", view(self.now_view), name="runs_run_now"),
            path("<path:object_id>/file/<uuid:file_id>/", view(partial(files.download, self)), name="runs_run_file"),
        ]
        return [*own, *super().get_urls()]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """One run: where it stands, where its time went, requests, writes, decisions, model calls, events."""
        run = self.seen_or_404(request, object_id)
        context = {
            **self.admin_site.each_context(request), **self._whole(request, run), "opts": self.opts, "subtitle": None,
            "title": page.title(run),
        }  # fmt: skip
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/runs/run/story.html", context)

    def now_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The page's inside as it is now, for its small poll: `{stamp, rest, html}`; 204 where nothing changed."""
        run = self.seen_or_404(request, object_id)
        fresh = {"Cache-Control": "no-store"}
        if request.GET.get("seen") == page.stamp(run):
            return HttpResponse(status=204, headers=fresh)
        whole = self._whole(request, run)
        html = render_to_string("admin/runs/run/whole.html", whole, request=request)
        return JsonResponse({"stamp": whole["stamp"], "rest": not whole["lives"], "html": html}, headers=fresh)

    def _whole(self, request: HttpRequest, run: Run) -> dict[str, Any]:
        may = {"acts": self._acts(request, run), "to_settle": self._to_settle(request, run)}
        return {**page.build(run), **may}

    def _acts(self, request: HttpRequest, run: Run) -> list[acts.Act]:
        return acts.offered(run) if self.has_operate_permission(request) else []

    def _to_settle(self, request: HttpRequest, run: Run) -> list[Write]:
        may = all(staff(request).has_perm(name) for name in ("runs.view_write", writes.PERMISSION))
        return list(Write.objects.filter(lists.for_a_person(), run=run)) if may else []

    def prompt_view(self, request: HttpRequest, object_id: str, number: int) -> HttpResponse:
        """What a model was sent in one turn."""
        run = self.seen_or_404(request, object_id)
        turn = Turn.objects.filter(run=run, number=number).first()
        if turn is None:
            raise Http404("there is no such turn")
        context = {
            **self.admin_site.each_context(request), **prompts.build(run, turn), "opts": self.opts, "subtitle": None,
            "title": f"Prompt {number} of {visible(run.request_id)}",
        }  # fmt: skip
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/runs/run/prompt.html", context)

    def act_view(self, request: HttpRequest, object_id: str, slug: str) -> HttpResponse:
        """One act: what it would do, and why it is done. The GET changes nothing; the POST does it and leads back."""
        run, act = self.seen_or_404(request, object_id), acts.ACTS.get(slug)
        if act is None:
            raise Http404("there is no such page")
        if not self.has_operate_permission(request):
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
