"""Paper: exact numbers of samples: shares with their interval, percentiles by rank. Imports nothing of ours.

A percentile is a value that was measured, the nearest rank: never an interpolation, never an average of percentiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

T = TypeVar("T")
Z95 = 1.959963984540054
"""Of a normal distribution: 95 % lie within so many standard deviations."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """`part` of `whole`, with the bounds of Wilson's 95 % interval; all of 0 to 1. Without any: from 0 to 1."""

    part: int
    whole: int
    low: float
    high: float

    @property
    def share(self) -> float | None:
        return self.part / self.whole if self.whole else None


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A sample: how many, their sum, and percentiles; None where there is none."""

    n: int
    total: int
    p50: int | None
    p95: int | None
    p99: int | None
    most: int | None


def share(part: int, whole: int) -> Share:
    """A share with Wilson's interval, which also holds for a few, and for none or all of them."""
    low, high = wilson(part, whole)
    return Share(part=part, whole=whole, low=low, high=high)


def wilson(part: int, whole: int, z: float = Z95) -> tuple[float, float]:
    """Bounds of the true share behind `part` of `whole`."""
    assert 0 <= part <= whole, "a part is no more than its whole"
    if whole == 0:
        return 0.0, 1.0
    seen, square = part / whole, z * z
    middle = seen + square / (2 * whole)
    reach = z * math.sqrt(seen * (1 - seen) / whole + square / (4 * whole * whole))
    scale = 1 + square / whole
    low = 0.0 if part == 0 else max(0.0, (middle - reach) / scale)
    return low, 1.0 if part == whole else min(1.0, (middle + reach) / scale)


def rank(percent: Fraction | int, n: int) -> int:
    """The nearest rank, counted from 1: the least whose rank is at least that percent of all. For n of 1 or more."""
    assert 0 < percent <= 100 and n >= 1, "a percentile of something"
    return max(1, math.ceil(Fraction(percent) * n / 100))


def percentile(ordered: Sequence[T], percent: Fraction | int) -> T | None:
    """The value at the nearest rank of an ordered sample; None where there is none."""
    return ordered[rank(percent, len(ordered)) - 1] if ordered else None


def enough(percent: Fraction | int, n: int) -> bool:
    """Whether a sample is large enough for this percentile to be more than its largest value: p99 needs 100."""
    return n * (100 - Fraction(percent)) >= 100


def spread(values: Iterable[int]) -> Spread:
    """Sum and percentiles of a sample in any order."""
    ordered = sorted(values)
    return Spread(
        n=len(ordered), total=sum(ordered), p50=percentile(ordered, 50), p95=percentile(ordered, 95),
        p99=percentile(ordered, 99), most=ordered[-1] if ordered else None,
    )  # fmt: skip


def half_up(value: Fraction, digits: int) -> str:
    """A number as it is shown: rounded half away from zero, at exactly so many decimals."""
    scale = 10**digits
    whole = math.floor(abs(value) * scale + Fraction(1, 2))
    sign = "-" if value < 0 and whole else ""
    shown = f"{whole:0{digits + 1}d}"
    return f"{sign}{shown[:-digits]}.{shown[-digits:]}" if digits else f"{sign}{shown}"
