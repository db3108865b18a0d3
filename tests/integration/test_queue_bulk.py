"""Reject and assign several at once, and decisions as a file: everything shown before, nothing of other tenants."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentsite.refusals import Refusal
from approvals import holds, queue
from approvals.admin import bulk, exports
from approvals.models import Approval, Decision
from runs.models import Write
from tests import approving
from tests.approving import counted, signed_in
from tests.queues import DECIDES, LIST, chosen, decider, shown, wait

pytestmark = pytest.mark.django_db
WHY = {"reason_code": "not_covered", "reason": "Outside the policy's window."}


@pytest.fixture
def lead() -> User:
    return decider()


@pytest.fixture
def asked() -> list[Approval]:
    return [wait(order) for order in ("one", "two", "three")]


def act(client: Client, name: str, approvals: list[Approval], **more: Any) -> Any:
    """The first step: rows ticked in the list, a button pressed."""
    form = {"action": name, "index": "0", "select_across": "0", "_selected_action": [row.pk for row in approvals]}
    return client.post(f"{LIST}?view=pending", {**form, **more}, follow=True)


def send(client: Client, what: str, approvals: list[Approval], **form: str) -> Any:
    """The second step: the page in between, sent."""
    return client.post(f"{LIST}bulk/{what}/", chosen(approvals, back="?view=pending", **form), follow=True)


def statuses(approvals: list[Approval]) -> list[str]:
    assert not Write.objects.exists()
    return [Approval.objects.get(pk=row.pk).status for row in approvals]


# --- reject ------------------------------------------------------------------------------------------------


def test_reject_shows_every_action_first_and_does_nothing(lead: User, asked: list[Approval]) -> None:
    holds.claim(asked[0].pk, decider("lead_18"))
    page = act(signed_in(lead), "reject_selected", asked).content.decode()
    for row in asked:
        for text in (row.order_id, row.payment_id, row.customer_id, "2,000.00 INR", row.action_hash,
                     "Refund above 1,000 INR needs approval"):  # fmt: skip
            assert text in page, text
    assert "lead_18 is looking at it" in page and "Not covered by the policy" in page
    assert "Reject 3 approvals" in page and not Decision.objects.exists()
    assert not re.search(r"[Aa]pprove", page.split('<form class="card')[1].split("</form>")[0])


def test_each_rejection_is_a_decision_of_its_own_with_reason_and_hash(lead: User, asked: list[Approval]) -> None:
    answer = send(signed_in(lead), "reject", asked, **WHY)
    assert answer.redirect_chain == [(f"{LIST}?view=pending", 302)]
    assert "Rejected: 3 of 3." in answer.content.decode()
    assert statuses(asked) == ["rejected"] * 3
    for row in asked:
        decision = Decision.objects.get(approval=row)
        assert (decision.by, decision.decision, decision.counted) == ("lead_17", "reject", True)
        assert (decision.reason_code, decision.reason) == ("not_covered", "Outside the policy's window.")
        assert (decision.action_hash, decision.address) == (row.action_hash, "127.0.0.1")


def test_what_was_shown_is_kept_with_the_decision(lead: User, asked: list[Approval]) -> None:
    client = signed_in(lead)
    page = act(client, "reject_selected", asked[:1]).content.decode()
    hidden = dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]+)"', page))
    client.post(f"{LIST}bulk/reject/", {**hidden, **WHY})
    decision = Decision.objects.get(approval=asked[0])
    assert decision.screen_hash == bulk.shown(asked[0]) and decision.counted
    assert bulk.shown(asked[1]) != decision.screen_hash


def test_what_changed_since_is_refused_and_named_and_the_rest_is_done(lead: User, asked: list[Approval]) -> None:
    moved, decided, fine = asked
    own, void = wait("own", created_by=f"user:{lead.pk}"), wait("void")
    queue.void(str(void.run_id), "message")
    approving.decide(decided, decider("lead_18"))
    form = chosen([*asked, own, void], back="", **WHY)
    form[f"hash:{moved.pk}"] = "sha256:" + "0" * 64
    page = signed_in(lead).post(f"{LIST}bulk/reject/", form, follow=True).content.decode()
    assert "Rejected: 1 of 5." in page
    for text in ("order one, 2,000.00 INR. This is not the action you looked at.",
                 "order two, 2,000.00 INR. This was already decided. lead_18 approved it",
                 "order own, 2,000.00 INR. Nobody decides what they asked for.",
                 "order void, 2,000.00 INR. This approval is void."):  # fmt: skip
        assert f"Not done: {text}" in page, text
    assert statuses([moved, decided, fine, own, void]) == ["pending", "approved", "rejected", "pending", "void"]
    refused = Decision.objects.filter(counted=False, user=lead).values_list("refusal", flat=True)
    assert sorted(refused) == ["action-changed", "already-decided", "approval-void", "own-run"]


@pytest.mark.parametrize(
    "form", [{}, {"reason": "No code"}, {"reason_code": "not_covered"}, {**WHY, "reason": " \u200b\n"},
             {**WHY, "reason_code": "duplicate_confirmed"}, {**WHY, "reason_code": "nonsense"},
             {**WHY, "reason": "x" * 2001}],
)  # fmt: skip
def test_rejection_needs_a_reason_of_the_list_and_words(
    lead: User, asked: list[Approval], form: dict[str, str]
) -> None:
    answer = send(signed_in(lead), "reject", asked, **form)
    assert answer.status_code == 400 and "Reject 3 approvals" in answer.content.decode()
    assert statuses(asked) == ["pending"] * 3 and not Decision.objects.exists()


def test_at_most_fifty_at_once(lead: User, asked: list[Approval], monkeypatch: pytest.MonkeyPatch) -> None:
    assert bulk.MOST == 50
    monkeypatch.setattr(bulk, "MOST", 2)
    client = signed_in(lead)
    for answer in (act(client, "reject_selected", asked), act(client, "reject_selected", [asked[0]], select_across="1"),
                   send(client, "reject", asked, **WHY)):  # fmt: skip
        assert "At most 2 at once. Nothing was changed." in answer.content.decode()
    assert "Choose at least one approval" in send(client, "reject", [], **WHY).content.decode()
    assert statuses(asked) == ["pending"] * 3 and not Decision.objects.exists()


@pytest.mark.parametrize("what", ["approve", "reject_selected", "", "delete_selected"])
def test_there_is_no_bulk_approval_and_no_other_act(lead: User, asked: list[Approval], what: str) -> None:
    client = signed_in(lead)
    assert client.post(f"{LIST}bulk/{what}/", chosen(asked, decision="approve", **WHY)).status_code in (404, 302)
    answer = act(client, what or "approve", asked) if what != "reject_selected" else client.get(f"{LIST}bulk/reject/")
    assert answer.status_code in (200, 405)
    assert not re.search(r'value="approve', shown(client, "?view=pending"))
    assert statuses(asked) == ["pending"] * 3 and not Decision.objects.exists()


def test_bulk_is_for_who_may_decide_with_a_token_of_the_page(lead: User, asked: list[Approval]) -> None:
    viewer = approving.person("viewer", may=("view_approval",))
    blind = approving.person("blind", may=("decide_approval",))
    for user in (viewer, blind):
        for what in ("reject", "assign"):
            assert send(signed_in(user), what, asked, **WHY, to="").status_code == 403
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(lead)
    assert strict.post(f"{LIST}bulk/reject/", chosen(asked, **WHY)).status_code == 403
    assert statuses(asked) == ["pending"] * 3 and not Decision.objects.exists()


def test_crafted_ids_of_another_tenant_are_nothing_at_all(lead: User, asked: list[Approval]) -> None:
    theirs = wait("theirs", tenant_id="t_b")
    client = signed_in(lead)
    page = act(client, "reject_selected", [theirs]).content.decode()
    assert "theirs" not in page
    answer = send(client, "reject", [asked[0], theirs], **WHY)
    assert "Rejected: 1 of 2." in answer.content.decode() and "Not done: one of them." in answer.content.decode()
    assert "theirs" not in send(client, "assign", [theirs], to=str(lead.pk)).content.decode()
    assert statuses([asked[0], theirs]) == ["rejected", "pending"]
    assert not Decision.objects.filter(approval=theirs).exists()
    assert Approval.objects.get(pk=theirs.pk).assigned_to_id is None


def test_b71_of_four_ids_only_the_one_that_may_be_decided_changes(lead: User, asked: list[Approval]) -> None:
    """B71: the four of a crafted page for "all of them": own, expired, rejected before, another tenant's."""
    fine, expired, rejected = asked
    theirs = wait("theirs", tenant_id="t_b")
    Approval.objects.filter(pk=expired.pk).update(expires_at=expired.requested_at)
    assert queue.expire(expired.pk)
    queue.decide(rejected.pk, decider("lead_18"), "reject", rejected.action_hash, "Not ours.")
    four = [fine, expired, rejected, theirs]
    powerless = signed_in(approving.person("clerk_1", may=("view_approval",)))
    assert send(powerless, "reject", four, select_across="1", **WHY).status_code == 403
    assert statuses(four) == ["pending", "expired", "rejected", "pending"]
    said = send(signed_in(lead), "reject", four, select_across="1", **WHY).content.decode()
    assert "Rejected: 1 of 4." in said and said.count("Not done:") == 3 and "theirs" not in said
    assert statuses(four) == ["rejected", "expired", "rejected", "pending"]
    mine = Decision.objects.filter(user=lead).values_list("approval_id", "refusal")
    assert sorted(mine) == sorted([(fine.pk, ""), (expired.pk, "approval-expired"), (rejected.pk, "already-decided")])


