"""A second run on an order that was refunded: nothing is paid twice, and its customer is told the first reference.

`write-path.md` 2 and 3, with lists that lag behind both runs and lists that never show the first refund.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.urls import reverse

from runs import qualification, replay, store
from runs.backends import backend_of
from runs.models import Observation, Run, Write
from tests.between import make_due, put_back
from tests.world import Json, World, final, gather, inr, refund, s0, worker_dies
from tools import dispatcher, rules

ELSEWHERE = "2026-11-20T09:31:00.000Z"
TO_9002 = "A refund of 2,000.00 INR to payment pay_9002"


def provider(world: World, **kind: Any) -> None:
    world.sandbox.control("/_config", **kind)


def by_hand(world: World, amount: str, **more: Any) -> str:
    """A refund that somebody made beside us; its id."""
    made: Json = world.sandbox.control("/_refunds", payment_id="pay_9002", amount=inr(amount), **more)
    return str(made["refund_id"])


def reference(run: Run) -> str | None:
    return Write.objects.get(run=run).refund_id


# --- the first run, wherever it stands, with a refund that no list shows ---------------------------------------


def _decided(world: World, request_id: str = "req-first") -> Run:
    run = world.start(request_id)
    world.approve(run)
    return run


def executing(world: World) -> Run:
    """The intent is committed, nothing was sent: its worker died."""
    run = _decided(world)
    worker_dies(run, after="intent")
    return run


def unknown(world: World) -> Run:
    """The refund was made, its answer lost, and no list shows it."""
    run = _decided(world)
    world.sandbox.fault("POST /v1/refunds", "hide:forever")
    world.sandbox.fault("POST /v1/refunds", "drop_after")
    world.settings(COMMERCE_HONOURS_KEYS="0", COMMERCE_SETTLE_S="600")
    run = world.resume(run)
    assert (run.status, Write.objects.get(run=run).state) == ("executing", "unknown")
    return run


def executed(world: World) -> Run:
    """Answered as made; the independent read does not show it."""
    run = _decided(world)
    world.sandbox.fault("POST /v1/refunds", "hide:forever")
    world.settings(RETRY_S="30")
    run = world.resume(run)
    assert (run.status, Write.objects.get(run=run).state) == ("executed", "confirmed")
    return run


def pending(world: World) -> Run:
    run = _decided(world)
    world.sandbox.fault("POST /v1/refunds", "state:pending")
    world.sandbox.fault("POST /v1/refunds", "hide:forever")
    world.settings(RETRY_S="30", PENDING_POLL_S="30")
    run = world.resume(run)
    assert (run.status, Write.objects.get(run=run).state) == ("executed", "pending")
    return run


def verified(world: World) -> Run:
    """The list showed it once, and never again."""
    run = world.resume(_decided(world))
    assert (run.status, run.outcome) == ("completed", "refunded")
    world.sandbox.control(f"/_refunds/{reference(run)}", shown=False)
    return run


FIRST: dict[str, tuple[Callable[[World], Run], str]] = {
    "executing": (executing, f"{TO_9002} was already asked for; it is not confirmed yet."),
    "unknown": (unknown, f"{TO_9002} was already asked for; it is not confirmed yet."),
    "executed": (executed, f"{TO_9002} is already under way; its reference is {{id}}; it is not confirmed yet."),
    "pending": (pending, f"{TO_9002} is already under way; its reference is {{id}}; it is not confirmed yet."),
    "verified": (verified, f"{TO_9002} was already made; its reference is {{id}}."),
}


@pytest.mark.parametrize("payment_id", ["pay_9002", "pay_9001"])
@pytest.mark.parametrize("stands", FIRST)
def test_second_run_is_denied_and_told_of_a_refund_that_no_list_shows(
    world: World, stands: str, payment_id: str
) -> None:
    reach, words = FIRST[stands]
    first = reach(world)
    posts, made = world.sandbox.posts(), world.refunds()
    second = world.start("req-second", script=s0(refund(payment_id)))
    assert (second.status, world.rules(second), world.writes(second)) == ("completed", ["nothing_refundable"], [])
    assert (world.sandbox.posts(), world.refunds()) == (posts, made)
    told = words.format(id=reference(first))
    assert told in str(second.reply) and told in world.said(second)
    assert "No further refund has been issued for this request." in str(second.reply)
    certain = reference(first) is not None
    assert second.outcome == ("no_refund_due" if certain else "answered")
    assert ("nothing is left to refund" in str(second.reply)) is certain
    played = replay.play(json.loads(replay.text(replay.export(second))))
    assert played.identical, played.wire()


def test_yes_that_came_before_the_first_refund_releases_nothing_after_it(world: World) -> None:
    """Both were allowed on the same facts; the second one's approval is void, not spent."""
    second = world.start("req-second", script=s0(refund("pay_9001")))
    world.approve(second)
    first = executed(world)
    second = world.resume(second)
    assert (second.status, second.outcome, len(world.posts())) == ("completed", "no_refund_due", 1)
    assert (world.approval(second).status, world.rules(second)) == ("void", ["nothing_refundable"])
    assert f"its reference is {reference(first)}" in str(second.reply)


