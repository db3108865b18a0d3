"""What this process has read of long runs, so that a load asks for the rest alone. Part of the store; writes nothing.

Observations and turns are only added, but words in them may be erased, by any process and at any time. PostgreSQL marks
every row with the transaction that wrote it, and gives a changed row another mark: whatever is remembered is taken only
where all its marks, which come with each load, are as they were. SQLite has no such mark, and reads everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runs.contracts import SeenObservation, SeenTurn
from runs.sizes import Remembered
from runs.store.whole import EVERYTHING, Past, Row

LEAST_BYTES = 32_000
"""A run that holds less is read whole."""
MOST_BYTES = 8_000_000
"""Of texts, in one process; as values they take several times as much."""
Marks = tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """The first observations and turns of a run, with their marks; `size` of their texts, in bytes."""

    observations: tuple[SeenObservation, ...]
    turns: tuple[SeenTurn, ...]
    marks: Marks
    size: int

    @property
    def past(self) -> Past:
        """Where what is not remembered begins."""
        return Past(
            self.observations[-1].position if self.observations else EVERYTHING.position,
            self.turns[-1].number if self.turns else EVERYTHING.number,
        )

    def begins(self, row: Row) -> bool:
        """Whether the run still begins with it, and what was read now is all that comes after it."""
        new, marks = (len(row["observations"]), len(row["turns"])), row["marks"]
        return all(
            now[: len(before)] == before and len(now) == len(before) + more
            for before, now, more in zip(self.marks, marks, new, strict=True)
        )


@dataclass(kw_only=True)
class Read:
    """What a statement found of a run beyond what was `known` of it (`whole.made` tells what it says)."""

    found: Sequence[Any] | None
    known: Prefix

    def taken(self) -> Sequence[Any] | None:
        """It, once: whoever waits for a model for minutes need not keep it meanwhile."""
        found, self.found = self.found, None
        return found


_KNOWN: Remembered[Prefix] = Remembered(MOST_BYTES)
NOTHING = Prefix(observations=(), turns=(), marks=((), ()), size=0)


def of(run_id: str) -> Prefix:
    """What is remembered of the run, perhaps nothing."""
    return _KNOWN.get(run_id) or NOTHING


def keep(
    run_id: str, before: Prefix, row: Row, observations: tuple[SeenObservation, ...], turns: tuple[SeenTurn, ...]
) -> None:
    """Remember a run that was just read, `before` and what came after it, where it is long."""
    size = before.size + row.get("size", 0)
    if size >= LEAST_BYTES and "marks" in row:
        _KNOWN.keep(run_id, Prefix(observations=observations, turns=turns, marks=row["marks"], size=size), size)


def forget() -> None:
    """All of it."""
    _KNOWN.forget()