# --- assign ------------------------------------------------------------------------------------------------


def test_assign_offers_who_may_decide_all_and_puts_them_on_his_list(lead: User, asked: list[Approval]) -> None:
    decider("lead_18")
    approving.person("viewer", may=("view_approval",))
    decider("stranger", tenants=("t_b",))
    Approval.objects.filter(pk=asked[0].pk).update(large=True)
    approving.person("junior")
    client = signed_in(lead)
    page = act(client, "assign_selected", asked).content.decode()
    select = page.split('<select id="to"')[1].split("</select>")[0]
    assert re.findall(r">([^<>\n]+)</option>", select) == ["nobody", "lead_17", "lead_18"]
    other = User.objects.get(username="lead_18")
    assert "Assigned: 3 of 3." in send(client, "assign", asked, to=str(other.pk)).content.decode()
    assert sorted(re.findall(r"for (lead_18)<", shown(client, "?view=pending"))) == ["lead_18"] * 3
    assert "Assigned: 3 of 3." in send(client, "assign", asked, to="").content.decode()
    assert not Approval.objects.filter(assigned_to__isnull=False).exists()


@pytest.mark.parametrize("to", ["999999", "x", "-1", "1" * 30, "viewer"])
def test_assignment_to_nobody_who_may_is_refused(lead: User, asked: list[Approval], to: str) -> None:
    viewer = approving.person("viewer", may=("view_approval",))
    answer = send(signed_in(lead), "assign", asked, to=str(viewer.pk) if to == "viewer" else to)
    assert answer.status_code == (200 if to == "viewer" else 404)
    assert to != "viewer" or answer.content.decode().count("This person may not decide it.") == 3
    assert not Approval.objects.filter(assigned_to__isnull=False).exists()


