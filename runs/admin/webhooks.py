"""Door: webhooks to look at, those that could not be delivered among them, each with its tries, and to send again.

Writes only through `runs.store.parcels`; a maintenance worker sends. An address is shown without its query, where
clients put secrets.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from django.contrib import admin, messages
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html

from agentsite import env
from agentsite.refusals import Refusal
from agentsite.tenants.console import ReadOnly, TenantFilter, staff
from agentsite.text import visible
from approvals import labels
from runs.admin.acts import PERMISSION
from runs.models import Delivery, Webhook
from runs.store import parcels

MAX_TRIES_SHOWN = 200
STATES = {"due": "Being sent", "delivered": "Delivered", "dead": "Given up"}
TONES = {"due": "wait", "delivered": "good", "dead": "bad"}
ERRORS = {
    "under_way": "under way, or its worker died", "private_address": "its name leads to no public address",
    "address_refused": "its address may not be called", "no_connection": "no connection", "too_slow": "too slow",
    "cut_off": "cut off before an answer", "redirected": "a redirect, not followed", "refused": "not taken",
    "key_missing": "the variable with the signing key is empty", "key_malformed": "the signing key is malformed",
    "profile_invalid": "the tenant's profile cannot be read", "erased": "what it said was erased",
}  # fmt: skip


class StateFilter(admin.SimpleListFilter):
    """States by their names for people."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return list(STATES.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Webhook]) -> QuerySet[Webhook]:
        return queryset.filter(state=self.value()) if self.value() in STATES else queryset


def _last(column: str) -> Subquery:
    return Subquery(Delivery.objects.filter(webhook=OuterRef("pk")).order_by("-number").values(column)[:1])


@admin.register(Webhook)
class WebhookAdmin(ReadOnly):
    """The delivery log, newest first."""

    list_display = ("told", "state_named", "request", "host_shown", "tenant_name", "tries", "answer", "created")
    list_filter = (StateFilter, TenantFilter)
    list_select_related = ("run",)
    search_fields = ("^id", "^run__request_id", "^host")
    search_help_text = "Webhook or request id, or host"
    ordering = ("-created_at", "-id")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request).only(
            "type", "state", "host", "tenant_id", "tries", "created_at", "run__request_id"
        )  # fmt: skip
        annotated: QuerySet[Any] = rows.annotate(last_status=_last("status"), last_error=_last("error"))
        return annotated

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """One webhook: what it says, every try. A POST sends it again and leads back."""
        row = self.seen_or_404(request, object_id)
        status = 200
        if request.method == "POST":
            refused = self._again(request, row)
            if refused is None:
                return HttpResponseRedirect(reverse("admin:runs_webhook_change", args=[quote(row.pk)]))
            status = refused.status
        context = {
            **self.admin_site.each_context(request), **_page(row), "opts": self.opts, "subtitle": None,
            "title": f"Webhook {visible(row.type)}", "may_send": staff(request).has_perm(PERMISSION) and bool(row.body),
        }  # fmt: skip
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/runs/webhook/delivery.html", context, status=status)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """A webhook's history is its tries, which its page shows."""
        row = self.seen_or_404(request, object_id)
        return HttpResponseRedirect(reverse("admin:runs_webhook_change", args=[quote(row.pk)]) + "#tries")

    def _again(self, request: HttpRequest, row: Webhook) -> Refusal | None:
        if not staff(request).has_perm(PERMISSION):
            raise PermissionDenied
        try:
            parcels.again(row.pk, by=staff(request).get_username())
        except Refusal as refusal:
            messages.error(request, f"{refusal.title} {refusal.detail}".strip())
            return refusal
        messages.success(request, "A worker sends it now, under the same id; reload this page in a moment.")
        return None

    @admin.display(description="tells of", ordering="type")
    def told(self, row: Webhook) -> str:
        return visible(row.type)

    @admin.display(description="state", ordering="state")
    def state_named(self, row: Webhook) -> str:
        return format_html('<span class="badge badge-{}">{}</span>', TONES[row.state], STATES[row.state])

    @admin.display(description="request")
    def request(self, row: Webhook) -> str:
        return visible(row.run.request_id)

    @admin.display(description="host", ordering="host")
    def host_shown(self, row: Webhook) -> str:
        return visible(row.host)

    @admin.display(description="tenant", ordering="tenant_id")
    def tenant_name(self, row: Webhook) -> str:
        return visible(row.tenant_id)

    @admin.display(description="last try")
    def answer(self, row: Any) -> str:
        return answered(row.last_status, row.last_error)

    @admin.display(description="created", ordering="created_at")
    def created(self, row: Webhook) -> str:
        at = row.created_at
        return format_html('<time datetime="{}">{}</time>', at.isoformat(), labels.moment(at))


def answered(status: int | None, error: str | None) -> str:
    """What came of a try, in words; a dash where there was none."""
    if error is None:
        return "–"
    words = ERRORS.get(error, labels.spoken(error)) if error else "taken"
    return f"{status}, {words}" if status is not None else words


def _page(row: Webhook) -> dict[str, Any]:
    tries = list(Delivery.objects.filter(webhook=row).order_by("-number")[:MAX_TRIES_SHOWN])
    return {
        "webhook": row, "run": row.run, "state_said": STATES[row.state], "tone": TONES[row.state],
        "address": _address(row.url), "most": env.read().WEBHOOK_TRIES, "document": _document(row.body),
        "tries": [{"row": one, "said": answered(one.status, one.error)} for one in tries],
    }  # fmt: skip


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "no URL"
    query = "?…" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{query}"


def _document(body: str) -> Any:
    try:
        return json.loads(body) if body else None
    except ValueError:
        return body
