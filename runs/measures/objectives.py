"""Paper: a tenant's objective, what of its error budget is used, and how fast it burns. Imports no Django, no clock.

Burn is a ratio: 1 uses the whole budget up in exactly the window. A window alarms only together with its twelfth, so
that what is over does not go on alarming, and only where the sample is large enough to be sure.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from runs.measures import numbers

HOUR_S = 3600
FAST_S, SLOW_S, TRICKLE_S = HOUR_S, 6 * HOUR_S, 72 * HOUR_S
SPENDS = {FAST_S: Fraction(2, 100), SLOW_S: Fraction(5, 100), TRICKLE_S: Fraction(10, 100)}
"""The share of the whole budget that a window may use before somebody is told."""
NAMES = {FAST_S: "fast", SLOW_S: "slow", TRICKLE_S: "trickle"}
SHORT = 12
WINDOWS_S = tuple(sorted({*SPENDS, *(long // SHORT for long in SPENDS)}))
MOST_DAYS = 90


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is promised: `success` of runs do not fail, `latency` of those end within `latency_ms` of active time, over
    `window_days`. Shares are exact, of 0 to 1; `own`: a person set it, else it is the default."""

    success: Fraction = Fraction(99, 100)
    latency: Fraction = Fraction(95, 100)
    latency_ms: int = 30_000
    window_days: int = 30
    own: bool = False


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Runs of one window: all that count, those that failed, those that did not fail and were too slow."""

    runs: int = 0
    failed: int = 0
    slow: int = 0

    @property
    def served(self) -> int:
        return self.runs - self.failed


@dataclass(frozen=True, kw_only=True)
class Burn:
    """One window: what its runs burn, how much the budget bears of it, and whether somebody should look now."""

    name: str
    window_s: int
    bad: int
    runs: int
    rate: Fraction | None
    short_rate: Fraction | None
    limit: Fraction
    burning: bool


@dataclass(frozen=True, kw_only=True)
class Budget:
    """`allowed` of `runs` may be bad; `used` is the share of that which is spent, above 1 where the objective is
    missed, and None without a run. `left` never falls below 0."""

    share: numbers.Share
    target: Fraction
    bad: int
    runs: int
    allowed: Fraction
    used: Fraction | None
    burns: tuple[Burn, ...]

    @property
    def left(self) -> Fraction:
        return max(Fraction(0), 1 - self.used) if self.used is not None else Fraction(1)

    @property
    def met(self) -> bool:
        return self.used is None or self.used <= 1

    @property
    def burning(self) -> tuple[str, ...]:
        return tuple(burn.name for burn in self.burns if burn.burning)


def success(target: Target, counted: dict[int, Counted]) -> Budget:
    """The budget of failures. `counted` by seconds of window: the target's own and all of `WINDOWS_S`."""
    pairs = {window: (c.failed, c.runs) for window, c in counted.items()}
    return _budget(target.success, window_s(target), pairs)


def latency(target: Target, counted: dict[int, Counted]) -> Budget:
    """The budget of slowness, of runs that did not fail: a failure is paid for once."""
    pairs = {window: (c.slow, c.served) for window, c in counted.items()}
    return _budget(target.latency, window_s(target), pairs)


def window_s(target: Target) -> int:
    return target.window_days * 24 * HOUR_S


def burn_rate(bad: int, runs: int, target: Fraction) -> Fraction | None:
    """How many times faster than allowed; None without a run."""
    return Fraction(bad, runs) / (1 - target) if runs else None


def _budget(target: Fraction, whole_s: int, pairs: dict[int, tuple[int, int]]) -> Budget:
    bad, runs = pairs[whole_s]
    return Budget(
        share=numbers.share(runs - bad, runs), target=target, bad=bad, runs=runs, allowed=(1 - target) * runs,
        used=burn_rate(bad, runs, target), burns=tuple(_burn(w, target, whole_s, pairs) for w in SPENDS),
    )  # fmt: skip


def _burn(window: int, target: Fraction, whole_s: int, pairs: dict[int, tuple[int, int]]) -> Burn:
    (bad, runs), (short_bad, short_runs) = pairs[window], pairs[window // SHORT]
    limit = max(Fraction(1), SPENDS[window] * whole_s / window)
    rate, short = burn_rate(bad, runs, target), burn_rate(short_bad, short_runs, target)
    sure = numbers.wilson(bad, runs)[0] > 1 - target
    burning = rate is not None and rate >= limit and short is not None and short >= limit and sure
    return Burn(
        name=NAMES[window], window_s=window, bad=bad, runs=runs, rate=rate, short_rate=short, limit=limit,
        burning=burning,
    )  # fmt: skip
