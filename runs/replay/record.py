"""Reads an exported run back as typed values: its steps, and what doors and people left between them. Reads no row.

A step is one checkpoint: the events that carry its version. One that left no event is a step all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from agentsite.clock import parse_rfc3339
from runs.contracts import OLDEST_SCHEMA, SCHEMA, Contract, SeenInput, SeenObservation
from runs.replay.export import FORMAT
from tools.contracts import Json

# What handlers and their checkpoint write; anything else happened beside a run's steps.
BY_STEPS = frozenset({
    "run.status", "prompt.built", "model.called", "model.replied", "model.invalid", "model.failed", "route.switched",
    "tool.observed", "tool.error", "gate.decided", "approval.requested", "approval.decided", "approval.expired",
    "approval.void", "write.intent", "write.released_again", "write.result", "write.unknown", "write.reconciled",
    "write.verified", "write.mismatch", "reply.rejected", "reply.sent", "notice",
    "customer.told", "customer.asked", "model.escalated", "reminder", "loop.stopped", "route.passed_over",
    "evidence.found", "evidence.compared", "shadow.proposed",
})  # fmt: skip
SETTLED = "write.settled_by_staff"
# What a fence after a restore leaves beside a run's steps.
DOUBTED, RESTORED = "write.doubted", "restored"
ENDS = frozenset({"completed", "escalated", "cancelled", "failed"})
INSTANT = timedelta(microseconds=1)
# Events carry milliseconds: a handler looked in the one its events name, or before.
GRAIN = timedelta(milliseconds=1)


class BadRecord(ValueError):
    """A document that is no exported run, or one that cannot be replayed; the words say why."""


@dataclass(frozen=True, kw_only=True)
class Happened:
    """A recorded event. `payload` None: it has none, or it was erased."""

    seq: int
    type: str
    at: datetime
    version: int
    span: str | None
    meta: Json
    payload: Json | None

    @property
    def data(self) -> Json:
        return {**self.meta, **(self.payload or {})}


@dataclass(frozen=True, kw_only=True)
class Mark:
    """The committed right to send, given between two steps."""

    key: str
    attempt: int
    at: datetime


@dataclass(frozen=True, kw_only=True)
class Step:
    """One recorded checkpoint, and what came since the one before it. `version` is the one it led to."""

    version: int
    at: datetime
    events: tuple[Happened, ...]
    inputs: tuple[SeenInput, ...] = ()
    mark: Mark | None = None
    settled: tuple[Happened, ...] = ()
    doubted: tuple[Happened, ...] = ()
    door_void: bool = False

    def first(self, *types: str) -> Happened | None:
        return next((e for e in self.events if e.type in types), None)

    @property
    def change(self) -> Happened | None:
        """The event of the change of status; None where it stayed."""
        return self.first("run.status")

    @property
    def reason(self) -> str | None:
        return self.change.meta["reason"] if self.change else None

    @property
    def by_the_table(self) -> bool:
        """Whether a handler made this step: a person's or the store's own change names no `on`."""
        return self.change is None or "on" in self.change.meta

    def slug(self, *types: str) -> str | None:
        """The error of the first such event."""
        found = self.first(*types)
        return found.meta.get("error") if found else None


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A whole recorded run. `rest` is what came after its last step: no checkpoint of it was made yet."""

    run: Json
    contract: Contract
    settings: Json
    backend: Json
    steps: tuple[Step, ...]
    rest: Step
    turns: Mapping[int, Json]
    observations: tuple[SeenObservation, ...]
    took_ms: Mapping[str, int]
    approvals: Mapping[str, Json]
    writes: Mapping[str, Json]
    outcome: str | None
    late: tuple[Happened, ...] = field(default=())

    @property
    def run_id(self) -> str:
        return str(self.run["run_id"])

    def result_of(self, call_id: str) -> SeenObservation | None:
        return next((o for o in self.observations if o.call_id == call_id), None)


