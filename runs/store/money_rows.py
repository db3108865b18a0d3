"""Writes, attempts, order guards and counters: the rows where money can be lost. Part of the store.

The intent checks everything as row counts in one transaction or raises IntentLost, and then nothing happened.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import F, Max

from agentsite import clock, dbtime, env
from agentsite.money import Money
from approvals import queue
from runs import numbering
from runs.contracts import Intent, NewEvent, Outcome, RunState, SeenWrite, WriteChange
from runs.errors import Fenced, IntentLost
from runs.models import OPEN_WRITES, Attempt, Counter, OrderGuard, Run, RunOrder, Write
from runs.states import On
from runs.store import anchored, events, folding
from tools.contracts import OwnWrite, Refund, Release, SentMark, UsedSoFar

NEVER_MADE = "not_sent"
GONE = (NEVER_MADE, "refused", "failed")
CLOSED = ("confirmed", "failed", "refused", "not_sent")
ORDER_WINDOW = timedelta(days=30)
SEND_MARGIN_S = 5.0
WATCH_DAYS = (1, 3, 7, 14, 30)
_SHARE = {"postgresql": " FOR SHARE"}


def lock_switches(run: RunState, release: Release) -> None:
    """Hold the switches and the fence still for this transaction. Raises IntentLost: `shadow`, `paused`, `restored`,
    `fenced`.

    `shadow`: the run was admitted to propose alone, or its tenant is in shadow mode.
    `fenced`: the order's refunds were listed (after `run.now`) before all that was sent up to the fence had to show.
    """
    stopped, fenced_at = _held(run)
    if stopped is not None:
        raise IntentLost(stopped)
    settle_s = env.read().VERIFY_FOR_S if release.settle_s is None else release.settle_s
    if fenced_at is not None and run.now <= fenced_at + timedelta(seconds=settle_s):
        raise IntentLost("fenced")


def _held(run: RunState) -> tuple[str | None, datetime | None]:
    """(what stops every write of the run, when the site was last fenced); both rows are held still."""
    share = _SHARE.get(connection.vendor, "")
    with connection.cursor() as cursor:
        cursor.execute("SELECT paused, fence_demanded_at, fenced_at FROM tenants_site WHERE id = 1" + share)
        paused, demanded, fenced_at = cursor.fetchone() or (False, None, None)
        cursor.execute("SELECT paused, shadow FROM tenants_tenant WHERE id = %s" + share, [run.tenant_id])
        tenant_paused, shadow = cursor.fetchone() or (False, False)
    if run.contract.shadow or shadow:
        return "shadow", None
    if paused or tenant_paused:
        return "paused", None
    return "restored" if demanded is not None else None, dbtime.moment(fenced_at)


def look_before_closing(change: WriteChange | None) -> None:
    """Before the transaction that closes a write as never made: a database that lacks what was sent demands a fence."""
    if change is not None and change.state == NEVER_MADE:
        anchored.demands()


def lock_closing(change: WriteChange) -> None:
    """Hold the fence still where a write is closed as never made. Raises IntentLost `restored` while it is demanded.

    Absence is proven by the attempts on record, and an older database has forgotten some: only a fence doubts them.
    """
    if change.state == NEVER_MADE and anchored.fence_held_still()[1] is not None:
        raise IntentLost("restored")


def apply(run: RunState, outcome: Outcome, last_input_seq: int) -> tuple[NewEvent, ...]:
    if outcome.intent is not None:
        return _intend(run, outcome.intent, last_input_seq)
    if outcome.resend is not None:
        return _prepare_again(run, outcome.resend, last_input_seq)
    if outcome.write is not None:
        change_write(outcome.write, watch=outcome.on is On.WRITE_VERIFIED)
    return ()


def _intend(run: RunState, intent: Intent, last_input_seq: int) -> tuple[NewEvent, ...]:
    release = intent.release
    if last_input_seq != intent.seen_input_seq:
        raise IntentLost("input")
    _consume(release)
    _still_qualified(intent.route_qualification)
    if run.write_attempts >= run.contract.limits.max_write_attempts:
        raise IntentLost("attempts")
    _take_order(release)
    windows = _windows()
    _count(run, release, windows, needs_person=intent.needs_person)
    number = _write_row(run, intent, windows)
    RunOrder.objects.bulk_create(
        [RunOrder(run_id=run.run_id, tenant_id=run.tenant_id, order_id=release.order_id)], ignore_conflicts=True
    )
    return (intent_event(release, number, numbering.of_write(run, release.key)),)


def intent_event(release: Release, attempt: int, span: str | None = None) -> NewEvent:
    meta = {
        "key": release.key, "action_hash": release.action_hash, "approval_id": release.approval_id,
        "decision_id": release.decision_id, "attempt": attempt, "order_id": release.order_id,
        "payment_id": release.payment_id, "amount": release.amount.wire(),
    }  # fmt: skip
    return NewEvent(type="write.intent", meta=meta, span=span)


def _consume(release: Release) -> None:
    if release.approval_id is None:
        return
    if not queue.permitted(release.approval_id):
        raise IntentLost("permission")
    if not queue.consume(release.approval_id, release.action_hash):
        raise IntentLost("approval")


def _still_qualified(qualification_id: int | None) -> None:
    if qualification_id is None:
        raise IntentLost("route")
    share = _SHARE.get(connection.vendor, "")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM runs_qualification WHERE id = %s AND NOT revoked "
            f"AND (ends_at IS NULL OR ends_at > {dbtime.now_sql()}){share}",
            [qualification_id],
        )
        if cursor.fetchone() is None:
            raise IntentLost("route")


def _take_order(release: Release) -> None:
    taken = OrderGuard.objects.filter(
        tenant_id=release.tenant_id, order_id=release.order_id, epoch=release.epoch
    ).update(epoch=F("epoch") + 1)
    if taken != 1:
        raise IntentLost("epoch")
    busy = Write.objects.filter(tenant_id=release.tenant_id, order_id=release.order_id, state__in=OPEN_WRITES)
    if busy.exists():
        raise IntentLost("order_busy")


def _windows() -> tuple[str, str]:
    now = dbtime.now()
    return now.strftime("%Y-%m-%d"), now.strftime("%Y-%m-%dT%H")


def _count(run: RunState, release: Release, windows: tuple[str, str], *, needs_person: bool) -> None:
    """Both totals are bumped by one conditional UPDATE each; a person's approval lifts the customer's, not the
    tenant's."""
    day, hour = windows
    customer = run.contract.actor.customer_id
    _bump(release, "tenant_hour", "", hour, release.tenant_limit)
    _bump(release, "customer_day", customer, day, None if needs_person else release.customer_limit)


