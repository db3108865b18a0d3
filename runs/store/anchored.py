"""Compares the database with this host's anchor log: one that lacks what was sent from here is an older one.

Part of the store; of runs it writes `restored_at` alone. Every right to send is noted before it is used
(`write-path.md` 9).
"""

from __future__ import annotations

from collections.abc import Sized
from datetime import datetime
from uuid import UUID

from django.db import connection, transaction

from agentsite import anchors, canonical, clock, dbtime, statements, telemetry
from agentsite.anchors import Anchor
from agentsite.tenants import switches
from runs.contracts import RunState, SeenWrite
from runs.models import LIVE_VALUES, Run
from runs.store.events import Position
from runs.store.lease import raw_id

HELD = (
    "SELECT s.fenced_at, e.run_id, e.seq, e.mac FROM (SELECT 1 AS one) AS once LEFT JOIN tenants_site s ON s.id = 1 "
    "LEFT JOIN runs_event e ON e.run_id {runs} AND e.seq {places}"
)


def keep(run: RunState, write: SeenWrite, sent: Position, *, at: datetime) -> None:
    """Note that a write is about to be sent: after the commit that allows it, before the socket. Never raises.

    `sent` is the place of its `write.sent` event in the run's chain, `at` database time. The log outlives an erasure,
    so it holds hashes where a client chose the words.
    """
    anchors.append(
        Anchor(
            kind=anchors.WRITE, at=at, run=run.run_id, seq=sent.seq, mac=sent.head, key=canonical.sha256(write.key),
            order=canonical.sha256([run.tenant_id, write.order_id]),
        )
    )  # fmt: skip


def keep_fence(at: datetime) -> None:
    """Note a fence, so that a database from before it is known for an older one, too."""
    anchors.append(Anchor(kind=anchors.FENCE, at=at))


def behind() -> Anchor | None:
    """The newest anchor of this host that the database should hold and does not; None where it holds them all.

    What was sent before the last fence is forgiven: the fence has seen to it. Raises OSError where the log is there
    and cannot be read.
    """
    found = anchors.tail()
    if not found:
        return None
    fenced_at, held = _held([a for a in found if a.kind == anchors.WRITE])
    asked = [a for a in found if fenced_at is None or a.at > fenced_at]
    missing = [a for a in asked if a.kind == anchors.FENCE or (a.run, a.seq, a.mac) not in held]
    return missing[-1] if missing else None


def _held(asked: list[Anchor]) -> tuple[datetime | None, set[tuple[str, int, str]]]:
    """When the site was last fenced, and which of these the database holds, by one statement."""
    if not asked:
        return switches.fence()[0], set()
    # A few places too many, found in one index: the pairs one by one cost twice as much, before every send.
    runs, places = sorted({a.run for a in asked}), sorted({a.seq for a in asked})
    with statements.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(HELD.format(runs="= ANY(%s)", places="= ANY(%s)"), [[raw_id(run) for run in runs], places])
        else:
            cursor.execute(HELD.format(runs=_among(runs), places=_among(places)), [*map(raw_id, runs), *places])
        rows = cursor.fetchall()
    return dbtime.moment(rows[0][0]), {(str(UUID(str(run))), seq, mac) for _, run, seq, mac in rows if run is not None}


def _among(values: Sized) -> str:
    return f"IN ({', '.join(['%s'] * len(values))})"


def demands() -> bool:
    """Whether the database is older than this host's log; then a fence is demanded. An unreadable log demands none."""
    try:
        missing = behind()
    except OSError as error:
        telemetry.count("anchors_unreadable")
        telemetry.log("anchors.unreadable", error=type(error).__name__)
        return False
    if missing is None:
        return False
    if _demanded():
        telemetry.log("anchors.behind", kind=missing.kind, run_id=missing.run, at=clock.rfc3339(missing.at))
    return True


def _demanded() -> bool:
    """In one transaction: whoever finds the demand finds the runs marked, too."""
    with transaction.atomic():
        if not switches.demand_fence():
            return False
        put_back(dbtime.now())
    return True


def begin_fence() -> datetime:
    """Fence the site, no earlier than what this host sent: a clock may have been set back since."""
    try:
        sent_at = max((anchor.at for anchor in anchors.tail()), default=None)
    except OSError as error:
        sent_at = None
        telemetry.log("anchors.unreadable", error=type(error).__name__)
    at = switches.begin_fence(not_before=sent_at)
    put_back(at)
    return at


def fence_held_still() -> tuple[datetime | None, datetime | None]:
    """As `switches.fence`, of the site's row held shared for this transaction; before any run is locked."""
    share = " FOR SHARE" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        cursor.execute("SELECT fenced_at, fence_demanded_at FROM tenants_site WHERE id = 1" + share)
        fenced_at, demanded_at = cursor.fetchone() or (None, None)
    return dbtime.moment(fenced_at), dbtime.moment(demanded_at)


def put_back(at: datetime) -> None:
    """Every run that lives came back from a backup: what it says of refunds must be listed after `at`."""
    Run.objects.filter(status__in=LIVE_VALUES).update(restored_at=at)


def look() -> None:
    """What a process asks when it starts. A database in which no run ever was is fenced at once: nothing is to be void.

    Raises django.db's errors where the database is away.
    """
    if demands() and not Run.objects.exists():
        at = begin_fence()
        keep_fence(at)
        switches.end_fence(at)
        telemetry.log("fence.of_an_empty_database")
