"""One statement that reads a run with all that its handlers may look at. Part of the store; writes nothing.

A query a table costs several times as much: what belongs to a run comes as JSON arrays beside its row, in the order of
the names below. JSON of ours stays the text it was hashed over, within the array.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from django.db import connection

from agentsite import dbtime, statements
from runs.store.lease import raw_id

Row = dict[str, Any]
RUN = (
    "tenant_id", "request_id", "trace_id", "agent", "contract", "schema", "status", "reason", "waiting_for",
    "resume_status", "dependency", "status_since", "created_at", "version", "last_seq", "chain_head", "last_input_seq",
    "folded_input_seq", "pending_action", "approval_id", "verification", "model_calls", "write_attempts",
    "input_tokens", "output_tokens", "cost_micros", "active_ms", "repairs", "retries", "voids", "attempts",
    "down_since", "restored_at", "window_tokens", "turn_requests", "versions",
)  # fmt: skip
OBSERVATION = (
    "obs_id", "position", "call_id", "span", "kind", "source", "args", "content", "content_hash", "meta", "fetched_at",
)  # fmt: skip
TURN = (
    "number", "route", "answered_model", "prompt_version", "proposals", "final", "error", "input_tokens", "estimate",
)  # fmt: skip
WRITE = (
    "key", "order_id", "payment_id", "tool", "args", "action_hash", "approval_id", "decision_id", "body", "origin",
    "amount_minor", "currency", "state", "refund_id", "refund_state", "call_id", "intent_at", "unknown_since",
    "absent_at", "executed_at", "seen_at", "looks",
)  # fmt: skip
ATTEMPT = ("write_id", "number", "prepared_at", "sent_at", "gives_up_at", "answer")
INPUT = ("seq", "kind", "text", "by", "at")
APPROVAL = (
    "id", "status", "action_hash", "required", "large", "expires_at", "decided_at", "decided_by", "reason",
    "execute_by", "reread",
)  # fmt: skip
LONG = "content"
"""Of an observation: by far its longest text. Within the array it would be quoted, sent longer and read twice."""
BREAK = 31
"""The character between two of those: no JSON has it."""
IN_ORDER = "position, m.obs_id"
DECIDED = "decision = 'approve' AND counted"


class Past(NamedTuple):
    """Only what comes after this observation's place, and after the turn of this number, is read."""

    position: int
    number: int


EVERYTHING = Past(-1, -1)
# Name, table, columns, condition (the run's own columns say `r.`), order.
_MANY = (
    ("observations", "runs_observation", tuple(c for c in OBSERVATION if c != LONG), "run_id = r.id", IN_ORDER),
    ("turns", "runs_turn", TURN, "run_id = r.id", "number"),
    ("writes", "runs_write", WRITE, "run_id = r.id", "intent_at"),
    ("tries", "runs_attempt", ATTEMPT, "write_id IN (SELECT key FROM runs_write WHERE run_id = r.id)", "number"),
    ("inputs", "runs_input", INPUT,
     "run_id = r.id AND seq > r.folded_input_seq AND seq <= r.last_input_seq", "seq"),
    ("approval", "approvals_approval", APPROVAL, "id = r.approval_id", "id"),
    ("deciders", "approvals_decision", ("by",), f"approval_id = r.approval_id AND {DECIDED}", "id"),
)  # fmt: skip
_TIMES = frozenset({
    "status_since", "created_at", "down_since", "restored_at", "fetched_at", "intent_at", "unknown_since", "absent_at",
    "executed_at", "seen_at", "prepared_at", "sent_at", "gives_up_at", "at", "expires_at", "decided_at", "execute_by",
})  # fmt: skip
_JSON = frozenset({
    "args", "content", "meta", "proposals", "final", "error", "reread", "pending_action", "verification", "versions",
})  # fmt: skip
_FLAGS = frozenset({"large"})


def read(run_id: str, past: Past = EVERYTHING) -> Row | None:
    """A run as `made` gives it; None where there is no such run. `past` is heeded on PostgreSQL alone."""
    columns, given = seen(past)
    with statements.cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM runs_run r WHERE r.id = %s", [*given, raw_id(run_id)])
        found = cursor.fetchone()
    return None if found is None else made(found)


