"""A write that outlived its run: found due, settled by a late look, or by a person who looked. Part of the store.

A terminal status never changes; the outcome may be corrected, with an event (`write-path.md` 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F

from agentsite import dbtime
from runs.contracts import NewEvent, SeenWrite, WriteChange
from runs.errors import IntentLost
from runs.models import OPEN_WRITES, Attempt, Run, Write
from runs.states import TERMINAL
from runs.store import events
from runs.store.load import seen_write
from runs.store.money_rows import NEVER_MADE, change_write, lock_closing, look_before_closing
from tools.contracts import Refund

HOUR_S, DAY_S = 3600.0, 86_400.0
# After the run's end: at 1 h, 6 h, then daily for 30 days; afterwards only a person settles it.
LOOKS_S = (HOUR_S, 6 * HOUR_S, *(DAY_S * day for day in range(1, 31)))
HINT_AGAIN_S = 60.0
BATCH = 50
MAX_LISTED = 50
NEEDED = (
    "status", "outcome", "version", "last_seq", "chain_head", "agent", "trace_id", "lease_token", "completed_at",
    "updated_at",
)  # fmt: skip
ENDED = frozenset(s.value for s in TERMINAL)


@dataclass(frozen=True, kw_only=True)
class OpenWrite:
    """An open write that outlived its run, with what a late look needs.

    `seen_seq` is its run's last event at that moment. `lease` is empty for a run that has ended. Where no code can load
    a run that lives, it is the token by which the looker holds it, and `ended_at` is when the write began.
    """

    write: SeenWrite
    run_id: str
    tenant_id: str
    agent: str
    trace_id: str
    ended_at: datetime
    others: tuple[str, ...]
    seen_seq: int
    lease: str = ""


def due_writes() -> list[str]:
    """Keys of open writes of ended runs whose look is due; each is put off a minute, so that one hint goes out."""
    now = dbtime.now()
    rows = Write.objects.filter(state__in=OPEN_WRITES, look_at__lte=now, run__status__in=ENDED).order_by("look_at")
    keys = list(rows.values_list("key", "look_at")[:BATCH])
    later = now + timedelta(seconds=HINT_AGAIN_S)
    return [key for key, at in keys if Write.objects.filter(key=key, look_at=at).update(look_at=later) == 1]


def open_write(key: str, *, lease: str = "") -> OpenWrite | None:
    """The write, if it is still open and its run has ended or is held by `lease`, for whoever cannot load it.

    `others` are the states of the run's other writes.
    """
    row = Write.objects.filter(key=key, state__in=OPEN_WRITES).first()
    if row is None:
        return None
    run = Run.objects.only(*NEEDED).get(id=row.run_id)
    if run.status not in ENDED and not lease:
        return None
    tries = list(Attempt.objects.filter(write_id=key).order_by("number"))
    return OpenWrite(
        write=seen_write(row, tries), run_id=str(row.run_id), tenant_id=row.tenant_id, agent=run.agent,
        trace_id=run.trace_id, ended_at=row.intent_at if lease else run.completed_at or run.updated_at,
        others=states_beside(row), seen_seq=run.last_seq, lease=lease,
    )  # fmt: skip


def _held(found: OpenWrite) -> Run | None:
    """The run's row, locked; None where it lives and another worker has it by now."""
    # Only what is needed: a column that cannot be read must not keep its write from being settled.
    run = Run.objects.select_for_update(of=("self",)).only(*NEEDED).get(id=found.run_id)
    return run if run.status in ENDED or run.lease_token == found.lease else None


def states_beside(row: Write) -> tuple[str, ...]:
    """The states of the run's other writes."""
    return tuple(Write.objects.filter(run_id=row.run_id).exclude(key=row.key).values_list("state", flat=True))


def put_off(found: OpenWrite, why: str, *, absent: bool = False, listed: tuple[Refund, ...] | None = None) -> None:
    """Nothing to be told yet: look again at the timer's next step, or never by ourselves any more.

    What was looked at is recorded: a person who settles the write sees it. `listed` None: there was no answer.
    """
    now = dbtime.now()
    since_end = (now - found.ended_at).total_seconds()
    step = next((s for s in LOOKS_S if s > since_end), None)
    values: dict[str, object] = {"look_at": found.ended_at + timedelta(seconds=step) if step else None}
    if absent:
        values["absent_at"] = now
    with transaction.atomic():
        run = _held(found)
        if run is None:
            return
        if found.lease and found.write.state == "sent":
            values |= {"state": "unknown", "unknown_since": now}  # so that a person may settle it meanwhile
        Write.objects.filter(key=found.write.key).update(looks=F("looks") + 1, **values)
        events.note(run, [looked_event(found.write.key, why, listed)])


def looked_event(key: str, why: str, listed: tuple[Refund, ...] | None) -> NewEvent:
    """What a look at a write found: a slug, and the order's refunds as the business system listed them."""
    rows = None if listed is None else [refund_wire(refund) for refund in listed[:MAX_LISTED]]
    return NewEvent(type="write.looked", meta={"key": key, "found": why}, payload={"refunds": rows})


def refund_wire(refund: Refund) -> dict[str, object]:
    return {
        "refund_id": refund.refund_id, "payment_id": refund.payment_id, "state": refund.state,
        "amount": refund.amount.wire(), "created_at": refund.created_at, "idempotency_key": refund.idempotency_key,
    }  # fmt: skip


def settle(found: OpenWrite, change: WriteChange, *, outcome: str | None, event: NewEvent) -> None:
    """Close the write and correct the outcome of a run that has ended, with events, in one transaction.

    Raises IntentLost, `restored` while a fence is demanded and `fenced` where what proved an absence changed since it
    was read; then nothing changed.
    """
    look_before_closing(change)
    with transaction.atomic():
        lock_closing(change)
        run = _held(found)
        still_open = Write.objects.filter(key=change.key, state__in=OPEN_WRITES).exists()
        if run is None or not still_open:
            return
        if change.state == NEVER_MADE and run.last_seq != found.seen_seq:
            raise IntentLost("fenced")
        change_write(change, watch=change.state == "confirmed")
        told = (failed_notice(change.key),) if change.state == "failed" else ()
        corrected(run, outcome if run.status in ENDED else None, event, *told)


def failed_notice(key: str) -> NewEvent:
    """Staff are told that a refund failed after its run's end; nothing is re-issued by itself."""
    return NewEvent(type="notice", meta={"to": "staff", "error": "refund_failed", "key": key})


def corrected(run: Run, outcome: str | None, *happened: NewEvent, reply: str | None = None) -> None:
    """Record what happened after a run's end, and the outcome where it changes (None: it stays).

    `reply` takes the place of the one that was sent, in the same breath: whoever is told gets both.
    """
    found, columns = list(happened), dict[str, object]()
    if outcome is not None and outcome != run.outcome:
        found.append(NewEvent(type="run.corrected", meta={"from": run.outcome, "to": outcome}))
        columns["outcome"] = outcome
    if reply is not None:
        found.append(NewEvent(type="reply.sent", meta={"corrected": True}, payload={"text": reply}))
        columns["reply"] = reply
    events.note(run, found, **columns)
    run.outcome = outcome or run.outcome


def outcome_of(others: tuple[str, ...], *, made: bool) -> str:
    """The outcome of an ended run by what became of its last write; `others` are the states of its other ones."""
    if made:
        return "refunded" if set(others) <= {"confirmed"} else "partly_refunded"
    return "partly_refunded" if "confirmed" in others else "refund_failed"
