"""Door: writes to look at, open ones first of all, and the page on which a person settles one that nobody can tell.

Writes only through `runs.store`; a late look is made by a worker that was nudged.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html

from agentsite import dbtime, money, queues
from agentsite.refusals import Refusal
from agentsite.tenants.console import ReadOnly, TenantFilter, staff
from agentsite.text import visible
from approvals import labels
from runs import store
from runs.admin import bulk, lists
from runs.backends import backend_of
from runs.models import OPEN_WRITES, WRITE_STATES, Event, Write
from runs.store.by_hand import MAX_SEEN, may_settle, quiet_until

PERMISSION = "runs.settle_write"
LOOKS = ("write.looked", "write.unknown", "write.reconciled", "write.mismatch")
MAX_LOOKS = 100
REASONS = {
    "seen_at_provider": "Seen in the provider's own console",
    "provider_said": "The provider told us",
    "bank_record": "Seen in a bank's or a ledger's record",
    "other": "Another reason, written below",
}


class StateFilter(admin.SimpleListFilter):
    """States by their names for people, and the saved views."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [*((v.slug, v.name) for v in lists.WRITE_VIEWS), *((s, labels.spoken(s)) for s in WRITE_STATES)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Write]) -> QuerySet[Write]:
        chosen = self.value()
        view = next((v for v in lists.WRITE_VIEWS if v.slug == chosen), None)
        if view is not None:
            return queryset.filter(view.holds())
        return queryset.filter(state=chosen) if chosen else queryset


@admin.register(Write)
class WriteAdmin(ReadOnly):
    """Side effects, newest first, each with what is known of it."""

    change_list_template = "admin/runs/change_list.html"
    actions = ("look_again",)
    list_display = ("amount", "state_named", "order", "payment", "refund", "request", "tenant_name", "intended")
    list_filter = (StateFilter, TenantFilter)
    list_select_related = ("run",)
    search_fields = ("^key", "^order_id", "^payment_id", "^refund_id", "^run__request_id")
    search_help_text = "Key, order, payment, refund or request id"
    ordering = ("-intent_at", "key")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Write]:
        return super().get_queryset(request).defer("args", "body", "result")

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        chosen = request.GET.get("state", "")
        tabs = lists.tabs(lists.WRITE_VIEWS, "state", chosen, lambda: self.get_queryset(request), "All writes")
        more = {"tabs": list(tabs), "view_says": lists.says(lists.WRITE_VIEWS, chosen)}
        return super().changelist_view(request, {**more, **(extra_context or {})})

    def has_settle_permission(self, request: HttpRequest) -> bool:
        return staff(request).has_perm(PERMISSION)

    @admin.action(description="Look again now", permissions=["settle"])
    def look_again(self, request: HttpRequest, queryset: QuerySet[Write]) -> None:
        bulk.look_again(request, queryset, look)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """One write: what was asked, its attempts, the last look. A POST looks again or settles, and leads back."""
        write = self.seen_or_404(request, object_id)
        status = 200
        if request.method == "POST":
            refused = self._act(request, write)
            if refused is None:
                return HttpResponseRedirect(reverse("admin:runs_write_change", args=[quote(write.pk)]))
            status = refused.status
        may = staff(request).has_perm(PERMISSION) and may_settle(write.state, write.run.status)
        context = {
            **self.admin_site.each_context(request), **page(write), "opts": self.opts, "may_settle": may,
            "title": f"Write {labels.amount(write.amount_minor, write.currency)}", "subtitle": None,
            "reasons": REASONS, "max_seen": MAX_SEEN, "sent": request.POST,
        }  # fmt: skip
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/runs/write/settle.html", context, status=status)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """A write's history is its run's events."""
        write = self.seen_or_404(request, object_id)
        return HttpResponseRedirect(reverse("admin:runs_run_change", args=[write.run_id]) + "#timeline")

    def _act(self, request: HttpRequest, write: Write) -> Refusal | None:
        if not staff(request).has_perm(PERMISSION):
            raise PermissionDenied
        by = staff(request).get_username()
        try:
            said = look(write, by) if request.POST.get("do") == "look" else settle(write, request.POST, by)
            messages.success(request, said)
        except Refusal as refusal:
            messages.error(request, f"{refusal.title} {refusal.detail}".strip())
            return refusal
        return None

    @admin.display(description="amount")
    def amount(self, row: Write) -> str:
        return format_html('<span class="amount">{}</span>', labels.amount(row.amount_minor, row.currency))

    @admin.display(description="state", ordering="state")
    def state_named(self, row: Write) -> str:
        text = labels.spoken(row.state)
        return format_html('<span class="badge badge-{}">{}</span>', labels.tone(row.state), text)

    @admin.display(description="order", ordering="order_id")
    def order(self, row: Write) -> str:
        return visible(row.order_id)

    @admin.display(description="payment", ordering="payment_id")
    def payment(self, row: Write) -> str:
        return visible(row.payment_id)

    @admin.display(description="refund")
    def refund(self, row: Write) -> str:
        return visible(row.refund_id or "–")

    @admin.display(description="request")
    def request(self, row: Write) -> str:
        return visible(row.run.request_id)

    @admin.display(description="tenant", ordering="tenant_id")
    def tenant_name(self, row: Write) -> str:
        return visible(row.tenant_id)

    @admin.display(description="intended", ordering="intent_at")
    def intended(self, row: Write) -> str:
        at = row.intent_at
        return format_html('<time datetime="{}">{}</time>', at.isoformat(), labels.moment(at))


def look(write: Write, by: str) -> str:
    """Have a worker look at the business system now. Raises Refusal."""
    if store.look_now(write.pk, by=by):
        queues.nudge_settle(write.pk)
        return "A worker looks now; reload this page in a moment."
    if not store.hurry(str(write.run_id), by=by, reason="look_again", note=""):
        raise Refusal(409, "nothing-to-look-for", "This write is settled, or a worker looks at it right now.")
    queues.nudge(str(write.run_id), write.run.status)
    return "Its run looks now; reload this page in a moment."


def settle(write: Write, form: Any, by: str) -> str:
    """Settle a write by what a person saw. Raises Refusal."""
    found, reason, seen = (form.get(name, "") for name in ("found", "reason", "seen"))
    if found not in ("made", "not_made"):
        raise Refusal(400, "found-missing", "Say whether the refund was made.")
    if reason not in REASONS:
        raise Refusal(400, "reason-missing", "Choose a reason.")
    if len(seen) > MAX_SEEN:
        raise Refusal(400, "too-long", "The text is too long.", f"{MAX_SEEN} characters at most.")
    made = found == "made"
    status = store.settle_by_hand(
        store.Settlement(
            key=write.pk, by=by, reason=reason, seen=seen, seen_seq=number(form.get("seen_seq", "")), made=made,
            refund_id=form.get("refund_id", "").strip() if made else "", quiet_s=quiet_s(write),
            amount=_amount(form.get("amount", ""), write.currency) if made else None,
        )
    )  # fmt: skip
    queues.nudge(str(write.run_id), status)
    return "Settled: the refund was made." if made else "Settled: the refund was not made."


def number(text: str) -> int:
    """A sequence number of a form; -1, which none is, where it is no number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1


