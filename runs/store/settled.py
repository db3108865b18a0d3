"""A write that outlived its run: found due, and settled by a late look. Part of the store.

A terminal status never changes; the outcome may be corrected, with an event (`write-path.md` 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F

from agentsite import dbtime
from runs.contracts import NewEvent, SeenWrite, WriteChange
from runs.models import OPEN_WRITES, Attempt, Run, Write
from runs.states import TERMINAL
from runs.store import events
from runs.store.load import seen_write
from runs.store.money_rows import change_write

HOUR_S, DAY_S = 3600.0, 86_400.0
# After the run's end: at 1 h, 6 h, then daily for 30 days; afterwards only a person settles it.
LOOKS_S = (HOUR_S, 6 * HOUR_S, *(DAY_S * day for day in range(1, 31)))
HINT_AGAIN_S = 60.0
BATCH = 50


@dataclass(frozen=True, kw_only=True)
class OpenWrite:
    """An open write whose run has ended, with what a late look needs."""

    write: SeenWrite
    run_id: str
    tenant_id: str
    agent: str
    trace_id: str
    ended_at: datetime
    others: tuple[str, ...]


def due_writes() -> list[str]:
    """Keys of open writes of ended runs whose look is due; each is put off a minute, so that one hint goes out."""
    now = dbtime.now()
    ended = [s.value for s in TERMINAL]
    rows = Write.objects.filter(state__in=OPEN_WRITES, look_at__lte=now, run__status__in=ended).order_by("look_at")
    keys = list(rows.values_list("key", "look_at")[:BATCH])
    later = now + timedelta(seconds=HINT_AGAIN_S)
    return [key for key, at in keys if Write.objects.filter(key=key, look_at=at).update(look_at=later) == 1]


def open_write(key: str) -> OpenWrite | None:
    """The write, if it is still open and its run has ended; `others` are the states of the run's other writes."""
    row = Write.objects.select_related("run").filter(key=key, state__in=OPEN_WRITES).first()
    if row is None or row.run.status not in {s.value for s in TERMINAL}:
        return None
    tries = list(Attempt.objects.filter(write_id=key).order_by("number"))
    return OpenWrite(
        write=seen_write(row, tries), run_id=str(row.run_id), tenant_id=row.tenant_id, agent=row.run.agent,
        trace_id=row.run.trace_id, ended_at=row.run.completed_at or row.run.updated_at,
        others=tuple(Write.objects.filter(run_id=row.run_id).exclude(key=key).values_list("state", flat=True)),
    )  # fmt: skip


def put_off(found: OpenWrite, *, absent: bool = False) -> None:
    """Nothing to be told yet: look again at the timer's next step, or never by ourselves any more."""
    now = dbtime.now()
    since_end = (now - found.ended_at).total_seconds()
    step = next((s for s in LOOKS_S if s > since_end), None)
    values: dict[str, object] = {"look_at": found.ended_at + timedelta(seconds=step) if step else None}
    if absent:
        values["absent_at"] = now
    Write.objects.filter(key=found.write.key).update(looks=F("looks") + 1, **values)


def settle(found: OpenWrite, change: WriteChange, *, outcome: str | None, event: NewEvent) -> None:
    """Close the write and correct the run's outcome, with events, in one transaction."""
    with transaction.atomic():
        run = Run.objects.select_for_update().get(id=found.run_id)
        still_open = Write.objects.filter(key=change.key, state__in=OPEN_WRITES).exists()
        if not still_open:
            return
        change_write(change)
        happened = [event]
        if outcome is not None and outcome != run.outcome:
            happened.append(NewEvent(type="run.corrected", meta={"from": run.outcome, "to": outcome}))
        here = events.Position(seq=run.last_seq, head=run.chain_head)
        position = events.append(found.run_id, here, run.version, happened)
        Run.objects.filter(id=run.id).update(
            last_seq=position.seq, chain_head=position.head, outcome=outcome or run.outcome, updated_at=dbtime.now()
        )
