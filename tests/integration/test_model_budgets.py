"""Budgets over the whole loop: what is asked for never exceeds what is left, and a cap that is reached asks nobody."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from runs import qualification, replay
from runs.api import serial
from runs.models import Run, Turn
from tests.integration.test_dialect_runs import ROUTES, admit, finish, nothing_moved, reach, reached
from tests.models.server import Fault, ModelServer
from tests.models.speaking import ANTHROPIC, OPENAI, Said
from tests.world import World

PRICE = {"input": "2.50", "cached": "1.25", "output": "10.00"}
TURN_MICROS = 375
"""40 tokens of fresh input, 60 from the cache and 20 of output, which the server counts for each of its turns."""


def prices(models: dict[str, dict[str, str]]) -> str:
    return json.dumps({"currency": "USD", "models": models})


def usd(amount: str) -> dict[str, Any]:
    return {"max_cost": {"amount": amount, "currency": "USD"}}


@contextmanager
def priced(world: World, usage: tuple[int, int, int] | None = None, **variables: str) -> Iterator[ModelServer]:
    """A server of priced turns, each with this usage."""
    with reached(world, OPENAI, variables={"MODEL_PRICES": prices({ROUTES[OPENAI]: PRICE}), **variables}) as server:
        thinks = server.mind
        if usage is not None:
            server.mind = lambda body: Said(**{**vars(thinks(body)), "usage": usage})
        yield server


def longest(server: ModelServer) -> list[int]:
    """How long a reply each request asked for at most."""
    return [r.body["max_completion_tokens"] for r in server.requests]


def cost(run: Run) -> dict[str, str]:
    shown: dict[str, str] = serial.run(run)["usage"]["cost"]
    return shown


# --- cost ----------------------------------------------------------------------------------------------------------


def test_cost_of_a_run_is_the_sum_of_its_turns_and_shown_to_the_client(world: World) -> None:
    with priced(world):
        run = finish(world, admit(world))
    assert [t.cost_micros for t in Turn.objects.filter(run=run)] == [TURN_MICROS] * 4
    assert (run.cost_micros, cost(run)) == (4 * TURN_MICROS, {"amount": "0.0015", "currency": "USD"})
    assert {t.cached_tokens for t in Turn.objects.filter(run=run)} == {60}


def test_model_that_answers_under_another_name_costs_what_that_one_costs(world: World) -> None:
    table = prices({ROUTES[OPENAI]: PRICE, "m-2027": {"input": "100", "output": "1000"}})
    with priced(world, MODEL_PRICES=table) as server:
        thinks = server.mind
        server.mind = lambda body: Said(**{**vars(thinks(body)), "model": "m-2027"})
        run = world.resume(admit(world))
    assert (run.status, run.reason) == ("escalated", "route_not_qualified")
    assert run.cost_micros == run.model_calls * (100 * 100 + 20 * 1000)
    nothing_moved(world)


def test_room_goes_by_the_dearer_model_once_it_has_answered(world: World) -> None:
    """Its first answer could not be known; what it costs is what the next one may cost."""
    table = prices({ROUTES[OPENAI]: PRICE, "m-2027": {"input": "1", "output": "1000"}})
    with priced(world, (100, 20, 0), MODEL_PRICES=table) as server:
        thinks = server.mind
        server.mind = lambda body: Said(**{**vars(thinks(body)), "model": "m-2027"})
        run = world.resume(admit(world))
    left = 1_000_000 - 20_100
    assert longest(server)[0] == 4096 and 900 < longest(server)[1] <= left // 1000
    assert run.cost_micros == 20_100 * run.model_calls
    nothing_moved(world)


def test_no_call_is_made_that_what_is_left_of_the_money_does_not_pay_for(world: World) -> None:
    """M70: each request asked for no more than was left, the one that could not be paid for was never made."""
    cap, prompts, replies = 30_000, 2000, 700
    world.profile(limits=usd("0.03"))
    with priced(world, (prompts, replies, 0)) as server:
        run = world.resume(admit(world))
    each = int(prompts * 2.5 + replies * 10)
    assert (run.status, run.reason) == ("escalated", "budget_exhausted")
    assert len(server.requests) == run.model_calls and run.cost_micros == run.model_calls * each <= cap
    for number, length in enumerate(longest(server)):
        assert length * 10 <= cap - number * each, "a reply of this length could not have been paid for"
    assert longest(server)[0] > longest(server)[-1] >= 256
    assert replay.play(replay.export(run)).identical
    nothing_moved(world)


def test_run_whose_money_pays_for_no_first_call_asks_nobody(world: World) -> None:
    world.profile(limits=usd("0.00"))
    with priced(world) as server:
        run = world.resume(admit(world))
        assert server.requests == []
    assert (run.status, run.reason, run.model_calls) == ("escalated", "budget_exhausted", 0)
    assert world.events(run, "model.called") == []
    nothing_moved(world)


def test_cap_in_another_currency_than_the_prices_asks_nobody_who_costs(world: World) -> None:
    world.profile(limits={"max_cost": {"amount": "100000.00", "currency": "INR"}})
    with priced(world) as server:
        run = world.resume(admit(world))
        assert server.requests == []
    assert (run.status, run.reason) == ("escalated", "budget_exhausted")
    assert cost(run) == {"amount": "0.0000", "currency": "INR"}
    nothing_moved(world)


def test_route_without_a_price_is_asked_and_counted_at_nothing(world: World) -> None:
    with priced(world, MODEL_PRICES=prices({"openai:other": PRICE})):
        run = finish(world, admit(world))
    assert (run.cost_micros, cost(run)) == (0, {"amount": "0.0000", "currency": "USD"})


def test_model_that_costs_nothing_goes_on_where_the_money_is_spent(world: World) -> None:
    """The room is each route's own: a dearer one is passed over, and nothing is sent to it."""
    world.profile(limits=usd("0.00"))
    with ModelServer(OPENAI) as server:
        reach(world, server, MODEL_PRICES=prices({ROUTES[OPENAI]: PRICE}))
        world.settings(AGENT_MODELS=f"{ROUTES[OPENAI]},offline:investigator")
        qualification.ensure_offline()
        run = finish(world, admit(world))
        assert server.requests == []
    assert {t.route for t in Turn.objects.filter(run=run)} == {"offline:investigator"}
    assert [(e["route"], e["error"]) for e in world.events(run, "route.passed_over")] == [
        (ROUTES[OPENAI], "budget_exhausted")
    ] * 4
    assert [e["to"] for e in world.events(run, "route.switched")] == ["offline:investigator"] * 4
    assert replay.play(replay.export(run)).identical


