"""Shares, percentiles, what an end says about the service, error budgets and caps: exact numbers of small samples."""

from __future__ import annotations

import ast
from fractions import Fraction
from typing import get_args

import pytest

from agentsite.money import Money
from agentsite.tenants.profiles import Limits
from runs import budgets
from runs.measures import caps, ends, numbers, objectives, words
from runs.measures.ends import Kind
from runs.measures.objectives import Counted, Target
from runs.orchestrator import shadowing, verifying
from tests.house.walls import ROOT
from tools import gate

pytestmark = pytest.mark.any_database


# --- numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("percent", "n", "rank"),
    [(50, 1, 1), (50, 4, 2), (50, 5, 3), (95, 20, 19), (95, 19, 19), (99, 100, 99), (99, 101, 100), (99, 10, 10)],
)
def test_percentile_is_the_nearest_rank(percent: int, n: int, rank: int) -> None:
    assert numbers.rank(percent, n) == rank
    assert numbers.percentile(range(1, n + 1), percent) == rank


def test_percentile_of_a_hundred_and_one_needs_no_float() -> None:
    """0.29 of 100 is 28.999… in floats; its rank is 29."""
    assert numbers.rank(29, 100) == 29
    assert numbers.rank(Fraction("99.9"), 1000) == 999


@pytest.mark.parametrize(
    ("percent", "n", "enough"), [(99, 99, False), (99, 100, True), (95, 20, True), (95, 19, False)]
)
def test_sample_says_whether_it_is_large_enough(percent: int, n: int, enough: bool) -> None:
    assert numbers.enough(percent, n) is enough
    assert (numbers.rank(percent, n) < n) is enough


@pytest.mark.parametrize(
    ("part", "whole", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (27, 28, 0.8229, 0.9937), (1, 1, 0.2065, 1.0), (0, 0, 0.0, 1.0),
     (990, 1000, 0.9817, 0.9946)],
)  # fmt: skip
def test_wilson_bounds_a_share_also_at_its_ends(part: int, whole: int, low: float, high: float) -> None:
    assert list(numbers.wilson(part, whole)) == pytest.approx([low, high], abs=5e-5)


def test_spread_sums_and_ranks() -> None:
    spread = numbers.spread([5, 1, 4, 2, 3])
    assert (spread.n, spread.total, spread.p50, spread.p95, spread.p99, spread.most) == (5, 15, 3, 5, 5, 5)
    empty = numbers.spread([])
    assert (empty.n, empty.total, empty.p50, empty.most) == (0, 0, None, None)


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [(Fraction(1, 8), 2, "0.13"), (Fraction(-1, 8), 2, "-0.13"), (Fraction(5, 2), 0, "3"),
     (Fraction(1, 1000), 1, "0.0"),
     (Fraction(-1, 1000), 1, "0.0"), (Fraction(999, 10), 1, "99.9")],
)  # fmt: skip
def test_shown_numbers_are_rounded_half_up(value: Fraction, digits: int, shown: str) -> None:
    assert numbers.half_up(value, digits) == shown


# --- what an end says --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "reason", "outcome", "kind"),
    [
        ("completed", None, "refunded", Kind.SUCCESS), ("completed", None, "rejected", Kind.SUCCESS),
        ("completed", None, "refund_failed", Kind.FAILURE), ("completed", None, "resolved_by_staff", Kind.FAILURE),
        ("escalated", "needs_a_person", "handed_to_staff", Kind.HANDED),
        ("escalated", "needs_a_person", "resolved_by_staff", Kind.HANDED),
        ("escalated", "outcome_unknown", "resolved_by_staff", Kind.FAILURE),
        ("escalated", "a_reason_of_tomorrow", "handed_to_staff", Kind.FAILURE),
        ("failed", "schema_unknown", "handed_to_staff", Kind.FAILURE), ("failed", None, None, Kind.FAILURE),
        ("failed", "needs_a_person", None, Kind.FAILURE),
        ("cancelled", "cancelled_by_client", "cancelled", Kind.BESIDE),
    ],
)  # fmt: skip
def test_ends_are_told_apart(status: str, reason: str | None, outcome: str | None, kind: Kind) -> None:
    assert ends.of(status, reason, outcome).kind is kind
    assert ends.of(status, reason, outcome, shadow=True).kind is Kind.BESIDE


def test_caps_are_failures() -> None:
    hit = {reason for reason, end in ends.REASONS.items() if end.cap}
    assert hit == {
        "budget_exhausted", "deadline_exceeded", "repair_exhausted", "no_usable_output", "loop_detected",
        "context_too_long",
    }  # fmt: skip
    assert {ends.REASONS[reason].kind for reason in hit} == {Kind.FAILURE}


def test_every_reason_that_the_code_gives_is_in_the_table() -> None:
    paths = (ROOT / "runs" / "orchestrator").glob("*.py")
    given = {reason for path in paths for reason in _given(ast.parse(path.read_text()))}
    assert len(given) > 10
    given |= {*gate.ESCALATES.values(), *verifying.REASONS.values(), *get_args(budgets.Reason), shadowing.REASON}
    assert given - ends.REASONS.keys() == set()


def _given(tree: ast.Module) -> set[str]:
    """Reasons written out in a call of `escalate`."""
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and len(n.args) > 1]
    named = [c for c in calls if getattr(c.func, "attr", getattr(c.func, "id", "")) == "escalate"]
    return {str(c.args[1].value) for c in named if isinstance(c.args[1], ast.Constant)}


