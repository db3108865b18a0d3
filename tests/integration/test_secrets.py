"""Secrets in every place where they could come in, and none in any place where they could be kept or shown (M71)."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import logging
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.core import mail
from django.test import Client

from agentsite import env, redaction, telemetry
from agentsite.canonical import sha256
from agentsite.tenants.models import AgentProfile
from approvals.models import Approval
from runs import store
from runs.contracts import NewEvent, NewObservation, Outcome
from runs.management import staff
from runs.management.commands import worker
from runs.models import Draft, Event, Feedback, Observation, Run, Turn, Write
from runs.states import On
from runs.store import clean
from runs.store.under_way import Spoken, keep_drafts
from tests import planted
from tests.planted import ALL, CARD, MODEL_KEY, ODD_KEY, READ, SECRETS, WRITE
from tests.world import World, final, gather, refund, turn, worker_dies
from tools import registry

pytestmark = pytest.mark.django_db(transaction=True)
GONE = redaction.REDACTED
HELD = "Held: {{secret:NOTE}}"
COMMERCE = {"read_token_env": "ACME_READ", "write_token_env": "ACME_WRITE", "honours_keys": True, "settle_s": 0.2}


@pytest.fixture
def site(world: World) -> Iterator[World]:
    """A world whose secrets are all set, and whose tenant has credentials of its own."""
    world.settings(**SECRETS, ACME_READ=READ, ACME_WRITE=WRITE, COMMERCE_READ_TOKEN="x", COMMERCE_WRITE_TOKEN="y")
    world.profile(commerce={"url": world.sandbox.url, **COMMERCE}, secrets={"NOTE": "ACME_NOTE"})
    yield world


def shop(world: World) -> Client:
    bearer = staff.make_token(tenant_id=world.tenant, name="shop", scopes=["runs:read", "runs:write"])
    return Client(headers={"Authorization": f"Bearer {bearer}"})


def nothing_leaked(world: World, run: Run) -> None:
    """No secret in any cell, prompt, page or answer."""
    asked = list(Approval.objects.filter(run_id=run.pk).values_list("pk", flat=True))
    superuser = world.browser("root", is_superuser=True)
    assert planted.in_database() == []
    assert planted.in_prompt(run, world) == []
    assert planted.in_pages(run, superuser, asked) == []
    assert planted.in_answers(run, shop(world)) == []


# --- what comes in -------------------------------------------------------------------------------------------


def test_customer_who_pastes_secrets_is_answered_and_nothing_keeps_them(site: World) -> None:
    pasted = " and ".join(ALL)
    with planted.log_lines() as lines:
        run = site.start(script=[*gather(), refund(), refund(), final()], goal=f"Order 8472 twice. Mine: {pasted}")
        site.message(run, f"Once more: {pasted}")
        site.resume(run)
        store.feedback(str(run.pk), "down", f"bad, {pasted}")
        site.approve(run)
        assert site.resume(run, until="completed").outcome == "refunded"
    assert planted.leaks(lines.getvalue()) == []
    nothing_leaked(site, run)
    redacted = " and ".join([GONE] * len(ALL))
    assert site.fresh(run).contract["goal"] == f"Order 8472 twice. Mine: {redacted}"
    assert Feedback.objects.get(run=run).text == f"bad, {redacted}"
    told = Observation.objects.get(run=run, kind="message")
    assert told.content == {"text": f"Once more: {redacted}"} and told.content_hash == sha256(told.content)


def test_business_system_that_echoes_its_credentials_teaches_nobody(site: World) -> None:
    note = f"Use {READ} or {WRITE}, key {MODEL_KEY}"
    site.seed(status=f"delivered {WRITE}", note=note)
    with planted.log_lines() as lines:
        run = site.start(script=[*gather(), refund(), final()])
        site.approve(run)
        assert site.resume(run, until="completed").outcome == "refunded"
    assert planted.leaks(lines.getvalue()) == []
    nothing_leaked(site, run)
    order = Observation.objects.get(run=run, source="get_order")
    assert (
        order.content["note"] == f"Use {GONE} or {GONE}, key {GONE}" and order.content["status"] == f"delivered {GONE}"
    )
    assert order.content_hash == sha256(order.content)


def test_id_that_is_a_credential_is_no_answer_at_all(site: World) -> None:
    """An id is used, not shown: one that had to be redacted names nothing, so nothing is done by it."""
    site.seed(payments=[{**_capture(), "payment_id": WRITE}])
    run = site.start(script=[*gather(), refund(), final()])
    assert (run.status, run.waiting_for, site.posts()) == ("waiting_dependency", "dependency", [])
    assert site.refunds() == []
    nothing_leaked(site, run)


def _capture() -> dict[str, Any]:
    amount = {"amount": "10.00", "currency": "INR"}
    return {
        "order_id": "8472",
        "state": "captured",
        "amount": amount,
        "captured_at": "2026-11-20T09:30:00Z",
        "note": "",
    }


ESCAPED = "".join(f"\\u{ord(char):04x}" for char in WRITE)
MODEL_SAYS: dict[str, list[Any]] = {
    "arguments of a write": [*gather(), refund(reason=f"see {WRITE} {ODD_KEY}"), final()],
    "arguments in escapes": [*gather(), turn(text=json.dumps(refund(reason=WRITE)).replace(WRITE, ESCAPED)), final()],
    "a draft in escapes": [*gather(), refund(), turn(text=f'{{"final": "{ESCAPED}", "evidence": []}}')],
    "arguments of a read": [[{"tool": "search_policy", "args": {"query": f"who has {WRITE}"}}], *gather(), refund()],
    "a draft": [*gather(), refund(), final(f"Your key is {MODEL_KEY}.")],
    "no output": [turn(text=f"{{broken {READ} {ODD_KEY}"), *gather(), refund(), final()],
    "an unknown tool": [[{"tool": f"steal_{WRITE}", "args": {"k": READ}}], *gather(), refund(), final()],
    "a field it may not have": [
        [{"tool": "get_order", "args": {"order_id": "8472", MODEL_KEY: WRITE}}], *gather(), refund(), final()
    ],
    "a finish and a model": [
        turn(say=gather()[0], model=f"m-{MODEL_KEY}", finish_reason=READ), *gather(), refund(), final()
    ],
}  # fmt: skip


@pytest.mark.parametrize("script", MODEL_SAYS.values(), ids=MODEL_SAYS)
def test_model_that_repeats_secrets_leaves_none(site: World, script: list[Any]) -> None:
    with planted.log_lines() as lines:
        run = site.start(script=script)
        if run.status == "awaiting_approval":
            site.approve(run)
            run = site.resume(run)
    assert planted.leaks(lines.getvalue()) == []
    assert Turn.objects.filter(run=run).count() > 0
    nothing_leaked(site, run)


def test_what_is_approved_hashed_and_sent_is_the_redacted_action(site: World) -> None:
    run = site.start(script=[*gather(), refund(reason=f"see {WRITE}"), final()])
    assert site.approval(run).args["reason"] == f"see {GONE}"
    site.approve(run)
    assert site.resume(run, until="completed").outcome == "refunded"
    assert [c["body"]["reason"] for c in site.sandbox.posts()] == [f"see {GONE}"]


def test_staff_who_paste_secrets_are_cleaned_too(site: World) -> None:
    run = site.start(script=[*gather(), refund(), final()])
    site.reject(run, f"use {WRITE} by hand")
    row = site.resume(run)
    assert (row.status, site.posts()) == ("completed", [])
    assert f"use {GONE} by hand" in (row.reply or "")
    nothing_leaked(site, run)


def test_draft_under_way_holds_no_secret_nor_the_beginning_of_one(site: World) -> None:
    run = site.admit()
    keep_drafts([Spoken(run_id=str(run.pk), route="r", thinking=f"so {MODEL_KEY}!", text=f"It is {WRITE[:-1]}")])
    draft = Draft.objects.get(run=run)
    assert (draft.thinking, draft.text) == (f"so {GONE}!", "It is ")
    assert planted.in_database((*ALL, WRITE[:-1])) == []


# --- by key name ---------------------------------------------------------------------------------------------

NAMED = {
    "token": 1, "access_token": "t", "accessToken": "t", "X-Api-Key": "k", "apikey": "k", "password": "p",
    "db_passwd": "p", "Authorization": "Bearer b", "client_secret": "s", "card_number": CARD, "cardNumber": CARD,
    "cvv": "123", "CVC": 999, "Set-Cookie": "c", "credentials": {"user": "u"}, "private_key": ["k"], "pan": CARD,
}  # fmt: skip
UNNAMED = {
    "input_tokens": 5, "idempotency_key": "t/r:issue_refund:p", "key": "k", "policy_pin": "P@v1", "span": "m1",
    "company": "c", "tokens": 3, "author": "a", "secretary": "s", "cookies_left": 2, "cardholder": "h",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_value_under_a_secrets_name_is_replaced(name: str) -> None:
    assert redaction.redact({"list": [{name: NAMED[name]}]}) == {"list": [{name: GONE}]}


@pytest.mark.parametrize("name", UNNAMED)
def test_value_under_another_name_stays(name: str) -> None:
    assert redaction.redact({name: UNNAMED[name]}) == {name: UNNAMED[name]}


def test_secrets_name_in_what_a_tool_or_an_event_brings_is_replaced_in_the_store(site: World) -> None:
    run = site.start(script=[*gather(), refund(), final()])
    state = store.load(str(run.pk), "")
    seen = NewObservation(kind="result", source="get_order", content={"card_number": CARD, "input_tokens": 7})
    event = NewEvent(type="tool.observed", meta={"password": "p"}, payload={"deep": [{"cvv": "123"}]})
    cleaned = clean.outcome(Outcome(on=On.READS_OBSERVED, observations=(seen,)))
    assert cleaned.observations[0].content == {"card_number": GONE, "input_tokens": 7}
    assert clean.event(event).meta == {"password": GONE} and clean.event(event).payload == {"deep": [{"cvv": GONE}]}
    assert state.pending is not None and state.pending.key.endswith("pay_9002")
    assert (site.posts(), site.refunds()) == ([], [])


# --- logs, answers, mails ------------------------------------------------------------------------------------


def test_no_log_line_holds_a_secret_whoever_writes_it(site: World) -> None:
    somebody = logging.getLogger(f"somebody.{uuid.uuid4().hex}")  # of no other test, which may have switched it off
    with planted.log_lines() as lines:
        telemetry.log("a.line", path=f"/x/{MODEL_KEY}", password="plain words", inner={"cvv": "123"})
        somebody.warning("sent %s with %s", WRITE, {"k": ODD_KEY})
        try:
            raise ValueError(f"cannot reach https://u:{MODEL_KEY}@host/{READ}")
        except ValueError:
            telemetry.exception("a.fault")
            somebody.exception("it failed with %s", READ)
    text = lines.getvalue()
    assert len(text.splitlines()) >= 4 and "Traceback" in text and "cannot reach" in text
    assert planted.leaks(text) == [] and "plain words" not in text and '"123"' not in text


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_formatter_of_either_kind_cleans_messages_and_tracebacks(site: World, log_format: str) -> None:
    given = telemetry.configure(log_format)["formatters"]["line"]
    formatter = given["()"](processors=given["processors"], foreign_pre_chain=given["foreign_pre_chain"])
    try:
        local = WRITE
        raise RuntimeError(f"{local} was refused")
    except RuntimeError as error:
        info = (RuntimeError, error, error.__traceback__)
        record = logging.LogRecord("x", logging.ERROR, "f.py", 1, "with %s", (ODD_KEY,), info)
    line = formatter.format(record)
    telemetry.configure(env.read().LOG_FORMAT)
    assert planted.leaks(line) == [] and "RuntimeError" in line and GONE in line


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_line_that_finds_no_room_shows_its_fields_nowhere(
    site: World, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Python's own way is to print them as they are, before any formatter, beside a log that is full."""
    counted = list[str]()
    monkeypatch.setattr(telemetry, "count", lambda name, *_, **__: counted.append(name))
    monkeypatch.setattr(telemetry.Lines, "file", Full())
    telemetry.Lines().handle(logging.LogRecord("x", logging.ERROR, "f.py", 1, {"key": WRITE}, None, None))
    assert counted == ["lines_lost"] and capfd.readouterr() == ("", "")


