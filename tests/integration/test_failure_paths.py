"""The five failure paths of the mission, and what its rows say of empty turns, outages and split ceilings.

Each ends with what the customer is told, word for word, and with the refund that did not happen.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from agentsite.refusals import Refusal
from approvals.models import Approval
from runs.models import Counter, Run
from tests.system.business import captures, order
from tests.world import KEY, TENANT, World, final, gather, inr, reads, refund, s0, turn
from tools.models import PolicyDocument
from tools.policy import documents

FOUND = "We found two captured payments of 2,000.00 INR each on order 8472, which costs 2,000.00 INR."
NOT_YET = "No refund has been issued yet for this request."
NONE = "No refund has been issued for this request."
PERSON = "A specialist has taken over your request."


# --- payment API unavailable ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["status:503", "drop_before", "empty", "truncate", "garbage", 'json:{"error":"busy"}'])
def test_payment_api_unavailable_parks_the_run_and_is_never_an_empty_list(world: World, mode: str) -> None:
    """M24, M58, B55: every kind of no answer is a typed error, the run waits, and nothing is concluded."""
    world.settings(RETRY_S="1")
    world.sandbox.fault("GET /v1/payments", mode, times=0)
    run = world.start(script=[*gather(), refund(), final()])
    assert (run.status, run.waiting_for, run.resume_status) == ("waiting_dependency", "dependency", "gathering")
    [error] = world.errors(run)
    assert error["error"] == ("upstream_unavailable" if mode in ("status:503", "drop_before") else "bad_answer")
    assert (error["retryable"], error["tool"]) == (True, "get_payments")
    assert len(world.sandbox.calls("path=/v1/payments")) == 3
    assert world.said(run) == (
        "Our order and payment records are not available at the moment, so the payments on your order could not be "
        "confirmed. We will go on when they can be read again. Order 8472 costs 2,000.00 INR. We could not confirm "
        "the payments on record. No refund has been issued yet for this request."
    )
    assert world.posts() == []


def test_payment_api_unavailable_for_a_while_then_back_goes_on_by_itself(world: World) -> None:
    world.sandbox.fault("GET /v1/payments", "status:503", times=4)
    run = world.start()
    assert (run.status, run.model_calls, run.dependency) == ("awaiting_approval", 3, None)
    assert ("waiting_dependency", "gathering") in world.transitions(run)


def test_payment_api_that_does_not_answer_is_a_timeout_and_no_fact(world: World) -> None:
    world.settings(RETRY_S="1", CALL_TIMEOUT_S="0.2")
    world.sandbox.fault("GET /v1/payments", "delay:1", times=0)
    run = world.start()
    assert (run.status, world.errors(run)[0]["error"]) == ("waiting_dependency", "upstream_unavailable")


def test_payment_api_unavailable_too_long_goes_to_a_person(world: World) -> None:
    world.settings(DEPENDENCY_FOR_S="0.05")
    world.sandbox.fault("GET /v1/payments", "status:503", times=0)
    run = world.start()
    assert (run.status, run.reason, run.outcome) == ("escalated", "dependency_unavailable", "handed_to_staff")
    assert world.said(run) == (
        "Order 8472 costs 2,000.00 INR. We could not confirm the payments on record. No refund has been issued for "
        "this request. A system we need was not available, so a specialist is looking at your request."
    )


def test_genuinely_empty_list_of_payments_is_accepted_as_empty(world: World) -> None:
    world.sandbox.control("/_seed", orders=[order("8500")])
    run = world.start(order_ids=["8500"], script=[*gather("8500"), final()])
    assert (run.status, run.outcome) == ("completed", "no_refund_due")
    assert world.said(run).startswith("We found no captured payments on order 8500")


def test_order_that_does_not_exist_is_told_as_not_confirmed(world: World) -> None:
    run = world.start(order_ids=["8599"], script=[*gather("8599"), final()])
    assert [e["error"] for e in world.errors(run)] == ["not_found"] * 3
    assert (run.status, run.outcome, "captured" in world.said(run)) == ("completed", "answered", False)


def test_business_system_away_at_the_gate_makes_no_decision(world: World) -> None:
    world.settings(RETRY_S="1")
    run = world.admit(script=s0())
    world.sandbox.fault("GET /v1/refunds", "status:503", times=0)
    world.sandbox.control("/_faults", clear=True)
    run = world.resume(run)
    assert run.status == "awaiting_approval"
    world.approve(run)
    world.sandbox.fault("GET /v1/refunds", "status:503", times=0)
    run = world.resume(run)
    assert (run.status, run.resume_status, world.approval(run).status) == ("waiting_dependency", "approved", "approved")
    assert world.posts() == []
    world.sandbox.control("/_faults", clear=True)
    assert world.resume(run, until="completed").outcome == "refunded"
    assert len(world.posts()) == 1


# --- the model produces invalid arguments --------------------------------------------------------------------


def test_invalid_arguments_are_fed_back_and_repaired(world: World) -> None:
    run = world.start(script=[*gather(), refund(amount="two thousand"), refund(), final()])
    assert run.status == "awaiting_approval"
    [error] = world.errors(run)
    assert (error["error"], error["field"], error["expected"]) == (
        "invalid_arguments", "amount.amount", "a decimal amount"
    )  # fmt: skip
    assert "two thousand" in error["output"]
    world.approve(run)
    assert world.resume(run).outcome == "refunded"


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (refund(amount="two thousand"), "amount.amount"),
        ({"tool": "issue_refund", "args": {"order_id": "8472", "amount": inr("1.00"), "reason": "x"}}, "payment_id"),
        (refund(amount=2000), "amount.amount"),
    ],
)
def test_invalid_arguments_beyond_repair_escalate_with_the_bad_proposals(world: World, bad: Any, field: str) -> None:
    """M18: two repairs, then a person gets everything the model said."""
    run = world.start(script=[*gather(), bad])
    assert (run.status, run.reason, run.model_calls) == ("escalated", "repair_exhausted", 5)
    assert [(e["error"], e["field"]) for e in world.errors(run)] == [("invalid_arguments", field)] * 3
    assert len([raw for raw in world.raw_turns(run) if "issue_refund" in raw]) == 3
    assert world.said(run) == f"{FOUND} {NONE} {PERSON}"
    assert world.posts() == []


def test_well_formed_proposal_of_too_much_passes_the_schema_and_fails_the_gate(world: World) -> None:
    run = world.start(script=[*gather(), refund(amount="4000.00"), refund(), final()])
    assert (run.status, world.rules(run), world.errors(run)) == ("awaiting_approval", ["amount_exceeds_refundable"], [])


@pytest.mark.parametrize(
    ("bad", "slug", "reason"),
    [
        (turn(text=""), "no_usable_output", "no_usable_output"),
        (turn(text="   \n"), "no_usable_output", "no_usable_output"),
        (turn(text="[]", finish_reason="tool_calls"), "no_usable_output", "no_usable_output"),
        (turn(text="Let me think about it."), "invalid_json", "repair_exhausted"),
        (turn(text='{"final": "Your refund has been', finish_reason="length"), "cut_by_length", "repair_exhausted"),
        ({"tool": "issue_refunds", "args": {}}, "unknown_tool", "repair_exhausted"),
        ([refund(), refund("pay_9001")], "write_must_stand_alone", "repair_exhausted"),
    ],
)
def test_turn_without_use_is_recorded_and_retried_a_bounded_number_of_times(
    world: World, bad: Any, slug: str, reason: str
) -> None:
    """M19, B47, B48, B50."""
    run = world.start(script=[*gather(), bad])
    assert (run.status, run.reason, run.model_calls) == ("escalated", reason, 5)
    assert [e["error"] for e in world.errors(run)] == [slug] * 3
    assert [e["repairs"] for e in world.events(run, "model.invalid")] == [1, 2, 3]
    assert (world.said(run), world.posts()) == (f"{FOUND} {NONE} {PERSON}", [])


def test_proposal_cut_by_length_is_no_proposal_though_it_parses(world: World) -> None:
    """B45: twenty cut from two thousand."""
    cut = turn(text='{"tool":"issue_refund","args":{"order_id":"8472","payment_id":"pay_9002","amount":'
               '{"amount":"20","currency":"INR"},"reason":"x"},"evidence":["obs_2"]}', finish_reason="length")  # fmt: skip
    run = world.start(script=[*gather(), cut, refund(), final()])
    assert (run.status, world.errors(run)[0]["error"]) == ("awaiting_approval", "cut_by_length")
    assert (Approval.objects.count(), world.approval(run).amount_minor) == (1, 200_000)


def test_reply_that_states_what_no_record_holds_is_never_sent(world: World) -> None:
    """B53."""
    run = world.start(script=[turn(text='{"final":"Your refund rf_9999 of 2,000 was processed"}')])
    assert (run.status, run.reason, run.reply) == ("escalated", "repair_exhausted", None)
    assert world.said(run) == f"{NONE} {PERSON}"
    assert world.posts() == []


@pytest.mark.parametrize(("error", "status"), [("unavailable", "waiting_dependency"), ("refused", "escalated")])
def test_model_outage_parks_and_a_refusing_model_goes_to_a_person(world: World, error: str, status: str) -> None:
    world.settings(RETRY_S="5")
    run = world.start(script=[turn(error=error)])
    assert (run.status, run.model_calls) == (status, 0)
    said = {
        "waiting_dependency": "A system we need is not available at the moment. We will go on with your request when "
        f"it is. {NOT_YET}",
        "escalated": f"{NONE} A system we need was not available, so a specialist is looking at your request.",
    }
    assert world.said(run) == said[status]


def test_cap_on_model_calls_escalates_with_the_evidence(world: World) -> None:
    run = world.start(script=[reads("get_order")], limits={"max_model_calls": 3})
    assert (run.status, run.reason, run.model_calls) == ("escalated", "budget_exhausted", 3)
    assert run.observations.filter(kind="result").count() == 3


# --- the policy source is stale ------------------------------------------------------------------------------


def _registry_moves_on() -> None:
    shipped = PolicyDocument.objects.get(tenant_id=TENANT, doc_id="POL-REF-004", version=4)
    front = "---\nid: POL-REF-004\nversion: 5\ntitle: Refunds\neffective_from: 2026-05-01\neffective_until: null\n"
    documents.load(TENANT, front + "status: current\n---\n" + shipped.body)


STALE = (
    "We could not confirm which version of our policy applies, so a specialist is looking at your request."
)


def test_stale_policy_abstains_and_still_tells_the_facts(world: World) -> None:
    _registry_moves_on()
    run = world.start()
    assert (run.status, run.reason, run.outcome) == ("escalated", "policy_stale", "handed_to_staff")
    assert world.said(run) == f"{FOUND} {NONE} {STALE}"
    assert (world.posts(), Approval.objects.count()) == ([], 0)


def test_stale_policy_in_the_index_alone_supports_no_decision(world: World) -> None:
    """The index lags: version 4 was never loaded, and all it finds is the superseded one."""
    PolicyDocument.objects.filter(tenant_id=TENANT, version=4).delete()
    run = world.start()
    assert (run.status, run.reason, world.posts()) == ("escalated", "policy_stale", [])
    assert world.said(run) == f"{FOUND} {NONE} {STALE}"


def test_stale_policy_is_found_at_the_gate_without_any_search(world: World) -> None:
    _registry_moves_on()
    asked = [reads("get_order", "get_payments", "get_refund_status"), refund(evidence=("get_payments",))]
    run = world.start(script=asked)
    assert (run.status, run.reason, world.posts()) == ("escalated", "policy_stale", [])


def test_policy_that_moves_on_after_the_approval_stops_the_write(world: World) -> None:
    run = world.start()
    world.approve(run)
    _registry_moves_on()
    run = world.resume(run)
    assert (run.status, run.reason, world.approval(run).status) == ("escalated", "policy_stale", "void")
    assert (world.posts(), world.said(run)) == ([], f"{FOUND} {NONE} {STALE}")


# --- a duplicate request ---------------------------------------------------------------------------------------


def test_duplicate_request_finds_the_run_at_admission(world: World) -> None:
    first = world.start()
    again = world.admit()
    assert (again.pk, again.version, Run.objects.count()) == (first.pk, first.version, 1)


def test_duplicate_request_under_another_id_is_denied_with_the_first_reference(world: World) -> None:
    """M54, B18's quiet sister: the customer writes again an hour later."""
    first = world.start()
    world.approve(first)
    world.resume(first)
    [made] = world.refunds()
    second = world.start("req-8472-again")
    assert (second.status, world.rules(second)) == ("completed", ["nothing_refundable"])
    assert len(world.posts()) == 1
    assert world.said(second) == (
        f"{FOUND} A refund of 2,000.00 INR to payment pay_9002 was already made; its reference is "
        f"{made['refund_id']}. No further refund has been issued for this request. By these records nothing is left "
        "to refund on order 8472. Policy consulted: POL-REF-004, version 4."
    )


