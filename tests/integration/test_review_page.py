"""The console without a browser: what the pages hold, who may see and decide, and what a POST does once."""

from __future__ import annotations

import html
import re
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from agentsite import dbtime
from agentsite.money import Money
from agentsite.tenants.models import Tenant
from approvals import queue
from approvals.admin import screen
from approvals.models import Approval, Decision
from runs.models import Observation, Run, Turn, Write
from tests import approving
from tests.approving import body, confirmed, signed_in

pytestmark = pytest.mark.django_db
LIST = "/admin/approvals/approval/"
HOSTILE = '"><img src=x onerror=alert(1)>{{7*7}}'
SHOWN = "&quot;&gt;&lt;img src=x onerror=alert(1)&gt;{{7*7}}"


def page_of(approval: Approval) -> str:
    return f"{LIST}{approval.pk}/change/"


@pytest.fixture
def asked() -> Approval:
    return Approval.objects.get(pk=approving.ask(approving.run()))


@pytest.fixture
def lead(db: None) -> User:
    return approving.person()


def hidden(page: str) -> dict[str, str]:
    return dict(re.findall(r'name="(action_hash|screen_hash)" value="([^"]+)"', page))


def click(client: Client, approval: Approval, decision: str = "approve", reason: str = "", **form: str) -> str:
    """A POST as the page's form sends it, and the page it leads to."""
    sent = {"decision": decision, "reason": reason, **hidden(body(client, page_of(approval))), **form}
    answer = client.post(page_of(approval), sent)
    assert (answer.status_code, answer.headers["Location"]) == (302, page_of(approval))
    return body(client, page_of(approval))


# --- what the page holds -----------------------------------------------------------------------------------


def test_the_page_shows_action_evidence_checks_and_words(asked: Approval, lead: User) -> None:
    page = body(signed_in(lead), page_of(asked))
    for text in (
        "2,000.00 INR", "Refund above 1,000 INR needs approval", "in 23 h 59 min", "obs_2", "get_payments",
        "pay_9001 captured 2,000.00 INR; pay_9002 captured 2,000.00 INR", "POL-REF-004 · v4 · Duplicate capture",
        "Within what may be refunded", "4,000.00 INR", "5,000.00 INR", "Policy version is current", approving.GOAL,
        asked.action_hash, "pay_9002 · captured · 2,000.00 INR", "cust_5521", "tool.observed",
        "action_proposed → awaiting_approval", "UTC",
    ):  # fmt: skip
        assert html.escape(text, quote=False) in page.replace("&#x27;", "'"), text
    assert hidden(page) == {"action_hash": asked.action_hash, "screen_hash": screen.screen_hash(asked)}


def test_the_page_has_no_inline_script_or_style(asked: Approval, lead: User) -> None:
    lead.is_superuser = True
    lead.save()
    client = signed_in(lead)
    for path in (page_of(asked), LIST, f"/admin/runs/run/{asked.run_id}/change/", "/admin/runs/run/", "/admin/"):
        page = body(client, path)
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", page), path
        assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", page)), path


def test_the_expiry_names_its_zone_whatever_the_night(lead: User) -> None:
    at = datetime(2026, 10, 24, 12, 0, tzinfo=UTC)
    approval = Approval.objects.get(pk=approving.ask(approving.run()))
    Approval.objects.filter(pk=approval.pk).update(requested_at=at, expires_at=at + timedelta(seconds=86_400))
    page = body(signed_in(lead), page_of(approval))
    assert "25 Oct 2026, 12:00:00 UTC" in page


@pytest.mark.parametrize(("minor", "currency", "shown"), [(500, "JPY", "500 JPY"), (1_250_000, "KWD", "1,250.000 KWD")])
def test_amounts_have_their_currencys_decimals(lead: User, minor: int, currency: str, shown: str) -> None:
    approval = Approval.objects.get(pk=approving.ask(approving.run(), amount=Money(minor=minor, currency=currency)))
    client = signed_in(lead)
    assert f"Approve {shown}" in body(client, page_of(approval))
    assert shown in body(client, LIST)