def test_problem_details_hold_no_secret(site: World) -> None:
    client = shop(site)
    for path in (f"/api/v1/runs/{MODEL_KEY}", f"/api/v1/{WRITE}"):
        answer = client.get(path)
        assert answer.status_code == 404 and planted.leaks(answer.content.decode()) == []
        assert GONE in answer.json()["instance"]
    bad = client.post("/api/v1/runs", data=json.dumps({MODEL_KEY: WRITE}), content_type="application/json")
    assert bad.status_code == 400 and planted.leaks(bad.content.decode()) == []


def test_errors_are_logged_and_mailed_to_nobody(site: World, settings: Any) -> None:
    settings.ADMINS = [("A", "a@example.org")]
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    with planted.log_lines() as lines:
        logging.getLogger("django.request").error("Internal Server Error: %s", WRITE, extra={"status_code": 500})
    assert mail.outbox == [] and GONE in lines.getvalue()


def test_short_values_are_words_and_stay(site: World) -> None:
    site.settings(OPENAI_API_KEY="x", ANTHROPIC_API_KEY="refund")
    assert redaction.text("a refund, x") == "a refund, x"


def test_generated_and_url_secrets_are_known(site: World) -> None:
    site.settings(
        BROKER_URL="redis://user:a%20pass%2Fword-long@127.0.0.1:1/0",
        AUDIT_KEY="k1:first-audit-secret,k2:second-one-secret",
    )
    cleaned = redaction.text("a pass/word-long a%20pass%2Fword-long first-audit-secret second-one-secret k1")
    assert cleaned == f"{GONE} {GONE} {GONE} {GONE} k1"


