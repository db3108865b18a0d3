"""Control: how long each class of data is kept, and what is erased when its time is over. Imports no zone, no door.

The site's windows hold for all; a tenant's profile in force may only shorten them. Counted from a run's end. Every
round is bounded, and what dies half-way is found again by the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from django.contrib.sessions.models import Session
from django.db.models import QuerySet
from pydantic import ValidationError

from agentsite import clock, dbtime, env, telemetry
from agentsite.tenants import signin
from agentsite.tenants.models import AgentProfile, current_profile
from approvals import erasing as asked
from runs.models import Run
from runs.store import erasing

BATCH = 20
RETENTION = "retention"
EVERY_S, SOON_S = 3600.0, 2.0


@dataclass(frozen=True, kw_only=True)
class Window:
    """Since when what is older goes, by class. `tenant_id` and `agent` None: of every tenant, the site's own."""

    tenant_id: str | None
    agent: str | None
    conversation: datetime
    evidence: datetime
    deliveries: datetime

    def before(self, kind: erasing.Kind) -> datetime:
        return self.conversation if kind == erasing.CONVERSATION else self.evidence


@dataclass(frozen=True, kw_only=True)
class Purged:
    """How many runs lost a class, and how many messages to the outside and sessions are gone."""

    conversation: int = 0
    evidence: int = 0
    webhooks: int = 0
    notices: int = 0
    sessions: int = 0

    def __add__(self, other: Purged) -> Purged:
        mine, theirs = asdict(self), asdict(other)
        return Purged(**{name: mine[name] + theirs[name] for name in mine})

    @property
    def any(self) -> bool:
        return self != Purged()

    @property
    def full(self) -> bool:
        """Whether a round came to its bound, so that there may be more."""
        return max(self.conversation, self.evidence, self.webhooks, self.notices) >= BATCH


def windows(tenant_id: str | None = None) -> Iterator[Window]:
    """The site's window, narrowed to `tenant_id` where it is given, then each that a profile in force shortens."""
    site = env.read()
    days = (site.RETAIN_CONVERSATION_DAYS, site.RETAIN_EVIDENCE_DAYS, site.RETAIN_DELIVERIES_DAYS)
    now = dbtime.now()
    yield _window(now, tenant_id, None, days)
    rows = AgentProfile.objects.all() if tenant_id is None else AgentProfile.objects.filter(tenant_id=tenant_id)
    for tenant, agent in rows.order_by("tenant_id", "agent").values_list("tenant_id", "agent").distinct():
        shorter = _shortened(tenant, agent, days)
        if shorter != days:
            yield _window(now, tenant, agent, shorter)


def _window(now: datetime, tenant_id: str | None, agent: str | None, days: tuple[int, int, int]) -> Window:
    conversation, evidence, deliveries = (now - timedelta(days=number) for number in days)
    return Window(tenant_id=tenant_id, agent=agent, conversation=conversation, evidence=evidence, deliveries=deliveries)


def _shortened(tenant_id: str, agent: str, days: tuple[int, int, int]) -> tuple[int, int, int]:
    """A profile never lengthens; one that cannot be loaded leaves the site's windows as they are."""
    try:
        profile = current_profile(tenant_id, agent)
    except ValidationError:
        return days
    if profile is None:
        return days
    own = profile.retention
    return (
        min(days[0], own.conversation_days or days[0]), min(days[1], own.evidence_days or days[1]),
        min(days[2], own.deliveries_days or days[2]),
    )  # fmt: skip


def purge(*, by: str, tenant_id: str | None = None) -> Purged:
    """One bounded round: at most BATCH of each class and window; `full` where there may be more."""
    done = Purged()
    for window in windows(tenant_id):
        erased = {kind: _erase(window, kind, by) for kind in erasing.KINDS}
        done += Purged(**erased, webhooks=_drop_webhooks(window), notices=_drop_notices(window))
    if done.any:
        telemetry.log("data.erased", by=by, **asdict(done))
    return done


