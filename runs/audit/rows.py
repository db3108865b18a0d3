"""Reads runs with their events as they are stored, in bounded memory. Part of `runs.audit`; reads rows, writes none.

One statement reads a batch: a run's row and its events are of one moment, also while it goes on.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from django.db import connection
from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast

from agentsite import clock
from runs.audit.links import payload_state
from runs.audit.values import Head, Link, Noted
from runs.models import Run

BATCH = 200
"""Runs a statement."""
CHUNK = 1000
HEAD = ("request_id", "tenant_id", "trace_id", "agent", "status", "reason", "outcome", "last_seq", "chain_head")
NOTE = Noted._fields
PLAIN = ("seq", "type", "version", "span", "salt", "digest", "prev", "mac", "key_id")
OWN = 1 + len(HEAD) + len(NOTE)
"""Columns of the run's own."""
TEXTS = ("at", "meta", "payload")
"""Read as text: a time that is none, or JSON that is none, is a finding and no error; and nothing is parsed."""


def batches(rows: QuerySet[Run], after: uuid.UUID | None) -> Iterator[tuple[uuid.UUID, QuerySet[Run]]]:
    """(the highest id of a batch, its runs), by id from the one after `after` on."""
    rows = rows.order_by("id")
    while True:
        left = rows if after is None else rows.filter(id__gt=after)
        ids = list(left.values_list("id", flat=True)[:BATCH])
        if not ids:
            return
        yield ids[-1], left.filter(id__lte=ids[-1])
        after = ids[-1]


def read(rows: QuerySet[Run]) -> Iterator[tuple[Head, list[Link]]]:
    """Each run with its events in the order of their numbers, by id; payloads are looked at and not kept."""
    texts = {f"{name}_text": Cast(f"events__{name}", TextField()) for name in TEXTS}
    noted_at = {"noted_at": Cast("archive__at", TextField())}
    note = ("noted_at" if name == "at" else f"archive__{name}" for name in NOTE)
    columns = ("id", *HEAD, *note, *(f"events__{name}" for name in PLAIN), *texts)
    found = rows.order_by("id", "events__seq").annotate(**texts, **noted_at).values_list(*columns)
    _read_any_text()
    for run_id, of_run in groupby(found.iterator(chunk_size=CHUNK), key=lambda row: row[0]):
        first, *others = ((row[:OWN], _link(row[OWN:])) for row in of_run)
        told = dict(zip(HEAD, map(_plain, first[0][1:]), strict=False))
        told["last_seq"] = _whole(told["last_seq"])
        head = Head(run_id=str(run_id), **told, archive=_noted(first[0][1 + len(HEAD) :]))
        yield head, [link for _, link in (first, *others) if link is not None]


def _noted(row: tuple[Any, ...]) -> Noted | None:
    if row[0] is None:
        return None
    file, folder, sha256, last_seq, at, key_id, mac = map(_plain, row)
    return Noted(file, folder, sha256, _whole(last_seq), _signed_time(at), key_id, mac)


def _link(row: tuple[Any, ...]) -> Link | None:
    """None for the one row of a run that has no event."""
    if row[0] is None:
        return None
    seq, type_, version, span, salt, digest, prev, mac, key_id, at, meta, payload = map(_plain, row)
    state = payload_state(payload, salt, digest)
    return Link(_whole(seq), type_, _signed_time(at), version, span, meta, digest, prev, mac, key_id, state)


def _read_any_text() -> None:
    """Bytes that are no UTF-8 are a finding, too. PostgreSQL holds none."""
    if connection.vendor == "sqlite":
        connection.ensure_connection()
        connection.connection.text_factory = _text


def _text(stored: bytes) -> str:
    return stored.decode("utf-8", "backslashreplace")


def _plain(value: Any) -> Any:
    """Numbers, nothing, or text: SQLite takes anything in any column, also what no column of ours ever holds."""
    if value is None or type(value) is int:
        return value
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _whole(value: Any) -> int:
    return value if type(value) is int else 0


def _signed_time(text: str) -> str:
    """A stored time in the form that is signed; what is none, or finer than a millisecond, in a form that never is."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return clock.rfc3339(moment) if moment.microsecond % 1000 == 0 else moment.isoformat()
