"""The numbers of the console's first page, for the tenants of one member of staff. Part of a door: reads rows only.

Every query is bounded: by a window, by an index of what is open, or by a limit. What cannot be seen by a person's
permissions is not asked for. Expired is its own thing, never a rejection; money of two currencies is never summed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from django.db.models import Count, Min, Q, QuerySet, Sum, Value
from django.db.models.functions import Coalesce

from agentsite import dbtime
from agentsite.tenants.models import visible_tenants
from agentsite.text import visible
from approvals import labels
from approvals.admin.views import EXPIRING_WITHIN
from approvals.models import Approval
from approvals.states import Approved
from runs import fleet
from runs.admin import charts, lists
from runs.models import Feedback, Process, Run, Sweeper, Webhook, Write
from tools.models import PolicyIncident

if TYPE_CHECKING:
    from django.contrib.auth.models import User

WEEK, MONTH = 7, 30
MOST_DECISIONS, MOST_THUMBS, MOST_REASONS, MOST_MODELS = 5_000, 2_000, 8, 8
AT_ONCE = 500
SWEPT_S = 30.0
"""A pass of recovery older than this is a fault: they come every second."""


@dataclass(frozen=True, kw_only=True)
class Number:
    """One number with its words and the list behind it. `tone` is good, wait, bad or plain."""

    name: str
    value: str
    link: str = ""
    tone: str = "plain"
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Thumbs:
    release: str
    model: str
    up: int
    down: int


@dataclass(frozen=True, kw_only=True)
class Board:
    """The whole page; a part that this person may not see is None or empty. `at` is when it was read."""

    at: datetime
    queue: tuple[Number, ...]
    trouble: tuple[Number, ...]
    outcomes: charts.Chart | None
    reasons: charts.Chart | None
    decided: tuple[Number, ...]
    shares: charts.Share | None
    thumbs: tuple[Thumbs, ...]
    sweeper: Number | None
    processes: tuple[Process, ...]
    empty: bool


class _Sees(NamedTuple):
    """What a person may see. `tenants` None: all of them."""

    tenants: tuple[str, ...] | None
    runs: bool
    writes: bool
    approvals: bool
    webhooks: bool
    policies: bool

    def rows(self, rows: QuerySet[Any], lookup: str = "tenant_id") -> QuerySet[Any]:
        return rows if self.tenants is None else rows.filter(**{f"{lookup}__in": self.tenants})


def read(user: User) -> Board:
    """Everything, as of now."""
    tenants, now = visible_tenants(user), dbtime.now()
    sees = _Sees(
        tenants=None if tenants is None else tuple(tenants), runs=user.has_perm("runs.view_run"),
        writes=user.has_perm("runs.view_write"), approvals=user.has_perm("approvals.view_approval"),
        webhooks=user.has_perm("runs.view_webhook"), policies=user.has_perm("tools.view_policyincident"),
    )  # fmt: skip
    cohort = _cohort(sees, now) if sees.approvals else {}
    return Board(
        at=now, queue=tuple(_queue(sees, now)) if sees.approvals else (), trouble=tuple(_trouble(sees)),
        outcomes=_outcomes(sees, now) if sees.runs else None, reasons=_reasons(sees, now) if sees.runs else None,
        decided=tuple(_decided(sees, now, cohort)) if sees.approvals else (),
        shares=_shares(cohort) if sees.approvals else None, thumbs=_thumbs(sees, now) if sees.runs else (),
        sweeper=_sweeper(now), processes=tuple(fleet.alive()[:50]), empty=_empty(sees),
    )  # fmt: skip


def _empty(sees: _Sees) -> bool:
    return sees.runs and not sees.rows(Run.objects.order_by()).exists()


# --- what waits for a decision -----------------------------------------------------------------------------------


def _queue(sees: _Sees, now: datetime) -> list[Number]:
    pending = sees.rows(Approval.objects.filter(status=Approved.PENDING.value)).order_by()
    found = pending.aggregate(n=Count("pk"), oldest=Min("requested_at"), soonest=Min("expires_at"))
    soon = lists.capped(pending.filter(expires_at__gt=now, expires_at__lte=now + EXPIRING_WITHIN))
    age = labels.duration((now - found["oldest"]).total_seconds()) if found["oldest"] else "–"
    queue = "/admin/approvals/approval/?view=pending"
    return [
        Number(name="Waiting for a decision", value=f"{found['n']:,}", link=queue,
               tone="wait" if found["n"] else "good"),
        Number(name="Oldest has waited", value=age, link=queue),
        Number(name="Expire within 4 hours", value=lists.said(soon), tone="bad" if soon else "plain",
               link="/admin/approvals/approval/?view=expiring"),
        *_value(pending, queue),
    ]  # fmt: skip


def _value(pending: QuerySet[Approval], link: str) -> list[Number]:
    """Money that waits, a number for each currency."""
    sums = pending.values_list("currency").annotate(minor=Sum("amount_minor"), n=Count("pk")).order_by("currency")[:12]
    return [
        Number(name=f"Value waiting, {visible(currency)}", value=labels.amount(minor, currency), link=link,
               detail=f"{n:,} refund{'s' if n != 1 else ''}")
        for currency, minor, n in sums
    ]  # fmt: skip


# --- what needs somebody -----------------------------------------------------------------------------------------


def _trouble(sees: _Sees) -> list[Number]:
    found = list[Number]()
    if sees.runs:
        views = [v for v in lists.RUN_VIEWS if v.slug != "settle"]
        found += [_needs(sees, view) for view in views]
    if sees.writes:
        unknown = lists.capped(sees.rows(Write.objects.filter(lists.for_a_person())))
        found.insert(0, Number(name="Unknown writes", value=lists.said(unknown), tone="bad" if unknown else "good",
                               link="/admin/runs/write/?state=settle"))  # fmt: skip
    if sees.webhooks:
        lost = lists.capped(sees.rows(Webhook.objects.filter(state="dead")))
        found.append(Number(name="Webhooks given up", value=lists.said(lost), tone="bad" if lost else "good",
                            link="/admin/runs/webhook/?state=dead"))  # fmt: skip
    if sees.policies:
        stale = lists.capped(sees.rows(PolicyIncident.objects.filter(closed_at=None)))
        found.append(Number(name="Policy incidents", value=lists.said(stale), tone="bad" if stale else "good",
                            link="/admin/tools/policyincident/?state=open"))  # fmt: skip
    return found


def _needs(sees: _Sees, view: lists.View) -> Number:
    count = view.count(sees.rows(Run.objects.all()))
    tone = ("wait" if view.slug in ("finish", "ask") else "bad") if count else "good"
    return Number(name=view.name, value=lists.said(count), link=f"/admin/runs/run/?needs={view.slug}", tone=tone)


# --- what became of runs -----------------------------------------------------------------------------------------


def _outcomes(sees: _Sees, now: datetime) -> charts.Chart:
    """Runs that ended in the last 30 days by their outcome, those of the last 7 apart."""
    rows = sees.rows(Run.objects.filter(completed_at__gte=now - timedelta(days=MONTH))).order_by()
    week = Count("ended_as", filter=Q(completed_at__gte=now - timedelta(days=WEEK)))
    found = rows.values_list("outcome").annotate(n=Count("ended_as"), week=week)
    counted = {str(outcome or "none"): (n, recent) for outcome, n, recent in found}
    known = [o for o in (*lists.OUTCOMES, *sorted(counted.keys() - {*lists.OUTCOMES})) if o in counted]
    return charts.bars(
        charts.Given(name=labels.spoken(o), month=counted[o][0], week=counted[o][1], tone=charts.tone(o),
                      link=f"/admin/runs/run/?outcome={o}&ended={MONTH}") for o in known
    )  # fmt: skip


def _reasons(sees: _Sees, now: datetime) -> charts.Chart:
    """Runs handed to a person in the last 30 days by their reason, the commonest first."""
    rows = sees.rows(Run.objects.filter(completed_at__gte=now - timedelta(days=MONTH), ended_as="escalated")).order_by()
    week = Count("ended_as", filter=Q(completed_at__gte=now - timedelta(days=WEEK)))
    found = rows.values_list("reason").annotate(n=Count("ended_as"), week=week).order_by("-n", "reason")[:MOST_REASONS]
    return charts.bars(
        (charts.Given(name=labels.spoken(r or "no reason"), month=n, week=w, tone="bad",
                      link=f"/admin/runs/run/?status=escalated&reason={r}&ended={MONTH}") for r, n, w in found)
    )  # fmt: skip


# --- how people decided ------------------------------------------------------------------------------------------


def _cohort(sees: _Sees, now: datetime) -> dict[str, int]:
    """Approvals asked for in the last 30 days, by status."""
    rows = sees.rows(Approval.objects.filter(requested_at__gte=now - timedelta(days=MONTH))).order_by()
    # By an expression: grouped by the column itself, SQLite walks an index that lacks the rest.
    found = rows.annotate(ended=Coalesce("status", Value(""))).values_list("ended").annotate(n=Count("status"))
    return dict(found)


def _decided(sees: _Sees, now: datetime, cohort: dict[str, int]) -> list[Number]:
    yes = cohort.get("approved", 0) + cohort.get("consumed", 0)
    no, expired = cohort.get("rejected", 0), cohort.get("expired", 0)
    times = _times(sees, now)
    decided, expired_ones = "/admin/approvals/approval/?view=decided", "/admin/approvals/approval/?status=expired"
    return [
        Number(name="Approved, of those decided", value=_share(yes, yes + no), detail=f"{yes:,} of {yes + no:,}",
               link=decided),
        Number(name="Expired undecided, of all ended", value=_share(expired, yes + no + expired),
               detail=f"{expired:,} of {yes + no + expired:,}", link=expired_ones,
               tone="wait" if expired else "plain"),
        Number(name="Time to decide, median", value=_at(times, 0.5), link=decided),
        Number(name="Time to decide, nine of ten within", value=_at(times, 0.9), link=decided),
    ]  # fmt: skip


def _times(sees: _Sees, now: datetime) -> list[float]:
    """Seconds from the question to the decision, of the newest questions of the last 30 days, in order."""
    rows = sees.rows(Approval.objects.filter(requested_at__gte=now - timedelta(days=MONTH), decided_at__isnull=False))
    pairs = rows.order_by("-requested_at").values_list("requested_at", "decided_at")[:MOST_DECISIONS]
    return sorted((decided - asked).total_seconds() for asked, decided in pairs)


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The least value that `share` of them do not pass; None where there is none."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def _at(times: Sequence[float], share: float) -> str:
    found = percentile(times, share)
    return labels.duration(found) if found is not None else "–"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "–"


def _shares(cohort: dict[str, int]) -> charts.Share:
    yes = cohort.get("approved", 0) + cohort.get("consumed", 0)
    parts = [("Approved", yes, "good"), ("Rejected", cohort.get("rejected", 0), "bad"),
             ("Expired undecided", cohort.get("expired", 0), "wait"), ("Void", cohort.get("void", 0), "plain"),
             ("Still open", cohort.get("pending", 0), "model")]  # fmt: skip
    return charts.share(parts)


# --- what customers thought --------------------------------------------------------------------------------------


def _thumbs(sees: _Sees, now: datetime) -> tuple[Thumbs, ...]:
    """The newest thumbs of the last 30 days by release and model, the most rated first (M107)."""
    since, rows = now - timedelta(days=MONTH), Feedback.objects.order_by("-pk")
    rated = {run: rating for run, rating, at in rows.values_list("run_id", "rating", "at")[:MOST_THUMBS] if at >= since}
    counted: dict[tuple[str, str], list[int]] = {}
    for pk, release, versions in _runs(sees, list(rated)):
        model = str(versions.get("model") or "none") if isinstance(versions, dict) else "none"
        counted.setdefault((release, model), [0, 0])[rated[pk] != "up"] += 1
    most = sorted(counted.items(), key=lambda item: (-sum(item[1]), item[0]))[:MOST_MODELS]
    return tuple(Thumbs(release=release, model=model, up=up, down=down) for (release, model), (up, down) in most)


def _runs(sees: _Sees, keys: list[UUID]) -> Iterator[tuple[UUID, str, Any]]:
    """(id, release, versions) of those that may be seen, a few at a time: SQLite takes only so many parameters."""
    for at in range(0, len(keys), AT_ONCE):
        rows = sees.rows(Run.objects.filter(pk__in=keys[at : at + AT_ONCE])).order_by()
        yield from rows.values_list("pk", "release", "versions")


# --- the machine -------------------------------------------------------------------------------------------------


def _sweeper(now: datetime) -> Number:
    row = Sweeper.objects.first()
    if row is None or row.last_pass_at is None:
        return Number(name="Recovery", value="no pass yet", tone="wait", detail="starts with the first worker")
    ago = (now - row.last_pass_at).total_seconds()
    return Number(
        name="Recovery: last pass", value=f"{labels.duration(ago)} ago", tone="good" if ago < SWEPT_S else "bad",
        detail=f"took {row.last_pass_ms} ms, found {row.last_found:,}",
    )  # fmt: skip
