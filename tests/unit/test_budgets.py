"""Caps and the room of a call: what is left, what is reserved, and that no cap is passed whatever is answered."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsite.money import Money
from agentsite.prices import Price, PriceTable, cost_micros, micros, price_of
from agentsite.tenants.profiles import Limits
from runs import budgets
from runs.budgets import Room
from runs.contracts import RunState, SeenTurn, Spent
from tests.unit.states_8472 import state

USD = Money(minor=100, currency="USD")
TABLE = PriceTable.model_validate(
    {"currency": "USD", "models": {"openai:m": {"input": "10", "cached": "1", "output": "40"}}}
)
PRICE = price_of(TABLE, "openai:m")


def limited(limits: dict[str, Any] | None = None, **used: Any) -> RunState:
    run = state(**used)
    return dataclasses.replace(
        run, contract=run.contract.model_copy(update={"limits": Limits.model_validate(limits or {})})
    )


# --- caps ----------------------------------------------------------------------------------------------------------


def test_fresh_run_is_over_no_cap() -> None:
    assert budgets.over(limited()) is None


@pytest.mark.parametrize(
    ("limit", "used", "reason"),
    [
        ({"max_model_calls": 3}, "model_calls", "budget_exhausted"),
        ({"max_input_tokens": 3}, "input_tokens", "budget_exhausted"),
        ({"max_output_tokens": 3}, "output_tokens", "budget_exhausted"),
        ({"deadline_ms": 3}, "active_ms", "deadline_exceeded"),
    ],
)
def test_run_is_over_a_cap_from_its_figure_on(limit: dict[str, int], used: str, reason: str) -> None:
    at = {n: budgets.over(limited(limit, **{used: n})) for n in (2, 3, 4)}
    assert at == {2: None, 3: reason, 4: reason}


@pytest.mark.parametrize(("minor", "currency", "cap"), [(1, "USD", 10_000), (1, "JPY", 1_000_000), (1, "KWD", 1_000)])
def test_cost_cap_goes_by_its_currencys_exponent(minor: int, currency: str, cap: int) -> None:
    limits = {"max_cost": Money(minor=minor, currency=currency)}
    assert budgets.over(limited(limits, cost_micros=cap - 1)) is None
    assert budgets.over(limited(limits, cost_micros=cap)) == "budget_exhausted"


def test_run_that_may_cost_nothing_goes_on_while_it_costs_nothing() -> None:
    limits = {"max_cost": Money(minor=0, currency="USD")}
    assert budgets.over(limited(limits)) is None
    assert budgets.over(limited(limits, cost_micros=1)) == "budget_exhausted"


# --- room ------------------------------------------------------------------------------------------------------------


def room(run: RunState, estimate: int = 1000, price: Price | None = None, longest: int = 4096, **more: Any) -> Any:
    return budgets.room(run, estimate_tokens=estimate, price=price, max_output=longest, **more)


def test_room_of_a_fresh_run_is_the_sites_longest_reply() -> None:
    assert room(limited()) == Room(max_output_tokens=4096, reserved_micros=0)


def test_room_is_what_is_left_of_the_output_cap() -> None:
    assert room(limited({"max_output_tokens": 5000}, output_tokens=4000)) == Room(
        max_output_tokens=1000, reserved_micros=0
    )


@pytest.mark.parametrize(("output", "expected"), [(4744, 256), (4745, None), (5000, None), (6000, None)])
def test_reply_too_short_to_be_one_is_not_asked_for(output: int, expected: int | None) -> None:
    got = room(limited({"max_output_tokens": 5000}, output_tokens=output))
    assert got == (Room(max_output_tokens=expected, reserved_micros=0) if expected else "budget_exhausted")


def test_least_reply_is_the_cap_or_the_sites_longest_where_these_are_smaller() -> None:
    assert room(limited({"max_output_tokens": 100})) == Room(max_output_tokens=100, reserved_micros=0)
    assert room(limited({"max_output_tokens": 100}, output_tokens=1)) == "budget_exhausted"
    assert room(limited(), longest=50) == Room(max_output_tokens=50, reserved_micros=0)


@pytest.mark.parametrize(("estimate", "fits"), [(4000, True), (4001, False)])
def test_prompt_must_fit_what_is_left_of_the_input_cap(estimate: int, fits: bool) -> None:
    got = room(limited({"max_input_tokens": 10_000}, input_tokens=6000), estimate)
    assert (got != "budget_exhausted") is fits


def test_room_reserves_the_longest_reply_at_its_price() -> None:
    assert room(limited({"max_cost": USD}), 1000, PRICE) == Room(
        max_output_tokens=4096, reserved_micros=1000 * 10 + 4096 * 40
    )


def test_reply_is_shortened_to_what_is_left_of_the_money() -> None:
    got = room(limited({"max_cost": USD}, cost_micros=950_000), 1000, PRICE)
    assert got == Room(max_output_tokens=1000, reserved_micros=50_000)


@pytest.mark.parametrize("spent", [980_000, 990_001, 999_999, 1_000_000, 2_000_000])
def test_call_that_the_money_left_does_not_pay_for_is_refused(spent: int) -> None:
    assert room(limited({"max_cost": USD}, cost_micros=spent), 1000, PRICE) == "budget_exhausted"


def test_what_this_turn_spent_already_counts() -> None:
    spent = Spent(input_tokens=59_000, output_tokens=7_000, cost_micros=950_000)
    assert room(limited({"max_cost": USD}), 1000, PRICE, spent=spent) == Room(
        max_output_tokens=1000, reserved_micros=50_000
    )
    assert room(limited({"max_cost": USD}), 1001, PRICE, spent=spent) == "budget_exhausted"


def test_cap_in_another_currency_than_the_prices_is_taken_as_reached() -> None:
    limits = {"max_cost": Money(minor=10**9, currency="INR")}
    assert room(limited(limits), 1, PRICE) == "budget_exhausted"
    assert room(limited(limits), 1, None) == Room(max_output_tokens=4096, reserved_micros=0)


def test_model_priced_at_nothing_needs_no_money() -> None:
    free = Price(currency="USD", input=Fraction(0), cached=Fraction(0), output=Fraction(0))
    limits = {"max_cost": Money(minor=0, currency="INR")}
    assert room(limited(limits), 1000, free) == Room(max_output_tokens=4096, reserved_micros=0)


def test_output_that_costs_nothing_is_bounded_by_the_prompts_price_alone() -> None:
    only_input = Price(currency="USD", input=Fraction(10), cached=Fraction(10), output=Fraction(0))
    assert room(limited({"max_cost": USD}), 50_000, only_input) == Room(max_output_tokens=4096, reserved_micros=500_000)
    assert room(limited({"max_cost": USD}, cost_micros=600_000), 50_000, only_input) == "budget_exhausted"


def test_cached_input_dearer_than_fresh_is_reserved_at_its_own_price() -> None:
    odd = Price(currency="USD", input=Fraction(1), cached=Fraction(10), output=Fraction(0))
    assert room(limited({"max_cost": USD}), 1000, odd) == Room(max_output_tokens=4096, reserved_micros=10_000)


# --- whatever is answered --------------------------------------------------------------------------------------------

PRICES = st.decimals(min_value=0, max_value=1000, places=4).map(lambda d: f"{d:f}")
ANSWERS = st.lists(
    st.tuples(
        st.integers(1, 20_000), st.integers(-2000, 2000), st.integers(0, 4096), st.floats(0, 1), st.booleans()
    ),
    max_size=40,
)  # fmt: skip


@given(
    limits=st.fixed_dictionaries(
        {
            "max_input_tokens": st.integers(1, 200_000),
            "max_output_tokens": st.integers(1, 20_000),
            "max_cost": st.integers(0, 1000).map(lambda minor: Money(minor=minor, currency="USD")),
        }
    ),
    prices=st.tuples(PRICES, PRICES, PRICES),
    longest=st.integers(1, 5000),
    answers=ANSWERS,
)
def test_no_cap_is_passed_whatever_is_answered_within_the_room(
    limits: dict[str, Any], prices: tuple[str, str, str], longest: int, answers: list[Any]
) -> None:
    model = dict(zip(("input", "cached", "output"), prices, strict=True))
    table = PriceTable.model_validate({"currency": "USD", "models": {"openai:m": model}})
    price = price_of(table, "openai:m")
    assert price is not None
    run, input_error, cost_error = limited(limits), 0, Fraction(0)
    for estimate, off_by, length, hit, brings_turn in answers:
        got = budgets.room(run, estimate_tokens=estimate, price=price, max_output=longest)
        if isinstance(got, str):
            assert got == "budget_exhausted"
            continue
        assert 1 <= got.max_output_tokens <= longest
        read, written = max(0, estimate + off_by), min(length, got.max_output_tokens)
        cost = cost_micros(table, "openai:m", "", input=read, cached=int(read * hit), output=written)
        assert cost is not None
        over_by = max(0, read - estimate)
        if over_by:  # a sum is rounded up once, so a wrong estimate may cost a micro-unit beside its tokens
            input_error, cost_error = input_error + over_by, cost_error + over_by * price.dearest_input + 1
        run = dataclasses.replace(
            run, input_tokens=run.input_tokens + read, output_tokens=run.output_tokens + written,
            cost_micros=run.cost_micros + cost, model_calls=run.model_calls + int(brings_turn),
        )  # fmt: skip
        assert run.input_tokens <= run.contract.limits.max_input_tokens + input_error
        assert run.output_tokens <= run.contract.limits.max_output_tokens
        assert run.cost_micros <= micros(run.contract.limits.max_cost) + cost_error


# --- as it is shown ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("contract", [{}, {"limits": None}, {"limits": {}}, {"limits": {"max_cost": None}}])
def test_cost_of_a_run_of_an_older_contract_is_shown_all_the_same(contract: dict[str, Any]) -> None:
    assert budgets.cost(contract, 12_300) == {"amount": "0.0123", "currency": "USD"}


# --- prices of a run's routes ----------------------------------------------------------------------------------------


def answered(*models: str, route: str = "openai:m") -> RunState:
    turns = tuple(
        SeenTurn(
            number=n, route=route, answered_model=model, prompt_version="1", proposals=(), final=None, error=None
        )
        for n, model in enumerate(models, start=1)
    )  # fmt: skip
    return state(turns=turns)


DEARER = PriceTable.model_validate(
    {
        "currency": "USD",
        "models": {
            "openai:m": {"input": "10", "cached": "1", "output": "40"},
            "m-big": {"input": "20", "cached": "20", "output": "30"},
        },
    }
)


def test_call_is_reserved_by_the_dearest_of_what_answered_so_far() -> None:
    fresh, met = (budgets.price(answered(*names), DEARER, "openai:m") for names in ((), ("m", "m-big", "m")))
    assert fresh == price_of(DEARER, "openai:m")
    assert met == Price(currency="USD", input=Fraction(20), cached=Fraction(20), output=Fraction(40))


def test_what_answered_on_another_route_changes_no_price() -> None:
    assert budgets.price(answered("m-big", route="anthropic:m"), DEARER, "openai:m") == price_of(DEARER, "openai:m")


def test_route_without_a_price_gets_that_of_the_model_that_answered() -> None:
    route = "openai:unknown"
    assert budgets.price(answered("m-big", route=route), DEARER, route) == price_of(DEARER, "openai:x", "m-big")
    assert budgets.price(answered("m-none", route=route), DEARER, route) is None
    assert budgets.price(answered("m-big"), DEARER, "offline:investigator") is None
    assert budgets.price(answered("m-big"), None, "openai:m") is None


# --- calls that brought no turn --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slug", "told", "expected"),
    [
        ("model_rate_limited", (0, 0), (0, 0, 0)),
        ("model_unreachable", (0, 0), (0, 0, 0)),
        ("model_unavailable", (0, 0), (0, 0, 0)),
        ("model_key_refused", (0, 0), (0, 0, 0)),
        ("breaker_open", (0, 0), (0, 0, 0)),
        ("stream_cut", (0, 0), (1000, 0, 10_000)),
        ("stream_cut", (0, 50), (1000, 50, 12_000)),
        ("stream_cut", (700, 50), (700, 50, 9_000)),
        ("interrupted", (0, 0), (1000, 0, 10_000)),
        ("not_json", (0, 0), (1000, 0, 10_000)),
        ("model_unavailable", (0, 50), (1000, 50, 12_000)),
        ("model_connection_lost", (0, 50), (1000, 50, 12_000)),
        ("model_timeout", (0, 0), (0, 0, 10_000)),
        ("model_connection_lost", (0, 0), (0, 0, 10_000)),
    ],
)
def test_call_that_brought_no_turn_counts_what_it_may_have_cost(
    slug: str, told: tuple[int, int], expected: tuple[int, int, int]
) -> None:
    spent = budgets.of_failed(PRICE, slug, estimate_tokens=1000, input_tokens=told[0], output_tokens=told[1])
    assert (spent.input_tokens, spent.output_tokens, spent.cost_micros) == expected
    unpaid = budgets.of_failed(None, slug, estimate_tokens=1000, input_tokens=told[0], output_tokens=told[1])
    assert (unpaid.input_tokens, unpaid.output_tokens, unpaid.cost_micros) == (*expected[:2], 0)


def test_spent_of_several_calls_is_their_sum() -> None:
    one, other = Spent(input_tokens=1, output_tokens=2, cost_micros=3), Spent(cost_micros=4)
    assert budgets.together(one, other) == Spent(input_tokens=1, output_tokens=2, cost_micros=7)
