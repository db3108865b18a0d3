"""One circuit breaker a dependency and account, one row for all processes; it may never import runs or approvals.

    closed     calls pass; BREAKER_FAILURES outages with no answer between them, or one that names a time, open it
    open       no call passes until `open_until`: BREAKER_COOL_S, doubled by every failed probe, or what was named
    half-open  `open_until` is over and one call passes, the probe; answered it closes, unanswered it opens for longer

Of all processes one probes: a compare-and-set in database time, with a lease that ends where its process was killed. It
spares a system that is down and decides nothing else: where its own row cannot be reached, calls pass.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from django.db import DatabaseError, InterfaceError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Case, DateTimeField, Expression, F, Q, QuerySet, When
from django.db.models.sql.compiler import SQLCompiler

from agentsite import clock, dbtime, env, telemetry
from tools.errors import ToolError, UpstreamUnavailable
from tools.models import Breaker

BUSINESS_SYSTEM = "business_system"
CACHED_S = 0.25
LEASE_GRACE_S = 2.0
PROBED_S = 1.0
MAX_KNOWN = 10_000
MAX_SHOWN = 100
MAX_ACCOUNT = 400
STANDS = "SELECT failures, opened_at, open_until, {now} FROM tools_breaker WHERE dependency = %s AND account = %s"
END_OF_PLACE = re.compile(r"[/?#]")

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Permit:
    """Leave to call. With a token it is the one probe; `failures` is what was counted when it was given."""

    dependency: str
    account: str
    failures: int = 0
    token: str = ""

    @property
    def probe(self) -> bool:
        return bool(self.token)


@dataclass(frozen=True, kw_only=True)
class Open:
    """No call now; asking again makes sense in so many seconds."""

    retry_in_s: float


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A breaker that is not closed. `left_s`: seconds until its next probe may go, 0 where it is half-open."""

    dependency: str
    account: str
    failures: int
    opened_at: datetime
    left_s: float


def account_of(tenant_id: str, url: str) -> str:
    """A tenant's account at the origin of a URL, such as `t_acme_in@https://shop.example`; holds no credential."""
    scheme, _, rest = url.partition("://")
    place = END_OF_PLACE.split(rest, maxsplit=1)[0].rpartition("@")[2]
    return f"{tenant_id}@{scheme}://{place.lower()}"[:MAX_ACCOUNT]


def cool_s(failures: int) -> float:
    """Seconds an opened breaker rests after so many failures: doubled by each beyond BREAKER_FAILURES, bounded."""
    site = env.read()
    beyond = min(max(0, failures - site.BREAKER_FAILURES), 32)
    return min(site.BREAKER_COOL_S * 2.0**beyond, site.BREAKER_MAX_COOL_S)


class _Row(NamedTuple):
    """A breaker's row at one moment."""

    failures: int
    opened_at: datetime | None
    open_until: datetime | None
    now: datetime | None


# --- asking --------------------------------------------------------------------------------------------------


def allow(dependency: str, account: str, *, look_up: bool = False, lease_s: float | None = None) -> Permit | Open:
    """Whether a call may go now. Ask in a thread that may use the database, and report its end (`succeeded`, `failed`).

    A `look_up` waits out the cooling time and no longer time that the other side named: money may hang on it. A probe
    loses its right after `lease_s` seconds, by default what a read may take and a little more.
    """
    passes = Permit(dependency=dependency, account=account)
    lease = env.read().CALL_TIMEOUT_S + LEASE_GRACE_S if lease_s is None else lease_s

    def asked() -> Permit | Open:
        return _known(passes) or _asked(passes, look_up, lease)

    return _reached(asked) or passes


def is_closed(dependency: str, account: str) -> bool:
    """Whether calls pass unasked; for a write, which must never be the probe."""
    passes = Permit(dependency=dependency, account=account)

    def closed() -> bool:
        if _known(passes) is not None:
            return True
        row = _row(passes)
        return row is None or row.open_until is None

    return _reached(closed) is not False


class Watch:
    """What the calls under one permit came to; any thread may tell it, none of them touches the database."""

    def __init__(self, account: str) -> None:
        self.account = account
        self._seen: list[ToolError | None] = []

    def saw(self, error: ToolError | None) -> None:
        """A call came to its end: with an answer, or with what went wrong."""
        self._seen.append(error)

    def report(self, permit: Permit) -> None:
        """Any answer shows that somebody is there, be it a refusal; an answer that names a time is always heeded."""
        seen = list(self._seen)
        down = [error for error in seen if isinstance(error, UpstreamUnavailable)]
        named = max((error.retry_after_s for error in down if error.retry_after_s is not None), default=None)
        if not seen:
            unused(permit)
        elif len(down) == len(seen) or named is not None:
            failed(permit, named)
        else:
            succeeded(permit)


