"""Regression cases EO, keys and lists: money moves exactly once. Named by their ids in the list of cases.

B27 to B31 stand in `test_regressions_eo_workers.py`, those whose processes die in `tests/crash`, B19 in `tests/races`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentsite.canonical import canonical
from runs import orchestrator
from runs.models import Event, Run, Write
from tests.between import make_due, put_back
from tests.operating import acts, operator
from tests.walking import walk_to
from tests.world import KEY, World, final, gather, inr, refund, s0, worker_dies

HOUR_S = 3600.0


def approved(world: World, **start: Any) -> Run:
    run = world.start(**start)
    world.approve(run)
    return run


def hours_go_by(world: World, run: Run, hours: float) -> None:
    """Everything this run and its write were ever stamped with lies so much further back; the workers were down."""
    world.later(run, hours * HOUR_S)
    put_back(Write.objects.filter(run=run), intent_at=hours * HOUR_S)


def once(world: World) -> tuple[int, set[str]]:
    """P.n, and P.keys."""
    return len(world.refunds()), world.sandbox.keys()


# --- B21: pending for a day is still pending ----------------------------------------------------------------------


def _pending_and_lost(world: World) -> Run:
    """P made the refund as pending, its answer was lost with the worker, 25 hours went by."""
    world.settings(PENDING_POLL_S="60")
    world.sandbox.fault("POST /v1/refunds", "state:pending")
    run = approved(world)
    worker_dies(run, after="post")
    hours_go_by(world, run, 25)
    return run


def test_b21_a_refund_pending_for_a_day_is_asked_about_and_never_failed_by_its_age(world: World) -> None:
    run = _pending_and_lost(world)
    assert acts(operator(), run, "hurry", reason="fault_fixed", note="") == 302
    run = world.resume(run)
    [write], [made] = Write.objects.all(), world.refunds()
    assert (run.status, run.waiting_for) == ("executed", "refund")
    assert (write.state, write.refund_id, made["state"]) == ("pending", made["refund_id"], "pending")
    assert once(world) == (1, {KEY})
    for _ in range(3):  # a person presses it again and again, and the timers go on
        hours_go_by(world, run, 25)
        assert acts(operator(), run, "hurry", reason="fault_fixed", note="") == 302
        run = world.resume(run)
        assert (run.status, world.writes(run), once(world)) == ("executed", [(KEY, "pending")], (1, {KEY}))
    world.sandbox.control(f"/_refunds/{made['refund_id']}", state="succeeded")
    make_due(run)
    assert (world.resume(run, until="completed").outcome, once(world)) == ("refunded", (1, {KEY}))


def test_b21_a_list_that_is_away_after_a_day_goes_to_a_person_and_the_write_stays_unknown(world: World) -> None:
    run = _pending_and_lost(world)
    world.sandbox.fault("GET /v1/refunds", "status:503", times=0)
    run = world.resume(run)
    assert (run.status, run.reason, world.writes(run)) == ("escalated", "outcome_unknown", [(KEY, "unknown")])
    assert "No refund has been issued" not in world.said(run)
    world.sandbox.control("/_faults", clear=True)
    [made] = world.refunds()
    world.sandbox.control(f"/_refunds/{made['refund_id']}", state="succeeded")
    assert orchestrator.settle(KEY) == "settled"
    assert (world.fresh(run).outcome, world.writes(run), once(world)) == ("refunded", [(KEY, "confirmed")], (1, {KEY}))


# --- B22: the key is a stored string ------------------------------------------------------------------------------


def _stored_key(run: Run) -> str:
    """The key as the intent's own event holds it."""
    [intent] = Event.objects.filter(run=run, type="write.intent")
    return str(intent.meta["key"])


def test_b22_a_look_up_after_an_unseen_success_uses_the_stored_key(world: World) -> None:
    run = approved(world)
    worker_dies(run, after="post")
    [made] = world.refunds()
    assert (made["amount"], made["idempotency_key"]) == (inr("2000.00"), _stored_key(run))
    run = world.resume(run)
    assert (run.status, run.outcome, once(world)) == ("completed", "refunded", (1, {_stored_key(run)}))
    assert len(world.sandbox.posts()) == 1


