"""The scenarios of `manage.py bench` by their names; a further one is one more entry. Imports no zone and no keeper."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from runs.bench import admission, calls, ended, growth, parked, refund

Say = Callable[[str], None]


class Measured(Protocol):
    """What a scenario came to. `fault`: why the command fails, in one line; None where nothing was lost."""

    @property
    def fault(self) -> str | None: ...
    def lines(self) -> list[tuple[str, str]]:
        """(what, measured) for people."""

    def wire(self) -> dict[str, object]:
        """The same for programs."""


class Scenario(Protocol):
    """One scenario, a module: its arguments come back in `run` by their names."""

    help: str

    def add_arguments(self, parser: ArgumentParser) -> None: ...
    def run(self, options: Mapping[str, Any], say: Say) -> Measured:
        """Raises ArgumentTypeError for arguments that do not fit together, and SiteFailed, ServiceError, MissingServer,
        NoAnswer or Refused where it could not be measured."""


ALL: dict[str, Scenario] = {
    "refund": refund.SCENARIO, "growth": growth.SCENARIO, "parked": parked.SCENARIO, "ended": ended.SCENARIO,
    "admission": admission.SCENARIO, "calls": calls.SCENARIO,
}  # fmt: skip
WHOLE: dict[str, list[str]] = {"refund": [], "growth": [], "parked": [], "ended": [], "admission": []}
"""What `bench` alone measures, with which arguments; QUICK: in small."""
QUICK: dict[str, list[str]] = {
    "refund": ["--quick"], "growth": ["--calls=4,8", "--rounds=1"], "parked": ["--runs=20", "--window=1"],
    "ended": ["--count=300", "--rounds=1", "--seconds=1"], "admission": ["--rate=20", "--seconds=1"],
}  # fmt: skip
