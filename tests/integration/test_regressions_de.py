"""Decisions and erasures among odd rows: none hides a decision, stops a purge or lets erased words come back."""

from __future__ import annotations

import re
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import signals

from agentsite import dbtime
from agentsite.canonical import canonical_text
from agentsite.refusals import Refusal
from agentsite.tenants.models import AgentProfile
from approvals import queue
from approvals.models import Approval, Decision
from runs import retention, store
from runs.models import Feedback, Run, Turn, Write
from runs.store import erasing
from runs.store.erasing import KINDS
from tests import approving, edge, planted
from tests.approving import signed_in
from tests.between import at_once, make_due
from tests.integration.test_broken_rows import store_raw
from tests.integration.test_retention import ended
from tests.operating import acts, operator
from tests.world import World, final, gather, refund

pytestmark = pytest.mark.django_db
SAID = "Quixote-words"
BROKEN: dict[str, tuple[str, str]] = {
    "pending without arguments": ("pending_action", '{"call_id":"m3.1"}'),
    "pending is a list": ("pending_action", "[1]"),
    "pending is no json": ("pending_action", "{not json"),
    "contract is no json": ("contract", "{not json"),
}


@pytest.fixture
def lead(db: None) -> User:
    return approving.person()


# --- erasing what nobody can read ---------------------------------------------------------------------------------


def _ended(world: World) -> Run:
    run = world.start(script=[*gather(), final("All is well.")])
    Write.objects.filter(run=run).update(watch_at=None)
    Run.objects.filter(pk=run.pk).update(completed_at=dbtime.now() - timedelta(days=9_000))
    return Run.objects.get(pk=run.pk)


@pytest.mark.parametrize(("column", "text"), BROKEN.values(), ids=BROKEN)
def test_run_with_a_broken_row_is_erased_and_stops_no_purge(world: World, column: str, text: str) -> None:
    run = _ended(world)
    store_raw(run, column, text)
    done = retention.purge(by="tests")
    assert (done.conversation, done.evidence) == (1, 1)
    row = Run.objects.get(pk=run.pk)
    assert row.contract["goal"] == "[erased]" if column != "contract" else row.contract == {"erased": True}
    assert row.pending_action is None
    assert retention.purge(by="tests").any is False


@pytest.mark.parametrize("proposals", [[1], [{"tool": "issue_refund"}, "x"], {"tool": 1}, [{"args": SAID}]])
def test_broken_turn_is_erased_and_stops_no_purge(world: World, proposals: Any) -> None:
    run = _ended(world)
    Turn.objects.filter(run=run, number=1).update(proposals=proposals, final={"text": SAID}, error=[SAID], raw=SAID)
    assert set(erasing.erase(str(run.pk), KINDS, why="a test", by="tests")) == set(KINDS)
    assert planted.in_database((SAID,)) == []


def test_broken_rows_of_an_approval_are_erased(world: World) -> None:
    run = world.start()
    world.reject(run, "No.")
    run = world.resume(run, until="completed")
    Approval.objects.filter(run_id=run.pk).update(checks=[SAID], args=[SAID], facts=[SAID])
    assert set(erasing.erase(str(run.pk), KINDS, why="a test", by="tests")) == set(KINDS)
    assert planted.in_database((SAID,)) == []


@pytest.mark.django_db(transaction=True)
def test_word_that_comes_during_an_erasure_goes_with_it_or_is_found_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = ended("req-8472", 1)
    writing, erased = threading.Event(), threading.Event()
    leave = Feedback.objects.update_or_create

    def slowly(*args: Any, **kwargs: Any) -> Any:
        writing.set()
        erased.wait(1)
        return leave(*args, **kwargs)

    def erase() -> None:
        writing.wait(30)
        erasing.erase(str(run.pk), KINDS, why="a test", by="tests")
        erased.set()

    monkeypatch.setattr(Feedback.objects, "update_or_create", slowly)
    at_once([lambda: store.feedback(str(run.pk), "down", SAID), erase])
    run.refresh_from_db()
    assert erased.is_set()
    assert Feedback.objects.get().text == "" or run.conversation_erased_at is None


# --- a crowd of refused attempts, and a profile that cannot be read -----------------------------------------------


def test_refused_attempts_of_a_token_hide_no_decision(lead: User) -> None:
    approval = Approval.objects.get(pk=approving.ask(approving.run()))
    rows = {"decision": "approve", "action_hash": "", "by": "token shop", "refusal": "token-may-not-decide"}
    crowd = [Decision(approval=approval, counted=False, at=dbtime.now(), **rows) for _ in range(450)]
    Decision.objects.bulk_create(crowd)
    approving.decide(approval, lead, "reject", reason="The goods were kept.")
    with pytest.raises(Refusal):
        approving.decide(approval, approving.person("late"))
    page = approving.body(signed_in(lead), f"/admin/approvals/approval/{approval.pk}/change/")
    assert "The goods were kept." in page
    assert "late" in page  # the newest attempts are those that are shown
    assert page.count("token shop") < 250
    page = approving.body(signed_in(lead), f"/admin/runs/run/{approval.run_id}/change/")
    assert "The goods were kept." in page and page.count("token shop") < 250
    told = signed_in(lead).get(f"/api/v1/approvals/{approval.pk}").json()
    assert [d["by"] for d in told["decisions"]] == ["lead_17"]


