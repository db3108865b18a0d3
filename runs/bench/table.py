"""`bench` without a scenario: every scenario that a goal is about, one after the other, and each goal with its verdict.

A scenario that could not be measured takes no other with it. Imports no zone and no keeper.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentsite.private.servers import ServiceError
from runs.bench.goals import AIMED, GOALS, MET, MISSED, Judged
from runs.bench.scenarios import Measured, Scenario
from runs.chaos.calls import NoAnswer, Refused
from runs.chaos.ground import SiteFailed

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Table:
    """What each scenario came to, by its name; `failed`: why one was not measured; `in_small`: no goal is judged."""

    measured: Mapping[str, Measured]
    failed: Mapping[str, str] = field(default_factory=dict)
    in_small: bool = False

    @property
    def judged(self) -> list[Judged]:
        documents = {name: one.wire() for name, one in self.measured.items()}
        return [goal.judge(documents) for goal in GOALS]

    @property
    def fault(self) -> str | None:
        """Of lost work alone: a goal that is missed is a figure like any other."""
        faults = {name: one.fault for name, one in self.measured.items() if one.fault is not None}
        return "; ".join(f"{name}: {why}" for name, why in {**faults, **self.failed}.items()) or None

    def wire(self) -> dict[str, object]:
        return {
            "goals": None if self.in_small else [one.wire() for one in self.judged], "failed": dict(self.failed),
            "scenarios": {name: one.wire() for name, one in self.measured.items()},
        }  # fmt: skip

    def lines(self) -> list[tuple[str, str]]:
        told = [(f"{name}: {what}", said) for name, one in self.measured.items() for what, said in one.lines()]
        told += [(f"{name}: not measured", why.splitlines()[0]) for name, why in self.failed.items()]
        return [*told, ("", ""), *self._goals()]

    def _goals(self) -> list[tuple[str, str]]:
        if self.in_small:
            return [("goals", "not judged: too little was measured")]
        judged = self.judged
        counts = {verdict: sum(one.verdict == verdict for one in judged) for verdict in (AIMED, MET, MISSED)}
        summed = ", ".join(f"{count} {name}" for name, count in counts.items())
        return [*(one.line() for one in judged), ("goals", summed)]


def measure(
    scenarios: Mapping[str, Scenario], options: Mapping[str, list[str]], say: Say, *, in_small: bool = False
) -> Table:
    """Each named scenario with the arguments given for it. Raises MissingServer: then nothing can be measured."""
    measured, failed = dict[str, Measured](), dict[str, str]()
    for name, arguments in options.items():
        say(f"{name} …")
        try:
            measured[name] = scenarios[name].run(_parsed(scenarios[name], arguments), say)
        except (ServiceError, SiteFailed, NoAnswer, Refused) as error:
            failed[name] = str(error)
    return Table(measured=measured, failed=failed, in_small=in_small)


def _parsed(scenario: Scenario, arguments: list[str]) -> Mapping[str, Any]:
    parser = ArgumentParser()
    scenario.add_arguments(parser)
    return vars(parser.parse_args(arguments))
