"""A first route whose window nothing fits takes nothing away from the route after it."""

from __future__ import annotations

from runs import replay
from tests.integration.test_dialect_runs import admit, nothing_moved, reach
from tests.integration.test_long_context import TOO_LONG, looks_often, says, sizes
from tests.models.server import ModelServer
from tests.models.speaking import ANTHROPIC, OPENAI
from tests.world import World


def test_route_after_one_that_no_prompt_is_small_enough_for_is_shown_the_whole_past(world: World) -> None:
    turns = 12
    world.profile(limits={"max_input_tokens": 10**9, "max_model_calls": 20, "deadline_ms": 10**6})
    with ModelServer(ANTHROPIC) as large:
        reach(world, large)
        says(large, looks_often(ANTHROPIC, turns))
        alone = world.resume(admit(world, request_id="req-alone"), limit_s=60)
        expected = sizes(large)
        large.requests.clear()
        with ModelServer(OPENAI, always=TOO_LONG) as small:
            reach(world, small, large)
            says(large, looks_often(ANTHROPIC, turns))
            run = world.resume(admit(world), limit_s=60)
            assert max(len(r.body["messages"]) for r in small.requests) > 2, "it was asked, and refused"
        found = sizes(large)
    assert (alone.status, run.status, run.window_tokens) == ("completed", "completed", None)
    assert len(found) == len(expected) == turns + 1
    assert all(abs(one - other) < 200 for one, other in zip(found, expected, strict=True)), (found, expected)
    assert replay.play(replay.export(run)).identical
    nothing_moved(world)
