"""Holds an evaluation against the one before it: which scenarios changed, and how much the share of successes. A paper.

Numbers of two suites, or of two scorers, are not compared: the difference would say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runs.evaluation import figures

Json = dict[str, Any]
Cases = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Compared:
    """`incomparable` says in words why nothing else is told; `rose` is the share of successes, with its interval;
    `chance` that the changes would fall out so unevenly if nothing had changed."""

    incomparable: str = ""
    rose: float = 0.0
    low: float = 0.0
    high: float = 0.0
    chance: float = 1.0
    newly_failing: tuple[str, ...] = ()
    newly_passing: tuple[str, ...] = ()

    def wire(self) -> Json:
        if self.incomparable:
            return {"incomparable": self.incomparable}
        return {
            "success_rose": self.rose, "low": self.low, "high": self.high, "chance": self.chance,
            "newly_failing": list(self.newly_failing), "newly_passing": list(self.newly_passing),
        }  # fmt: skip


def compare(now: Cases, then: Cases, *, same_suite: bool, same_scorer: bool) -> Compared:
    """What changed. A scenario passes where all its rounds do."""
    if not same_suite:
        return Compared(incomparable="the suite is another one, so the numbers are not comparable")
    if not same_scorer:
        return Compared(incomparable="the scorer is another one, so the numbers are not comparable")
    good, was = _passing(now), _passing(then)
    worse = tuple(sorted(name for name, passes in good.items() if not passes and was.get(name) is True))
    better = tuple(sorted(name for name, passes in good.items() if passes and was.get(name) is False))
    rose, (low, high) = figures.difference(_counted(now), _counted(then))
    return Compared(
        rose=rose, low=low, high=high, newly_failing=worse, newly_passing=better,
        chance=figures.changed_by_chance(len(worse), len(better)),
    )  # fmt: skip


def _passing(cases: Cases) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for case in cases:
        found[str(case["id"])] = found.get(str(case["id"]), True) and case["kind"] == "success"
    return found


def _counted(cases: Cases) -> tuple[int, int]:
    return sum(1 for case in cases if case["kind"] == "success"), len(cases)
