"""What an audit reads and says, as values. Part of `runs.audit`; imports nothing of ours, no Django."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Kind = Literal[
    "changed", "removed", "inserted", "reordered", "cut off at the tail", "payload removed", "unknown key",
    "run row differs", "run removed", "archive not whole",
]  # fmt: skip
Payload = Literal["whole", "gone", "changed", "removed"]


class Link(NamedTuple):
    """An event as it is stored, without its payload: JSON as canonical text, `at` in the form that is signed.

    `payload`: `whole`, `gone` with its salt (an erasure, or somebody who wants it to look like one), `changed`, or
    `removed` beside a salt that no erasure of ours leaves.
    """

    seq: int
    type: str
    at: str
    version: int
    span: str | None
    meta: str
    digest: str
    prev: str
    mac: str
    key_id: str
    payload: Payload


class Noted(NamedTuple):
    """The note of an archived run as it is stored, `at` in the form that is signed."""

    file: str
    folder: str
    sha256: str
    last_seq: int
    at: str
    key_id: str
    mac: str


@dataclass(frozen=True, kw_only=True)
class Head:
    """What a run's own row says of itself."""

    run_id: str
    request_id: str
    tenant_id: str
    trace_id: str
    agent: str
    status: str
    reason: str | None
    outcome: str | None
    last_seq: int
    chain_head: str
    archive: Noted | None = None


@dataclass(frozen=True, kw_only=True)
class Fault:
    """The first row of a run that is not what was written, and what became of it. `type` None: the row is gone."""

    run_id: str
    request_id: str
    seq: int
    type: str | None
    kind: Kind
    why: str

    def wire(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id, "request_id": self.request_id, "seq": self.seq, "type": self.type,
            "kind": self.kind, "why": self.why,
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Named:
    """A fault before it is known whose: at which sequence number, of which type, what, why."""

    seq: int
    type: str | None
    kind: Kind
    why: str

    def of(self, run_id: str, request_id: str) -> Fault:
        return Fault(run_id=run_id, request_id=request_id, seq=self.seq, type=self.type, kind=self.kind, why=self.why)


@dataclass(kw_only=True)
class Verdict:
    """What an audit found. `known` runs stand in a log outside; lines that were `put_back` are older than a fence.

    `unspanned` events were written before the chain covered the span. Payloads that are `archived` lie in files; those
    `read_back` were looked at there. Of the faults a bounded number is kept.
    """

    runs: int = 0
    events: int = 0
    erased: int = 0
    archived: int = 0
    read_back: int = 0
    unspanned: int = 0
    known: int = 0
    unknown: int = 0
    put_back: int = 0
    lines: int = 0
    unread: int = 0
    logs: tuple[str, ...] = ()
    last: str = ""
    faults: list[Fault] = field(default_factory=list)
    faulty: int = 0

    @property
    def whole(self) -> bool:
        return self.faulty == 0

    def wire(self) -> dict[str, Any]:
        """Counts, and the faults; `last` is the id of the last run that was looked at."""
        return {
            "whole": self.whole, "runs": self.runs, "events": self.events, "erased": self.erased,
            "archived": self.archived, "read_back": self.read_back, "unspanned": self.unspanned, "known": self.known,
            "unknown": self.unknown, "put_back": self.put_back, "lines": self.lines, "unread": self.unread,
            "logs": list(self.logs), "last": self.last, "faulty": self.faulty,
            "faults": [fault.wire() for fault in self.faults],
        }  # fmt: skip
