"""Geometry of the console's charts, drawn by the server as SVG. Pure: no query, no clock, no markup, no colour."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

OUTCOME = {
    "refunded": "good", "answered": "good", "no_refund_due": "good", "resolved_by_staff": "model",
    "partly_refunded": "wait", "handed_to_staff": "wait", "refund_failed": "bad",
}  # fmt: skip
LEAST = 0.6
"""Percent of the width: a bar that stands for one row is seen."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """A name and two counts, the second part of the first."""

    name: str
    month: int
    week: int
    tone: str
    link: str


@dataclass(frozen=True, kw_only=True)
class BarRow:
    """One row of a bar chart; widths with their percent sign."""

    name: str
    month: int
    week: int
    tone: str
    link: str
    month_width: str
    week_width: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Rows of bars, all on one scale; `total` of the longer window and of the shorter."""

    rows: tuple[BarRow, ...]
    total: int
    week: int


@dataclass(frozen=True, kw_only=True)
class Slice:
    name: str
    count: int
    percent: str
    x: str
    width: str
    tone: str


@dataclass(frozen=True, kw_only=True)
class Share:
    """Parts of one whole, side by side; empty ones are left out."""

    slices: tuple[Slice, ...]
    total: int


def tone(outcome: str) -> str:
    return OUTCOME.get(outcome, "plain")


def bars(given: Iterable[Given]) -> Chart:
    """Bars on one scale, the longest across the whole width."""
    rows = list(given)
    most = max((g.month for g in rows), default=0)
    return Chart(
        rows=tuple(
            BarRow(name=g.name, month=g.month, week=g.week, tone=g.tone, link=g.link,
                   month_width=_width(g.month, most), week_width=_width(g.week, most))
            for g in rows
        ),
        total=sum(g.month for g in rows), week=sum(g.week for g in rows),
    )  # fmt: skip


def share(parts: Sequence[tuple[str, int, str]]) -> Share:
    """(name, count, tone) as slices of one bar."""
    total, x, slices = sum(count for _, count, _ in parts), 0.0, list[Slice]()
    for name, count, tone in parts:
        if not count:
            continue
        width = 100 * count / total
        slices.append(Slice(name=name, count=count, percent=f"{width:.0f} %", x=f"{x:.2f}%", width=f"{width:.2f}%",
                            tone=tone))  # fmt: skip
        x += width
    return Share(slices=tuple(slices), total=total)


def _width(count: int, most: int) -> str:
    return f"{max(LEAST, 100 * count / most):.2f}%" if count and most else "0%"
