"""Builds the append-only events of a run and their keyed chain. Part of the store; imports no zone."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from django.conf import settings

from agentsite import clock, dbtime
from agentsite.canonical import canonical
from runs.contracts import NewEvent
from runs.models import Run
from runs.store import clean, inserts, left, outbox, told
from runs.store.inserts import EventRow, Statement


@dataclass(frozen=True, kw_only=True)
class Position:
    """Where a run's record stands: its last sequence number and the chain's head."""

    seq: int
    head: str


Change = Callable[[Sequence[Position], Sequence[Statement]], left.Rows | None]
"""Returns how it leaves the rows that lines tell of, where its statement said so."""


@lru_cache(maxsize=1)
def signing_key() -> tuple[str, bytes]:
    """(key id, secret) that signs now: the first of AUDIT_KEY."""
    key_id, _, secret = settings.AUDIT_KEY.split(",")[0].partition(":")
    return key_id, secret.encode()


def payload_digest(salt: str | None, payload: object) -> str:
    """SHA-256 over salt and canonical payload: survives an erasure of both."""
    return hashlib.sha256((salt or "").encode() + canonical(payload)).hexdigest()


def chain_mac(secret: bytes, prev: str, signed: dict[str, object], digest: str) -> str:
    return hmac.new(secret, prev.encode() + canonical(signed) + digest.encode(), hashlib.sha256).hexdigest()


def signed_part(
    *, run_id: str, seq: int, type_: str, at: str, version: int, span: str | None, meta: object
) -> dict[str, object]:
    """What the MAC covers besides the payload's digest; holds no personal data. Rows of older releases lack the span.

    `runs.audit.links` computes it again.
    """
    return {"run": run_id, "seq": seq, "type": type_, "at": at, "version": version, "span": span, "meta": meta}


def append(run_id: str, at: Position, version: int, events: Sequence[NewEvent]) -> Position:
    """Insert events after `at` in the caller's transaction, which holds the run's row; returns the new position.

    None of them may be one that a client is called about: those come with what they tell of, by `move`.
    """
    rows, position = _rows(run_id, at, version, events)
    assert not any(outbox.kind_of(row.type, row.meta) for row in rows), "a client is told by `move` alone"
    inserts.add(inserts.events(rows))
    told.once_committed(run_id, rows)
    return position


def move(
    run_id: str, at: Position, happened: Sequence[tuple[int, Sequence[NewEvent]]], change: Change
) -> Position:  # fmt: skip
    """Insert events with the change of the run they tell of, in the caller's transaction, which holds the run's row.

    `happened`: the events of each version that the run goes through. `change` adds their rows and writes the run's
    columns, the new position among them; it is told where each version ends. What a client is called about is left
    with it. Returns the last position.
    """
    rows, ends = list[EventRow](), list[Position]()
    for version, of_it in happened:
        more, at = _rows(run_id, at, version, of_it)
        rows.extend(more)
        ends.append(at)
    now = change(ends, inserts.events(rows))
    outbox.leave(run_id, rows)
    told.once_committed(run_id, rows, now)
    return at


def _rows(run_id: str, at: Position, version: int, events: Sequence[NewEvent]) -> tuple[list[EventRow], Position]:
    rows, position = [], at
    for event in events:
        row, position = _row(run_id, position, version, event)
        rows.append(row)
    return rows, position


def note(run: Run, happened: Sequence[NewEvent], **columns: object) -> None:
    """Append what happened beside a run's transitions, in the caller's transaction, which holds the row locked.

    `columns` are changed with it; the version stays, because no status does.
    """
    at = Position(seq=run.last_seq, head=run.chain_head)
    position = move(str(run.id), at, [(run.version, happened)], lambda to, rows: _put(run, to[-1], rows, columns))
    run.last_seq, run.chain_head = position.seq, position.head


def _put(run: Run, at: Position, rows: Sequence[Statement], columns: dict[str, object]) -> None:
    inserts.add(rows)
    Run.objects.filter(id=run.id).update(last_seq=at.seq, chain_head=at.head, updated_at=dbtime.now(), **columns)


def _row(run_id: str, after: Position, version: int, event: NewEvent) -> tuple[EventRow, Position]:
    key_id, secret = signing_key()
    event = clean.event(event)
    now = clock.now()
    moment = now.replace(microsecond=now.microsecond // 1000 * 1000)
    seq, salt = after.seq + 1, secrets.token_hex(16) if event.payload is not None else None
    digest = payload_digest(salt, event.payload)
    signed = signed_part(
        run_id=run_id, seq=seq, type_=event.type, at=clock.rfc3339(moment), version=version, span=event.span,
        meta=event.meta,
    )  # fmt: skip
    mac = chain_mac(secret, after.head, signed, digest)
    row = EventRow(
        run_id=run_id, seq=seq, type=event.type, at=moment, version=version, span=event.span, meta=event.meta,
        payload=event.payload, salt=salt, digest=digest, prev=after.head, mac=mac, key_id=key_id,
    )  # fmt: skip
    return row, Position(seq=seq, head=mac)