def test_duplicate_proposal_for_the_same_payment_in_one_run_is_denied(world: World) -> None:
    """B24's first choice: one write per tool and target in one run."""
    world.seed(amount_due=inr("0.00"))
    run = world.start(script=[*gather(), refund(amount="500.00"), refund(amount="700.00"), final()])
    assert (run.status, run.outcome, world.rules(run)) == ("completed", "refunded", ["write_already_made"])
    assert world.posts() == [("pay_9002", "500.00", KEY)]


# --- an approval that times out ----------------------------------------------------------------------------------


def test_approval_timeout_executes_nothing_and_is_no_rejection(world: World) -> None:
    """M35: expired is live, waits for staff, and a late click changes nothing."""
    world.profile(approval_ttl_s=1)
    run = world.start()
    time.sleep(max(0.0, (world.approval(run).expires_at - run.updated_at).total_seconds() + 0.02))
    run = world.resume(run, until="approval_expired")
    assert (run.waiting_for, world.approval(run).status, world.posts()) == ("staff", "expired", [])
    assert world.said(run) == (
        f"A refund has been proposed and is still waiting for a review by our team. {NOT_YET}"
    )
    with pytest.raises(Refusal) as late:
        world.approve(run)
    assert (late.value.status, late.value.slug) == (409, "approval-expired")
    assert (world.resume(run).status, world.posts()) == ("approval_expired", [])
    assert world.events(run, "notice")[-1]["owner"] == "refunds@acme.example"


