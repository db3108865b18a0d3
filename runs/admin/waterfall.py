"""Spans drawn as bars: positions along one line of time, in percent of its width. Pure: no query, no clock, no markup.

Long waiting is drawn short and marked, so that ten hours for a person do not squash what took milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from approvals import labels
from runs.admin.spans import Span

LEAST_WIDTH = 0.4
"""Of a bar, in percent: narrower than this nobody sees it."""
LEAST_APART = 16.0
"""Of two numbers on the axis, in percent."""
IDLE_SHARE, LEAST_IDLE_S = 0.25, 0.02
"""A wait is drawn as it is up to this share of all working time; from twice that on it is drawn short."""
MAX_ROWS = 200


@dataclass(frozen=True, kw_only=True)
class Bar:
    """`x` and `width` with their percent sign, as SVG takes them; `tone` is a class of the style sheet."""

    x: str
    width: str
    tone: str


@dataclass(frozen=True, kw_only=True)
class Tick:
    x: str
    text: str
    anchor: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """One span: in words first, then as bars."""

    label: str
    note: str
    tone: str
    bad: bool
    at: str
    moment: str
    waited: str
    took: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, kw_only=True)
class Waterfall:
    """All of it. `squeezed` are the waits that are drawn short, `left_out` how many rows are not shown."""

    rows: tuple[Row, ...]
    bands: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    squeezed: tuple[str, ...]
    worked: str
    waited: str
    people: str
    left_out: int


def short(seconds: float) -> str:
    """A length of time as it is read at a glance: `23 ms`, `1.4 s`, `27 min`, `10 h 2 min`."""
    if seconds < 0.9995:
        return f"{round(seconds * 1000)} ms"
    return f"{seconds:.1f} s" if seconds < 60 else labels.duration(seconds)


def draw(spans: Sequence[Span], began: datetime, now: datetime) -> Waterfall:
    """The waterfall of a run admitted at `began`, as of `now`."""
    shown = spans[:MAX_ROWS]
    flat = [_Flat(span, began, now) for span in shown]
    scale = _Scale(flat)
    return Waterfall(
        rows=tuple(_row(f, scale, began) for f in flat), bands=tuple(scale.bands()), ticks=tuple(scale.ticks()),
        squeezed=tuple(short(p.seconds) for p in scale.pieces if p.squeezed),
        worked=short(scale.worked), waited=short(sum(f.queued for f in flat)),
        people=short(sum(f.over - f.at for f in flat if f.span.person)), left_out=len(spans) - len(shown),
    )  # fmt: skip


class _Flat:
    """A span in seconds since admission; `queued` of them it waited for a worker before it began."""

    def __init__(self, span: Span, began: datetime, now: datetime) -> None:
        self.span = span
        self.at = max(0.0, (span.began - began).total_seconds())
        self.over = max(self.at, ((span.ended or now) - began).total_seconds())
        ready = (span.ready - began).total_seconds() if span.ready is not None else self.at
        self.ready = min(max(0.0, ready), self.at)
        self.queued = self.at - self.ready if span.gap == "queue" else 0.0


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """A stretch of time and where it is drawn, in percent."""

    start: float
    end: float
    x: float
    width: float
    squeezed: bool

    @property
    def seconds(self) -> float:
        return self.end - self.start


class _Scale:
    """From seconds since admission to a place: straight where work was done, short where nothing but waiting was."""

    def __init__(self, flat: Sequence[_Flat]) -> None:
        self._busy = _joined((f.at, f.over) for f in flat if f.span.kind != "wait")
        self.worked = sum(end - start for start, end in self._busy)
        self.end = max([f.over for f in flat], default=0.0)
        self.pieces = list(self._pieces())

    def _pieces(self) -> Iterator[_Piece]:
        most = max(self.worked * IDLE_SHARE, LEAST_IDLE_S)
        stretches = list(self._stretches())
        drawn = [most if idle and end - start > 2 * most else end - start for start, end, idle in stretches]
        total, x = sum(drawn) or 1.0, 0.0
        for (start, end, idle), length in zip(stretches, drawn, strict=True):
            width = 100 * length / total
            yield _Piece(start=start, end=end, x=x, width=width, squeezed=idle and end - start > 2 * most)
            x += width

    def _stretches(self) -> Iterator[tuple[float, float, bool]]:
        """(start, end, whether nothing but waiting was in it), from admission to the end."""
        at = 0.0
        for start, end in self._busy:
            if start > at:
                yield at, start, True
            if end > start:
                yield start, end, False
            at = max(at, end)
        if self.end > at:
            yield at, self.end, True

    def place(self, seconds: float) -> float:
        for piece in self.pieces:
            if seconds <= piece.end:
                share = (seconds - piece.start) / piece.seconds if piece.seconds else 0.0
                return piece.x + max(0.0, share) * piece.width
        return 100.0

    def bar(self, start: float, end: float, tone: str, least: float = LEAST_WIDTH) -> Bar:
        left = min(self.place(start), 100.0 - least)
        return Bar(x=f"{left:.2f}%", width=f"{max(self.place(end) - left, least):.2f}%", tone=tone)

    def bands(self) -> Iterator[Bar]:
        for piece in self.pieces:
            if piece.squeezed:
                yield Bar(x=f"{piece.x:.2f}%", width=f"{piece.width:.2f}%", tone="band")

    def ticks(self) -> Iterator[Tick]:
        """The beginning, the end, and the edges of what is drawn short, as far as they do not overlap."""
        edges = [0.0, *(e for p in self.pieces if p.squeezed for e in (p.start, p.end)), self.end]
        last = -LEAST_APART
        for edge in edges:
            x, ends = self.place(edge), edge in (0.0, self.end)
            if x - last < LEAST_APART or (not ends and x > 100 - LEAST_APART):
                continue
            last = x
            anchor = "start" if edge == 0.0 else "end" if ends else "middle"
            yield Tick(x=f"{x:.2f}%", text=short(edge) if edge else "0", anchor=anchor)


def _joined(intervals: Iterator[tuple[float, float]]) -> list[tuple[float, float]]:
    """Intervals without overlap, in order."""
    joined: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def _row(flat: _Flat, scale: _Scale, began: datetime) -> Row:
    span, waited = flat.span, flat.at - flat.ready
    tone = "bad" if span.bad else "person" if span.person else span.kind
    bars = [scale.bar(flat.at, flat.over, tone)]
    if waited > 0:
        bars.insert(0, scale.bar(flat.ready, flat.at, "look" if span.gap == "look" else "queue", 0.0))
    open_ = " so far" if span.ended is None else ""
    took = f"{short(flat.over - flat.at)}{open_}" if flat.over > flat.at or open_ else "–"
    return Row(
        label=span.label, note=span.note, tone=tone, bad=span.bad, at=f"+{short(flat.at)}",
        moment=labels.moment(span.began), waited=short(waited) if waited > 0 else "", took=took, bars=tuple(bars),
    )  # fmt: skip
