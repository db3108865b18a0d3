"""A prompt that does not fit a model: one smaller prompt, remembered for the turns after it, then a person (M69)."""

from __future__ import annotations

import json

import pytest

from runs.models import Run
from tests.integration.test_dialect_runs import ROUTES, admit, nothing_moved, reach, reached
from tests.models.server import Fault, ModelServer, in_dialect, prompt_in
from tests.models.speaking import ANTHROPIC, OPENAI, PROVIDERS, Json
from tests.world import World, reads

TOO_LONG = Fault(status=400, body={"error": {"code": "context_length_exceeded", "type": "invalid_request_error"}})
NOTE = "The customer called about this order and was told to wait. " * 60


def looks_often(provider: str, turns: int) -> list[list[Json]]:
    """So many turns that read the order, each in words of its own search, so that no turn asks what was asked."""
    return [[*reads("get_order"), {"tool": "search_policy", "args": {"query": f"refund {n}"}}] for n in range(turns)]


def says(server: ModelServer, turns: list[list[Json]]) -> None:
    left = iter(turns)
    final = {"final": "Thank you for your patience."}
    server.mind = lambda body: in_dialect(server.provider, next(left, final), prompt_in(body).tools)


def refuses_above(server: ModelServer, limit: int) -> None:
    """As a provider with so small a window would."""
    asked = server.next_fault

    def next_fault(request: object) -> Fault:
        fault = asked(request)  # type: ignore[arg-type]
        return TOO_LONG if len(json.dumps(server.requests[-1].body)) > limit else fault

    server.next_fault = next_fault  # type: ignore[method-assign]


def sizes(server: ModelServer) -> list[int]:
    return [len(json.dumps(r.body)) for r in server.requests]


def failed(world: World, run: Run) -> list[str]:
    return [e["error"] for e in world.events(run, "model.failed")]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_prompt_that_does_not_fit_is_made_smaller_once_and_stays_small(world: World, provider: str) -> None:
    world.seed(note=NOTE)
    with reached(world, provider) as server:
        says(server, looks_often(provider, 7))
        first = admit(world, request_id="req-ample", limits={"max_model_calls": 12})
        ample = world.resume(first)
        largest = max(sizes(server))
        limit = round(largest * 0.8)
        server.requests.clear()
        says(server, looks_often(provider, 7))
        refuses_above(server, limit)
        run = world.resume(admit(world, request_id="req-small"))
        assert (ample.status, run.status) == ("completed", "completed"), (ample.reason, run.reason)
        taken = [size for size in sizes(server) if size <= limit]
        assert len(sizes(server)) - len(taken) == 1, "a refusal is learned from"
    assert failed(world, ample) == [] and failed(world, run) == ["context_too_long"]
    assert (run.window_tokens or 0) > 0 and ample.window_tokens is None
    assert run.model_calls == 8


def test_prompt_that_never_fits_goes_to_a_person_after_one_smaller_one(world: World) -> None:
    world.seed(note=NOTE)
    with reached(world, OPENAI, variables={"AGENT_PASSES_PER_TASK": "1"}) as server:
        says(server, looks_often(OPENAI, 7))
        run = admit(world)
        while world.fresh(run).model_calls < 5:
            world.step(run)
        asked = len(server.requests)
        server.always = TOO_LONG
        run = world.resume(run)
        assert len(server.requests) - asked == 2 and sizes(server)[-1] < 0.8 * sizes(server)[-2]
    assert (run.status, run.reason, run.model_calls) == ("escalated", "context_too_long", 5)
    assert failed(world, run) == ["context_too_long"] * 2
    nothing_moved(world)


def test_route_with_a_larger_window_is_tried_before_a_person(world: World) -> None:
    with ModelServer(OPENAI, always=TOO_LONG) as small, ModelServer(ANTHROPIC) as large:
        reach(world, small, large)
        run = world.resume(admit(world), until="awaiting_approval")
        assert (len(large.requests), run.model_calls) == (3, 3)
    assert {e["to"] for e in world.events(run, "route.switched")} == {ROUTES[ANTHROPIC]}
    nothing_moved(world)


def test_goal_that_alone_passes_the_window_is_asked_of_no_model(world: World) -> None:
    with reached(world, OPENAI, variables={"MODEL_WINDOW_TOKENS": "4000"}) as server:
        run = world.resume(admit(world, goal="refund " * 2300))
        assert (run.status, run.reason, server.requests) == ("escalated", "context_too_long", [])
    nothing_moved(world)