def test_approval_timeout_is_asked_again_by_a_new_approval_and_never_revived(world: World) -> None:
    world.profile(approval_ttl_s=1)
    run = world.resume(world.start(), until="approval_expired")
    first = world.approval(run)
    world.leave(run, "ask_again")
    run = world.resume(run)
    second = world.approval(run)
    assert (run.status, first.id != second.id, second.status) == ("awaiting_approval", True, "pending")
    assert Approval.objects.get(id=first.id).status == "expired"
    world.approve(run)
    assert (world.resume(run).outcome, len(world.posts())) == ("refunded", 1)


def test_approval_timeout_without_anybody_goes_to_the_owner_of_the_queue(world: World) -> None:
    world.profile(approval_ttl_s=1)
    world.settings(ASK_AGAIN_FOR_S="0.1")
    run = world.resume(world.start(), until="escalated")
    assert (run.reason, run.outcome, world.posts()) == ("approval_expired", "handed_to_staff", [])
    assert world.said(run) == (
        f"{FOUND} {NONE} Your request is still waiting for a review; a specialist is looking after it."
    )


def test_rejection_reaches_the_model_and_the_customer_with_its_reason(world: World) -> None:
    """M41: and it is told as a rejection, which an expiry never is."""
    run = world.start()
    world.reject(run, "the second capture was a pre-authorisation")
    run = world.resume(run)
    assert (run.status, run.outcome, world.posts()) == ("completed", "rejected", [])
    [decision] = run.observations.filter(kind="decision")
    assert decision.content == {"decision": "rejected", "reason": "the second capture was a pre-authorisation"}
    assert "did not approve it. The reason given: “the second capture was a pre-authorisation”" in world.said(run)


