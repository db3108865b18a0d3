"""What is kept of a decision: reason code and words, who learns which, a row that stands, and how risky it was."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction
from django.test import Client

from agentsite import dbtime
from agentsite.refusals import Refusal
from approvals import queue
from approvals.models import Approval, Decision
from runs.models import Run
from tests import approving
from tests.approving import decide
from tests.world import World

pytestmark = pytest.mark.django_db
LIST = "/admin/approvals/approval/"
TOLD = "The records do not show enough to support this refund."


@pytest.fixture
def asked() -> Approval:
    return Approval.objects.get(pk=approving.ask(approving.run()))


@pytest.fixture
def lead(db: None) -> User:
    return approving.person()


def refused(approval: Approval, user: User, decision: str, **sent: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        decide(approval, user, decision, **sent)
    return caught.value


# --- reasons -----------------------------------------------------------------------------------------------


def test_a_listed_reason_is_what_the_customer_learns_and_the_words_stay_with_staff(asked: Approval, lead: User) -> None:
    decide(asked, lead, "reject", reason_code="evidence_insufficient", reason="He told me so on the phone, see #4711")
    asked.refresh_from_db()
    assert (asked.reason_code, asked.reason) == ("evidence_insufficient", TOLD)
    row = Decision.objects.get()
    assert (row.reason_code, row.reason) == ("evidence_insufficient", "He told me so on the phone, see #4711")


@pytest.mark.parametrize("code", ["", "other"])
def test_without_a_listed_reason_the_words_are_what_he_learns(asked: Approval, lead: User, code: str) -> None:
    assert refused(asked, lead, "reject", reason_code=code).slug == "reason-required"
    decide(asked, lead, "reject", reason_code=code, reason="The goods were kept.")
    asked.refresh_from_db()
    assert (asked.reason_code, asked.reason, asked.status) == (code, "The goods were kept.", "rejected")


@pytest.mark.parametrize(("decision", "code"), [("reject", "no_such"), ("reject", "duplicate_confirmed"),
                                                ("approve", "suspected_fraud"), ("approve", "other")])  # fmt: skip
def test_a_reason_must_be_one_for_this_decision(asked: Approval, lead: User, decision: str, code: str) -> None:
    refusal = refused(asked, lead, decision, reason_code=code, reason="because")
    assert (refusal.status, refusal.slug) == (422, "unknown-reason")
    assert refusal.errors is not None and refusal.errors[0]["pointer"] == "/reason_code"
    asked.refresh_from_db()
    assert asked.status == "pending"


def test_an_approve_keeps_its_reason_and_tells_nobody(asked: Approval, lead: User) -> None:
    decide(asked, lead, reason_code="duplicate_confirmed", reason="seen both captures")
    asked.refresh_from_db()
    assert (asked.reason_code, asked.reason, asked.status) == ("duplicate_confirmed", "seen both captures", "approved")


def test_rest_takes_a_code_and_needs_none(asked: Approval, lead: User) -> None:
    client = approving.signed_in(lead)
    path = f"/api/v1/approvals/{asked.pk}/decision"
    body = {"decision": "reject", "action_hash": asked.action_hash}
    for more, status in (({"reason_code": "no_such"}, 422), ({"reason_code": 5}, 400), ({}, 422),
                         ({"reason_code": "wrong_amount"}, 200)):  # fmt: skip
        answer = client.post(path, json.dumps({**body, **more}), content_type="application/json")
        assert answer.status_code == status, more
    assert (answer.json()["reason_code"], answer.json()["reason"]) == (
        "wrong_amount", "The proposed amount was not correct.",
    )  # fmt: skip
    assert answer.json()["decisions"][0]["reason"] == ""


@pytest.mark.django_db(transaction=True)
def test_the_told_reason_reaches_model_record_and_customer_and_the_words_none_of_them(world: World) -> None:
    """M41."""
    run = world.start()
    asked = world.approval(run)
    queue.decide(
        asked.pk, world.person(), "reject", asked.action_hash, "secret suspicion", reason_code="evidence_insufficient"
    )  # fmt: skip
    run = world.resume(run)
    [seen] = run.observations.filter(kind="decision")
    assert seen.content == {"decision": "rejected", "reason": TOLD}
    [event] = world.events(run, "approval.decided")
    assert event["reason"] == TOLD
    assert f"The reason given: “{TOLD}”" in world.said(run)
    assert "suspicion" not in world.said(run) + json.dumps([seen.content, event, *world.raw_turns(run)])
    assert (run.outcome, world.posts()) == ("rejected", [])


def test_the_page_says_who_learns_what_and_shows_code_and_words(asked: Approval, lead: User) -> None:
    client = approving.signed_in(lead)
    page = approving.body(client, f"{LIST}{asked.pk}/change/")
    assert "tells the customer that reason, and your words stay with staff" in page
    assert f'data-told="{TOLD}"' in page
    sent = {"decision": "reject", "action_hash": asked.action_hash, "reason_code": "suspected_fraud", "reason": "third"}
    client.post(f"{LIST}{asked.pk}/change/", sent)
    page = approving.body(client, f"{LIST}{asked.pk}/change/")
    assert "Suspected fraud (not said to the customer)" in page and "third" in page


# --- rows that stand ---------------------------------------------------------------------------------------


@pytest.fixture
def kept(asked: Approval, lead: User) -> Decision:
    """A decision, in a database as it is outside tests: on SQLite their flush takes one trigger away."""
    stand = importlib.import_module("approvals.migrations.0003_decisions_stand")
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute(stand.SQLITE[1])
    decide(asked, lead, reason="seen")
    return Decision.objects.get()


@pytest.mark.parametrize(
    "change",
    [{"decision": "reject"}, {"counted": False}, {"by": "someone"}, {"user_id": None}, {"reason": "another"},
     {"at": dbtime.now}, {"screen_hash": "sha256:0"}, {"attested": "I checked"}, {"refusal": "x"},
     {"address": "::1"}, {"action_hash": "sha256:0"}, {"reason_code": "other"}],
)  # fmt: skip
def test_a_decision_is_never_changed(kept: Decision, change: dict[str, Any]) -> None:
    new = {name: value() if callable(value) else value for name, value in change.items()}
    with pytest.raises(DatabaseError), transaction.atomic():
        Decision.objects.filter(pk=kept.pk).update(**new)
    for name, value in new.items():
        setattr(kept, name, value)
    with pytest.raises(DatabaseError), transaction.atomic():
        kept.save()
    assert Decision.objects.get().decision == "approve"


def test_a_decision_is_never_deleted(kept: Decision) -> None:
    for delete in (kept.delete, Decision.objects.all().delete, _by_hand):
        with pytest.raises(DatabaseError), transaction.atomic():
            delete()
    assert Decision.objects.count() == 1


def _by_hand() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM approvals_decision")


def test_an_erasure_takes_the_words_alone(kept: Decision) -> None:
    Decision.objects.filter(pk=kept.pk).update(reason="")
    row = Decision.objects.get()
    assert (row.reason, row.by, row.decision, row.at) == ("", "lead_17", "approve", kept.at)


def test_no_door_changes_or_deletes_a_decision(kept: Decision) -> None:
    root = approving.signed_in(approving.person("root", is_superuser=True))
    for path in ("/admin/approvals/decision/", f"/admin/approvals/decision/{kept.pk}/delete/"):
        assert root.post(path, {"post": "yes"}).status_code == 404
    root.post(LIST, {"action": "delete_selected", "_selected_action": [kept.approval_id], "post": "yes"})
    assert root.post(f"{LIST}{kept.approval_id}/delete/", {"post": "yes"}).status_code == 403
    root.post(f"/admin/auth/user/{kept.user_id}/delete/", {"post": "yes"})
    assert Decision.objects.get().user_id == kept.user_id


def test_every_refusal_is_a_row_with_who_from_where_and_what_was_shown(asked: Approval) -> None:
    viewer = approving.person("viewer", may=("view_approval",))
    client = Client(REMOTE_ADDR="10.1.2.3")
    client.force_login(viewer)
    sent = {"decision": "approve", "action_hash": asked.action_hash, "screen_hash": "sha256:seen"}
    client.post(f"{LIST}{asked.pk}/change/", sent)
    row = Decision.objects.get()
    assert (row.counted, row.refusal, row.by, row.address, row.screen_hash) == (
        False, "not-permitted", "viewer", "10.1.2.3", "sha256:seen",
    )  # fmt: skip
    assert abs((dbtime.now() - row.at).total_seconds()) < 60


@pytest.mark.parametrize(
    "may", ["view_approval", "decide_large_approval", "settle_write", "pause_tenant", "operate_run", "view_run"]
)
def test_no_other_permission_decides(asked: Approval, may: str) -> None:
    user = approving.person("ann", may=(may,))
    for decision in ("approve", "reject"):
        assert refused(asked, user, decision, reason="no").slug == "not-permitted"
    asked.refresh_from_db()
    assert asked.status == "pending"


# --- risk --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "level"),
    [({}, 0), ({"large": True}, 2), ({"required": 2}, 2),
     ({"checks": [{"name": "sensitive_words", "ok": True, "inputs": {"words": ["court"]}}]}, 1)],
)  # fmt: skip
def test_risk_is_set_with_the_question(changes: dict[str, Any], level: int, lead: User) -> None:
    asked = Approval.objects.get(pk=approving.ask(approving.run(), **changes))
    assert asked.risk == level
    page = approving.body(approving.signed_in(lead), f"{LIST}{asked.pk}/change/")
    assert {0: ">ordinary<", 1: ">raised<", 2: ">high<"}[level] in page


def test_a_customer_who_writes_again_raises_it(lead: User) -> None:
    row = approving.run()
    first = Approval.objects.get(pk=approving.ask(row))
    queue.show_message(first.pk, "wait", dbtime.now())
    first.refresh_from_db()
    assert first.risk == 1
    queue.void(str(row.pk), "message")
    second = Approval.objects.get(pk=approving.ask(row))
    assert second.risk == 1
    assert "an earlier approval of this run became void" in approving.body(
        approving.signed_in(lead), f"{LIST}{second.pk}/change/"
    )
    queue.show_message(second.pk, "wait", dbtime.now())
    large = Approval.objects.get(pk=approving.ask(approving.run(request_id="r2"), large=True))
    queue.show_message(large.pk, "wait", dbtime.now())
    large.refresh_from_db()
    assert large.risk == 2
    assert Run.objects.count() == 2