def _bump(release: Release, scope: str, subject: str, window: str, limit: tuple[int, int] | None) -> None:
    where = {
        "tenant_id": release.tenant_id, "scope": scope, "subject": subject, "currency": release.amount.currency,
        "window": window,
    }  # fmt: skip
    Counter.objects.bulk_create([Counter(**where)], ignore_conflicts=True)
    rows = Counter.objects.filter(**where)
    if limit is not None:
        rows = rows.filter(count__lt=limit[0], amount_minor__lte=limit[1] - release.amount.minor)
    if rows.update(count=F("count") + 1, amount_minor=F("amount_minor") + release.amount.minor) != 1:
        raise IntentLost(scope)


def _write_row(run: RunState, intent: Intent, windows: tuple[str, str]) -> int:
    """Insert the write and its next attempt; one that never left us may be remade under its key."""
    release, now = intent.release, dbtime.now()
    day, hour = windows
    earlier = Write.objects.filter(key=release.key).first()
    if earlier is not None and (
        earlier.state != "not_sent" or Attempt.objects.filter(write=earlier, sent_at__isnull=False).exists()
    ):
        raise IntentLost("key_used")
    values: dict[str, Any] = {
        "run_id": run.run_id, "tenant_id": run.tenant_id, "order_id": release.order_id,
        "payment_id": release.payment_id, "tool": release.tool, "args": release.args,
        "action_hash": release.action_hash, "approval_id": release.approval_id, "decision_id": release.decision_id,
        "body": release.body, "origin": release.origin, "amount_minor": release.amount.minor,
        "currency": release.amount.currency,
        "state": "intent", "call_id": intent.pending.call_id, "customer_id": run.contract.actor.customer_id,
        "intent_at": now, "unknown_since": None, "absent_at": None, "closed_at": None, "result": None,
        "customer_window": day, "tenant_window": hour, "look_at": now + timedelta(seconds=env.read().RECONCILE_FOR_S),
    }  # fmt: skip
    Write.objects.update_or_create(key=release.key, defaults=values)
    return _prepare(release.key)


