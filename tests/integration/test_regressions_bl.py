"""Regression cases BL: budgets, and runs that are called off. Named by their ids in the list of cases."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from django.db import connection

from agentsite.refusals import Refusal
from approvals.models import Approval
from runs import orchestrator
from runs.contracts import LLMTurnResult, ModelCall
from runs.errors import ModelError, ModelRefused, ModelUnavailable
from runs.models import Event, Run, Write
from tests import edge
from tests.between import LONGEST, due_in_s, make_due
from tests.breakers import time_goes_by
from tests.loopback import Answer, Loopback, Wire, ok
from tests.system.business import captures, order
from tests.world import KEY, World, final, reads, s0, worker_dies
from tools import breaker

NAMED_S = 70
"""Seven in the list of cases; longer here, so that a slow machine does not wait it out by itself."""
LATER: Answer = ok({"error": "slow-down"}, 429, more=(("Retry-After", str(NAMED_S)),))


def approved(world: World) -> Run:
    run = world.start()
    world.approve(run)
    return run


def rests_for_the_named_time(world: World, run: Run) -> None:
    """It waits for as long as it was told to, as a row: no lease, no worker."""
    row = world.fresh(run)
    assert (row.status, row.waiting_for, row.lease_token) == ("waiting_dependency", "dependency", None)
    assert world.events(run, "notice")[-1]["wait_s"] == NAMED_S
    assert 0 < due_in_s(run) <= NAMED_S * LONGEST


def the_time_goes_by(world: World, run: Run) -> Run:
    time_goes_by(NAMED_S)
    make_due(run)
    return world.resume(run)


# --- B79: told to come later, business system -----------------------------------------------------------------------


def test_b79_each_read_that_is_told_to_come_later_goes_out_once_a_wait(world: World) -> None:
    with Loopback() as busy:
        busy.on("/", LATER)
        world.settings(COMMERCE_URL=busy.url)
        run = world.start(script=[reads("get_order"), final()])
        for waits in range(1, 4):
            rests_for_the_named_time(world, run)
            assert (world.step(run), len(busy.calls)) == (None, waits)
            make_due(run)  # whoever comes early is kept back by the breaker, which holds the time too
            world.resume(run)
            assert len(busy.calls) == waits
            run = the_time_goes_by(world, run)
        world.settings(DEPENDENCY_FOR_S="0.001")
        run = the_time_goes_by(world, run)
    assert (run.status, run.reason, run.outcome) == ("escalated", "dependency_unavailable", "handed_to_staff")
    asked = [e["error"] for e in world.events(run, "tool.error")].count("upstream_unavailable")
    assert (asked, len(busy.calls), run.model_calls) == (5, 5, 1)
    assert "No refund has been issued for this request." in world.said(run)


def test_b79_a_wrong_read_key_is_one_request_and_a_person(world: World) -> None:
    with Loopback() as shut:
        shut.on("/", ok({"error": "unauthorised"}, 401))
        world.settings(COMMERCE_URL=shut.url)
        run = world.start(script=[reads("get_order"), final()])
    assert (run.status, run.reason, shut.targets()) == ("escalated", "dependency_unavailable", ["/v1/orders/8472"])
    assert [e["error"] for e in world.errors(run)] == ["access_refused"]


def _by_method(get: Answer, post: Answer) -> Answer:
    def answer(wire: Wire) -> None:
        (post if wire.command == "POST" else get)(wire)

    return answer


def _shop(server: Loopback, post: Answer) -> None:
    """W0, whose POST is answered like this and makes nothing."""
    server.on("/v1/orders/8472", ok(order("8472")))
    server.on("/v1/payments", ok({"payments": captures("8472", "pay_9001", "pay_9002")}))
    server.on("/v1/refunds", _by_method(ok({"refunds": []}), post))


def _posts(server: Loopback) -> int:
    return len([call for call in server.calls if call.method == "POST"])


def test_b79_a_refund_that_is_told_to_come_later_is_posted_once_a_wait_and_twice_at_most(world: World) -> None:
    with Loopback() as busy:
        _shop(busy, LATER)
        world.settings(COMMERCE_URL=busy.url, BREAKER_COOL_S="0.01", BREAKER_MAX_COOL_S="0.02")
        run = world.resume(approved(world))
        for _ in range(3):
            make_due(run)
            run = world.resume(run)
            assert (run.status, world.writes(run), _posts(busy)) == ("executing", [(KEY, "unknown")], 1)
            assert Run.objects.get(pk=run.pk).lease_token is None
        [held] = breaker.standing()
        assert 0 < held.left_s <= NAMED_S * LONGEST
        run = the_time_goes_by(world, run)
        assert (_posts(busy), run.write_attempts) == (2, 2)
        for _ in range(6):
            if run.status == "executing":
                world.later(run, 60)
                run = the_time_goes_by(world, run)
    assert (run.status, run.reason, world.writes(run)) == ("escalated", "needs_a_person", [(KEY, "not_sent")])
    sent = Event.objects.filter(run=run, type="write.sent").count()
    assert (_posts(busy), sent, run.write_attempts) == (2, 2, run.contract["limits"]["max_write_attempts"])
    assert {call.headers["idempotency-key"] for call in busy.calls if call.method == "POST"} == {KEY}


def test_b79_a_wrong_write_key_is_one_post_and_a_person(world: World) -> None:
    with Loopback() as shut:
        _shop(shut, ok({"error": "unauthorised"}, 401))
        world.settings(COMMERCE_URL=shut.url)
        run = world.resume(approved(world))
    assert (run.status, run.reason, run.outcome) == ("escalated", "needs_a_person", "handed_to_staff")
    assert (_posts(shut), world.writes(run)) == (1, [(KEY, "refused")])
    assert "A refund of 2,000.00 INR to payment pay_9002 on order 8472 could not be made." in world.said(run)


# --- B79: told to come later, model -----------------------------------------------------------------------------------


def _model(world: World, raises: ModelError) -> list[str]:
    """From now on whatever model is asked raises this; the routes it was asked by, in order."""
    asked: list[str] = []

    def complete(call: ModelCall) -> LLMTurnResult:
        asked.append(call.route)
        raise raises

    ports = replace(orchestrator.LIVE, complete=complete)
    world.patch.setattr(orchestrator, "step", partial(orchestrator.step, ports=ports))
    return asked


def test_b79_a_model_that_is_told_to_come_later_is_asked_once_a_wait(world: World) -> None:
    asked = _model(world, ModelUnavailable("rate_limited", retry_after_s=NAMED_S))
    run = world.start()
    for waits in range(1, 4):
        rests_for_the_named_time(world, run)
        assert (world.step(run), len(asked)) == (None, waits)
        run = the_time_goes_by(world, run)
    world.settings(DEPENDENCY_FOR_S="0.001")
    run = the_time_goes_by(world, run)
    assert (run.status, run.reason, run.active_ms) == ("escalated", "dependency_unavailable", 0)
    recorded = Event.objects.filter(run=run, type="model.called").count()
    assert (len(asked), recorded, len(set(asked))) == (5, 5, 1)
    assert (world.posts(), Approval.objects.count()) == ([], 0)


def test_b79_a_wrong_model_key_is_one_request_and_a_person(world: World) -> None:
    asked = _model(world, ModelRefused("access_refused"))
    run = world.start()
    assert (run.status, run.reason, len(asked)) == ("escalated", "dependency_unavailable", 1)
    assert world.resume(run).status == "escalated" and len(asked) == 1


# --- B81: called off -------------------------------------------------------------------------------------------------

FOLLOWED = "You asked us to cancel; a refund that is under way is followed to its end first."


def _cancel(world: World, run: Run) -> Any:
    """Through the client's door."""
    client = edge.client(edge.token(world.tenant, name=f"c{Event.objects.count()}"))
    return edge.post(client, f"{edge.RUNS}/{run.pk}/cancel", {"reason": "changed my mind"})


