"""The circuit breaker of an account at a model provider: one that is down is not asked by every run again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections

from agentsite import dbtime, env
from runs import prompt as prompts
from runs.contracts import LLMTurnResult, ModelCall, Prompt
from runs.errors import ModelError, ModelRefused, ModelUnavailable
from runs.inference import gateway
from runs.models import Run
from runs.orchestrator import asking, calling
from runs.orchestrator.offered import offered
from runs.orchestrator.ports import LIVE
from tests.between import LONGEST, due_in_s, make_due
from tests.breakers import time_goes_by
from tests.integration.test_dialect_runs import admit, reach
from tests.models.server import KEY as MODEL_KEY
from tests.models.server import Fault, ModelServer, limited
from tests.models.speaking import ANTHROPIC, OPENAI
from tests.unit import states_8472
from tests.world import World
from tools import breaker
from tools.models import Breaker

DOWN = Fault(status=503, body={"error": {"type": "server_error"}})
ROUTE = "openai:m-2026"


def prompt() -> Prompt:
    run = states_8472.state()
    return prompts.build_prompt(run, offered(run, env.read()))


def call(route: str = ROUTE, timeout_s: float = 10) -> ModelCall:
    run = states_8472.state()
    return ModelCall(
        run_id=run.run_id, seen_input_seq=0, route=route, prompt=prompt(), timeout_s=timeout_s, max_output_tokens=4096
    )


def ask(route: str = ROUTE, timeout_s: float = 10) -> LLMTurnResult | str:
    try:
        return calling.complete(call(route, timeout_s))
    except ModelError as error:
        return error.slug


def state() -> str:
    return breaker.state(Breaker.objects.get(dependency="openai"), dbtime.now())


# --- one call ---------------------------------------------------------------------------------------------------


def test_provider_that_is_down_is_not_called_until_its_time_is_over(world: World) -> None:
    with ModelServer(OPENAI, always=DOWN) as server:
        world.settings(**server.variables(), BREAKER_FAILURES="2", BREAKER_COOL_S="60")
        assert [ask() for _ in range(4)] == ["model_unavailable"] * 2 + [calling.OPEN] * 2
        assert (len(server.requests), state()) == (2, "open")
        with pytest.raises(ModelUnavailable) as kept_back:
            calling.complete(call())
        assert kept_back.value.retry_after_s is not None and 50 < kept_back.value.retry_after_s <= 60
        time_goes_by(60)
        server.always = None
        assert isinstance(ask(), LLMTurnResult)
        assert (len(server.requests), state()) == (3, "closed")


def test_time_that_a_provider_names_opens_at_once_and_is_held(world: World) -> None:
    """M59: one throttled call is enough, and every process knows of it."""
    with ModelServer(OPENAI, always=limited("90")) as server:
        world.settings(**server.variables(), BREAKER_FAILURES="5")
        assert ask() == "model_rate_limited"
        with pytest.raises(ModelUnavailable) as kept_back:
            calling.complete(call())
        assert kept_back.value.slug == calling.OPEN and 80 < (kept_back.value.retry_after_s or 0) <= 90
        assert len(server.requests) == 1


def test_refusal_is_an_answer_and_opens_nothing(world: World) -> None:
    with ModelServer(OPENAI, always=Fault(status=400, body={"error": {"type": "invalid_request_error"}})) as server:
        world.settings(**server.variables(), BREAKER_FAILURES="1")
        for _ in range(3):
            with pytest.raises(ModelRefused):
                calling.complete(call())
        assert (len(server.requests), list(Breaker.objects.filter(dependency="openai"))) == (3, [])


def test_run_with_little_time_left_says_nothing_of_the_provider(world: World) -> None:
    with ModelServer(OPENAI, always=Fault(pause_s=2)) as server:
        world.settings(**server.variables(), BREAKER_FAILURES="1", MODEL_TIMEOUT_S="60")
        assert ask(timeout_s=0.3) == "model_timeout"
        assert list(Breaker.objects.filter(dependency="openai")) == []
        world.settings(MODEL_TIMEOUT_S="0.3")
        assert ask(timeout_s=0.3) == "model_timeout"
        assert state() == "open"


@pytest.mark.parametrize(("timeout_s", "states"), [("2", ["open"]), ("30", [])])
def test_call_of_a_run_that_times_out_counts_if_it_had_a_fair_share_of_time(
    world: World, timeout_s: str, states: list[str]
) -> None:
    """The whole path: what a turn leaves of its budget is always less than the timeout of a call."""
    with ModelServer(OPENAI, always=Fault(pause_s=3)) as server:
        _open(world, server, MODEL_TIMEOUT_S=timeout_s, RETRY_S="60")
        run = world.resume(admit(world, limits={"deadline_ms": 1000}))
        assert [e["error"] for e in world.events(run, "model.failed")] == ["model_timeout"]
        assert (len(server.requests), [state() for _ in Breaker.objects.filter(dependency="openai")]) == (1, states)
    assert world.posts() == []


def test_turn_with_all_of_its_time_counts_a_timeout(world: World) -> None:
    with ModelServer(OPENAI, always=Fault(pause_s=2)) as server:
        _open(world, server, MODEL_TIMEOUT_S="0.5")
        called = asking.ask(states_8472.state(), prompt(), LIVE)
        assert (called.error and called.error.slug, state()) == ("model_timeout", "open")


def test_of_all_that_wait_one_probes(world: World) -> None:
    """Eight at once when the time is over: one call goes out, and its lease is as long as a model may take."""
    with ModelServer(OPENAI, always=DOWN) as server:
        world.settings(**server.variables(), BREAKER_FAILURES="1", BREAKER_COOL_S="60", MODEL_TIMEOUT_S="30")
        assert ask() == "model_unavailable"
        time_goes_by(60)
        server.always = Fault(pause_s=1)

        def one(_: int) -> LLMTurnResult | str:
            try:
                return ask()
            finally:
                connections.close_all()

        with ThreadPoolExecutor(8) as pool:
            ends = list(pool.map(one, range(8)))
        assert len(server.requests) == 2
        assert ends.count(calling.OPEN) == 7 and state() == "closed"


def test_lease_of_a_probe_outlives_the_longest_call(world: World) -> None:
    with ModelServer(OPENAI, always=DOWN) as server:
        world.settings(**server.variables(), BREAKER_FAILURES="1", MODEL_TIMEOUT_S="40")
        ask()
        time_goes_by(60)
        permit = breaker.allow(*account(), lease_s=42.0)
        assert isinstance(permit, breaker.Permit) and permit.probe
        until = Breaker.objects.get(dependency="openai").probe_until
        assert until is not None and 35 < (until - dbtime.now()).total_seconds() <= 42
        assert ask() == calling.OPEN


def account() -> tuple[str, str]:
    found = gateway.account(ROUTE)
    assert found is not None
    return found


def test_account_is_origin_and_key_and_shows_neither_key_nor_password(world: World) -> None:
    world.settings(OPENAI_BASE_URL="https://proxy:secret@models.example/v1", OPENAI_API_KEY=MODEL_KEY)
    dependency, name = account()
    assert dependency == "openai" and name.startswith("https://models.example#") and len(name) == 31
    assert MODEL_KEY not in name and "secret" not in name
    world.settings(OPENAI_API_KEY="sk-another-key-of-the-tests")
    assert account()[1] != name
    world.settings(ANTHROPIC_BASE_URL="http://127.0.0.1:9", ANTHROPIC_API_KEY="k-of-the-tests-alone")
    assert gateway.account("anthropic:m") == gateway.account("anthropic_xml:other")
    assert gateway.account("offline:investigator") is gateway.account("scripted:/a") is None


# --- a run ------------------------------------------------------------------------------------------------------


def _open(world: World, *servers: ModelServer, **more: str) -> None:
    reach(world, *servers)
    world.settings(BREAKER_FAILURES="1", BREAKER_COOL_S="60", **more)


def test_run_waits_for_as_long_as_the_breaker_says_and_goes_on_by_itself(world: World) -> None:
    with ModelServer(OPENAI, always=DOWN) as server:
        _open(world, server, MODEL_TRIES="2")
        first = world.resume(admit(world))
        assert (first.status, first.waiting_for, len(server.requests)) == ("waiting_dependency", "dependency", 1)
        assert 30 < due_in_s(first) <= 60 * LONGEST
        others = [world.resume(admit(world, request_id=f"req-{n}")) for n in range(3)]
        assert [r.status for r in others] == ["waiting_dependency"] * 3
        assert len(server.requests) == 1
        for _ in range(3):  # kept back is no try, however often
            make_due(others[0])
            assert world.resume(others[0]).status == "waiting_dependency"
        assert (world.fresh(others[0]).retries, len(server.requests)) == (0, 1)
        assert [e["error"] for e in world.events(others[0], "model.failed")] == [calling.OPEN] * 4
        time_goes_by(60)
        server.always = None
        make_due(others[0])
        run = world.resume(others[0])
        assert (run.status, run.down_since, state()) == ("awaiting_approval", None, "closed")
        assert world.posts() == []


def test_open_breaker_sends_the_turn_to_the_next_route(world: World) -> None:
    with ModelServer(OPENAI, always=DOWN) as first, ModelServer(ANTHROPIC) as second:
        _open(world, first, second)
        run = world.resume(admit(world))
        assert run.status == "awaiting_approval"
        assert (len(first.requests), len(second.requests)) == (1, run.model_calls)
        switched = [e["to"] for e in world.events(run, "route.switched")]
        assert switched == ["anthropic:m-2026"] * run.model_calls
        assert world.posts() == []


def test_route_that_may_answer_later_is_waited_for_though_the_other_refuses(world: World) -> None:
    refuses = Fault(status=401, body={"error": {"type": "authentication_error"}})
    with ModelServer(OPENAI, always=DOWN) as first, ModelServer(ANTHROPIC, always=refuses) as second:
        _open(world, first, second)
        run: Run = world.resume(admit(world))
        assert (run.status, run.waiting_for) == ("waiting_dependency", "dependency")
        assert len(second.requests) >= 1 and world.posts() == []