def test_hostile_text_is_escaped_and_readable_everywhere(lead: User) -> None:
    row = approving.run(goal=HOSTILE + "\u202eevil")
    approving.wrote(row, HOSTILE)
    args = {"order_id": "8472", "payment_id": "pay_9002", "amount": approving.inr("2000.00"), "reason": HOSTILE}
    evidence = [{"obs_id": "obs_1", "tool": "get_payments", "fact": HOSTILE, "fetched_at": HOSTILE, "ok": True}]
    approval_id = approving.ask(row, args=args, evidence=evidence, rule=HOSTILE, order_id="84\u200b72")
    approval = Approval.objects.get(pk=approval_id)
    queue.show_message(approval.pk, HOSTILE, dbtime.now())
    approving.event(row, 9, "model.replied", {"text": HOSTILE})
    Observation.objects.create(
        run=row, obs_id="obs_1", position=1, kind="result", source="get_order", content={"note": HOSTILE},
        content_hash="sha256:0", fetched_at=row.created_at,
    )  # fmt: skip
    Turn.objects.create(
        run=row, number=1, span="m1", route="offline:investigator", prompt_version="p", prompt_hash="h",
        tools_version="t", raw=HOSTILE, final={"text": HOSTILE, "evidence": []}, started_at=row.created_at,
    )  # fmt: skip
    client = signed_in(lead)
    pages = [
        body(client, page_of(approval)), body(client, LIST), body(client, f"/admin/runs/run/{row.pk}/change/"),
        body(client, "/admin/runs/run/"), click(client, approval, "reject", HOSTILE),
    ]  # fmt: skip
    for page in pages:
        assert "<img src=x" not in page
        assert "\u202e" not in page and "\u200b" not in page
    assert pages[0].count(SHOWN) >= 5
    assert "\\u202eevil" in pages[0]
    assert "84\\u200b72" in pages[0] and "84\\u200b72" in pages[1]
    assert SHOWN in pages[4]


def test_an_earlier_decision_stands_beside_the_same_action(lead: User) -> None:
    row = approving.run()
    first = Approval.objects.get(pk=approving.ask(row))
    queue.decide(first.pk, lead, "approve", first.action_hash, "")
    queue.void(str(row.pk), "message")
    second = Approval.objects.get(pk=approving.ask(row))
    page = body(signed_in(lead), page_of(second))
    assert "The same action was approved before" in page
    assert page_of(first) in page


def test_a_pause_is_announced_on_the_page(asked: Approval, lead: User) -> None:
    Tenant.objects.filter(pk=approving.TENANT).update(paused=True, paused_reason="provider audit")
    assert "Writes of t_acme_in are stopped. provider audit" in body(signed_in(lead), page_of(asked))


# --- deciding ----------------------------------------------------------------------------------------------


def test_approve_is_recorded_and_the_buttons_go(asked: Approval, lead: User) -> None:
    page = click(signed_in(lead), asked)
    assert "Saved: lead_17 approved this at" in page
    assert 'name="decision"' not in page
    assert "What happened next" in page
    row = Decision.objects.get()
    assert (row.by, row.decision, row.counted, row.address) == ("lead_17", "approve", True, "127.0.0.1")
    assert row.screen_hash == screen.screen_hash(asked)
    asked.refresh_from_db()
    assert asked.status == "approved"


def test_a_second_post_changes_nothing_and_says_so(asked: Approval, lead: User) -> None:
    client = signed_in(lead)
    form = {"decision": "approve", **hidden(body(client, page_of(asked)))}
    client.post(page_of(asked), form)
    client.post(page_of(asked), form)
    page = body(client, page_of(asked))
    assert "Nothing was done twice" in page
    assert Decision.objects.count() == 1


def test_the_loser_of_a_race_is_told_who_won(asked: Approval, lead: User) -> None:
    other = approving.person("lead_18")
    mine, theirs = signed_in(lead), signed_in(other)
    form = hidden(body(mine, page_of(asked)))
    theirs.post(page_of(asked), {"decision": "reject", "reason": "Duplicate", **form})
    mine.post(page_of(asked), {"decision": "approve", **form})
    assert "lead_18 rejected it at" in body(mine, page_of(asked))
    asked.refresh_from_db()
    assert asked.status == "rejected"
    assert list(Decision.objects.order_by("id").values_list("by", "counted")) == [("lead_18", True), ("lead_17", False)]


@pytest.mark.parametrize("decision", ["", "APPROVED ", "approved", "true", "null"])
def test_a_malformed_decision_is_refused(asked: Approval, lead: User, decision: str) -> None:
    page = click(signed_in(lead), asked, decision)
    assert "A decision is exactly approve or reject" in page
    asked.refresh_from_db()
    assert asked.status == "pending"