def read(document: Any) -> Recorded:
    """The record in a document. Raises BadRecord."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise BadRecord(f"no exported run of format {FORMAT}")
    if document.get("schema") not in range(OLDEST_SCHEMA, SCHEMA + 1):
        known = f"{OLDEST_SCHEMA} to {SCHEMA}"
        raise BadRecord(f"schema_unknown: schema {document.get('schema')}, known: {known}")
    with readable():
        return _recorded(document)


@contextmanager
def readable() -> Iterator[None]:
    """What is not as an export writes it ends as BadRecord, wherever in a document it stands."""
    try:
        yield
    except BadRecord:
        raise
    except ValidationError as error:
        raise BadRecord(f"schema_unknown: contract: {error.error_count()} faults") from None
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise BadRecord(f"not readable: {type(error).__name__}: {error}") from None


def _recorded(document: Json) -> Recorded:
    _whole(document["events"])
    _here(document.get("archive"))
    events = [_event(e) for e in document["events"]]
    end = next((e.seq for e in events if e.type == "run.status" and e.meta["to"] in ENDS), None)
    steps = _steps([e for e in events if end is None or e.seq <= end], document)
    return Recorded(
        run=document["run"], contract=Contract.model_validate(document["contract"]), settings=document["settings"],
        backend=document["backend"], steps=steps[:-1], rest=steps[-1],
        turns={t["number"]: t for t in document["turns"]},
        observations=tuple(_observation(o) for o in document["observations"]),
        took_ms={o["call_id"]: o["took_ms"] for o in document["observations"]},
        approvals={a["approval_id"]: a for a in document["approvals"]},
        writes={w["key"]: w for w in document["writes"]}, outcome=document["outcome"],
        late=tuple(e for e in events if end is not None and e.seq > end),
    )  # fmt: skip


def _whole(events: list[Json]) -> None:
    gone = {e["meta"]["class"]: e["at"] for e in events if e["type"] == "data.erased"}
    if gone:
        words = " and ".join(f"its {kind} on {at}" for kind, at in gone.items())
        raise BadRecord(f"erased: the run lost {words}, so that it cannot be replayed")


def _here(archive: Json | None) -> None:
    if archive:
        where = f"in {archive['file']} since {archive['at']}"
        raise BadRecord(f"archived: its texts lie {where}; `archive --restore` brings them back")


def _event(e: Json) -> Happened:
    if e["payload"] is None and e["type"] in ("gate.decided", "model.replied", "reply.sent"):
        raise BadRecord(f"the payload of event {e['seq']} ({e['type']}) was erased")
    return Happened(
        seq=e["seq"], type=e["type"], at=parse_rfc3339(e["at"]), version=e["version"], span=e["span"], meta=e["meta"],
        payload=e["payload"],
    )  # fmt: skip


def _observation(o: Json) -> SeenObservation:
    return SeenObservation(
        obs_id=o["obs_id"], position=o["position"], call_id=o["call_id"], span=o["span"], kind=o["kind"],
        source=o["source"], args=o["args"], content=o["content"], content_hash=o["content_hash"], meta=o["meta"],
        fetched_at=parse_rfc3339(o["fetched_at"]),
    )  # fmt: skip


def _steps(events: list[Happened], document: Json) -> tuple[Step, ...]:
    """One a version; what doors left stands under the version that the run had then, so before the next step."""
    doors = _Doors(events, document["inputs"])
    own = [e for e in events if e.seq not in doors.taken and e.type in BY_STEPS]
    steps, at = list[Step](), parse_rfc3339(document["run"]["created_at"])
    for version in range(2, document["run"]["version"] + 2):
        mine = tuple(e for e in own if e.version == version)
        before = version - 1
        came = [at + INSTANT, *(i.at for i in doors.inputs.get(before, ())), *(e.at for e in mine)]
        at = max(came)
        steps.append(
            Step(
                version=version, at=at, events=mine, inputs=tuple(doors.inputs.get(before, ())),
                mark=doors.marks.get(before), door_void=before in doors.voids,
                settled=tuple(doors.settled.get(before, ())), doubted=tuple(doors.doubted.get(before, ())),
            )
        )  # fmt: skip
    return tuple(steps)


class _Doors:
    """Events that no checkpoint made: inputs, voided approvals, marks, writes that a person settled or a fence doubted.

    `taken` are their numbers.
    """

    def __init__(self, events: list[Happened], inputs: list[Json]) -> None:
        self.taken: set[int] = set()
        self.inputs: dict[int, list[SeenInput]] = {}
        self.marks: dict[int, Mark] = {}
        self.voids: set[int] = set()
        self.settled: dict[int, list[Happened]] = {}
        self.doubted: dict[int, list[Happened]] = {}
        self._by_seq = {i["seq"]: i for i in inputs}
        for event in events:
            self._take(event)

    def _take(self, e: Happened) -> None:
        if e.seq in self._by_seq:
            self.inputs.setdefault(e.version, []).append(_input(self._by_seq[e.seq]))
        elif e.type == "write.sent":
            self.marks[e.version] = Mark(key=e.meta["key"], attempt=e.meta["attempt"], at=e.at)
        elif e.type == SETTLED:
            self.settled.setdefault(e.version, []).append(e)
        elif e.type == DOUBTED:
            self.doubted.setdefault(e.version, []).append(e)
        elif e.type == "approval.void" and self._of_a_door(e):
            self.voids.add(e.version)
        else:
            return
        self.taken.add(e.seq)

    def _of_a_door(self, e: Happened) -> bool:
        """In a message's own transaction, or a fence's."""
        return e.meta["reason"] == RESTORED or any(i.seq == e.seq - 1 for i in self.inputs.get(e.version, ()))


def _input(i: Json) -> SeenInput:
    return SeenInput(
        seq=i["seq"], kind=i["kind"], text=i["text"], by=i["by"], at=parse_rfc3339(i["at"]),
        attachments=tuple(i.get("attachments", ())),
    )  # fmt: skip