def test_part_that_no_list_shows_leaves_only_the_rest(world: World) -> None:
    first = world.start("req-first", script=s0(refund(amount="600.00")))
    assert first.outcome == "refunded"
    world.sandbox.control(f"/_refunds/{reference(first)}", shown=False)
    much = world.start("req-much", script=s0(refund(amount="1500.00")))
    assert (much.status, world.rules(much), len(world.posts())) == ("completed", ["amount_exceeds_refundable"], 1)
    assert f"its reference is {reference(first)}" in str(much.reply)
    rest = world.start("req-rest", script=s0(refund("pay_9001", amount="1400.00")))
    assert world.approval(rest).facts["ours"] == [
        {
            "refund_id": reference(first), "payment_id": "pay_9002", "amount": inr("600.00"), "state": "confirmed",
            "verified": True,
        }
    ]  # fmt: skip
    page = world.browser().get(reverse("admin:approvals_approval_change", args=[world.approval(rest).id]))
    assert "Refund of ours, not listed" in page.content.decode() and str(reference(first)) in page.content.decode()
    world.approve(rest)
    assert (world.resume(rest).outcome, len(world.refunds())) == ("refunded", 2)


def test_reference_is_told_to_no_other_customer(world: World) -> None:
    """An order that changed hands: what was refunded counts, whose refund it was is nobody else's business."""
    first = verified(world)
    world.seed(customer_id="cust_7")
    second = world.start("req-second", actor={"customer_id": "cust_7"})
    assert (second.status, world.rules(second), len(world.posts())) == ("completed", ["nothing_refundable"], 1)
    known = str(reference(first))
    assert known not in str(second.reply) and known not in world.said(second)
    seen = list(Observation.objects.filter(run=second).values_list("content", flat=True))
    assert known not in str(seen)
    assert known not in str(world.events(second, "gate.decided"))


def test_offline_model_answers_a_second_run_with_the_reference(world: World) -> None:
    """No script: it proposes what the list seems to allow, is told why not, and leaves it at that."""
    first = verified(world)
    qualification.ensure_offline()
    second = world.admit("req-second")
    del world.scripts[str(second.pk)]
    world.settings(AGENT_MODELS="offline:investigator")
    second = world.resume(second)
    assert (second.status, second.outcome) == ("completed", "no_refund_due")
    assert world.rules(second) == ["nothing_refundable"]
    assert f"{TO_9002} was already made; its reference is {reference(first)}." in str(second.reply)
    assert len(world.posts()) == 1


def test_write_that_was_never_made_is_neither_counted_nor_told(world: World) -> None:
    first = _decided(world)
    world.sandbox.fault("POST /v1/refunds", "status:422")
    assert world.resume(first).outcome != "refunded"
    assert Write.objects.get(run=first).state == "refused"
    second = world.start("req-second", script=s0(refund("pay_9001")))
    assert (second.status, world.rules(second)) == ("awaiting_approval", [])
    assert "ours" not in world.approval(second).facts
    assert world.refunds() == []


# --- a list that lags -------------------------------------------------------------------------------------------


def test_list_that_lags_behind_both_runs_pays_once(world: World) -> None:
    """The lag ends only after both: its time is turned on by the test."""
    provider(world, lag_s=3600)
    first = world.resume(_decided(world), patience_s=0.0)
    second = world.start("req-second", script=s0(refund("pay_9001")))
    assert (second.status, world.rules(second), len(world.posts())) == ("completed", ["nothing_refundable"], 1)
    assert f"its reference is {reference(first)}; it is not confirmed yet." in str(second.reply)
    provider(world, lag_s=0)
    make_due(first)
    assert (world.resume(first, until="completed").outcome, len(world.refunds())) == ("refunded", 1)