def _prepare(key: str) -> int:
    last = Attempt.objects.filter(write_id=key).aggregate(last=Max("number"))["last"] or 0
    Attempt.objects.create(write_id=key, number=last + 1, prepared_at=dbtime.now())
    return int(last) + 1


def _prepare_again(run: RunState, release: Release, last_input_seq: int) -> tuple[NewEvent, ...]:
    """Release a write of ours once more: a next attempt where the last one was sent."""
    if last_input_seq != run.last_input_seq:
        raise IntentLost("input")
    taken = OrderGuard.objects.filter(
        tenant_id=release.tenant_id, order_id=release.order_id, epoch=release.epoch
    ).update(epoch=F("epoch") + 1)
    if taken != 1:
        raise IntentLost("epoch")
    if run.write_attempts >= run.contract.limits.max_write_attempts:
        raise IntentLost("attempts")
    unsent = Attempt.objects.filter(write_id=release.key, sent_at__isnull=True, answer="").first()
    number = unsent.number if unsent else _prepare(release.key)
    Write.objects.filter(key=release.key).update(absent_at=None)
    return (released_again_event(release, number, numbering.of_write(run, release.key)),)


def released_again_event(release: Release, attempt: int, span: str | None = None) -> NewEvent:
    return NewEvent(type="write.released_again", meta={"key": release.key, "attempt": attempt}, span=span)


def bump_guard(tenant_id: str, order_id: str) -> None:
    OrderGuard.objects.filter(tenant_id=tenant_id, order_id=order_id).update(epoch=F("epoch") + 1)


def change_write(change: WriteChange, *, watch: bool = False) -> None:
    """Move a write to another state; every change bumps its order's epoch, a closing one frees the order.

    `watch`: confirmed for good, so it is looked at again after days (`write-path.md` 5).
    """
    row = Write.objects.select_for_update().get(key=change.key)
    now = dbtime.now()
    values = folding.write_fields(change, now, unknown_since=row.unknown_since, executed_at=row.executed_at)
    values |= {"looks": F("looks") + 1}
    if change.refund is not None:
        values["result"] = _result(change.refund)
    if change.state in CLOSED:
        values |= {"closed_at": now, "look_at": None, "watch_at": None}
    elif change.look_in_s is not None:
        values["look_at"] = now + timedelta(seconds=change.look_in_s)
    if watch:
        values |= {"watch_at": now + timedelta(seconds=env.read().WATCH_DAY_S * WATCH_DAYS[0]), "watched": 0}
    Write.objects.filter(key=change.key).update(**values)
    bump_guard(row.tenant_id, row.order_id)
    if change.answer:
        _answer(change.key, change.answer)
    if change.state in GONE and row.state not in CLOSED:
        _uncount(row)


def _result(refund: Refund) -> dict[str, Any]:
    return {
        "refund_id": refund.refund_id, "payment_id": refund.payment_id, "order_id": refund.order_id,
        "state": refund.state, "amount": refund.amount.wire(), "created_at": refund.created_at,
    }  # fmt: skip


def _answer(key: str, answer: str) -> None:
    last = Attempt.objects.filter(write_id=key, sent_at__isnull=False).order_by("-number").first()
    if last is not None:
        Attempt.objects.filter(id=last.id).update(answer=answer[:64], answered_at=dbtime.now())


def _uncount(row: Write) -> None:
    """A write that came to nothing gives its share of the totals back."""
    for scope, subject, window in (
        ("tenant_hour", "", row.tenant_window),
        ("customer_day", row.customer_id, row.customer_window),
    ):
        Counter.objects.filter(
            tenant_id=row.tenant_id, scope=scope, subject=subject, currency=row.currency, window=window, count__gte=1
        ).update(count=F("count") - 1, amount_minor=F("amount_minor") - row.amount_minor)