def _beside(call: Callable[[], None]) -> threading.Thread:
    def one() -> None:
        try:
            call()
        finally:
            connection.close()

    thread = threading.Thread(target=one)
    thread.start()
    return thread


@pytest.mark.parametrize("mode", ["delay:1", "delay_after:1"])
def test_b81_a_cancel_while_the_refund_is_under_way_is_answered_with_what_came_of_it(world: World, mode: str) -> None:
    world.settings(WRITE_TIMEOUT_S="15")
    run = approved(world)
    world.sandbox.fault("POST /v1/refunds", mode)
    answers: list[Any] = []

    def cancel() -> None:
        assert world.sandbox.holds("POST", "/v1/refunds")
        answers.append(_cancel(world, run))

    beside = _beside(cancel)
    run = world.resume(run)
    beside.join(30)
    [answer] = answers
    assert (answer.status_code, answer.json()["status"], answer.json()["outcome"]) == (202, "executing", None)
    assert FOLLOWED in answer.json()["customer_message"]
    assert (run.status, run.outcome, world.writes(run)) == ("completed", "refunded", [(KEY, "confirmed")])
    assert "has been made and confirmed" in str(run.reply) and "cancelled" not in dict(world.transitions(run)).values()
    order_of = [e.type for e in run.events.order_by("seq") if e.type in ("cancel.requested", "write.result")]
    assert (order_of, len(world.posts())) == (["cancel.requested", "write.result"], 1)