@pytest.mark.long
def test_list_that_lags_ten_seconds_pays_once(world: World) -> None:
    """The same with ten seconds by the clock; the second run, approved before, is over while the list is empty."""
    provider(world, lag_s=10)
    world.settings(RETRY_S="0.5")
    second = world.start("req-second", script=s0(refund("pay_9001")))
    world.approve(second)
    first = world.resume(_decided(world), patience_s=0.0)
    second = world.resume(second)
    assert (second.status, world.rules(second), len(world.posts())) == ("completed", ["nothing_refundable"], 1)
    assert f"its reference is {reference(first)}; it is not confirmed yet." in str(second.reply)
    first = world.resume(first, until="completed", limit_s=120)
    assert (first.outcome, len(world.refunds()), len(world.posts())) == ("refunded", 1, 1)
    third = world.start("req-third")
    assert (third.status, world.rules(third), len(world.posts())) == ("completed", ["nothing_refundable"], 1)
    assert f"{TO_9002} was already made; its reference is {reference(first)}." in str(third.reply)
    assert second.outcome == third.outcome == "no_refund_due"


# --- refunds that others made -----------------------------------------------------------------------------------


@pytest.mark.parametrize("payment_id", ["pay_9002", "pay_9001"])
def test_refund_made_by_hand_beside_us_is_counted_and_told(world: World, payment_id: str) -> None:
    made = by_hand(world, "2000.00")
    run = world.start(script=s0(refund(payment_id)))
    assert (run.status, run.outcome, world.posts()) == ("completed", "no_refund_due", [])
    assert world.rules(run) == ["nothing_refundable"]
    assert f"{TO_9002} was already made; its reference is {made}." in str(run.reply)


def test_refund_in_a_state_we_do_not_know_counts_and_is_called_unconfirmed(world: World) -> None:
    made = by_hand(world, "2000.00", state="on_hold_by_bank")
    run = world.start(script=s0(refund("pay_9001")))
    assert (run.status, world.rules(run), world.posts()) == ("completed", ["nothing_refundable"], [])
    assert f"{TO_9002} is on record with the reference {made}; we could not confirm its state." in str(run.reply)


@pytest.mark.parametrize("state", ["failed", "canceled"])
def test_refund_that_came_to_nothing_does_not_count(world: World, state: str) -> None:
    by_hand(world, "2000.00", state=state)
    run = world.start(script=s0(refund("pay_9001")))
    world.approve(run)
    assert (world.resume(run).outcome, len(world.posts())) == ("refunded", 1)


@pytest.mark.parametrize(("asked", "made"), [("2000.00", "1500.00"), ("1500.00", "2000.00")])
def test_of_two_amounts_of_one_refund_the_larger_counts(world: World, asked: str, made: str) -> None:
    """We asked for one amount and the list shows another: counted once, and never as the smaller one."""
    world.may_over_refund = True
    first = world.start("req-first", script=s0(refund(amount=asked)))
    world.approve(first)
    world.sandbox.fault("POST /v1/refunds", f'amount:{{"amount": "{made}", "currency": "INR"}}')
    assert world.resume(first).reason == "verification_failed"
    more = world.start("req-more", script=s0(refund("pay_9001", amount="0.01")))
    assert (more.status, world.rules(more), len(world.posts())) == ("completed", ["nothing_refundable"], 1)
    assert f"A refund of {made[0]},{made[1:]} INR to payment pay_9002 was already made; its reference is" in str(
        more.reply
    )
    assert str(more.reply).count("its reference is") == 1


# --- which listed refund is ours --------------------------------------------------------------------------------

SHOWN: dict[str, Json] = {
    "by key": {"lists_metadata": False},
    "by metadata": {"lists_keys": False},
    "by likeness": {"lists_keys": False, "lists_metadata": False},
}


def _lost(world: World, *, amount: str = "600.00", request_id: str = "req-lost") -> Run:
    """A run whose refund was sent, and whose answer nobody got; it looks the refund up next."""
    world.sandbox.fault("POST /v1/refunds", "drop_after")
    world.settings(RETRY_S="5")
    run = world.resume(world.admit(request_id, script=s0(refund(amount=amount))), patience_s=0.0)
    assert (run.status, Write.objects.get(run=run).state) == ("executing", "unknown")
    world.settings(RETRY_S="0.02")
    make_due(run)
    return run


@pytest.mark.parametrize("shows", SHOWN)
def test_refund_whose_answer_was_lost_is_recognised(world: World, shows: str) -> None:
    provider(world, honours_keys=False, **SHOWN[shows])
    world.settings(COMMERCE_HONOURS_KEYS="0")
    run = world.resume(_lost(world), until="completed")
    assert (run.outcome, len(world.refunds()), len(world.posts())) == ("refunded", 1, 1)
    assert reference(run) == world.refunds()[0]["refund_id"]


