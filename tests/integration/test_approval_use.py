"""What becomes of a question: a yes is used once and in time, a void or expired one never; and who may still."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import transaction

from agentsite import dbtime
from agentsite.tenants.models import StaffTenant
from approvals import queue
from approvals.models import Approval
from tests import approving
from tests.approving import consume, decide, shift

pytestmark = pytest.mark.django_db


@pytest.fixture
def asked() -> Approval:
    return Approval.objects.get(pk=approving.ask(approving.run()))


# --- using, ending -----------------------------------------------------------------------------------------


def approved() -> Approval:
    approval = Approval.objects.get(pk=approving.ask(approving.run()))
    decide(approval, approving.person())
    return approval


def test_an_approval_is_consumed_once() -> None:
    approval = approved()
    assert consume(approval)
    assert not consume(approval)
    approval.refresh_from_db()
    assert approval.status == "consumed"
    assert approval.ended_at is not None


def test_only_an_approved_equal_and_timely_action_is_consumed(asked: Approval) -> None:
    assert not consume(asked)
    decide(asked, approving.person())
    assert not consume(asked, "sha256:" + "0" * 64)
    shift(asked, execute_by=0)
    assert not consume(asked)
    shift(asked, execute_by=30)
    assert consume(asked)


def test_a_rolled_back_intent_leaves_the_approval_usable() -> None:
    approval = approved()
    with pytest.raises(RuntimeError), transaction.atomic():
        assert queue.consume(approval.pk, approval.action_hash)
        raise RuntimeError("no intent after all")
    assert consume(approval)


def test_void_ends_what_is_open_and_nothing_else(asked: Approval) -> None:
    assert queue.void(str(asked.run_id), "message") == asked.pk
    asked.refresh_from_db()
    assert (asked.status, asked.void_reason) == ("void", "message")
    assert queue.void(str(asked.run_id), "message") is None
    used = Approval.objects.get(pk=approving.ask(approving.run(request_id="req-2")))
    decide(used, approving.person())
    consume(used)
    assert queue.void(str(used.run_id), "message") is None
    used.refresh_from_db()
    assert used.status == "consumed"


def test_expire_waits_for_its_time_and_never_ends_a_decision(asked: Approval) -> None:
    assert not queue.expire(asked.pk)
    shift(asked, expires_at=0)
    assert queue.expire(asked.pk)
    assert not queue.expire(asked.pk)
    approval = Approval.objects.get(pk=approving.ask(approving.run(request_id="req-2")))
    decide(approval, approving.person())
    shift(approval, expires_at=-5)
    assert not queue.expire(approval.pk)


def test_show_message_keeps_what_the_customer_wrote(asked: Approval) -> None:
    at = dbtime.now()
    queue.show_message(asked.pk, "please \u202ehurry", at)
    for number in range(60):
        queue.show_message(asked.pk, str(number), at)
    asked.refresh_from_db()
    assert len(asked.messages_shown) == 50
    assert asked.messages_shown[-1]["text"] == "59"
    queue.show_message(asked.pk, "a\u202eb" + "x" * 9000, at)
    asked.refresh_from_db()
    assert asked.messages_shown[-1]["text"].startswith("a\\u202ebx")
    assert len(asked.messages_shown[-1]["text"]) == 4000


# --- who may still -----------------------------------------------------------------------------------------


def test_permitted_while_the_approver_keeps_it_all() -> None:
    assert queue.permitted(approved().pk)


def test_permitted_through_a_group_and_for_two() -> None:
    group = Group.objects.create(name="approvers of a test")
    group.permissions.set(Permission.objects.filter(codename="decide_approval"))
    approval = Approval.objects.get(pk=approving.ask(approving.run(), required=2))
    ann, bob = approving.person("ann", may=()), approving.person("bob")
    ann.groups.add(group)
    decide(approval, ann)
    assert not queue.permitted(approval.pk)
    decide(approval, bob)
    assert queue.permitted(approval.pk)
    ann.groups.clear()
    assert not queue.permitted(approval.pk)


@pytest.mark.parametrize("lost", ["active", "permission", "tenant"])
def test_not_permitted_once_something_is_lost(lost: str) -> None:
    approval = approved()
    lead = User.objects.get(username="lead_17")
    if lost == "active":
        User.objects.filter(pk=lead.pk).update(is_active=False)
    elif lost == "permission":
        lead.user_permissions.clear()
    else:
        StaffTenant.objects.filter(user=lead).delete()
    assert not queue.permitted(approval.pk)


def test_not_permitted_without_a_decision_or_an_approval(asked: Approval) -> None:
    assert not queue.permitted(asked.pk)
    assert not queue.permitted("apr_none")
