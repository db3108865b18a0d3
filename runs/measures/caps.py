"""Paper: a run's caps, what successful runs used of each, and what the profile grants. Imports no Django, no clock.

The value that a cap should have is the 99th percentile of successful runs: those that hit a cap are not among them, so
it is read beside the share of all runs that came near what is granted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentsite.prices import micros
from agentsite.tenants.profiles import Limits
from runs.measures import numbers

NEAR_PERCENT = 80
COST = "max_cost"
NAMES = {
    "max_model_calls": "Model calls", "deadline_ms": "Active time", "max_write_attempts": "Tries at a refund",
    "max_input_tokens": "Input tokens", "max_output_tokens": "Output tokens", COST: "Cost",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Cap:
    """One cap of one agent. `should_be` is the p99 of `successes` successful runs, and their largest where those are
    under a hundred (`enough` says which); `near` of all runs used 80 % of `granted` or more. Cost is in micro-units."""

    name: str
    granted: int
    should_be: int | None
    most: int | None
    successes: int
    enough: bool
    near: numbers.Share


def granted(limits: Limits) -> dict[str, int]:
    """A profile's caps as plain numbers; cost in micro-units of its currency."""
    return {
        "max_model_calls": limits.max_model_calls, "deadline_ms": limits.deadline_ms,
        "max_write_attempts": limits.max_write_attempts, "max_input_tokens": limits.max_input_tokens,
        "max_output_tokens": limits.max_output_tokens, COST: micros(limits.max_cost),
    }  # fmt: skip


def table(
    limits: Limits, succeeded: Mapping[str, Sequence[int]], near: Mapping[str, int], runs: Mapping[str, int]
) -> tuple[Cap, ...]:
    """Every cap: by name what each successful run used, how many of how many runs came near."""
    caps = granted(limits)
    return tuple(_cap(name, caps[name], succeeded[name], near[name], runs[name]) for name in NAMES)


def _cap(name: str, limit: int, succeeded: Sequence[int], near: int, runs: int) -> Cap:
    ordered = sorted(succeeded)
    return Cap(
        name=name, granted=limit, should_be=numbers.percentile(ordered, 99), most=ordered[-1] if ordered else None,
        successes=len(ordered), enough=numbers.enough(99, len(ordered)), near=numbers.share(near, runs),
    )  # fmt: skip


def is_near(used: int, limit: int) -> bool:
    """Whether a run came within 80 % of a cap."""
    return used > 0 and used * 100 >= limit * NEAR_PERCENT