def test_call_that_broke_off_costs_what_had_come_of_it(world: World) -> None:
    with priced(world, RETRY_S="0.0001") as server:
        server.faults = [Fault(), Fault(cut=0.9)]
        run = finish(world, admit(world))
    assert [t.cost_micros for t in Turn.objects.filter(run=run)] == [TURN_MICROS] * 4
    said = run.output_tokens - 4 * 20
    read = run.input_tokens - 4 * 100
    assert said > 0 and read > 0, "the provider had read the prompt and begun to answer"
    assert run.cost_micros == 4 * TURN_MICROS + math.ceil(read * 2.5 + said * 10)
    assert replay.play(replay.export(run)).identical


def test_call_that_nobody_answered_may_be_paid_for_and_uses_no_tokens(world: World) -> None:
    with priced(world, RETRY_S="0.0001", MODEL_TIMEOUT_S="0.5") as server:
        server.faults = [Fault(), Fault(pause_s=1.5)]
        run = finish(world, admit(world))
    assert [e["error"] for e in world.events(run, "model.failed")] == ["model_timeout"]
    assert (run.input_tokens, run.output_tokens) == (400, 80)
    assert run.cost_micros > 4 * TURN_MICROS
    assert replay.play(replay.export(run)).identical


def test_price_of_each_route_counts_for_its_own_turns(world: World) -> None:
    table = prices({ROUTES[OPENAI]: PRICE, ROUTES[ANTHROPIC]: {"input": "1", "output": "0"}})
    with ModelServer(OPENAI) as first, ModelServer(ANTHROPIC) as second:
        reach(world, first, second, MODEL_PRICES=table)
        first.faults = [Fault(), Fault(status=503, body={})]
        run = finish(world, admit(world))
    costs = [t.cost_micros for t in Turn.objects.filter(run=run).order_by("number")]
    assert costs == [TURN_MICROS, 100, TURN_MICROS, TURN_MICROS]


# --- tokens and calls ----------------------------------------------------------------------------------------------


def test_replies_are_asked_for_no_longer_than_what_is_left_of_the_output_cap(world: World) -> None:
    with reached(world, OPENAI, variables={"MODEL_MAX_OUTPUT_TOKENS": "500"}) as server:
        thinks = server.mind
        server.mind = lambda body: Said(**{**vars(thinks(body)), "usage": (100, 300, 0)})
        run = world.resume(admit(world, limits={"max_output_tokens": 1000}))
    assert longest(server) == [500, 500, 400]
    assert (run.status, run.model_calls, run.output_tokens) == ("awaiting_approval", 3, 900)
    nothing_moved(world)


def test_reply_too_short_to_be_one_is_not_asked_for(world: World) -> None:
    with reached(world, OPENAI) as server:
        thinks = server.mind
        server.mind = lambda body: Said(**{**vars(thinks(body)), "usage": (100, 300, 0)})
        run = world.resume(admit(world, limits={"max_output_tokens": 600}))
    assert (longest(server), run.model_calls) == ([600, 300], 2)
    assert (run.status, run.reason, run.output_tokens) == ("escalated", "budget_exhausted", 600)
    nothing_moved(world)


def test_prompt_that_exceeds_what_is_left_of_the_input_cap_is_not_sent(world: World) -> None:
    with reached(world, OPENAI) as server:
        run = world.resume(admit(world, limits={"max_input_tokens": 200}))
        assert server.requests == []
    assert (run.status, run.reason, run.input_tokens) == ("escalated", "budget_exhausted", 0)
    nothing_moved(world)


@pytest.mark.parametrize(("limit", "calls"), [("max_model_calls", 2), ("deadline_ms", 1)])
def test_run_at_its_cap_of_calls_or_time_asks_nobody_more(world: World, limit: str, calls: int) -> None:
    with reached(world, OPENAI) as server:
        server.always = Fault(pause_s=0.02)
        run = world.resume(admit(world, limits={limit: calls}))
        assert len(server.requests) == run.model_calls == calls
    reason = "budget_exhausted" if limit == "max_model_calls" else "deadline_exceeded"
    assert (run.status, run.reason) == ("escalated", reason)
    nothing_moved(world)


def test_refund_that_was_made_is_told_at_a_cap(world: World) -> None:
    """The money is spent after the write: the reply is the facts alone, and the run completes."""
    with reached(world, OPENAI):
        run = world.resume(admit(world, limits={"max_model_calls": 3}))
        world.approve(run)
        run = world.resume(run)
    assert (run.status, run.outcome, len(world.posts())) == ("completed", "refunded", 1)
    assert run.reply
