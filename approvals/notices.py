"""Keeper: the only writer of notices to staff; each is a row left with what it tells of, or with the time that came.

Knows no runs and sends nothing. Whom to tell stands in the tenant's profile; what is not configured gets no row.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, QuerySet
from pydantic import ValidationError

from agentsite import dbtime, env, queues
from agentsite.tenants.models import current_profile
from agentsite.tenants.profiles import Profile
from approvals.models import Approval, Notice
from approvals.states import Approved

ASKED, SECOND_PERSON, EXPIRED, DIGEST = "asked", "second_person", "expired", "digest"
REMINDER_HALF, REMINDER_LAST = "reminder_50", "reminder_90"
HALF, LAST = 0.5, 0.9
"""Of a question's life: when those who may decide it are reminded (M44)."""
EMAIL, CHAT = "email", "chat"
SITE_CHAT = "NOTIFY_WEBHOOK_URL"
ADDRESS = re.compile(r"[^@\s,;<>]{1,200}@[^@\s,;<>]{1,80}")
CANDIDATES = 20
MOST_TRIES = 8


def recipients(tenant_id: str) -> list[tuple[str, str]]:
    """(channel, address) of everybody to tell; of a chat the name of the variable that holds its address."""
    profile, given = _profile(tenant_id), env.read()
    found: list[tuple[str, str]] = []
    if given.EMAIL_URL is not None and profile is not None:
        asked = [profile.queue_owner, *profile.notify.email]
        found += [(EMAIL, address) for address in dict.fromkeys(asked) if ADDRESS.fullmatch(address)]
    own = profile.notify.webhook_env if profile is not None else None
    if own or given.NOTIFY_WEBHOOK_URL is not None:
        found.append((CHAT, own or SITE_CHAT))
    return found


def _profile(tenant_id: str) -> Profile | None:
    try:
        return current_profile(tenant_id)
    except ValidationError:  # nobody is kept from deciding because a profile cannot be read
        return None


def leave(kind: str, row: Approval, *, now: datetime | None = None) -> None:
    """A row for everybody who is told of this, each once, in the caller's transaction. `now`: where it was read."""
    told = recipients(row.tenant_id)
    if not told:
        return
    at = now or dbtime.now()
    _insert([
        Notice(approval=row, tenant_id=row.tenant_id, kind=kind, channel=channel, address=address, due_at=at,
               created_at=at)
        for channel, address in told
    ])  # fmt: skip


def leave_digest(tenant_id: str, period: str) -> None:
    """A row for everybody who is told what waits, once in a period."""
    now = dbtime.now()
    _insert([
        Notice(tenant_id=tenant_id, kind=DIGEST, channel=channel, address=address, period=period, due_at=now,
               created_at=now)
        for channel, address in recipients(tenant_id)
    ])  # fmt: skip


def _insert(rows: list[Notice]) -> None:
    if rows:
        Notice.objects.bulk_create(rows, ignore_conflicts=True)
        transaction.on_commit(queues.nudge_notify, robust=True)


def reminder(row: Approval, now: datetime) -> tuple[str | None, datetime | None]:
    """The reminder that is due for an approval, and when the next one is; none of one that no longer waits."""
    if row.status != Approved.PENDING or row.expires_at <= now:
        return None, None
    last = row.requested_at + (row.expires_at - row.requested_at) * LAST
    return (REMINDER_LAST, None) if now >= last else (REMINDER_HALF, last)


# --- sending -------------------------------------------------------------------------------------------------


def place(notice: Notice) -> str:
    """Where a notice goes through: one mail server, or a chat."""
    return EMAIL if notice.channel == EMAIL else notice.address


def due(*, shut: Collection[str] = ()) -> bool:
    """Whether a notice could be sent now, through a place that is not `shut`."""
    return _due(dbtime.now(), shut).exists()


def _due(now: datetime, shut: Collection[str]) -> QuerySet[Notice]:
    rows = Notice.objects.filter(due_at__lte=now).exclude(channel=CHAT, address__in=sorted(shut))
    return (rows.exclude(channel=EMAIL) if EMAIL in shut else rows).order_by("due_at", "id")


def claim(*, shut: Collection[str], lease_s: float) -> Notice | None:
    """The oldest due notice through a place that is not `shut`, for this process alone and for so many seconds."""
    now = dbtime.now()
    for pk, at in list(_due(now, shut).values_list("pk", "due_at")[:CANDIDATES]):
        taken = Notice.objects.filter(pk=pk, due_at=at)
        if taken.update(due_at=now + timedelta(seconds=lease_s), tries=F("tries") + 1) == 1:
            return Notice.objects.select_related("approval").get(pk=pk)
    return None


def ended(notice: Notice, state: str, error: str = "") -> None:
    """It was sent, or there is nothing to tell any more (`moot`), or it was given up (`failed`)."""
    rows = Notice.objects.filter(pk=notice.pk)
    rows.update(state=state, error=error[:80], due_at=None, ended_at=dbtime.now())


def failed(notice: Notice, error: str, *, wait_s: float, for_good: bool) -> None:
    """It was not taken: again after so many seconds, or never, which staff are shown."""
    if for_good or notice.tries >= MOST_TRIES:
        ended(notice, "failed", error)
        return
    rows = Notice.objects.filter(pk=notice.pk, tries=notice.tries, state="due")
    rows.update(error=error[:80], due_at=dbtime.now() + timedelta(seconds=wait_s))
