"""A customer's words of harm, law and fraud: who is asked before what, for how long, and who sees them (M116)."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import call_command

from agentsite.canonical import canonical_text
from approvals.models import Approval
from runs import store
from runs.models import Event, Run, Turn
from tests.world import World, final, gather, refund, worker_dies

DESPAIR = "If this does not come back I will kill myself."
LAW = "My lawyer says this is fraud."
SMALL = refund(amount="500.00")
PERSON = "A specialist has taken over your request."
pytestmark = pytest.mark.django_db(transaction=True)


def notices(world: World, run: Run) -> list[list[str]]:
    return [e["words"] for e in world.events(run, "notice") if e.get("error") == "sensitive_words"]


def words_asked_with(approval: Approval) -> list[str]:
    check = next((c for c in approval.checks if c["name"] == "sensitive_words"), None)
    return check["inputs"]["words"] if check else []


def handed_over(world: World, run: Run) -> Run:
    """Asserts that a person has it, no refund was asked for, and the customer hears of neither."""
    row = world.fresh(run)
    assert (row.status, row.reason, row.outcome) == ("escalated", "needs_a_person", "handed_to_staff")
    assert world.posts() == [] and world.refunds() == []
    assert world.said(run).endswith(PERSON) and "No refund has been issued for this request." in world.said(run)
    assert not any("kill" in text or "lawyer" in text for text in world.heard.get(str(run.pk), set()))
    return row


# --- a person, before any model call -------------------------------------------------------------------------


def test_words_of_harm_in_the_request_reach_a_person_and_no_model(world: World) -> None:
    run = world.start(script=[*gather(), refund(), final()], goal=f"Charged twice. {DESPAIR}")
    row = handed_over(world, run)
    assert (row.model_calls, Turn.objects.filter(run=run).count(), world.events(run, "model.called")) == (0, 0, [])
    assert notices(world, run) == [["kill myself"]]
    assert world.transitions(run) == [("accepted", "escalated")]


def test_words_of_harm_in_a_message_reach_a_person_before_the_next_model_call(world: World) -> None:
    world.settings(AGENT_PASSES_PER_TASK="1")
    run = world.admit(script=[*gather(), refund(), final()])
    world.step(run)
    asked = world.fresh(run).model_calls
    world.message(run, DESPAIR)
    world.resume(run)
    assert handed_over(world, run).model_calls == asked == 1
    assert notices(world, run) == [["kill myself"]]


def test_message_waiting_with_a_cancel_still_reaches_a_person(world: World) -> None:
    run = world.admit(script=[*gather(), refund(), final()])
    world.message(run, DESPAIR)
    world.cancel(run)
    world.resume(run)
    assert handed_over(world, run).model_calls == 0


@pytest.mark.parametrize("messages", [1, 2], ids=["the first message", "a message after one that voided"])
def test_words_of_harm_while_an_approval_waits_void_it(world: World, messages: int) -> None:
    run = world.start(script=[*gather(), refund(), refund(), final()])
    for number in range(messages - 1):
        world.message(run, f"Anything new? {number}")
        world.resume(run)
    assert world.fresh(run).status == "awaiting_approval"
    world.message(run, DESPAIR)
    world.resume(run)
    handed_over(world, run)
    assert [a.status for a in Approval.objects.filter(run_id=run.pk)] == ["void"] * messages
    assert world.approval(run).void_reason in ("customer_message", "needs_a_person")


def test_words_of_harm_after_the_yes_and_before_the_intent_stop_the_refund(world: World) -> None:
    run = world.start(script=[*gather(), refund(), refund(), final()])
    world.approve(run)
    worker_dies(run, after="approved")
    world.message(run, DESPAIR)
    world.resume(run)
    handed_over(world, run)


def test_words_of_harm_while_a_dependency_is_down_do_not_wait_for_it(world: World) -> None:
    world.sandbox.control("/_faults", match="GET /v1/payments", mode="status:503", times=50)
    run = world.start(script=[*gather(), refund(), final()])
    assert world.fresh(run).status == "waiting_dependency"
    world.message(run, DESPAIR)
    world.resume(run)
    handed_over(world, run)


def test_words_of_another_language_of_the_profile_count(world: World) -> None:
    world.profile(sensitive={"hi": {"person": ["जान दे दूंगा"]}})
    run = world.start(script=[*gather(), refund(), final()], goal="पैसे नहीं आए तो मैं जान दे दूंगा।")
    assert handed_over(world, run).model_calls == 0


# --- a write under way is not broken off ---------------------------------------------------------------------


@pytest.mark.parametrize("after", ["intent", "sent", "post"])
def test_words_of_harm_during_a_write_let_it_end_and_staff_know_at_once(world: World, after: Any) -> None:
    run = world.start(script=[*gather(), refund(), final("Do tell us how you feel.")])
    world.approve(run)
    worker_dies(run, after=after)
    world.message(run, DESPAIR)
    assert [e["words"] for e in world.events(run, "words.found")] == [["kill myself"]], "before anybody works on it"
    world.later(run, 60)
    row = world.resume(run, until="completed")
    assert (row.outcome, row.model_calls) == ("refunded", 3), "no model was asked after the words"
    assert [p for p, _, _ in world.posts()] == ["pay_9002"] and len(world.refunds()) == 1
    assert row.reply is not None and "has been made and confirmed" in row.reply and "feel" not in row.reply
    assert notices(world, run) == [["kill myself"]]
    assert not any("kill" in text for text in world.heard[str(run.pk)])


def test_plain_message_during_a_write_alarms_nobody(world: World) -> None:
    run = world.start(script=[*gather(), refund(), final()])
    world.approve(run)
    worker_dies(run, after="post")
    world.message(run, "Thank you, this was killing my budget")
    assert world.resume(run, until="completed").outcome == "refunded"
    assert world.events(run, "words.found") == [] and notices(world, run) == []


# --- every write needs a person ------------------------------------------------------------------------------


def test_words_of_law_make_a_small_refund_need_a_person_who_sees_them(world: World) -> None:
    run = world.start(script=[*gather(), SMALL, final()], goal=f"Charged twice. {LAW}")
    assert (run.status, world.posts()) == ("awaiting_approval", [])
    asked = world.approval(run)
    assert (asked.rule, asked.required) == ("sensitive_words_require_approval", 1)
    assert words_asked_with(asked) == ["lawyer", "fraud"]
    page = world.browser().get(f"/admin/approvals/approval/{asked.pk}/change/").content.decode()
    assert "<b>Sensitive words of the customer:</b> lawyer, fraud." in page, "at the top of the page"
    assert page.count("lawyer, fraud") == 2, "and among the checks"
    assert "The customer&#x27;s words need a person" in page
    world.approve(run)
    row = world.resume(run, until="completed")
    assert (row.outcome, world.posts()[0][1]) == ("refunded", "500.00")
    assert not any("lawyer" in text for text in world.heard[str(run.pk)])


def test_small_refund_without_such_words_needs_nobody(world: World) -> None:
    run = world.start(script=[*gather(), SMALL, final()])
    assert (run.status, run.outcome) == ("completed", "refunded")
    assert all(c["name"] != "sensitive_words" for e in world.events(run, "gate.decided") for c in e["checks"])


def test_refund_above_the_threshold_is_asked_by_its_amount_with_the_words_beside_it(world: World) -> None:
    run = world.start(script=[*gather(), refund(), final()], goal=f"Charged twice. {LAW}")
    asked = world.approval(run)
    assert (asked.rule, words_asked_with(asked)) == ("refund_above_1000_requires_approval", ["lawyer", "fraud"])
    world.reject(run, "talk to legal first")
    row = world.resume(run)
    assert (row.status, row.outcome, world.posts(), world.refunds()) == ("completed", "rejected", [], [])


def test_words_in_a_message_hold_for_the_rest_of_the_run(world: World) -> None:
    run = world.admit(script=[*gather(), SMALL, refund("pay_9001", "500.00"), final()])
    world.message(run, LAW)
    world.resume(run, until="awaiting_approval")
    world.approve(run)
    world.resume(run, until="verified")
    row = world.resume(run, until="awaiting_approval")
    assert [p for p, _, _ in world.posts()] == ["pay_9002"], "the second refund is asked about as well"
    asked = Approval.objects.filter(run_id=row.pk)
    assert [words_asked_with(a) for a in asked] == [["lawyer", "fraud"], ["lawyer", "fraud"]]


def test_words_between_the_gate_and_the_intent_stop_a_refund_that_needed_nobody(world: World) -> None:
    run = world.admit(script=[*gather(), SMALL, SMALL, final()])
    world.settings(AGENT_MODELS=world.scripts[str(run.pk)])
    worker_dies(run, after="approved")
    world.message(run, LAW)
    row = world.resume(run)
    assert (row.status, world.posts(), world.refunds()) == ("awaiting_approval", [], [])
    assert words_asked_with(world.approval(run)) == ["lawyer", "fraud"]


def test_new_words_make_a_granted_approval_be_asked_anew(world: World) -> None:
    """From the second message on an approval is not void by itself; what its approver never saw voids it still."""
    run = world.start(script=[*gather(), refund(), refund(), refund(), final()])
    world.message(run, "Anything new?")
    world.resume(run, until="awaiting_approval")
    world.approve(run)
    worker_dies(run, after="approved")
    world.message(run, LAW)
    row = world.resume(run)
    assert (row.status, world.posts(), world.refunds()) == ("awaiting_approval", [], [])
    assert words_asked_with(world.approval(run)) == ["lawyer", "fraud"]
    world.message(run, f"I say it again. {LAW}")
    assert world.resume(run).status == "awaiting_approval"
    assert world.approval(run).status == "pending", "the same words void nothing again"
    world.approve(run)
    assert world.resume(run, until="completed").outcome == "refunded"


def test_words_during_a_write_leave_its_reconciliation_alone(world: World) -> None:
    run = world.admit(script=[*gather(), SMALL, refund("pay_9001", "500.00"), final()])
    world.settings(AGENT_MODELS=world.scripts[str(run.pk)])
    worker_dies(run, after="post")
    world.message(run, LAW)
    world.later(run, 60)
    row = world.resume(run)
    assert [p for p, _, _ in world.posts()] == ["pay_9002"], "the write that was released goes its way"
    assert row.status == "awaiting_approval" and words_asked_with(world.approval(run)) == ["lawyer", "fraud"]


def test_asking_again_asks_with_the_words(world: World) -> None:
    world.profile(approval_ttl_s=1)
    run = world.start(script=[*gather(), SMALL, final()], goal=f"Charged twice. {LAW}")
    world.resume(run, until="approval_expired", patience_s=2)
    store.append_input(str(run.pk), kind="ask_again", message_id="a1", text="", by="staff:lead_17")
    row = world.resume(run)
    assert (row.status, world.posts(), world.refunds()) == ("awaiting_approval", [], [])
    assert words_asked_with(world.approval(run)) == ["lawyer", "fraud"]


# --- whose lists ---------------------------------------------------------------------------------------------


def test_lists_are_frozen_at_admission(world: World) -> None:
    run = world.admit(script=[*gather(), SMALL, final()], goal="Charged twice, by black magic.")
    world.profile(sensitive={"en": {"approval": ["black magic"], "person": ["charged twice"]}})
    assert world.resume(run).status == "completed"
    later = world.admit("req-2", [*gather(), refund("pay_9001", "500.00"), final()], goal="It was black magic.")
    row = world.resume(later)
    assert row.status == "awaiting_approval" and len(world.posts()) == 1
    assert words_asked_with(world.approval(later)) == ["black magic"]


def test_contract_of_before_the_word_lists_is_read_with_the_shipped_ones(world: World) -> None:
    run = world.admit(script=[*gather(), refund(), final()], goal=f"Charged twice. {DESPAIR}")
    contract = {name: value for name, value in run.contract.items() if name != "sensitive"}
    Run.objects.filter(pk=run.pk).update(contract=json.loads(canonical_text(contract)))
    world.resume(run)
    assert handed_over(world, run).model_calls == 0


def test_record_names_the_words_to_staff_alone(world: World) -> None:
    run = world.start(script=[*gather(), refund(), final()], goal=f"Charged twice. {DESPAIR}")
    told = Event.objects.get(run=run, type="notice", meta__contains="sensitive_words")
    assert told.meta == {"to": "staff", "error": "sensitive_words"} and told.payload == {"words": ["kill myself"]}
    handed_over(world, run)


@pytest.mark.parametrize("words", [DESPAIR, LAW], ids=["to a person", "to an approval"])
def test_recorded_run_replays_the_same(world: World, words: str) -> None:
    run = world.start(script=[*gather(), SMALL, final()])
    other = world.admit("req-2", [*gather(), refund("pay_9001", "500.00"), final()], goal=f"Charged twice. {words}")
    world.resume(other)
    for one in (run, other):
        out = io.StringIO()
        call_command("replay", str(one.pk), stdout=out, skip_checks=True)  # exits 1 where a transition differs
        assert out.getvalue()
    assert [p for p, _, _ in world.posts()] == ["pay_9002"]
    assert len(world.refunds()) == 1


def test_run_with_words_during_its_write_replays_the_same(world: World) -> None:
    run = world.start(script=[*gather(), refund(), final()])
    world.approve(run)
    worker_dies(run, after="post")
    world.message(run, DESPAIR)
    world.later(run, 60)
    world.resume(run, until="completed")
    out = io.StringIO()
    call_command("replay", str(run.pk), stdout=out, skip_checks=True)
    assert out.getvalue() and len(world.refunds()) == 1
