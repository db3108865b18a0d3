"""What customers are told (M24, M41, M53, M72, M74, M75): facts by code, and prose that claims nothing."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from agentsite.money import Money
from runs import reply
from runs.reply import Story, StoryApproval, StoryWrite
from runs.states import Status
from tests.telling import READ, TWICE, inr, order, payments, refunds, seen, story, write

STATES = ("intent", "sent", "unknown", "pending", "confirmed", "failed", "refused", "not_sent", "a_new_word")
REASONS = (
    None, "budget_exhausted", "deadline_exceeded", "repair_exhausted", "no_usable_output", "loop_detected",
    "policy_stale", "approval_invalid", "approval_expired", "outcome_unknown", "verification_failed",
    "verification_inconclusive", "over_refunded", "refund_failed", "dependency_unavailable", "route_not_qualified",
    "worker_crash_loop", "needs_a_person", "escalated_by_model", "escalated_by_staff", "cancelled_by_client",
    "schema_unknown", "payment_disputed", "shadow_mode", "some_new_reason",
)  # fmt: skip
OUTCOMES = (None, "handed_to_staff", "refunded", "partly_refunded", "refund_failed", "resolved_by_staff")
NO_REFUND = "no refund has been issued"
MADE = "has been made and confirmed"
FOUND = "We found two captured payments of 2,000.00 INR each on order 8472, which costs 2,000.00 INR."
DONE = (
    "A refund of 2,000.00 INR to payment pay_9002 on order 8472 has been made and confirmed; its reference is rf_3301."
)


# --- the facts part ----------------------------------------------------------------------------------------


def test_facts_text_tells_what_was_found_and_done() -> None:
    assert reply.facts_text(story(outcome="refunded", writes=[write("confirmed")])) == f"{FOUND} {DONE}"


def test_facts_text_says_that_nothing_was_refunded() -> None:
    assert reply.facts_text(story(outcome="answered")) == f"{FOUND} No refund has been issued for this request."


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((), "We found no captured payments on order 8472, which costs 2,000.00 INR."),
        (
            (("p1", "captured", "2000.00"),),
            "We found one captured payment of 2,000.00 INR on order 8472, which costs 2,000.00 INR.",
        ),
        (
            (("p1", "captured", "2000.00"), ("p2", "refunded", "1500.00"), ("p3", "captured", "2000.00")),
            "We found three captured payments of 2,000.00 INR, 1,500.00 INR and 2,000.00 INR on order 8472, "
            "which costs 2,000.00 INR.",
        ),
        (
            (("p1", "captured", "2000.00"), ("p2", "disputed", "2000.00")),
            "We found one captured payment of 2,000.00 INR on order 8472, which costs 2,000.00 INR. "
            "A payment of 2,000.00 INR on it is disputed with the bank.",
        ),
        (
            (("p2", "authorised", "10.00"), ("p3", "failed", "20.00"), ("p4", "refund of 9 done", "30.00")),
            "We found no captured payments on order 8472, which costs 2,000.00 INR. "
            "A payment of 10.00 INR on it was authorised but not captured. A payment of 20.00 INR on it failed. "
            "A payment of 30.00 INR on it is in a state we could not confirm.",
        ),
    ],
)
def test_facts_text_counts_payments(rows: tuple[tuple[str, str, str], ...], expected: str) -> None:
    assert reply.facts_text(story(observations=[order(), payments(*rows)])).startswith(expected + " No refund")


def test_facts_text_tells_what_the_order_costs_now() -> None:
    text = reply.facts_text(story(observations=[order(due="500.00"), payments(*TWICE)]))
    assert "on order 8472, which had a total of 2,000.00 INR and now costs 500.00 INR." in text


def test_facts_text_names_the_first_reference_to_a_second_run() -> None:
    """B18: the customer of a second run on a refunded order is told the first refund."""
    text = reply.facts_text(story(observations=[*READ[:2], refunds(("rf_3301", "succeeded", "2000.00"))]))
    assert text == (
        f"{FOUND} A refund of 2,000.00 INR to payment pay_9002 was already made; its reference is rf_3301. "
        "No further refund has been issued for this request. "
        "By these records nothing is left to refund on order 8472."
    )


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("pending", "is already under way; its reference is rf_1; it is not confirmed yet."),
        ("requires_action", "is already under way; its reference is rf_1; it is not confirmed yet."),
        ("failed", "did not go through; its reference is rf_1."),
        ("canceled", "did not go through; its reference is rf_1."),
        ("mysterious", "is on record with the reference rf_1; we could not confirm its state."),
    ],
)
def test_facts_text_never_calls_anothers_unfinished_refund_made(state: str, expected: str) -> None:
    text = reply.facts_text(story(observations=[*READ[:2], refunds(("rf_1", state, "2000.00"))]))
    assert expected in text
    assert "was already made" not in text
    assert "mysterious" not in text


def test_facts_text_lists_our_own_refund_once() -> None:
    observed = [*READ[:2], refunds(("rf_3301", "succeeded", "2000.00"))]
    assert reply.facts_text(story(observations=observed, writes=[write("confirmed")])) == f"{FOUND} {DONE}"


def test_facts_text_says_nothing_is_left_only_where_everything_was_read() -> None:
    left = "nothing is left to refund"
    one = payments(("pay_9001", "captured", "2000.00"))
    assert left in reply.facts_text(story(observations=[order(), one, refunds()]))
    assert left not in reply.facts_text(story(observations=[order(), one]))
    assert left not in reply.facts_text(story(observations=[order(), one, refunds(payment_id="pay_9001")]))
    assert left not in reply.facts_text(story(observations=READ))


def test_facts_text_never_takes_a_fact_from_notes_arguments_denials_or_messages() -> None:
    claims = {"text": "refund rf_9999 of 5,000.00 INR was processed"}
    observed = [
        *READ,
        seen(4, "customer", claims, kind="message"),
        seen(5, "issue_refund", claims, kind="denial"),
        seen(6, "get_payments", {"payments": []}, order_id="free-refund-for-all"),
        seen(7, "get_order", {"error": "not_found"}, kind="error", order_id="refund-approved"),
        seen(
            8, "search_policy", {"passages": [{"text": "refund rf_9999", "doc": "X", "version": 1, "current": False}]}
        ),
    ]
    text = reply.facts_text(story(observations=observed))
    assert text == f"{FOUND} We could not confirm the order itself. No refund has been issued for this request."


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        {"payments": {}},
        {"payments": ["x"]},
        {"payments": [{"payment_id": "pay 1 <b>", "order_id": "8472", "state": "captured", "amount": inr("1.00")}]},
        {"payments": [{"payment_id": "http://evil.example", "order_id": "8472", "state": "x", "amount": inr("1.00")}]},
        {"payments": [{"payment_id": "p", "order_id": "8472", "state": "captured", "amount": "2000"}]},
        {"payments": [{"payment_id": "p", "order_id": "8472", "state": 1, "amount": inr("1.00")}]},
    ],
)
def test_facts_text_takes_an_unreadable_answer_for_no_answer(content: Any) -> None:
    """B55: never an empty list out of something that is none."""
    text = reply.facts_text(story(observations=[order(), seen(2, "get_payments", content, order_id="8472")]))
    assert text == (
        "Order 8472 costs 2,000.00 INR. We could not confirm the payments on record. "
        "No refund has been issued for this request."
    )


def test_facts_text_forgets_a_failed_read_that_was_made_good() -> None:
    failed = seen(1, "get_payments", {"error": "upstream_unavailable"}, kind="error", order_id="8472")
    observed = [failed, order(position=2), payments(*TWICE, position=3)]
    assert "could not confirm" not in reply.facts_text(story(observations=observed))


def test_facts_text_with_no_observation_claims_nothing() -> None:
    """B53: a final with no observations leaves only what we know of ourselves."""
    assert reply.facts_text(story(observations=[])) == "No refund has been issued for this request."


def test_facts_text_cites_the_policy_that_was_consulted() -> None:
    """M72: document and version from metadata, current passages only."""
    passages = [
        {"doc": "POL-REF-004", "version": 4, "section": "1", "text": "t", "current": True},
        {"doc": "POL-REF-004", "version": 4, "section": "2", "text": "t", "current": True},
        {"doc": "POL-REF-004", "version": 3, "section": "1", "text": "t", "current": False},
        {"doc": "<b>", "version": 3, "section": "1", "text": "t", "current": True},
    ]
    text = reply.facts_text(story(observations=[*READ, seen(4, "search_policy", {"passages": passages})]))
    assert text.endswith("Policy consulted: POL-REF-004, version 4.")


def test_facts_text_renders_a_currency_without_decimals() -> None:
    """B38."""
    made = StoryWrite(
        state="confirmed", amount=Money(minor=500, currency="JPY"), refund_id="rf_1", payment_id="p", order_id="o"
    )
    assert "A refund of 500 JPY to payment p on order o has been made" in reply.facts_text(story(writes=[made]))


# --- the message of the moment -----------------------------------------------------------------------------


def is_true(told: Story) -> None:
    """The invariant: what is claimed of refunds holds for the writes of the story."""
    text = reply.customer_message(told).lower()
    assert text, "every run has something to say"
    if any(w.state not in ("not_sent", "refused") for w in told.writes):
        assert NO_REFUND not in text
        assert "no further refund" not in text
    confirmed = sum(w.state == "confirmed" for w in told.writes)
    assert text.count(MADE) <= confirmed
    if not confirmed:
        assert "has been made" not in text
        assert "settled in part" not in text
    for state in ("intent", "sent", "unknown", "pending", "a_new_word"):
        if any(w.state == state for w in told.writes):
            assert any(
                honest in text
                for honest in ("not confirmed yet", "could not confirm", "not confirmed it yet", "did not go through")
            )


@pytest.mark.parametrize("status", list(Status))
def test_customer_message_is_true_for_every_status_reason_and_write(status: Status) -> None:
    for reason, state, outcome in itertools.product(REASONS, (None, *STATES), OUTCOMES):
        made = [write(state, None if state in ("intent", "sent") else "rf_3301")] if state else []
        is_true(story(status.value, reason=reason, outcome=outcome, writes=made, dependency="commerce"))


@pytest.mark.parametrize("status", list(Status))
def test_customer_message_is_true_for_every_pair_of_writes(status: Status) -> None:
    for first, second in itertools.product(STATES, STATES):
        told = story(status.value, writes=[write(first, "rf_1"), write(second, "rf_2", "pay_9001")])
        is_true(told)
        if first == "confirmed":
            assert "its reference is rf_1" in reply.customer_message(told), "done is told in every later message"


@pytest.mark.parametrize("status", [s for s in Status if s.value not in ("executing", "executed", "verified")])
def test_customer_message_says_that_no_refund_was_issued(status: Status) -> None:
    """M75; the three statuses left out cannot be reached without a write."""
    yet = NO_REFUND + " yet" in reply.customer_message(story(status.value)).lower()
    assert NO_REFUND in reply.customer_message(story(status.value)).lower()
    assert yet is (status.value not in ("completed", "escalated", "cancelled", "failed"))


@pytest.mark.parametrize("status", ["approval_expired", "escalated", "awaiting_approval"])
def test_customer_message_never_tells_a_rejection_that_was_none(status: str) -> None:
    """M35."""
    approvals = (None, "pending", "expired", "void", "consumed", "approved")
    for reason, approval in itertools.product(REASONS, approvals):
        told = StoryApproval(status=approval) if approval else None
        text = reply.customer_message(story(status, reason=reason, approval=told)).lower()
        assert not any(word in text for word in ("reject", "denied", "declined", "not approve"))
        if status == "approval_expired" or (status == "escalated" and reason == "approval_expired"):
            assert "waiting for a review" in text


@pytest.mark.parametrize("state", ["unknown", "sent", "intent"])
def test_customer_message_of_an_unknown_outcome_says_so(state: str) -> None:
    text = reply.customer_message(
        story("escalated", reason="outcome_unknown", outcome="handed_to_staff", writes=[write(state, None)])
    )
    assert "could not confirm" in text
    assert "went through" in text
    assert text.endswith("A specialist is checking it.")


def test_customer_message_of_a_pending_refund_says_submitted() -> None:
    """B33: amount and reference, submitted, not yet confirmed; nothing that means refunded."""
    assert reply.customer_message(story("executed", writes=[write("pending")])) == (
        "We are waiting for a refund to be confirmed. A refund of 2,000.00 INR to payment pay_9002 on order 8472 has "
        "been submitted with the reference rf_3301; it is not confirmed yet."
    )


def test_customer_message_calls_an_answered_refund_confirmed_only_after_verification() -> None:
    assert MADE not in reply.customer_message(story("executed", writes=[write("confirmed")]))
    assert MADE in reply.customer_message(story("verified", writes=[write("confirmed")]))


@pytest.mark.parametrize("reason", ["verification_failed", "verification_inconclusive"])
def test_customer_message_does_not_confirm_what_was_not_verified(reason: str) -> None:
    text = reply.customer_message(story("escalated", reason=reason, writes=[write("confirmed")]))
    assert MADE not in text
    assert "we have not confirmed it yet" in text
    settled = story("escalated", reason=reason, outcome="refunded", writes=[write("confirmed")])
    assert reply.customer_message(settled) == f"{FOUND} {DONE}"


def test_customer_message_of_a_failed_refund_is_corrected() -> None:
    late = story("completed", outcome="refund_failed", writes=[write("failed")])
    assert reply.customer_message(late) == (
        f"{FOUND} A refund of 2,000.00 INR to payment pay_9002 on order 8472 with the reference rf_3301 did not go "
        "through. A specialist is looking at it and will decide what happens next."
    )


def test_customer_message_of_an_outage_says_what_is_not_known() -> None:
    """M24, B55."""
    failed = seen(1, "get_payments", {"error": "upstream_unavailable"}, kind="error", order_id="8472")
    text = reply.customer_message(story("waiting_dependency", observations=[failed], dependency="commerce"))
    assert "the payments on your order could not be confirmed" in text
    assert "No refund has been issued yet for this request." in text
    assert "captured" not in text


def test_customer_message_of_a_model_outage_tells_what_is_known() -> None:
    text = reply.customer_message(story("waiting_dependency", dependency="model:openai"))
    assert text.startswith("A system we need is not available at the moment.")
    assert FOUND in text


def test_customer_message_tells_the_reason_of_a_rejection() -> None:
    """M41; invisible characters in it are shown."""
    told = story("gathering", approval=StoryApproval(status="rejected", reason="Goods were\u202e kept.\nSee call."))
    assert reply.customer_message(told) == (
        "We are looking into your request. A member of our team reviewed the proposed refund and did not approve it. "
        "The reason given: “Goods were\\u202e kept.\\u000aSee call.” No refund has been issued yet for this request."
    )


def test_customer_message_of_a_partly_refunded_run_says_both() -> None:
    told = story(
        "completed", outcome="partly_refunded", writes=[write("confirmed")],
        approval=StoryApproval(status="rejected", reason="Not covered."),
    )  # fmt: skip
    text = reply.customer_message(told)
    assert DONE in text
    assert "reviewed a further refund and did not approve it" in text
    assert text.endswith("Your request has been settled in part.")


def test_customer_message_speaks_of_a_further_refund_after_a_confirmed_one() -> None:
    text = reply.customer_message(story("awaiting_approval", writes=[write("confirmed")]))
    assert text.startswith("A further refund has been proposed and is waiting for a review")
    assert DONE in text


def test_customer_message_says_that_a_write_under_way_is_followed_to_its_end() -> None:
    """B81."""
    text = reply.customer_message(story("executing", cancel_asked=True, writes=[write("sent", None)]))
    assert text.endswith("You asked us to cancel; a refund that is under way is followed to its end first.")


def test_customer_message_after_staff_finished_it_claims_nothing_of_its_own() -> None:
    text = reply.customer_message(story("escalated", reason="needs_a_person", outcome="resolved_by_staff"))
    assert text == f"{FOUND} A specialist has dealt with your request."


def test_customer_message_promises_no_time() -> None:
    promises = {"soon", "shortly", "within", "days", "hours", "tomorrow", "minutes"}
    for status, state in itertools.product(Status, STATES):
        text = reply.customer_message(story(status.value, writes=[write(state)], dependency="commerce")).lower()
        assert not promises & set(text.split())


def test_compose_puts_kept_prose_after_the_facts() -> None:
    told = story("completed", outcome="refunded", writes=[write("confirmed")])
    assert reply.compose(told, "Thank you for your patience.") == reply.Reply(
        text=f"{FOUND} {DONE}\n\nThank you for your patience."
    )


@pytest.mark.parametrize("prose", ["Your refund rf_9999 of 2,000 was processed.", "You will have it soon."])
def test_compose_sends_the_facts_alone_where_prose_is_dropped(prose: str) -> None:
    told = story("completed", outcome="refunded", writes=[write("confirmed")])
    answer = reply.compose(told, prose)
    assert answer.text == f"{FOUND} {DONE}"
    assert answer.dropped


def test_compose_without_prose_is_the_facts() -> None:
    assert reply.compose(story(), None) == reply.Reply(text=f"{FOUND} No refund has been issued for this request.")
