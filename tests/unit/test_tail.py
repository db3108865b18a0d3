"""The tail calculator: the worked figures exactly, and a distribution that a count of every case agrees with."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest

from runs.admin import curves
from runs.measures import stages, tail
from runs.measures.stages import BadNumbers
from runs.measures.tail import Call, Slow, Stage

pytestmark = pytest.mark.any_database


def tools(*ms: int) -> Stage:
    return Stage(kind="tools", calls=tuple(Call(ms=one) for one in ms))


def test_worked_example_is_reproduced() -> None:
    path = tail.path(tail.EXAMPLE, tail.EXAMPLE_SLOW)
    assert (path.model_ms, path.tools_ms, path.overhead_ms, path.path_ms) == (4_300, 1_210, 115, 5_625)
    assert (path.sequential_ms, path.one_slow_ms, path.calls) == (5_925, 7_625, 10)
    assert (path.input_tokens, path.output_tokens) == (12_550, 710)
    assert (path.times_one, path.times_input) == (Fraction(5625, 1100), Fraction(12550, 1910))
    assert (tail.shown(path.times_one), tail.shown(path.times_input)) == ("5.1", "6.6")


def test_worked_chance_is_reproduced() -> None:
    found = tail.tail(tail.EXAMPLE, tail.EXAMPLE_SLOW)
    assert found.chance == 1 - Fraction(98, 100) ** 10
    assert tail.shown(100 * found.chance) == "18.3"
    assert found.p95_is_slow is True and tail.shown(found.slow_from) == "81.7"
    assert dict(found.percentiles) == {50: 5_625, 75: 5_625, 90: 7_625, 95: 7_625, 99: 9_625}
    assert (found.until_p95, found.exact) == (3, True)


def test_one_call_keeps_its_95th_percentile_fast() -> None:
    found = tail.tail(tail.serial(1, 1_100), tail.EXAMPLE_SLOW)
    assert (found.chance, found.p95_is_slow, dict(found.percentiles)[95]) == (Fraction(1, 50), False, 1_100)


@pytest.mark.parametrize("chance", [Fraction(1, 50), Fraction(1, 20), Fraction(3, 10), Fraction(1, 3), Fraction(0)])
@pytest.mark.parametrize(
    "made", [(tools(240, 120), tools(5)), (tools(100, 100, 100),), (tools(10, 2_500), tools(7), tools(1, 2, 3))]
)
def test_distribution_agrees_with_every_case_counted(made: tuple[Stage, ...], chance: Fraction) -> None:
    """Each call slow or not, all of their combinations, each with its own chance."""
    slow, cases = Slow(chance=chance, cost_ms=2_000), dict[int, Fraction]()
    for case in itertools.product((False, True), repeat=tail.count(made)):
        late, weight, total = iter(case), Fraction(1), 0
        for is_late in case:
            weight *= chance if is_late else 1 - chance
        for stage in made:
            total += max(call.ms + (slow.cost_ms if next(late) else 0) for call in stage.calls)
        cases[total] = cases.get(total, Fraction(0)) + weight
    found, base = tail.tail(made, slow), sum(stage.ms for stage in made)
    assert found.expected_ms == sum(ms * weight for ms, weight in cases.items()) - base
    for percent, ms in found.percentiles:
        assert sum(weight for at, weight in cases.items() if at <= ms) * 100 >= percent
        assert sum(weight for at, weight in cases.items() if at < ms) * 100 < percent


@pytest.mark.parametrize(
    ("chance", "calls"),
    [("0.02", 3), ("0.05", 2), ("0.06", 1), ("0.01", 6), ("0.001", 52), ("0.00001", 5130), ("1", 1)],
)
def test_calls_until_the_95th_percentile_is_slow(chance: str, calls: int) -> None:
    p = Fraction(chance)
    assert tail.until_p95(p) == calls
    assert 1 - (1 - p) ** calls > Fraction(1, 20) >= 1 - (1 - p) ** (calls - 1)
    assert tail.until_p95(Fraction(0)) is None


def test_very_many_parallel_stages_are_bounded_from_above() -> None:
    found = tail.tail([tools(100 + n, 50 + 3 * n) for n in range(40)], Slow(chance=Fraction(1, 100), cost_ms=2_000))
    base, at_worst = sum(100 + n for n in range(40)), 1 - Fraction(99, 100) ** 2
    assert found.exact is False
    assert found.expected_ms <= 40 * 2_000 * at_worst
    assert base <= dict(found.percentiles)[50] <= dict(found.percentiles)[99] <= base + 40 * 2_000


def test_line_of_stages_reads_back() -> None:
    line = "o40 m1100:1910:120 t240|120 m1000:2670:110"
    assert stages.text(stages.parse(line)) == line
    assert stages.parse(stages.text(tail.EXAMPLE)) == tail.EXAMPLE
    assert stages.parse("m5, t1|2") == (Stage(kind="model", calls=(Call(ms=5),)), tools(1, 2))


@pytest.mark.parametrize(
    "line", ["", "x5", "m", "m5|", "m-1", "m5:1:2:3", "o40", "m99999999", "t" + "|".join(["1"] * 51), "m5 " * 201, "m٣"]
)
def test_bad_stages_are_named(line: str) -> None:
    with pytest.raises(BadNumbers) as error:
        stages.parse(line)
    assert error.value.field == "stages"


@pytest.mark.parametrize(
    ("percent", "cost", "field"),
    [("101", "1", "slow"), ("-1", "1", "slow"), ("0.0001", "1", "slow"), ("x", "1", "slow"), ("2", "1.5", "cost"),
     ("2", "10000001", "cost"), ("2", "", "cost"), ("nan", "1", "slow"), ("1e1", "1", "slow")],
)  # fmt: skip
def test_bad_chances_are_named(percent: str, cost: str, field: str) -> None:
    with pytest.raises(BadNumbers) as error:
        stages.slow(percent, cost)
    assert error.value.field == field


def test_chances_are_read_exactly() -> None:
    assert stages.slow("0.1 %", "2000") == Slow(chance=Fraction(1, 1000), cost_ms=2000)
    assert stages.slow("0", "0").chance == 0
    assert tail.percent(Fraction(1, 50)) == "2 %" and tail.percent(Fraction(5, 10_000)) == "0.05 %"


def test_curve_rises_from_none_and_is_in_its_drawing() -> None:
    values = tail.curve(Fraction(2, 100), 20)
    drawn = curves.chance(values, 10, Fraction(1, 20))
    points = [tuple(map(float, point.split(","))) for point in drawn.points.split()]
    assert [values[0], values[10]] == [0, 1 - Fraction(98, 100) ** 10]
    assert points[0] == (0.0, 180.0) and points[-1][0] == 600.0
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)
    assert (drawn.here.x, drawn.here.y, drawn.level_y) == (300.0, 147.1, 171.0)


def test_trend_draws_days_on_one_scale() -> None:
    bars = curves.days([("2026-11-01", 10, 1), ("2026-11-02", 0, 0), ("2026-11-03", 10, 4)])
    assert [(b.said, b.y, b.height) for b in bars] == [
        ("10.0 %", "75.00%", "25.00%"), ("0.0 %", "100.00%", "0.00%"), ("40.0 %", "0.00%", "100.00%"),
    ]  # fmt: skip
