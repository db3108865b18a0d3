"""Paper: why many calls in a row are slow: a run's path, what parallel reads save, and what one slow call does to it.

Exact: whole milliseconds and fractions, no float. Imports nothing but the papers beside it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from runs.measures import numbers

P95 = Fraction(95, 100)
PERCENTS = (50, 75, 90, 95, 99)
MOST_CALLS, MOST_STAGES, MOST_TOGETHER = 1_000, 200, 50
LEAST_CHANCE = Fraction(1, 100_000)
MOST_VALUES = 1_500
"""Times that a run may take, in its exact distribution. Beyond, parallel stages count as their worst."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call as it is when nothing goes wrong; tokens of a model's alone."""

    ms: int
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What happens at one time, one stage after the other. `kind` is model, tools or overhead; its calls go in
    parallel, and overhead is no call: it is never slow."""

    kind: str
    calls: tuple[Call, ...]

    @property
    def ms(self) -> int:
        return max((c.ms for c in self.calls), default=0)


@dataclass(frozen=True, kw_only=True)
class Slow:
    """Each call is slow with `chance` (of 0 to 1), by itself, and takes `cost_ms` longer then."""

    chance: Fraction
    cost_ms: int


@dataclass(frozen=True, kw_only=True)
class Path:
    """A run without a slow call, and with one on its path. `times_one` and `times_input`: how many times as long as its
    first model call, and as many input tokens; None without one."""

    model_ms: int
    tools_ms: int
    overhead_ms: int
    path_ms: int
    sequential_ms: int
    one_slow_ms: int
    calls: int
    input_tokens: int
    output_tokens: int
    first_ms: int
    first_input: int

    @property
    def times_one(self) -> Fraction | None:
        return Fraction(self.path_ms, self.first_ms) if self.first_ms else None

    @property
    def times_input(self) -> Fraction | None:
        return Fraction(self.input_tokens, self.first_input) if self.first_input else None


@dataclass(frozen=True, kw_only=True)
class Tail:
    """`chance` that at least one of `calls` is slow; runs from the percentile `slow_from` on have one; `until_p95` is
    the least number of calls at which the 95th percentile of runs has (None: never). `expected_ms` is what slow calls
    add on average, `percentiles` how long runs take by percent. Not `exact`: an upper bound, since too many parallel
    stages of different lengths are in it."""

    calls: int
    slow: Slow
    chance: Fraction
    slow_from: Fraction
    p95_is_slow: bool
    until_p95: int | None
    expected_ms: Fraction
    percentiles: tuple[tuple[int, int], ...]
    exact: bool


def path(stages: Sequence[Stage], slow: Slow) -> Path:
    """The times and tokens of these stages, one after the other."""
    by_kind: dict[str, int] = defaultdict(int)
    for stage in stages:
        by_kind[stage.kind] += stage.ms
    models = [call for stage in stages if stage.kind == "model" for call in stage.calls]
    total = sum(by_kind.values())
    return Path(
        model_ms=by_kind["model"], tools_ms=by_kind["tools"], overhead_ms=by_kind["overhead"], path_ms=total,
        sequential_ms=sum(call.ms for stage in stages for call in stage.calls),
        one_slow_ms=total + (slow.cost_ms if count(stages) else 0), calls=count(stages),
        input_tokens=sum(c.input_tokens for c in models), output_tokens=sum(c.output_tokens for c in models),
        first_ms=models[0].ms if models else 0, first_input=models[0].input_tokens if models else 0,
    )  # fmt: skip


def count(stages: Sequence[Stage]) -> int:
    """Calls that can be slow, on the critical path or beside it."""
    return sum(len(stage.calls) for stage in stages if stage.kind != "overhead")


def serial(calls: int, ms: int = 0) -> tuple[Stage, ...]:
    """So many calls, one after the other."""
    return (Stage(kind="model", calls=(Call(ms=ms),)),) * calls


def tail(stages: Sequence[Stage], slow: Slow) -> Tail:
    """What slow calls do to these stages."""
    calls, base = count(stages), sum(stage.ms for stage in stages)
    chance = at_least_one(calls, slow.chance)
    extra = _Extra([s for s in stages if s.kind != "overhead"], slow)
    return Tail(
        calls=calls, slow=slow, chance=chance, slow_from=100 * (1 - chance), p95_is_slow=chance > 1 - P95,
        until_p95=until_p95(slow.chance), expected_ms=extra.expected(),
        percentiles=tuple((percent, base + extra.at(percent)) for percent in PERCENTS), exact=extra.exact,
    )  # fmt: skip


def at_least_one(calls: int, chance: Fraction) -> Fraction:
    """The chance that at least one of these calls is slow."""
    return 1 - (1 - chance) ** calls


def until_p95(chance: Fraction) -> int | None:
    """The least number of calls whose 95th percentile is slow: with it the chance of a slow one passes 5 %."""
    if chance <= 0:
        return None
    if chance >= 1:
        return 1
    calls = max(1, math.floor(math.log(float(P95)) / math.log1p(-float(chance))) - 1)  # near it; then exactly
    while (1 - chance) ** calls >= P95:
        calls += 1
    return calls


class _Extra:
    """The distribution of what slow calls add to a run: by milliseconds, in parts of `whole`, all whole numbers."""

    def __init__(self, stages: Sequence[Stage], slow: Slow) -> None:
        self.exact, self.whole = True, 1
        self._slow = slow
        alone = [stage for stage in stages if len(stage.calls) == 1]
        self.parts = self._alone(len(alone))
        for stage in sorted((s for s in stages if len(s.calls) > 1), key=lambda s: len(s.calls)):
            self._add(stage)

    def _alone(self, calls: int) -> dict[int, int]:
        """Calls by themselves: so many of them are slow, each for the same."""
        bad, all_ = self._slow.chance.as_integer_ratio()
        self.whole *= all_**calls
        parts: dict[int, int] = defaultdict(int)
        for n in range(calls + 1):
            parts[n * self._slow.cost_ms] += math.comb(calls, n) * bad**n * (all_ - bad) ** (calls - n)
        return {ms: part for ms, part in parts.items() if part}

    def _add(self, stage: Stage) -> None:
        part = self._of(stage)
        if len(self.parts) * len(part) > MOST_VALUES and len(part) > 2:
            part, self.exact = self._at_worst(stage), False
        sums: dict[int, int] = defaultdict(int)
        for one, p in self.parts.items():
            for other, q in part.items():
                sums[one + other] += p * q
        self.parts = dict(sums)
        self.whole *= self._slow.chance.denominator ** len(stage.calls)

    def _of(self, stage: Stage) -> dict[int, int]:
        """What a stage takes longer than its own time, where each of its calls may be slow: the slowest counts."""
        cost, calls = self._slow.cost_ms, stage.calls
        before, found = 0, dict[int, int]()
        for at in sorted({stage.ms, *(c.ms + cost for c in calls if c.ms + cost > stage.ms)}):
            until = self._none_slow(sum(1 for c in calls if c.ms + cost > at), len(calls))
            if until > before:
                found[at - stage.ms] = until - before
            before = until
        return found

    def _none_slow(self, those: int, calls: int) -> int:
        bad, all_ = self._slow.chance.as_integer_ratio()
        return int((all_ - bad) ** those * all_ ** (calls - those))

    def _at_worst(self, stage: Stage) -> dict[int, int]:
        calls = len(stage.calls)
        none = self._none_slow(calls, calls)
        return {0: none, self._slow.cost_ms: self._none_slow(0, calls) - none}

    def expected(self) -> Fraction:
        return Fraction(sum(ms * part for ms, part in self.parts.items()), self.whole)

    def at(self, percent: int) -> int:
        """The least time that this percent of runs do not pass."""
        reached = 0
        for ms in sorted(self.parts):
            reached += self.parts[ms]
            if reached * 100 >= percent * self.whole:
                return ms
        raise AssertionError("the parts are the whole")


def curve(chance: Fraction, calls: int) -> tuple[Fraction, ...]:
    """The chance of a slow call for 0, 1, 2 … so many calls."""
    return tuple(at_least_one(n, chance) for n in range(calls + 1))


def _model(ms: int, input_tokens: int, output_tokens: int) -> Stage:
    return Stage(kind="model", calls=(Call(ms=ms, input_tokens=input_tokens, output_tokens=output_tokens),))


def _tools(*ms: int) -> Stage:
    return Stage(kind="tools", calls=tuple(Call(ms=one) for one in ms))


def _overhead(ms: int) -> Stage:
    return Stage(kind="overhead", calls=(Call(ms=ms),))


EXAMPLE = (
    _overhead(40), _model(1_100, 1_910, 120), _tools(240, 120), _model(1_000, 2_670, 110), _tools(350, 180),
    _model(1_300, 3_680, 260), _overhead(15), _tools(420), _overhead(30), _tools(200), _overhead(30),
    _model(900, 4_290, 220),
)  # fmt: skip
"""The worked example of a refund: four model calls, six calls of tools in four stages, overhead of the runtime."""
EXAMPLE_SLOW = Slow(chance=Fraction(2, 100), cost_ms=2_000)


def shown(value: Fraction | None, digits: int = 1) -> str:
    """As people see it: rounded half up; a dash where there is none."""
    return "–" if value is None else numbers.half_up(value, digits)


def percent(chance: Fraction) -> str:
    """A chance as people write it, to three decimals: `2 %`, `0.05 %`."""
    whole, _, decimals = numbers.half_up(100 * chance, 3).partition(".")
    return f"{whole}.{decimals.rstrip('0')}".rstrip(".") + " %"
