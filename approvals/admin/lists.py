"""The list of approvals: saved views as tabs, filters and a search in the URL, clocks by the server. Writes nothing.

At most 1,000 rows of a view can be paged through and counted: what lies behind is found by narrowing it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, cast

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html

from agentsite.tenants.console import ReadOnly, TenantFilter, staff, tenants_of
from agentsite.text import visible
from approvals import labels, permits, reasons
from approvals.admin import filters, finding, views
from approvals.admin.holding import cell
from approvals.models import Approval

MAX_ROWS = 1000
MAX_COUNTED = 99
HEAVY = ("args", "checks", "facts", "evidence", "messages_shown", "reread", "reason")


@dataclass(frozen=True, kw_only=True)
class Tab:
    title: str
    url: str
    count: str
    selected: bool


class Bounded(Paginator):  # type: ignore[type-arg]
    """Pages through at most MAX_ROWS rows: counting a hundred thousand takes longer than showing fifty."""

    @cached_property
    def count(self) -> int:
        return min(self.found, MAX_ROWS)

    @cached_property
    def found(self) -> int:
        rows = cast("QuerySet[Approval]", self.object_list)
        return rows[: MAX_ROWS + 1].count()

    @property
    def more(self) -> bool:
        return self.found > MAX_ROWS


class Listed(ChangeList):
    """A page of rows that know for whom and when they are shown; what no list shows is not read."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        return super().get_queryset(request, exclude_parameters).defer(*HEAVY)

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        at = views.seen(request)
        self.result_list: Any = list(self.result_list)
        for row in self.result_list:
            vars(row)["at"] = at


class Queue(ReadOnly):
    """The list of approvals. Rows of other tenants exist in no view, filter, search or count."""

    change_list_template = "admin/approvals/approval/queue.html"
    list_filter = (
        filters.ViewFilter, filters.StatusFilter, TenantFilter, filters.WhyFilter, filters.CurrencyFilter,
        filters.MineFilter,
    )  # fmt: skip
    list_select_related = ("claimed_by", "assigned_to")
    search_fields = finding.IDS
    search_help_text = "Order, payment, customer, run or request id, whole or its beginning"
    sortable_by = ()
    paginator = Bounded
    list_max_show_all = 0

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return Listed

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return views.chosen(request).order

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        columns = views.chosen(request).columns
        tenants = tenants_of(request)
        return columns if tenants is not None and len(tenants) == 1 else (*columns, "tenant")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Approval], search_term: str
    ) -> tuple[QuerySet[Approval], bool]:
        if not search_term.strip():
            return queryset, False
        tenants = tenants_of(request)
        scope = Q() if tenants is None else Q(tenant_id__in=tenants)
        return queryset.filter(pk__in=finding.matching(scope, search_term)), False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        at, view = views.seen(request), views.chosen(request)
        more = {
            "title": "Approvals", "view": view, "now": at.now, "tabs": self._tabs(request), "max_rows": MAX_ROWS,
            "put_off": self._put_off(request),
        }  # fmt: skip
        return super().changelist_view(request, {**more, **(extra_context or {})})

    def _tabs(self, request: HttpRequest) -> list[Tab]:
        kept, open_view = request.GET.copy(), views.chosen(request)
        for name in ("view", "status", "p", "e"):
            kept.pop(name, None)
        tabs = []
        for view in views.VIEWS.values():
            address = kept.copy()
            address["view"] = view.slug
            count = self._count(request, view) if view.counted else ""
            tabs.append(Tab(title=view.title, url=f"?{address.urlencode()}", count=count, selected=view is open_view))
        return tabs

    def _put_off(self, request: HttpRequest) -> int:
        mine = views.seen(request).snoozed if staff(request).has_perm(permits.DECIDE) else []
        return self.get_queryset(request).filter(pk__in=mine).count() if mine else 0

    def _count(self, request: HttpRequest, view: views.View) -> str:
        """How many, as text; `99+` for what takes too long to count. In the view's order, which has its index."""
        rows = self.get_queryset(request).filter(view.rows(views.seen(request))).order_by(*view.order)
        found = rows[: MAX_COUNTED + 1].count()
        return f"{MAX_COUNTED}+" if found > MAX_COUNTED else str(found)

    @admin.display(description="order")
    def order(self, row: Approval) -> str:
        return visible(row.order_id)

    @admin.display(description="payment")
    def payment(self, row: Approval) -> str:
        return visible(row.payment_id)

    @admin.display(description="amount")
    def amount(self, row: Approval) -> str:
        return format_html('<span class="amount">{}</span>', labels.amount(row.amount_minor, row.currency))

    @admin.display(description="customer")
    def customer(self, row: Approval) -> str:
        return visible(row.customer_id)

    @admin.display(description="tenant")
    def tenant(self, row: Approval) -> str:
        return visible(row.tenant_id)

    @admin.display(description="needs a person because")
    def why(self, row: Approval) -> str:
        said = labels.rule(row.rule, row.currency)
        people = format_html(' <span class="badge badge-wait">{}</span>', "Two people") if row.required > 1 else ""
        return format_html('<span title="{}">{}</span>{}', visible(row.rule), said, people)

    @admin.display(description="requested")
    def requested(self, row: Approval) -> str:
        ago = labels.duration((_at(row).now - row.requested_at).total_seconds())
        return _time(row.requested_at, f"{ago} ago", "since")

    @admin.display(description="expires")
    def expires(self, row: Approval) -> str:
        left = row.expires_at - _at(row).now
        text = f"in {labels.duration(left.total_seconds())}" if left.total_seconds() > 0 else "time is up"
        return _time(row.expires_at, text, "until", soon=left < views.SOON)

    @admin.display(description="looked at by")
    def held(self, row: Approval) -> str:
        at = _at(row)
        return cell(row, at.user, at.now)

    @admin.display(description="status")
    def state(self, row: Approval) -> str:
        status = "expired" if views.late(row, _at(row).now) else row.status
        return format_html('<span class="badge badge-{}">{}</span>', labels.tone(status), labels.status(status))

    @admin.display(description="decided")
    def decided(self, row: Approval) -> str:
        if row.decided_at is None:
            return "–"
        at = row.decided_at
        ago = labels.duration((_at(row).now - at).total_seconds())
        return format_html("{}<br>{}", visible(row.decided_by or ""), _time(at, f"{ago} ago", "since"))

    @admin.display(description="reason")
    def said(self, row: Approval) -> str:
        known = reasons.KNOWN.get(row.reason_code)
        return known.label if known else "–"


def _at(row: Approval) -> views.Seen:
    return cast("views.Seen", vars(row)["at"])


def _time(at: datetime, text: str, direction: str, *, soon: bool = False) -> str:
    """A clock that the server made and a script lets tick."""
    return format_html(
        '<time datetime="{}" title="{}" data-{}{}>{}</time>', at.isoformat(), labels.moment(at), direction,
        format_html(' class="{}"', "soon") if soon else "", text,
    )  # fmt: skip
