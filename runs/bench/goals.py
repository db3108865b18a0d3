"""What the product is to cost: each figure with the value it must reach and the one it aims at. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MISSED, MET, AIMED = "MISSED", "met", "aim met"
NOT_MEASURED = "not measured"


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A figure by its place in the document of a scenario; `at_least`: more is better, else less is."""

    figure: str
    scenario: str
    path: tuple[str, ...]
    must: float
    aim: float
    at_least: bool = False

    def judge(self, documents: Mapping[str, Mapping[str, Any]]) -> Judged:
        """Against what the scenarios came to, by their names; one that is missing was not measured."""
        value: Any = documents.get(self.scenario)
        for step in self.path:
            value = value.get(step) if isinstance(value, Mapping) else None
        measured = float(value) if isinstance(value, int | float) else None
        return Judged(goal=self, measured=measured)

    def reached(self, value: float, wanted: float) -> bool:
        return value >= wanted if self.at_least else value <= wanted


@dataclass(frozen=True, kw_only=True)
class Judged:
    goal: Goal
    measured: float | None

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return NOT_MEASURED
        if self.goal.reached(self.measured, self.goal.aim):
            return AIMED
        return MET if self.goal.reached(self.measured, self.goal.must) else MISSED

    def wire(self) -> dict[str, object]:
        goal = self.goal
        return {
            "figure": goal.figure, "must": goal.must, "aim": goal.aim, "at_least": goal.at_least,
            "measured": self.measured, "verdict": self.verdict,
        }  # fmt: skip

    def line(self) -> tuple[str, str]:
        goal, sign = self.goal, "≥" if self.goal.at_least else "≤"
        measured = NOT_MEASURED if self.measured is None else f"{self.measured:g}"
        return goal.figure, f"{measured}  must {sign} {goal.must:g}, aim {sign} {goal.aim:g}: {self.verdict}"


ONE, SIX = "ours, 1 pass a task", "ours, 6 passes a task"


def _of_a_run(engine: str, said: str) -> list[Goal]:
    """Costs of a run, the same limits whatever the passes a task."""
    ratios, engines = ("ratios", engine), ("engines", engine)
    return [
        Goal(figure=f"one run alone, p50, against the floor, {said}", scenario="refund", path=(*ratios, "alone_p50"),
             must=1.5, aim=0.8),
        Goal(figure=f"CPU a run, against the floor, {said}", scenario="refund", path=(*ratios, "cpu"),
             must=1.4, aim=0.75),
        Goal(figure=f"durable commits a run, {said}", scenario="refund", path=(*engines, "commits"), must=16, aim=11),
        Goal(figure=f"KB of log a run, {said}", scenario="refund", path=(*engines, "wal_kb"), must=24, aim=12),
        Goal(figure=f"messages a run, {said}", scenario="refund", path=(*engines, "messages"), must=6, aim=3),
    ]  # fmt: skip


GOALS: tuple[Goal, ...] = (
    Goal(figure="runs/s many at once, against the floor, one pass a task", scenario="refund",
         path=("ratios", ONE, "rate"), must=0.6, aim=0.8, at_least=True),
    Goal(figure="runs/s many at once, against the floor, six passes a task", scenario="refund",
         path=("ratios", SIX, "rate"), must=1.0, aim=1.5, at_least=True),
    *_of_a_run(ONE, "one pass a task"), *_of_a_run(SIX, "six passes a task"),
    Goal(figure="embedded default, CPU a run, against the loop with no broker", scenario="refund",
         path=("embedded", "ratio"), must=4, aim=2),
    Goal(figure="KB of log a step, 128 model calls against 4", scenario="growth", path=("kb_ratio",), must=1.1,
         aim=1.0),
    Goal(figure="time of a step at 128 calls, last four against first four", scenario="growth", path=("ms_ratio",),
         must=1.5, aim=1.2),
    Goal(figure="MB of the workers for 10,000 parked runs", scenario="parked", path=("memory_mb",), must=20, aim=10),
    Goal(figure="% of a core while they wait", scenario="parked", path=("idle",), must=1, aim=0.5),
    Goal(figure="KB a parked run", scenario="parked", path=("kb_a_run",), must=6, aim=3),
    *(Goal(figure=f"{what} with a million ended runs, against none", scenario="ended", path=("ratios", name),
           must=1.5, aim=1.2)
      for what, name in (("admission, p95,", "admission_p95"), ("a pass of the sweeper", "sweeper_pass"),
                         ("the list of approvals", "approval_list"))),
)  # fmt: skip
