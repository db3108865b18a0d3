"""A run whose own time is over ends by that name: no model is blamed, asked on and paid for it (M5)."""

from __future__ import annotations

from runs import replay
from tests.integration.test_dialect_runs import admit, nothing_moved, reached
from tests.models.server import Fault
from tests.models.speaking import OPENAI
from tests.world import World


def test_model_slower_than_what_is_left_of_the_runs_time_is_not_asked_over_and_over(world: World) -> None:
    with reached(world, OPENAI, variables={"RETRY_S": "0.001"}) as server:
        server.always = Fault(pause_s=1.5)
        run = world.resume(admit(world, limits={"deadline_ms": 500}))
        asked = len(server.requests)
    assert (run.status, run.reason) == ("escalated", "deadline_exceeded")
    assert (asked, world.events(run, "run.status")[-1]["to"]) == (1, "escalated")
    assert replay.play(replay.export(run)).identical
    nothing_moved(world)