def seen(past: Past = EVERYTHING) -> tuple[str, list[Any]]:
    """What of a run's row, named `r`, and of all that belongs to it is selected; with its parameters."""
    return _columns(connection.vendor), [past.position, past.number, past.position] if dbtime.on_postgres() else []


def made(found: Sequence[Any]) -> Row:
    """The columns RUN by name, `now`, and a list of rows under each name of `_MANY`, of what was selected.

    Times are aware, JSON is parsed but for the contract, which stays text. On PostgreSQL there are `marks`, too: of all
    observations and of all turns, in their order, the transactions that wrote them; and `size`, of the texts that came.
    Raises ValueError, TypeError.
    """
    row, lists = _values(RUN, found[: len(RUN)]), found[len(RUN) + 1 : len(RUN) + 1 + len(_MANY)]
    row["now"], texts = dbtime.moment(found[len(RUN)]), found[len(RUN) + 1 + len(_MANY)]
    for (name, _, columns, _, _), text in zip(_MANY, lists, strict=True):
        row[name] = [_values(columns, values) for values in json.loads(text)] if text else []
    for seen, text in zip(row["observations"], texts.split(chr(BREAK)) if texts else (), strict=True):
        seen[LONG] = _parsed(text)
    if dbtime.on_postgres():
        row["marks"] = tuple(tuple(marks.split(",")) if marks else () for marks in found[-2:])
        row["size"] = len(texts or "") + sum(len(text or "") for text in lists[:2])
    return row


@lru_cache(maxsize=2)
def _columns(vendor: str) -> str:
    own = ", ".join(f"r.{column}" for column in RUN)
    listed, texts = (_as_postgres, _POSTGRES_TEXTS) if vendor == "postgresql" else (_as_sqlite, _SQLITE_TEXTS)
    many = ", ".join(listed(*one[1:]) for one in _MANY)
    return f"{own}, {dbtime.now_sql()}, {many}, {texts}"


_POSTGRES_TEXTS = (
    f"(SELECT string_agg(m.{LONG}, chr({BREAK}) ORDER BY m.{IN_ORDER}) FROM runs_observation m "
    "WHERE run_id = r.id AND position > %s), "
    f"(SELECT string_agg(m.xmin::text, ',' ORDER BY m.{IN_ORDER}) FROM runs_observation m WHERE run_id = r.id), "
    "(SELECT string_agg(m.xmin::text, ',' ORDER BY m.number) FROM runs_turn m WHERE run_id = r.id)"
)
_LATER = {"runs_observation": " AND position > %s", "runs_turn": " AND number > %s"}
_SQLITE_TEXTS = (
    f"(SELECT group_concat({LONG}, char({BREAK})) FROM "
    f"(SELECT {LONG} FROM runs_observation m WHERE run_id = r.id ORDER BY m.{IN_ORDER}))"
)


def _as_postgres(table: str, columns: Sequence[str], condition: str, order: str) -> str:
    each = ", ".join(f'm."{column}"' for column in columns)
    return (
        f"(SELECT json_agg(json_build_array({each}) ORDER BY m.{order})::text FROM {table} m "
        f"WHERE {condition}{_LATER.get(table, '')})"
    )


def _as_sqlite(table: str, columns: Sequence[str], condition: str, order: str) -> str:
    each = ", ".join(f'm."{column}"' for column in columns)
    return (
        f"(SELECT json_group_array(json_array({each})) FROM "
        f"(SELECT * FROM {table} m WHERE {condition} ORDER BY m.{order}) m)"
    )


def _values(columns: Sequence[str], values: Sequence[Any]) -> Row:
    row = dict(zip(columns, values, strict=True))
    for name, made in _makers(tuple(columns)):
        if row[name] is not None:
            row[name] = made(row[name])
    return row


@lru_cache(maxsize=16)
def _makers(columns: tuple[str, ...]) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """Which of the columns come in another form than they are seen in."""
    return tuple((name, _MAKERS[name]) for name in columns if name in _MAKERS)


def _parsed(text: Any) -> Any:
    """As `json.loads`, which takes several times as long for a short text."""
    try:
        value, end = _DECODER.raw_decode(text)
    except ValueError:
        return json.loads(text)
    return value if end == len(text) else json.loads(text)


_DECODER = json.JSONDecoder()
_MAKERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_TIMES, dbtime.moment), **dict.fromkeys(_JSON, _parsed), **dict.fromkeys(_FLAGS, bool),
}  # fmt: skip