def _erase(window: Window, kind: erasing.Kind, by: str) -> int:
    return sum(_erase_one(str(run_id), kind, by) for run_id in _old(window, kind).values_list("id", flat=True)[:BATCH])


def _old(window: Window, kind: erasing.Kind) -> QuerySet[Run]:
    return erasing.erasable(kind, before=window.before(kind), tenant_id=window.tenant_id, agent=window.agent)


def _erase_one(run_id: str, kind: erasing.Kind, by: str) -> bool:
    try:
        return bool(erasing.erase(run_id, (kind,), why=RETENTION, by=by))
    except erasing.StillNeeded:  # somebody settled or looked meanwhile; a later round comes back to it
        return False


def _drop_webhooks(window: Window) -> int:
    rows = erasing.told(before=window.deliveries, tenant_id=window.tenant_id, agent=window.agent)
    ids = list(rows.values_list("pk", flat=True)[:BATCH])
    erasing.drop_webhooks(ids)
    return len(ids)


def _drop_notices(window: Window) -> int:
    rows = asked.sent_notices(before=window.deliveries, tenant_id=window.tenant_id)
    ids = list(rows.values_list("pk", flat=True)[:BATCH])
    asked.drop_notices(ids)
    return len(ids)


def due(tenant_id: str | None = None) -> Purged:
    """What a purge would erase now, counted; erases nothing."""
    ids: dict[str, set[object]] = {"conversation": set(), "evidence": set(), "webhooks": set(), "notices": set()}
    for window in windows(tenant_id):
        for kind in erasing.KINDS:
            ids[kind] |= set(_old(window, kind).values_list("id", flat=True))
        told = erasing.told(before=window.deliveries, tenant_id=window.tenant_id, agent=window.agent)
        ids["webhooks"] |= set(told.values_list("pk", flat=True))
        sent = asked.sent_notices(before=window.deliveries, tenant_id=window.tenant_id)
        ids["notices"] |= set(sent.values_list("pk", flat=True))
    return Purged(**{name: len(found) for name, found in ids.items()})


def end_sessions() -> int:
    """Sign-in sessions whose time is over are gone; how many."""
    now = clock.now()
    signin.forget(now - signin.FORGET)
    gone, _ = Session.objects.filter(expire_date__lt=now).delete()
    return gone


# --- a customer ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Forgotten:
    """What became of each run of a customer: erased now, erased before, or kept, and what stands in the way."""

    erased: tuple[str, ...]
    before: tuple[str, ...]
    kept: tuple[tuple[str, str], ...]
    webhooks: int = 0
    notices: int = 0


def forget(tenant_id: str, customer_id: str, *, why: str, by: str) -> Forgotten:
    """Every class of every ended run of a customer, at once; doing it again is harmless. `kept` is (request, why)."""
    erased, before, kept, webhooks, notices = list[str](), list[str](), list[tuple[str, str]](), 0, 0
    for run_id, request_id in erasing.of_customer(tenant_id, customer_id):
        try:
            done = erasing.erase(run_id, erasing.KINDS, why=why, by=by)
        except erasing.StillNeeded as stop:
            kept.append((request_id, stop.slug))
            continue
        (erased if done else before).append(request_id)
        webhooks += erasing.drop_webhooks_of(run_id)
        notices += asked.drop_notices_of(run_id)
    telemetry.log("customer.erased", tenant=tenant_id, by=by, runs=len(erased), kept=len(kept))
    return Forgotten(erased=tuple(erased), before=tuple(before), kept=tuple(kept), webhooks=webhooks, notices=notices)


# --- by itself -------------------------------------------------------------------------------------------------


class Rounds:
    """When a process that sweeps purges by itself: about once an hour, and soon again while there is more to do."""

    def __init__(self) -> None:
        self._next_at = clock.monotonic() + SOON_S

    def perhaps(self) -> Purged | None:
        """A round, where one is due; None where it is not."""
        if clock.monotonic() < self._next_at:
            return None
        self._next_at = clock.monotonic() + EVERY_S
        done = purge(by="sweeper")
        if done.full:
            self._next_at = clock.monotonic() + SOON_S
        else:
            end_sessions()
        return done
