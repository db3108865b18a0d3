"""Roof: gauges of what waits for people, and of what was told to people and programs outside. Reads rows only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from agentsite.metrics.families import BOUNDED, MOST, Family, Part, Sample, age, quantiles
from agentsite.tenants.models import Tenant
from approvals.models import Approval, Notice
from runs.models import Qualification, Shadow, Webhook
from runs.models.measured import VERDICTS
from tools.models import PolicyIncident

MOST_FIRST, MOST_DECISIONS, MOST_SHADOWS, MOST_TENANTS = 200, 200, 5_000, 200
SOON = timedelta(hours=1)
DAY, WEEK = timedelta(days=1), timedelta(days=7)
REMEMBERED = timedelta(days=30)

PENDING = Family(name="approvals_pending", words="approvals that wait for a person")
OLDEST = Family(
    name="approvals_oldest_pending_seconds", words="age of the oldest pending approval, of the 200 that expire first"
)
EXPIRING = Family(name="approvals_expiring", words="pending approvals that expire within an hour")
UNSEEN = Family(name="approvals_expiring_unclaimed", words="those of them that nobody works on")
DECIDED = Family(
    name="approvals_ended", labels=("how",),
    words="approvals of which a person decided within 24 hours, and those that expired undecided in that time",
)  # fmt: skip
WAITED = Family(
    name="approval_wait_seconds", labels=("quantile",),
    words="from question to decision, of the newest two hundred decisions within 24 hours",
)  # fmt: skip
WEBHOOKS = Family(name="webhooks", labels=("state",), words="webhooks that are due, and those given up")
WEBHOOK_AGE = Family(name="webhooks_oldest_due_seconds", words="age of the oldest webhook that is not delivered")
NOTICES = Family(
    name="notices", labels=("state",), words="notices to staff that are due, and those that could not be sent"
)
NOTICE_AGE = Family(name="notices_oldest_due_seconds", words="age of the oldest notice that is not sent")
INCIDENTS = Family(
    name="policy_incidents_open", words="policy versions that profiles pin and that are not current"
)  # fmt: skip
QUALIFIED = Family(
    name="qualifications_manual", labels=("standing",),
    words="qualifications made by hand that end within 7 days, and those that ended within 30, without a later one",
)  # fmt: skip
SHADOWED = Family(name="tenants_shadow", words="tenants in shadow mode")
OPEN = Family(name="shadow_open", words="proposals of shadow mode that wait to be compared with what staff did")
COMPARED = Family(
    name="shadow_verdicts", labels=("verdict",),
    words="proposals of tenants in shadow mode, compared within 24 hours, by verdict",
)  # fmt: skip


def _count(rows: QuerySet[Any], along: str) -> int:
    """How many rows there are, MOST standing for more; along the index that has them in this order, row by row."""
    return int(rows.order_by(along).values_list(along.removeprefix("-"), flat=True)[:MOST].count())


# --- decisions ---------------------------------------------------------------------------------------------------


def _pending(now: datetime) -> Iterator[Sample]:
    pending = Approval.objects.filter(status="pending")
    count = _count(pending, "expires_at")
    first = pending.order_by("expires_at").values_list("requested_at", flat=True)[:MOST_FIRST]
    yield PENDING.at(count)
    yield OLDEST.at(age(min(first, default=None), now))
    yield BOUNDED.at(count >= MOST, "pending")
    soon = Approval.objects.filter(status="pending", expires_at__gt=now, expires_at__lte=now + SOON)
    yield EXPIRING.at(_count(soon, "expires_at"))
    yield UNSEEN.at(_count(soon.filter(Q(claimed_until=None) | Q(claimed_until__lt=now)), "expires_at"))


def _decided(now: datetime) -> Iterator[Sample]:
    decided = Approval.objects.filter(decided_at__isnull=False, decided_at__gte=now - DAY)
    lapsed = Approval.objects.filter(status="expired", expires_at__gte=now - DAY)
    yield DECIDED.at(_count(decided, "-decided_at"), "decided")
    yield DECIDED.at(_count(lapsed, "-expires_at"), "expired")
    newest = decided.order_by("-decided_at").values_list("requested_at", "decided_at")[:MOST_DECISIONS]
    for share, waited_s in quantiles(age(asked, answered) for asked, answered in newest if answered).items():
        yield WAITED.at(waited_s, share)


# --- what is told ------------------------------------------------------------------------------------------------


def _webhooks(now: datetime) -> Iterator[Sample]:
    rows = Webhook.objects.all()
    yield from WEBHOOKS.each({state: _count(rows.filter(state=state), "-created_at") for state in ("dead", "due")})
    yield WEBHOOK_AGE.at(_oldest(rows.filter(state="due"), now))


def _notices(now: datetime) -> Iterator[Sample]:
    rows = Notice.objects.all()
    yield from NOTICES.each({state: _count(rows.filter(state=state), "created_at") for state in ("due", "failed")})
    yield NOTICE_AGE.at(_oldest(rows.filter(state="due"), now))


def _oldest(rows: QuerySet[Any], now: datetime) -> float:
    return age(rows.order_by("created_at").values_list("created_at", flat=True).first(), now)


# --- what people have to keep current ----------------------------------------------------------------------------


def _incidents(now: datetime) -> Iterator[Sample]:
    yield INCIDENTS.at(PolicyIncident.objects.filter(closed_at=None).count())


def _qualifications(now: datetime) -> Iterator[Sample]:
    """A route that has another qualification for longer needs nobody."""
    by_hand = Qualification.objects.filter(kind="manual", revoked=False)
    ending = by_hand.filter(~_also_until(now + WEEK), ends_at__gt=now, ends_at__lte=now + WEEK)
    over = by_hand.filter(~_also_until(now), ends_at__gt=now - REMEMBERED, ends_at__lte=now)
    yield from QUALIFIED.each({"ending": ending.count(), "ended": over.count()})


def _also_until(at: datetime) -> Exists:
    same = ("agent", "provider", "origin", "requested_model", "answered_model")
    others = Qualification.objects.filter(revoked=False, **{name: OuterRef(name) for name in same})
    return Exists(others.filter(Q(ends_at=None) | Q(ends_at__gt=at)))


def _shadow(now: datetime) -> Iterator[Sample]:
    tenants = list(Tenant.objects.filter(shadow=True).values_list("pk", flat=True)[:MOST_TENANTS])
    yield SHADOWED.at(len(tenants))
    yield OPEN.at(_count(Shadow.objects.filter(compare_at__isnull=False), "compare_at"))
    lately = Shadow.objects.filter(tenant_id__in=tenants, at__gte=now - WEEK).order_by("-at")
    newest = lately.values_list("verdict", "compared_at")[:MOST_SHADOWS]
    counted = Counter(dict.fromkeys((verdict for verdict in VERDICTS if verdict != "open"), 0))
    counted.update(verdict for verdict, at in newest if at is not None and at >= now - DAY)
    yield from COMPARED.each(counted)


PARTS = (
    Part(name="pending", families=(PENDING, OLDEST, EXPIRING, UNSEEN), read=_pending),
    Part(name="decided", families=(DECIDED, WAITED), read=_decided),
    Part(name="webhooks", families=(WEBHOOKS, WEBHOOK_AGE), read=_webhooks),
    Part(name="notices", families=(NOTICES, NOTICE_AGE), read=_notices),
    Part(name="policies", families=(INCIDENTS,), read=_incidents),
    Part(name="qualifications", families=(QUALIFIED,), read=_qualifications),
    Part(name="shadow", families=(SHADOWED, OPEN, COMPARED), read=_shadow),
)
