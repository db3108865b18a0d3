"""An approval that somebody voids beside its run wakes the run: it may not sleep until the question would expire."""

from __future__ import annotations

from agentsite import metrics, queues
from agentsite.tenants.models import Site, Tenant
from approvals import queue
from runs import store
from runs.models import Counter
from tests.between import due_in_s
from tests.world import World, final, gather, refund, s0, worker_dies

DAY_FULL = {
    "INR": {"customer_day": {"count": 1, "amount": "5000.00"}, "tenant_hour": {"count": 9, "amount": "9000.00"}}
}


def test_voided_approval_wakes_its_run(world: World) -> None:
    run = world.start(script=[*gather(), refund(), refund(), final()])
    assert run.status == "awaiting_approval" and due_in_s(run) > 3600
    assert store.due_unhinted(queues.PASSES, patient=False) == []
    first = world.approval(run)
    assert queue.void(str(run.pk), "restored") == first.id
    assert [d.run_id for d in store.due_unhinted(queues.PASSES, patient=False)] == [str(run.pk)]
    run = world.resume(run)
    assert (run.status, run.voids, world.rules(run)) == ("awaiting_approval", 0, ["superseded"])
    assert world.approval(run).id != first.id
    assert store.due_unhinted(queues.PASSES, patient=False) == []
    world.approve(run)
    assert (world.resume(run).outcome, len(world.posts())) == ("refunded", 1)


def test_run_whose_approval_was_voided_refunds_nothing_without_a_new_yes(world: World) -> None:
    run = world.start(script=[*gather(), refund(), final()])
    queue.void(str(run.pk), "by an operator")
    run = world.resume(run)
    assert (run.status, run.outcome, world.posts()) == ("completed", "answered", [])


def test_void_yes_is_no_yes_even_where_nobody_would_be_asked_today(world: World) -> None:
    """Approved, then voided beside the run, then its totals rolled over: nothing goes out on the old proposal."""
    world.profile(aggregates=DAY_FULL)
    first = world.start("req-first", script=s0(refund("pay_9001", amount="500.00")))
    assert first.outcome == "refunded"
    run = world.start(script=[*gather(), refund(amount="500.00"), final()])
    world.approve(run)
    worker_dies(run, after="approved")
    queue.void(str(run.pk), "by an operator")
    Counter.objects.update(count=0, amount_minor=0)
    run = world.resume(run)
    assert (run.status, world.rules(run), len(world.posts())) == ("completed", ["superseded"], 1)


def test_stopped_switches_are_shown_as_a_gauge(world: World) -> None:
    def gauge() -> dict[str, float]:
        found = [f for f in metrics.Gauges().collect() if f.name == "agentsite_switches_stopped"]
        return {s.labels["scope"]: s.value for f in found for s in f.samples}

    assert gauge() == {"site": 0, "tenant": 0}
    Tenant.objects.update(paused=True)
    assert gauge() == {"site": 0, "tenant": 1}
    Site.objects.update(paused=True)
    assert gauge() == {"site": 1, "tenant": 1}
