"""The saved views of the queue as plain values: which rows, in which order, with which columns. Writes nothing.

Each is a URL. Every condition here narrows what the user's tenants already are; none can widen it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from django.contrib.auth.models import AbstractUser
from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Coalesce
from django.db.models.lookups import GreaterThan
from django.http import HttpRequest

from agentsite import dbtime
from agentsite.tenants.console import staff
from approvals import holds, permits
from approvals.models import Approval, Decision
from approvals.states import Approved

EXPIRING_WITHIN = timedelta(hours=4)
SOON = timedelta(minutes=30)
RISKIEST = ("-risk", "requested_at")
WORKING = ("order", "payment", "amount", "customer", "why", "requested", "expires", "held")
FINISHED = ("order", "payment", "amount", "customer", "state", "decided", "said")
ANY = ("order", "payment", "amount", "customer", "why", "requested", "state")
NOBODY = Q(pk__in=())


@dataclass(frozen=True, kw_only=True)
class Seen:
    """For whom and for which moment of the database's clock a list was made."""

    user: AbstractUser
    now: datetime

    @cached_property
    def snoozed(self) -> list[str]:
        """Ids of what this person put off."""
        return holds.snoozed(self.user, self.now)


@dataclass(frozen=True, kw_only=True)
class View:
    """One tab. `empty` is said where it holds nothing; `counted` tabs show how many wait."""

    slug: str
    title: str
    rows: Callable[[Seen], Q]
    order: tuple[str, ...]
    columns: tuple[str, ...]
    empty: str
    counted: bool = False


def needs(at: Seen) -> Q:
    """What this person may decide now, has not decided or put off, and nobody else is looking at."""
    user = at.user
    if not user.has_perm(permits.DECIDE):
        return NOBODY
    # The column wrapped: by its plain name SQLite walks the rows by expiry, and sorts all of them by risk.
    in_time = Q(GreaterThan(Coalesce(F("expires_at"), F("expires_at")), at.now))
    mine = Q(status=Approved.PENDING.value) & in_time & ~Q(created_by=f"user:{user.pk}")
    if not user.has_perm(permits.DECIDE_LARGE):
        mine &= Q(large=False)
    free = Q(claimed_by=None) | Q(claimed_by=user.pk) | Q(claimed_until__lte=at.now)
    decided = Exists(Decision.objects.filter(approval=OuterRef("pk"), user_id=user.pk, counted=True))
    return mine & free & ~Q(pk__in=at.snoozed) & (Q(required=1) | ~Q(decided))


def expiring(at: Seen) -> Q:
    return Q(status=Approved.PENDING.value, expires_at__gt=at.now, expires_at__lte=at.now + EXPIRING_WITHIN)


def pending(at: Seen) -> Q:
    return Q(status=Approved.PENDING.value)


def decided(at: Seen) -> Q:
    """By people: what expired undecided or became void before anybody decided is not here."""
    return Q(decided_at__isnull=False)


def everything(at: Seen) -> Q:
    return Q()


VIEWS = {
    view.slug: view
    for view in (
        View(
            slug="needs_me", title="Needs me", rows=needs, order=RISKIEST, columns=WORKING, counted=True,
            empty="Nothing needs you now.",
        ),
        View(
            slug="expiring", title="Expiring", rows=expiring, order=("expires_at",), columns=WORKING, counted=True,
            empty="Nothing expires within four hours.",
        ),
        View(
            slug="pending", title="All pending", rows=pending, order=RISKIEST, columns=WORKING, counted=True,
            empty="Nothing waits for a decision.",
        ),
        View(
            slug="decided", title="Decided", rows=decided, order=("-decided_at",), columns=FINISHED,
            empty="Nothing was decided yet.",
        ),
        View(
            slug="everything", title="Everything", rows=everything, order=("-requested_at",), columns=ANY,
            empty="There is no such approval.",
        ),
    )
}  # fmt: skip


def chosen(request: HttpRequest) -> View:
    """The view of a URL. A search, or a status, without a view looks through everything."""
    asked = VIEWS.get(request.GET.get("view", ""))
    if asked is not None:
        return asked
    if request.GET.get("q") or request.GET.get("status"):
        return VIEWS["everything"]
    return VIEWS["needs_me" if staff(request).has_perm(permits.DECIDE) else "pending"]


def seen(request: HttpRequest) -> Seen:
    """One moment for the whole page, whatever it asks."""
    kept = request.__dict__.setdefault("_queue_seen", None) or Seen(user=staff(request), now=dbtime.now())
    request.__dict__["_queue_seen"] = kept
    return kept


def late(row: Approval, now: datetime) -> bool:
    """Its time has come; the sweeper may be a second behind."""
    return row.status == Approved.PENDING and row.expires_at <= now
