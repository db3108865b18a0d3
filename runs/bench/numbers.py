"""Numbers as a scenario takes them from its command line, and as it makes figures of many. Imports nothing of ours."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence

MOST, LONGEST = 2_000_000, 3600


def whole(text: str) -> int:
    """A count from the command line. Raises ArgumentTypeError."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST:
        raise ArgumentTypeError(f"expected a whole number from 1 to {MOST}")
    return int(text)


def above_zero(text: str) -> float:
    """Seconds, or so many a second. Raises ArgumentTypeError."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= LONGEST:
        raise ArgumentTypeError(f"expected a number above 0, at most {LONGEST}")
    return number


def wholes(least: int) -> Callable[[str], tuple[int, ...]]:
    """Reads several counts, rising, each at least `least`."""

    def read(text: str) -> tuple[int, ...]:
        found = tuple(whole(part) for part in text.split(","))
        if sorted(set(found)) != list(found) or found[0] < least:
            raise ArgumentTypeError(f"expected rising whole numbers from {least} on with commas, such as 4,16,64")
        return found

    return read


def nearest(values: Sequence[float], share: float) -> float:
    """The measured value that so large a share does not pass, by the nearest rank. Raises ValueError for none."""
    if not values:
        raise ValueError("nothing was measured")
    return sorted(values)[max(0, math.ceil(len(values) * share - 1e-9) - 1)]


def ratio(one: float, other: float) -> float | None:
    """How many times the other; None where that is nothing."""
    return round(one / other, 2) if other else None
