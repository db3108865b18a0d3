"""Decisions as a CSV file: what a view holds, of one's own tenants, no cell a formula. Writes nothing.

At most 5,000 decisions, the newest; the file's name says so where there are more.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse

from agentsite import clock, telemetry
from agentsite.money import BadMoney, Money
from agentsite.tenants.console import ReadOnly, staff
from agentsite.text import cell, storable
from approvals.admin import views
from approvals.models import Approval, Decision

MOST = 5000
COLUMNS = (
    "decided_at", "decided_by", "decision", "counts", "refused_as", "reason_code", "reason", "attested", "from_address",
    "approval_id", "status", "tenant_id", "request_id", "run_id", "order_id", "payment_id", "customer_id", "tool",
    "amount", "currency", "rule", "policy", "action_hash", "screen_hash",
)  # fmt: skip
WITH = (
    "status", "tenant_id", "request_id", "run_id", "order_id", "payment_id", "customer_id", "tool", "amount_minor",
    "currency", "rule", "policy",
)  # fmt: skip
BOM = "\ufeff"  # without it one common program reads UTF-8 as something else


class Exports(ReadOnly):
    """The file's address: that of the list with `export/` behind it, and the list's own parameters."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.export_view)
        return [path("export/", view, name="approvals_approval_export"), *super().get_urls()]

    def export_view(self, request: HttpRequest) -> HttpResponse:
        """Every decision on the approvals of a view, refused attempts included, the newest first."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            rows = self.get_changelist_instance(request).get_queryset(request)
        except IncorrectLookupParameters:
            return HttpResponseRedirect(reverse("admin:approvals_approval_changelist") + "?e=1")
        found = list(_decisions(rows.order_by().values("pk"))[: MOST + 1])
        telemetry.log("decisions.exported", by=staff(request).get_username(), rows=min(len(found), MOST))
        name = f"decisions-{views.seen(request).now:%Y-%m-%d}{f'-newest-{MOST}' if len(found) > MOST else ''}.csv"
        return HttpResponse(
            BOM + text(found[:MOST]), content_type="text/csv; charset=utf-8",
            headers={"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"},
        )  # fmt: skip


def _decisions(approvals: QuerySet[Approval, Any]) -> QuerySet[Decision]:
    with_ = [f"approval__{name}" for name in WITH]
    rows = Decision.objects.filter(approval_id__in=approvals).select_related("approval").order_by("-id")
    return rows.only(*[f.attname for f in Decision._meta.concrete_fields], *with_)


def text(decisions: Iterable[Decision]) -> str:
    """The file's text, every cell in quotes and none of them a formula."""
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    writer.writerow(COLUMNS)
    for decision in decisions:
        writer.writerow([cell(storable(value)) for value in _cells(decision, decision.approval)])
    return out.getvalue()


def _cells(said: Decision, asked: Approval) -> Iterator[str]:
    yield from (clock.rfc3339(said.at), said.by, said.decision, "yes" if said.counted else "no", said.refusal)
    yield from (said.reason_code, said.reason, said.attested, said.address)
    yield from (said.approval_id, asked.status, asked.tenant_id, asked.request_id, str(asked.run_id), asked.order_id)
    yield from (asked.payment_id, asked.customer_id, asked.tool, _amount(asked), asked.currency)
    yield from (asked.rule, asked.policy, said.action_hash, said.screen_hash)


def _amount(asked: Approval) -> str:
    """A plain number such as `2000.00`; minor units where the currency is none of ours."""
    try:
        return Money(minor=asked.amount_minor, currency=asked.currency).amount()
    except BadMoney:
        return f"{asked.amount_minor} minor units"
