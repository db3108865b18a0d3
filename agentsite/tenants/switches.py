"""The stop switches: one for the site, one per tenant; and the fence after a restore, whose demand stops every write.

Floor: imports no domain package. The switch that counts is read under a lock in the transaction that would send;
what is asked here only saves work, and tells people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from django.db import transaction
from django.db.models import Value
from django.db.models.functions import Coalesce

from agentsite import dbtime, statements, telemetry
from agentsite.tenants import glance
from agentsite.tenants.models import Site, Tenant, visible_tenants
from agentsite.text import storable

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractUser as User

SITE = 1
HOLD_S, MAX_HOLD_S = 5.0, 60.0
MAX_REASON = 500
MAX_SHOWN = 50
STOPPED = (
    "SELECT paused_at FROM tenants_site WHERE id = 1 AND paused "
    "UNION ALL SELECT paused_at FROM tenants_tenant WHERE id = %s AND paused "
    "UNION ALL SELECT fence_demanded_at FROM tenants_site WHERE id = 1 AND fence_demanded_at IS NOT NULL"
)
TICK, OLDEST = timedelta(microseconds=1), datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Stop:
    """What stands still: the whole site (`tenant_id` None) or one tenant's writes, since when, by whom and why.

    `restored`: every write of every tenant, because the database is an older one, until it is fenced.
    """

    tenant_id: str | None
    reason: str
    by: str
    at: datetime | None
    restored: bool = False


def flip(tenant_id: str | None, *, stop: bool, by: str, reason: str) -> bool:
    """Stop or resume the site (None) or a tenant. False: it was so already, and nothing changed.

    Once this returns, no further write of it is marked as sent: whoever marks one holds the row shared until he has.
    """
    now, said = dbtime.now(), storable(reason.strip())[:MAX_REASON]
    stopped = {"paused": True, "paused_reason": said, "paused_by": storable(by)[:200], "paused_at": now}
    values = stopped if stop else {"paused": False, "paused_reason": "", "paused_by": "", "paused_at": None}
    if tenant_id is None:
        Site.objects.bulk_create([Site(id=SITE)], ignore_conflicts=True)
        changed = Site.objects.filter(pk=SITE, paused=not stop).update(**values)
    else:
        changed = Tenant.objects.filter(pk=tenant_id, paused=not stop).update(**values)
    if changed:
        telemetry.count("switches_flipped", to="stopped" if stop else "running")
        telemetry.log("switch.flipped", tenant=tenant_id or "(site)", stop=stop, by=by)
    return changed == 1


def site_stopped() -> bool:
    """Whether the site's stop switch is thrown at this moment: no model call begins then."""
    with statements.cursor() as cursor:
        cursor.execute("SELECT 1 FROM tenants_site WHERE id = 1 AND paused")
        return cursor.fetchone() is not None


def model_hold_s(tenant_id: str) -> float | None:
    """Seconds to wait before a model call of this tenant is looked at again; None: the site runs at this moment.

    Only the site's own stop holds one back. No lock stands behind it, as a write has: each turn asks anew.
    """
    seen = glance.again(tenant_id)
    return _wait_s([seen.stopped_at]) if seen.site_stopped else None


def hold_s(tenant_id: str) -> float | None:
    """Seconds to wait before a write is tried again where the site, the tenant or a fence stops it; None: it runs."""
    with statements.cursor() as cursor:
        cursor.execute(STOPPED, [tenant_id])
        rows = [dbtime.moment(row[0]) for row in cursor.fetchall()]
    return _wait_s(rows) if rows else None


def _wait_s(since: Sequence[datetime | None]) -> float:
    """A quarter of the longest that it has stood still, so from 5 s growing to a minute."""
    now = dbtime.now()
    stood = max((now - at).total_seconds() if at else 0.0 for at in since)
    return max(HOLD_S, min(stood / 4, MAX_HOLD_S))


def standing(user: User) -> list[Stop]:
    """What stands still that this member of staff may know of: the site first, then his tenants."""
    site = Site.objects.filter(pk=SITE).first()
    found = [_stop(None, site)] if site is not None and site.paused else []
    if site is not None and site.fence_demanded_at is not None:
        found.append(Stop(tenant_id=None, reason="", by="", at=site.fence_demanded_at, restored=True))
    tenants, mine = Tenant.objects.filter(paused=True).order_by("pk"), visible_tenants(user)
    rows = tenants if mine is None else tenants.filter(pk__in=mine)
    return found + [_stop(row.pk, row) for row in rows[:MAX_SHOWN]]


def _stop(tenant_id: str | None, row: Site | Tenant) -> Stop:
    return Stop(tenant_id=tenant_id, reason=row.paused_reason, by=row.paused_by, at=row.paused_at)


def may_stop_site(user: User) -> bool:
    """A superuser, or one who may pause and is assigned to every tenant: nobody stops tenants he does not see."""
    if user.is_superuser:
        return True
    mine = visible_tenants(user) or set()
    return user.has_perm("runs.pause_tenant") and not Tenant.objects.exclude(pk__in=mine).exists()


# --- the fence after a restore (`write-path.md` 9) ---------------------------------------------------------------


def fence() -> tuple[datetime | None, datetime | None]:
    """(when the site was last fenced, since when a fence is demanded), both by the database's clock."""
    with statements.cursor() as cursor:
        cursor.execute("SELECT fenced_at, fence_demanded_at FROM tenants_site WHERE id = %s", [SITE])
        fenced_at, demanded_at = cursor.fetchone() or (None, None)
    return dbtime.moment(fenced_at), dbtime.moment(demanded_at)


def demand_fence() -> bool:
    """No write goes out until the site is fenced. False: that was demanded already."""
    Site.objects.bulk_create([Site(id=SITE)], ignore_conflicts=True)
    changed = Site.objects.filter(pk=SITE, fence_demanded_at=None).update(fence_demanded_at=dbtime.now())
    if changed:
        telemetry.count("fences_demanded")
        telemetry.log("fence.demanded")
    return changed == 1


def begin_fence(*, not_before: datetime | None = None) -> datetime:
    """Fence the site; until `end_fence` no write goes out, so a fence that dies half-way stays demanded.

    Returns the fence's moment: now, but later than every fence before it and not before `not_before`, since a clock
    may have been set back.
    """
    Site.objects.bulk_create([Site(id=SITE)], ignore_conflicts=True)
    with transaction.atomic():
        last = Site.objects.select_for_update().values_list("fenced_at", flat=True).get(pk=SITE)
        at = max(dbtime.now(), last + TICK if last else OLDEST, not_before or OLDEST)
        Site.objects.filter(pk=SITE).update(fenced_at=at, fence_demanded_at=Coalesce("fence_demanded_at", Value(at)))
    return at


def end_fence(at: datetime) -> bool:
    """Writes may go out again. False: another fence began after `at`, and ends by itself."""
    return Site.objects.filter(pk=SITE, fenced_at=at).update(fence_demanded_at=None) == 1