def test_a_reject_without_a_reason_is_refused(asked: Approval, lead: User) -> None:
    assert "A rejection needs a reason." in click(signed_in(lead), asked, "reject", "  ")
    asked.refresh_from_db()
    assert asked.status == "pending"


@pytest.mark.parametrize("form", [{"action_hash": "sha256:" + "0" * 64}, {"action_hash": ""}])
def test_a_hash_of_another_action_is_refused(asked: Approval, lead: User, form: dict[str, str]) -> None:
    assert "This is not the action you looked at." in click(signed_in(lead), asked, **form)
    asked.refresh_from_db()
    assert asked.status == "pending"


def test_a_page_that_changed_since_cannot_approve(asked: Approval, lead: User) -> None:
    client = signed_in(lead)
    form = hidden(body(client, page_of(asked)))
    queue.show_message(asked.pk, "Please do not refund, I found the parcel.", dbtime.now())
    client.post(page_of(asked), {"decision": "approve", **form})
    page = body(client, page_of(asked))
    assert "The page changed while you looked." in page
    assert "I found the parcel" in page
    asked.refresh_from_db()
    assert asked.status == "pending"
    assert list(Decision.objects.values_list("refusal", "counted")) == [("screen-changed", False)]


def test_a_decision_needs_the_csrf_token(asked: Approval, lead: User) -> None:
    client = signed_in(lead, enforce_csrf_checks=True)
    assert client.post(page_of(asked), {"decision": "approve", "action_hash": asked.action_hash}).status_code == 403
    asked.refresh_from_db()
    assert asked.status == "pending"


def test_a_get_never_decides(asked: Approval, lead: User) -> None:
    signed_in(lead).get(page_of(asked), {"decision": "approve", "action_hash": asked.action_hash})
    assert Decision.objects.count() == 0


@pytest.mark.parametrize(
    ("may", "created_by", "large", "why"),
    [
        (("view_approval",), "user:0", False, "You may not decide approvals."),
        (approving.DECIDER, "self", False, "You started this run yourself."),
        (approving.DECIDER, "user:0", True, "You may not decide approvals of this size."),
    ],
)
def test_the_buttons_are_off_with_their_reason(may: tuple[str, ...], created_by: str, large: bool, why: str) -> None:
    user = approving.person("ann", may=may)
    row = approving.run(created_by=f"user:{user.pk}" if created_by == "self" else created_by)
    approval = Approval.objects.get(pk=approving.ask(row, large=large))
    client = signed_in(user)
    page = body(client, page_of(approval))
    assert page.count('value="approve" disabled') == 1 and page.count('value="reject" disabled') == 1
    assert why in page
    assert why in click(client, approval)
    approval.refresh_from_db()
    assert approval.status == "pending"
    assert Decision.objects.get().counted is False


def test_two_people_see_what_is_still_needed() -> None:
    approval = Approval.objects.get(pk=approving.ask(approving.run(), required=2))
    ann, bob = signed_in(approving.person("ann")), signed_in(approving.person("bob"))
    assert "Yours would be the first." in body(ann, page_of(approval))
    page = click(ann, approval)
    assert "A second, different person must approve before it runs." in page
    assert 'value="approve" disabled' in page
    assert "Yours would be the second." in body(bob, page_of(approval))
    assert "Saved: bob approved this at" in click(bob, approval)


@pytest.mark.parametrize("how", ["void", "expired", "late"])
def test_a_closed_approval_has_no_buttons(asked: Approval, lead: User, how: str) -> None:
    if how == "void":
        queue.void(str(asked.run_id), "message")
    else:
        Approval.objects.filter(pk=asked.pk).update(expires_at=dbtime.now() - timedelta(seconds=1))
    if how == "expired":
        queue.expire(asked.pk)
    page = body(signed_in(lead), page_of(asked))
    assert 'name="decision"' not in page
    if how != "void":
        assert "This is not a rejection." in page
        assert "Expired, undecided" in page
        assert "Rejected" not in page


# --- afterwards --------------------------------------------------------------------------------------------


