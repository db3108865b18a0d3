"""Writes, attempts, order guards and counters: the rows where money can be lost. Part of the store.

The intent checks everything as row counts in one transaction or raises IntentLost, and then nothing happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import F

from agentsite import dbtime, env, statements
from agentsite.canonical import canonical_text
from approvals import queue
from runs import numbering
from runs.contracts import Intent, NewEvent, Outcome, RunState, WriteChange
from runs.errors import IntentLost
from runs.models import OPEN_WRITES, Attempt, Counter, RunOrder, Write
from runs.states import On
from runs.store import anchored, folding, inserts
from runs.store.inserts import Statement
from runs.store.lease import raw_id
from runs.store.ledger import GONE
from runs.store.left import Written
from tools.contracts import Refund, Release

NEVER_MADE = "not_sent"
CLOSED = ("confirmed", "failed", "refused", "not_sent")
WATCH_DAYS = (1, 3, 7, 14, 30)
_SHARE = {"postgresql": " FOR SHARE"}
UPDATE = {"postgresql": " FOR UPDATE"}
NO_LIMIT = 2**62
LOCK_WRITE = (
    "SELECT {now}, tenant_id, order_id, state, unknown_since, executed_at, looks FROM runs_write WHERE key = %s{update}"
)
PREPARE = "INSERT INTO runs_attempt (write_id, number, prepared_at, answer) VALUES (%s, %s, %s, '')"
ANSWERED = (
    "UPDATE runs_attempt SET answer = %s, answered_at = %s WHERE id = (SELECT id FROM runs_attempt "
    "WHERE write_id = %s AND sent_at IS NOT NULL ORDER BY number DESC LIMIT 1)"
)
SWITCHES = (
    "SELECT * FROM (SELECT 1, paused, FALSE, fence_demanded_at, fenced_at FROM tenants_site WHERE id = 1{share}) AS s "
    "UNION ALL SELECT * FROM (SELECT 0, paused, shadow, CAST(NULL AS timestamptz), CAST(NULL AS timestamptz) "
    "FROM tenants_tenant WHERE id = %s{share}) AS t"
)
QUALIFIED = (
    "SELECT 1 FROM runs_qualification WHERE id = %s AND NOT revoked AND (ends_at IS NULL OR ends_at > {now}){share}"
)
TAKE = "UPDATE runs_orderguard SET epoch = epoch + 1 WHERE tenant_id = %s AND order_id = %s AND epoch = %s"
# An order on which we never wrote has no guard: the first who writes makes it, and any other finds it made.
TAKE_FIRST = (
    "INSERT INTO runs_orderguard (tenant_id, order_id, epoch) VALUES (%s, %s, 1) ON CONFLICT (tenant_id, order_id) "
    "DO UPDATE SET epoch = runs_orderguard.epoch + 1 WHERE runs_orderguard.epoch = 0"
)
BUMP = "UPDATE runs_orderguard SET epoch = epoch + 1 WHERE tenant_id = %s AND order_id = %s"
# A statement of its own, after the guard is held: within the one that waits for it, it would see what was before.
TAKEN = (
    "SELECT {now}, (SELECT 1 FROM runs_write WHERE tenant_id = %s AND order_id = %s AND state IN ({open}) LIMIT 1), "
    "(SELECT state FROM runs_write WHERE key = %s), (SELECT MAX(number) FROM runs_attempt WHERE write_id = %s), "
    "(SELECT MAX(number) FROM runs_attempt WHERE write_id = %s AND sent_at IS NOT NULL)"
).replace("{open}", ", ".join(f"'{state}'" for state in OPEN_WRITES))
# Each row under its own ceiling, the tenant's first; one that is full is not changed, and so not returned.
COUNT = (
    'INSERT INTO runs_counter (tenant_id, scope, subject, currency, "window", count, amount_minor) '
    "VALUES (%s, 'tenant_hour', '', %s, %s, 1, %s), (%s, 'customer_day', %s, %s, %s, 1, %s) "
    'ON CONFLICT (tenant_id, scope, subject, currency, "window") DO UPDATE SET '
    "count = runs_counter.count + 1, amount_minor = runs_counter.amount_minor + excluded.amount_minor "
    "WHERE runs_counter.count < CASE WHEN excluded.scope = 'tenant_hour' THEN %s ELSE %s END "
    "AND runs_counter.amount_minor <= CASE WHEN excluded.scope = 'tenant_hour' THEN %s ELSE %s END RETURNING scope"
)


def lock_switches(run: RunState, release: Release) -> None:
    """Hold the switches and the fence still for this transaction. Raises IntentLost: `shadow`, `paused`, `restored`,
    `fenced`.

    `shadow`: the run was admitted to propose alone, or its tenant is in shadow mode.
    `fenced`: the order's refunds were listed (after `run.now`) before all that was sent up to the fence had to show.
    """
    stopped, fenced_at = held_still(run)
    if stopped is not None:
        raise IntentLost(stopped)
    settle_s = env.read().VERIFY_FOR_S if release.settle_s is None else release.settle_s
    if fenced_at is not None and run.now <= fenced_at + timedelta(seconds=settle_s):
        raise IntentLost("fenced")


def held_still(run: RunState) -> tuple[str | None, datetime | None]:
    """(what stops every write of the run, when the site was last fenced); both rows are held still, the site's first.

    One that is not there stops nothing.
    """
    paused = shadow = False
    demanded: Any = None
    fenced_at: Any = None
    with statements.cursor() as cursor:
        cursor.execute(SWITCHES.format(share=_SHARE.get(connection.vendor, "")), [run.tenant_id])
        for of_site, is_paused, in_shadow, asked_at, at in cursor.fetchall():
            paused, shadow = paused or bool(is_paused), shadow or bool(in_shadow)
            if of_site:
                demanded, fenced_at = asked_at, at
    if run.contract.shadow or shadow:
        return "shadow", None
    if paused:
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


class Wrote(NamedTuple):
    """Events that tell of what was done to a run's writes, and what is left to do with the run's own UPDATE."""

    events: tuple[NewEvent, ...] = ()
    rows: tuple[Statement, ...] = ()


def apply(run: RunState, outcome: Outcome, last_input_seq: int) -> Wrote:
    """All that an outcome asks of writes, in the caller's transaction, which holds the run. Raises IntentLost."""
    if outcome.intent is not None:
        return _intend(run, outcome.intent, last_input_seq)
    if outcome.resend is not None:
        return Wrote(_prepare_again(run, outcome.resend, last_input_seq))
    if outcome.write is not None:
        return Wrote(rows=_change(outcome.write, watch=outcome.on is On.WRITE_VERIFIED))
    return Wrote()


