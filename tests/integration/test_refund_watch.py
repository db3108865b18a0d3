"""Confirmed refunds are read again at 1, 3, 7, 14 and 30 days; a late failure corrects and issues nothing (M113)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from agentsite import dbtime, queues
from runs import store, sweeper
from runs.models import Run, Write
from runs.orchestrator import settle
from tests.between import put_back
from tests.operating import acts, operator, seen
from tests.world import KEY, World, final, gather, inr, refund, worker_dies

DAY_S = 86_400.0
DAYS = (1, 3, 7, 14, 30)
CONFIRMED = "has been made and confirmed"


def write(key: str = KEY) -> Write:
    return Write.objects.get(key=key)


def refunded(world: World) -> Run:
    run = world.start()
    world.approve(run)
    run = world.resume(run, until="completed")
    assert run.outcome == "refunded"
    return run


def days_later(days: float, key: str = KEY) -> None:
    """So many days have gone by since the refund was verified, and its look is due."""
    put_back(Write.objects.filter(key=key), closed_at=days * DAY_S, watch_at=1, seen_at=days * DAY_S)


def an_hour_later() -> None:
    put_back(Write.objects.filter(key=KEY), watch_at=1)


def next_day(key: str = KEY) -> float | None:
    """The day after the verification on which it is looked at next."""
    row = write(key)
    if row.watch_at is None:
        return None
    assert row.closed_at is not None
    return round((row.watch_at - row.closed_at).total_seconds() / DAY_S, 3)


def becomes(world: World, state: str, **more: Any) -> None:
    world.heard.clear()  # what was said until now was true until now
    for made in world.refunds("pay_9002"):
        world.sandbox.control(f"/_refunds/{made['refund_id']}", state=state, **more)


# --- when it is looked at --------------------------------------------------------------------------------------


def test_watch_begins_with_the_verification(world: World) -> None:
    run = world.start()
    world.approve(run)
    worker_dies(run, after="post")
    assert write().watch_at is None
    world.resume(run, until="completed")
    assert (next_day(), write().watched, store.due_watches()) == (1.0, 0, [])


def test_watch_goes_on_day_by_day_and_ends(world: World) -> None:
    run = refunded(world)
    for number, day in enumerate(DAYS):
        days_later(day + 0.01)
        assert store.due_watches() == [KEY]
        assert store.due_watches() == []  # put off a minute, so that one hint goes out
        assert settle(KEY) == "still_there"
        assert (next_day(), write().watched) == ((*DAYS, None)[number + 1], number + 1)
    assert (settle(KEY), world.fresh(run).last_seq, world.fresh(run).outcome) == ("closed", run.last_seq, "refunded")
    assert len(world.posts()) == 1


def test_days_that_were_missed_are_not_made_up_for(world: World) -> None:
    refunded(world)
    days_later(8)
    assert (settle(KEY), next_day(), write().watched) == ("still_there", 14.0, 3)


def test_sweeper_hints_for_a_due_watch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    refunded(world)
    told = list[str]()
    monkeypatch.setattr(queues, "nudge_settle", told.append)
    monkeypatch.setattr(queues, "depth", lambda queue: 0)  # what other tests left waiting is no crowd
    sweeper.sweep()
    assert told == []
    days_later(1)
    sweeper.sweep()
    sweeper.sweep()
    assert told == [KEY]


def test_days_are_configuration(world: World) -> None:
    world.settings(WATCH_DAY_S="2")
    refunded(world)
    at, closed = write().watch_at, write().closed_at
    assert at is not None and closed is not None and at - closed == timedelta(seconds=2)


def test_refund_whose_run_lives_is_left_to_its_run(world: World) -> None:
    run = refunded(world)
    days_later(1)
    Run.objects.filter(pk=run.pk).update(status="verified")
    assert settle(KEY) == "closed"
    at = write().watch_at
    assert at is not None and at > dbtime.now() + timedelta(minutes=50)
    Run.objects.filter(pk=run.pk).update(status="completed")


def test_refund_settled_late_or_by_hand_is_watched_too(world: World) -> None:
    run = world.start()
    world.approve(run)
    world.sandbox.fault("POST /v1/refunds", "drop_after")
    worker_dies(run, after="post")
    world.sandbox.fault("GET /v1/refunds", "status:503", times=0)
    put_back(Write.objects.filter(state="sent"), intent_at=1801)
    world.resume(run, until="escalated")
    assert write().watch_at is None
    world.sandbox.control("/_faults", clear=True)
    assert (settle(KEY), next_day()) == ("settled", 1.0)


# --- failed after all ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["failed", "canceled"])
@pytest.mark.parametrize("day", [1, 30])
def test_late_failure_corrects_record_customer_and_staff_and_issues_nothing(world: World, state: str, day: int) -> None:
    run = refunded(world)
    assert CONFIRMED in str(run.reply)
    becomes(world, state)
    days_later(day)
    assert settle(KEY) == "failed"
    after = world.fresh(run)
    assert (after.status, after.outcome, write().state, write().refund_state, write().watch_at) == (
        "completed", "refund_failed", "failed", state, None,
    )  # fmt: skip
    assert world.events(run, "run.corrected") == [{"from": "refunded", "to": "refund_failed"}]
    assert {"to": "staff", "error": "refund_failed", "key": KEY} in world.events(run, "notice")
    assert (CONFIRMED in world.said(run), CONFIRMED in str(after.reply)) == (False, False)
    assert "did not go through" in world.said(run) and after.reply == world.said(run)
    assert world.events(run, "reply.sent")[-1] == {"corrected": True, "text": after.reply}
    assert (settle(KEY), len(world.posts())) == ("closed", 1)
    assert store.due_watches() == []


def test_late_failure_is_a_persons_to_finish(world: World) -> None:
    run = refunded(world)
    becomes(world, "failed")
    days_later(3)
    settle(KEY)
    desk = operator()
    assert "req-8472" in seen(desk, "/admin/runs/run/?needs=finish")
    assert acts(desk, run, "finish", text="We paid you by bank transfer instead.") == 302
    assert world.said(run) == "We paid you by bank transfer instead."
    assert "req-8472" not in seen(desk, "/admin/runs/run/?needs=finish")
    assert len(world.posts()) == 1


def test_failure_of_what_a_person_had_finished_reopens_the_truth(world: World) -> None:
    world.settings(VERIFY_FOR_S="600")
    run = refunded(world)
    Run.objects.filter(pk=run.pk).update(outcome="resolved_by_staff", reply="Your money is on its way.")
    becomes(world, "failed")
    days_later(1)
    assert settle(KEY) == "failed"
    after = world.fresh(run)
    assert (after.outcome, after.reply == world.said(run)) == ("refund_failed", True)
    assert "did not go through" in str(after.reply)


def test_failure_of_one_of_two_is_a_part(world: World) -> None:
    world.seed(amount_due=inr("0.00"))
    run = world.start(script=[*gather(), refund("pay_9001", "999.00"), refund("pay_9002", "999.00"), final()])
    world.approve(run)
    run = world.resume(run, until="completed")
    assert (run.outcome, [s for _, s in world.writes(run)]) == ("refunded", ["confirmed", "confirmed"])
    becomes(world, "failed")
    days_later(7)
    assert settle(KEY) == "failed"
    after = world.fresh(run)
    assert (after.outcome, dict(world.writes(run))) == (
        "partly_refunded", {KEY[:-1] + "1": "confirmed", KEY: "failed"},
    )  # fmt: skip
    assert CONFIRMED in world.said(run) and "did not go through" in world.said(run)
    assert len(world.posts()) == 2


def test_failed_refund_counts_no_more(world: World) -> None:
    refunded(world)
    becomes(world, "failed")
    days_later(1)
    settle(KEY)
    second = world.start("req-2")
    world.approve(second, by="lead_18")
    assert world.resume(second, until="completed").outcome == "refunded"
    assert [r["state"] for r in world.refunds()] == ["failed", "succeeded"]


# --- no answer, or another one ---------------------------------------------------------------------------------


@pytest.mark.parametrize("down", ["status:503", "garbage", "empty", "drop_before"])
def test_outage_is_no_failure_and_is_asked_again_in_an_hour(world: World, down: str) -> None:
    run = refunded(world)
    days_later(1)
    world.sandbox.fault("GET /v1/refunds", down, times=0)
    assert settle(KEY) == "again"
    at = write().watch_at
    assert at is not None and abs((at - dbtime.now()).total_seconds() - 3600) < 30
    assert (write().state, write().watched, world.fresh(run).last_seq) == ("confirmed", 0, run.last_seq)
    world.sandbox.control("/_faults", clear=True)
    assert settle(KEY) == "closed"  # a doubled hint comes too early
    an_hour_later()
    assert (settle(KEY), next_day()) == ("still_there", 3.0)


def test_outage_to_the_end_of_the_watch_is_told_to_staff_once(world: World) -> None:
    run = refunded(world)
    days_later(33.1)
    world.sandbox.fault("GET /v1/refunds", "status:503", times=0)
    assert settle(KEY) == "doubted"
    [notice] = [e for e in world.events(run, "notice") if e.get("error") == "refund_not_watched"]
    assert (notice["to"], write().watch_at, write().state) == ("staff", None, "confirmed")
    assert (settle(KEY), world.fresh(run).outcome) == ("closed", "refunded")


def test_refund_that_two_lists_no_longer_show_is_told_to_staff_and_corrects_nothing(world: World) -> None:
    run = refunded(world)
    days_later(1)
    becomes(world, "succeeded", shown=False)
    assert settle(KEY) == "again"
    assert not [e for e in world.events(run, "notice") if e.get("error") == "refund_doubted"]
    an_hour_later()
    assert (settle(KEY), next_day()) == ("doubted", 3.0)
    [notice] = [e for e in world.events(run, "notice") if e.get("error") == "refund_doubted"]
    assert (notice["why"], write().state, world.fresh(run).outcome) == ("not_shown", "confirmed", "refunded")


def test_lag_that_is_over_at_the_second_look_is_told_to_nobody(world: World) -> None:
    run = refunded(world)
    days_later(1)
    becomes(world, "succeeded", shown=False)
    assert settle(KEY) == "again"
    becomes(world, "succeeded", shown=True)
    an_hour_later()
    assert (settle(KEY), next_day(), world.fresh(run).last_seq) == ("still_there", 3.0, run.last_seq)


def test_second_refund_beside_us_is_told_to_staff(world: World) -> None:
    run = refunded(world)
    world.may_over_refund = True
    beside = {"refund_id": "rf_beside", "payment_id": "pay_9001", "order_id": "8472", "state": "succeeded"}
    world.seed(refunds=[{**beside, "amount": inr("2000.00")}])
    days_later(1)
    assert settle(KEY) == "doubted"
    [notice] = [e for e in world.events(run, "notice") if e.get("error") == "refund_doubted"]
    assert (notice["why"], notice["other_refunds"]) == ("over_refunded", ["rf_beside"])
    assert (write().state, world.fresh(run).outcome, len(world.posts())) == ("confirmed", "refunded", 1)