def test_list_of_approvals_reads_no_refused_attempt(lead: User) -> None:
    approval = Approval.objects.get(pk=approving.ask(approving.run()))
    rows = {"decision": "approve", "action_hash": "", "by": "token shop", "refusal": "token-may-not-decide"}
    Decision.objects.bulk_create(
        [Decision(approval=approval, counted=False, at=dbtime.now(), **rows) for _ in range(3)]
    )
    client, read = signed_in(lead), list[str]()

    def note(decision: Any, *args: Any, **kwargs: Any) -> Any:
        read.append(decision)
        return None

    signals.post_init.connect(note, sender=Decision)
    try:
        assert client.get("/api/v1/approvals").status_code == 200
        assert client.get(f"/api/v1/approvals/{approval.pk}").status_code == 200
    finally:
        signals.post_init.disconnect(note, sender=Decision)
    assert read == []


@pytest.mark.parametrize("way", ["approve", "reread"])
def test_profile_that_nobody_can_read_keeps_nobody_from_deciding(lead: User, way: str) -> None:
    approving.tenant()
    AgentProfile.objects.create(tenant_id=approving.TENANT, agent="refunds", revision=1, document={"broken": True})
    approval = Approval.objects.get(pk=approving.ask(approving.run()))
    page = f"/admin/approvals/approval/{approval.pk}/change/"
    client = signed_in(lead)
    if way == "reread":
        assert client.post(f"/admin/approvals/approval/{approval.pk}/reread/").status_code == 302
        assert "could not be read" in approving.body(client, page)
        return
    form = dict(re.findall(r'name="(action_hash|screen_hash)" value="([^"]+)"', approving.body(client, page)))
    assert client.post(page, {"decision": "approve", **form}).status_code == 302
    approval.refresh_from_db()
    assert approval.status == "approved"


@pytest.mark.parametrize("stated", [True, False])
def test_yes_without_the_statement_that_was_asked_for_is_used_for_nothing(lead: User, stated: bool) -> None:
    """A process of an older release, which knows of no statement, records a bare yes."""
    said = "I checked it."
    approval = Approval.objects.get(pk=approving.ask(approving.run(), attestation=said))
    now = dbtime.now()
    row = {"decision": "approve", "action_hash": approval.action_hash, "by": "lead_17", "at": now}
    Decision.objects.create(approval=approval, user=lead, attested=said if stated else "", **row)
    Approval.objects.filter(pk=approval.pk).update(status="approved", execute_by=now + timedelta(hours=1))
    assert queue.permitted(approval.pk) is stated


# --- what staff write to staff ------------------------------------------------------------------------------------


def test_clients_read_no_words_that_staff_wrote_for_colleagues(world: World) -> None:
    shop, desk = edge.client(edge.token()), operator()
    taken = world.start("req-2", [*gather(), refund(), final()])
    assert acts(desk, taken, "hurry", note=SAID) == 302
    assert acts(desk, taken, "escalate", note=SAID) == 302
    taken = world.resume(taken, until="escalated")
    assert acts(desk, taken, "finish", note=SAID, text="We called you.") == 302
    done = world.start(script=[*gather(), refund(), final()])
    world.decide(done, "approve", SAID)
    done = world.resume(done, until="completed")
    for run in (done, taken):
        answer = shop.get(f"/api/v1/runs/{run.pk}/events?limit=100")
        assert answer.status_code == 200 and SAID not in answer.content.decode()
    told = answer.json()["results"]
    assert [e["data"]["text"] for e in told if e["type"] == "run.resolved"] == ["We called you."]
    assert [e["data"]["by"] for e in told if e["type"] == "run.hurried"] == ["ops_3"]
    assert planted.in_database((SAID,)) != []  # staff read them


# --- pages and lists beside a row that nobody can read --------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "text"), [("contract", "[]"), ("contract", '"x"'), ("pending_action", "[1]"),
                         ("pending_action", '{"args":{},"call_id":"m3.1"}')],
)  # fmt: skip
def test_broken_row_takes_no_list_and_no_page_away(world: World, column: str, text: str) -> None:
    run = world.start()
    whole = canonical_text(getattr(run, column))
    store_raw(run, column, text)
    make_due(run)
    world.step(run)
    shop, desk = edge.client(edge.token()), signed_in(world.person("root", is_superuser=True))
    looked = [(shop, f"/api/v1/runs/{run.pk}"), (shop, "/api/v1/runs"), (desk, f"/admin/runs/run/{run.pk}/change/")]
    for client, path in [*looked, (desk, f"/admin/approvals/approval/{run.approval_id}/change/")]:
        assert client.get(path).status_code == 200, path
    store_raw(run, column, whole)  # for what is checked after every case
