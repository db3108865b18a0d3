"""Ceilings, thresholds and totals that no splitting gets round (M118), and large refunds that need two people (M38)."""

from __future__ import annotations

import time

import pytest

from agentsite.refusals import Refusal
from runs.models import Counter, Run
from tests.system.business import captures, order
from tests.world import KEY, World, final, gather, inr, refund, s0


def _all_due(world: World, *payments: str) -> None:
    """Order 8472 was cancelled: everything that was captured may go back."""
    world.seed(amount_due=inr("0.00"), payments=captures("8472", *payments))


def test_second_half_of_a_split_refund_needs_a_person_in_one_run(world: World) -> None:
    _all_due(world)
    run = world.start(script=[*gather(), refund("pay_9001", "999.00"), refund("pay_9002", "999.00"), final()])
    assert (run.status, world.posts()) == ("awaiting_approval", [("pay_9001", "999.00", KEY[:-1] + "1")])
    assert world.approval(run).payment_id == "pay_9002"
    assert world.approval(run).rule == "refund_above_1000_requires_approval"
    assert "reference is" in world.said(run) and "A further refund has been proposed" in world.said(run)
    world.reject(run)
    run = world.resume(run)
    assert (run.status, run.outcome, len(world.posts())) == ("completed", "refunded", 1)
    assert "A member of our team reviewed a further refund and did not approve it." in world.said(run)


def test_second_part_of_a_split_refund_needs_a_person_in_five_runs(world: World) -> None:
    names = [f"pay_900{n}" for n in range(1, 6)]
    _all_due(world, *names)
    runs = [world.start(f"req-{p}", script=s0(refund(p, "999.00"))) for p in names]
    assert [r.status for r in runs] == ["completed", *["awaiting_approval"] * 4]
    assert [p for p, _, _ in world.posts()] == ["pay_9001"]


def test_ceiling_counts_what_the_agent_refunded_on_the_order_before(world: World) -> None:
    _all_due(world, "pay_9001", "pay_9002", "pay_9003")
    first = world.start("req-1", script=s0(refund("pay_9001")))
    world.approve(first)
    world.resume(first)
    second = world.start("req-2", script=s0(refund("pay_9002")))
    assert (second.status, world.approval(second).required) == ("awaiting_approval", 1)
    world.approve(second)
    world.resume(second)
    third = world.start("req-3", script=s0(refund("pay_9003")))
    assert (third.status, world.rules(third)) == ("completed", ["amount_exceeds_ceiling"])
    assert len(world.posts()) == 2


def _orders(world: World, *order_ids: str) -> None:
    rows = [order(i, amount_due=inr("0.00")) for i in order_ids]
    world.sandbox.control("/_seed", orders=rows, payments=[p for i in order_ids for p in captures(i, f"pay_{i}")])


def _small(world: World, order_id: str) -> Run:
    script = [*gather(order_id), refund(f"pay_{order_id}", "100.00", order_id=order_id), final()]
    return world.start(f"req-{order_id}", script=script, order_ids=[order_id])


def test_customer_total_of_a_day_sends_the_next_refund_to_a_person(world: World) -> None:
    _orders(world, "1", "2", "3", "4")
    assert [_small(world, i).status for i in "123"] == ["completed"] * 3
    fourth = _small(world, "4")
    assert (fourth.status, world.approval(fourth).rule) == ("awaiting_approval", "customer_day_total_requires_approval")
    world.approve(fourth)
    assert (world.resume(fourth).outcome, len(world.posts())) == ("refunded", 4)
    assert Counter.objects.get(scope="customer_day").count == 4


def test_tenant_total_of_an_hour_stops_writes_even_approved_ones(world: World) -> None:
    totals = {"INR": {"tenant_hour": {"count": 1, "amount": "200000.00"}}}
    world.profile(aggregates=totals)
    _orders(world, "1", "2")
    assert _small(world, "1").status == "completed"
    second = _small(world, "2")
    assert (second.status, world.approval(second).rule) == ("awaiting_approval", "tenant_hour_total_requires_approval")
    world.approve(second)
    second = world.resume(second)
    assert (second.status, second.waiting_for, len(world.posts())) == ("approved", "staff", 1)
    assert world.events(second, "notice")[-1]["held"] == "tenant_hour_total"


def test_large_refund_needs_two_different_people(world: World) -> None:
    """M38."""
    world.limits(max_amount="5000.00", two_people_above="1500.00")
    run = world.start()
    assert (world.approval(run).required, world.approval(run).large) == (2, True)
    with pytest.raises(Refusal) as small:
        world.approve(run, by="lead_17")
    assert (small.value.slug, world.approve(run, by="senior_1", large=True).remaining) == ("not-permitted", 1)
    assert world.approve(run, by="senior_1", large=True).kind == "same-again"
    assert (world.resume(run).status, world.posts()) == ("awaiting_approval", [])
    world.approve(run, by="senior_2", large=True)
    assert (world.resume(run).outcome, len(world.posts())) == ("refunded", 1)


@pytest.mark.parametrize("message", ["", "Please hurry."])
def test_second_part_that_expires_leaves_a_run_that_tells_of_the_first(world: World, message: str) -> None:
    """An expired further write goes back to verified: what was done stays told, nobody is left waiting."""
    world.profile(approval_ttl_s=1)
    _all_due(world)
    run = world.start(script=[*gather(), refund("pay_9001", "999.00"), refund("pay_9002", "999.00"), final()])
    assert run.status == "awaiting_approval"
    time.sleep(1.0)
    if message:
        world.message(run, message)
    run = world.resume(run, until="completed")
    assert (run.outcome, len(world.posts())) == ("refunded", 1)
    assert world.approval(run).status == ("void" if message else "expired")
    assert "has been made and confirmed" in str(run.reply)