# --- the file ----------------------------------------------------------------------------------------------


def exported(client: Client, query: str = "") -> list[dict[str, str]]:
    answer = client.get(f"{LIST}export/{query}")
    assert answer.status_code == 200 and answer["Content-Type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(io.StringIO(answer.content.decode("utf-8-sig"))))


def test_file_holds_every_decision_and_refused_attempt_of_a_view(lead: User, asked: list[Approval]) -> None:
    yes, no, _ = asked
    approving.decide(yes, lead, address="10.0.0.7", screen_hash="sha256:seen")
    approving.decide(no, lead, "reject", reason="Kept the goods")
    with pytest.raises(Refusal):
        approving.decide(no, decider("lead_18"), action_hash="sha256:0")
    client = signed_in(lead)
    rows = exported(client, "?view=decided")
    assert [(r["order_id"], r["decided_by"], r["decision"], r["counts"], r["refused_as"]) for r in rows] == [
        ("two", "lead_18", "approve", "no", "action-changed"), ("two", "lead_17", "reject", "yes", ""),
        ("one", "lead_17", "approve", "yes", ""),
    ]  # fmt: skip
    whole = rows[-1]
    assert (whole["amount"], whole["currency"], whole["from_address"]) == ("2000.00", "INR", "10.0.0.7")
    assert (whole["screen_hash"], whole["action_hash"]) == ("sha256:seen", yes.action_hash)
    assert (whole["run_id"], whole["tenant_id"], whole["status"]) == (str(yes.run_id), "t_acme_in", "approved")
    assert [r["order_id"] for r in exported(client, "?view=decided&status=approved")] == ["one"]
    assert [r["order_id"] for r in exported(client, "?q=one")] == ["one"]
    assert exported(client, "?view=pending") == []


def test_no_cell_of_the_file_is_a_formula(lead: User) -> None:
    hostile = '=HYPERLINK("https://evil.example")'
    row = wait("8472", customer_id=hostile)
    approving.decide(row, lead, "reject", reason="\t+1 \u202e\n@x")
    (found,) = exported(signed_in(lead), "?view=decided")
    assert found["customer_id"] == "'" + hostile
    assert found["reason"].startswith("'+1 \\u202e") or found["reason"].startswith("'")
    assert all(not value[:1] or value[0] not in "=+-@\t\r" for value in found.values())


def test_file_is_of_ones_own_tenants_and_of_who_may_see_approvals(lead: User, asked: list[Approval]) -> None:
    theirs = wait("theirs", tenant_id="t_b")
    approving.decide(theirs, decider("lead_b", tenants=("t_b",)))
    approving.decide(asked[0], lead)
    client = signed_in(lead)
    for query in ("", "?view=everything", "?view=decided", "?tenant=t_b", "?q=theirs"):
        assert all(r["tenant_id"] == "t_acme_in" for r in exported(client, query))
    assert len(exported(client, "?view=everything")) == 1
    assert signed_in(approving.person("none", may=DECIDES[2:])).get(f"{LIST}export/").status_code == 403
    assert Client().get(f"{LIST}export/").status_code == 302


def test_file_is_cut_at_its_limit_and_says_so(
    lead: User, asked: list[Approval], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert exports.MOST == 5000
    monkeypatch.setattr(exports, "MOST", 2)
    client = signed_in(lead)
    for row in asked:
        approving.decide(row, lead)
    assert "newest-2.csv" in client.get(f"{LIST}export/?view=decided")["Content-Disposition"]
    assert [r["order_id"] for r in exported(client, "?view=decided")] == ["three", "two"]
    assert counted(asked[0]) == [("lead_17", "approve")]
    assert client.get(f"{LIST}export/?nonsense=1").status_code == 302