def _amount(text: str, currency: str) -> money.Money:
    try:
        return money.parse({"amount": text.strip(), "currency": currency})
    except money.BadMoney:
        raise Refusal(400, "amount-wrong", f"The amount is a decimal number in {visible(currency)}.") from None


def quiet_s(write: Write) -> float:
    """How long the business system may still take after an attempt's end, by its own word; 0 where it gives none."""
    return backend_of(write.tenant_id, write.run.agent).settle_s or 0.0


def page(write: Write) -> dict[str, Any]:
    """Everything the page of a write shows."""
    asked = money.Money(minor=write.amount_minor, currency=write.currency)
    return {
        "write": write, "run": write.run, "tries": list(write.tries.order_by("number")), "look": last_look(write),
        "is_open": write.state in OPEN_WRITES, "asked": asked.wire()["amount"], "still_arrives": still_arrives(write),
        "state_said": labels.WRITE.get(write.state, labels.spoken(write.state)),
    }  # fmt: skip


def still_arrives(write: Write) -> datetime | None:
    """Until when something that was sent may still arrive; None where that time is over."""
    until = quiet_until(write, quiet_s(write))
    return until if until is not None and until > dbtime.now() else None


def last_look(write: Write) -> dict[str, Any] | None:
    """What the newest look at the business system found, and when: `{at, found, refunds}`."""
    newest = Event.objects.filter(run_id=write.run_id, type__in=LOOKS).order_by("-seq")[:MAX_LOOKS]
    for event in newest:
        if event.meta.get("key") == write.pk:
            return {"at": event.at, "found": _found(event), "refunds": _listed(event)}
    return None


def _found(event: Event) -> str:
    meta = event.meta
    return str(meta.get("found") or meta.get("error") or meta.get("state") or event.type)


def _listed(event: Event) -> list[dict[str, Any]] | None:
    """The refunds as they were listed; None where that look kept none, or was not answered."""
    rows = (event.payload or {}).get("refunds")
    return rows if isinstance(rows, list) else None