def mark_sent(run: RunState, write: SeenWrite) -> SentMark | None:
    """The commit directly before the socket: fenced, once per attempt. None: no right to send (spent, or stopped).

    Stop switches and shadow mode are held still with it: nothing is marked once one has committed (M119, M110). Nor is
    anything on a database that lacks what this host sent before, nor without a line in this host's anchor log (M124).
    Only the process that got the mark may POST, once, within its window of seconds on the monotonic clock.
    """
    if anchored.demands():
        return None
    window = env.read().WRITE_TIMEOUT_S + SEND_MARGIN_S
    now = dbtime.now_sql()
    with transaction.atomic():
        if _held(run)[0] is not None:
            return None
        at = dbtime.now()
        row = Run.objects.select_for_update().get(id=run.run_id)
        if row.version != run.version or row.lease_token != run.lease:
            raise Fenced(run.run_id)
        marked_at = clock.monotonic()  # before the database fixes gives_up_at: our window ends first
        attempt = Attempt.objects.filter(write_id=write.key, sent_at__isnull=True, answer="").first()
        if attempt is None:
            return None
        with connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE runs_attempt SET sent_at = {now}, gives_up_at = {dbtime.plus_sql()} "
                "WHERE id = %s AND sent_at IS NULL",
                [dbtime.plus_param(window), attempt.id],
            )
            if cursor.rowcount != 1:
                return None
        Write.objects.filter(key=write.key).update(state="sent")
        bump_guard(run.tenant_id, write.order_id)
        sent = _note_sent(row, write.key, attempt.number, numbering.of_write(run, write.key))
    anchored.keep(run, write, sent, at=at)
    return SentMark(attempt=attempt.number, marked_at=marked_at, window_s=window)


def _note_sent(row: Run, key: str, number: int, span: str) -> events.Position:
    event = NewEvent(type="write.sent", meta={"key": key, "attempt": number}, span=span)
    here = events.Position(seq=row.last_seq, head=row.chain_head)
    position = events.append(str(row.id), here, row.version, [event])
    Run.objects.filter(id=row.id).update(
        last_seq=position.seq, chain_head=position.head, write_attempts=F("write_attempts") + 1
    )
    return position


def read_epoch(tenant_id: str, order_id: str) -> int:
    """The order's epoch, to be read BEFORE its live facts and compared in the intent."""
    OrderGuard.objects.bulk_create([OrderGuard(tenant_id=tenant_id, order_id=order_id)], ignore_conflicts=True)
    return OrderGuard.objects.values_list("epoch", flat=True).get(tenant_id=tenant_id, order_id=order_id)


def own_writes(tenant_id: str, order_id: str) -> tuple[OwnWrite, ...]:
    """Every write of ours on an order, whatever run made it (`write-path.md` 3)."""
    rows = Write.objects.filter(tenant_id=tenant_id, order_id=order_id).prefetch_related("tries")
    return tuple(
        OwnWrite(
            key=w.key, run_id=str(w.run_id), payment_id=w.payment_id,
            amount=Money(minor=w.amount_minor, currency=w.currency), state=w.state, refund_id=w.refund_id,
            intent_at=w.intent_at, first_sent_at=min((a.sent_at for a in w.tries.all() if a.sent_at), default=None),
            # Only what was verified is watched, from then on.
            customer_id=w.customer_id, verified=w.state == "confirmed" and bool(w.watch_at or w.watched),
        )
        for w in rows
    )  # fmt: skip


def used_so_far(tenant_id: str, customer_id: str, order_id: str, currency: str, *, leave_out: str) -> UsedSoFar:
    """What the agent refunded and holds open on the order in 30 days, and the totals of the running windows."""
    day, hour = _windows()
    on_order = Write.objects.filter(
        tenant_id=tenant_id, order_id=order_id, currency=currency, intent_at__gte=dbtime.now() - ORDER_WINDOW
    ).exclude(state__in=GONE).exclude(key=leave_out)  # fmt: skip
    again = Write.objects.filter(key=leave_out, currency=currency).first() if leave_out else None
    return UsedSoFar(
        agent_on_order_minor=sum(on_order.values_list("amount_minor", flat=True)),
        customer_day=_less(
            _counted(tenant_id, "customer_day", customer_id, currency, day),
            again if again and again.customer_window == day else None,
        ),
        tenant_hour=_less(
            _counted(tenant_id, "tenant_hour", "", currency, hour),
            again if again and again.tenant_window == hour else None,
        ),
    )


def _less(used: tuple[int, int], write: Write | None) -> tuple[int, int]:
    """A total without a write that is counted in it and is being released once more."""
    return (used[0] - 1, used[1] - write.amount_minor) if write else used


def _counted(tenant_id: str, scope: str, subject: str, currency: str, window: str) -> tuple[int, int]:
    row = Counter.objects.filter(
        tenant_id=tenant_id, scope=scope, subject=subject, currency=currency, window=window
    ).first()
    return (row.count, row.amount_minor) if row else (0, 0)
