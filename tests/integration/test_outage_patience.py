"""How long a run waits for a dependency: by the clock from its first failure, not by the waits that were planned."""

from __future__ import annotations

from runs import replay, store
from runs.models import Run
from tests.between import due_in_s, make_due, put_back
from tests.world import World, final, gather, refund


def _down(world: World) -> None:
    world.sandbox.fault("GET /v1/payments", "status:503", times=0)


def test_few_long_waits_are_an_outage_as_long_as_the_clock_says(world: World) -> None:
    world.settings(DEPENDENCY_FOR_S="3600", RETRY_S="1", BREAKER_FAILURES="1000")
    _down(world)
    run = world.start()
    assert (run.status, run.retries) == ("waiting_dependency", 1)
    put_back(Run.objects.filter(pk=run.pk), down_since=3601, due_at=0)
    run = world.resume(run)
    assert (run.status, run.reason, world.posts()) == ("escalated", "dependency_unavailable", [])


def test_many_hurried_tries_are_no_long_outage(world: World) -> None:
    """Ten tries whose planned waits sum up to far more than the patience, within moments."""
    world.settings(DEPENDENCY_FOR_S="600", RETRY_S="100", BREAKER_FAILURES="1000")
    _down(world)
    run = world.start()
    since = run.down_since
    for _ in range(9):
        make_due(run)
        run = world.resume(run)
    assert (run.status, run.retries, run.down_since) == ("waiting_dependency", 10, since)
    assert due_in_s(run) > 250
    assert world.posts() == []


def test_answer_ends_an_outage_and_the_next_one_begins_anew(world: World) -> None:
    world.settings(DEPENDENCY_FOR_S="3600", RETRY_S="1", BREAKER_FAILURES="1000")
    _down(world)
    run = world.start(script=[*gather(), refund(), final()])
    put_back(Run.objects.filter(pk=run.pk), down_since=3000, due_at=0)
    world.sandbox.control("/_faults", clear=True)
    run = world.resume(run, until="awaiting_approval")
    assert (run.down_since, run.retries) == (None, 0)
    world.approve(run)
    _down(world)
    run = world.resume(run)
    assert (run.status, run.resume_status) == ("waiting_dependency", "approved")
    assert run.down_since is not None and run.down_since > run.created_at
    world.sandbox.control("/_faults", clear=True)
    make_due(run)
    assert (world.resume(run, until="completed").outcome, len(world.posts())) == ("refunded", 1)
    assert store.story(str(run.pk)).outcome == "refunded"
    assert replay.play(replay.export(world.fresh(run))).identical
