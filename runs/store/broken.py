"""Ends a run that no code can load any more. Part of the store; the only status change without a RunState."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from django.db import transaction

from agentsite import dbtime
from approvals import queue
from runs.contracts import NewEvent
from runs.models import OPEN_WRITES, Run, Write
from runs.states import On, Status, next_status
from runs.store import events, inserts
from runs.store.inserts import Statement
from runs.store.lease import release

NEEDED = ("status", "version", "lease_token", "last_seq", "chain_head")


def fail_unloadable(run_id: str, token: str, why: str) -> Status | None:
    """`failed` with reason `schema_unknown`. While a write of it is open the run is kept and comes back (None).

    A release that can read it may go on then; else the write's own timer, looked at each time, settles the write.
    """
    if Write.objects.filter(run_id=run_id, state__in=OPEN_WRITES).exists():
        release(run_id, token, 60.0)
        return None
    with transaction.atomic():
        # Only what is needed: a column that cannot be read must not keep the run from ending.
        row = Run.objects.select_for_update().only(*NEEDED).get(id=run_id)
        if row.lease_token != token:
            return None
        to = next_status(Status(row.status), On.FAILED)
        queue.void(run_id, "run_failed")
        end = {"reason": "schema_unknown", "outcome": _outcome(run_id)}
        meta = {"from": row.status, "to": to.value, **end, "error": why}
        here = events.Position(seq=row.last_seq, head=row.chain_head)
        event = NewEvent(type="run.status", meta=meta)
        version = row.version + 1
        events.move(run_id, here, [(version, [event])], lambda at, rows: _put(run_id, to, version, at[-1], rows))
        _watch_unverified(run_id)
    return to


def _put(run_id: str, to: Status, version: int, at: events.Position, rows: Sequence[Statement]) -> None:
    inserts.add(rows)
    Run.objects.filter(id=run_id).update(
        status=to.value, reason="schema_unknown", outcome=_outcome(run_id), version=version, last_seq=at.seq,
        chain_head=at.head, due_at=None, lease_token=None, lease_until=None, waiting_for=None,
        completed_at=dbtime.now(), updated_at=dbtime.now(),
    )  # fmt: skip


def looks_due(run_id: str) -> list[str]:
    """Keys of the run's open writes whose timer has come; of the write's own columns alone."""
    due = Write.objects.filter(run_id=run_id, state__in=OPEN_WRITES, look_at__lte=dbtime.now())
    return list(due.values_list("key", flat=True))


def leave_to_a_person(key: str) -> None:
    """A write whose own row cannot be read: its timer goes on by the hour, and whoever looks it up may settle it."""
    later = dbtime.now() + timedelta(hours=1)
    Write.objects.filter(key=key, state__in=("intent", "sent")).update(state="unknown", unknown_since=dbtime.now())
    Write.objects.filter(key=key, state__in=OPEN_WRITES).update(look_at=later)


def _watch_unverified(run_id: str) -> None:
    """A refund that was answered and never read again is looked at like any other, from now on."""
    answered = Write.objects.filter(run_id=run_id, state="confirmed", watch_at=None, watched=0)
    answered.update(watch_at=dbtime.now())


def _outcome(run_id: str) -> str:
    """What was refunded and verified stays told, whoever takes the run over."""
    writes = Write.objects.filter(run_id=run_id).values_list("state", "watch_at", "watched")
    if any(state == "confirmed" and (watch_at or watched) for state, watch_at, watched in writes):
        return "partly_refunded"
    return "refund_failed" if any(state == "failed" for state, *_ in writes) else "handed_to_staff"
