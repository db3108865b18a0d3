"""Writes that outlive their run, or that another system cannot judge: settled by what was seen, never by a guess."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from agentsite import dbtime
from runs import orchestrator, store
from runs.contracts import Outcome
from runs.errors import IntentLost
from runs.models import Attempt, Run, Write
from runs.orchestrator import settle
from runs.store import settled
from tests.between import ago, make_due, put_back
from tests.loopback import Loopback, ok
from tests.world import KEY, World, final, gather, inr, refund, s0, worker_dies

HOUR_S, DAY_S = 3600.0, 86_400.0


def lost(world: World, mode: str = "drop_after", **start: Any) -> Run:
    """A run that ended because nobody could tell what became of its refund."""
    run = world.start(**start)
    if run.status == "awaiting_approval":
        world.approve(run)
    world.sandbox.fault("POST /v1/refunds", mode)
    worker_dies(run, after="post")
    world.sandbox.fault("GET /v1/refunds", "status:503", times=0)
    put_back(Write.objects.filter(run=run, state="sent"), intent_at=1801)
    run = world.resume(run, until="escalated")
    assert run.reason == "outcome_unknown"
    world.sandbox.control("/_faults", clear=True)
    return run


def write() -> Write:
    return Write.objects.get(key=KEY)


def outlived(run: Run, seconds: float, looks: int = 0) -> None:
    """So many seconds have gone by since the run ended, its write's looks so many."""
    put_back(Run.objects.filter(pk=run.pk), completed_at=seconds)
    put_back(Write.objects.filter(run=run), look_at=0)
    Write.objects.filter(run=run).update(looks=looks)


# --- when it is looked at --------------------------------------------------------------------------------------


def test_first_late_look_is_an_hour_after_the_end(world: World) -> None:
    run = lost(world)
    assert run.completed_at is not None and run.outcome == "handed_to_staff"
    look_at = write().look_at
    assert look_at is not None
    assert abs((look_at - run.completed_at).total_seconds() - HOUR_S) < 2
    assert (write().state, store.due_writes()) == ("unknown", [])


@pytest.mark.parametrize(
    ("since_end_s", "next_s"),
    [
        (HOUR_S + 5, 6 * HOUR_S), (6 * HOUR_S + 5, DAY_S), (DAY_S + 5, 2 * DAY_S), (10 * DAY_S + 5, 11 * DAY_S),
        (29 * DAY_S + 5, 30 * DAY_S), (30 * DAY_S + 5, None),
    ],
)  # fmt: skip
def test_late_looks_step_by_time_since_the_end_whatever_was_looked_before(
    world: World, since_end_s: float, next_s: float | None
) -> None:
    run = lost(world)
    outlived(run, since_end_s, looks=17)
    world.sandbox.fault("GET /v1/payments", "status:503", times=0)
    assert store.due_writes() == [KEY]
    assert store.due_writes() == []  # put off a minute, so that one hint goes out
    assert settle(KEY) == "put_off"
    ended, look_at = world.fresh(run).completed_at, write().look_at
    assert ended is not None
    assert look_at == (None if next_s is None else ended + timedelta(seconds=next_s))
    assert (write().state, write().looks) == ("unknown", 18)


def test_late_look_is_only_for_writes_of_ended_runs(world: World) -> None:
    run = world.start()
    world.approve(run)
    worker_dies(run, after="post")
    put_back(Write.objects.all(), look_at=5)
    assert (store.due_writes(), settled.open_write(KEY), settle(KEY)) == ([], None, "closed")
    assert world.resume(run).outcome == "refunded"


# --- what it finds ---------------------------------------------------------------------------------------------


def test_late_refund_as_asked_is_confirmed_and_corrects_the_outcome(world: World) -> None:
    run = lost(world)
    [made] = world.refunds()
    assert settle(KEY) == "settled"
    run = world.fresh(run)
    assert (run.status, run.outcome, write().state, write().refund_id) == (
        "escalated", "refunded", "confirmed", made["refund_id"],
    )  # fmt: skip
    assert world.events(run, "run.corrected") == [{"from": "handed_to_staff", "to": "refunded"}]
    [found] = world.events(run, "write.reconciled")
    assert (found["late"], found["passed"], found["refund_id"]) == (True, True, made["refund_id"])
    assert settle(KEY) == "closed"


def test_late_refund_of_another_amount_is_never_called_confirmed(world: World) -> None:
    run = lost(world, 'amount:{"amount": "1500.00", "currency": "INR"}')
    assert [r["amount"] for r in world.refunds()] == [inr("1500.00")]
    assert settle(KEY) == "put_off"
    run = world.fresh(run)
    assert (run.outcome, write().state, world.events(run, "run.corrected")) == ("handed_to_staff", "unknown", [])
    assert "has been made and confirmed" not in world.said(run)
    second = world.start("req-2", script=s0(refund("pay_9001")))  # it counts with the larger of both amounts
    assert (second.status, world.rules(second)) == ("completed", ["nothing_refundable"])