def test_b22_a_post_that_goes_again_has_the_stored_key_and_body_byte_for_byte(world: World) -> None:
    """The first POST reached nobody, and meanwhile the facts a key might be built from look otherwise."""
    world.seed(amount_due=inr("0.00"))
    run = approved(world, script=s0(refund(amount="1500.00")))
    world.sandbox.fault("POST /v1/refunds", "status:503")
    worker_dies(run, after="post")
    [write] = Write.objects.all()
    before = (write.key, write.body)
    world.sandbox.control("/_config", supports_expected_refunded=False)
    world.sandbox.control("/_refunds", payment_id="pay_9001", amount=inr("100.00"))
    run = world.resume(run, until="completed")
    posts = world.sandbox.posts()
    assert [(p["idempotency_key"], canonical(p["body"]).decode()) for p in posts] == [before, before]
    assert (before[0], world.sandbox.keys()) == (_stored_key(run), {KEY})
    assert [r["amount"] for r in world.refunds("pay_9002")] == [inr("1500.00")]


# --- B24: a second amount on one payment --------------------------------------------------------------------------


def _replays_whatever_is_asked(world: World) -> None:
    """(a) a provider that answers with the first refund of the key, not looking at the parameters."""
    [first] = world.refunds()
    world.sandbox.fault("POST /v1/refunds", f"json:{json.dumps(first)}", times=0)


def _refuses_other_parameters(world: World) -> None:
    """(b) a provider that answers 409."""
    world.sandbox.fault("POST /v1/refunds", "status:409", times=0)


VARIANTS = {"a": _replays_whatever_is_asked, "b": _refuses_other_parameters}


@pytest.mark.parametrize("variant", VARIANTS)
def test_b24_a_second_write_on_a_payment_of_the_run_is_denied_before_any_provider(world: World, variant: str) -> None:
    world.seed(amount_due=inr("0.00"))
    turns = [*gather(), refund(amount="500.00"), refund(amount="700.00"), final()]
    run = world.admit(script=turns)
    run = world.resume(run, until="verified")
    VARIANTS[variant](world)
    run = world.resume(run)
    assert (run.status, run.outcome, world.rules(run)) == ("completed", "refunded", ["write_already_made"])
    assert (world.posts(), once(world)) == ([("pay_9002", "500.00", KEY)], (1, {KEY}))
    assert Write.objects.get().amount_minor == 50_000
    assert "500.00 INR" in str(run.reply) and "700.00" not in str(run.reply)


def test_b24_an_answer_about_500_is_no_refund_of_700(world: World) -> None:
    """(a) where it could happen all the same: the answer to our first POST is another refund."""
    world.seed(amount_due=inr("0.00"))
    other = world.sandbox.control("/_refunds", payment_id="pay_9002", amount=inr("500.00"))
    run = world.admit(script=s0(refund(amount="700.00")))
    world.sandbox.fault("POST /v1/refunds", f"json:{json.dumps(other)}", times=0)
    run = world.resume(run)
    assert (run.status, run.reason, run.outcome) == ("escalated", "verification_failed", "handed_to_staff")
    assert (run.verification["expected"]["amount"], run.verification["found"]["amount"]) == (
        inr("700.00"), inr("500.00"),
    )  # fmt: skip
    assert "has been made and confirmed" not in world.said(run)
    assert (world.posts(), len(world.refunds())) == ([("pay_9002", "700.00", KEY)], 1)


def test_b24_a_key_in_conflict_is_unknown_reconciled_and_never_worked_round(world: World) -> None:
    """(b): nothing under the key is listed; the model tries again, and no other key ever leaves us."""
    world.sandbox.fault("POST /v1/refunds", "status:409", times=0)
    run = approved(world, script=[*gather(), refund(), refund(amount="1999.00"), final()])
    run = world.resume(run)
    assert (run.status, world.writes(run)) == ("executing", [(KEY, "unknown")])
    assert {e["error"] for e in world.events(run, "write.unknown")} >= {"key_conflict"}
    world.later(run, 60)
    run = world.resume(run, until="escalated")
    assert (run.reason, run.outcome, world.writes(run)) == ("needs_a_person", "handed_to_staff", [(KEY, "not_sent")])
    assert (world.sandbox.keys(), world.refunds(), run.write_attempts) == ({KEY}, [], 2)
    assert world.rules(run)[-1] == "write_already_made"