@contextmanager
def watched(
    dependency: str, account: str, *, look_up: bool = False, lease_s: float | None = None
) -> Iterator[Watch]:  # fmt: skip
    """Ask once, call as often as needed, report once, all in this thread. Raises UpstreamUnavailable `breaker_open`."""
    permit = allow(dependency, account, look_up=look_up, lease_s=lease_s)
    if isinstance(permit, Open):
        raise UpstreamUnavailable(slug="breaker_open", retry_after_s=permit.retry_in_s)
    watch = Watch(account)
    try:
        yield watch
    finally:
        watch.report(permit)


# --- reporting -----------------------------------------------------------------------------------------------


def succeeded(permit: Permit) -> None:
    """The dependency answered. A closed breaker without failures is not written to."""
    if permit.probe:
        _reached(lambda: _answered(permit))
    elif permit.failures:
        _reached(lambda: _rows(permit).filter(open_until=None).update(failures=0, updated_at=Later(0)))
        _forget(permit)


def failed(permit: Permit, retry_after_s: float | None = None) -> None:
    """An outage; `retry_after_s` is the time the other side named, in seconds."""
    if permit.probe:
        _reached(lambda: _reopened(permit, retry_after_s or 0))
    else:
        _reached(lambda: _counted(permit, retry_after_s))
    _forget(permit)


def unused(permit: Permit) -> None:
    """Nothing was called: the next may probe."""
    if permit.probe:
        _reached(lambda: _mine(permit).update(**_FREE))


def standing() -> list[Standing]:
    """The breakers that are not closed, the longest open first, a hundred at most. Raises DatabaseError."""
    now = dbtime.now()
    rows = Breaker.objects.exclude(open_until=None).order_by("opened_at")[:MAX_SHOWN]
    return [
        Standing(
            dependency=row.dependency, account=row.account, failures=row.failures, opened_at=row.opened_at or now,
            left_s=_left_s(row.open_until, now),
        )
        for row in rows
    ]  # fmt: skip


def state(row: Breaker, now: datetime) -> str:
    """`closed`, `open` or `half_open`; `now` in database time."""
    if row.open_until is None:
        return "closed"
    return "open" if row.open_until > now else "half_open"


# --- the row -------------------------------------------------------------------------------------------------


class Later(Expression):
    """The database's own time, so many seconds on; negative ones are gone."""

    def __init__(self, seconds: float) -> None:
        super().__init__(output_field=DateTimeField())
        self.seconds = seconds

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, tuple[Any, ...]]:
        return dbtime.plus_sql(), (dbtime.plus_param(self.seconds),)


_FREE: dict[str, Any] = {"probe_token": "", "probe_until": None, "updated_at": Later(0)}
_CLOSED: dict[str, Any] = {"failures": 0, "opened_at": None, "open_until": None, **_FREE}


def _rows(permit: Permit) -> QuerySet[Breaker]:
    return Breaker.objects.filter(dependency=permit.dependency, account=permit.account)


def _mine(permit: Permit) -> QuerySet[Breaker]:
    """The row while its probe is still this one; a late prober whose lease another took changes nothing."""
    return _rows(permit).filter(probe_token=permit.token)


def _row(permit: Permit) -> _Row | None:
    """The row as it is now; remembered for a moment where it is closed."""
    with connection.cursor() as cursor:
        cursor.execute(STANDS.format(now=dbtime.now_sql()), [permit.dependency, permit.account])
        row = cursor.fetchone()
    if row is None:
        _remember(permit, 0)
        return None
    found = _Row(row[0], dbtime.moment(row[1]), dbtime.moment(row[2]), dbtime.moment(row[3]))
    if found.open_until is None:
        _remember(permit, found.failures)
    return found


def _asked(permit: Permit, look_up: bool, lease_s: float) -> Permit | Open:
    row = _row(permit)
    if row is None or row.open_until is None or row.now is None:
        return Permit(dependency=permit.dependency, account=permit.account, failures=row.failures if row else 0)
    now = row.now
    cools = cool_s(row.failures)
    left_s = _left_s(row.open_until, now)
    if look_up and row.opened_at is not None:
        left_s = min(left_s, max(0.0, cools - (now - row.opened_at).total_seconds()))
    if left_s > 0:
        return Open(retry_in_s=left_s)
    return _probe(permit, row.failures, cools if look_up else None, lease_s) or Open(retry_in_s=PROBED_S)


