"""What people do beside the machine: hurry or finish a run, look at a write again, settle it. Part of the store.

Each act is one transaction with its event and who did it; what is no longer so when it commits is refused. A terminal
status never changes. Imports no zone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Max

from agentsite import dbtime, redaction
from agentsite.money import Money
from agentsite.refusals import Refusal
from agentsite.text import has_forbidden, storable
from runs.contracts import NewEvent, WriteChange
from runs.models import LIVE_VALUES, OPEN_WRITES, Attempt, Event, Run, Write
from runs.store import anchored, events, settled, shadows
from runs.store.lease import raw_id
from runs.store.money_rows import change_write
from runs.store.tell import FOUND_BY_STAFF
from tools.contracts import Refund

MAX_NOTE, MAX_TEXT, MAX_SEEN = 2000, 4000, 2000
REFUND_ID = re.compile(r"[A-Za-z0-9_.:@/-]{1,128}")
RESOLVED = "resolved_by_staff"
NEEDED = ("status", "outcome", "version", "last_seq", "chain_head")
# A run that completed and whose refund failed afterwards is a person's again.
REOPENED = ("refund_failed", "partly_refunded")
CHANGED = Refusal(409, "changed-meanwhile", "It changed while you looked.", "Read it again, then decide.")


def hurry(run_id: str, *, by: str, reason: str, note: str) -> bool:
    """Make a live run that nobody works on due now, and nothing else. False: it has ended, or a worker has it."""
    now = dbtime.now_sql()
    live = ", ".join(f"'{value}'" for value in LIVE_VALUES)
    with transaction.atomic():
        run = Run.objects.select_for_update().only(*NEEDED).get(id=run_id)
        with connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE runs_run SET due_at = {now}, enqueued_at = NULL, enqueue_tries = 0 WHERE id = %s "
                f"AND status IN ({live}) AND (lease_token IS NULL OR lease_until < {now})",
                [raw_id(run_id)],
            )
            hurried: int = cursor.rowcount
        if hurried == 1:
            meta = {"by": by, "reason": reason}
            events.note(run, [NewEvent(type="run.hurried", meta=meta, payload={"note": storable(note)})])
    return hurried == 1


# --- finishing a run -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """How a person finished a run: `text` is for the customer, in his own words; `note` stays inside.

    `seen_seq` is the run's last event when the person looked.
    """

    run_id: str
    by: str
    reason: str
    note: str
    text: str
    seen_seq: int


def may_finish(status: str, outcome: str | None) -> bool:
    """Whether a run is a person's to finish: escalated, failed, or ended with a refund that failed afterwards."""
    handed_over = status in ("escalated", "failed") or (status == "completed" and outcome in REOPENED)
    return handed_over or outcome == "refund_failed"


def finish(resolution: Resolution) -> None:
    """Outcome `resolved_by_staff`; the text becomes the reply. Raises Refusal; then nothing changed."""
    for text in (resolution.text, resolution.note):
        if has_forbidden(text):
            raise Refusal(400, "forbidden-characters", "The text holds characters that cannot be stored.")
    text = redaction.text(storable(resolution.text.strip()))[:MAX_TEXT]
    note = storable(resolution.note.strip())[:MAX_NOTE]
    if not text:
        raise Refusal(400, "text-missing", "The customer must be told something.")
    with transaction.atomic():
        run = Run.objects.select_for_update().only(*NEEDED).get(id=resolution.run_id)
        _finishable(run, resolution.seen_seq)
        meta = {"from": run.outcome, "to": RESOLVED, "by": resolution.by, "reason": resolution.reason}
        done = NewEvent(type="run.resolved", meta=meta, payload={"note": note, "text": text})
        sent = NewEvent(type="reply.sent", meta={"by": resolution.by}, payload={"text": text})
        again = {"conversation_erased_at": None}  # new words, erased by their own time
        events.note(run, [done, sent], outcome=RESOLVED, reply=text, **again)
        shadows.compare_now(resolution.run_id)


def _finishable(run: Run, seen_seq: int) -> None:
    if run.outcome == RESOLVED:
        last = Event.objects.filter(run=run, type="run.resolved").order_by("-seq").first()
        by = last.meta.get("by", "") if last else "staff"
        raise Refusal(409, "already-finished", "This run was finished by hand already.", f"By {by}.")
    if not may_finish(run.status, run.outcome):
        raise Refusal(409, "not-a-persons", "Only an escalated or failed run is finished by hand.")
    if run.last_seq != seen_seq:
        raise CHANGED
    if Write.objects.filter(run=run, state__in=OPEN_WRITES).exists():
        raise Refusal(409, "write-open", "Its write is not settled.", "Settle the write first; then finish the run.")


# --- settling a write ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Settlement:
    """What a person found out about a write: `made` with its refund's id and amount, or not made; and what he saw.

    `quiet_s` is how long the business system may take after an attempt's end (its `settle_s`).
    """

    key: str
    by: str
    reason: str
    seen: str
    seen_seq: int
    made: bool
    refund_id: str = ""
    amount: Money | None = None
    quiet_s: float = 0.0


def look_now(key: str, *, by: str) -> bool:
    """An open write of an ended run is looked up at once. False: it is not open, or its run lives."""
    with transaction.atomic():
        run = _run_of(key)
        if run.status not in settled.ENDED:
            return False
        if Write.objects.filter(key=key, state__in=OPEN_WRITES).update(look_at=dbtime.now()) != 1:
            return False
        events.note(run, [NewEvent(type="write.look_asked", meta={"key": key, "by": by})])
    return True