# --- ceilings that cannot be split (M118) ------------------------------------------------------------------------


def _all_due(world: World, *payments: str) -> None:
    """Order 8472 was cancelled: everything that was captured may go back."""
    world.seed(amount_due=inr("0.00"), payments=captures("8472", *payments))


def test_second_half_of_a_split_refund_needs_a_person_in_one_run(world: World) -> None:
    _all_due(world)
    run = world.start(script=[*gather(), refund("pay_9001", "999.00"), refund("pay_9002", "999.00"), final()])
    assert (run.status, world.posts()) == ("awaiting_approval", [("pay_9001", "999.00", KEY[:-1] + "1")])
    assert (world.approval(run).payment_id, world.approval(run).rule) == ("pay_9002", "refund_above_1000_requires_approval")
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


# --- what comes in between -----------------------------------------------------------------------------------------


def test_message_before_the_intent_voids_the_approval_and_the_run_gathers_again(world: World) -> None:
    """M105."""
    run = world.start(script=[*gather(), refund(), final(), final()])
    world.approve(run)
    world.message(run, "Please do not refund, I found the money.")
    run = world.resume(run)
    assert (run.status, run.outcome, world.posts()) == ("completed", "answered", [])
    assert (world.approval(run).status, world.approval(run).void_reason) == ("void", "customer_message")