@pytest.mark.parametrize("word", ["pending", "requires_action", "in_review"])
def test_late_refund_in_a_state_that_is_no_end_is_put_off(world: World, word: str) -> None:
    run = lost(world, f"state:{word}")
    assert settle(KEY) == "put_off"
    assert (world.fresh(run).outcome, write().state) == ("handed_to_staff", "unknown")
    [made] = world.refunds()
    world.sandbox.control(f"/_refunds/{made['refund_id']}", state="succeeded")
    assert settle(KEY) == "settled"
    assert (world.fresh(run).outcome, write().state) == ("refunded", "confirmed")


def test_late_failure_alone_is_a_failed_refund(world: World) -> None:
    run = lost(world, "state:failed")
    assert (settle(KEY), world.fresh(run).outcome, write().state) == ("settled", "refund_failed", "failed")


@pytest.mark.parametrize(("state", "outcome"), [("failed", "partly_refunded"), ("succeeded", "refunded")])
def test_late_end_of_a_second_refund_keeps_the_first_one_told(world: World, state: str, outcome: str) -> None:
    world.seed(amount_due=inr("0.00"))
    run = lost(
        world, f"state:{state}",
        script=[*gather(), refund("pay_9001", "999.00"), refund("pay_9002", "999.00"), final()],
    )  # fmt: skip
    assert run.outcome == "partly_refunded"
    assert settle(KEY) == "settled"
    run = world.fresh(run)
    ended = "failed" if state == "failed" else "confirmed"
    assert (run.outcome, dict(world.writes(run))) == (outcome, {KEY[:-1] + "1": "confirmed", KEY: ended})


def test_late_absence_needs_two_looks_after_everything_is_quiet(world: World) -> None:
    world.settings(COMMERCE_SETTLE_S="10")
    run = lost(world, "drop_before")
    assert settle(KEY) == "put_off"  # the attempt's own time is not over
    assert write().absent_at is None
    put_back(Attempt.objects.all(), sent_at=40, gives_up_at=30)
    Write.objects.update(absent_at=ago(25))  # a look that came before the quiet time
    assert settle(KEY) == "put_off"
    absent_at = write().absent_at
    assert absent_at is not None and absent_at > ago(15)
    assert (settle(KEY), write().absent_at) == ("put_off", absent_at)  # half a settling time has not gone by
    put_back(Write.objects.all(), absent_at=6)
    assert settle(KEY) == "settled"
    run = world.fresh(run)
    assert (write().state, run.outcome, len(world.sandbox.posts())) == ("not_sent", "handed_to_staff", 1)
    second = world.start("req-2")  # its order is free again
    world.approve(second, by="lead_18")
    assert (world.resume(second).outcome, len(world.refunds())) == ("refunded", 1)


def test_late_absence_of_a_refund_that_was_answered_proves_nothing(world: World) -> None:
    """The provider named its id once: its order stays locked until a person looks."""
    world.settings(VERIFY_FOR_S="0.05")
    world.sandbox.fault("POST /v1/refunds", "state:pending")
    world.sandbox.fault("POST /v1/refunds", "hide:forever")
    run = world.start()
    world.approve(run)
    run = world.resume(run, until="escalated")
    assert (run.reason, write().state) == ("verification_inconclusive", "pending")
    put_back(Attempt.objects.all(), sent_at=100, gives_up_at=90)
    put_back(Write.objects.all(), absent_at=10)
    assert [settle(KEY), settle(KEY), write().state] == ["put_off", "put_off", "pending"]


def test_absence_is_looked_at_anew_where_the_first_look_came_too_early(world: World) -> None:
    """Within the run as well: a look before the quiet time is no first look."""
    world.settings(COMMERCE_HONOURS_KEYS="0")
    world.profile(limits={"max_write_attempts": 1})
    run = world.start()
    world.approve(run)
    world.sandbox.fault("POST /v1/refunds", "drop_before")
    worker_dies(run, after="post")
    put_back(Attempt.objects.all(), sent_at=10, gives_up_at=1)
    Write.objects.update(state="unknown", unknown_since=ago(5), absent_at=ago(5))
    world.step(run)
    absent_at = write().absent_at
    assert (world.fresh(run).status, write().state) == ("executing", "unknown")
    assert absent_at is not None and absent_at > ago(2)
    run = world.resume(run, until="escalated")
    assert (world.writes(run), run.reason, len(world.sandbox.posts())) == ([(KEY, "not_sent")], "needs_a_person", 1)


# --- never sent ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("down", ["status:503", "garbage", "drop_before"])
def test_write_that_was_never_sent_is_no_unknown_outcome_however_long_the_list_is_away(world: World, down: str) -> None:
    run = world.start()
    world.approve(run)
    worker_dies(run, after="intent")
    world.sandbox.fault("GET /v1/refunds", down, times=0)
    run = world.resume(run, patience_s=0)
    assert (run.status, world.writes(run)) == ("executing", [(KEY, "intent")])
    put_back(Write.objects.all(), intent_at=1801)
    make_due(run)
    run = world.resume(run)
    assert (run.status, run.outcome, run.reason) == ("escalated", "handed_to_staff", "needs_a_person")
    assert (world.writes(run), run.write_attempts, world.posts()) == ([(KEY, "not_sent")], 0, [])
    assert "No refund has been issued" in world.said(run)


