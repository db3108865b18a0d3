"""Keeper: who is looking at an approval, who put it off, whom it is assigned to. Imports no runs, no gate, no model.

None of it decides anything: a claim warns, and no more. Whoever may decide may decide whatever stands here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser
from django.db import transaction
from django.db.models import Q, QuerySet

from agentsite import dbtime, telemetry
from agentsite.refusals import Refusal
from agentsite.tenants.models import visible_tenants
from agentsite.text import storable
from approvals import permits
from approvals.models import Approval, Snooze
from approvals.states import Approved

CLAIM = timedelta(minutes=15)
MAX_SNOOZE = timedelta(hours=36)
NOT_FOUND = ("not-found", "There is no such thing.", "No approval of yours has this id.")
MAX_PEOPLE = MAX_KEPT = 500
BACKEND = "django.contrib.auth.backends.ModelBackend"  # the one that knows permissions, whoever signs people in


@dataclass(frozen=True, kw_only=True)
class Looking:
    """Somebody says that he is looking at it, until then by the database's clock."""

    by: str
    until: datetime
    mine: bool


def claim(approval_id: str, user: AbstractUser) -> datetime:
    """Says that this person is looking, for 15 minutes; again while it lasts makes it longer. Returns until when.

    Raises Refusal: 404 `not-found`; 403 `own-run`, `not-permitted`; 409 `claimed`, `not-pending`.
    """
    row = _seen(approval_id, user)
    unfit = permits.objection(row, user)
    if unfit:
        raise unfit
    now = dbtime.now()
    taken = _pending(row.pk, now).filter(~claimed(now) | Q(claimed_by_id=user.pk))
    if not taken.update(claimed_by_id=user.pk, claimed_until=now + CLAIM):
        raise _not_claimed(row.pk, now)
    return now + CLAIM


def release(approval_id: str, user: AbstractUser) -> bool:
    """Ends this person's own claim. False: he had none."""
    row = _seen(approval_id, user)
    mine = Approval.objects.filter(pk=row.pk, claimed_by_id=user.pk)
    return mine.update(claimed_by_id=None, claimed_until=None) == 1


def snooze(approval_id: str, user: AbstractUser, until: datetime) -> None:
    """Until then it is not in the list of what needs this person, who no longer looks at it. Nobody else is touched.

    Raises Refusal: 404 `not-found`; 409 `not-pending`; 400 `too-long` for more than 36 hours.
    """
    row, now = _seen(approval_id, user), dbtime.now()
    if not now < until <= now + MAX_SNOOZE:
        raise Refusal(400, "too-long", "Nothing is put off that long.", "At most 36 hours.")
    if not _pending(row.pk, now).exists():
        raise _ended()
    with transaction.atomic():
        Snooze.objects.filter(user_id=user.pk, until__lte=now).delete()
        Snooze.objects.update_or_create(approval_id=row.pk, user_id=user.pk, defaults={"until": until})
        Approval.objects.filter(pk=row.pk, claimed_by_id=user.pk).update(claimed_by_id=None, claimed_until=None)


def wake(approval_id: str, user: AbstractUser) -> bool:
    """Ends this person's snooze. False: there was none."""
    row = _seen(approval_id, user)
    return Snooze.objects.filter(approval_id=row.pk, user_id=user.pk).delete()[0] == 1


def assign(approval_id: str, by: AbstractUser, to: AbstractUser | None) -> None:
    """Puts it on somebody's list, who may see and decide it, or (None) on nobody's. Others may decide it all the same.

    Raises Refusal: 404 `not-found`; 403 `not-permitted`; 409 `not-pending`.
    """
    row = _seen(approval_id, by)
    if to is not None and not fit(row, to):
        raise Refusal(403, "not-permitted", "This person may not decide it.", "Choose somebody who may, or nobody.")
    if not _pending(row.pk, dbtime.now()).update(assigned_to_id=to.pk if to else None):
        raise _ended()
    telemetry.log("approval.assigned", approval_id=row.pk, by=by.get_username(), to=to.get_username() if to else None)


