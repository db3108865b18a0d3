"""One turn of a run's past as a model is shown it, whole or in one line, and how long that is.

A paper: pure, imports no Django, clock, store or zone. What a process remembers of turns is what they were rendered of
and comes to the same: a process that never saw a run makes the same bytes.
"""

from __future__ import annotations

import hashlib
import marshal
import sys
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from runs import inert, sizes
from runs.contracts import SeenObservation, SeenWrite, ShownCall, ShownTurn
from tools import digests
from tools.contracts import Json, Proposal

MAX_RESULT_BYTES = 4096
"""A result longer than this, as inert JSON, is shown by reference."""
MAX_KEPT_BYTES, MAX_ASKED_BYTES = 600, 1200
"""What is kept of one result, and of one call's arguments, in a compacted turn, in bytes of JSON."""
MESSAGE = "message"
UNTOLD = ("hash", "score")
"""Of a passage: what the gate and people go by; a model could only copy it."""
REMEMBERED_BYTES = 8 * 1024 * 1024
"""Of memory in a process, for the sizes and the short lines of turns of long runs."""

_SIZES = sizes.Remembered[int](REMEMBERED_BYTES // 4)
_SHORT = sizes.Remembered[tuple[ShownTurn | None, int]](REMEMBERED_BYTES * 3 // 4)
_seen_values = attrgetter(*(f.name for f in fields(SeenObservation) if f.name != "fetched_at"))
_call_values = attrgetter(*(f.name for f in fields(Proposal)))


@dataclass(frozen=True, kw_only=True)
class Answered:
    """One call of a turn and what it was answered, None where nothing is recorded."""

    call: Proposal
    seen: SeenObservation | None


@dataclass(frozen=True, kw_only=True)
class Told:
    """One turn of a run as it was, and what was told beside its calls until the next one; number 0: before any."""

    number: int
    calls: tuple[Answered, ...]
    beside: tuple[SeenObservation, ...]

    @property
    def observations(self) -> tuple[SeenObservation, ...]:
        return (*(c.seen for c in self.calls if c.seen is not None), *self.beside)

    @property
    def messages(self) -> tuple[SeenObservation, ...]:
        return tuple(o for o in self.beside if o.kind == MESSAGE)


# --- a turn as it is shown ----------------------------------------------------------------------------------------


def whole(told: Told) -> ShownTurn:
    """The turn with every call, its one result and every note."""
    calls = tuple(
        ShownCall(
            call_id=one.call.call_id, tool=one.call.tool, args=one.call.args, evidence=one.call.evidence,
            asked=inert.call(one.call),
            result=inert.unanswered(one.call) if one.seen is None else _line(one.seen, tied=True),
        )
        for one in told.calls
    )  # fmt: skip
    return ShownTurn(number=told.number, calls=calls, notes=tuple(_note(seen) for seen in told.beside))


def _note(seen: SeenObservation) -> str:
    return f"{inert.about(seen)}{_line(seen, tied=False)}"


def _line(seen: SeenObservation, *, tied: bool) -> str:
    """An observation, by reference where it is too long; a customer's words are never cut."""
    content = _shown(seen)
    body = inert.inert_json(content)
    size = len(body.encode("utf-8", "surrogatepass"))
    if size <= MAX_RESULT_BYTES or seen.kind == MESSAGE:
        return inert.observation(seen, body=body, tied=tied)
    kept = digests.essence(seen.source, content, MAX_RESULT_BYTES)
    kept |= {"reference": {"observation": seen.obs_id, "sha256": seen.content_hash, "bytes": size}}
    return inert.observation(seen, body=inert.inert_json(kept), tied=tied, reference=True)


def _shown(seen: SeenObservation) -> Any:
    """What it says; each passage of a policy search under the id that it is cited by, without what only code needs."""
    rows = seen.content.get("passages") if seen.source == "search_policy" and isinstance(seen.content, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return seen.content
    passages = [{**_told(row), "id": f"{seen.obs_id}.{n}"} for n, row in enumerate(rows, start=1)]
    return {**seen.content, "passages": passages}


def _told(passage: Json) -> Json:
    return {name: value for name, value in passage.items() if name not in UNTOLD}


def compacted(told: Told, writes: tuple[SeenWrite, ...]) -> ShownTurn:
    """The turn in one line: what came of each call, what it changed, who decided, and the ids to cite all of it by.

    What a customer wrote stays as it is.
    """
    calls = [_kept_call(one, writes) for one in told.calls]
    beside = [_kept(seen) for seen in told.beside if seen.kind != MESSAGE]
    content = {**({"calls": calls} if calls else {}), **({"beside": beside} if beside else {})}
    lines = [inert.tag("compacted", [("turn", told.number)], content)] if content else []
    return ShownTurn(number=told.number, notes=(*lines, *(_note(seen) for seen in told.messages)))


def _kept_call(one: Answered, writes: tuple[SeenWrite, ...]) -> Json:
    made = [_write(w) for w in writes if w.call_id == one.call.call_id]
    call = {"call": one.call.call_id, "tool": one.call.tool, "args": digests.brief(one.call.args, MAX_ASKED_BYTES)}
    answer: Json = {"unanswered": True} if one.seen is None else _kept(one.seen)
    told = {name: value for name, value in answer.items() if name != "source" or value != one.call.tool}
    return {**call, **told, **({"writes": made} if made else {})}


def _kept(seen: SeenObservation) -> Json:
    told = digests.handles(seen.source, _shown(seen), MAX_KEPT_BYTES)
    return {
        "observation": seen.obs_id, "source": seen.source, "kind": seen.kind, "sha256": seen.content_hash, "told": told,
    }  # fmt: skip


def _write(write: SeenWrite) -> Json:
    return {
        "state": write.state, "refund_id": write.refund_id, "payment_id": write.payment_id,
        "order_id": write.order_id, "amount": write.amount.wire(), "approval_id": write.approval_id,
        "action_hash": write.action_hash,
    }  # fmt: skip


def beside(seen: tuple[SeenObservation, ...]) -> ShownTurn:
    return ShownTurn(number=0, notes=tuple(_note(one) for one in seen))


def beside_in_short(seen: tuple[SeenObservation, ...]) -> ShownTurn:
    content = {"beside": [_kept(one) for one in seen]}
    return ShownTurn(number=0, notes=(inert.tag("compacted", [("turn", 0)], content),))


# --- a turn and how long it is -----------------------------------------------------------------------------------


class Turn:
    """A turn whole and in short, each rendered only where it is shown or its size is not remembered.

    In a long run most turns stand in prompt after prompt as they stood before. `size`: of the whole turn, in tokens.
    """

    def __init__(self, told: Told, writes: tuple[SeenWrite, ...], *, remember: bool) -> None:
        self._told, self._writes = told, writes
        self._key = _digest(told) if remember else None
        self._whole: ShownTurn | None = None
        known = None if self._key is None else _SIZES.get(self._key)
        self.size = self._sized() if known is None else known

    @property
    def whole(self) -> ShownTurn:
        if self._whole is None:
            self._whole = whole(self._told)
        return self._whole

    def in_short(self) -> tuple[ShownTurn | None, int]:
        """The turn compacted, and its size; None where the whole turn is no longer than that."""
        if self._key is None:
            return self._compacted()
        key = self._key, _marks(self._told, self._writes)
        known = _SHORT.get(key)
        if known is not None:
            return known
        found = self._compacted()
        notes = found[0].notes if found[0] is not None else ()
        return _SHORT.keep(key, found, len(key[1]) + sum(map(sys.getsizeof, notes)))

    def _sized(self) -> int:
        size = sizes.of_turn(self.whole)
        return size if self._key is None else _SIZES.keep(self._key, size)

    def _compacted(self) -> tuple[ShownTurn | None, int]:
        short = compacted(self._told, self._writes)
        size = sizes.of_turn(short)
        return (short, size) if size < self.size else (None, self.size)


def _marks(told: Told, writes: tuple[SeenWrite, ...]) -> bytes:
    """Of what its calls wrote, as it is now."""
    ids = {one.call.call_id for one in told.calls} if writes else ()
    return marshal.dumps([(w.call_id, _write(w)) for w in writes if w.call_id in ids], 2)


def _digest(told: Told) -> bytes | None:
    """Of all that a turn is rendered of, types and the order of keys included; None: of something that is no JSON.

    Not of the hashes that observations have: an erased one keeps its own.
    """
    calls = [(_call_values(one.call), None if one.seen is None else _values(one.seen)) for one in told.calls]
    try:
        # The second version of the format has the same bytes for the same value.
        made = marshal.dumps((told.number, calls, [_values(seen) for seen in told.beside]), 2)
    except ValueError:
        return None
    return hashlib.sha256(made).digest()


def _values(seen: SeenObservation) -> tuple[Any, str]:
    return _seen_values(seen), seen.fetched_at.isoformat()
