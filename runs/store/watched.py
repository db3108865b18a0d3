"""Confirmed refunds after their run's end: found due at 1, 3, 7, 14 and 30 days, and what a late failure corrects.

Part of the store. Nothing is re-issued here: a failure is recorded, the outcome and the customer's text corrected.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction

from agentsite import dbtime, env
from runs import reply
from runs.contracts import NewEvent, SeenWrite, WriteChange
from runs.models import Attempt, Run, Write
from runs.store import events, settled
from runs.store.load import seen_write
from runs.store.money_rows import WATCH_DAYS, change_write
from runs.store.tell import story

BATCH = 50
HINT_AGAIN_S = 60.0
# After the last day an unanswered look is repeated for this many days more, then given up, which staff are told.
GRACE_DAYS = 3


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A confirmed refund of an ended run that is due for a look. `step` counts looks that were answered."""

    write: SeenWrite
    run_id: str
    tenant_id: str
    agent: str
    trace_id: str
    step: int
    since: datetime
    others: tuple[str, ...]


def due_watches() -> list[str]:
    """Keys of confirmed refunds whose look is due; each is put off a minute, so that one hint goes out."""
    now = dbtime.now()
    rows = Write.objects.filter(watch_at__lte=now).order_by("watch_at")
    keys = list(rows.values_list("key", "watch_at")[:BATCH])
    later = now + timedelta(seconds=HINT_AGAIN_S)
    return [key for key, at in keys if Write.objects.filter(key=key, watch_at=at).update(watch_at=later) == 1]


def watched(key: str) -> Watched | None:
    """The refund, where its look is due: a doubled hint finds none. One whose run still lives waits an hour more."""
    due = dbtime.now() + timedelta(seconds=HINT_AGAIN_S)  # the hint that went out for it put it off as long
    row = Write.objects.select_related("run").filter(key=key, state="confirmed", watch_at__lte=due).first()
    if row is None or row.closed_at is None:
        return None
    if row.run.status not in settled.ENDED:
        _again_in_an_hour(row.key)
        return None
    return Watched(
        write=seen_write(row, list(Attempt.objects.filter(write=row).order_by("number"))), run_id=str(row.run_id),
        tenant_id=row.tenant_id, agent=row.run.agent, trace_id=row.run.trace_id, step=row.watched,
        since=row.closed_at, others=settled.states_beside(row),
    )  # fmt: skip


def _again_in_an_hour(key: str, **values: object) -> None:
    hour = timedelta(seconds=env.read().WATCH_DAY_S / 24)
    Write.objects.filter(key=key, watch_at__isnull=False).update(watch_at=dbtime.now() + hour, **values)


def unanswered(found: Watched, *, missing: bool = False) -> bool:
    """Look again in an hour; `missing`: the list came without it. False: given up, the time is over."""
    now, day_s = dbtime.now(), env.read().WATCH_DAY_S
    over = found.since + timedelta(seconds=day_s * (WATCH_DAYS[-1] + GRACE_DAYS))
    if now >= over:
        Write.objects.filter(key=found.write.key).update(watch_at=None)
        return False
    _again_in_an_hour(found.write.key, **({"absent_at": now} if missing else {}))
    return True


def answered(found: Watched, *, seen: bool, notice: NewEvent | None = None) -> None:
    """This day's look is done: on to the next day, or the watch is over. `notice`: what staff are told of it."""
    now, step, day_s = dbtime.now(), found.step + 1, env.read().WATCH_DAY_S
    later = [d for d in WATCH_DAYS[step:] if found.since + timedelta(seconds=day_s * d) > now]
    values = {"watch_at": found.since + timedelta(seconds=day_s * later[0]) if later else None,
              "watched": len(WATCH_DAYS) - len(later)}  # fmt: skip
    with transaction.atomic():
        run = Run.objects.select_for_update().get(id=found.run_id)
        rows = Write.objects.filter(key=found.write.key, state="confirmed", watched=found.step)
        if rows.update(**values, **({"seen_at": now, "absent_at": None} if seen else {})) == 1 and notice:
            events.note(run, [notice])


def failed(found: Watched, change: WriteChange, event: NewEvent) -> bool:
    """The refund failed after all: write, outcome, reply and staff in one transaction. False: somebody was first."""
    with transaction.atomic():
        run = Run.objects.select_for_update().get(id=found.run_id)
        if not Write.objects.filter(key=change.key, state="confirmed").exists():
            return False
        change_write(change)
        told = settled.failed_notice(change.key)
        outcome = settled.outcome_of(found.others, made=False)
        settled.corrected(run, outcome, event, told, reply=_true_words(run, outcome))
    return True


def _true_words(run: Run, outcome: str) -> str | None:
    """A reply that was sent is corrected; where none was, the message of this moment says it by itself."""
    if run.reply is None:
        return None
    Run.objects.filter(id=run.id).update(outcome=outcome)  # the story is told of the rows
    return reply.customer_message(story(str(run.id)))
