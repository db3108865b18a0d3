"""Policies at the console: loaded by form, made current, withdrawn; freshness incidents; who may, and what is kept."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connections
from django.test import Client

from agentsite import clock, metrics
from agentsite.tenants.models import Tenant
from runs.management import tenancy
from tests.operating import operator, seen
from tools.models import PolicyCorpus, PolicyDocument, PolicyIncident, PolicyPassage
from tools.policy import standing
from tools.policy.documents import PolicyFormatError, load, load_directory, parse

pytestmark = pytest.mark.django_db
T, OTHER = tenancy.DEFAULT_TENANT, "t_other"
LIST, ADD = "/admin/tools/policydocument/", "/admin/tools/policydocument/add/"
INCIDENTS = "/admin/tools/policyincident/"
LOADS = ("view_policydocument", "add_policydocument")
DECIDES = (*LOADS, "change_policydocument")
Answer = Any


def policy(version: int = 4, status: str = "current", body: str = "Duplicates are refunded.", **more: str) -> str:
    front = {"id": "POL-REF-004", "version": str(version), "title": "Refunds", "status": status} | more
    return "---\n" + "".join(f"{k}: {v}\n" for k, v in front.items()) + f"---\n\n{body}\n"


def statuses(tenant_id: str = T) -> dict[int, str]:
    rows = PolicyDocument.objects.filter(tenant_id=tenant_id, doc_id="POL-REF-004")
    return dict(rows.values_list("version", "status"))


def said(answer: Answer) -> list[str]:
    return [str(message) for message in answer.context["messages"]]


def log() -> list[tuple[str, str, str]]:
    rows = LogEntry.objects.order_by("id")
    return list(rows.values_list("user__username", "object_repr", "change_message"))


@pytest.fixture(autouse=True)
def tenants(db: None) -> None:
    for tenant_id in (T, OTHER):
        Tenant.objects.create(id=tenant_id)


# --- the file's own tenant -----------------------------------------------------------------------------------


def test_file_that_names_its_tenant_is_loaded_for_no_other(tmp_path: Any) -> None:
    assert parse(policy(tenant=T)).tenant == T
    load(T, policy(tenant=T))
    (tmp_path / "a.md").write_text(policy(3))
    (tmp_path / "b.md").write_text(policy(5, tenant=T))
    with pytest.raises(PolicyFormatError, match=r"^b\.md: tenant: the tenant it is loaded for"):
        load_directory(tmp_path, OTHER)
    assert statuses(OTHER) == {}
    assert load_directory(tmp_path, T) == ["POL-REF-004@v3", "POL-REF-004@v5"]


@pytest.mark.parametrize("value", ["T Acme", "'../x'", "12", "[a]", "''", "null\ntenant: t_acme_in"])
def test_tenant_of_a_file_is_an_id_and_stands_once(value: str) -> None:
    with pytest.raises(PolicyFormatError) as refused:
        load(T, policy(tenant=value))
    assert refused.value.field == "tenant"
    assert not PolicyDocument.objects.exists()


def test_text_that_would_be_cut_into_too_much_is_refused_by_its_body() -> None:
    with pytest.raises(PolicyFormatError, match="body: less to keep together: more than"):
        load(T, policy(body="a\n" * 20_001))


def test_document_cut_by_older_code_is_cut_anew_when_it_is_loaded_again() -> None:
    row = load(T, policy())
    PolicyPassage.objects.filter(document=row).update(text="Duplicates", content_hash="sha256:old")
    stamp = PolicyCorpus.objects.get(tenant=T).stamp
    load(T, policy())
    assert row.passages.get().text == "Duplicates are refunded."
    assert PolicyCorpus.objects.get(tenant=T).stamp != stamp
    kept = PolicyCorpus.objects.get(tenant=T).stamp
    load(T, policy())
    assert PolicyCorpus.objects.get(tenant=T).stamp == kept, "nothing changed, so no host builds anything"


# --- loading -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["file", "text"])
def test_policy_is_loaded_by_file_or_text_and_recorded_with_its_person(by: str) -> None:
    client = operator("ed_1", may=LOADS)
    content = policy(tenant=T)
    upload = SimpleUploadedFile("v4.md", content.encode())
    sent = {"tenant": T, "file": upload} if by == "file" else {"tenant": T, "text": content.replace("\n", "\r\n")}
    answer = client.post(ADD, sent, follow=True)
    row = PolicyDocument.objects.get()
    assert answer.redirect_chain == [(f"{LIST}{row.pk}/change/", 302)]
    assert said(answer) == ["POL-REF-004@v4 is loaded as current."]
    assert (row.tenant_id, row.status, row.passages.get().text) == (T, "current", "Duplicates are refunded.")
    assert log() == [("ed_1", "POL-REF-004@v4", "Loaded as current.")]
    again = client.post(ADD, {"tenant": T, "text": content}, follow=True)
    assert said(again) == ["POL-REF-004@v4 was stored so already."]
    assert len(log()) == 1


def test_new_current_version_takes_over_and_an_older_one_stands_back() -> None:
    client = operator("ed_1", may=LOADS)
    for version in (4, 5):
        client.post(ADD, {"tenant": T, "text": policy(version)})
    assert statuses() == {4: "superseded", 5: "current"}
    answer = client.post(ADD, {"tenant": T, "text": policy(3)}, follow=True)
    assert said(answer)[-1] == "Version 5 is newer and stays current; this page can change that."
    assert statuses() == {3: "superseded", 4: "superseded", 5: "current"}


@pytest.mark.parametrize(
    ("sent", "field", "words"),
    [
        ({"text": policy(colour="red")}, "text", "colour: each field once"),
        ({"text": policy().replace("version: 4", "version: four")}, "text", "version: a positive integer"),
        ({"text": policy(effective_from="'x'")}, "text", "effective_from: a date such as"),
        ({"text": policy(body="# Nothing")}, "text", "body: some text"),
        ({"text": "no front matter"}, "text", "front matter: a block of YAML"),
        ({"text": policy(tenant=OTHER)}, "tenant", "tenant: the tenant it is loaded for"),
        ({"text": policy(), "tenant": OTHER}, "tenant", "Select a valid choice"),
        ({"text": policy(), "tenant": ""}, "tenant", "This field is required"),
        ({}, "file", "A file or a text is needed, and not both."),
        ({"text": "a\x00b"}, "text", "Null characters are not allowed"),
        ({"file": b"\xff\xfe"}, "file", "file: UTF-8 text"),
        ({"file": b"a" * 1_000_001}, "file", "file: at most 1000000 bytes"),
        ({"file": b""}, "file", "front matter: a block of YAML"),
        ({"file": policy().encode(), "text": policy()}, "file", "A file or a text is needed, and not both."),
        ({"text": policy(title="<script>alert(1)</script> \u202e", status="old")}, "text", "status: one of current"),
    ],
)
def test_form_says_which_field_is_wrong_and_stores_nothing(sent: dict[str, Any], field: str, words: str) -> None:
    client = operator("ed_1", may=LOADS)
    form = {"tenant": T, **sent}
    if "file" in form:
        form["file"] = SimpleUploadedFile("p.md", form["file"])
    answer = client.post(ADD, form)
    assert answer.status_code == 400
    page = answer.content.decode()
    assert f'id="{field}-error"' in page and words in page.partition(f'id="{field}-error"')[2][:300]
    assert "<script>alert" not in page
    assert not PolicyDocument.objects.exists() and log() == []


def test_stored_version_is_never_replaced_by_the_form() -> None:
    client = operator("ed_1", may=DECIDES)
    load(T, policy())
    before = PolicyDocument.objects.values().get()
    for other in (
        policy(body="Other."),
        policy(title="Other"),
        policy(4, "superseded"),
        policy(effective_until="2030-01-01"),
    ):
        answer = client.post(ADD, {"tenant": T, "text": other})
        assert answer.status_code == 400 and "is stored with another" in answer.content.decode()
        assert PolicyDocument.objects.values().get() == before
    assert log() == []


def test_pages_are_for_those_who_may_and_for_tenants_they_see() -> None:
    row = load(OTHER, policy())
    mine = load(T, policy())
    reader, stranger = operator("aud_1", may=LOADS[:1]), operator("nobody", may=("view_run",))
    loader = operator("ed_1", may=LOADS)
    assert ADD not in seen(reader, LIST) and ADD in seen(loader, LIST)
    for client in (reader, stranger):
        assert client.get(ADD).status_code == client.post(ADD, {"tenant": T, "text": policy(5)}).status_code == 403
    assert stranger.get(LIST).status_code == 403
    for client in (reader, loader):
        assert client.get(f"{LIST}{mine.pk}/status/").status_code == 403
        assert client.post(f"{LIST}{mine.pk}/status/", {"to": "superseded", "reason": "x"}).status_code == 403
        assert "/status/" not in seen(client, f"{LIST}{mine.pk}/change/")
    decider = operator("own_1", may=DECIDES)
    assert decider.get(f"{LIST}{row.pk}/status/").status_code == 404
    assert f'value="{OTHER}"' not in seen(decider, ADD)
    for path in (f"{LIST}{mine.pk}/delete/", f"{INCIDENTS}add/"):
        assert decider.post(path, {"post": "yes"}).status_code == 403
    assert decider.post(f"{LIST}{mine.pk}/change/", {"status": "draft"}).status_code == 403
    assert statuses() == statuses(OTHER) == {4: "current"}


@pytest.mark.parametrize("tenant", ["%00", "t_nobody", "%27"])
def test_filter_by_what_is_no_tenant_shows_nothing(tenant: str) -> None:
    row = load(T, policy())
    page = seen(operator("aud_1", may=LOADS[:1]), f"{LIST}?tenant={tenant}")
    assert f"{LIST}{row.pk}/change/" not in page


@pytest.mark.django_db(transaction=True)
def test_two_people_who_load_at_once_make_one_document() -> None:
    clients = [operator(f"ed_{n}", may=LOADS) for n in range(4)]
    texts = [policy(5, body=f"Words of {n % 2}.") for n in range(4)]
    gate = threading.Barrier(4)

    def post(client: Client, text: str) -> int:
        try:
            gate.wait(10)
            return client.post(ADD, {"tenant": T, "text": text}).status_code
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        found = sorted(pool.map(post, clients, texts))
    assert found == [302, 302, 400, 400], "the same text twice is one; another text under its version is refused"
    row = PolicyDocument.objects.get()
    assert row.passages.count() == 1 and row.body.strip() == row.passages.get().text
    assert len(log()) == 1


# --- which version is current ----------------------------------------------------------------------------------


def page_of(row: PolicyDocument) -> str:
    return f"{LIST}{row.pk}/status/"


def sends(client: Client, row: PolicyDocument, to: str, *, reason: str = "as decided", **more: str) -> Answer:
    """What the page as it stands now would send."""
    now = standing.seen(row)
    form = {
        "to": to, "seen_status": now.status, "seen_hash": now.content_hash,
        "seen_current": "" if now.current is None else str(now.current), "reason": reason, **more,
    }  # fmt: skip
    return client.post(page_of(row), form, follow=True)


def test_version_is_made_current_and_withdrawn_with_a_reason_that_is_kept() -> None:
    client = operator("own_1", may=DECIDES)
    old, new = load(T, policy(3)), load(T, policy(4))
    stamp = PolicyCorpus.objects.get(tenant=T).stamp
    old.refresh_from_db()
    assert said(sends(client, old, "current", reason="v4 has a fault")) == ["POL-REF-004@v3 is current now."]
    assert statuses() == {3: "current", 4: "superseded"}
    assert PolicyCorpus.objects.get(tenant=T).stamp != stamp
    old.refresh_from_db()
    assert said(sends(client, old, "superseded", reason="withdrawn by law")) == ["POL-REF-004@v3 is superseded now."]
    assert statuses() == {3: "superseded", 4: "superseded"}
    assert log() == [
        ("own_1", "POL-REF-004@v3", "Make current: v4 has a fault"),
        ("own_1", "POL-REF-004@v3", "Withdraw: withdrawn by law"),
    ]
    assert "v4 has a fault" in seen(client, f"{LIST}{old.pk}/history/")
    assert PolicyPassage.objects.count() == 2 and new.passages.exists(), "nothing is erased"


def test_page_says_whose_runs_abstain() -> None:
    client = operator("own_1", may=DECIDES)
    tenancy.put_profile(T, tenancy.DEFAULT_PROFILE)
    four, five = load(T, policy(4)), load(T, policy(5, "draft", effective_from="2199-01-01"))
    page = seen(client, f"{page_of(five)}?to=current")
    assert "Its runs abstain until a profile pins version 5." in page and "Version 4 is superseded by it" in page
    assert "By its own dates it is not in effect today, from 2199-01-01" in page
    assert "Its runs abstain until another version is pinned" in seen(client, f"{page_of(four)}?to=superseded")
    assert "It is so already" in seen(client, f"{page_of(four)}?to=current")
    assert statuses() == {4: "current", 5: "draft"}, "a GET changes nothing"


@pytest.mark.parametrize("change", ["replaced", "another_is_current", "withdrawn"])
def test_act_on_what_was_not_seen_changes_nothing(change: str) -> None:
    client = operator("own_1", may=DECIDES)
    load(T, policy(4))
    draft = load(T, policy(5, "draft"))
    now = standing.seen(draft)
    if change == "replaced":
        load(T, policy(5, "draft", body="Other words."), replace=True)
    elif change == "another_is_current":
        load(T, policy(6))
    else:
        load(T, policy(4, "superseded"))
    before = statuses()
    form = {
        "to": "current",
        "seen_status": now.status,
        "seen_hash": now.content_hash,
        "seen_current": "4",
        "reason": "x",
    }
    answer = client.post(page_of(draft), form)
    assert answer.status_code == 409
    assert "It changed meanwhile, and nothing was done." in answer.content.decode()
    assert statuses() == before and log() == []


@pytest.mark.parametrize(
    "form", [{"reason": ""}, {"reason": "  "}, {"reason": "a\x00"}, {"to": "draft"}, {"to": "<b>"}, {"to": ""}]
)
def test_act_without_a_reason_or_a_known_end_changes_nothing(form: dict[str, str]) -> None:
    client = operator("own_1", may=DECIDES)
    row = load(T, policy(4, "draft"))
    sent = {
        "to": "current",
        "reason": "why",
        "seen_status": "draft",
        "seen_hash": "sha256:0",
        "seen_current": "x",
        **form,
    }
    assert client.post(page_of(row), sent).status_code in (400, 409)
    assert statuses() == {4: "draft"} and log() == []


@pytest.mark.django_db(transaction=True)
def test_two_people_who_make_two_versions_current_leave_one() -> None:
    rows = [load(T, policy(version, "draft")) for version in (4, 5)]
    clients = [operator(f"own_{n}", may=DECIDES) for n in range(2)]
    gate = threading.Barrier(2)

    def post(client: Client, row: PolicyDocument) -> int:
        form = {
            "to": "current",
            "seen_status": "draft",
            "seen_hash": row.content_hash,
            "seen_current": "",
            "reason": "x",
        }
        try:
            gate.wait(10)
            return client.post(page_of(row), form).status_code
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        found = sorted(pool.map(post, clients, rows))
    assert found == [302, 409]
    assert sorted(statuses().values()) == ["current", "draft"] and len(log()) == 1


# --- incidents -------------------------------------------------------------------------------------------------


def incident(pinned: int = 4, tenant_id: str = T, owner: str = "refunds@acme.example", **more: Any) -> PolicyIncident:
    now = clock.now() - timedelta(hours=pinned)
    return PolicyIncident.objects.create(
        tenant_id=tenant_id, doc_id="POL-REF-004", pinned=pinned, owner=owner, last_run_id="0" * 32, runs=3,
        first_seen_at=now, last_seen_at=now, **more,
    )  # fmt: skip


def gauge() -> float:
    (found,) = [f for f in metrics.Gauges().collect() if f.name == "agentsite_policy_incidents_open"]
    return float(found.samples[0].value)


def closes(client: Client, *rows: PolicyIncident) -> Answer:
    form = {"action": "close", "_selected_action": [str(row.pk) for row in rows]}
    return client.post(INCIDENTS, form, follow=True)


def test_incidents_are_listed_filtered_closed_and_counted() -> None:
    client = operator("own_1", may=("view_policyincident", "change_policyincident"))
    first, second = incident(3, current=4), incident(4, owner="law@acme.example")
    done = incident(2, closed_at=clock.now(), closed_by="own_9")
    foreign = incident(4, OTHER)
    assert gauge() == 3
    page = seen(client, INCIDENTS)
    assert "POL-REF-004@v3" in page and "no version" in page and "law@acme.example" in page and OTHER not in page
    assert "POL-REF-004@v2" not in seen(client, f"{INCIDENTS}?state=open")
    assert "POL-REF-004@v3" not in seen(client, f"{INCIDENTS}?owner=law@acme.example")
    answer = closes(client, first, done, foreign)
    assert said(answer) == ["Closed: POL-REF-004@v3"]
    assert log() == [("own_1", "POL-REF-004@v3", "Closed.")]
    first.refresh_from_db()
    assert (first.closed_by, first.runs) == ("own_1", 3) and first.closed_at is not None
    done.refresh_from_db()
    assert done.closed_by == "own_9"
    assert set(PolicyIncident.objects.filter(closed_at=None)) == {second, foreign}
    assert gauge() == 2
    assert said(closes(client, first)) == ["They were closed already; nothing changed."]
    assert incident(3).pk != first.pk, "and another may open for it"


def test_incident_is_closed_by_nobody_who_may_not() -> None:
    row = incident()
    reader = operator("aud_1", may=("view_policyincident",))
    assert "POL-REF-004@v4" in seen(reader, INCIDENTS)
    closes(reader, row)
    assert operator("nobody", may=("view_run",)).get(INCIDENTS).status_code == 403
    row.refresh_from_db()
    assert row.closed_at is None and log() == [] and gauge() == 1
