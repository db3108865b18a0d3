"""How large a prompt is thought to be, in tokens, by bytes alone. A paper: pure, knows no tokeniser and no provider.

An estimate is the same for every model; a run's own earlier turns tell by how much its models count otherwise.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from functools import lru_cache
from threading import Lock
from typing import Generic, TypeVar

import orjson

from runs.contracts import Prompt, RunState, ShownTurn, ToolSchema
from runs.inert import inert_json

V = TypeVar("V")
PER_MESSAGE = 8
"""Tokens of what a provider puts round one message or block."""
LEAST, MOST = 0.5, 4.0
A_THING_BYTES = 400
"""What remembering anything takes of memory beside its own bytes, about."""


def tokens(text: str) -> int:
    """An estimate, rounded up; 0 for no text."""
    if text.isascii():
        return -(-2 * len(text) // 7)
    plain = len(text.encode("ascii", "ignore"))
    other = len(text.encode("utf-8", "surrogatepass")) - plain
    # JSON and English come to 3 to 4 bytes a token; any other character is 2 to 4 bytes, and a token or more.
    return -(-2 * plain // 7) + -(-other // 2)


def of_turn(turn: ShownTurn) -> int:
    """A turn with its calls, results and notes, and what is put round them."""
    around = PER_MESSAGE * (2 * len(turn.calls) + len(turn.notes))
    return sum(tokens(piece) for piece in turn.pieces) + around


def of_fixed(*, system: str, goal: str, snapshot: str, tools: Iterable[ToolSchema]) -> int:
    """What every prompt of a run holds, its tools once more as a provider's own."""
    schemas = sum(_of_tool(t.name + t.summary, orjson.dumps(t.parameters)) for t in tools)
    return sum(tokens(text) + PER_MESSAGE for text in (system, goal, snapshot)) + schemas


@lru_cache(maxsize=256)
def _of_tool(said: str, parameters: bytes) -> int:
    """One tool, by its words and its schema as JSON: the same few in every turn of every run."""
    return tokens(said + inert_json(orjson.loads(parameters))) + PER_MESSAGE


def of_prompt(prompt: Prompt) -> int:
    fixed = of_fixed(system=prompt.system, goal=prompt.goal, snapshot=prompt.snapshot, tools=prompt.tools)
    return fixed + sum(of_turn(turn) for turn in prompt.turns)


def ratio(run: RunState) -> float:
    """Tokens that providers counted for one estimated, by the run's turns so far, within 0.5 and 4; 1 without any."""
    known = [t for t in run.turns if t.input_tokens > 0 and t.estimate > 0]
    if not known:
        return 1.0
    found = sum(t.input_tokens for t in known) / sum(t.estimate for t in known)
    return min(MOST, max(LEAST, found))


class Remembered(Generic[V]):
    """What was worked out before, by all that it was worked out of, in at most `most_bytes`; what was used last stays.

    For values of pure functions alone: one that is forgotten is worked out again, and is the same. Safe for threads.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.forget()

    def forget(self) -> None:
        self.bytes, self._lock = 0, Lock()
        self._known: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        with self._lock:
            found = self._known.get(key)
            if found is None:
                return None
            self._known.move_to_end(key)
            return found[0]

    def keep(self, key: Hashable, value: V, own_bytes: int = 0) -> V:
        """Keep the value, of so many bytes with its key, in place of what was not used for the longest time."""
        taken = own_bytes + A_THING_BYTES
        with self._lock:
            self.bytes += taken - self._known.pop(key, (value, 0))[1]
            self._known[key] = value, taken
            while self.bytes > self._most_bytes:
                self.bytes -= self._known.popitem(last=False)[1][1]
        return value
