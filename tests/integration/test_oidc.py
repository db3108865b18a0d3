"""Staff sign in through the company's identity provider: a real one on loopback, honest and lying (M115)."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from pydantic import ValidationError

from agentsite import env, oidc
from agentsite.tenants.models import CompanyAccount
from runs.management import staff
from tests.approving import PASSWORD
from tests.idp import CLIENT, SECRET, SPOILS, Provider

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]
LIES = (*SPOILS, "state", "key", "kid", "algorithm", "unsigned", "symmetric")


@pytest.fixture
def provider(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    with Provider() as running:
        for name, value in (("ISSUER", running.url), ("CLIENT_ID", CLIENT), ("CLIENT_SECRET", SECRET)):
            monkeypatch.setenv(f"OIDC_{name}", value)
        env.read.cache_clear()
        settings.ROOT_URLCONF = "tests.oidc_urls"
        settings.AUTHENTICATION_BACKENDS = [*settings.AUTHENTICATION_BACKENDS, "agentsite.oidc.CompanyBackend"]
        settings.OIDC_RP_CLIENT_ID, settings.OIDC_RP_CLIENT_SECRET = CLIENT, SECRET
        settings.OIDC_RP_SCOPES, settings.OIDC_USE_PKCE, settings.LOGIN_REDIRECT_URL = "openid", True, "/admin/"
        staff.put_groups()
        yield running
        oidc._known.clear()
    monkeypatch.undo()
    env.read.cache_clear()


class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        return None


def visit(url: str) -> str:
    """What a browser does at the provider; the path it is sent back to."""
    try:
        urllib.request.build_opener(Stay).open(url, timeout=10)
    except urllib.error.HTTPError as answer:
        parts = urlsplit(answer.headers["Location"])
        return f"{parts.path}?{parts.query}"
    raise AssertionError("the provider sends people back")


def sign_in(client: Client | None = None, going: str = "") -> tuple[Client, Any]:
    """A browser that went to the provider and came back, and the answer it got."""
    client = client or Client()
    sent = client.get(f"/oidc/authenticate/{going}")
    assert sent.status_code == 302
    return client, client.get(visit(sent["Location"]))


def console(client: Client) -> int:
    return client.get("/admin/").status_code


def said(client: Client) -> str:
    return client.get("/admin/login/").content.decode()


# --- who comes in -------------------------------------------------------------------------------------------------


def test_a_member_of_a_group_comes_in_with_its_permissions(provider: Provider) -> None:
    client, back = sign_in()
    user = User.objects.get(username="ana")
    assert (back.status_code, back["Location"], console(client)) == (302, "/admin/", 200)
    assert list(user.groups.values_list("name", flat=True)) == ["approvers"]
    assert (user.is_staff, user.is_superuser, user.has_usable_password()) == (True, False, False)
    assert user.has_perm("approvals.decide_approval") and not user.has_perm("approvals.decide_large_approval")
    account = CompanyAccount.objects.get()
    assert (account.issuer, account.subject, account.user_id) == (provider.url, "u-1", user.pk)


def test_groups_are_read_again_at_each_sign_in(provider: Provider) -> None:
    client, _ = sign_in()
    provider.claims["groups"] = ["senior approvers", "operators", "Approvers", "admins"]
    sign_in()
    user = User.objects.get()
    assert set(user.groups.values_list("name", flat=True)) == {"senior approvers", "operators"}
    provider.claims["groups"] = []
    other, back = sign_in()
    user.refresh_from_db()
    assert (user.is_staff, user.groups.count(), back["Location"]) == (False, 0, "/admin/login/")
    assert (console(client), console(other)) == (302, 302)  # the session of before is nobody's any more
    assert "has no role here" in said(other)


@pytest.mark.parametrize("groups", [None, [], "nobody", ["Auditors"], [1, None, {}], {"a": 1}, ["superusers"]])
def test_without_a_group_of_ours_nobody_comes_in(provider: Provider, groups: Any) -> None:
    provider.claims |= {"groups": groups, "is_superuser": True, "is_staff": True}
    client, back = sign_in()
    assert (back["Location"], console(client)) == ("/admin/login/", 302)
    assert list(User.objects.values_list("is_staff", "is_superuser", "username")) == [(False, False, "ana")]


def test_no_claim_makes_a_superuser_and_none_takes_it_from_one(provider: Provider) -> None:
    provider.claims |= {"is_superuser": True, "roles": ["superuser"]}
    sign_in()
    user = User.objects.get()
    assert not user.is_superuser
    User.objects.update(is_superuser=True)
    provider.claims["groups"] = []
    client, _ = sign_in()
    user.refresh_from_db()
    assert (user.is_superuser, user.is_staff, console(client)) == (True, True, 200)


def test_an_address_or_a_name_makes_nobody_its_owner(provider: Provider) -> None:
    root = User.objects.create_superuser("ana", "ana@acme.example", PASSWORD)
    provider.claims |= {"email": "ana@acme.example", "email_verified": True}
    sign_in()
    came = CompanyAccount.objects.get().user
    assert came.pk != root.pk and came.username.startswith("ana-") and not came.is_superuser
    provider.claims |= {"sub": "u-2"}
    sign_in()
    assert User.objects.count() == 3
    assert not CompanyAccount.objects.filter(user=root).exists()


def test_the_same_subject_is_the_same_user_whatever_he_is_called_now(provider: Provider) -> None:
    sign_in()
    provider.claims["preferred_username"] = "ana.married"
    sign_in()
    assert list(User.objects.values_list("username", flat=True)) == ["ana"]


@pytest.mark.parametrize(
    ("told", "name"),
    [("\u202eana\u200b", "u202eana-u200b"), ("", "staff"), ("<script>", "script"), ("ana lead", "ana-lead")],
)
def test_names_are_plain(provider: Provider, told: str, name: str) -> None:
    provider.claims["preferred_username"] = told
    sign_in()
    assert User.objects.get().username == name


def test_a_deactivated_user_cannot_come_in_and_is_out_at_once(provider: Provider) -> None:
    client, _ = sign_in()
    assert console(client) == 200
    User.objects.update(is_active=False)
    assert console(client) == 302
    other, back = sign_in()
    assert (back["Location"], console(other)) == ("/admin/login/", 302)


def test_groups_at_the_userinfo_endpoint_count_and_somebody_elses_do_not(provider: Provider) -> None:
    provider.groups_at_userinfo, provider.spoil = True, "userinfo"
    client, _ = sign_in()
    assert (console(client), User.objects.count()) == (302, 0)
    provider.spoil = ""
    client, _ = sign_in()
    assert console(client) == 200


def test_a_client_that_sends_its_secret_in_the_form_where_the_provider_wants_it(provider: Provider) -> None:
    provider.basic = False
    client, _ = sign_in()
    assert console(client) == 200


def test_a_group_of_the_sites_own_making_is_left_alone(provider: Provider) -> None:
    sign_in()
    own = Group.objects.create(name="night shift")
    own.permissions.add(Permission.objects.get(codename="view_run"))
    User.objects.get().groups.add(own)
    provider.claims["groups"] = []
    client, _ = sign_in()
    assert console(client) == 200
    assert list(User.objects.get().groups.values_list("name", flat=True)) == ["night shift"]


def test_the_groups_are_those_that_bootstrap_makes() -> None:
    assert set(oidc.GROUPS) == set(staff.put_groups())


# --- who does not -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lie", LIES)
def test_a_token_that_is_not_quite_right_lets_nobody_in(provider: Provider, lie: str) -> None:
    provider.spoil = lie
    client, back = sign_in()
    assert (back.status_code, back["Location"], console(client)) == (302, "/admin/login/", 302)
    assert "You could not be signed in" in said(client)
    assert (User.objects.count(), CompanyAccount.objects.count()) == (0, 0)
    provider.spoil = ""
    assert console(sign_in(client)[0]) == 200


def test_a_provider_that_calls_itself_another_or_is_away_is_said_so(provider: Provider) -> None:
    provider.spoil = "discovery"
    client = Client()
    assert client.get("/oidc/authenticate/")["Location"] == "/admin/login/"
    assert "does not answer" in said(client)
    provider.spoil = ""
    provider.__exit__()
    assert client.get("/oidc/authenticate/")["Location"] == "/admin/login/"
    assert client.post("/admin/login/", {"username": "x", "password": "y"}).status_code == 200


def test_a_code_serves_once_and_only_the_browser_that_asked(provider: Provider) -> None:
    client, other = Client(), Client()
    path = visit(client.get("/oidc/authenticate/")["Location"])
    assert other.get(path)["Location"] == "/admin/login/"
    assert console(other) == 302
    assert client.get(path)["Location"] == "/admin/"
    client.post("/admin/logout/")
    assert client.get(path)["Location"] == "/admin/login/"
    assert console(client) == 302


def test_the_provider_is_asked_about_itself_once(provider: Provider) -> None:
    for _ in range(3):
        sign_in()
    assert provider.asked.count("/.well-known/openid-configuration") == 1


# --- sessions, pages ----------------------------------------------------------------------------------------------


def test_a_sign_in_makes_a_new_session_and_logout_ends_it(provider: Provider) -> None:
    client = Client()
    client.get("/oidc/authenticate/")
    before = client.cookies["sessionid"].value
    sign_in(client)
    after = client.cookies["sessionid"].value
    assert before != after
    client.post("/admin/logout/")
    stolen = Client()
    stolen.cookies["sessionid"] = after
    assert (console(client), console(stolen)) == (302, 302)


@pytest.mark.parametrize(
    ("going", "led"),
    [("?next=/admin/runs/run/", "/admin/runs/run/"), ("?next=https://evil.example/", "/admin/"),
     ("?next=//evil.example/", "/admin/"), ("?next=/%5Cevil.example", "/admin/"), ("?next=javascript:x", "/admin/")],
)  # fmt: skip
def test_people_are_led_on_within_the_site_alone(provider: Provider, going: str, led: str) -> None:
    assert sign_in(going=going)[1]["Location"] == led


def test_the_sign_in_page_offers_both_ways(provider: Provider) -> None:
    page = Client().get("/admin/login/?next=/admin/runs/run/").content.decode()
    assert 'href="/oidc/authenticate/?next=%2Fadmin%2Fruns%2Frun%2F"' in page
    assert 'name="password"' in page and SECRET not in page


def test_what_is_sent_to_the_provider(provider: Provider) -> None:
    sent = parse_qs(urlsplit(Client().get("/oidc/authenticate/")["Location"]).query)
    assert sent["redirect_uri"] == ["http://testserver/oidc/callback/"]
    assert sent["code_challenge_method"] == ["S256"] and len(sent["state"][0]) >= 32 and len(sent["nonce"][0]) >= 32


def test_the_address_of_the_outside_is_the_one_given(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUBLIC_URL", "https://agent.example")
    env.read.cache_clear()
    sent = parse_qs(urlsplit(Client().get("/oidc/authenticate/")["Location"]).query)
    assert sent["redirect_uri"] == ["https://agent.example/oidc/callback/"]


# --- off, or half configured --------------------------------------------------------------------------------------


def test_without_a_provider_nothing_of_it_is_there() -> None:
    client = Client()
    assert "company account" not in client.get("/admin/login/").content.decode()
    assert [client.get(f"/oidc/{page}/").status_code for page in ("authenticate", "callback")] == [404, 404]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"OIDC_ISSUER": "https://idp.example"}, "all three or none"),
        ({"OIDC_CLIENT_ID": "a", "OIDC_CLIENT_SECRET": "b"}, "all three or none"),
        ({"OIDC_ISSUER": "http://idp.example", "OIDC_CLIENT_ID": "a", "OIDC_CLIENT_SECRET": "b"}, "https://"),
        ({"OIDC_SCOPES": "profile"}, "openid"),
    ],
)
def test_half_a_configuration_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        env.Environment(**given)  # type: ignore[arg-type]