def _left_s(until: datetime | None, now: datetime) -> float:
    return max(0.0, (until - now).total_seconds()) if until is not None else 0.0


def _probe(permit: Permit, failures: int, cools_s: float | None, lease_s: float) -> Permit | None:
    """The probe, if nobody has it; with `cools_s` (a look-up) a breaker that has cooled for so long is due as well."""
    due = Q(open_until__lte=Later(0)) | (Q() if cools_s is None else Q(opened_at__lte=Later(-cools_s)))
    free = Q(probe_until=None) | Q(probe_until__lte=Later(0))
    token = secrets.token_hex(8)
    taken = _rows(permit).filter(due, free, failures=failures).update(
        probe_token=token, probe_until=Later(lease_s), updated_at=Later(0)
    )  # fmt: skip
    if not taken:
        return None
    _tell("probing", permit, failures=failures)
    return Permit(dependency=permit.dependency, account=permit.account, failures=failures, token=token)


def _answered(permit: Permit) -> None:
    """The probe was answered: closed, unless the other side named a time that is not over (a look-up's probe)."""
    if _mine(permit).filter(open_until__lte=Later(0)).update(**_CLOSED):
        _tell("closed", permit)
    else:
        _mine(permit).update(opened_at=Later(0), **_FREE)


def _reopened(permit: Permit, named_s: float) -> None:
    wait_s = max(cool_s(permit.failures + 1), named_s)
    if _mine(permit).update(failures=permit.failures + 1, opened_at=Later(0), open_until=_at_least(wait_s), **_FREE):
        _tell("opened", permit, failures=permit.failures + 1, wait_s=wait_s)


def _counted(permit: Permit, named_s: float | None) -> None:
    """One more outage of a closed breaker; of all that report, one opens it. An open one may be told a longer time."""
    closed = _rows(permit).filter(open_until=None)
    if not closed.update(failures=F("failures") + 1, updated_at=Later(0)):
        new = Breaker(dependency=permit.dependency, account=permit.account, failures=0, updated_at=Later(0))
        Breaker.objects.bulk_create([new], ignore_conflicts=True)
        closed.update(failures=F("failures") + 1, updated_at=Later(0))
    many = env.read().BREAKER_FAILURES
    due = closed.filter(failures__gte=1 if named_s is not None else many)
    wait_s = max(cool_s(0), named_s or 0)
    # From here on each further failure is a probe's; what a crowd reported at once must not count as many of them.
    if due.update(failures=many, opened_at=Later(0), open_until=Later(wait_s), updated_at=Later(0)):
        _tell("opened", permit, wait_s=wait_s)
    elif named_s is not None:
        _rows(permit).exclude(open_until=None).update(open_until=_at_least(named_s), updated_at=Later(0))


def _at_least(seconds: float) -> Case:
    """`open_until`, if it lies further on than so many seconds from now, else that moment."""
    return Case(When(open_until__gt=Later(seconds), then=F("open_until")), default=Later(seconds))


def _tell(what: str, permit: Permit, **more: Any) -> None:
    telemetry.count(f"breaker_{what}", dependency=permit.dependency)
    telemetry.log(f"breaker.{what}", dependency=permit.dependency, account=permit.account, **more)


def _reached(ask: Callable[[], T]) -> T | None:
    """What the row says; None where it cannot be reached. A connection that was not held is not held afterwards."""
    held = connection.connection is not None
    try:
        return ask()
    except (DatabaseError, InterfaceError) as error:
        telemetry.log("breaker.unreachable", error=type(error).__name__)
        return None
    finally:
        if not held and not connection.in_atomic_block:
            connection.close()


# --- what this process knows -----------------------------------------------------------------------------------

_seen_closed: dict[tuple[int, str, str], tuple[float, int]] = {}
"""(process, dependency, account) to when a breaker was seen closed, and its failures; an open one is always asked."""


def _key(permit: Permit) -> tuple[int, str, str]:
    return os.getpid(), permit.dependency, permit.account


def _known(permit: Permit) -> Permit | None:
    at, failures = _seen_closed.get(_key(permit), (0.0, 0))
    if not at or clock.monotonic() - at > CACHED_S:
        return None
    return Permit(dependency=permit.dependency, account=permit.account, failures=failures)


def _remember(permit: Permit, failures: int) -> None:
    if len(_seen_closed) >= MAX_KNOWN:
        _seen_closed.clear()
    _seen_closed[_key(permit)] = (clock.monotonic(), failures)


def _forget(permit: Permit) -> None:
    _seen_closed.pop(_key(permit), None)
