"""A refund that the provider calls pending: waited for as long as it takes, through outages and lagging lists."""

from __future__ import annotations

import pytest

from runs.models import Run, Write
from tests.between import make_due, put_back
from tests.world import KEY, World, final, gather, inr, refund, s0

HOURS_S = 7200.0


def pending(world: World) -> tuple[Run, str]:
    """A run whose refund has been pending for two hours and was last seen a moment ago; and the refund's path."""
    world.settings(PENDING_POLL_S="60", RETRY_S="60")
    world.sandbox.fault("POST /v1/refunds", "state:pending")
    run = world.start()
    world.approve(run)
    run = world.resume(run)
    assert (run.status, world.writes(run)) == ("executed", [(KEY, "pending")])
    put_back(Write.objects.all(), executed_at=HOURS_S, intent_at=HOURS_S)
    [made] = world.refunds()
    return run, f"/_refunds/{made['refund_id']}"


def look(world: World, run: Run) -> Run:
    """One more look of a run that waits for its refund."""
    make_due(run)
    return world.resume(run, patience_s=0)


def succeeds(world: World, run: Run, path: str) -> None:
    world.sandbox.control("/_faults", clear=True)
    world.sandbox.control(path, state="succeeded", shown=True)
    run = look(world, run)
    assert (run.status, run.outcome, len(world.posts())) == ("completed", "refunded", 1)


@pytest.mark.parametrize("down", ["status:503", "empty", "garbage", "drop_before"])
def test_single_outage_long_after_the_refund_was_asked_for_gives_nothing_up(world: World, down: str) -> None:
    run, path = pending(world)
    world.sandbox.fault("GET /v1/refunds", down, times=0)
    run = look(world, run)
    assert (run.status, run.waiting_for, world.writes(run)) == ("executed", "refund", [(KEY, "pending")])
    succeeds(world, run, path)


def test_list_that_lags_once_long_after_the_refund_was_asked_for_gives_nothing_up(world: World) -> None:
    run, path = pending(world)
    world.sandbox.control(path, shown=False)
    run = look(world, run)
    assert (run.status, run.waiting_for, world.writes(run)) == ("executed", "refund", [(KEY, "pending")])
    succeeds(world, run, path)


def test_one_look_proves_nothing_however_long_ago_the_refund_was_last_seen(world: World) -> None:
    """Polls of a pending refund lie an hour apart, more than `verify_for_s`."""
    run, path = pending(world)
    put_back(Write.objects.all(), seen_at=3600)
    world.sandbox.control(path, shown=False)
    run = look(world, run)
    assert (run.status, world.writes(run)) == ("executed", [(KEY, "pending")])
    succeeds(world, run, path)


def test_outage_of_hours_is_waited_out_as_that_of_any_dependency(world: World) -> None:
    run, path = pending(world)
    put_back(Write.objects.all(), seen_at=86_000)
    world.sandbox.fault("GET /v1/refunds", "status:503", times=0)
    run = look(world, run)
    assert run.status == "executed"
    succeeds(world, run, path)


def test_outage_longer_than_any_dependency_s_goes_to_a_person(world: World) -> None:
    run, _ = pending(world)
    put_back(Write.objects.all(), seen_at=86_500)
    world.sandbox.fault("GET /v1/refunds", "status:503", times=0)
    run = look(world, run)
    assert (run.status, run.reason, world.writes(run)) == ("escalated", "verification_inconclusive", [(KEY, "pending")])


def test_refund_missing_for_verify_for_s_goes_to_a_person(world: World) -> None:
    run, path = pending(world)
    world.sandbox.control(path, shown=False)
    assert look(world, run).status == "executed"
    put_back(Write.objects.all(), absent_at=590, seen_at=1000)
    assert look(world, run).status == "executed"
    put_back(Write.objects.all(), absent_at=601, seen_at=1000)
    run = look(world, run)
    assert (run.status, run.reason, run.outcome) == ("escalated", "verification_inconclusive", "handed_to_staff")
    assert (world.writes(run), len(world.posts())) == ([(KEY, "pending")], 1)


def test_refund_that_was_seen_again_is_missed_anew(world: World) -> None:
    run, path = pending(world)
    world.sandbox.control(path, shown=False)
    assert look(world, run).status == "executed"
    put_back(Write.objects.all(), absent_at=601)
    world.sandbox.control(path, shown=True)
    assert look(world, run).status == "executed"  # seen: what was missed before counts no more
    world.sandbox.control(path, shown=False)
    run = look(world, run)
    assert run.status == "executed"
    succeeds(world, run, path)


def test_refund_answered_as_done_keeps_its_state_where_the_list_says_pending(world: World) -> None:
    """Its order is free already: another run may hold it, and only one write of ours may be open on an order."""
    world.settings(PENDING_POLL_S="60", RETRY_S="60")
    world.seed(amount_due=inr("0.00"))
    world.sandbox.fault("POST /v1/refunds", "hide:forever")
    first = world.start("req-1", script=s0(refund("pay_9002", "400.00")))
    assert (first.status, [s for _, s in world.writes(first)]) == ("executed", ["confirmed"])
    [made] = world.refunds()
    path = f"/_refunds/{made['refund_id']}"
    world.sandbox.control(path, state="pending", shown=True)
    world.sandbox.fault("POST /v1/refunds", "state:pending")
    second = world.start("req-2", script=[*gather(), refund("pay_9001", "400.00"), final()])
    assert (second.status, [s for _, s in world.writes(second)]) == ("executed", ["pending"])
    first = look(world, first)
    assert (first.status, first.waiting_for, [s for _, s in world.writes(first)]) == (
        "executed", "refund", ["confirmed"],
    )  # fmt: skip
    for refunded in world.refunds():
        world.sandbox.control(f"/_refunds/{refunded['refund_id']}", state="succeeded")
    assert [look(world, run).outcome for run in (first, second)] == ["refunded", "refunded"]
    assert len(world.posts()) == 2
