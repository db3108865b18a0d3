"""Totals in windows of a day and an hour: a write fills them once, whatever number of times it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from agentsite import dbtime
from runs.models import Counter, Run, Write
from runs.store import money_rows, used_so_far
from tests.between import make_due
from tests.world import KEY, TENANT, World, refund, s0, worker_dies

DAY_FULL = {"INR": {"customer_day": {"count": 1, "amount": "5000.00"}, "tenant_hour": {"count": 1, "amount": "500.00"}}}


def totals() -> dict[str, tuple[int, int]]:
    return {c.scope: (c.count, c.amount_minor) for c in Counter.objects.all()}


def small(world: World, mode: str) -> Run:
    world.sandbox.fault("POST /v1/refunds", mode)
    return world.start(script=s0(refund(amount="500.00")))


@pytest.mark.parametrize("mode", ["status:503", "drop_before"])
def test_write_that_fills_the_totals_can_be_sent_again(world: World, mode: str) -> None:
    world.profile(aggregates=DAY_FULL)
    run = world.resume(small(world, mode), until="completed")
    assert (run.outcome, run.write_attempts, len(world.refunds())) == ("refunded", 2, 1)
    assert totals() == {"customer_day": (1, 50_000), "tenant_hour": (1, 50_000)}


def test_write_that_was_never_sent_and_fills_the_totals_can_be_sent(world: World) -> None:
    world.profile(aggregates=DAY_FULL)
    run = world.admit(script=s0(refund(amount="500.00")))
    world.settings(WORKER_QUEUES="passes")
    assert world.step(run) == "approved"
    world.settings(WORKER_QUEUES="passes,writes,maintenance")
    worker_dies(run, after="intent")
    assert totals() == {"customer_day": (1, 50_000), "tenant_hour": (1, 50_000)}
    run = world.resume(run)
    assert (run.outcome, run.write_attempts, len(world.posts())) == ("refunded", 1, 1)
    assert totals() == {"customer_day": (1, 50_000), "tenant_hour": (1, 50_000)}


def test_totals_of_others_still_count_where_a_write_is_left_out(world: World) -> None:
    run = world.start(script=s0(refund(amount="500.00")))
    assert run.outcome == "refunded"
    whole = used_so_far(TENANT, "cust_5521", "8472", "INR", leave_out="")
    rest = used_so_far(TENANT, "cust_5521", "8472", "INR", leave_out=KEY)
    other = used_so_far(TENANT, "cust_5521", "8472", "INR", leave_out="another")
    assert (whole.customer_day, whole.tenant_hour, whole.agent_on_order_minor) == ((1, 50_000), (1, 50_000), 50_000)
    assert (rest.customer_day, rest.tenant_hour, rest.agent_on_order_minor) == ((0, 0), (0, 0), 0)
    assert other == whole


def test_share_of_an_earlier_window_is_not_taken_from_this_one(world: World) -> None:
    world.start(script=s0(refund(amount="500.00")))
    Write.objects.update(tenant_window="2020-01-01T00", customer_window="2020-01-01")
    used = used_so_far(TENANT, "cust_5521", "8472", "INR", leave_out=KEY)
    assert (used.customer_day, used.tenant_hour) == ((1, 50_000), (1, 50_000))


def test_refused_write_gives_its_share_back(world: World) -> None:
    run = small(world, "status:422")
    assert (run.status, [s for _, s in world.writes(run)]) == ("completed", ["refused"])
    assert totals() == {"customer_day": (0, 0), "tenant_hour": (0, 0)}


def test_write_is_counted_and_given_back_in_the_windows_of_one_instant(world: World) -> None:
    """The hour may turn inside the intent: what is counted in one window is never taken from the next."""
    hours = (dbtime.now() + timedelta(days=n) for n in range(1000))
    windows: Iterator[tuple[str, str]] = ((at.strftime("%Y-%m-%d"), at.strftime("%Y-%m-%dT%H")) for at in hours)
    world.patch.setattr(money_rows, "_windows", lambda _now: next(windows))
    run = small(world, "status:422")
    assert [s for _, s in world.writes(run)] == ["refused"]
    write = Write.objects.get()
    counted = {c.scope: (c.window, c.count, c.amount_minor) for c in Counter.objects.all()}
    assert counted == {"customer_day": (write.customer_window, 0, 0), "tenant_hour": (write.tenant_window, 0, 0)}


def test_write_closed_in_a_later_hour_is_given_back_in_its_own(world: World) -> None:
    run = world.start()
    world.approve(run)
    worker_dies(run, after="intent")
    write = Write.objects.get()
    past = {"tenant_hour": "2020-01-01T00", "customer_day": "2020-01-01"}
    since = {"tenant_hour": write.tenant_window, "customer_day": write.customer_window}
    for row in list(Counter.objects.all()):
        Counter.objects.filter(pk=row.pk).update(window=past[row.scope])
        row.pk, row.count, row.amount_minor = None, 3, 30_000
        row.save()
    Write.objects.update(tenant_window=past["tenant_hour"], customer_window=past["customer_day"])
    world.cancel(run)
    make_due(run)
    assert (world.resume(run).status, Write.objects.get().state) == ("cancelled", "not_sent")
    left = {(c.scope, c.window): (c.count, c.amount_minor) for c in Counter.objects.all()}
    assert left == {
        **{(scope, window): (0, 0) for scope, window in past.items()},
        **{(scope, window): (3, 30_000) for scope, window in since.items()},
    }