def test_process_that_must_not_hold_a_secret_knows_it_when_it_sees_it(site: World) -> None:
    """A worker that calls models has no write token; a business system may write one into a note all the same."""
    foreign = "held-elsewhere-4711"
    elsewhere = env.digest("the-tenants-own-0815")
    site.settings(WORKER_QUEUES="passes", COMMERCE_WRITE_TOKEN=foreign, SECRETS_ELSEWHERE=elsewhere)
    assert env.read().COMMERCE_WRITE_TOKEN is None and foreign not in repr(env.read())
    escaped = '{{\\"k\\": \\"{}\\"}}'
    for around in ("{}", "use {}.", "token={}", "a:b={},", '"{}"', escaped, "Bearer {} now", "https://h/?k={}"):
        for secret in (foreign, "the-tenants-own-0815"):
            assert redaction.text(around.format(secret)) == around.format(GONE)
    assert redaction.redact({"note": ["x", foreign]}) == {"note": ["x", GONE]}
    other = "held-elsewhere-4712 and words of any length-at-all"
    assert redaction.text(other) == other


def test_workers_children_hold_no_secret_that_their_queue_does_not_need(site: World) -> None:
    assert {"ACME_WRITE", "ACME_NOTE", "COMMERCE_WRITE_TOKEN"} <= set(worker.not_needed("passes"))
    assert not {"ACME_WRITE", "ACME_NOTE", "COMMERCE_WRITE_TOKEN"} & set(worker.not_needed("writes"))
    assert "ACME_READ" not in worker.not_needed("passes")
    assert env.digests("ACME_NOTE", "NOT_SET_ANYWHERE") == [env.digest(SECRETS["ACME_NOTE"])]