def test_progress_follows_the_run_to_its_refund(asked: Approval, lead: User) -> None:
    client = signed_in(lead)
    click(client, asked)
    path = reverse("admin:approvals_approval_progress", args=[asked.pk])
    first = client.get(path).json()
    assert (first["headline"], first["rest"]) == ("Decision saved; a worker picks it up", False)
    confirmed(asked)
    answer = client.get(path)
    last = answer.json()
    assert (last["headline"], last["tone"], last["rest"]) == ("Completed", "good", True)
    assert dict(last["rows"])["Refund"] == "rf_3301"
    assert dict(last["rows"])["Outcome"] == "Refunded"
    assert last["timeline"][0][:2] == ["1.0 s", "run.accepted"]
    assert "no-store" in answer.headers["Cache-Control"]
    assert "rf_3301" in body(client, page_of(asked))


@pytest.mark.parametrize(
    ("status", "write_state", "rest"),
    [
        ("executing", "sent", False), ("executed", "pending", False), ("escalated", "unknown", True),
        ("completed", "pending", False), ("completed", "confirmed", True), ("waiting_reply", "not_sent", True),
    ],
)  # fmt: skip
def test_progress_rests_when_nothing_more_comes_by_itself(
    asked: Approval, lead: User, status: str, write_state: str, rest: bool
) -> None:
    confirmed(asked)
    Run.objects.update(status=status)
    Write.objects.update(state=write_state)
    path = reverse("admin:approvals_approval_progress", args=[asked.pk])
    assert signed_in(lead).get(path).json()["rest"] is rest


# --- who sees what -----------------------------------------------------------------------------------------


def test_another_tenants_pages_do_not_exist(asked: Approval) -> None:
    Observation.objects.create(
        run_id=asked.run_id, obs_id="obs_1", position=1, kind="result", source="get_order", content={},
        content_hash="sha256:0", fetched_at=asked.requested_at,
    )  # fmt: skip
    client = signed_in(approving.person("stranger", tenants=("t_other",)))
    run = f"/admin/runs/run/{asked.run_id}"
    for path in (page_of(asked), f"{LIST}{asked.pk}/history/", f"{run}/change/"):
        foreign = client.get(path)
        random = client.get(path.replace(asked.pk, "apr_none").replace(str(asked.run_id), str(uuid.uuid4())))
        assert (foreign.status_code, random.status_code) == (404, 404)
        assert foreign.content == random.content
    assert client.post(page_of(asked), {"decision": "approve", "action_hash": asked.action_hash}).status_code == 404
    assert asked.order_id not in body(client, LIST)
    assert "req-8472" not in body(client, "/admin/runs/run/")
    assert Decision.objects.count() == 0


def test_without_the_view_permission_there_is_no_page(asked: Approval) -> None:
    client = signed_in(approving.person("nobody", may=()))
    assert client.get(LIST).status_code == 403
    assert client.get(page_of(asked)).status_code == 404


def test_an_anonymous_visitor_is_asked_to_sign_in(asked: Approval) -> None:
    for path in (page_of(asked), f"{LIST}{asked.pk}/progress/"):
        answer = Client().get(path)
        assert (answer.status_code, answer.headers["Location"].split("?")[0]) == (302, "/admin/login/")


def test_an_id_opens_plain_and_as_the_list_quotes_it(asked: Approval, lead: User) -> None:
    Approval.objects.filter(pk=asked.pk).update(id="apr_25ab")
    client = signed_in(lead)
    link = re.findall(rf'href="({LIST}[^"]+/change/)', body(client, LIST))[0]
    assert link == f"{LIST}apr_5F25ab/change/"
    for path in (link, f"{LIST}apr_25ab/change/"):
        assert "in 23 h 59 min" in body(client, path)


@pytest.mark.parametrize("path", ["add/", "{pk}/delete/"])
def test_nothing_is_added_changed_or_deleted_by_hand(asked: Approval, path: str) -> None:
    root = signed_in(approving.person("root", is_superuser=True))
    assert root.get(LIST + path.format(pk=asked.pk)).status_code == 403
    assert root.get(f"/admin/runs/run/{path.format(pk=asked.run_id)}").status_code == 403


def test_no_bulk_approve_exists(asked: Approval) -> None:
    root = signed_in(approving.person("root", is_superuser=True))
    assert not re.search(r'value="[^"]*(approve|delete)[^"]*"', body(root, LIST))
    for action in ("approve", "approve_selected", "delete_selected"):
        root.post(LIST, {"action": action, "_selected_action": [asked.pk], "select_across": "1", "post": "yes"})
    asked.refresh_from_db()
    assert (asked.status, Decision.objects.count()) == ("pending", 0)
