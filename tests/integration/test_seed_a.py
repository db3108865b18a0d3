"""The tests that the mission's text prints, under its names, on the real loop."""

from __future__ import annotations

from tests.world import KEY, World, final, gather, refund, s0


def test_happy_path_requires_approval_and_verifies(world: World) -> None:
    run = world.start("req-8472")
    assert run.status == "awaiting_approval"
    assert world.posts() == []
    world.approve(run)
    run = world.resume(run)
    assert (run.status, run.outcome, run.version) == ("completed", "refunded", 11)
    assert world.posts() == [("pay_9002", "2000.00", KEY)]
