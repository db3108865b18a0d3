"""Door: the queue and the review page, where a person decides. Reads runs; writes only through `approvals.queue`.

No form of raw fields, no bulk approval, no approval by GET: one POST with the hash of what was looked at.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import Case, DateTimeField, F, IntegerField, QuerySet, Value, When
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html

from agentsite import dbtime
from agentsite.refusals import Refusal
from agentsite.tenants.console import ReadOnly, TenantFilter, staff
from agentsite.text import visible
from approvals import labels, queue
from approvals.admin import screen
from approvals.models import Approval
from approvals.states import Approved

PENDING_FIRST = Case(When(status=Approved.PENDING, then=Value(0)), default=Value(1), output_field=IntegerField())
PENDING_EXPIRY = Case(When(status=Approved.PENDING, then=F("expires_at")), output_field=DateTimeField())
CHANGED = Refusal(409, "screen-changed", "The page changed while you looked.", "Read it again, then decide.")


class StatusFilter(admin.SimpleListFilter):
    """Statuses by their names for people; expired and rejected are two things."""

    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return list(labels.STATUS.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Approval]) -> QuerySet[Approval]:
        return queryset.filter(status=self.value()) if self.value() else queryset


@admin.register(Approval)
class ApprovalAdmin(ReadOnly):
    """What waits for a person, soonest expiry first; then what was decided, newest first."""

    list_display = ("order", "payment", "amount", "customer", "tenant", "why", "requested", "expires", "state")
    list_filter = (StatusFilter, TenantFilter)
    search_fields = ("^order_id", "^payment_id", "^customer_id", "^run_id", "^request_id")
    search_help_text = "Order, payment, customer, run or request id"

    def get_ordering(self, request: HttpRequest) -> Any:
        return (PENDING_FIRST.asc(), PENDING_EXPIRY.asc(), "-requested_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Approval]:
        return super().get_queryset(request).defer("args", "checks", "facts", "evidence", "messages_shown", "reason")

    def get_urls(self) -> list[URLPattern]:
        progress = path(
            "<path:object_id>/progress/",
            self.admin_site.admin_view(self.progress_view),
            name="approvals_approval_progress",
        )
        return [progress, *super().get_urls()]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The review page; a POST decides and leads back to it."""
        approval = self.seen_or_404(request, object_id)
        if request.method == "POST":
            return self._decide(request, approval)
        view = screen.build(approval, staff(request))
        context = {
            **self.admin_site.each_context(request), "opts": self.opts, "screen": view,
            "title": f"{view.action}, {view.amount}", "subtitle": None, "max_reason": queue.MAX_REASON,
        }  # fmt: skip
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/approvals/approval/review.html", context)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """An approval's history is its decisions, which its page shows."""
        approval = self.seen_or_404(request, object_id)
        return HttpResponseRedirect(_page(approval) + "#decisions")

    def progress_view(self, request: HttpRequest, object_id: str) -> JsonResponse:
        """What became of the run, for the page's small poll: `{headline, tone, rest, rows, timeline}`."""
        approval = self.seen_or_404(request, object_id)
        run = screen.run_of(approval)
        now = screen.progress(approval, run)
        return JsonResponse(
            {
                "headline": now.headline, "tone": now.tone, "rest": now.rest,
                "rows": [[pair.label, pair.value] for pair in now.rows],
                "timeline": [[e.offset, e.type, e.summary] for e in screen.timeline(run)],
            },
            headers={"Cache-Control": "no-store"},
        )  # fmt: skip

    def _decide(self, request: HttpRequest, approval: Approval) -> HttpResponse:
        try:
            _said(request, self._answer(request, approval))
        except Refusal as refusal:
            if refusal.status == 404:
                raise Http404("there is no such page") from None
            messages.error(request, f"{refusal.title} {refusal.detail}".strip())
        return HttpResponseRedirect(_page(approval))

    def _answer(self, request: HttpRequest, approval: Approval) -> queue.Decided:
        form, address = request.POST, request.META.get("REMOTE_ADDR", "")
        decision, shown = form.get("decision", ""), form.get("screen_hash", "")
        stale = shown and shown != screen.screen_hash(approval) and approval.status == Approved.PENDING
        if stale and decision == "approve":
            raise queue.refuse(
                approval.pk, staff(request), CHANGED, by=staff(request).get_username(), decision=decision,
                action_hash=form.get("action_hash", ""), address=address, screen_hash=shown,
            )  # fmt: skip
        return queue.decide(
            approval.pk, staff(request), decision, form.get("action_hash", ""), form.get("reason", ""),
            address=address, screen_hash=shown,
        )  # fmt: skip

    @admin.display(description="order", ordering="order_id")
    def order(self, row: Approval) -> str:
        return visible(row.order_id)

    @admin.display(description="payment", ordering="payment_id")
    def payment(self, row: Approval) -> str:
        return visible(row.payment_id)

    @admin.display(description="amount")
    def amount(self, row: Approval) -> str:
        return format_html('<span class="amount">{}</span>', labels.amount(row.amount_minor, row.currency))

    @admin.display(description="customer", ordering="customer_id")
    def customer(self, row: Approval) -> str:
        return visible(row.customer_id)

    @admin.display(description="tenant", ordering="tenant_id")
    def tenant(self, row: Approval) -> str:
        return visible(row.tenant_id)

    @admin.display(description="needs a person because")
    def why(self, row: Approval) -> str:
        return format_html('<span title="{}">{}</span>', visible(row.rule), labels.rule(row.rule, row.currency))

    @admin.display(description="requested", ordering="requested_at")
    def requested(self, row: Approval) -> str:
        ago = labels.duration((dbtime.now() - row.requested_at).total_seconds())
        return _time(row.requested_at, f"{ago} ago", "since")

    @admin.display(description="expires", ordering="expires_at")
    def expires(self, row: Approval) -> str:
        if row.status != Approved.PENDING:
            return "–"
        left = (row.expires_at - dbtime.now()).total_seconds()
        return _time(row.expires_at, f"in {labels.duration(left)}" if left > 0 else "expired", "until")

    @admin.display(description="status")
    def state(self, row: Approval) -> str:
        text = labels.status(row.status)
        return format_html('<span class="badge badge-{}">{}</span>', labels.tone(row.status), text)


def _time(at: Any, text: str, direction: str) -> str:
    return format_html(
        '<time datetime="{}" title="{}" data-{}>{}</time>', at.isoformat(), labels.moment(at), direction, text
    )


def _page(approval: Approval) -> str:
    return reverse("admin:approvals_approval_change", args=[approval.pk])


def _said(request: HttpRequest, done: queue.Decided) -> None:
    verb, when = queue.SPOKEN[done.decision], labels.moment(done.at)
    if done.kind == "same-again":
        messages.info(request, f"Already recorded: {done.by} {verb} this at {when}. Nothing was done twice.")
    elif done.remaining:
        messages.success(request, "Your approval is saved. A second, different person must approve before it runs.")
    else:
        messages.success(request, f"Saved: {done.by} {verb} this at {when}.")
