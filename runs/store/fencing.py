"""Fences a database that was put back: what was asked before is void, what was to be sent may have been. Part of store.

Bounded: one transaction a run. What dies half-way is done again from the start, and until it is done no write goes out.
Imports no zone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce

from agentsite import clock, dbtime, telemetry
from agentsite.tenants import switches
from agentsite.text import storable
from approvals import queue
from runs.contracts import NewEvent
from runs.models import LIVE_VALUES, OPEN_WRITES, Attempt, Run, Write
from runs.store import anchored, asks, events
from runs.store.money_rows import bump_guard

RESTORED = "restored"
DOUBTED = "write.doubted"
BATCH = 200
MAX_NOTE = 2000
_FREE = {"lease_token": None, "lease_until": None, "lease_deadline": None, "enqueued_at": None, "enqueue_tries": 0}


@dataclass(frozen=True, kw_only=True)
class FenceDone:
    """What a fence did. `demanded`: a fence was asked for; `at` is database time."""

    at: datetime
    demanded: bool
    approvals: int
    writes: int


def fence(*, reason: str, by: str) -> FenceDone:
    """Void every approval asked before now, doubt every open write, then let writes go again.

    No write of an order goes out before its refunds were listed `settle_s` after this (`write-path.md` 9, M124).
    """
    _, demanded_at = switches.fence()
    at, note = anchored.begin_fence(), storable(reason.strip())[:MAX_NOTE]
    approvals = _void_approvals(at, by, note)
    writes = _doubt_writes(at, by, note)
    anchored.keep_fence(at)
    switches.end_fence(at)
    telemetry.count("fences_done")
    telemetry.log("fence.done", by=by, approvals=approvals, writes=writes)
    return FenceDone(at=at, demanded=demanded_at is not None, approvals=approvals, writes=writes)


def _void_approvals(at: datetime, by: str, note: str) -> int:
    until, count, last = max(at, queue.newest() or at), 0, ""
    while found := queue.open_until(until, after=last, limit=BATCH):
        count += sum(_void(run_id, at, by, note) for _, run_id in found)
        last = found[-1][0]
    return count


def _void(run_id: str, at: datetime, by: str, note: str) -> bool:
    """The run loses its lease: a worker that looked before this has nothing to say any more."""
    with transaction.atomic():
        run = Run.objects.select_for_update().get(id=run_id)
        approval_id = queue.void(run_id, RESTORED)
        if approval_id is None:
            return False
        meta = {**asks.void_event(approval_id, RESTORED).meta, "by": by, "fenced_at": clock.rfc3339(at)}
        event = NewEvent(type="approval.void", meta=meta, payload={"note": note})
        events.note(run, [event], **_due_now(run))
    return True


def _doubt_writes(at: datetime, by: str, note: str) -> int:
    count, last = 0, ""
    rows = Write.objects.filter(Exists(_before(at).filter(write=OuterRef("pk"))), state__in=OPEN_WRITES)
    while keys := list(rows.filter(key__gt=last).order_by("key").values_list("key", flat=True)[:BATCH]):
        count += sum(_doubt(key, at, by, note) for key in keys)
        last = keys[-1]
    return count


def _before(at: datetime) -> QuerySet[Attempt]:
    return Attempt.objects.filter(Q(gives_up_at=None) | Q(gives_up_at__lt=at))


def _doubt(key: str, at: datetime, by: str, note: str) -> bool:
    """Prepared is no proof of never sent any more, and what was sent may have been sent again: until the fence.

    The first try counts from its preparation for the key's life; absence is proven only by looks after the fence.
    """
    with transaction.atomic():
        run = Run.objects.select_for_update(of=("self",)).get(writes__key=key)
        write = Write.objects.filter(key=key, state__in=OPEN_WRITES).first()
        if write is None:
            return False
        tries = _before(at).filter(write=write)
        doubted = list(tries.order_by("number").values_list("number", flat=True))
        tries.update(sent_at=Coalesce("sent_at", F("prepared_at")), gives_up_at=at)
        Write.objects.filter(key=key).update(**_doubtful(write, at))
        bump_guard(write.tenant_id, write.order_id)
        meta = {"key": key, "was": write.state, "attempts": doubted, "by": by, "fenced_at": clock.rfc3339(at)}
        events.note(run, [NewEvent(type=DOUBTED, meta=meta, payload={"note": note})], **_due_now(run))
    return True


def _doubtful(write: Write, at: datetime) -> dict[str, object]:
    """A pending one is known to be made; any other is unknown, and its patience begins anew. One more look at each."""
    looks: dict[str, object] = {"absent_at": None, "look_at": dbtime.now()}
    return looks if write.state == "pending" else looks | {"state": "unknown", "unknown_since": at}


def _due_now(run: Run) -> dict[str, object]:
    return _FREE | ({"due_at": dbtime.now()} if run.status in LIVE_VALUES else {})