def _intend(run: RunState, intent: Intent, last_input_seq: int) -> Wrote:
    release = intent.release
    if last_input_seq != intent.seen_input_seq:
        raise IntentLost("input")
    _consume(release)
    _still_qualified(intent.route_qualification)
    if run.write_attempts >= run.contract.limits.max_write_attempts:
        raise IntentLost("attempts")
    order = _take_order(release)
    windows = _windows(order.now)
    _count(run, release, windows, needs_person=intent.needs_person)
    number, rows = _write_rows(run, intent, order, windows)
    if release.order_id not in (run.contract.scope.order_ids or ()):  # those it has from its admission on
        RunOrder.objects.bulk_create(
            [RunOrder(run_id=run.run_id, tenant_id=run.tenant_id, order_id=release.order_id)], ignore_conflicts=True
        )
    return Wrote((intent_event(release, number, numbering.of_write(run, release.key)),), rows)


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
    if qualification_id is None or not _found(QUALIFIED, [qualification_id]):
        raise IntentLost("route")


def _found(sql: str, params: list[Any]) -> bool:
    with statements.cursor() as cursor:
        cursor.execute(sql.format(now=dbtime.now_sql(), share=_SHARE.get(connection.vendor, "")), params)
        return cursor.fetchone() is not None


def changed(sql: str, params: Sequence[Any]) -> int:
    """How many rows a statement changed, in the caller's transaction."""
    with statements.cursor() as cursor:
        cursor.execute(sql, params)
        return int(cursor.rowcount)


class _Order(NamedTuple):
    """What was found once the order was ours: the write that has this key, and its last attempts."""

    now: datetime
    state: str | None
    last: int
    sent: int | None


def _take_order(release: Release) -> _Order:
    order = [release.tenant_id, release.order_id]
    taken = changed(TAKE_FIRST, order) if release.epoch == 0 else changed(TAKE, [*order, release.epoch])
    if taken != 1:
        raise IntentLost("epoch")
    with statements.cursor() as cursor:
        cursor.execute(TAKEN.format(now=dbtime.now_sql()), [*order, release.key, release.key, release.key])
        at, busy, state, last, sent = cursor.fetchone()
    if busy is not None:
        raise IntentLost("order_busy")
    now = dbtime.moment(at)
    assert now is not None, "the database always knows the time"
    return _Order(now, state, last or 0, sent)