# --- budgets -----------------------------------------------------------------------------------------------------


def counted(whole: tuple[int, int, int], **windows: tuple[int, int, int]) -> dict[int, Counted]:
    """Windows by their seconds, `w3600=(runs, failed, slow)`; those not named hold nothing."""
    found = {w: Counted() for w in (*objectives.WINDOWS_S, objectives.window_s(Target()))}
    named = {objectives.window_s(Target()): whole, **{int(name[1:]): given for name, given in windows.items()}}
    return found | {w: Counted(runs=n, failed=bad, slow=slow) for w, (n, bad, slow) in named.items()}


def test_budget_is_spent_by_failures_alone() -> None:
    budget = objectives.success(Target(), counted((1000, 4, 50)))
    assert (budget.allowed, budget.used, budget.left, budget.met) == (
        Fraction(10),
        Fraction(2, 5),
        Fraction(3, 5),
        True,
    )
    assert (budget.share.part, budget.share.whole) == (996, 1000)


def test_slowness_is_of_runs_that_did_not_fail() -> None:
    budget = objectives.latency(Target(), counted((1000, 100, 90)))
    assert (budget.runs, budget.bad, budget.allowed, budget.used, budget.left) == (900, 90, *map(Fraction, (45, 2, 0)))
    assert budget.met is False


def test_without_a_run_nothing_is_spent() -> None:
    budget = objectives.success(Target(), counted((0, 0, 0)))
    assert (budget.used, budget.left, budget.met, budget.burning) == (None, Fraction(1), True, ())
    assert [burn.rate for burn in budget.burns] == [None, None, None]


def test_limits_of_burning_are_the_usual_ones_for_thirty_days() -> None:
    burns = objectives.success(Target(), counted((0, 0, 0))).burns
    limits = [(b.name, b.window_s, b.limit) for b in burns]
    assert limits == [("fast", 3600, Fraction("14.4")), ("slow", 21_600, 6), ("trickle", 259_200, 1)]


def test_window_burns_together_with_its_short_one_and_with_enough_runs() -> None:
    def fast(hour: tuple[int, int, int], five: tuple[int, int, int]) -> tuple[Fraction | None, tuple[str, ...]]:
        budget = objectives.success(Target(), counted((9000, 30, 0), w3600=hour, w300=five))
        return budget.burns[0].rate, budget.burning

    assert fast((100, 20, 0), (10, 3, 0)) == (Fraction(20), ("fast",))
    assert fast((100, 20, 0), (10, 0, 0)) == (Fraction(20), ()), "it is over"
    assert fast((100, 20, 0), (0, 0, 0)) == (Fraction(20), ()), "nothing ends any more"
    assert fast((100, 14, 0), (10, 3, 0)) == (Fraction(14), ()), "slower than the limit"
    assert fast((1, 1, 0), (1, 1, 0)) == (Fraction(100), ("fast",))


def test_short_window_of_objective_asks_for_no_less_than_the_whole_budget() -> None:
    target = Target(window_days=1)
    windows = {w: Counted() for w in (*objectives.WINDOWS_S, 86_400)}
    assert [b.limit for b in objectives.success(target, windows).burns] == [1, 1, 1]


# --- caps --------------------------------------------------------------------------------------------------------


def test_cap_should_be_the_99th_percentile_of_successes() -> None:
    limits = Limits(max_cost=Money(minor=150, currency="USD"))
    used = {name: list(range(1, 201)) for name in caps.NAMES}
    near, runs = dict.fromkeys(caps.NAMES, 3), dict.fromkeys(caps.NAMES, 300)
    table = {cap.name: cap for cap in caps.table(limits, used, near, runs)}
    calls = table["max_model_calls"]
    assert (calls.should_be, calls.most, calls.granted, calls.successes, calls.enough) == (198, 200, 12, 200, True)
    assert (calls.near.part, calls.near.whole) == (3, 300)
    assert table["max_cost"].granted == 1_500_000
    none = caps.table(limits, dict.fromkeys(caps.NAMES, ()), dict.fromkeys(caps.NAMES, 0), dict.fromkeys(caps.NAMES, 0))
    assert {(c.should_be, c.most, c.enough) for c in none} == {(None, None, False)}


@pytest.mark.parametrize(("used", "limit", "near"), [(9, 12, False), (10, 12, True), (8, 10, True), (0, 0, False)])
def test_near_is_from_eighty_percent_on(used: int, limit: int, near: bool) -> None:
    assert caps.is_near(used, limit) is near


# --- words -------------------------------------------------------------------------------------------------------


def test_words_say_how_many_and_mark_what_is_too_few() -> None:
    assert words.share(numbers.share(27, 28)) == "96.4 % (27 of 28, 82.3 to 99.4 %)"
    assert words.share(numbers.share(0, 0)) == "–"
    assert (words.mark("7", 99, 99), words.mark("7", 99, 100), words.mark("–", 99, 0)) == ("7*", "7", "–")
    assert [words.time(ms) for ms in (870, 5_625, 11_640, 61_000)] == ["870 ms", "5,625 ms", "11.6 s", "1 min"]
    assert words.points(Fraction("0.9995")) == "99.95 %"
