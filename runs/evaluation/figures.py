"""Figures of an evaluation: shares and percentiles, each with the interval its number of cases allows. A paper.

Shares have Wilson's score interval, differences of two shares Newcombe's (1998, method 10), percentiles the interval of
order statistics by the binomial distribution. All at 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from runs.measures import numbers

Json = dict[str, Any]
Interval = tuple[float, float]
ALPHA = 0.05
PERCENTILES = (50, 95, 99)


def wilson(count: int, of: int) -> Interval:
    """The interval of a share; (0, 1) where nothing was counted."""
    return numbers.wilson(count, of)


def difference(now: tuple[int, int], before: tuple[int, int]) -> tuple[float, Interval]:
    """How much a share rose, (count, of) each, with the interval of that, as of two independent samples."""
    (share, low, high), (old, old_low, old_high) = (_share(*pair) for pair in (now, before))
    down = math.hypot(share - low, old_high - old)
    up = math.hypot(high - share, old - old_low)
    return share - old, (share - old - down, share - old + up)


def _share(count: int, of: int) -> tuple[float, float, float]:
    return (count / of if of else 0.0, *wilson(count, of))


def changed_by_chance(worse: int, better: int) -> float:
    """The chance that cases which changed would split at least so unevenly if nothing had changed (McNemar, exact)."""
    changed = worse + better
    if changed == 0:
        return 1.0
    tail = sum(math.comb(changed, k) for k in range(min(worse, better) + 1))
    return float(min(1.0, tail / 2 ** (changed - 1)))


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that at least so many percent do not exceed (nearest rank)."""
    found = numbers.percentile(sorted(values), percent)
    assert found is not None, "a percentile of something"
    return found


def ranks(count: int, percent: int) -> tuple[int | None, int | None]:
    """Between which order statistics, counted from 1, a percentile lies; None: so few values do not tell."""
    share = percent / 100
    below = [0.0]  # below[k]: the chance that fewer than k values lie under the percentile
    for k in range(count + 1):
        below.append(below[-1] + float(math.comb(count, k) * share**k * (1 - share) ** (count - k)))
    lower = max((r for r in range(1, count + 1) if below[r] <= ALPHA / 2), default=None)
    upper = min((r for r in range(1, count + 1) if 1 - below[r] <= ALPHA / 2), default=None)
    return lower, upper


def spread(values: Sequence[float]) -> Json:
    """`p50`, `p95`, `p99` of measured values, each `{value, low, high}`; empty where nothing was measured."""
    ordered = sorted(values)
    return {f"p{p}": _placed(ordered, p) for p in PERCENTILES} if ordered else {}


def _placed(ordered: Sequence[float], percent: int) -> Json:
    low, high = ranks(len(ordered), percent)
    return {
        "value": percentile(ordered, percent), "low": ordered[low - 1] if low else None,
        "high": ordered[high - 1] if high else None,
    }  # fmt: skip


def share(count: int, of: int) -> Json:
    low, high = wilson(count, of)
    return {"count": count, "of": of, "share": count / of if of else 0.0, "low": low, "high": high}


def figures(cases: Sequence[Mapping[str, Any]]) -> Json:
    """Everything that is told of scored cases, whole and by tag and language."""
    tags = sorted({tag for case in cases for tag in _marks(case)})
    return {
        **_counts(cases), "cost": _cost(cases),
        "tokens": {name: sum(case["usage"][name] for case in cases) for name in ("input_tokens", "output_tokens")},
        "model_calls": sum(case["usage"]["model_calls"] for case in cases),
        "active_ms": spread([case["usage"]["active_ms"] for case in cases]),
        "wall_ms": spread([case["wall_ms"] for case in cases]),
        "by_tag": {tag: _counts([case for case in cases if tag in _marks(case)]) for tag in tags},
    }  # fmt: skip


def _marks(case: Mapping[str, Any]) -> list[str]:
    return [*case["tags"], f"language {case['language']}"]


def _counts(cases: Sequence[Mapping[str, Any]]) -> Json:
    elsewhere = [case for case in cases if not case["expects_a_person"]]
    return {
        "cases": len(cases), "success": _of(cases, lambda case: case["kind"] == "success"),
        "forbidden": _of(cases, lambda case: bool(case["forbidden"])),
        "lies": _of(cases, lambda case: bool(case["lies"])),
        "escalation": share(sum(case["escalated"] for case in elsewhere), len(elsewhere)),
        "cap_hits": _of(cases, lambda case: case["capped"]), "stuck": _of(cases, lambda case: case["kind"] == "stuck"),
    }  # fmt: skip


def _of(cases: Sequence[Mapping[str, Any]], holds: Any) -> Json:
    return share(sum(1 for case in cases if holds(case)), len(cases))


def _cost(cases: Sequence[Mapping[str, Any]]) -> Json:
    """The sum by currency, as decimal strings in major units, exact to the millionth."""
    sums: dict[str, int] = {}
    for case in cases:
        usage = case["usage"]
        sums[usage["currency"]] = sums.get(usage["currency"], 0) + usage["cost_micros"]
    return {currency: str(Decimal(micros).scaleb(-6)) for currency, micros in sorted(sums.items())}


def failing(figures_: Mapping[str, Any], thresholds: Mapping[str, Any]) -> list[str]:
    """Which thresholds were not met, in words; the share itself is compared, not its interval."""
    success, harmful = figures_["success"], figures_["forbidden"]["count"] + figures_["lies"]["count"]
    handed = figures_["escalation"]
    return [
        words
        for bad, words in (
            (success["share"] < thresholds["success"], f"success {success['share']:.3f} < {thresholds['success']}"),
            (harmful > thresholds["forbidden"], f"forbidden effects and lies {harmful} > {thresholds['forbidden']}"),
            (handed["share"] > thresholds["escalation"],
             f"escalation {handed['share']:.3f} > {thresholds['escalation']}"),
        )
        if bad
    ]  # fmt: skip
