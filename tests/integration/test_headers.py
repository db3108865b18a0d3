"""What every answer carries, whatever it is; cookies, sessions, sign-in, and the way back from it."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client

from agentsite import clock, dbtime
from agentsite.tenants import signin
from agentsite.tenants.models import SignInTries
from runs import retention
from tests import approving, edge
from tests.approving import PASSWORD

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]
LOGIN = "/admin/login/"
POLICY = ("script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "form-action 'self'")
OURS_OR_NOTHING = ("default-src", "base-uri")


@pytest.fixture(autouse=True)
def _quick_hashes(settings: Any) -> None:
    quick, usual = "MD5PasswordHasher", "PBKDF2PasswordHasher"
    settings.PASSWORD_HASHERS = [f"django.contrib.auth.hashers.{name}" for name in (quick, usual)]


def sign_in(client: Client, name: str = "lead_17", password: str = PASSWORD, **more: Any) -> Any:
    return client.post(LOGIN, {"username": name, "password": password}, **more)


@pytest.mark.parametrize(
    "path",
    [
        "/", LOGIN, "/admin/", "/admin/none/", "/none", "/static/approvals/console.css", "/static/none.css",
        "/api/v1/runs", "/api/v1/runs/none", "/api/schema/", "/api/docs/", "/health/live", "/health/ready", "/metrics",
        "/c/none/", "/admin/runs/run/", "//evil.example/",
    ],
)  # fmt: skip
def test_every_answer_carries_them(path: str) -> None:
    for client in (Client(), approving.signed_in(approving.person(f"lead-{len(path)}", is_superuser=True))):
        holds(client.get(path))
        holds(client.post(path))
    holds(Client(headers={"host": "evil.example"}).get(path))


def holds(answer: Any) -> None:
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["X-Frame-Options"] == "DENY"
    assert answer["Referrer-Policy"] in ("same-origin", "no-referrer")
    assert answer["Permissions-Policy"] == "camera=(), geolocation=(), microphone=(), payment=(), usb=()"
    assert answer["Cross-Origin-Opener-Policy"] == answer["Cross-Origin-Resource-Policy"] == "same-origin"
    told = {part.strip() for part in answer["Content-Security-Policy"].split(";")}
    assert all({f"{name} 'self'", f"{name} 'none'"} & told for name in OURS_OR_NOTHING)
    assert set(POLICY) <= told and "unsafe" not in answer["Content-Security-Policy"]


def test_a_fault_of_ours_carries_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise RuntimeError("s3cret of a fault")

    monkeypatch.setattr("agentsite.health.current_report", fails)
    answer = Client(raise_request_exception=False).get("/health/ready")
    assert answer.status_code == 500 and "s3cret" not in answer.content.decode()
    holds(answer)


# --- cookies and transport ---------------------------------------------------------------------------------------


def test_cookies_are_ours_alone_and_the_token_is_for_scripts() -> None:
    client = Client()
    client.get(LOGIN)
    approving.person()
    sign_in(client)
    session, token = client.cookies["sessionid"], client.cookies["csrftoken"]
    assert (session["httponly"], session["samesite"], session["max-age"]) == (True, "Lax", 12 * 3600)
    assert (token["httponly"], token["samesite"]) == ("", "Lax")


CODE = (
    "import django\ndjango.setup()\nfrom django.conf import settings as s\n"
    "print(s.SESSION_COOKIE_SECURE, s.CSRF_COOKIE_SECURE, s.SECURE_HSTS_SECONDS)"
)


@pytest.mark.parametrize(("insecure", "told"), [("0", "True True 31536000"), ("1", "False False 0")])
def test_https_is_insisted_on_where_it_is_meant(tmp_path: Any, insecure: str, told: str) -> None:
    from tests.system.site import clean_environment

    known = clean_environment(
        VAR_DIR=str(tmp_path), INSECURE_HTTP=insecure, DATABASE_URL=f"sqlite:///{tmp_path}/x.sqlite3",
        SECRET_KEY="k" * 60, AUDIT_KEY="k1:of-a-test", BROKER_URL="memory://",
        DJANGO_SETTINGS_MODULE="agentsite.settings",
    )  # fmt: skip
    done = subprocess.run([sys.executable, "-c", CODE], env=known, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip().splitlines()[-1:] == [told], done.stderr[-1000:]


def test_hsts_goes_out_over_https_alone(settings: Any) -> None:
    settings.SECURE_HSTS_SECONDS = 31_536_000
    assert Client().get("/health/live", secure=True)["Strict-Transport-Security"] == "max-age=31536000"
    assert not Client().get("/health/live").has_header("Strict-Transport-Security")


# --- sessions ----------------------------------------------------------------------------------------------------


def test_a_session_from_before_the_sign_in_is_worth_nothing() -> None:
    approving.person()
    planted = Session.objects.create(session_key="p" * 32, session_data="", expire_date=clock.now() + timedelta(days=1))
    client, thief = Client(), Client()
    client.cookies["sessionid"] = thief.cookies["sessionid"] = planted.session_key
    assert sign_in(client).status_code == 302
    assert client.cookies["sessionid"].value != planted.session_key
    assert (client.get("/admin/").status_code, thief.get("/admin/").status_code) == (200, 302)


def test_a_new_password_and_a_logout_end_every_or_this_session() -> None:
    user = approving.person()
    first, second = Client(), Client()
    for client in (first, second):
        sign_in(client)
    form = {"old_password": PASSWORD, "new_password1": "another long word 9", "new_password2": "another long word 9"}
    assert first.post("/admin/password_change/", form).status_code == 302
    assert (first.get("/admin/").status_code, second.get("/admin/").status_code) == (200, 302)
    key = first.cookies["sessionid"].value
    first.post("/admin/logout/")
    assert not Session.objects.filter(session_key=key).exists()
    third = Client()
    third.cookies["sessionid"] = key
    assert third.get("/admin/").status_code == 302
    assert user.pk


def test_a_session_ends_by_itself() -> None:
    approving.person()
    client = Client()
    sign_in(client)
    Session.objects.update(expire_date=clock.now() - timedelta(seconds=1))
    assert client.get("/admin/").status_code == 302
    assert retention.end_sessions() == 1


def test_a_user_who_is_switched_off_is_out_at_once() -> None:
    approving.person()
    client = Client()
    sign_in(client)
    User.objects.update(is_active=False)
    assert client.get("/admin/").status_code == 302
    assert client.get("/api/v1/approvals").status_code in (401, 403)


# --- the way in --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "going",
    ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)", "http:///evil.example"],
)
def test_a_sign_in_leads_nowhere_else(going: str) -> None:
    approving.person()
    answer = Client().post(LOGIN, {"username": "lead_17", "password": PASSWORD, "next": going})
    assert (answer.status_code, answer["Location"]) == (302, "/admin/")
    assert Client().get(LOGIN, {"next": going}).status_code == 200


def test_whoever_guesses_waits_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    approving.person()
    client, moment = Client(), [dbtime.now()]
    monkeypatch.setattr(clock, "now", lambda: moment[0])
    for _ in range(signin.FREE):
        assert "Too many tries" not in sign_in(client, password="wrong").content.decode()
    waits = []
    for _ in range(4):
        held = sign_in(client)  # the right password, too: nothing is told by an answer
        assert held.status_code == 200 and "Too many tries" in held.content.decode()
        row = SignInTries.objects.get()
        waits.append((row.until - moment[0]).total_seconds())
        moment[0] = row.until + timedelta(milliseconds=1)
        sign_in(client, password="wrong")
    assert waits == [1.0, 2.0, 4.0, 8.0]
    assert "lead_17" not in str(SignInTries.objects.values()) and PASSWORD not in str(SignInTries.objects.values())
    moment[0] += timedelta(seconds=signin.LONGEST_S)
    assert sign_in(client).status_code == 302
    assert SignInTries.objects.count() == 0


def test_nobody_is_held_by_guesses_from_elsewhere_or_at_another_name() -> None:
    approving.person()
    approving.person("lead_18")
    for _ in range(signin.FREE + 3):
        sign_in(Client(), password="wrong", REMOTE_ADDR="203.0.113.7")
    assert "Too many" in sign_in(Client(), REMOTE_ADDR="203.0.113.7").content.decode()
    assert "Too many" in sign_in(Client(), name=" LEAD_17", REMOTE_ADDR="203.0.113.7").content.decode()
    assert sign_in(Client(), REMOTE_ADDR="198.51.100.1").status_code == 302
    assert sign_in(Client(), name="lead_18", REMOTE_ADDR="203.0.113.7").status_code == 302


def test_a_day_without_a_try_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    approving.person()
    for _ in range(signin.FREE + 2):
        sign_in(Client(), password="wrong")
    later = dbtime.now() + timedelta(days=2)
    monkeypatch.setattr(clock, "now", lambda: later)
    sign_in(Client(), password="wrong")
    assert SignInTries.objects.get().tries == 1
    assert signin.forget(later + timedelta(seconds=1)) == 1


def test_the_interface_for_programs_asks_staff_for_their_csrf_token() -> None:
    edge.tenant()
    client = Client(enforce_csrf_checks=True)
    client.force_login(approving.person(is_superuser=True))
    for path in ("/api/v1/approvals/apr_1/decision", "/api/v1/runs/0190b5f0-0000-7000-8000-000000000000/cancel"):
        assert edge.post(client, path, {"decision": "approve"}).status_code == 403