def may_settle(state: str, run_status: str) -> bool:
    """Whether a person may settle a write: open, and its run has ended or nobody knows what became of it."""
    return state in OPEN_WRITES and (run_status in settled.ENDED or state == "unknown")


def settle(given: Settlement) -> str:
    """Close an open write by what a person saw, and free its order. Returns the run's status.

    The outcome of an ended run is corrected; a live run goes on by itself: what was made is verified independently.
    Raises Refusal; then nothing changed. A worker that was about to send it again is fenced out.
    """
    _readable(given)
    if not given.made:
        anchored.demands()
    with transaction.atomic():
        _not_restored(given)
        run = _run_of(given.key)
        write = Write.objects.get(key=given.key)
        _settleable(write, run, given)
        change_write(_change(write, given), watch=given.made and run.status in settled.ENDED)
        event = _event(write, given)
        if run.status in settled.ENDED:
            settled.corrected(run, _outcome(write, given), event)
        else:
            free = {"lease_token": None, "lease_until": None, "lease_deadline": None}
            events.note(run, [event], due_at=dbtime.now(), enqueued_at=None, enqueue_tries=0, **free)
    return run.status


def _not_restored(given: Settlement) -> None:
    """The site's row is held before the run's: while a fence is demanded, nobody says what was not made."""
    if not given.made and anchored.fence_held_still()[1] is not None:
        raise Refusal(
            409, "fence-demanded", "The database is an older one and was not fenced yet.",
            "What was sent since may be missing from it. Run `manage.py fence`, look once more, then settle it.",
        )  # fmt: skip


def _run_of(key: str) -> Run:
    return Run.objects.select_for_update(of=("self",)).only(*NEEDED).get(writes__key=key)


def _readable(given: Settlement) -> None:
    if not given.seen.strip() or has_forbidden(given.seen):
        raise Refusal(400, "seen-missing", "Say what you saw, and where.")
    if given.made and not REFUND_ID.fullmatch(given.refund_id):
        raise Refusal(400, "refund-id-missing", "A refund that was made has an id.", "Give it as the provider does.")
    if given.made and given.amount is None:
        raise Refusal(400, "amount-missing", "Give the amount that was refunded.")


def _settleable(write: Write, run: Run, given: Settlement) -> None:
    if write.state not in OPEN_WRITES:
        raise Refusal(409, "already-settled", "This write was settled already.", f"It is {write.state}.")
    if not may_settle(write.state, run.status):
        raise Refusal(409, "still-under-way", "Its run still works on this write.", "Let it look first.")
    if run.last_seq != given.seen_seq:
        raise CHANGED
    if given.made:
        _unclaimed(write, given, ended=run.status in settled.ENDED)
    elif (until := quiet_until(write, given.quiet_s)) is not None and until > dbtime.now():
        until_text = f"{until:%Y-%m-%d %H:%M:%S} UTC"
        raise Refusal(409, "may-still-arrive", "Its last attempt may still arrive.", f"Not before {until_text}.")


def quiet_until(write: Write, quiet_s: float) -> datetime | None:
    """When nothing of what was sent can arrive any more; None where nothing was ever sent."""
    last = Attempt.objects.filter(write=write).aggregate(last=Max("gives_up_at"))["last"]
    return last + timedelta(seconds=quiet_s) if last else None


def _unclaimed(write: Write, given: Settlement, *, ended: bool) -> None:
    assert given.amount is not None, "a refund that was made has an amount"
    if given.amount.currency != write.currency or given.amount.minor <= 0:
        raise Refusal(400, "amount-wrong", f"The amount is above zero, in {write.currency}.")
    if given.amount.minor != write.amount_minor and not ended:
        raise Refusal(409, "amount-differs", "Its run lives and expects what was asked.", "Wait for its end.")
    others = Write.objects.filter(tenant_id=write.tenant_id, refund_id=given.refund_id).exclude(key=write.key)
    if others.exists():
        raise Refusal(409, "refund-of-another", "That refund belongs to another write of ours.")


def _change(write: Write, given: Settlement) -> WriteChange:
    if not given.made:
        return WriteChange(key=write.key, state="not_sent", answer="absent_by_staff")
    assert given.amount is not None
    refund = Refund(
        refund_id=given.refund_id, payment_id=write.payment_id, order_id=write.order_id, state="succeeded",
        amount=given.amount, idempotency_key=None, metadata=None, created_at=None,
    )  # fmt: skip
    return WriteChange(key=write.key, state="confirmed", refund=refund, answer=FOUND_BY_STAFF)


def _event(write: Write, given: Settlement) -> NewEvent:
    meta = {
        "key": write.key, "by": given.by, "reason": given.reason, "state": "confirmed" if given.made else "not_sent",
        "was": write.state, "refund_id": given.refund_id if given.made else None,
        "amount": given.amount.wire() if given.made and given.amount else None,
    }  # fmt: skip
    seen = storable(given.seen.strip())[:MAX_SEEN]
    return NewEvent(type="write.settled_by_staff", meta=meta, payload={"seen": seen})


def _outcome(write: Write, given: Settlement) -> str | None:
    if not given.made:
        return None
    whole = given.amount is not None and given.amount.minor >= write.amount_minor
    return settled.outcome_of(settled.states_beside(write), made=True) if whole else "partly_refunded"
