"""The price table: strict, quiet about values, exact sums rounded up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsite import env, prices
from agentsite.money import Money
from agentsite.prices import ModelPrice, PriceTable

TABLE: dict[str, Any] = {
    "currency": "USD",
    "models": {
        "openai:gpt-x": {"input": "2.50", "cached": "1.25", "output": "10.00"},
        "openai:free": {"input": "0", "output": "0"},
        "gpt-x-2026-10": {"input": "0.0000025", "output": "1"},
        "anthropic:opus": {"input": "15", "output": "75.5"},
    },
}
HIDDEN = "hunter2"


def table(**changes: Any) -> PriceTable:
    return PriceTable.model_validate({**TABLE, **changes})


@pytest.fixture
def given_prices(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    yield monkeypatch
    env.read.cache_clear()


def start(patch: pytest.MonkeyPatch, value: str) -> env.Environment:
    patch.setenv("MODEL_PRICES", value)
    env.read.cache_clear()
    return env.read()


# --- configuration -----------------------------------------------------------------------------------------------


def test_table_is_read_from_the_environment_itself(given_prices: pytest.MonkeyPatch) -> None:
    read = start(given_prices, json.dumps(TABLE)).MODEL_PRICES
    assert read == table()


def test_table_is_read_from_the_file_the_environment_names(given_prices: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(TABLE))
    read = start(given_prices, str(path)).MODEL_PRICES
    assert read == table()


def test_no_table_is_no_fault(given_prices: pytest.MonkeyPatch) -> None:
    assert start(given_prices, "").MODEL_PRICES is None


def _with(**price: Any) -> str:
    return json.dumps({"currency": "USD", "models": {"openai:x": {"input": "1", "output": "1", **price}}})


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (_with(inptu=HIDDEN), "MODEL_PRICES.models.openai:x.inptu"),
        (_with(input=HIDDEN), "MODEL_PRICES.models.openai:x.input"),
        (_with(input=2.5), "MODEL_PRICES.models.openai:x.input"),
        (_with(output=3), "MODEL_PRICES.models.openai:x.output"),
        (_with(output="-1"), "MODEL_PRICES.models.openai:x.output"),
        (_with(output="1e3"), "MODEL_PRICES.models.openai:x.output"),
        (_with(output="NaN"), "MODEL_PRICES.models.openai:x.output"),
        (_with(output="٣"), "MODEL_PRICES.models.openai:x.output"),
        (_with(output="1.00\n"), "MODEL_PRICES.models.openai:x.output"),
        (_with(cached="01"), "MODEL_PRICES.models.openai:x.cached"),
        (
            json.dumps({"currency": "USD", "models": {"openai:x": {"input": "1"}}}),
            "MODEL_PRICES.models.openai:x.output",
        ),
        (json.dumps({"currency": HIDDEN, "models": {}}), "MODEL_PRICES.currency"),
        (json.dumps({"models": {}}), "MODEL_PRICES.currency"),
        (json.dumps({"currency": "USD"}), "MODEL_PRICES.models"),
        (json.dumps({**TABLE, "rates": HIDDEN}), "MODEL_PRICES.rates"),
        ('{"currency": "USD", "currency": "EUR", "models": {}}', "MODEL_PRICES"),
        ('{"currency": "USD", "' + HIDDEN, "MODEL_PRICES"),
        ('["' + HIDDEN + '"]', "MODEL_PRICES"),
        ("/nowhere/" + HIDDEN, "MODEL_PRICES"),
    ],
)
def test_wrong_table_refuses_the_start_with_one_line_that_names_the_field_alone(
    given_prices: pytest.MonkeyPatch, value: str, named: str
) -> None:
    with pytest.raises(env.BadEnvironment) as refused:
        start(given_prices, value)
    line = str(refused.value)
    assert line.startswith("configuration refused: ") and f"{named}: " in line
    assert HIDDEN not in line and "\n" not in line


def test_file_that_is_no_table_is_refused_without_its_content(
    given_prices: pytest.MonkeyPatch, tmp_path: Path
) -> None:  # fmt: skip
    path = tmp_path / "prices.json"
    path.write_bytes(b"\xff\xfe" + HIDDEN.encode())
    with pytest.raises(env.BadEnvironment) as refused:
        start(given_prices, str(path))
    assert HIDDEN not in str(refused.value)


# --- which price -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("route", "answered", "output"),
    [
        ("openai:gpt-x", "", "10"),
        ("openai:gpt-x", "gpt-x", "10"),
        ("openai:gpt-x", "gpt-unknown", "10"),
        ("openai:gpt-x", "gpt-x-2026-10", "1"),
        ("openai:gpt-x-2026-10", "", "1"),
        ("openai:gpt-y", "gpt-x", "10"),
        ("anthropic:opus", "opus", "75.5"),
    ],
)
def test_price_is_that_of_the_model_that_answered_else_of_the_route(route: str, answered: str, output: str) -> None:
    found = prices.price_of(table(), route, answered)
    assert found is not None
    assert (found.currency, found.output) == ("USD", Fraction(output))


@pytest.mark.parametrize(("route", "answered"), [("openai:gpt-y", ""), ("anthropic_xml:opus", "x"), ("openai:", "")])
def test_unknown_price_is_none_and_never_nothing(route: str, answered: str) -> None:
    assert prices.price_of(table(), route, answered) is None
    assert prices.cost_micros(table(), route, answered, input=1, cached=0, output=1) is None
    assert prices.cost_micros(None, route, answered, input=1, cached=0, output=1) is None


@pytest.mark.parametrize("route", ["offline:investigator", "scripted:turns.json"])
def test_model_within_this_process_costs_nothing_under_whatever_name_it_answers(route: str) -> None:
    for known in (None, table()):
        assert prices.cost_micros(known, route, "gpt-x", input=10**6, cached=0, output=10**6) == 0
        assert prices.price_of(known, route, "gpt-x") is None


def test_cached_input_costs_as_any_other_where_nothing_is_said() -> None:
    found = prices.price_of(table(), "anthropic:opus")
    assert found is not None and found.cached == found.input == 15


# --- sums ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("input", "cached", "output", "expected"),
    [
        (1_000_000, 0, 0, 2_500_000),
        (1_000_000, 1_000_000, 0, 1_250_000),
        (0, 0, 1_000_000, 10_000_000),
        (8260, 4000, 490, 10_650 + 5_000 + 4_900),
        (1, 0, 0, 3),
        (1, 1, 0, 2),
        (10, 400, 0, 13),
        (0, 0, 0, 0),
    ],
)
def test_cost_is_exact_and_rounded_up(input: int, cached: int, output: int, expected: int) -> None:
    assert prices.cost_micros(table(), "openai:gpt-x", "gpt-x", input=input, cached=cached, output=output) == expected


def test_smallest_price_is_not_lost() -> None:
    assert prices.cost_micros(table(), "openai:gpt-x-2026-10", "", input=1, cached=0, output=0) == 1
    assert prices.cost_micros(table(), "openai:gpt-x-2026-10", "", input=400_001, cached=0, output=0) == 2


DECIMALS = st.decimals(min_value=0, max_value=10**6, places=6, allow_nan=False, allow_infinity=False)
TOKENS = st.integers(0, 10**9)


@given(DECIMALS, DECIMALS, TOKENS, TOKENS)
def test_cost_is_never_below_the_exact_sum_nor_a_whole_unit_above(
    input: Any, output: Any, read: int, written: int
) -> None:  # fmt: skip
    model = ModelPrice(input=f"{input:f}", output=f"{output:f}")
    cost = prices.cost_micros(
        PriceTable(currency="USD", models={"openai:m": model}), "openai:m", "", input=read, cached=0, output=written
    )
    exact = Fraction(f"{input:f}") * read + Fraction(f"{output:f}") * written
    assert cost is not None and type(cost) is int and exact <= cost < exact + 1


@pytest.mark.parametrize(
    ("minor", "currency", "expected"),
    [(100, "USD", 1_000_000), (7, "JPY", 7_000_000), (1250, "KWD", 1_250_000), (-1, "USD", -10_000)],
)
def test_amount_in_micro_units_goes_by_its_currencys_exponent(minor: int, currency: str, expected: int) -> None:
    assert prices.micros(Money(minor=minor, currency=currency)) == expected
