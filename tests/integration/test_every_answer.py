"""Every address of the console and of the interface: no secret, no raw markup, nothing hidden, and no POST unasked."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.test import Client

from agentsite import env
from agentsite.tenants.models import ServiceToken, Site, StaffTenant, Tenant
from approvals.models import Approval, Decision
from runs.management import staff
from runs.models import Attachment, Event, Feedback, Input, Run, Webhook, Write
from tests import everywhere
from tests.planted import leaks

pytestmark = pytest.mark.django_db
Json = dict[str, Any]
RAW = ("<script>window.ran", "<img src=x")
FORMULA = ("=", "+", "-", "@", "\t", "\r")
PLANTED = {
    "COMMERCE_READ_TOKEN": "planted-read-0123456789", "COMMERCE_WRITE_TOKEN": "planted-write-0123456789",
    "OPENAI_API_KEY": "planted-model-0123456789", "EMAIL_URL": "smtps://me:planted-mail-0123456789@mail.example",
    "NOTIFY_WEBHOOK_URL": "https://chat.example/planted-hook-0123456789", "OIDC_ISSUER": "https://idp.example",
    "OIDC_CLIENT_ID": "console", "OIDC_CLIENT_SECRET": "planted-oidc-0123456789",
}  # fmt: skip
TABLES = (
    Approval,
    Attachment,
    Decision,
    Event,
    Feedback,
    Input,
    LogEntry,
    Run,
    ServiceToken,
    StaffTenant,
    Tenant,
    Webhook,
    Write,
)


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)
    env.read.cache_clear()
    keys = [pair.partition(":")[2] for pair in settings.AUDIT_KEY.split(",")]
    yield (*(v for n, v in PLANTED.items() if "0123456789" in v), "planted-mail-0123456789", settings.SECRET_KEY, *keys)
    monkeypatch.undo()
    env.read.cache_clear()


def rows() -> dict[str, int]:
    return {model.__name__: model._default_manager.count() for model in TABLES}


def test_every_page_is_escaped_shows_what_is_invisible_and_holds_no_secret(secrets: tuple[str, ...]) -> None:
    lead = everywhere.stage()
    token = staff.make_token(tenant_id="t_acme_in", name="sweeper", scopes=["runs:read", "runs:write"])
    known = (*secrets, token)
    client, before = Client(), None
    client.force_login(lead)
    pages = 0
    for _, path in everywhere.addresses():
        before = before or rows()
        answer = client.get(path)
        assert answer.status_code < 500, path
        body = _body(answer)
        assert leaks(body.replace(path, ""), known) == [], path
        if answer["Content-Type"].startswith("text/html"):
            pages += answer.status_code == 200
            assert [raw for raw in RAW if raw in body] == [], path
            assert [hex(ord(c)) for c in everywhere.INVISIBLE if c in body] == [], path
        if answer["Content-Type"].startswith("text/csv"):
            cells = [cell for row in csv.reader(io.StringIO(body)) for cell in row]
            assert len(cells) > 5 and [cell for cell in cells if cell.startswith(FORMULA)] == [], path
        if path == "/admin/logout/":
            client.force_login(lead)
    assert pages > 50
    assert before is not None and rows() == before, "a GET changed something"
    assert Approval.objects.filter(status="pending").count() == 1


def _body(answer: Any) -> str:
    raw = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return raw.decode(errors="replace")


def test_every_answer_of_the_interface_holds_no_secret(secrets: tuple[str, ...]) -> None:
    lead = everywhere.stage()
    token = staff.make_token(tenant_id="t_acme_in", name="sweeper", scopes=["runs:read", "runs:write"])
    known = (*secrets, *ServiceToken.objects.values_list("digest", flat=True))
    run = Run.objects.get(request_id="req-2")
    shop, person = Client(headers={"Authorization": f"Bearer {token}"}), Client()
    person.force_login(lead)
    runs = ["/api/v1/runs", *(f"/api/v1/runs/{run.pk}{end}" for end in ("", "/events?limit=200", "/observations"))]
    runs += ["/api/schema/", "/api/docs/", "/health/ready", "/health/live", "/metrics", "/api/v1/runs/none"]
    asked = ["/api/v1/approvals", *(f"/api/v1/approvals/{pk}" for pk in Approval.objects.values_list("pk", flat=True))]
    for client, paths in ((shop, runs), (person, [*runs, *asked])):
        for path in paths:
            answer = client.get(path)
            assert answer.status_code < 500, path
            assert leaks(_body(answer), (*known, token)) == [], path


def test_no_post_of_the_console_is_taken_without_its_token() -> None:
    lead = everywhere.stage()
    forger = Client(enforce_csrf_checks=True)
    forger.force_login(lead)
    before, form = rows(), {
        "decision": "approve", "do": "settle", "reason": "other", "to": "stopped", "act": "reject", "hold": "claim",
        "action": "revoke", "post": "yes", "_save": "Save", "username": "x", "password": "y", "text": "x", "note": "x",
    }  # fmt: skip
    taken = {}
    for _, path in everywhere.addresses():
        status = forger.post(path, form).status_code
        if status not in (403, 404, 405):
            taken[path] = status
    assert taken == {}
    assert rows() == before and Site.objects.get().paused is False
    assert forger.get("/admin/").status_code == 200, "and nobody was signed out by it"