def test_b24_a_conflict_with_a_refund_that_exists_under_the_key_is_shown_to_a_person(world: World) -> None:
    """(b) with what made the conflict listed: 500 stand under our key, and 700 were asked for."""
    world.seed(amount_due=inr("0.00"))
    world.settings(RETRY_S="60")
    run = world.admit(script=s0(refund(amount="700.00")))
    walk_to(world, run, "approved")
    other = _made_under_our_key(world)
    run = world.resume(run)
    assert (run.status, world.writes(run)) == ("executing", [(KEY, "unknown")])
    world.sandbox.control(f"/_refunds/{other}", shown=True)
    run = world.resume(run, until="escalated")
    assert run.reason == "verification_failed"
    assert {e["error"] for e in world.events(run, "write.unknown")} == {"key_conflict"}
    assert ([r["refund_id"] for r in world.refunds()], world.sandbox.keys()) == ([other], {KEY})
    assert "has been made and confirmed" not in world.said(run)


def _made_under_our_key(world: World) -> str:
    """Somebody used our key for 500 on this payment, and no list shows it yet; the refund's id."""
    body = {"order_id": "8472", "payment_id": "pay_9002", "amount": inr("500.00"), "reason": "another action"}
    headers = {"Authorization": "Bearer sandbox-write", "Idempotency-Key": KEY}
    world.sandbox.fault("POST /v1/refunds", "hide:forever")
    made = world.sandbox.http.post("/v1/refunds", json=body, headers=headers)
    assert made.status_code == 201
    world.sandbox.control("/_calls", clear=True)
    return str(made.json()["refund_id"])


# --- B26: a key that was forgotten proves nothing -----------------------------------------------------------------


def _forgotten(world: World) -> Run:
    """P made the refund, our worker died, everything was down for 26 hours, and P knows no key any more."""
    run = approved(world)
    worker_dies(run, after="post")
    world.sandbox.control("/_config", lists_keys=False, key_life_s=0.001)
    hours_go_by(world, run, 26)
    by_key = world.sandbox.http.get(
        "/v1/refunds", params={"idempotency_key": KEY}, headers={"Authorization": "Bearer sandbox-read"}
    )
    assert by_key.status_code == 400
    return run


def test_b26_a_forgotten_key_is_no_proof_and_the_list_finds_the_refund(world: World) -> None:
    run = world.resume(_forgotten(world))
    [write], [made] = Write.objects.all(), world.refunds()
    assert (run.status, run.outcome, write.refund_id) == ("completed", "refunded", made["refund_id"])
    assert (once(world), len(world.sandbox.posts())) == ((1, {KEY}), 1)
    assert [e["key"] for e in world.events(run, "write.reconciled")] == [KEY]


@pytest.mark.parametrize("away", ["status:503", "empty", "drop_before", 'json:{"refunds":[],"has_more":true}'])
def test_b26_without_key_and_list_the_write_stays_unknown_and_is_never_posted_again(world: World, away: str) -> None:
    run = _forgotten(world)
    world.sandbox.fault("GET /v1/refunds", away, times=0)
    run = world.resume(run)
    assert (run.status, run.reason, world.writes(run)) == ("escalated", "outcome_unknown", [(KEY, "unknown")])
    assert "We could not confirm whether the refund of 2,000.00 INR" in world.said(run)
    for _ in range(3):
        assert orchestrator.settle(KEY) == "put_off"
    assert (once(world), len(world.sandbox.posts())) == ((1, {KEY}), 1)
    world.sandbox.control("/_faults", clear=True)
    assert (orchestrator.settle(KEY), world.fresh(run).outcome) == ("settled", "refunded")
    assert (once(world), len(world.sandbox.posts())) == ((1, {KEY}), 1)


def test_b26_a_post_that_never_arrived_is_not_made_up_for_after_a_day(world: World) -> None:
    """The key is forgotten and the list proves that nothing was made: too old to be sent again, so a person decides."""
    run = approved(world)
    worker_dies(run, after="sent")
    world.sandbox.control("/_config", lists_keys=False, key_life_s=0.001)
    hours_go_by(world, run, 26)
    run = world.resume(run, until="escalated")
    assert (run.reason, run.outcome, world.writes(run)) == ("needs_a_person", "handed_to_staff", [(KEY, "not_sent")])
    assert (world.sandbox.posts(), world.refunds()) == ([], [])
