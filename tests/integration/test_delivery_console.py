"""Staff see every webhook and notice of their tenants with what came of it, and send a webhook again on the record."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client

from agentsite import queues
from agentsite.lanes import Lanes
from approvals.models import Notice
from runs import delivery, signing
from runs.management import findings
from runs.models import Delivery, Event, Run, Webhook
from tests import hints
from tests.between import ago
from tests.loopback import Loopback, ok
from tests.operating import OPERATES, operator, seen
from tests.world import TENANT, World

LIST, NOTICES = "/admin/runs/webhook/", "/admin/approvals/notice/"
SEES = ("view_webhook", "view_run", "view_notice", "view_approval")
HOSTILE = "<img src=x onerror=alert(1)>\u202e"


@pytest.fixture
def receiver(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    world.settings(WEBHOOK_PRIVATE_HOSTS="127.0.0.1")
    monkeypatch.setattr(delivery, "_lanes", Lanes(most=delivery.WORKERS, each=delivery.EACH_HOST))
    with Loopback() as server:
        server.on("/", ok({}, 410), ok({}))
        yield server
    hints.thrown_away(queues.MAINTENANCE)


def cancelled(world: World, url: str, request_id: str = "req-8472") -> Run:
    run = world.admit(request_id, callback_url=url)
    world.cancel(run)
    return world.resume(run, until="cancelled")


def page(row: Webhook) -> str:
    return f"{LIST}{row.pk}/change/"


def desk(name: str = "ops_3", **more: Any) -> Client:
    return operator(name, may=(*OPERATES, *SEES), **more)


def test_dead_letter_is_listed_looked_at_and_sent_again_on_the_record(world: World, receiver: Loopback) -> None:
    run = cancelled(world, receiver.url + "/hooks?token=a-secret-of-the-client")
    delivery.deliver()
    row = Webhook.objects.get(run=run)
    staff = desk()
    assert "410, not taken" in seen(staff, LIST + "?state=dead") and "req-8472" in seen(staff, LIST)
    assert "req-8472" not in seen(staff, LIST + "?state=delivered")
    words = seen(staff, page(row))
    assert "Given up" in words and "410, not taken" in words and "/hooks?…" in words
    assert "a-secret-of-the-client" not in words + seen(staff, LIST) and "whsec_" not in words
    assert staff.get(page(row) + "?do=again").status_code == 200
    assert Webhook.objects.get(pk=row.pk).state == "dead"  # no GET does anything
    assert staff.post(page(row), {"do": "again"}).status_code == 302
    delivery.deliver()
    row.refresh_from_db()
    assert (row.state, row.tries) == ("delivered", 1)
    assert list(Delivery.objects.filter(webhook=row).values_list("number", "status")) == [(1, 410), (2, 200)]
    assert len({call.headers["webhook-id"] for call in receiver.calls}) == 1 and len(receiver.calls) == 2
    event = Event.objects.get(run=run, type="webhook.resent")
    assert (event.meta["by"], event.meta["was"], event.meta["webhook_id"]) == ("ops_3", "dead", row.pk)


def test_sending_again_needs_its_permission_and_words_to_send(world: World, receiver: Loopback) -> None:
    run = cancelled(world, receiver.url)
    row = Webhook.objects.get(run=run)
    watcher = operator("watcher", may=SEES)
    assert "Send again" not in seen(watcher, page(row))
    assert watcher.post(page(row), {"do": "again"}).status_code == 403
    Webhook.objects.filter(pk=row.pk).update(body="", state="dead", due_at=None)
    assert "Erased" in seen(desk(), page(row)) and "Send again" not in seen(desk(), page(row))
    assert desk().post(page(row), {"do": "again"}).status_code == 409
    row.refresh_from_db()
    assert (row.state, Event.objects.filter(type="webhook.resent").count()) == ("dead", 0)


def test_sending_again_checks_the_token_of_the_form(world: World, receiver: Loopback) -> None:
    row = Webhook.objects.get(run=cancelled(world, receiver.url))
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = desk().cookies
    assert strict.post(page(row), {"do": "again"}).status_code == 403


def test_webhooks_and_notices_of_another_tenant_are_not_there(world: World, receiver: Loopback) -> None:
    row = Webhook.objects.get(run=cancelled(world, receiver.url))
    notice = Notice.objects.create(
        tenant_id=TENANT, kind="digest", channel="email", address="a@b.example", period="p", created_at=ago(1)
    )
    from agentsite.tenants.models import Tenant

    Tenant.objects.get_or_create(id="t_other")
    stranger = desk("stranger", tenants=("t_other",))
    assert "req-8472" not in seen(stranger, LIST) and "a@b.example" not in seen(stranger, NOTICES)
    assert stranger.get(page(row)).status_code in (302, 404)
    assert stranger.post(page(row), {"do": "again"}).status_code == 404
    assert stranger.get(f"{NOTICES}{notice.pk}/change/").status_code == 404
    assert "a@b.example" in seen(desk(), f"{NOTICES}{notice.pk}/change/")


def test_failed_notice_is_shown_on_the_approval_in_the_list_in_doctor_and_in_metrics(world: World) -> None:
    world.settings(EMAIL_URL="smtp://127.0.0.1:1")
    run = world.start()
    Notice.objects.filter(approval__run_id=run.pk).update(state="failed", error="smtp_550", due_at=None)
    staff = desk()
    review = seen(staff, f"/admin/approvals/approval/{world.approval(run).pk}/change/")
    assert "Not everybody could be told" in review and "the mail server said 550" in review
    listed = seen(staff, NOTICES + "?state=failed")
    assert "Could not be sent" in listed and "refunds@acme.example" in listed
    found = {one.name: one for one in findings.outside.examine()}
    assert (found["notices"].verdict, found["mail"].verdict) == ("warn", "fail")
    metrics = Client().get("/metrics").content.decode()
    assert 'agentsite_notices{state="failed"} 1.0' in metrics and 'agentsite_webhooks{state="dead"} 0.0' in metrics


def test_metrics_count_what_is_due_and_dead(world: World, receiver: Loopback) -> None:
    runs = [cancelled(world, receiver.url, f"req-{n}") for n in range(2)]
    Webhook.objects.filter(run=runs[0]).update(created_at=ago(100))
    Webhook.objects.filter(run=runs[1]).update(state="dead", due_at=None)
    lines = Client().get("/metrics").content.decode().splitlines()
    values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line.startswith("agentsite")}
    assert (values['agentsite_webhooks{state="due"}'], values['agentsite_webhooks{state="dead"}']) == (1, 1)
    assert 100 <= values["agentsite_webhooks_oldest_due_seconds"] < 400


def test_doctor_says_what_is_missing_to_tell_people(world: World) -> None:
    found = {one.name: one for one in findings.outside.examine()}
    assert (found["mail"].verdict, "EMAIL_URL is not set" in found["mail"].detail) == ("warn", True)
    assert (found["notices to staff"].verdict, TENANT in found["notices to staff"].detail) == ("warn", True)
    assert (found["webhook keys"].verdict, found["webhooks"].verdict) == ("ok", "ok")
    world.profile(webhook_secret_env="ACME_HOOK_KEY", notify={"webhook_env": "ACME_CHAT"})
    world.settings(WEBHOOK_PRIVATE_HOSTS="hooks.test")
    found = {one.name: one for one in findings.outside.examine()}
    assert (found["webhook keys"].verdict, found["webhook hosts"].verdict) == ("fail", "warn")
    assert (found["notices to staff"].verdict, "ACME_CHAT" in found["notices to staff"].detail) == ("fail", True)


def test_words_of_others_are_shown_and_do_nothing(world: World, receiver: Loopback) -> None:
    run = cancelled(world, receiver.url)
    row = Webhook.objects.get(run=run)
    body = json.dumps({"type": row.type, "data": {"customer_message": HOSTILE}})
    Webhook.objects.filter(pk=row.pk).update(body=body, host=HOSTILE[:40], url="https://x.example/" + HOSTILE)
    staff = desk()
    for path in (LIST, page(row)):
        text = staff.get(path).content.decode()
        assert "<img src=x" not in text and "\u202e" not in text
        assert "\\u202e" in html.unescape(text) or path == LIST


def test_command_shows_the_key_and_nothing_else_does(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call_command("webhook_secret", "--tenant", TENANT)
    shown = capsys.readouterr().out.splitlines()[-1]
    assert (shown,) == signing.keys(TENANT, "refunds")
    call_command("webhook_secret", "--tenant", TENANT, "--json")
    assert json.loads(capsys.readouterr().out) == {"secret": shown}
    world.settings(ACME_HOOK_KEY="whsec_" + "b2xk" * 8 + ",whsec_" + "bmV3" * 8)
    world.profile(webhook_secret_env="ACME_HOOK_KEY")
    call_command("webhook_secret", "--tenant", TENANT, "--json")
    assert json.loads(capsys.readouterr().out) == {"variable": "ACME_HOOK_KEY", "keys": 2}
    for wrong in ("t_nobody",):
        with pytest.raises(CommandError):
            call_command("webhook_secret", "--tenant", wrong)
    world.settings(ACME_HOOK_KEY="")
    with pytest.raises(CommandError, match="key_missing"):
        call_command("webhook_secret", "--tenant", TENANT)