# --- placeholders --------------------------------------------------------------------------------------------


@pytest.fixture
def takes_secrets(site: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The refund tool with a reason that may hold placeholders; none of the shipped tools has such an argument."""
    entry = dataclasses.replace(registry.TOOLS["issue_refund"], secret_args=("reason",))
    registry.check_all({"issue_refund": entry})
    monkeypatch.setattr(registry, "TOOLS", {**registry.TOOLS, "issue_refund": entry})
    return site


def test_placeholder_is_resolved_on_the_wire_alone(takes_secrets: World) -> None:
    world = takes_secrets
    run = world.start(script=[*gather(), refund(reason=HELD), final()])
    assert world.approval(run).args["reason"] == HELD
    page = world.browser("root", is_superuser=True).get(f"/admin/approvals/approval/{world.approval(run).pk}/change/")
    assert "{{secret:NOTE}}" in page.content.decode()
    world.approve(run)
    assert world.resume(run, until="completed").outcome == "refunded"
    assert [c["body"]["reason"] for c in world.sandbox.posts()] == [f"Held: {SECRETS['ACME_NOTE']}"]
    write = Write.objects.get(run=run)
    assert json.loads(write.body)["reason"] == write.args["reason"] == HELD
    nothing_leaked(world, run)


def test_placeholder_is_resolved_again_after_a_death(takes_secrets: World) -> None:
    world = takes_secrets
    run = world.start(script=[*gather(), refund(reason=HELD), final()])
    world.approve(run)
    worker_dies(run, after="sent")
    world.later(run, 60)
    assert world.resume(run, until="completed").outcome == "refunded"
    assert [c["body"]["reason"] for c in world.sandbox.posts()] == [f"Held: {SECRETS['ACME_NOTE']}"]
    nothing_leaked(world, run)


def test_secret_that_is_missing_here_sends_nothing_and_spends_no_attempt(takes_secrets: World) -> None:
    world = takes_secrets
    run = world.start(script=[*gather(), refund(reason=HELD), final()])
    world.approve(run)
    world.settings(ACME_NOTE="")
    row = world.resume(run, patience_s=0.1)
    assert (row.status, row.write_attempts, world.posts(), world.refunds()) == ("executing", 0, [], [])
    world.settings(ACME_NOTE=SECRETS["ACME_NOTE"])
    world.later(run, 30)
    assert world.resume(run, until="completed").outcome == "refunded"


def test_variable_of_the_sites_own_is_nothing_a_placeholder_stands_for(takes_secrets: World) -> None:
    world = takes_secrets
    stored = AgentProfile.objects.filter(tenant_id=world.tenant).latest("revision")
    stored.document["secrets"] = {"NOTE": "OPENAI_API_KEY"}  # no command would store it
    stored.save()
    run = world.start(script=[*gather(), refund(reason=HELD), final()])
    world.approve(run)
    row = world.resume(run, patience_s=0.1)
    assert (row.status, world.posts(), world.refunds()) == ("executing", [], [])


REFUSED = {
    "a name the profile does not have": "{{secret:OTHER}}", "a misspelt one": "{{ secret:NOTE }}",
    "half of one": "{{secret:NOTE", "in small letters": "{{SECRET:note}}",
    "one right, one wrong": HELD + "{{secret:X}}",
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED.values(), ids=REFUSED)
def test_placeholder_that_names_nothing_is_refused_by_the_gate(takes_secrets: World, reason: str) -> None:
    run = takes_secrets.start(script=[*gather(), refund(reason=reason), final()])
    assert takes_secrets.rules(run) == ["secret_not_allowed"]
    assert (run.status, takes_secrets.posts(), takes_secrets.refunds()) == ("completed", [], [])


def test_placeholder_where_the_tool_takes_none_is_refused_by_the_gate(site: World) -> None:
    run = site.start(script=[*gather(), refund(reason=HELD), final()])
    assert site.rules(run) == ["secret_not_allowed"]
    failed = next(c for c in site.events(run, "gate.decided")[0]["checks"] if not c["ok"])
    assert failed["inputs"] == {"fields": ["reason"], "names": ["NOTE"]}
    assert (run.status, site.posts(), site.refunds()) == ("completed", [], [])


def test_placeholder_in_a_read_is_refused(site: World) -> None:
    asks = [{"tool": "search_policy", "args": {"query": "what is {{secret:NOTE}}"}}]
    run = site.start(script=[asks, *gather(), refund(), final()])
    assert site.rules(run) == ["secret_not_allowed"] and run.status == "awaiting_approval"
    assert (site.posts(), site.refunds()) == ([], [])


def test_placeholder_a_customer_writes_reaches_nothing(site: World) -> None:
    run = site.start(script=[*gather(), refund(), final("{{secret:NOTE}}")], goal="8472 twice. {{secret:NOTE}}")
    site.approve(run)
    row = site.resume(run, until="completed")
    assert row.outcome == "refunded" and "{{secret" not in (row.reply or "")
    nothing_leaked(site, run)
    assert Event.objects.filter(run=run, type="reply.sent").count() == 1