def _windows(now: datetime) -> tuple[str, str]:
    return now.strftime("%Y-%m-%d"), now.strftime("%Y-%m-%dT%H")


def _count(run: RunState, release: Release, windows: tuple[str, str], *, needs_person: bool) -> None:
    """Both totals are bumped, each while it stays under its ceiling; a person's approval lifts the customer's, not the
    tenant's."""
    (day, hour), minor, currency = windows, release.amount.minor, release.amount.currency
    tenant, customer = (
        _room(release.tenant_limit, minor),
        _room(None if needs_person else release.customer_limit, minor),
    )
    for scope, room in (("tenant_hour", tenant), ("customer_day", customer)):
        if room[0] < 1 or room[1] < 0:
            raise IntentLost(scope)
    rows = (
        release.tenant_id, currency, hour, minor,
        release.tenant_id, run.contract.actor.customer_id, currency, day, minor,
    )  # fmt: skip
    with statements.cursor() as cursor:
        cursor.execute(COUNT, [*rows, tenant[0], customer[0], tenant[1], customer[1]])
        counted = {row[0] for row in cursor.fetchall()}
    for scope in ("tenant_hour", "customer_day"):
        if scope not in counted:
            raise IntentLost(scope)


def _room(limit: tuple[int, int] | None, minor: int) -> tuple[int, int]:
    """How many there may be, and how much in sum before this one, for this one to have room."""
    return (NO_LIMIT, NO_LIMIT) if limit is None else (limit[0], limit[1] - minor)


def _write_rows(
    run: RunState, intent: Intent, order: _Order, windows: tuple[str, str]
) -> tuple[int, tuple[Statement, ...]]:
    """The write and its next attempt, with that one's number; one that never left us may be remade under its key."""
    release, (day, hour) = intent.release, windows
    if order.state is not None and (order.state != NEVER_MADE or order.sent is not None):
        raise IntentLost("key_used")
    values: dict[str, Any] = {
        "run_id": raw_id(run.run_id), "tenant_id": run.tenant_id, "order_id": release.order_id,
        "payment_id": release.payment_id, "tool": release.tool, "args": canonical_text(release.args),
        "action_hash": release.action_hash, "approval_id": release.approval_id, "decision_id": release.decision_id,
        "body": release.body, "origin": release.origin, "amount_minor": release.amount.minor,
        "currency": release.amount.currency, "state": "intent", "call_id": intent.pending.call_id,
        "customer_id": run.contract.actor.customer_id, "intent_at": dbtime.param(order.now), "unknown_since": None,
        "absent_at": None, "closed_at": None, "result": None, "customer_window": day, "tenant_window": hour,
        "look_at": dbtime.param(order.now + timedelta(seconds=env.read().RECONCILE_FOR_S)),
    }  # fmt: skip
    if order.state is None:
        values = {"key": release.key, **values, "looks": 0, "watched": 0}
        made = Written(key=release.key, columns=values)
        write = Statement(sql=_insert_write(tuple(values)), params=tuple(values.values()), written=made)
    else:
        write = _columns_of(release.key, values)
    return order.last + 1, (write, _prepared(release.key, order.last + 1, order.now))


@lru_cache(maxsize=4)
def _insert_write(columns: tuple[str, ...]) -> str:
    return f"INSERT INTO runs_write ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))})"


def _columns_of(key: str, values: dict[str, Any]) -> Statement:
    names, made = ", ".join(f"{name} = %s" for name in values), Written(key=key, columns=values)
    return Statement(sql=f"UPDATE runs_write SET {names} WHERE key = %s", params=[*values.values(), key], written=made)


def _prepared(key: str, number: int, now: datetime) -> Statement:
    written = Written(key=key, attempt={"number": number, "prepared_at": now})
    return Statement(sql=PREPARE, params=[key, number, dbtime.param(now)], written=written)


