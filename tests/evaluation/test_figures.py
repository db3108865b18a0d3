"""Figures against published values: Newcombe's of 1998 for shares, the sign test's tables for medians."""

from __future__ import annotations

import pytest

from runs.evaluation import comparing, figures
from tests.evaluation.cases import case

pytestmark = pytest.mark.any_database


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (20, 20, 0.8389, 1.0),
    ],
)
def test_wilson_interval_is_the_published_one(count: int, of: int, low: float, high: float) -> None:
    found = figures.wilson(count, of)
    assert (round(found[0], 4), round(found[1], 4)) == (low, high)


def test_wilson_of_nothing_tells_nothing() -> None:
    assert figures.wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("now", "before", "rose", "low", "high"),
    [
        ((56, 70), (48, 80), 0.2, 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.6, 0.1705, 0.8090),
        ((10, 10), (0, 10), 1.0, 0.6075, 1.0),
    ],
)
def test_difference_has_newcombes_interval(
    now: tuple[int, int], before: tuple[int, int], rose: float, low: float, high: float
) -> None:
    found, (least, most) = figures.difference(now, before)
    assert (round(found, 4), round(least, 4), round(most, 4)) == (rose, low, high)


@pytest.mark.parametrize(
    ("count", "percent", "expected"),
    [
        (5, 50, (None, None)),
        (6, 50, (1, 6)),
        (10, 50, (2, 9)),
        (20, 50, (6, 15)),
        (25, 50, (8, 18)),
        (60, 95, (53, None)),
        (100, 50, (40, 61)),
        (100, 95, (90, 100)),
        (60, 99, (58, None)),
    ],
)
def test_percentile_lies_between_these_order_statistics(count: int, percent: int, expected: tuple[int, int]) -> None:
    assert figures.ranks(count, percent) == expected


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(n) for n in range(100, 0, -1)]
    assert [figures.percentile(values, p) for p in (1, 50, 95, 99)] == [1, 50, 95, 99]
    assert figures.percentile([7.0], 99) == 7
    assert figures.spread([]) == {}
    assert figures.spread([5.0, 1.0, 9.0])["p50"] == {"value": 5, "low": None, "high": None}


def test_changes_by_chance_are_mcnemars_exact_test() -> None:
    assert figures.changed_by_chance(0, 0) == 1
    assert figures.changed_by_chance(5, 0) == 0.0625
    assert round(figures.changed_by_chance(1, 8), 4) == 0.0391
    assert figures.changed_by_chance(3, 3) == 1


def test_figures_count_each_kind_by_tag_and_language() -> None:
    cases = [
        case("a"), case("b", tags=["failure"], language="hi"), case("c", "forbidden", forbidden=["twice"]),
        case("d", "escalated", capped=True), case("e", expects_a_person=True), case("f", "lie", lies=["no"]),
    ]  # fmt: skip
    found = figures.figures(cases)
    assert (found["success"]["count"], found["success"]["of"]) == (3, 6)
    assert [found[name]["count"] for name in ("forbidden", "lies", "cap_hits", "stuck")] == [1, 1, 1, 0]
    assert (found["escalation"]["count"], found["escalation"]["of"]) == (1, 5)
    assert found["cost"] == {"USD": "0.009000"} and found["model_calls"] == 24
    assert {tag: one["cases"] for tag, one in found["by_tag"].items()} == {
        "failure": 1, "retail": 5, "language en": 5, "language hi": 1,
    }  # fmt: skip


def test_thresholds_that_were_not_met_are_named() -> None:
    thresholds = {"success": 0.9, "forbidden": 0, "escalation": 0.1}
    good = figures.figures([case(str(n)) for n in range(20)])
    assert figures.failing(good, thresholds) == []
    bad = figures.figures([case("a"), case("b", "forbidden", forbidden=["x"]), case("c", "escalated")])
    assert figures.failing(bad, thresholds) == [
        "success 0.333 < 0.9", "forbidden effects and lies 1 > 0", "escalation 0.333 > 0.1",
    ]  # fmt: skip


def test_comparison_names_scenarios_that_changed() -> None:
    then = [case("a"), case("b", "stuck"), case("c"), case("gone")]
    now = [case("a"), case("b"), case("c"), case("c", "wrong_end", round=2), case("new", "stuck")]
    found = comparing.compare(now, then, same_suite=True, same_scorer=True)
    assert (found.newly_failing, found.newly_passing) == (("c",), ("b",))
    assert round(found.rose, 4) == round(3 / 5 - 3 / 4, 4) and found.low < found.rose < found.high


@pytest.mark.parametrize(
    ("same_suite", "same_scorer", "words"), [(False, True, "the suite is"), (True, False, "the scorer is")]
)
def test_numbers_of_another_suite_or_scorer_are_not_compared(same_suite: bool, same_scorer: bool, words: str) -> None:
    found = comparing.compare([case("a")], [case("a")], same_suite=same_suite, same_scorer=same_scorer)
    assert found.incomparable.startswith(words) and list(found.wire()) == ["incomparable"]
