"""The queue's filters, each a parameter of the URL; what they offer tells nothing of other tenants. Writes nothing."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from approvals import holds, labels
from approvals.admin import views
from approvals.models import Approval
from approvals.states import Approved

# By kind: each profile has thresholds of its own, and so the gate's rules have names without number.
WHY: dict[str, tuple[str, Q]] = {
    "threshold": ("Above a threshold", Q(rule__contains="_above_")),
    "words": ("The customer's words", Q(rule="sensitive_words_require_approval")),
    "customer_day": ("The customer's day", Q(rule="customer_day_total_requires_approval")),
    "tenant_hour": ("The tenant's hour", Q(rule="tenant_hour_total_requires_approval")),
}
WAITS = Q(status=Approved.PENDING.value)
MINE = {
    "claimed": "I am looking", "assigned": "Assigned to me", "snoozed": "I put off", "free": "Nobody is looking",
}  # fmt: skip


class Chosen(admin.SimpleListFilter):
    """A filter that takes part whatever it offers."""

    def has_output(self) -> bool:
        return True

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return []


class ViewFilter(Chosen):
    """The saved view; always one of them. Shown as tabs."""

    title = "view"
    parameter_name = "view"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Approval]) -> QuerySet[Approval]:
        return queryset.filter(views.chosen(request).rows(views.seen(request)))


class StatusFilter(Chosen):
    """Statuses by their names for people; expired and rejected are two things."""

    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return list(labels.STATUS.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Approval]) -> QuerySet[Approval]:
        return queryset.filter(status=self.value()) if self.value() else queryset


class WhyFilter(Chosen):
    """Why a person is needed."""

    title = "needs a person because of"
    parameter_name = "why"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(slug, name) for slug, (name, _) in WHY.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Approval]) -> QuerySet[Approval]:
        if not self.value():
            return queryset
        _, rules = WHY.get(self.value() or "", ("", views.NOBODY))
        return queryset.filter(rules)


class CurrencyFilter(Chosen):
    """The amount's currency, typed: a list of those in use would cost a look at every row."""

    title = "currency"
    parameter_name = "currency"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Approval]) -> QuerySet[Approval]:
        code = (self.value() or "").strip().upper()
        return queryset.filter(currency=code[:3] if len(code) == 3 else "?") if code else queryset


class MineFilter(Chosen):
    """Who is looking, for whom it is, who put it off."""

    title = "looked at by"
    parameter_name = "mine"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return list(MINE.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Approval]) -> QuerySet[Approval]:
        if not self.value():
            return queryset
        return queryset.filter(_held(self.value() or "", views.seen(request)))


def _held(which: str, at: views.Seen) -> Q:
    if which == "claimed":
        return Q(pk__in=holds.claims(at.user, at.now)) & WAITS
    if which == "assigned":
        return Q(pk__in=holds.assigned(at.user))
    if which == "snoozed":
        return Q(pk__in=at.snoozed) & WAITS
    return ~holds.claimed(at.now) & WAITS if which == "free" else views.NOBODY
