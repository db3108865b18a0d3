"""Tells the world outside the database what was committed: the log, the heads of the chain, spans. Part of the store.

It may never fail a commit: it runs after it, and whatever goes wrong in it is counted and no more. What it tells of
rows is read in the transaction that wrote them, where that has to do with money, an approval or a run's two ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction

from agentsite import clock, heads, telemetry, tracing
from agentsite.money import Money
from approvals.models import Approval
from runs import loglines, traced
from runs.contracts import Outcome, RunState, SeenObservation
from runs.models import Attempt, Event, Run, Write
from runs.states import TERMINAL
from tools.contracts import Json

ENDED = frozenset(status.value for status in TERMINAL)
UNTELLABLE = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What rows raise that no code of ours wrote: their line says less, their commit stands."""
_APPROVAL = ("id", "status", "rule", "action_hash", "required", "amount_minor", "currency", "requested_at",
             "expires_at", "void_reason")  # fmt: skip
_WRITE = ("key", "tool", "order_id", "payment_id", "amount_minor", "currency", "state", "refund_id", "refund_state",
          "action_hash", "approval_id", "decision_id", "intent_at", "closed_at")  # fmt: skip
_STANDS = ("status", "reason", "waiting_for", "outcome")
_ATTEMPT = ("number", "prepared_at", "sent_at", "answered_at", "answer")


def once_committed(run_id: str, rows: Sequence[Event]) -> None:
    """Tell of these events of one run when the caller's transaction is on the disk; of none where it is rolled back."""
    if rows:
        told = partial(_tell, run_id, tuple(rows), _ids(run_id), _rows(run_id, rows))
        transaction.on_commit(told, robust=True)


def stood(
    run: RunState, outcome: Outcome, seen: Sequence[SeenObservation], columns: Json, *, version: int, seq: int
) -> None:
    """Tell how a checkpoint leaves a run, beside its events: the columns it sets, its turn, what it observed."""
    telemetry.know(run.run_id, run.trace_id, run.tenant_id, run.request_id)
    try:
        line = _stands(run, outcome, seen, columns)
    except UNTELLABLE:
        return telemetry.count("untold", what="stands")
    line |= {**_ids(run.run_id), "seq": seq, "version": version, "at": clock.rfc3339(clock.now())}
    return transaction.on_commit(partial(telemetry.line, loglines.STANDS, line), robust=True)


def _stands(run: RunState, outcome: Outcome, seen: Sequence[SeenObservation], columns: Json) -> Json:
    stands: Json = {name: columns[name] for name in _STANDS if name in columns}
    more: Json = {"versions": loglines.spoken(dict(outcome.versions))} if outcome.versions else {}
    if outcome.turn is not None:
        more["turn"] = loglines.turn(outcome.turn, clock.rfc3339(run.now))
    if seen:
        more["observed"] = [loglines.observed(o, clock.rfc3339(o.fetched_at)) for o in seen]
    if outcome.write is not None and not outcome.events:
        more["writes"] = _tellable(_writes, run.run_id)
    return stands | more


# --- what a line says -------------------------------------------------------------------------------------------


def _ids(run_id: str) -> dict[str, str]:
    """Trace, tenant and request of a run: asked for once a process."""
    known = telemetry.ids_of(run_id)
    if known is None:
        found = Run.objects.filter(id=run_id).values_list("trace_id", "tenant_id", "request_id").first()
        known = telemetry.know(run_id, *(found or ("", "", "")))
    return {"run_id": run_id, "trace_id": known.trace_id, "tenant": known.tenant, "request_id": known.request_id}


def _rows(run_id: str, events: Sequence[Event]) -> Json:
    """How the transaction leaves the rows that these events are about."""
    types = [e.type for e in events]
    ends = any(e.type == "run.status" and e.meta.get("to") in ENDED for e in events)
    asked = ends or "write.intent" in types or any(t.startswith("approval.") for t in types)
    wrote = ends or any(t.startswith("write.") for t in types)
    wanted: dict[str, tuple[bool, Callable[[str], Any]]] = {
        "run": (ends or "run.accepted" in types, _run), "versions": ("run.accepted" in types, _versions),
        "approvals": (asked, _approvals), "writes": (wrote, _writes),
    }  # fmt: skip
    return {name: _tellable(tell, run_id) for name, (told, tell) in wanted.items() if told}


def _tellable(tell: Callable[[str], Any], run_id: str) -> Any:
    try:
        return tell(run_id)
    except UNTELLABLE:
        telemetry.count("untold", what="rows")
        return None


def _run(run_id: str) -> Json:
    names = ("agent", "status", "reason", "outcome", "waiting_for", "release", "created_at", "completed_at")
    row = Run.objects.filter(id=run_id).values(*names).get()
    return {name: _said(found) for name, found in row.items()}


def _versions(run_id: str) -> Json:
    return loglines.spoken(Run.objects.values_list("versions", flat=True).get(id=run_id))


def _approvals(run_id: str) -> list[Json]:
    rows = Approval.objects.filter(run_id=run_id).order_by("requested_at").values(*_APPROVAL)
    return [_money({name: _said(found) for name, found in row.items()}) for row in rows]


def _writes(run_id: str) -> list[Json]:
    rows = Write.objects.filter(run_id=run_id).order_by("intent_at").values(*_WRITE)
    tries = list(Attempt.objects.filter(write__run_id=run_id).order_by("number").values("write_id", *_ATTEMPT))
    return [
        _money({name: _said(found) for name, found in row.items()})
        | {"attempts": [{n: _said(t[n]) for n in _ATTEMPT} for t in tries if t["write_id"] == row["key"]]}
        for row in rows
    ]


def _said(found: object) -> object:
    return clock.rfc3339(found) if isinstance(found, datetime) else loglines.value(found)


def _money(row: Json) -> Json:
    minor, currency = row.pop("amount_minor"), row.pop("currency")
    return {**row, "amount": Money(minor=minor, currency=currency).wire()}


# --- after the commit ------------------------------------------------------------------------------------------


def _tell(run_id: str, rows: tuple[Event, ...], ids: Json, rows_now: Json) -> None:
    last = rows[-1]
    with telemetry.unfailing("heads"):
        heads.append(run_id, last.seq, last.mac, last.at)
    with telemetry.unfailing("lines"):
        lines = [_line(row, ids) for row in rows]
        lines[-1] |= rows_now
        for line in lines:
            telemetry.line(line["event"], {name: said for name, said in line.items() if name != "event"})
    with telemetry.unfailing("spans"):
        if tracing.is_on():
            tracing.keep(traced.steps(lines))


def _line(row: Event, ids: Json) -> Json:
    return {
        "event": row.type, **ids, "seq": row.seq, "version": row.version, "span": row.span,
        "at": clock.rfc3339(row.at), "mac": row.mac, "data": loglines.said(row.type, row.meta, row.payload),
    }  # fmt: skip