def found_without_an_attempt(world: World, *after: Any) -> Run:
    """A database restored to before the mark: the refund exists, the row says that nothing was ever sent."""
    world.seed(amount_due=inr("0.00"))
    run = world.start(script=[*gather(), refund(amount="1200.00"), *after, final()])
    world.approve(run)
    worker_dies(run, after="intent")
    headers = {"Authorization": "Bearer sandbox-write", "Idempotency-Key": KEY}
    made = world.sandbox.http.post("/v1/refunds", json=json.loads(write().body), headers=headers)
    assert made.status_code == 201
    return world.resume(run)


def test_write_found_without_any_attempt_closes_its_payment_for_the_run(world: World) -> None:
    run = found_without_an_attempt(world, refund(amount="700.00"))
    assert (run.status, run.outcome, world.rules(run)) == ("completed", "refunded", ["write_already_made"])
    assert (world.writes(run), Attempt.objects.get().sent_at) == ([(KEY, "confirmed")], None)
    assert [r["amount"] for r in world.refunds()] == [inr("1200.00")]


@pytest.mark.parametrize("state", ["confirmed", "pending", "unknown", "refused", "failed"])
def test_intent_never_overwrites_a_write_that_came_to_something(world: World, state: str) -> None:
    run = world.start()
    world.approve(run)
    worker_dies(run, after="approved")
    claimed = store.claim(str(run.pk))
    assert claimed is not None
    seen = store.load(str(run.pk), claimed.token)
    handled = orchestrator.step(seen)
    assert isinstance(handled, Outcome) and handled.intent is not None
    earlier = {
        "run_id": run.pk, "tenant_id": run.tenant_id, "order_id": "8400", "payment_id": "pay_9002", "args": {},
        "tool": "issue_refund", "action_hash": "h", "decision_id": "d", "body": "b", "origin": "o", "call_id": "c",
        "amount_minor": 1, "currency": "INR", "state": state, "customer_id": "cust_5521", "intent_at": dbtime.now(),
    }  # fmt: skip
    Write.objects.create(key=KEY, **earlier)
    with pytest.raises(IntentLost) as nothing:
        store.checkpoint(seen, handled, keep=True)
    assert (nothing.value.which, write().state, write().body) == ("key_used", state, "b")
    assert (world.approval(run).status, Attempt.objects.count()) == ("approved", 0)
    Write.objects.all().delete()


# --- another business system -----------------------------------------------------------------------------------


def test_write_in_doubt_is_neither_sent_to_nor_judged_by_another_system(world: World) -> None:
    run = world.start()
    world.approve(run)
    worker_dies(run, after="post")
    with Loopback() as other:
        other.on("/v1/refunds", ok({"refunds": []}))
        world.settings(COMMERCE_URL=other.url)
        run = world.resume(run, patience_s=0)
        assert (run.status, world.writes(run)) == ("executing", [(KEY, "unknown")])
        assert {e["error"] for e in world.events(run, "write.unknown")} == {"other_backend"}
        assert other.calls == []
    world.settings(COMMERCE_URL=world.sandbox.url)
    run = world.resume(run, until="completed")
    assert (run.outcome, len(world.refunds()), len(world.sandbox.posts())) == ("refunded", 1, 1)


def test_write_that_was_never_sent_is_not_sent_to_another_system(world: World) -> None:
    run = world.start()
    world.approve(run)
    worker_dies(run, after="intent")
    with Loopback() as other:
        other.on("/v1/refunds", ok({"refunds": []}))
        world.settings(COMMERCE_URL=other.url)
        run = world.resume(run, patience_s=0)
        put_back(Write.objects.all(), intent_at=1801)
        make_due(run)
        run = world.resume(run)
        assert (world.writes(run), run.write_attempts, other.calls) == ([(KEY, "not_sent")], 0, [])
    world.settings(COMMERCE_URL=world.sandbox.url)
    assert (run.reason, world.sandbox.posts()) == ("needs_a_person", [])


def test_late_look_is_not_taken_at_another_system(world: World) -> None:
    run = lost(world)
    with Loopback() as other:
        world.settings(COMMERCE_URL=other.url)
        assert (settle(KEY), write().state, other.calls) == ("put_off", "unknown", [])
    world.settings(COMMERCE_URL=world.sandbox.url)
    assert (settle(KEY), world.fresh(run).outcome) == ("settled", "refunded")


def test_moved_address_in_the_profile_counts_as_another_system(world: World) -> None:
    """The backend is frozen with the write, however the tenant's business system is named."""
    run = lost(world)
    named = {"read_token_env": "T_READ", "write_token_env": "T_WRITE", "honours_keys": True, "settle_s": 0.2}
    world.profile(commerce={"url": world.sandbox.url + "/elsewhere", **named})
    assert (settle(KEY), write().state) == ("put_off", "unknown")
    assert world.fresh(run).outcome == "handed_to_staff"