def test_b81_a_cancel_after_a_lost_answer_waits_until_the_refund_is_found(world: World) -> None:
    run = approved(world)
    worker_dies(run, after="post")
    world.sandbox.fault("GET /v1/refunds", "status:503", times=3)
    assert _cancel(world, run).status_code == 202
    run = world.resume(run, until="completed")
    assert (run.outcome, world.writes(run), len(world.posts())) == ("refunded", [(KEY, "confirmed")], 1)


def test_b81_a_cancel_of_a_refund_that_never_arrived_ends_it_only_when_that_is_proven(world: World) -> None:
    run = approved(world)
    worker_dies(run, after="sent")
    assert _cancel(world, run).status_code == 202
    run = world.resume(run)
    assert (run.status, run.outcome, world.writes(run)) == ("executing", None, [(KEY, "unknown")])
    assert FOLLOWED in world.said(run)
    world.later(run, 60)
    run = world.resume(run, until="cancelled")
    assert (run.outcome, world.writes(run)) == ("cancelled", [(KEY, "not_sent")])
    assert (world.sandbox.posts(), world.refunds()) == ([], [])


def test_b81_a_cancel_of_a_refund_nobody_can_tell_about_is_no_cancelled_run(world: World) -> None:
    world.settings(RECONCILE_FOR_S="0.05")
    run = approved(world)
    worker_dies(run, after="post")
    world.sandbox.fault("GET /v1/refunds", "status:503", times=0)
    assert _cancel(world, run).status_code == 202
    run = world.resume(run, until="escalated")
    assert (run.reason, world.writes(run)) == ("outcome_unknown", [(KEY, "unknown")])
    assert "cancelled" not in world.said(run) and "No refund has been issued" not in world.said(run)


def test_b81_a_cancel_while_a_person_is_asked_closes_the_question(world: World) -> None:
    run = world.start()
    assert _cancel(world, run).status_code == 202
    run = world.resume(run)
    assert (run.status, run.outcome, world.approval(run).status) == ("cancelled", "cancelled", "void")
    with pytest.raises(Refusal) as late:
        world.approve(run)
    assert (late.value.status, late.value.slug) == (409, "approval-void")
    assert (world.resume(run).status, world.posts(), Write.objects.count()) == ("cancelled", [], 0)


def test_b81_a_click_before_the_cancel_is_read_releases_nothing(world: World) -> None:
    run = world.start()
    assert _cancel(world, run).status_code == 202
    world.approve(run)
    run = world.resume(run)
    assert (run.status, run.outcome, world.approval(run).status) == ("cancelled", "cancelled", "void")
    assert (world.posts(), Write.objects.count()) == ([], 0)


@pytest.mark.parametrize("ends", ["completed", "escalated", "cancelled"])
def test_b81_a_cancel_after_the_end_changes_nothing_and_is_no_error(world: World, ends: str) -> None:
    run = world.start(script=s0() if ends == "completed" else [reads("get_order"), *s0()])
    if ends == "completed":
        world.approve(run)
    else:
        world.leave(run, "cancel" if ends == "cancelled" else "escalate")
    run = world.resume(run, until=ends)
    before = Run.objects.values().get(pk=run.pk)
    for _ in range(2):
        answer = _cancel(world, run)
        assert (answer.status_code, answer.json()["status"], answer.json()["outcome"]) == (202, ends, run.outcome)
    assert Run.objects.values().get(pk=run.pk) == before
    assert len(world.posts()) == (1 if ends == "completed" else 0)
