"""Filters and saved views of the console's lists of runs and writes. Part of a door: reads rows, writes none.

A count is never taken beyond MOST: a tab says `1,000+` rather than making everybody wait for the exact number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from operator import or_
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import BooleanField, Q, QuerySet
from django.db.models.expressions import RawSQL
from django.http import HttpRequest

from agentsite import dbtime
from agentsite.tenants.models import Tenant
from agentsite.text import visible
from approvals import labels
from runs.models import LIVE_VALUES, OPEN_WRITES, WAITS, Run, RunOrder, Write
from runs.store.by_hand import REOPENED, RESOLVED

MOST = 1_000
MOST_FOUND = 200
STUCK_AFTER = timedelta(minutes=1)
ENDED = ("completed", "escalated", "cancelled", "failed")
OUR_FAULT = ("worker_crash_loop", "schema_unknown")
"""Reasons that say something of us and nothing of the request."""
OUTCOMES = (
    "refunded", "partly_refunded", "no_refund_due", "answered", "rejected", "handed_to_staff", "resolved_by_staff",
    "refund_failed", "cancelled",
)  # fmt: skip
WINDOWS = {"1": "24 hours", "7": "7 days", "30": "30 days"}


def _among(column: str, values: Iterable[str]) -> Q:
    """A column's value is one of ours, written into the statement: SQLite finds no partial index by a parameter."""
    listed = ", ".join(f"'{value}'" for value in values)
    return Q(RawSQL(f"{column} IN ({listed})", (), output_field=BooleanField()))  # noqa: S611


OVER = Q(completed_at__isnull=False)
LIVES = Q(completed_at__isnull=True) & _among('"runs_run"."status"', LIVE_VALUES)
OPEN = _among('"runs_write"."state"', OPEN_WRITES)


def to_finish() -> tuple[Q, ...]:
    """Ended with a person, or with a refund that failed afterwards, and nobody finished it yet."""
    done = Q(outcome__in=(RESOLVED, "refunded"))
    reopened = Q(ended_as__in=("completed", "cancelled"), outcome__in=REOPENED)
    return OVER & Q(ended_as__in=("escalated", "failed")) & ~done, OVER & reopened


def to_settle() -> tuple[Q, ...]:
    """Their runs, looked up first: there are few, and the list is made of runs."""
    return (Q(pk__in=list(Write.objects.filter(for_a_person()).values_list("run_id", flat=True)[: MOST + 1])),)


def to_ask() -> tuple[Q, ...]:
    return (LIVES & Q(status="approval_expired"),)


def stuck() -> tuple[Q, ...]:
    """Due for a minute, and nobody works on it."""
    now = dbtime.now()
    free = Q(lease_until=None) | Q(lease_until__lt=now)
    return (LIVES & Q(due_at__lt=now - STUCK_AFTER) & free,)


def dead() -> tuple[Q, ...]:
    """Runs that ended by a fault of ours, and nobody finished yet."""
    over = OVER & ~Q(outcome=RESOLVED)
    return over & Q(ended_as="failed"), over & Q(ended_as="escalated", reason__in=OUR_FAULT)


def for_a_person() -> Q:
    """Open writes that their run no longer settles, or that nobody can tell."""
    return OPEN & (Q(state="unknown") | ~Q(run__status__in=LIVE_VALUES))


def ended_since(days: int) -> Q:
    return Q(completed_at__gte=dbtime.now() - timedelta(days=days))


@dataclass(frozen=True, kw_only=True)
class View:
    """A saved view: its tab, what it holds, and what to do about it.

    `parts` share no row and are counted one by one: an index serves each of them, and none serves them all.
    """

    slug: str
    name: str
    parts: Callable[[], tuple[Q, ...]]
    says: str

    def holds(self) -> Q:
        return reduce(or_, self.parts())

    def count(self, rows: QuerySet[Any]) -> int:
        """How many of these rows it holds, MOST + 1 standing for more."""
        return min(MOST + 1, sum(capped(rows.filter(part)) for part in self.parts()))


