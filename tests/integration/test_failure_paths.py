"""The five failure paths of the mission, and what its rows say of empty turns and outages.

Each ends with what the customer is told, word for word, and with the refund that did not happen.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from agentsite.refusals import Refusal
from approvals.models import Approval
from runs.models import Run
from tests.system.business import order
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
        (turn(text="Let me think about it."), "invalid_json", "repair_exhausted"),
        (turn(text='{"final": "Your refund has been', finish_reason="length"), "cut_by_length", "repair_exhausted"),
        ([refund(), refund("pay_9001")], "write_must_stand_alone", "repair_exhausted"),
    ],
)
def test_turn_without_use_is_recorded_and_retried_a_bounded_number_of_times(
    world: World, bad: Any, slug: str, reason: str
) -> None:
    """M19, B50."""
    run = world.start(script=[*gather(), bad])
    assert (run.status, run.reason, run.model_calls) == ("escalated", reason, 5)
    assert [e["error"] for e in world.errors(run)] == [slug] * 3
    assert [e["repairs"] for e in world.events(run, "model.invalid")] == [1, 2, 3]
    assert (world.said(run), world.posts()) == (f"{FOUND} {NONE} {PERSON}", [])


@pytest.mark.parametrize("bad", [turn(text=""), turn(text="   \n"), turn(text="[]", finish_reason="tool_calls")])
def test_turn_of_nothing_is_reminded_twice_and_then_a_person_has_it(world: World, bad: Any) -> None:
    """M19, B48."""
    run = world.start(script=[*gather(), bad])
    assert (run.status, run.reason, run.model_calls) == ("escalated", "no_usable_output", 5)
    assert [r["number"] for r in world.events(run, "reminder")] == [1, 2]
    notes = run.observations.filter(kind__in=("notice", "error")).order_by("position")
    assert [(o.kind, o.source) for o in notes if o.content["error"] == "no_usable_output"] == [
        ("notice", "engine"),
        ("notice", "engine"),
        ("error", "parser"),
    ]
    assert [e["repairs"] for e in world.events(run, "model.invalid")] == [1, 2, 3]
    assert (world.said(run), world.posts()) == (f"{FOUND} {NONE} {PERSON}", [])


def test_tool_that_does_not_exist_named_twice_in_a_row_goes_to_a_person(world: World) -> None:
    """B47."""
    run = world.start(script=[*gather(), {"tool": "issue_refunds", "args": {}}])
    assert (run.status, run.reason, run.model_calls) == ("escalated", "repair_exhausted", 4)
    assert [e["error"] for e in world.errors(run)] == ["unknown_tool"] * 2
    assert (world.said(run), world.posts()) == (f"{FOUND} {NONE} {PERSON}", [])


def test_proposal_cut_by_length_is_no_proposal_though_it_parses(world: World) -> None:
    """B45: twenty cut from two thousand."""
    args = {"order_id": "8472", "payment_id": "pay_9002", "amount": inr("20"), "reason": "x"}
    proposal = {"tool": "issue_refund", "args": args, "evidence": ["obs_2"]}
    cut = turn(text=json.dumps(proposal), finish_reason="length")
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
    assert run.observations.filter(kind="result").exclude(call_id="").count() == 3


# --- the policy source is stale ------------------------------------------------------------------------------


def _registry_moves_on() -> None:
    shipped = PolicyDocument.objects.get(tenant_id=TENANT, doc_id="POL-REF-004", version=4)
    front = "---\nid: POL-REF-004\nversion: 5\ntitle: Refunds\neffective_from: 2026-05-01\neffective_until: null\n"
    documents.load(TENANT, front + "status: current\n---\n" + shipped.body)


STALE = "We could not confirm which version of our policy applies, so a specialist is looking at your request."


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
    assert world.said(run) == (f"A refund has been proposed and is still waiting for a review by our team. {NOT_YET}")
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
