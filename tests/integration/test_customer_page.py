"""The customer's page in this process: its link, what it shows and what never, its reply box and its thumb."""

from __future__ import annotations

import re
from datetime import timedelta
from html import escape
from html.parser import HTMLParser
from typing import Any

import pytest
from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from agentsite import clock, dbtime, env, telemetry
from approvals.models import Approval, Decision
from runs.customer import links, projection, throttle
from runs.models import Attachment, Draft, Event, Feedback, Input, Observation, Run, Turn, Write
from tests import approving, to_people
from tests.edge import RUNS, Json, admitted, client, tenant, token
from tests.world import KEY, World, final, gather, refund, s0

HOSTILE = "</textarea><script>alert(1)</script>\u202e{{ form }}<img src=x onerror=alert(2)>"
INTERNAL = (
    "awaiting_approval", "approval_expired", "waiting_reply", "waiting_dependency", "gathering", "action_proposed",
    "executing", "executed", "escalated", "handed_to_staff", "needs_a_person", "outcome_unknown", "issue_refund",
    "get_order", "get_payments", "search_policy", "model", "gate", "tenant", "token_", "t_acme_in", "idempotency",
    "sha256", "approver", "lead_17", "admin",
)  # fmt: skip


class Page(HTMLParser):
    """A page as it is read: its text, its attributes, its elements by id."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.html = answer.content.decode()
        self.text, self.tags = "", list[tuple[str, dict[str, str]]]()
        self.feed(self.html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data

    def field(self, name: str) -> str:
        return next(a["value"] for t, a in self.tags if t == "input" and a.get("name") == name)

    def steps(self) -> list[str]:
        rows = re.findall(r'<li class="(done|current|later)".*?</span>(.*?)</li>', self.html, re.DOTALL)
        return [f"{state}: {' '.join(re.sub('<[^>]*>', '', words).split())}" for state, words in rows]


@pytest.fixture
def browser() -> Client:
    """Somebody who is signed in nowhere, in a browser that would send back any cookie; forged requests are noticed."""
    return Client(enforce_csrf_checks=True)


def asked(**columns: Any) -> Run:
    """A run that waits for an approval, to which its doors may add."""
    run = approving.run(**columns)
    Run.objects.filter(pk=run.pk).update(last_seq=run.events.count())
    return Run.objects.get(pk=run.pk)


def path_of(run: Run) -> str:
    return f"/c/{links.token(run.id, run.created_at)}/"


def look(browser: Client, run: Run) -> Page:
    answer = browser.get(path_of(run))
    assert answer.status_code == 200
    return Page(answer)


def send(browser: Client, run: Run, text: str = "Here it is.", *, form: str | None = None, **more: Any) -> Any:
    given = look(browser, run).field("form") if form is None else form
    return browser.post(f"{path_of(run)}message/", {"form": given, "text": text, **more})


def ended(run: Run, status: str = "completed", outcome: str | None = "refunded", reason: str | None = None) -> Run:
    Run.objects.filter(pk=run.pk).update(
        status=status, outcome=outcome, reason=reason, waiting_for=None, completed_at=dbtime.now(), approval_id=None
    )
    return Run.objects.get(pk=run.pk)


# --- the link ----------------------------------------------------------------------------------------------------


def test_run_has_a_link_that_is_the_same_every_time(db: None) -> None:
    tenant()
    shop = client(token())
    shown = admitted(shop)
    url = shown["customer_url"]
    assert url == shop.get(f"{RUNS}/{shown['run_id']}").json()["customer_url"]
    assert url.startswith("http://127.0.0.1:8080/c/")
    answer = Client().get(url.removeprefix("http://127.0.0.1:8080"))
    assert answer.status_code == 200
    assert not [w for w in ("cust_5521", "8472", "t_acme_in", "sess_91c") if w in url]


def test_public_url_stands_in_the_link(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUBLIC_URL", "https://agent.example/")
    env.read.cache_clear()
    try:
        run = asked()
        assert links.url(run.id, run.created_at) == f"https://agent.example{path_of(run)}"
    finally:
        monkeypatch.undo()
        env.read.cache_clear()


def test_link_that_does_not_serve_gives_one_answer(db: None, browser: Client) -> None:
    run = asked()
    good = links.token(run.id, run.created_at)
    over = links.token(run.id, run.created_at - timedelta(days=env.read().CUSTOMER_LINK_DAYS))
    gone = links.token(asked(request_id="req-2").id, run.created_at)
    Run.objects.filter(request_id="req-2").update(conversation_erased_at=dbtime.now())
    changed = good[:-1] + ("A" if good[-1] != "A" else "B")
    form = links.form(run.id, "0" * 32)
    bad = [good[:-1], good[:20], changed, over, gone, "x", form, good.replace(".", ":"), "%00", good + "x", "a" * 4000]
    answers = [browser.get(f"/c/{one}/") for one in bad]
    answers += [browser.get(f"/c/{good}/other/"), browser.get("/c/"), browser.post(f"/c/{changed}/message/", {})]
    assert {a.status_code for a in answers} == {404}
    assert len({a.content for a in answers}) == 1
    assert "customer service of the shop" in " ".join(answers[0].content.decode().split())
    assert browser.get(f"/c/{good}/").status_code == 200


def test_link_ends_when_its_days_are_over(db: None, browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    run = asked()
    days = timedelta(days=env.read().CUSTOMER_LINK_DAYS)
    for turned, status in ((days - timedelta(minutes=1), 200), (days + timedelta(minutes=1), 404)):
        moment = run.created_at + turned
        monkeypatch.setattr(clock, "now", lambda at=moment: at)
        assert browser.get(path_of(run)).status_code == status


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_no_log_line_keeps_a_link(db: None, log_format: str) -> None:
    path = path_of(approving.run())
    render = telemetry.configure(log_format)["formatters"]["line"]["processors"][-1]
    for line in (f"Not Found: {path}", f"Conflict: {path}message/", f"http://127.0.0.1:8080{path}?sent=message"):
        said = render(None, "warning", {"event": line, "exception": line})
        assert said.count("/c/[redacted]/") == 2
        assert path.split("/")[2][:12] not in said


def test_another_key_makes_other_links(db: None, browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    run = asked()
    theirs = path_of(run)
    monkeypatch.setattr(settings, "SECRET_KEY", "another key of another site, as long as it has to be")
    assert path_of(run) != theirs
    assert browser.get(theirs).status_code == 404


def test_page_is_nobody_elses(db: None, browser: Client) -> None:
    """No cookie, no cache, no referrer, no index, no frame, no script but its own file."""
    run = asked()
    for answer in (browser.get(path_of(run)), browser.get("/c/x/"), send(browser, run), send(browser, run, "")):
        assert dict(answer.cookies) == {}
        assert (answer["Cache-Control"], answer["Referrer-Policy"]) == ("no-store", "no-referrer")
        assert answer["X-Robots-Tag"] == "noindex, nofollow"
        assert answer["X-Frame-Options"] == "DENY"
        policy = answer["Content-Security-Policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
    page = look(browser, run)
    scripts = [attrs for tag, attrs in page.tags if tag == "script"]
    assert [s["src"] for s in scripts] == ["/static/customer/page.js"]
    assert not [a for _, attrs in page.tags for a in attrs if a.startswith("on") or a == "style"]
    assert ("html", {"lang": "en"}) in page.tags


# --- what it shows -----------------------------------------------------------------------------------------------


def test_page_follows_a_refund_from_request_to_confirmation(world: World, browser: Client) -> None:
    run = world.admit()
    page = look(browser, run)
    assert page.steps() == [
        "current: Request received", "later: Checking your order and payments",
        "later: Review by a person (if one is needed)", "later: Refund (if one is due)", "later: Result",
    ]  # fmt: skip
    run = world.resume(run)
    page = look(browser, run)
    assert page.steps() == [
        "done: Request received", "done: Checking your order and payments", "current: Waiting for a review by a person",
        "later: Refund (if one is due)", "later: Result",
    ]  # fmt: skip
    assert world.said(run) in page.text
    assert "We will look at it again by" in page.text
    expires = Approval.objects.get(run_id=run.id).expires_at
    assert f"{expires + timedelta(minutes=1):%H:%M} UTC" in page.text
    assert "Refund confirmed" not in page.text
    world.approve(run)
    run = world.resume(run)
    page = look(browser, run)
    assert page.steps() == [
        "done: Request received", "done: Checking your order and payments", "done: Review by a person",
        "current: Refund confirmed",
    ]  # fmt: skip
    (made,) = world.refunds()
    assert f"Reference {made['refund_id']}" in page.text
    assert "2,000.00 INR" in page.text
    assert world.said(run) in page.text
    assert not [word for word in INTERNAL if word in page.html]


STATES: list[Json] = [
    {"status": status, "waiting_for": waiting}
    for status, waiting in (
        ("accepted", None), ("gathering", None), ("action_proposed", None), ("awaiting_approval", "approval"),
        ("approved", None), ("approved", "order"), ("executing", None), ("executed", "refund"), ("verified", None),
        ("waiting_dependency", "dependency"), ("waiting_reply", "reply"), ("approval_expired", "staff"),
    )
] + [
    {"status": "completed", "outcome": outcome}
    for outcome in ("refunded", "partly_refunded", "refund_failed", "no_refund_due", "answered", "rejected")
] + [
    {"status": "escalated", "reason": reason, "outcome": outcome}
    for reason, outcome in (
        ("needs_a_person", "handed_to_staff"), ("outcome_unknown", "handed_to_staff"),
        ("refund_failed", "refund_failed"), ("over_refunded", "partly_refunded"),
        ("approval_expired", "handed_to_staff"),
        ("verification_failed", "handed_to_staff"), ("needs_a_person", "resolved_by_staff"),
    )
] + [{"status": "cancelled", "outcome": "cancelled", "reason": "cancelled_by_staff"}, {"status": "failed",
      "reason": "schema_unknown", "outcome": "handed_to_staff"}]  # fmt: skip


@pytest.mark.parametrize("state", STATES, ids=lambda s: "-".join(filter(None, s.values())))
def test_no_status_shows_an_internal_word_or_a_refund_that_is_not_confirmed(
    db: None, browser: Client, state: Json
) -> None:
    run = asked()
    Run.objects.filter(pk=run.pk).update(**{"waiting_for": None, **state})
    page = look(browser, Run.objects.get(pk=run.pk))
    assert not [word for word in INTERNAL if word in page.html]
    assert "Refund confirmed" not in page.text
    assert "Your refund is confirmed" not in page.text
    assert len([a for _, a in page.tags if a.get("aria-current") == "step"]) == 1
    assert (state["status"] in ("completed", "cancelled", "failed") or state.get("outcome") == "resolved_by_staff") == (
        'name="rating"' in page.html
    )


def test_expired_approval_is_never_told_as_a_rejection(world: World, browser: Client) -> None:
    run = world.start()
    Approval.objects.filter(run_id=run.id).update(expires_at=dbtime.now() - timedelta(seconds=1))
    Run.objects.filter(pk=run.pk).update(due_at=dbtime.now())
    run = world.resume(run)
    assert run.status == "approval_expired"
    page = look(browser, run)
    assert "current: Still waiting for a person to look at it" in page.steps()
    assert "Review by a person" not in [step.partition(": ")[2] for step in page.steps() if step.startswith("done")]
    told = page.text.lower()
    assert not [word for word in ("reject", "not approve", "denied", "declined", "expired") if word in told]
    assert world.posts() == []


def test_rejection_is_told_with_its_reason_alone(world: World, browser: Client) -> None:
    run = world.start(script=[*gather(), refund(), final()])
    world.reject(run, "the card was replaced")
    run = world.resume(run)
    page = look(browser, run)
    assert "The reason given: “the card was replaced”" in page.text
    assert "done: Review by a person" in page.steps()
    assert "lead_17" not in page.html
    assert world.posts() == []


DECIDED = ("by", "reason", "reason_code", "attested", "refusal", "action_hash")
# Fields that hold the customer's own words, his request's name, or what he may be told.
HIS = {
    "Run.request_id", "Input.text", "Feedback.text", "Feedback.rating", "Attachment.name",
}  # fmt: skip


def _mark(row: Any, *, skip: tuple[str, ...] = ()) -> set[str]:
    """Puts a marker of its own into every text and JSON column of a row; returns the markers."""
    made = dict[str, Any]()
    for field in row._meta.concrete_fields:
        name = f"{type(row).__name__}.{field.attname}"
        if field.primary_key or field.is_relation or name in HIS or field.attname in skip or field.choices:
            continue
        kind = field.get_internal_type()
        marker = "zq" + re.sub("[^a-z]", "", name.lower()) + "qz"
        if kind == "TextField" and type(field).__name__ == "CanonicalJSON":
            made[field.attname] = {"marker": marker}
        elif kind in ("CharField", "TextField"):
            made[field.attname] = marker[: field.max_length or None]
    type(row).objects.filter(pk=row.pk).update(**made)
    return {str(v.get("marker") if isinstance(v, dict) else v) for v in made.values() if len(str(v)) > 6}


@pytest.mark.parametrize("status", ["awaiting_approval", "escalated", "executing"])
def test_no_field_that_staff_or_the_machine_wrote_is_on_the_page(db: None, browser: Client, status: str) -> None:
    run = asked()
    approval_id = approving.ask(run)
    approving.wrote(run, "My own words.")
    now = dbtime.now()
    write = Write.objects.create(
        key=KEY, run=run, tenant_id=run.tenant_id, order_id="8472", payment_id="pay_9002", tool="issue_refund", args={},
        action_hash="h", decision_id="d", body="{}", origin="o", amount_minor=200_000, currency="INR",
        state="not_sent", call_id="c", customer_id="cust_5521", intent_at=now,
    )  # fmt: skip
    rows: list[Any] = [
        Approval.objects.get(pk=approval_id), write,
        Draft.objects.create(run=run, route="r", thinking="t", text="t", at=now),
        Observation.objects.create(
            run=run, obs_id="o", position=9, kind="error", source="s", content={}, content_hash="h", fetched_at=now
        ),
        Turn.objects.create(
            run=run, number=9, span="s", route="r", prompt_version="p", prompt_hash="h", tools_version="t", raw="r",
            started_at=now,
        ),
        Event.objects.filter(run=run).order_by("seq")[0], Input.objects.filter(run=run)[0],
    ]  # fmt: skip
    # One that stands cannot be changed any more.
    written = dict.fromkeys(DECIDED, "zqdecisionqz")
    Decision.objects.create(approval_id=approval_id, counted=False, decision="reject", at=now, **written)
    markers = set[str]()
    for row in rows:
        markers |= _mark(row, skip=("status", "currency", "state"))
    kept = ("status", "contract", "waiting_for", "resume_status", "outcome", "approval_id", "tenant_id")
    markers |= _mark(Run.objects.get(pk=run.pk), skip=kept)
    contract = {"goal": "My goal.", "queue_owner": "zqowner", "actor": {"customer_id": "zqcustomer"}, "agent": "zqa"}
    Run.objects.filter(pk=run.pk).update(contract=contract, status=status)
    for seq, kind in ((90, "cancel"), (91, "escalate")):
        Input.objects.create(run=run, seq=seq, kind=kind, message_id=kind, text="zqnote", by="staff:zqboss", at=now)
    page = look(browser, Run.objects.get(pk=run.pk))
    assert len(markers) > 60
    read = re.sub(r"(?=[\w-]*\d)[\w-]{20,}", "", page.html)  # a token made by chance may have any letters in it
    assert sorted(set(re.findall("zq[a-z]+", read))) == []
    assert "My own words." in page.text and "My goal." in page.text


def test_projection_has_no_field_that_is_not_the_customers() -> None:
    assert sorted(projection.CustomerView.__dataclass_fields__) == [
        "asked", "headline", "language", "message", "open", "over", "reference", "refunds", "said", "steps", "thumb",
        "until", "until_words",
    ]  # fmt: skip


def test_hostile_text_is_shown_and_does_nothing(db: None, browser: Client) -> None:
    run = asked(goal=HOSTILE, request_id="req-<b>")
    approving.wrote(run, HOSTILE)
    Attachment.objects.create(run=run, tenant_id=run.tenant_id, position=0, name=HOSTILE[:100], media_type="a/b",
                              sha256="0" * 64, size=1, content=b"x", at=dbtime.now())  # fmt: skip
    Feedback.objects.create(run=run, rating="down", text=HOSTILE, at=dbtime.now())
    page = look(browser, ended(run, outcome="answered"))
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert "img" not in [tag for tag, _ in page.tags]
    assert "\u202e" not in page.html.replace(f"{escape(HOSTILE)}</textarea>", "")  # his own words, to be changed
    assert "\\u202e{{ form }}" in page.text


def test_what_changed_is_all_that_a_poll_gets(db: None, browser: Client) -> None:
    run = asked()
    mark = next(a["data-mark"] for t, a in look(browser, run).tags if t == "main")
    same = browser.get(path_of(run), {"since": mark})
    assert (same.status_code, same.content, same["Cache-Control"]) == (204, b"", "no-store")
    ended(run, outcome="answered")
    assert browser.get(path_of(run), {"since": mark}).status_code == 200


# --- the reply box -----------------------------------------------------------------------------------------------


def test_reply_reaches_the_run_once_however_often_the_form_is_sent(db: None, browser: Client) -> None:
    run = asked()
    form = look(browser, run).field("form")
    for _ in range(2):
        answer = send(browser, run, "Line one.\r\nLine two.", form=form)
        assert (answer.status_code, answer["Location"]) == (303, f"{path_of(run)}?sent=message#sent")
    (message,) = Input.objects.filter(run=run)
    assert (message.kind, message.text, message.by) == ("message", "Line one.\nLine two.", "customer")
    assert message.message_id == form.partition(".")[0]
    page = Page(browser.get(f"{path_of(run)}?sent=message"))
    assert "Your message has been sent." in page.text
    assert "Line two." in page.text


def test_reply_that_is_asked_for_lets_the_run_go_on(world: World, browser: Client) -> None:
    world.profile(people_tools=to_people.PEOPLE)
    run = world.start(script=[to_people.ask(), *s0()])
    assert run.status == "waiting_reply"
    page = look(browser, run)
    assert "current: Waiting for your answer" in page.steps()
    assert to_people.QUESTION in page.text
    assert "Your answer to our question" in page.text
    assert "If we do not hear from you, a person takes over on" in page.text
    assert send(browser, run, "The blue one.").status_code == 303
    run = world.resume(run)
    assert run.status == "awaiting_approval"
    assert Observation.objects.get(run=run, kind="message").content == {"text": "The blue one."}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Please write something first."),
        (" \u200b\n ", "Please write something first."),
        ("a\x00b", "characters that we cannot take"),
        ("é" * 8193, "at most 16 KB"),
    ],
    ids=["empty", "blank", "nul", "long"],
)
def test_reply_that_cannot_be_taken_comes_back_in_its_form(db: None, browser: Client, text: str, words: str) -> None:
    run = asked()
    answer = send(browser, run, text)
    page = Page(answer)
    assert answer.status_code == 400
    assert words in page.text
    assert text.strip() in page.text or "\x00" in text
    assert not Input.objects.exists()
    assert send(browser, run, "é" * 8192).status_code == 303


def test_form_of_another_run_or_of_nobody_sends_nothing_and_keeps_the_text(db: None, browser: Client) -> None:
    run, other = asked(), asked(request_id="req-2")
    mine = links.form(run.id, "0" * 32)
    for form in ("", "x", links.form(other.id, "0" * 32), mine[:-1], mine.replace("0", "1", 1), "m-1", "é.é"):
        answer = send(browser, run, "My own words.", form=form)
        assert (answer.status_code, "My own words." in answer.content.decode()) == (400, True)
    assert not Input.objects.exists()
    assert send(browser, run, "My own words.", form=mine).status_code == 303


def test_form_sent_again_with_other_words_says_so_and_keeps_them(db: None, browser: Client) -> None:
    run = asked()
    form = look(browser, run).field("form")
    send(browser, run, "The first.", form=form)
    answer = send(browser, run, "The second.", form=form)
    page = Page(answer)
    assert (answer.status_code, "had already sent another message" in page.text) == (409, True)
    assert [i.text for i in Input.objects.all()] == ["The first."]
    assert page.field("form") != form


def test_ended_run_takes_no_message_and_the_text_is_kept(db: None, browser: Client) -> None:
    run = asked()
    form = look(browser, run).field("form")
    for status, outcome in (("completed", "answered"), ("escalated", "handed_to_staff")):
        answer = send(browser, ended(run, status, outcome), "Too late.", form=form)
        page = Page(answer)
        assert (answer.status_code, "so this was not sent" in page.text) == (409, True)
        assert "Too late." in page.text
        assert "reply" not in [a.get("id") for _, a in page.tags]
    assert not Input.objects.exists()


def test_what_comes_from_another_site_is_refused(db: None, browser: Client) -> None:
    run = asked()
    data = {"form": look(browser, run).field("form"), "text": "Forged."}
    for site in ("cross-site", "same-site"):
        answer = browser.post(f"{path_of(run)}message/", data, headers={"Sec-Fetch-Site": site})
        assert answer.status_code == 403
    thumb = browser.post(f"{path_of(run)}feedback/", {"rating": "up"}, headers={"Sec-Fetch-Site": "cross-site"})
    assert thumb.status_code == 403
    assert not Input.objects.exists() and not Feedback.objects.exists()
    assert browser.get(f"{path_of(run)}message/").status_code == 405
    assert browser.post(f"{path_of(run)}message/", data, headers={"Sec-Fetch-Site": "same-origin"}).status_code == 303


def test_one_link_can_only_write_so_often(db: None, browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(throttle.RATES, "write", "2/min")
    run, other = asked(), asked(request_id="req-2")
    assert [send(browser, run, f"Message {n}.").status_code for n in range(3)] == [303, 303, 429]
    answer = send(browser, run, "One more.")
    assert 1 <= int(answer["Retry-After"]) <= 60
    assert Input.objects.count() == 2
    assert send(browser, other).status_code == 303
    monkeypatch.setitem(throttle.RATES, "read", "1/min")
    third = asked(request_id="req-3")
    assert [browser.get(path_of(third)).status_code for _ in range(2)] == [200, 429]


# --- files -------------------------------------------------------------------------------------------------------


def chosen(name: str = "C:\\receipts\\r.png", content: bytes = b"png", kind: str = "image/png") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content, kind)


def test_files_come_with_the_reply_and_only_their_names_are_shown(db: None, browser: Client) -> None:
    run = asked()
    form = look(browser, run).field("form")
    for _ in range(2):
        assert send(browser, run, form=form, files=[chosen(), chosen("two.txt", b"two", "")]).status_code == 303
    kept = list(Attachment.objects.order_by("position"))
    assert [(a.name, a.media_type, bytes(a.content or b"")) for a in kept] == [
        ("r.png", "image/png", b"png"), ("two.txt", "application/octet-stream", b"two"),
    ]  # fmt: skip
    page = look(browser, run)
    assert "Files: r.png, two.txt" in page.text
    assert kept[0].sha256 not in page.html
    assert str(kept[0].id) not in page.html


def test_files_that_cannot_be_taken_leave_the_text_in_its_form(db: None, browser: Client) -> None:
    run = asked()
    many, big = [chosen() for _ in range(6)], [chosen(content=b"x" * (5 * 1024 * 1024 + 1))]
    cases = ((many, "At most 5 files"), (big, "larger than 5 MB"), ([chosen(content=b"")], "A file is empty"))
    for files, words in cases:
        answer = send(browser, run, "See the files.", files=files)
        page = Page(answer)
        assert (answer.status_code, words in page.text, "See the files." in page.text) == (400, True, True)
    answer = browser.post(f"{path_of(run)}message/", b"x", content_type="multipart/form-data; boundary=", headers={})
    assert answer.status_code == 400
    huge = browser.generic("POST", f"{path_of(run)}message/", b"x", "multipart/form-data; boundary=b",
                           CONTENT_LENGTH=str(100 * 1024 * 1024))  # fmt: skip
    assert huge.status_code == 413
    assert not Attachment.objects.exists() and not Input.objects.exists()


# --- the thumb ---------------------------------------------------------------------------------------------------


def test_thumb_and_word_are_asked_when_it_is_over_and_the_last_one_stands(db: None, browser: Client) -> None:
    run = asked()
    assert 'name="rating"' not in look(browser, run).html
    run = ended(run, outcome="answered")
    path = reverse("customer-feedback", args=[links.token(run.id, run.created_at)])
    for rating, text in (("up", "Quick."), ("down", "Too slow after all.")):
        assert browser.post(path, {"rating": rating, "text": text}).status_code == 303
    given = Feedback.objects.get(run=run)
    assert (given.rating, given.text) == ("down", "Too slow after all.")
    page = look(browser, run)
    assert "You said: no." in page.text
    assert [a["value"] for t, a in page.tags if t == "input" and "checked" in a] == ["down"]


@pytest.mark.parametrize("sent", [{}, {"rating": "sideways"}, {"rating": "up", "text": "x" * 4001}])
def test_thumb_that_cannot_be_taken_says_why_and_keeps_the_word(db: None, browser: Client, sent: Json) -> None:
    run = ended(asked(), outcome="answered")
    answer = browser.post(f"{path_of(run)}feedback/", {"text": "My word.", **sent})
    assert (answer.status_code, 'role="alert"' in answer.content.decode()) == (400, True)
    assert sent.get("text", "My word.") in answer.content.decode()
    assert not Feedback.objects.exists()
