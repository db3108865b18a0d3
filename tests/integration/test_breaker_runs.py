"""What a run does while the business system's breaker is open: it parks, tells what is not known, and comes back."""

from __future__ import annotations

import time

import pytest

from agentsite import clock, dbtime
from tests.between import LONGEST, due_in_s, make_due
from tests.breakers import time_goes_by
from tests.loopback import Loopback, ok
from tests.world import KEY, World, final, gather, refund
from tools import breaker
from tools.models import Breaker

QUIET_S = 0.5


def account(world: World) -> str:
    return breaker.account_of(world.tenant, world.sandbox.url)


def state(world: World) -> str:
    return breaker.state(Breaker.objects.get(account=account(world)), dbtime.now())


def whole_outage(world: World) -> None:
    for match in ("GET /v1/orders", "GET /v1/payments", "GET /v1/refunds", "POST /v1/refunds"):
        world.sandbox.fault(match, "status:503", times=0)


def over(world: World) -> None:
    world.sandbox.control("/_faults", clear=True)


def gets(world: World) -> int:
    """How many reads arrived, counted when no more come: one that its caller gave up on is logged late in a crowd."""
    seen, quiet_since = -1, clock.monotonic()
    while clock.monotonic() - quiet_since < QUIET_S:
        now = len(world.sandbox.calls("method=GET&path=/v1"))
        if now != seen:
            seen, quiet_since = now, clock.monotonic()
        time.sleep(0.05)
    return seen


def test_req_8472_parks_while_the_business_system_is_down_and_goes_on_by_itself(world: World) -> None:
    """M24, M59: the due time is the breaker's, the customer is told what is not known, nothing is restarted."""
    world.settings(BREAKER_FAILURES="1", BREAKER_COOL_S="60")
    whole_outage(world)
    run = world.start()
    assert (run.status, run.waiting_for, run.resume_status) == ("waiting_dependency", "dependency", "gathering")
    assert state(world) == "open"
    assert world.said(run) == (
        "Our order and payment records are not available at the moment, so the payments on your order could not be "
        "confirmed. We will go on when they can be read again. We could not confirm the order itself. We could not "
        "confirm the payments on record. No refund has been issued yet for this request."
    )
    # It came back once by its own back-off; then the breaker's time held, and its calls were kept back.
    assert [e["error"] for e in world.events(run, "tool.error")] == ["upstream_unavailable"] * 2 + ["breaker_open"] * 2
    assert 30 < due_in_s(run) <= 60 * LONGEST
    asked = gets(world)
    make_due(run)
    run = world.resume(run)
    assert run.status == "waiting_dependency" and gets(world) == asked
    over(world)
    time_goes_by(60)
    make_due(run)
    run = world.resume(run, until="awaiting_approval")
    world.approve(run)
    run = world.resume(run, until="completed")
    assert (run.outcome, len(world.refunds()), len(world.posts())) == ("refunded", 1, 1)


def test_retry_after_parks_a_run_for_the_time_that_was_named(world: World) -> None:
    with Loopback() as busy:
        busy.on("/", ok({}, 429, more=(("Retry-After", "120"),)))
        world.settings(COMMERCE_URL=busy.url)
        run = world.start()
        assert run.status == "waiting_dependency" and 100 < due_in_s(run) <= 120 * LONGEST
        assert len(busy.calls) == len({c.target for c in busy.calls}), "each read went out once"


def test_release_waits_for_an_open_breaker_and_the_approval_is_kept(world: World) -> None:
    world.settings(BREAKER_FAILURES="1", BREAKER_COOL_S="1")
    run = world.start()
    world.approve(run)
    whole_outage(world)
    run = world.resume(run, patience_s=0)
    assert (run.status, run.resume_status, world.approval(run).status) == ("waiting_dependency", "approved", "approved")
    over(world)
    assert world.resume(run, until="completed").outcome == "refunded"
    assert len(world.posts()) == 1


@pytest.mark.parametrize("mode", ["drop_after", "status:503"])
def test_open_breaker_is_no_answer_about_a_write_and_lets_none_go_out(world: World, mode: str) -> None:
    """M58: a write whose look-up is kept back stays unknown; it is neither called absent nor sent once more."""
    world.settings(BREAKER_FAILURES="1", BREAKER_COOL_S="60")
    run = world.start()
    world.approve(run)
    world.sandbox.fault("POST /v1/refunds", mode)
    run = world.resume(run, patience_s=0)
    if mode == "drop_after":
        breaker.failed(breaker.Permit(dependency=breaker.BUSINESS_SYSTEM, account=account(world)))
    assert state(world) == "open"
    asked = gets(world)
    make_due(run)
    run = world.resume(run, patience_s=0)
    assert (run.status, world.writes(run), len(world.posts())) == ("executing", [(KEY, "unknown")], 1)
    assert gets(world) == asked
    assert world.events(run, "write.unknown")[-1]["error"] == "breaker_open"
    time_goes_by(60)
    make_due(run)
    run = world.resume(run, until="completed")
    assert (run.outcome, len(world.refunds())) == ("refunded", 1)


def test_final_of_a_run_needs_no_business_system(world: World) -> None:
    """While the breaker is open a run that reads nothing more ends as ever."""
    world.settings(BREAKER_FAILURES="1")
    run = world.start(script=[*gather(), refund(), final(), final()])
    breaker.failed(breaker.Permit(dependency=breaker.BUSINESS_SYSTEM, account=account(world)))
    world.reject(run)
    assert world.resume(run).status == "completed"
    assert world.posts() == []
