"""How figures of an evaluation are written for people, in the terminal and in the console. A paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHARES = {
    "success": "as expected", "forbidden": "forbidden effects", "lies": "untrue words", "escalation": "handed to staff",
    "cap_hits": "ended by a cap", "stuck": "stuck",
}  # fmt: skip
TIMES = {"active_ms": "active", "wall_ms": "from request to end"}
PERCENTILES = ("p50", "p95", "p99")
KINDS = {
    "success": "as expected", "wrong_end": "wrong end", "escalated": "handed to staff instead", "stuck": "stuck",
    "lie": "untrue words", "forbidden": "forbidden effect",
}  # fmt: skip


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def interval(one: Mapping[str, Any]) -> str:
    return f"{100 * one['low']:.1f} to {100 * one['high']:.1f} %"


def placed(one: Mapping[str, Any]) -> str:
    """A percentile of milliseconds with its interval; too few cases leave an end of it open, shown as `?`."""
    low, high = (_length(one[end]) if one[end] is not None else "?" for end in ("low", "high"))
    return f"{_length(one['value'])} ({low} to {high})"


def _length(ms: float) -> str:
    return f"{ms / 1000:.2f} s" if ms >= 1000 else f"{ms:.0f} ms"


def cost(figures: Mapping[str, Any]) -> str:
    return ", ".join(f"{amount} {currency}" for currency, amount in figures["cost"].items()) or "nothing"


def tokens(figures: Mapping[str, Any]) -> str:
    counted = figures["tokens"]
    return f"{counted['input_tokens']:,} in, {counted['output_tokens']:,} out"


def happened(case: Mapping[str, Any]) -> str:
    """What was not as expected of a case, the gravest first."""
    return "; ".join([*case["forbidden"], *case["lies"], *case["wrong"], *case["notes"]])
