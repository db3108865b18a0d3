"""Tells the world outside the database what was committed: the log, the heads of the chain, spans. Part of the store.

It may never fail a commit: it runs after it, and whatever goes wrong in it is counted and no more. What it tells of
rows is read in the transaction that wrote them, where that has to do with money, an approval or a run's two ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from django.db import transaction

from agentsite import clock, dbtime, heads, statements, telemetry, tracing
from agentsite.money import Money
from runs import loglines, traced
from runs.contracts import Outcome, RunState, SeenObservation
from runs.models import Run
from runs.store import left
from runs.store.inserts import EventRow
from runs.store.lease import raw_id
from tools.contracts import Json

Found = dict[tuple[str, str], Any]
"""A row of the answer, by table and column."""

UNTELLABLE = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What rows raise that no code of ours wrote: their line says less, their commit stands."""
_STANDS = ("status", "reason", "waiting_for", "outcome")
_TIMES = frozenset(n for n in (*left.RUN, *left.APPROVAL, *left.WRITE, *left.ATTEMPT) if n.endswith("_at"))
_IDS_OF = ("trace_id", "tenant_id", "request_id")
_COLUMNS = {
    "run": [("r", name) for name in left.RUN], "versions": [("r", "versions")],
    "approvals": [("p", name) for name in left.APPROVAL],
    "writes": [*(("w", name) for name in left.WRITE), *(("t", name) for name in left.ATTEMPT)],
}  # fmt: skip
_JOINED = {
    "approvals": " LEFT JOIN approvals_approval p ON p.run_id = r.id",
    "writes": " LEFT JOIN runs_write w ON w.run_id = r.id LEFT JOIN runs_attempt t ON t.write_id = w.key",
}
_SORTED = {"approvals": "p.requested_at, p.id", "writes": "w.intent_at, w.key, t.number"}


def once_committed(run_id: str, rows: Sequence[EventRow], now: left.Rows | None = None) -> None:
    """Tell of these events of one run when the caller's transaction is on the disk; of none where it is rolled back.

    `now`: how it leaves the rows that they are about, where the statement that wrote them said so.
    """
    if rows:
        rows_now = _left(run_id, left.about(rows), now)
        transaction.on_commit(partial(_tell, run_id, tuple(rows), _ids(run_id), rows_now), robust=True)


def stood(
    run: RunState, outcome: Outcome, seen: Sequence[SeenObservation], columns: Json, *, version: int, seq: int,
    now: left.Rows | None = None,
) -> None:  # fmt: skip
    """Tell how a checkpoint leaves a run, beside its events: the columns it sets, its turn, what it observed.

    `now`: how it leaves the run's writes, where the statement that wrote them said so.
    """
    telemetry.know(run.run_id, run.trace_id, run.tenant_id, run.request_id)
    try:
        line = _stands(run, outcome, seen, columns, now)
    except UNTELLABLE:
        return telemetry.count("untold", what="stands")
    line |= {**_ids(run.run_id), "seq": seq, "version": version, "at": clock.rfc3339(clock.now())}
    return transaction.on_commit(partial(telemetry.line, loglines.STANDS, line), robust=True)


def in_silence(outcome: Outcome) -> bool:
    """Whether a write is changed and no event tells of it: then the line says how it stands."""
    return outcome.write is not None and not outcome.events


def _stands(
    run: RunState, outcome: Outcome, seen: Sequence[SeenObservation], columns: Json, now: left.Rows | None
) -> Json:
    stands: Json = {name: columns[name] for name in _STANDS if name in columns}
    more: Json = {"versions": loglines.spoken(dict(outcome.versions))} if outcome.versions else {}
    if outcome.turn is not None:
        more["turn"] = loglines.turn(outcome.turn, clock.rfc3339(run.now))
    if seen:
        more["observed"] = [loglines.observed(o, clock.rfc3339(o.fetched_at)) for o in seen]
    if in_silence(outcome):
        more |= _left(run.run_id, frozenset({"writes"}), now)
    return stands | more


# --- what a line says -------------------------------------------------------------------------------------------


def _ids(run_id: str) -> dict[str, str]:
    """Trace, tenant and request of a run: asked for once a process."""
    known = telemetry.ids_of(run_id)
    if known is None:
        found = Run.objects.filter(id=run_id).values_list("trace_id", "tenant_id", "request_id").first()
        known = telemetry.know(run_id, *(found or ("", "", "")))
    return {"run_id": run_id, "trace_id": known.trace_id, "tenant": known.tenant, "request_id": known.request_id}