# --- reading -----------------------------------------------------------------------------------------------


def claimed(now: datetime) -> Q:
    """Rows that somebody is looking at."""
    return Q(claimed_by__isnull=False, claimed_until__gt=now)


def snoozed(user: AbstractUser, now: datetime) -> list[str]:
    """Ids of what this person put off and is still waiting; at most 500, the last that come back first."""
    mine = Snooze.objects.filter(user_id=user.pk, until__gt=now, approval__status=Approved.PENDING.value)
    return list(mine.order_by("-until").values_list("approval_id", flat=True)[:MAX_KEPT])


def claims(user: AbstractUser, now: datetime) -> list[str]:
    """Ids of what this person is looking at, at most 500."""
    mine = Approval.objects.filter(claimed_by_id=user.pk, claimed_until__gt=now)
    return list(mine.order_by().values_list("pk", flat=True)[:MAX_KEPT])


def assigned(user: AbstractUser) -> list[str]:
    """Ids of what is on this person's list, at most 500, the newest."""
    mine = Approval.objects.filter(assigned_to_id=user.pk).order_by("-requested_at")
    return list(mine.values_list("pk", flat=True)[:MAX_KEPT])


def looking(row: Approval, user: AbstractUser, now: datetime) -> Looking | None:
    """Who is looking at a pending approval, or None."""
    if row.status != Approved.PENDING or row.claimed_by is None or row.claimed_until is None:
        return None
    if row.claimed_until <= now:
        return None
    return Looking(by=row.claimed_by.get_username(), until=row.claimed_until, mine=row.claimed_by_id == user.pk)


def snoozed_until(approval_id: str, user: AbstractUser, now: datetime) -> datetime | None:
    """Until when this person put it off, or None."""
    mine = Snooze.objects.filter(approval_id=approval_id, user_id=user.pk, until__gt=now)
    return mine.values_list("until", flat=True).first()


def fit(row: Approval, user: AbstractUser) -> bool:
    """Whether this person could decide it as things are: permitted, not its author, and of its tenant."""
    return _fit(row, user, visible_tenants(user))


def deciders(rows: list[Approval], limit: int) -> list[AbstractUser]:
    """People who could decide every one of these, by name; at most so many, of the first 500 who may decide at all."""
    people = get_user_model().objects.with_perm(permits.DECIDE, backend=BACKEND).filter(is_active=True, is_staff=True)
    found: list[AbstractUser] = []
    for person in people.order_by("username")[:MAX_PEOPLE]:
        tenants = visible_tenants(person)
        if all(_fit(row, person, tenants) for row in rows):
            found.append(person)
    return found[:limit]


def _fit(row: Approval, user: AbstractUser, tenants: set[str] | None) -> bool:
    return permits.objection(row, user) is None and (tenants is None or row.tenant_id in tenants)


def _seen(approval_id: str, user: AbstractUser) -> Approval:
    """The row, where this person may see its tenant; else 404."""
    tenants = visible_tenants(user)
    scope = Q() if tenants is None else Q(tenant_id__in=tenants)
    row = Approval.objects.filter(scope, pk=storable(approval_id)).first()
    if row is None:
        raise Refusal(404, *NOT_FOUND)
    return row


def _pending(approval_id: str, now: datetime) -> QuerySet[Approval]:
    return Approval.objects.filter(pk=approval_id, status=Approved.PENDING, expires_at__gt=now)


def _not_claimed(approval_id: str, now: datetime) -> Refusal:
    row = Approval.objects.select_related("claimed_by").filter(claimed(now), pk=approval_id).first()
    if row is None or row.claimed_by is None or row.status != Approved.PENDING:
        return _ended()
    said = f"{row.claimed_by.get_username()} is looking at it. You may decide it all the same."
    return Refusal(409, "claimed", "Somebody else was first.", said)


def _ended() -> Refusal:
    return Refusal(409, "not-pending", "It no longer waits for a decision.", "Nothing was changed.")