def _prepare_again(run: RunState, release: Release, last_input_seq: int) -> tuple[NewEvent, ...]:
    """Release a write of ours once more: a next attempt where the last one was sent."""
    if last_input_seq != run.last_input_seq:
        raise IntentLost("input")
    if changed(TAKE, [release.tenant_id, release.order_id, release.epoch]) != 1:
        raise IntentLost("epoch")
    if run.write_attempts >= run.contract.limits.max_write_attempts:
        raise IntentLost("attempts")
    tries = list(Attempt.objects.filter(write_id=release.key).order_by("number"))
    unsent = next((a for a in tries if a.sent_at is None and a.answer == ""), None)
    number = unsent.number if unsent else (tries[-1].number if tries else 0) + 1
    if unsent is None:
        inserts.add([_prepared(release.key, number, dbtime.now())])
    Write.objects.filter(key=release.key).update(absent_at=None)
    return (released_again_event(release, number, numbering.of_write(run, release.key)),)


def released_again_event(release: Release, attempt: int, span: str | None = None) -> NewEvent:
    return NewEvent(type="write.released_again", meta={"key": release.key, "attempt": attempt}, span=span)


def bump_guard(tenant_id: str, order_id: str) -> None:
    """Whoever read the order's epoch before knows less than there is."""
    inserts.add([bumped(tenant_id, order_id)])


def bumped(tenant_id: str, order_id: str) -> Statement:
    """The same, for a statement that does more."""
    return Statement(sql=BUMP, params=[tenant_id, order_id])


def change_write(change: WriteChange, *, watch: bool = False) -> None:
    """Move a write to another state; every change bumps its order's epoch, a closing one frees the order.

    `watch`: confirmed for good, so it is looked at again after days (`write-path.md` 5).
    """
    inserts.add(_change(change, watch=watch))


def _change(change: WriteChange, *, watch: bool) -> tuple[Statement, ...]:
    """What moves it, its row held; what it had of the totals is given back already where it came to nothing."""
    row = _locked_write(change.key)
    now = row.now
    values = folding.write_fields(change, now, unknown_since=row.unknown_since, executed_at=row.executed_at)
    if change.refund is not None:
        values["result"] = canonical_text(_result(change.refund))
    if change.state in CLOSED:
        values |= {"closed_at": now, "look_at": None, "watch_at": None}
    elif change.look_in_s is not None:
        values["look_at"] = now + timedelta(seconds=change.look_in_s)
    if watch:
        values |= {"watch_at": now + timedelta(seconds=env.read().WATCH_DAY_S * WATCH_DAYS[0]), "watched": 0}
    plain = {name: dbtime.param(v) if isinstance(v, datetime) else v for name, v in values.items()}
    also = [bumped(row.tenant_id, row.order_id)]
    if change.answer:
        answer = {"answer": change.answer[:64], "answered_at": now}
        params = [answer["answer"], dbtime.param(now), change.key]
        also.append(Statement(sql=ANSWERED, params=params, written=Written(key=change.key, attempt=answer)))
    if change.state in GONE and row.state not in CLOSED:
        _uncount(change.key)
    return (*also, _columns_of(change.key, {"looks": row.looks + 1, **plain}))


class _Locked(NamedTuple):
    now: datetime
    tenant_id: str
    order_id: str
    state: str
    unknown_since: datetime | None
    executed_at: datetime | None
    looks: int


def _locked_write(key: str) -> _Locked:
    """A write's row, held, and the time. Raises Write.DoesNotExist."""
    with statements.cursor() as cursor:
        cursor.execute(LOCK_WRITE.format(now=dbtime.now_sql(), update=UPDATE.get(connection.vendor, "")), [key])
        row = cursor.fetchone()
    if row is None:
        raise Write.DoesNotExist(key)
    at, tenant_id, order_id, state, unknown_since, executed_at, looks = row
    now = dbtime.moment(at)
    assert now is not None, "the database always knows the time"
    return _Locked(now, tenant_id, order_id, state, dbtime.moment(unknown_since), dbtime.moment(executed_at), looks)


def _result(refund: Refund) -> dict[str, Any]:
    return {
        "refund_id": refund.refund_id, "payment_id": refund.payment_id, "order_id": refund.order_id,
        "state": refund.state, "amount": refund.amount.wire(), "created_at": refund.created_at,
    }  # fmt: skip


def _uncount(key: str) -> None:
    """A write that came to nothing gives its share of the totals back."""
    row = Write.objects.get(key=key)
    for scope, subject, window in (
        ("tenant_hour", "", row.tenant_window),
        ("customer_day", row.customer_id, row.customer_window),
    ):
        Counter.objects.filter(
            tenant_id=row.tenant_id, scope=scope, subject=subject, currency=row.currency, window=window, count__gte=1
        ).update(count=F("count") - 1, amount_minor=F("amount_minor") - row.amount_minor)