def test_cancel_before_the_intent_refunds_nothing_and_after_it_is_reconciled(world: World) -> None:
    """M22, B81."""
    early = world.start("req-early")
    world.approve(early)
    world.cancel(early)
    early = world.resume(early)
    assert (early.status, early.outcome, world.posts()) == ("cancelled", "cancelled", [])
    late = world.start("req-late")
    world.approve(late, by="lead_18")
    world.sandbox.fault("POST /v1/refunds", "drop_after")
    world.settings(RETRY_S="2")
    assert world.resume(late).status == "executing"
    world.cancel(late)
    late = world.resume(late, until="completed")
    assert (late.outcome, len(world.refunds())) == ("refunded", 1)
    assert "has been made and confirmed" in world.said(late)


@pytest.mark.parametrize("mode", ["drop_after", "delay_after:2.5", "status_after:500", "garbage", "empty", "truncate"])
def test_lost_answer_of_a_refund_is_looked_up_and_never_repeated(world: World, mode: str) -> None:
    """M50: unknown is not failed."""
    world.settings(WRITE_TIMEOUT_S="0.5")
    world.sandbox.fault("POST /v1/refunds", mode)
    run = world.start()
    world.approve(run)
    run = world.resume(run, until="completed")
    assert (run.outcome, len(world.refunds()), len(world.posts())) == ("refunded", 1, 1)
    assert [e["key"] for e in world.events(run, "write.unknown")] == [KEY]


@pytest.mark.parametrize("mode", ["drop_before", "status:503"])
def test_refund_that_never_arrived_goes_again_under_its_key(world: World, mode: str) -> None:
    world.sandbox.fault("POST /v1/refunds", mode)
    run = world.start()
    world.approve(run)
    run = world.resume(run, until="completed")
    assert (run.outcome, len(world.refunds()), run.write_attempts) == ("refunded", 1, 2)
    assert (len(world.sandbox.posts()), set(world.posts())) == (2, {("pay_9002", "2000.00", KEY)})


def test_refund_of_another_amount_than_asked_is_a_mismatch_and_nothing_follows(world: World) -> None:
    """M53."""
    world.sandbox.fault("POST /v1/refunds", 'amount:{"amount": "1500.00", "currency": "INR"}')
    run = world.start()
    world.approve(run)
    run = world.resume(run)
    assert (run.status, run.reason, len(world.posts())) == ("escalated", "verification_failed", 1)
    assert (run.verification["expected"]["amount"], run.verification["found"]["amount"]) == (inr("2000.00"), inr("1500.00"))
    assert run.outcome == "handed_to_staff"
    assert world.said(run) == (
        f"{FOUND} A refund of 2,000.00 INR to payment pay_9002 on order 8472 has been submitted with the reference "
        f"{world.refunds()[0]['refund_id']}; we have not confirmed it yet. What we see of it does not match what was "
        "asked for; a specialist is checking it."
    )


def test_refund_made_beside_us_shows_as_over_refunded(world: World) -> None:
    world.may_over_refund = True
    world.sandbox.fault("POST /v1/refunds", "hide:0.3")
    run = world.start()
    world.approve(run)
    run = world.resume(run, patience_s=0.0)
    beside = world.sandbox.control("/_refunds", payment_id="pay_9001", amount=inr("2000.00"))
    run = world.resume(run, until="escalated")
    assert (run.reason, len(world.posts())) == ("over_refunded", 1)
    assert run.verification["other_refunds"] == [beside["refund_id"]]
