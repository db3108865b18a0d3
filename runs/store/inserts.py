"""Statements that add a checkpoint's rows, several rows each, and run a change with them. Part of the store.

Where the database takes rows and change as one statement (PostgreSQL), they are one; else they follow one another.
Such a statement may be a transaction by itself: then rows are added only where the change found what it is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import Model

from agentsite import dbtime, statements
from agentsite.canonical import canonical_text
from runs.contracts import NewTurn, Outcome, RunState, SeenObservation
from runs.models import Event, Observation, RunOrder, Turn
from runs.store.lease import raw_id
from runs.store.left import Written
from tools.contracts import Json

EVENT = ("run_id", "seq", "type", "at", "version", "span", "meta", "payload", "salt", "digest", "prev", "mac", "key_id")
OBSERVATION = (
    "run_id", "obs_id", "position", "call_id", "span", "kind", "source", "args", "content", "content_hash", "meta",
    "fetched_at", "took_ms",
)  # fmt: skip
TURN = (
    "run_id", "number", "span", "route", "answered_model", "prompt_version", "prompt_hash", "template_hash",
    "tools_version", "registry_version", "policy_version", "tools_shown", "raw", "proposals", "final", "error",
    "finish_reason", "input_tokens", "output_tokens", "cached_tokens", "estimate", "cost_micros", "started_at",
    "took_ms",
)  # fmt: skip
ORDER = ("run_id", "tenant_id", "order_id")
AT_ONCE = 50
"""Rows a statement; SQLite takes so many parameters, and PostgreSQL more."""


class EventRow(NamedTuple):
    """A row of `runs_event`, in the order of EVENT. A model's object costs as much as its digest and its MAC."""

    run_id: str
    seq: int
    type: str
    at: datetime
    version: int
    span: str | None
    meta: Json
    payload: Json | None
    salt: str | None
    digest: str
    prev: str
    mac: str
    key_id: str


@dataclass(frozen=True, kw_only=True)
class Statement:
    """`after`: the same rows, added for each row of `moved`: none where nothing moved. `written`: what it makes of a
    write, for the log lines."""

    sql: str
    params: Sequence[Any]
    after: str = ""
    written: Written | None = None


def run_with(rows: Sequence[Statement], change: Statement) -> tuple[Any, ...] | None:
    """Add the rows and make the change; the row that it returns, or None where it changed nothing.

    The caller's transaction undoes the rows where there was nothing to change.
    """
    with statements.cursor() as cursor:
        if connection.vendor == "postgresql" and rows:
            parts = ", ".join(f"r{number} AS ({one.sql})" for number, one in enumerate(rows))
            params = [value for one in (*rows, change) for value in one.params]
            cursor.execute(f"WITH {parts} {change.sql}", params)
        else:
            add(rows)
            cursor.execute(change.sql, change.params)
        found: tuple[Any, ...] | None = cursor.fetchone()
        return found


def stands_alone() -> bool:
    """Whether the database takes rows and their change as one statement."""
    return str(connection.vendor) == "postgresql"


def run_alone(rows: Sequence[Statement], change: Statement) -> tuple[Any, ...] | None:
    """As `run_with`, in a statement that is its own transaction: where the change finds nothing, no row is added.

    All of `rows` are inserts of this module, `change` names what it returns.
    """
    parts = "".join(f", r{number} AS ({one.after})" for number, one in enumerate(rows))
    with statements.cursor() as cursor:
        cursor.execute(
            f"WITH moved AS ({change.sql}){parts} SELECT * FROM moved",
            [value for one in (change, *rows) for value in one.params],
        )
        found: tuple[Any, ...] | None = cursor.fetchone()
        return found


def run_first(change: Statement, rows: Sequence[Statement]) -> tuple[Any, ...] | None:
    """As `run_alone`, in the caller's transaction and statement by statement, for a database that takes no more."""
    with statements.cursor() as cursor:
        cursor.execute(change.sql, change.params)
        found: tuple[Any, ...] | None = cursor.fetchone()
    if found is not None:
        add(rows)
    return found


def add(rows: Sequence[Statement]) -> None:
    with statements.cursor() as cursor:
        for one in rows:
            cursor.execute(one.sql, one.params)


