"""How a commit leaves the rows that its log lines tell of, by the statement that writes. Part of the store.

PostgreSQL returns them with the run's own row. It shows them as the statements before left them, so what is written
within that very statement is laid over. Where it is not asked so (SQLite, rare paths) `told` reads the rows afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from django.db import connection

from runs.states import TERMINAL

RUN = ("agent", "status", "reason", "outcome", "waiting_for", "release", "created_at", "completed_at")
APPROVAL = ("id", "status", "rule", "action_hash", "required", "amount_minor", "currency", "requested_at",
            "expires_at", "void_reason")  # fmt: skip
WRITE = ("key", "tool", "order_id", "payment_id", "amount_minor", "currency", "state", "refund_id", "refund_state",
         "action_hash", "approval_id", "decision_id", "intent_at", "closed_at")  # fmt: skip
ATTEMPT = ("number", "prepared_at", "sent_at", "answered_at", "answer")
TRIES, CALLED = "attempts", "callback_url"
ENDED = frozenset(status.value for status in TERMINAL)
Row = dict[str, Any]
Rows = dict[str, Any]
"""Columns as they are stored, by part: `run` one row, `versions` its text, `approvals` and `writes` rows in their
order, each write with its `attempts`; CALLED, which no line tells, is the run's address."""
_RETURNED = {
    CALLED: f"to_json(runs_run.{CALLED})::text",
    "run": f"json_build_array({', '.join(f'runs_run.{name}' for name in RUN)})::text",
    "approvals": (
        f"(SELECT json_agg(json_build_array({', '.join(f'p.{name}' for name in APPROVAL)}) "
        "ORDER BY p.requested_at, p.id)::text FROM approvals_approval p WHERE p.run_id = runs_run.id)"
    ),
    "writes": (
        f"(SELECT json_agg(json_build_array({', '.join(f'w.{name}' for name in WRITE)}, "
        f"(SELECT json_agg(json_build_array({', '.join(f't.{name}' for name in ATTEMPT)}) ORDER BY t.number) "
        "FROM runs_attempt t WHERE t.write_id = w.key)) ORDER BY w.intent_at, w.key)::text "
        "FROM runs_write w WHERE w.run_id = runs_run.id)"
    ),
}


class Happened(Protocol):
    """An event, stored or not yet."""

    @property
    def type(self) -> str: ...
    @property
    def meta(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a statement makes of a write: columns by name, and of its attempts one: the one of this number, or, without
    a number, the last that was sent."""

    key: str
    columns: Mapping[str, Any] = field(default_factory=dict)
    attempt: Mapping[str, Any] = field(default_factory=dict)


def about(events: Iterable[Happened]) -> frozenset[str]:
    """The parts that the lines of these events tell of."""
    events = tuple(events)
    types = {event.type for event in events}
    ends = any(event.type == "run.status" and event.meta.get("to") in ENDED for event in events)
    begins = "run.accepted" in types
    asked = ends or "write.intent" in types or any(type_.startswith("approval.") for type_ in types)
    wrote = ends or any(type_.startswith("write.") for type_ in types)
    told = {"run": ends or begins, "versions": begins, "approvals": asked, "writes": wrote}
    return frozenset(part for part, is_told in told.items() if is_told)


@lru_cache(maxsize=16)
def _returning(parts: frozenset[str]) -> str:
    return "".join(f", {sql}" for part, sql in _RETURNED.items() if part in parts)


def returning(parts: frozenset[str]) -> str:
    """What an UPDATE of the run returns of these parts behind its own columns; nothing where it is not asked so."""
    return _returning(parts) if connection.vendor == "postgresql" else ""


def found(parts: frozenset[str], returned: Sequence[Any], written: Iterable[Written | None]) -> Rows | None:
    """The parts by the columns that `returning` asked for, with what the same statement wrote laid over them."""
    if not returned:
        return None
    named = [part for part in _RETURNED if part in parts]
    rows = {part: _READ[part](json.loads(text) if text else []) for part, text in zip(named, returned, strict=True)}
    for one in written:
        if one is not None and "writes" in rows:
            _lay(rows["writes"], one)
    return rows


def _run(values: Sequence[Any]) -> Row:
    return dict(zip(RUN, values, strict=True))


def _approvals(lists: Sequence[Sequence[Any]]) -> list[Row]:
    return [dict(zip(APPROVAL, values, strict=True)) for values in lists]


def _writes(lists: Sequence[Sequence[Any]]) -> list[Row]:
    return [
        dict(zip(WRITE, values, strict=True)) | {TRIES: [dict(zip(ATTEMPT, t, strict=True)) for t in tries or ()]}
        for *values, tries in lists
    ]  # fmt: skip


_READ: dict[str, Callable[[Any], Any]] = {
    CALLED: str, "run": _run, "approvals": _approvals, "writes": _writes,
}  # fmt: skip


def _lay(writes: list[Row], written: Written) -> None:
    """A write that was not there begins last: no other of the run's is younger than the intent of this moment."""
    row = next((one for one in writes if one["key"] == written.key), None)
    if row is None:
        row = dict.fromkeys(WRITE) | {"key": written.key, TRIES: []}
        writes.append(row)
    row.update({name: value for name, value in written.columns.items() if name in WRITE})
    if written.attempt:
        _lay_attempt(row[TRIES], written.attempt)


def _lay_attempt(tries: list[Row], made: Mapping[str, Any]) -> None:
    sent = [one for one in tries if one["sent_at"] is not None]
    of_number = [one for one in tries if one["number"] == made.get("number")]
    mine = of_number if "number" in made else sent[-1:]
    if mine:
        mine[0].update(made)
    elif "number" in made:
        tries.append(dict.fromkeys(ATTEMPT) | {"answer": ""} | dict(made))