def _left(run_id: str, about: frozenset[str], now: left.Rows | None) -> Json:
    """How the transaction leaves the rows that a line is about, as it says them."""
    if not about:
        return {}
    rows = now if now is not None and about <= now.keys() else _read(run_id, tuple(sorted(about)))
    return {name: _tellable(_PARTS[name], rows[name]) for name in _PARTS if name in about}


def _read(run_id: str, about: tuple[str, ...]) -> left.Rows:
    """The run's own row and the others, by one statement: each approval beside each attempt, of which there are few."""
    sql, names = _statement(about)
    with statements.cursor() as cursor:
        cursor.execute(sql, [raw_id(run_id)])
        found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    if found:
        telemetry.know(run_id, *(found[0]["r", name] for name in _IDS_OF))
    return {name: _FOUND[name](found) for name in about}


@lru_cache(maxsize=16)
def _statement(about: tuple[str, ...]) -> tuple[str, tuple[tuple[str, str], ...]]:
    """What is asked of the database, and the table and name of each column that it answers with."""
    names = (*(("r", name) for name in _IDS_OF), *(column for part in about for column in _COLUMNS[part]))
    joined = "".join(_JOINED.get(part, "") for part in about)
    order = ", ".join(_SORTED[part] for part in about if part in _SORTED)
    columns = ", ".join(f"{table}.{name}" for table, name in names)
    sql = f"SELECT {columns} FROM runs_run r{joined} WHERE r.id = %s"
    return f"{sql} ORDER BY {order}" if order else sql, names


def _found_run(found: list[Found]) -> left.Row:
    return {name: found[0]["r", name] for name in left.RUN} if found else {}


def _found_versions(found: list[Found]) -> str:
    return str(found[0]["r", "versions"]) if found else "{}"


def _found_approvals(found: list[Found]) -> list[left.Row]:
    once = {row["p", "id"]: row for row in found if row["p", "id"] is not None}
    return [{name: row["p", name] for name in left.APPROVAL} for row in once.values()]


def _found_writes(found: list[Found]) -> list[left.Row]:
    once = {row["w", "key"]: row for row in found if row["w", "key"] is not None}
    tries = {(row["w", "key"], row["t", "number"]): row for row in found if row["t", "number"] is not None}
    return [
        {name: row["w", name] for name in left.WRITE}
        | {left.TRIES: [{name: t["t", name] for name in left.ATTEMPT} for (of, _), t in tries.items() if of == key]}
        for key, row in once.items()
    ]


_FOUND: dict[str, Callable[[list[Found]], Any]] = {
    "run": _found_run, "versions": _found_versions, "approvals": _found_approvals, "writes": _found_writes,
}  # fmt: skip


def _tellable(tell: Callable[[Any], Any], rows: Any) -> Any:
    try:
        return tell(rows)
    except UNTELLABLE:
        telemetry.count("untold", what="rows")
        return None


def _versions(text: str) -> Json:
    return loglines.spoken(json.loads(text))


def _approvals(rows: list[left.Row]) -> list[Json]:
    return [_money(_part(row)) for row in rows]


def _writes(rows: list[left.Row]) -> list[Json]:
    return [_money(_part(row)) | {left.TRIES: [_part(one) for one in row[left.TRIES]]} for row in rows]


def _part(row: left.Row) -> Json:
    return {name: _said(name, found) for name, found in row.items() if name != left.TRIES}


_PARTS: dict[str, Callable[[Any], Any]] = {
    "run": _part, "versions": _versions, "approvals": _approvals, "writes": _writes,
}  # fmt: skip


def _said(name: str, found: object) -> object:
    moment = dbtime.moment(found) if name in _TIMES else None
    return clock.rfc3339(moment) if moment is not None else loglines.value(found)


def _money(row: Json) -> Json:
    minor, currency = row.pop("amount_minor"), row.pop("currency")
    return {**row, "amount": Money(minor=minor, currency=currency).wire()}


# --- after the commit ------------------------------------------------------------------------------------------


def _tell(run_id: str, rows: tuple[EventRow, ...], ids: Json, rows_now: Json) -> None:
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


def _line(row: EventRow, ids: Json) -> Json:
    return {
        "event": row.type, **ids, "seq": row.seq, "version": row.version, "span": row.span,
        "at": clock.rfc3339(row.at), "mac": row.mac, "data": loglines.said(row.type, row.meta, row.payload),
    }  # fmt: skip
