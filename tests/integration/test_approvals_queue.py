"""The queue: who may decide, once, in time, on exactly this action; and that a yes is used once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction

from agentsite import dbtime, queues
from agentsite.refusals import Refusal
from approvals import queue
from approvals.models import Approval, Decision
from tests import approving
from tests.approving import counted, decide, shift

pytestmark = pytest.mark.django_db


@pytest.fixture
def asked() -> Approval:
    return Approval.objects.get(pk=approving.ask(approving.run()))


def refused(approval: Approval, user: User, decision: str = "approve", **changes: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        decide(approval, user, decision, **changes)
    return caught.value


def refusals(approval: Approval) -> list[tuple[str, str]]:
    return list(Decision.objects.filter(approval=approval, counted=False).values_list("by", "refusal"))


# --- asking ------------------------------------------------------------------------------------------------


def test_ask_stores_the_question_and_expires_exactly_after_its_life(asked: Approval) -> None:
    assert (asked.status, asked.required, asked.large, asked.earlier) == ("pending", 1, False, None)
    assert asked.expires_at - asked.requested_at == timedelta(seconds=86_400)
    assert abs(dbtime.now() - asked.requested_at) < timedelta(seconds=20)
    assert (asked.amount_minor, asked.currency) == (200_000, "INR")
    assert asked.args["amount"] == {"amount": "2000.00", "currency": "INR"}
    assert asked.facts["approved_ttl_s"] == 3_600
    assert (asked.decided_at, asked.decided_by, asked.execute_by) == (None, None, None)


def test_ask_outside_a_transaction_is_our_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    row = approving.run()
    monkeypatch.setattr(connection, "in_atomic_block", False)
    with pytest.raises(AssertionError):
        queue.ask(approving.question(row))


def test_ask_refuses_a_second_open_approval_of_a_run() -> None:
    row = approving.run()
    approving.ask(row)
    with pytest.raises(IntegrityError), transaction.atomic():
        queue.ask(approving.question(row))


def test_ask_remembers_the_same_action_approved_and_then_void() -> None:
    row, lead = approving.run(), approving.person()
    first = Approval.objects.get(pk=approving.ask(row))
    decide(first, lead)
    assert queue.void(str(row.pk), "message") == first.pk
    assert Approval.objects.get(pk=approving.ask(row)).earlier == first.pk


def test_ask_remembers_no_other_action_and_none_that_was_never_approved() -> None:
    row, lead = approving.run(), approving.person()
    decide(Approval.objects.get(pk=approving.ask(row)), lead)
    queue.void(str(row.pk), "message")
    other = approving.ask(row, action_hash="sha256:other")
    assert Approval.objects.get(pk=other).earlier is None
    queue.void(str(row.pk), "message")
    third = approving.ask(row, action_hash="sha256:other")
    assert Approval.objects.get(pk=third).earlier is None


def test_latest_is_the_newest_even_within_one_clock_tick() -> None:
    row = approving.run()
    assert queue.latest(str(row.pk)) is None
    for _ in range(5):
        last = approving.ask(row)
        newest = queue.latest(str(row.pk))
        assert newest is not None and newest.pk == last
        queue.void(str(row.pk), "again")


# --- deciding ----------------------------------------------------------------------------------------------


def test_approve_is_recorded_with_person_time_and_deadline(asked: Approval) -> None:
    lead = approving.person()
    done = decide(asked, lead, reason=" checked ", address="10.0.0.7", screen_hash="sha256:screen")
    asked.refresh_from_db()
    assert (done.kind, done.status, done.remaining, done.by) == ("recorded", "approved", 0, "lead_17")
    assert (asked.status, asked.decided_by, asked.reason, asked.ended_at) == ("approved", "lead_17", "checked", None)
    assert asked.decided_at is not None and asked.execute_by is not None
    assert asked.execute_by - asked.decided_at == timedelta(seconds=3_600)
    row = Decision.objects.get(approval=asked)
    assert (row.user_id, row.by, row.decision, row.counted, row.refusal) == (lead.pk, "lead_17", "approve", True, "")
    assert (row.action_hash, row.screen_hash, row.address) == (asked.action_hash, "sha256:screen", "10.0.0.7")


def test_approve_takes_the_life_of_a_yes_from_the_question_or_the_caller() -> None:
    lead = approving.person()
    kept = Approval.objects.get(pk=approving.ask(approving.run(), approved_ttl_s=60))
    given = Approval.objects.get(pk=approving.ask(approving.run(request_id="req-2")))
    decide(kept, lead)
    decide(given, lead, approved_ttl_s=5)
    for row, seconds in ((kept, 60), (given, 5)):
        row.refresh_from_db()
        assert row.execute_by is not None and row.decided_at is not None
        assert row.execute_by - row.decided_at == timedelta(seconds=seconds)


def test_reject_ends_it_with_its_reason(asked: Approval) -> None:
    done = decide(asked, approving.person(), "reject", reason="The customer kept both items.")
    asked.refresh_from_db()
    assert (done.status, asked.status, asked.reason) == ("rejected", "rejected", "The customer kept both items.")
    assert (asked.execute_by, asked.ended_at) == (None, asked.decided_at)


@pytest.mark.parametrize("reason", ["", "  \n\t "])
def test_reject_without_a_reason_is_refused(asked: Approval, reason: str) -> None:
    refusal = refused(asked, approving.person(), "reject", reason=reason)
    assert (refusal.status, refusal.slug) == (422, "reason-required")
    assert refusal.errors is not None and refusal.errors[0]["pointer"] == "/reason"
    asked.refresh_from_db()
    assert asked.status == "pending"


def test_a_reason_has_a_limit_and_holds_nothing_invisible(asked: Approval) -> None:
    lead = approving.person()
    assert refused(asked, lead, "reject", reason="x" * 2001).slug == "reason-too-long"
    decide(asked, lead, "reject", reason="no \u202e0002 \x00 ylno")
    asked.refresh_from_db()
    assert asked.reason == "no \\u202e0002 \\u0000 ylno"


@pytest.mark.parametrize("decision", ["", "APPROVED ", "approved", "Approve", "yes", "true", "approve "])
def test_only_the_exact_words_decide(asked: Approval, decision: str) -> None:
    refusal = refused(asked, approving.person(), decision)
    assert (refusal.status, refusal.slug) == (400, "invalid-decision")
    asked.refresh_from_db()
    assert asked.status == "pending"
    assert Decision.objects.count() == 0


def test_the_same_decision_again_changes_nothing(asked: Approval) -> None:
    lead = approving.person()
    first = decide(asked, lead)
    again = decide(asked, lead, reason="another")
    assert (again.kind, again.at, again.status) == ("same-again", first.at, "approved")
    assert counted(asked) == [("lead_17", "approve")]
    with transaction.atomic():
        assert queue.consume(asked.pk, asked.action_hash)
    assert decide(asked, lead).kind == "same-again"
    assert counted(asked) == [("lead_17", "approve")]


def test_another_decision_names_the_one_that_stands(asked: Approval) -> None:
    lead, other = approving.person(), approving.person("lead_18")
    decide(asked, lead)
    for user, decision in ((lead, "reject"), (other, "approve"), (other, "reject")):
        refusal = refused(asked, user, decision, reason="no")
        assert (refusal.status, refusal.slug) == (409, "already-decided")
        assert refusal.detail.startswith("lead_17 approved it at ")
    asked.refresh_from_db()
    assert asked.status == "approved"
    assert counted(asked) == [("lead_17", "approve")]
    assert refusals(asked) == [(n, "already-decided") for n in ("lead_17", "lead_18", "lead_18")]


def test_a_wrong_hash_is_refused(asked: Approval) -> None:
    refusal = refused(asked, approving.person(), action_hash="sha256:" + "0" * 64)
    assert (refusal.status, refusal.slug) == (409, "action-changed")
    asked.refresh_from_db()
    assert asked.status == "pending"
    assert refusals(asked) == [("lead_17", "action-changed")]


def test_a_click_one_second_early_works_and_one_late_is_refused() -> None:
    lead = approving.person()
    early = Approval.objects.get(pk=approving.ask(approving.run()))
    late = Approval.objects.get(pk=approving.ask(approving.run(request_id="req-2")))
    shift(early, expires_at=1)
    shift(late, expires_at=0)
    assert decide(early, lead).status == "approved"
    refusal = refused(late, lead)
    assert (refusal.status, refusal.slug) == (409, "approval-expired")
    late.refresh_from_db()
    assert late.status == "pending"
    assert refusals(late) == [("lead_17", "approval-expired")]


def test_an_expired_approval_stays_expired(asked: Approval) -> None:
    shift(asked, expires_at=-1)
    assert queue.expire(asked.pk)
    assert refused(asked, approving.person(), "reject", reason="no").slug == "approval-expired"
    asked.refresh_from_db()
    assert asked.status == "expired"


def test_a_void_approval_is_refused_even_to_who_approved_it(asked: Approval) -> None:
    lead = approving.person()
    decide(asked, lead)
    queue.void(str(asked.run_id), "message")
    refusal = refused(asked, lead)
    assert (refusal.status, refusal.slug) == (409, "approval-void")


def test_nobody_decides_what_he_created() -> None:
    root = approving.person("root", is_superuser=True)
    for number, user in enumerate((approving.person(), root)):
        row = approving.run(request_id=f"req-{number}", created_by=f"user:{user.pk}")
        approval = Approval.objects.get(pk=approving.ask(row))
        refusal = refused(approval, user)
        assert (refusal.status, refusal.slug) == (403, "own-run")
        approval.refresh_from_db()
        assert approval.status == "pending"
        assert refusals(approval) == [(user.username, "own-run")]


def test_without_the_permission_nothing_changes(asked: Approval) -> None:
    viewer = approving.person("viewer", may=("view_approval",))
    refusal = refused(asked, viewer)
    assert (refusal.status, refusal.slug) == (403, "not-permitted")
    assert refusals(asked) == [("viewer", "not-permitted")]


def test_a_large_one_needs_the_second_permission() -> None:
    row = approving.run()
    approval = Approval.objects.get(pk=approving.ask(row, large=True))
    assert refused(approval, approving.person()).slug == "not-permitted"
    senior = approving.person("senior", may=(*approving.DECIDER, "decide_large_approval"))
    assert decide(approval, senior).status == "approved"


def test_permissions_are_read_afresh_and_not_from_the_session(asked: Approval) -> None:
    lead = approving.person()
    assert lead.has_perm("approvals.decide_approval")
    User.objects.get(pk=lead.pk).user_permissions.clear()
    assert refused(asked, lead).slug == "not-permitted"


def test_another_tenants_approval_is_as_unknown_as_none(asked: Approval) -> None:
    stranger = approving.person("stranger", tenants=("t_other",))
    foreign = refused(asked, stranger)
    with pytest.raises(Refusal) as caught:
        queue.decide("apr_none", stranger, "approve", asked.action_hash, "")
    random = caught.value
    assert (foreign.status, foreign.slug, foreign.title, foreign.detail) == (
        random.status, random.slug, random.title, random.detail,
    )  # fmt: skip
    assert foreign.status == 404
    assert Decision.objects.count() == 0


def test_two_people_are_two_different_people() -> None:
    approval = Approval.objects.get(pk=approving.ask(approving.run(), required=2))
    first, second = approving.person("ann"), approving.person("bob")
    done = decide(approval, first)
    assert (done.kind, done.status, done.remaining) == ("recorded", "pending", 1)
    assert decide(approval, first).kind == "same-again"
    assert refused(approval, first, "reject", reason="no").slug == "already-decided"
    approval.refresh_from_db()
    assert (approval.status, approval.decided_by, queue.remaining(approval)) == ("pending", None, 1)
    done = decide(approval, second)
    assert (done.status, done.remaining) == ("approved", 0)
    approval.refresh_from_db()
    assert (approval.status, approval.decided_by) == ("approved", "bob")
    assert queue.deciders(approval.pk) == ("ann", "bob")


def test_one_rejection_ends_a_question_for_two() -> None:
    approval = Approval.objects.get(pk=approving.ask(approving.run(), required=2))
    decide(approval, approving.person("ann"))
    done = decide(approval, approving.person("bob"), "reject", reason="Wrong payment")
    assert (done.status, done.remaining) == ("rejected", 0)
    assert counted(approval) == [("ann", "approve"), ("bob", "reject")]
    assert queue.deciders(approval.pk) == ("ann",)


# --- the nudge ---------------------------------------------------------------------------------------------


def test_a_decision_nudges_its_run_once_and_after_the_commit(
    monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    sent: list[tuple[str, str]] = []
    monkeypatch.setattr(queues, "nudge", lambda *hint: sent.append(hint))
    approval = Approval.objects.get(pk=approving.ask(approving.run(), required=2))
    with django_capture_on_commit_callbacks(execute=True) as first:
        decide(approval, approving.person("ann"))
    assert (len(first), sent) == (1, [])  # its log line
    with django_capture_on_commit_callbacks() as second:
        decide(approval, approving.person("bob"))
    assert (len(second), sent) == (2, [])
    for told in second:
        told()
    assert sent == [(str(approval.run_id), "approved")]  # to whoever may make the write
    with django_capture_on_commit_callbacks(execute=True):
        refused(approval, approving.person("cy"))
    assert len(sent) == 1


def test_a_dead_broker_costs_no_decision(
    asked: Approval, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    def dead(*_: Any, **__: Any) -> None:
        raise ConnectionError("broker away")

    monkeypatch.setattr("celery.app.base.Celery.send_task", dead)
    with django_capture_on_commit_callbacks(execute=True):
        assert decide(asked, approving.person()).status == "approved"
    asked.refresh_from_db()
    assert asked.status == "approved"
