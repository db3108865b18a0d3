"""Paper: ended runs as columns of plain numbers, so that a million of them stay under a hundred megabytes.

Imports no Django, no clock. A run is a row number; a name (tenant, release, model …) is kept once.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields

from runs.measures.ends import End, Kind


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """One ended run. Times in milliseconds; cost in micro-units of `currency`; `people_ms` it waited for a decision or
    an answer of a person; `by_hand`: a person finished it; `day` it ended on, in UTC."""

    tenant: str
    agent: str
    release: str
    model: str
    status: str
    reason: str
    end: End
    by_hand: bool
    currency: str
    day: str
    model_calls: int
    write_attempts: int
    input_tokens: int
    output_tokens: int
    cost_micros: int
    active_ms: int
    wall_ms: int
    people_ms: int


NUMBERS = tuple(f.name for f in fields(Ended) if f.type == "int")
WORDS = ("tenant", "agent", "release", "model", "currency", "day")
Outcome = tuple[str, str, End, bool]


class Columns:
    """Grows by a run at a time. `number[name]` and `word(name, row)` are of one row, `outcome(row)` how it ended."""

    def __init__(self) -> None:
        self.number: dict[str, array[int]] = {name: array("q") for name in NUMBERS}
        self._codes = {name: array("L") for name in (*WORDS, "outcome")}
        self._known: dict[str, dict[str, int]] = {name: {} for name in WORDS}
        self._words: dict[str, list[str]] = {name: [] for name in WORDS}
        self._outcomes: dict[tuple[str, str, Kind, bool], int] = {}
        self._ends: list[Outcome] = []

    def __len__(self) -> int:
        return len(self._codes["outcome"])

    def add(self, run: Ended) -> None:
        for name, column in self.number.items():
            column.append(getattr(run, name))
        for name in WORDS:
            self._codes[name].append(self._code(name, getattr(run, name)))
        self._codes["outcome"].append(self._outcome(run))

    def _code(self, name: str, word: str) -> int:
        code = self._known[name].setdefault(word, len(self._words[name]))
        if code == len(self._words[name]):
            self._words[name].append(word)
        return code

    def _outcome(self, run: Ended) -> int:
        key = (run.status, run.reason, run.end.kind, run.by_hand)
        if key not in self._outcomes:
            self._outcomes[key] = len(self._ends)
            self._ends.append((run.status, run.reason, run.end, run.by_hand))
        return self._outcomes[key]

    def outcome(self, row: int) -> Outcome:
        return self._ends[self._codes["outcome"][row]]

    def ends(self, rows: Iterable[int]) -> Counter[Outcome]:
        """How many of these rows ended in which way."""
        codes = self._codes["outcome"]
        return Counter({self._ends[code]: n for code, n in Counter(codes[row] for row in rows).items()})

    def where(self, rows: Iterable[int], *kinds: Kind) -> list[int]:
        """Those of these rows that ended as one of these kinds."""
        codes, wanted = self._codes["outcome"], {n for n, end in enumerate(self._ends) if end[2].kind in kinds}
        return [row for row in rows if codes[row] in wanted]

    def spoken(self, name: str, rows: Iterable[int], said: Collection[str]) -> list[int]:
        """Those of these rows that have one of these words."""
        codes, wanted = self._codes[name], {n for n, word in enumerate(self._words[name]) if word in said}
        return [row for row in rows if codes[row] in wanted]

    def words(self, name: str) -> list[str]:
        return list(self._words[name])

    def word(self, name: str, row: int) -> str:
        return self._words[name][self._codes[name][row]]

    def groups(self, name: str) -> dict[str, array[int]]:
        """Row numbers by word, in the order of appearance."""
        parts: list[array[int]] = [array("L") for _ in self._words[name]]
        for row, code in enumerate(self._codes[name]):
            parts[code].append(row)
        return dict(zip(self._words[name], parts, strict=True))

    def all(self) -> range:
        return range(len(self))
