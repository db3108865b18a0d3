"""Control: figures in words, the same on the command line and on pages. Pure: no query, no markup, no clock.

Shares are shown to a tenth of a percent with their 95 % interval; a percentile of too few runs is marked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from approvals import labels
from runs.measures import caps, numbers
from runs.measures.caps import Cap
from runs.measures.figures import Figures
from runs.measures.objectives import Budget, Target
from runs.measures.report import Promise, Report, money

READ = (
    "Percentiles are measured values (nearest rank); * marks one of too few runs, which is then the largest. In "
    "brackets the 95 % interval. Cancelled runs and runs in shadow mode count nowhere."
)
COLUMNS = (
    "runs",
    "success",
    "to a person",
    "failed",
    "cap hits",
    "active p50",
    "active p95",
    "active p99",
    "calls p99",
    "cost p50",
)
BESIDE = {"cancelled": "cancelled", "shadow": "in shadow mode"}
NOTHING = "–"


@dataclass(frozen=True, kw_only=True)
class Row:
    name: str
    cells: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CapWords:
    should_be: str
    most: str
    granted: str
    near: str


@dataclass(frozen=True, kw_only=True)
class BudgetWords:
    """One objective. `percent_left` is of 0 to 100 for a bar, `tone` good, wait, bad or plain."""

    objective: str
    reached: str
    used: str
    left: str
    burns: str
    verdict: str
    tone: str
    percent_left: str


def caveats(made: Report) -> Iterator[str]:
    """What keeps these figures from being the whole truth, a line each."""
    if made.left_out:
        yield f"More ended than were looked at: these are the newest, since {labels.moment(made.since)}."
    elif made.cut:
        yield "An objective looks further back than could be looked at: its budget is of the newest runs alone."
    if 0 < made.whole.runs < 100:
        yield f"Of {made.whole.runs} runs no 99th percentile can be told: it is the largest value."


def ends(f: Figures) -> list[tuple[str, numbers.Share]]:
    return [("success", f.success), ("to a person", f.escalated), ("failed", f.failed), ("cap hits", f.capped)]


def share(s: numbers.Share, *, interval: bool = True) -> str:
    """`96.4 % (27 of 28, 82.3 to 99.4 %)`."""
    if not s.whole:
        return NOTHING
    told = f"{percent(Fraction(s.part, s.whole))} ({s.part:,} of {s.whole:,}"
    return f"{told}, {100 * s.low:.1f} to {100 * s.high:.1f} %)" if interval else f"{told})"


def percent(value: Fraction, digits: int = 1) -> str:
    return f"{numbers.half_up(100 * value, digits)} %"


def beside(f: Figures) -> str:
    told = [f"{n:,} {BESIDE[name]}" for name, n in f.beside.items()]
    told += [f"cost {amount(total, currency)}" for currency, total in f.cost_beside.items()]
    return ", ".join(told) or "none"


def used(f: Figures) -> Iterator[Row]:
    """What runs take, a line a kind of thing; cost by currency."""
    names = {
        "model_calls": "model calls", "input_tokens": "input tokens", "output_tokens": "output tokens",
        "active_ms": "active time", "wall_ms": "from request to end",
    }  # fmt: skip
    for key, name in names.items():
        yield _row(name, f.used[key], key)
    yield _row("of it waiting for people", f.people_ms, "wall_ms")
    for currency, spread in f.cost.items():
        yield _row("cost", spread, currency)
    if f.unpriced:
        yield Row(name="runs of unknown price", cells=(f"{f.unpriced:,}", *[NOTHING] * 5))


def _row(name: str, s: numbers.Spread, unit: str) -> Row:
    marked = [mark(_value(v, unit), at, s.n) for at, v in ((50, s.p50), (95, s.p95), (99, s.p99))]
    total = _value(s.total, unit) if s.n else NOTHING
    return Row(name=name, cells=(f"{s.n:,}", *marked, _value(s.most, unit), total))


def mark(told: str, at: int, n: int) -> str:
    return told if told == NOTHING or numbers.enough(at, n) else f"{told}*"


def _value(value: int | None, unit: str) -> str:
    if value is None:
        return NOTHING
    if unit.endswith("_ms"):
        return time(value)
    return f"{value:,}" if unit.islower() else amount(value, unit)


def time(ms: int) -> str:
    """`870 ms`, `5.6 s`, `27 min`."""
    if ms < 10_000:
        return f"{ms:,} ms"
    return f"{numbers.half_up(Fraction(ms, 1000), 1)} s" if ms < 60_000 else labels.duration(ms / 1000)


def amount(micros: int, currency: str) -> str:
    told = money(micros, currency)
    return f"{told['amount']} {told['currency']}"


def line(f: Figures) -> tuple[str, ...]:
    """One group under `COLUMNS`."""
    active, calls = f.used["active_ms"], f.used["model_calls"]
    cost = [mark(_value(s.p50, currency), 50, s.n) for currency, s in f.cost.items() if s.total]
    return (
        f"{f.runs:,}", *(percent(Fraction(s.part, s.whole)) if s.whole else NOTHING for _, s in ends(f)),
        mark(_value(active.p50, "_ms"), 50, active.n), mark(_value(active.p95, "_ms"), 95, active.n),
        mark(_value(active.p99, "_ms"), 99, active.n), mark(_value(calls.p99, "n"), 99, calls.n),
        " + ".join(cost) or ("unpriced" if f.unpriced else NOTHING),
    )  # fmt: skip


def cap(one: Cap, currency: str) -> CapWords:
    unit = currency if one.name == caps.COST else one.name
    return CapWords(
        should_be=mark(_value(one.should_be, unit), 99, one.successes), most=_value(one.most, unit),
        granted=_value(one.granted, unit), near=share(one.near, interval=False),
    )  # fmt: skip


def promised(promise: Promise) -> tuple[BudgetWords, BudgetWords]:
    """The two objectives of a tenant in words."""
    target = promise.target
    fast = f"{points(target.latency)} within {time(target.latency_ms)} of active time"
    return (
        _budget(promise.success, f"{points(target.success)} do not fail in {days(target)}"),
        _budget(promise.latency, f"{fast} in {days(target)}"),
    )


def days(target: Target) -> str:
    return f"{target.window_days} day{'s' if target.window_days != 1 else ''}"


def points(share: Fraction) -> str:
    """A target as it was set: `99 %`, `99.95 %`."""
    return numbers.half_up(100 * share, 2).rstrip("0").rstrip(".") + " %"


def _budget(budget: Budget, objective: str) -> BudgetWords:
    if budget.used is None:
        verdict, tone = "no run yet", "plain"
    elif not budget.met:
        verdict, tone = "missed: the budget is spent", "bad"
    elif budget.burning:
        verdict, tone = f"burns too fast ({', '.join(budget.burning)})", "wait"
    else:
        verdict, tone = "met", "good"
    allowed = numbers.half_up(budget.allowed, 1)
    used = NOTHING if budget.used is None else f"{percent(budget.used)} ({budget.bad:,} of {allowed} allowed)"
    return BudgetWords(
        objective=objective, reached=share(budget.share), used=used, left=percent(budget.left), verdict=verdict,
        tone=tone, burns=", ".join(_rate(b.rate) for b in budget.burns),
        percent_left=f"{numbers.half_up(100 * budget.left, 2)}%",
    )  # fmt: skip


def _rate(rate: Fraction | None) -> str:
    return NOTHING if rate is None else numbers.half_up(rate, 1)