def events(rows: Sequence[EventRow]) -> list[Statement]:
    """The events of one run, in their order."""
    return _inserts(Event, EVENT, [_event(row) for row in rows])


def observations(run_id: str, seen: Sequence[SeenObservation], took_ms: Sequence[int]) -> list[Statement]:
    """What a run was told; `took_ms` of each."""
    each = [_observation(run_id, one, took) for one, took in zip(seen, took_ms, strict=True)]
    return _inserts(Observation, OBSERVATION, each)


def turn(run: RunState, outcome: Outcome) -> list[Statement]:
    """The outcome's turn where it brings one."""
    return _inserts(Turn, TURN, [_turn(run, outcome.turn)] if outcome.turn is not None else [])


def orders(run_id: str, tenant_id: str, order_ids: Sequence[str]) -> list[Statement]:
    """The orders that a run is about, each once."""
    return _inserts(RunOrder, ORDER, [[raw_id(run_id), tenant_id, order_id] for order_id in order_ids])


def _inserts(model: type[Model], columns: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> list[Statement]:
    parts = [rows[first : first + AT_ONCE] for first in range(0, len(rows), AT_ONCE)]
    return [
        Statement(
            sql=_insert(model, columns, len(part)), params=[value for row in part for value in row],
            after=_insert_after(model, columns, len(part)) if stands_alone() else "",
        )
        for part in parts
    ]  # fmt: skip


@lru_cache(maxsize=256)
def _insert(model: type[Model], columns: tuple[str, ...], count: int) -> str:
    row = f"({', '.join(['%s'] * len(columns))})"
    return f"{_into(model, columns)} VALUES {', '.join([row] * count)}"


@lru_cache(maxsize=256)
def _insert_after(model: type[Model], columns: tuple[str, ...], count: int) -> str:
    """Without the names of their types, values of a SELECT would be texts."""
    types = {field.attname: str(field.db_type(connection)) for field in model._meta.concrete_fields}
    # A cast to varchar(n) would cut what is too long; so each such value is a text until it comes to its column.
    casts = ["text" if types[name].startswith("varchar") else types[name] for name in columns]
    row = f"SELECT {', '.join(f'%s::{cast}' for cast in casts)} FROM moved"
    return f"{_into(model, columns)} {' UNION ALL '.join([row] * count)}"


def _into(model: type[Model], columns: tuple[str, ...]) -> str:
    names = ", ".join(f'"{name}"' for name in columns)
    return f"INSERT INTO {model._meta.db_table} ({names})"


def _event(row: EventRow) -> list[Any]:
    return [
        raw_id(row.run_id), row.seq, row.type, dbtime.param(row.at), row.version, row.span,
        canonical_text(row.meta), _text(row.payload), row.salt, row.digest, row.prev, row.mac, row.key_id,
    ]  # fmt: skip


def _observation(run_id: str, o: SeenObservation, took_ms: int) -> list[Any]:
    return [
        raw_id(run_id), o.obs_id, o.position, o.call_id, o.span, o.kind, o.source, canonical_text(o.args),
        canonical_text(o.content), o.content_hash, canonical_text(o.meta), dbtime.param(o.fetched_at), took_ms,
    ]  # fmt: skip


def _turn(run: RunState, turn: NewTurn) -> list[Any]:
    final = {"text": turn.final.text, "evidence": list(turn.final.evidence)} if turn.final else None
    proposals = [
        {"call_id": p.call_id, "tool": p.tool, "args": p.args, "evidence": list(p.evidence)} for p in turn.proposals
    ]
    return [
        raw_id(run.run_id), run.model_calls + 1, turn.span, turn.route, turn.answered_model, turn.prompt.version,
        turn.prompt.hash, turn.prompt.template_hash, turn.prompt.tools_hash, turn.registry_version,
        run.contract.policy_version_pin, canonical_text([t.name for t in turn.prompt.tools]), turn.raw,
        canonical_text(proposals), _text(final), _text(turn.error), turn.finish_reason, turn.input_tokens,
        turn.output_tokens, turn.cached_tokens, turn.estimate, turn.cost_micros, dbtime.param(run.now), turn.took_ms,
    ]  # fmt: skip


def _text(document: Any) -> str | None:
    return None if document is None else canonical_text(document)
