"""Geometry of two more charts: a share by day, and the chance of a slow call by number of calls. Pure, no colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

WIDTH, HEIGHT = 600, 180
LEAST = 2.0
"""Percent of the height: a day with one cap hit is seen."""


@dataclass(frozen=True, kw_only=True)
class DayBar:
    """One day of a trend; places in percent of the drawing."""

    day: str
    runs: int
    part: int
    said: str
    x: str
    width: str
    y: str
    height: str


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A number on an axis or a point of a curve, in units of the drawing."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A line through `points` as SVG takes them, a level that is crossed, and the point that is asked about."""

    points: str
    level_y: float
    here: Mark
    ticks: tuple[Mark, ...]
    width: int = WIDTH
    height: int = HEIGHT


def days(counted: Sequence[tuple[str, int, int]]) -> tuple[DayBar, ...]:
    """(day, runs, those that count) as bars, the highest share to the top."""
    most = max((Fraction(part, runs) for _, runs, part in counted if runs), default=Fraction(0))
    each = 100 / max(1, len(counted))
    return tuple(_bar(n, each, day, runs, part, most) for n, (day, runs, part) in enumerate(counted))


def _bar(n: int, each: float, day: str, runs: int, part: int, most: Fraction) -> DayBar:
    share = Fraction(part, runs) if runs else Fraction(0)
    height = max(LEAST, float(100 * share / most)) if share else 0.0
    return DayBar(
        day=day, runs=runs, part=part, said=f"{float(100 * share):.1f} %", x=f"{n * each + each * 0.1:.2f}%",
        width=f"{each * 0.8:.2f}%", y=f"{100 - height:.2f}%", height=f"{height:.2f}%",
    )  # fmt: skip


def chance(values: Sequence[Fraction], calls: int, level: Fraction) -> Curve:
    """The chance for 0, 1, 2 … calls; `calls` is the number asked about, `level` the chance that is marked."""
    last = max(1, len(values) - 1)
    places = [(round(n * WIDTH / last, 1), _y(value)) for n, value in enumerate(values)]
    x, y = places[min(calls, last)]
    ticks = sorted({0, last // 2, last})
    return Curve(
        points=" ".join(f"{x},{y}" for x, y in places), level_y=_y(level),
        here=Mark(x=x, y=y, text=f"{calls:,}"),
        ticks=tuple(Mark(x=round(n * WIDTH / last, 1), y=HEIGHT, text=f"{n:,}") for n in ticks),
    )  # fmt: skip


def _y(share: Fraction) -> float:
    return round(float(HEIGHT * (1 - share)), 1)