def test_bare_refund_from_before_our_first_attempt_is_not_ours(world: World) -> None:
    """The same payment and amount, made by hand earlier: ours never arrived, and is made."""
    provider(world, honours_keys=False, **SHOWN["by likeness"])
    world.settings(COMMERCE_HONOURS_KEYS="0")
    beside = by_hand(world, "600.00", created_at=ELSEWHERE)
    world.sandbox.fault("POST /v1/refunds", "drop_before")
    run = world.start(script=s0(refund(amount="600.00")))
    world.later(run, 10)
    run = world.resume(run, until="completed")
    assert (run.outcome, len(world.refunds()), run.write_attempts) == ("refunded", 2, 2)
    assert reference(run) not in (None, beside)


def test_bare_refund_that_another_run_owns_is_not_claimed_again(world: World) -> None:
    """Two equal refunds of two runs, no key and no metadata on the list: each finds its own."""
    provider(world, honours_keys=False, **SHOWN["by likeness"])
    world.settings(COMMERCE_HONOURS_KEYS="0")
    first = world.start("req-first", script=s0(refund(amount="400.00")))
    assert first.outcome == "refunded"
    second = world.resume(_lost(world, amount="400.00"), until="completed")
    assert (second.outcome, len(world.refunds()), len(world.posts())) == ("refunded", 2, 2)
    assert {reference(first), reference(second)} == {r["refund_id"] for r in world.refunds()}


def test_several_that_may_be_ours_are_left_to_a_person(world: World) -> None:
    provider(world, honours_keys=False, **SHOWN["by likeness"])
    world.settings(COMMERCE_HONOURS_KEYS="0")
    run = _lost(world)
    by_hand(world, "600.00")
    run = world.resume(run, until="escalated")
    assert (run.reason, len(world.posts()), world.writes(run)[0][1]) == ("outcome_unknown", 1, "unknown")
    more = world.start("req-more", script=s0(refund("pay_9001", amount="1000.00")))
    assert (more.status, world.rules(more), len(world.posts())) == ("completed", ["amount_exceeds_refundable"], 1)


def test_id_decides_before_key_metadata_and_likeness(world: World) -> None:
    """The provider named our refund; another under our own key and metadata is not taken for it."""
    world.sandbox.fault("POST /v1/refunds", "state:pending")
    run = world.start(script=s0(refund(amount="600.00")))
    assert (run.status, run.waiting_for) == ("executed", "refund")
    [ours] = world.refunds()
    world.sandbox.control(f"/_refunds/{ours['refund_id']}", state="succeeded")
    by_hand(world, "600.00", idempotency_key=ours["idempotency_key"], metadata=ours["metadata"], created_at=ELSEWHERE)
    run = world.resume(run, until="completed")
    assert (run.outcome, reference(run), len(world.posts())) == ("refunded", ours["refund_id"], 1)


def test_key_decides_before_metadata_and_metadata_before_likeness(world: World) -> None:
    """Of three equal ones that may be it, the one under our key is it; without that, the one with our metadata."""
    world.settings(COMMERCE_HONOURS_KEYS="0")
    provider(world, honours_keys=False)
    run = _lost(world)
    [ours] = world.refunds()
    meant = by_hand(world, "600.00", metadata=ours["metadata"])
    by_hand(world, "600.00")
    refunds = [reference_of_match(world, run), None]
    provider(world, lists_keys=False)
    world.sandbox.control(f"/_refunds/{ours['refund_id']}", shown=False)
    refunds[1] = reference_of_match(world, run)
    assert refunds == [ours["refund_id"], meant]
    world.may_over_refund = True
    run = world.resume(run)
    assert (reference(run), len(world.posts())) == (meant, 1)


def reference_of_match(world: World, run: Run) -> str | None:
    """Which listed refund a look-up takes for the run's write at this moment."""
    own = store.own_writes(run.tenant_id, "8472")
    listed = dispatcher.look_up(backend_of(run.tenant_id, run.agent), "8472", run.trace_id)
    [mine] = [w for w in own if w.run_id == str(run.pk)]
    found = rules.match(mine, listed, claimed=rules.claimed_by_others(own, mine.key))
    return found.refund.refund_id if found.refund else None


def test_write_left_in_doubt_by_an_ended_run_still_counts(world: World) -> None:
    """Its run is over and its refund on no list: another run of the same customer gets nothing of it."""
    first = unknown(world)
    put_back(Write.objects.filter(run=first), intent_at=1801, unknown_since=1801)
    world.sandbox.fault("GET /v1/refunds", "status:503", times=0)
    make_due(first)
    first = world.resume(first, until="escalated")
    assert first.reason == "outcome_unknown"
    world.sandbox.control("/_faults", clear=True)
    second = world.start("req-second", script=[*gather(), refund("pay_9001"), final()])
    assert (second.status, world.rules(second), len(world.posts())) == ("completed", ["nothing_refundable"], 1)
    assert f"{TO_9002} was already asked for; it is not confirmed yet." in str(second.reply)