RUN_VIEWS = (
    View(slug="finish", name="To finish by hand", parts=to_finish,
         says="Handed to a person, or a refund failed afterwards. Open one and finish it by hand."),
    View(slug="ask", name="Approval expired", parts=to_ask,
         says="Nobody decided in time; that is no rejection. Open one and ask again, take it over or cancel it."),
    View(slug="settle", name="Unknown writes", parts=to_settle,
         says="Nobody can tell whether the refund was made. Open one and settle its write."),
    View(slug="stuck", name="Stuck", parts=stuck,
         says="Due for over a minute, and no worker has it. Choose some and retry them now."),
    View(slug="dead", name="Dead letters", parts=dead,
         says="Ended by a fault of ours: a crash loop, or a record that no code could read."),
)  # fmt: skip
WRITE_VIEWS = (
    View(slug="settle", name="For a person", parts=lambda: (for_a_person(),),
         says="Nobody can tell whether the refund was made, or its run is over. Look again, or settle it."),
    View(slug="open", name="Open", parts=lambda: (OPEN,),
         says="Refunds whose end is not known yet."),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Tab:
    """A saved view as it stands above a list. `count` is empty where nobody counted."""

    name: str
    query: str
    count: str
    chosen: bool
    urgent: bool


def tabs(
    views: tuple[View, ...], parameter: str, chosen: str, rows: Callable[[], QuerySet[Any]], everything: str
) -> Iterator[Tab]:  # fmt: skip
    """The tabs of a list, each with how many rows of these tenants it holds; everything comes last."""
    for view in views:
        found = view.count(rows())
        query = f"?{parameter}={view.slug}"
        yield Tab(name=view.name, query=query, count=said(found), chosen=view.slug == chosen, urgent=found > 0)
    yield Tab(name=everything, query="?", count="", chosen=chosen not in {v.slug for v in views}, urgent=False)


def capped(rows: QuerySet[Any]) -> int:
    """How many rows there are, MOST + 1 standing for more."""
    # By a column that indexes hold: the key would be looked up row by row.
    return rows.order_by().prefetch_related(None).values_list("tenant_id", flat=True)[: MOST + 1].count()


def said(count: int) -> str:
    return f"{MOST:,}+" if count > MOST else f"{count:,}"


def says(views: tuple[View, ...], chosen: str) -> str:
    """What a view holds, in a sentence."""
    return next((view.says for view in views if view.slug == chosen), "")


class _Views(admin.SimpleListFilter):
    """A saved view, chosen in the address; shown as tabs and not among the filters."""

    views: tuple[View, ...] = ()
    as_tabs = True

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(view.slug, view.name) for view in self.views]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        found = next((view for view in self.views if view.slug == self.value()), None)
        return queryset.filter(found.holds()) if found else queryset


class NeedsFilter(_Views):
    """What waits for staff: the list a day begins with."""

    title, parameter_name, views = "needs", "needs", RUN_VIEWS


class _Column(admin.SimpleListFilter):
    """One value of a column, by its name for people."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        return queryset.filter(**{self.parameter_name or "": self.value()}) if self.value() else queryset


class StatusFilter(_Column):
    """Statuses by their names for people."""

    title, parameter_name = "status", "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return list(labels.RUN.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        if self.value() in ENDED:
            return queryset.filter(OVER, ended_as=self.value())
        return super().queryset(request, queryset.filter(LIVES) if self.value() else queryset)


class WaitingFilter(_Column):
    """What a run waits for."""

    title, parameter_name = "waiting for", "waiting_for"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(wait, labels.spoken(wait)) for wait in WAITS]


class OutcomeFilter(_Column):
    """How a run ended for its customer."""

    title, parameter_name = "outcome", "outcome"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(outcome, labels.spoken(outcome)) for outcome in OUTCOMES]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        found = queryset.filter(OVER, ended_as__in=ENDED) if self.value() else queryset
        return super().queryset(request, found)


class ReasonFilter(_Column):
    """The reason a run ended with, where the address names one: there are too many to list."""

    title, parameter_name = "reason", "reason"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        given = request.GET.get("reason", "")[:40]
        return [(given, labels.spoken(given))] if given else []


class EndedFilter(admin.SimpleListFilter):
    """Runs that ended within a window up to now."""

    title, parameter_name = "ended within", "ended"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return list(WINDOWS.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        return queryset.filter(ended_since(int(self.value() or 0))) if self.value() in WINDOWS else queryset


class ThumbFilter(admin.SimpleListFilter):
    """Runs by their customer's thumb."""

    title, parameter_name = "feedback", "thumb"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("up", "Thumb up"), ("down", "Thumb down")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        return queryset.filter(feedback__rating=self.value()) if self.value() in ("up", "down") else queryset


def orders_of(row: Run) -> str:
    return ", ".join(visible(o.order_id) for o in row.orders.all()) or "–"


def exact(rows: QuerySet[Run], term: str, tenants: Iterable[str] | None) -> QuerySet[Run] | None:
    """Runs whose id, trace, request, customer or order is exactly this; None where there is none."""
    term = term.strip()
    known = Tenant.objects.all() if tenants is None else Tenant.objects.filter(pk__in=tenants)
    ours = Q(tenant_id__in=list(known.values_list("pk", flat=True)[:MOST]))
    parts = [Q(trace_id=term), ours & Q(request_id=term), ours & Q(customer_id=term)]
    with suppress(ValueError):
        parts.append(Q(pk=UUID(term)))
    keys = {
        key for part in parts for key in Run.objects.filter(part).order_by().values_list("pk", flat=True)[:MOST_FOUND]
    }
    keys |= set(RunOrder.objects.filter(ours, order_id=term).values_list("run_id", flat=True)[:MOST_FOUND])
    return rows.filter(pk__in=keys) if term and keys else None
