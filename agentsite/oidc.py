"""Roof: staff sign in through the company's identity provider, where one is configured (OIDC, the extra `oidc`).

Authorization code with PKCE, state and nonce; ID tokens signed with RS256 alone. A user is known by issuer and subject,
never by an address or a name; groups are read at each sign-in, and no claim makes a superuser.
"""

from __future__ import annotations

import hmac
import re
from typing import Any
from urllib.parse import urlsplit

import jwt
import requests
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import Group, User
from django.core.exceptions import SuspiciousOperation
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from mozilla_django_oidc.auth import OIDCAuthenticationBackend
from mozilla_django_oidc.views import OIDCAuthenticationCallbackView, OIDCAuthenticationRequestView
from requests.auth import HTTPBasicAuth

from agentsite import clock, env, telemetry
from agentsite.tenants.models import CompanyAccount
from agentsite.text import visible

GROUPS = ("approvers", "senior approvers", "operators", "auditors")
ALGORITHM = "RS256"
LEEWAY_S = 60
KNOWN_FOR_S = 3600.0
TIMEOUT_S = 10.0
MAX_BYTES = 1_000_000
NAMED = re.compile(r"[^A-Za-z0-9_.@+-]+")
ENDPOINTS = {
    "OIDC_OP_AUTHORIZATION_ENDPOINT": "authorization_endpoint", "OIDC_OP_TOKEN_ENDPOINT": "token_endpoint",
    "OIDC_OP_JWKS_ENDPOINT": "jwks_uri", "OIDC_OP_USER_ENDPOINT": "userinfo_endpoint",
}  # fmt: skip
_known: dict[str, tuple[float, dict[str, Any]]] = {}


class ProviderAway(SuspiciousOperation):
    """The identity provider did not answer, or said what no provider says; the words are ours."""


def provider() -> dict[str, Any]:
    """What the issuer says of itself: asked at the first sign-in, known for an hour. Raises ProviderAway."""
    issuer = env.read().OIDC_ISSUER
    asked_at, found = _known.get(issuer, (-KNOWN_FOR_S, {}))
    if clock.monotonic() - asked_at < KNOWN_FOR_S:
        return found
    found = _json(_call("GET", f"{issuer}/.well-known/openid-configuration"))
    if str(found.get("issuer", "")).rstrip("/") != issuer:
        raise ProviderAway("the provider calls itself by another name")
    for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
        if not safe_url(str(found.get(name, ""))):
            raise ProviderAway(f"the provider names no {name} that can be trusted")
    _known[issuer] = clock.monotonic(), found
    return found


def safe_url(url: str) -> bool:
    """Whether secrets may go there: https, or plain http where the issuer itself is."""
    issuer = env.read().OIDC_ISSUER
    return url.startswith("https://") or (urlsplit(issuer).scheme == "http" and url.startswith("http://"))


def _call(method: str, url: str, **more: Any) -> requests.Response:
    """One request that follows no redirect: what it carries is for this address alone."""
    try:
        answer = requests.request(method, url, timeout=TIMEOUT_S, allow_redirects=False, **more)
    except requests.RequestException as error:
        raise ProviderAway(type(error).__name__) from None
    if answer.status_code != 200 or len(answer.content) > MAX_BYTES:
        raise ProviderAway(f"answered {answer.status_code}")
    return answer


def _json(answer: requests.Response) -> dict[str, Any]:
    try:
        found = answer.json()
    except ValueError:
        raise ProviderAway("answered no JSON") from None
    if not isinstance(found, dict):
        raise ProviderAway("answered no object")
    return found


def setting(name: str, *default: Any) -> Any:
    """A setting of the library: an address as the provider names it, anything else as Django has it."""
    if name in ENDPOINTS:
        return provider().get(ENDPOINTS[name])
    return getattr(settings, name, *default)


def callback_url(request: HttpRequest) -> str:
    """Where the provider sends people back: by PUBLIC_URL where it is set, whatever a proxy made of the address."""
    path = reverse("oidc_authentication_callback")
    return env.read().PUBLIC_URL + path if env.read().PUBLIC_URL else request.build_absolute_uri(path)


# --- who it is -------------------------------------------------------------------------------------------------


class CompanyBackend(OIDCAuthenticationBackend):  # type: ignore[misc]
    """Turns a code into a member of staff, or into nobody."""

    def __init__(self) -> None:
        # Django makes one for every request: the library's own would ask the provider each time.
        self.UserModel = User
        self.OIDC_RP_CLIENT_ID = settings.OIDC_RP_CLIENT_ID
        self.OIDC_RP_CLIENT_SECRET = settings.OIDC_RP_CLIENT_SECRET
        self.OIDC_RP_SIGN_ALGO, self.OIDC_RP_IDP_SIGN_KEY = ALGORITHM, None

    get_settings = staticmethod(setting)

    def get_token(self, payload: dict[str, Any]) -> dict[str, Any]:
        found = provider()
        methods = found.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        data, auth = {**payload, "redirect_uri": callback_url(self.request)}, None
        if "client_secret_basic" in methods:
            auth = HTTPBasicAuth(data.pop("client_id"), data.pop("client_secret"))
            data["client_id"] = self.OIDC_RP_CLIENT_ID
        return _json(_call("POST", found["token_endpoint"], data=data, auth=auth))

    def retrieve_matching_jwk(self, token: str) -> jwt.PyJWK:
        """The provider's key of this token's id; a token without an id fits the only key there is."""
        kid = jwt.get_unverified_header(token).get("kid")
        keys = [k for k in _json(_call("GET", provider()["jwks_uri"])).get("keys", []) if k.get("kty") == "RSA"]
        fits = [k for k in keys if (k.get("kid") == kid if kid else len(keys) == 1) and k.get("use", "sig") == "sig"]
        if len(fits) != 1:
            raise SuspiciousOperation("no key of the provider fits the token")
        return jwt.PyJWK(fits[0], algorithm=ALGORITHM)

    def verify_token(self, token: str, **kwargs: Any) -> dict[str, Any]:
        """The claims of an ID token that is for us, in time, and of this very sign-in. Raises SuspiciousOperation."""
        try:
            key = self.retrieve_matching_jwk(token)
            claims: dict[str, Any] = jwt.decode(
                token, key, algorithms=[ALGORITHM], audience=self.OIDC_RP_CLIENT_ID, leeway=LEEWAY_S,
                issuer=provider()["issuer"], options={"require": ["exp", "iat", "iss", "aud", "sub", "nonce"]},
            )  # fmt: skip
        except (jwt.PyJWTError, TypeError, ValueError, AttributeError) as error:
            raise SuspiciousOperation(f"the token was refused: {type(error).__name__}") from None
        if not hmac.compare_digest(str(claims["nonce"]).encode(), str(kwargs.get("nonce") or "").encode()):
            raise SuspiciousOperation("the token is of another sign-in")
        others = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if (others or "azp" in claims) and claims.get("azp") != self.OIDC_RP_CLIENT_ID:
            raise SuspiciousOperation("the token is for another client")
        return claims

    def get_or_create_user(self, access_token: str, id_token: str, payload: dict[str, Any]) -> User | None:
        """The user behind these claims, with his groups as they are now; None where he may not come in."""
        subject = payload["sub"]
        if not isinstance(subject, str) or not 0 < len(subject) <= 255:
            raise SuspiciousOperation("the token names no subject")
        claims = self._with_groups(access_token, payload)
        with transaction.atomic():
            user = known(payload["iss"].rstrip("/"), subject, str(claims.get("preferred_username") or ""))
            if not user.is_active:
                return None
            admit(user, claimed_groups(claims))
        return user if user.is_staff else None

    def _with_groups(self, access_token: str, claims: dict[str, Any]) -> dict[str, Any]:
        """Some providers tell groups at their userinfo endpoint alone."""
        name, url = env.read().OIDC_GROUPS_CLAIM, str(provider().get("userinfo_endpoint") or "")
        if name in claims or not safe_url(url):
            return claims
        told = _json(_call("GET", url, headers={"Authorization": f"Bearer {access_token}"}))
        if told.get("sub") != claims["sub"]:
            raise SuspiciousOperation("the provider tells of somebody else")
        return {**told, **claims}

    def get_user(self, user_id: Any) -> User | None:
        """The library's own would let a deactivated user go on."""
        return User.objects.filter(pk=user_id, is_active=True).first()


def claimed_groups(claims: dict[str, Any]) -> set[str]:
    """Those of our groups that the claim names, by exactly their names."""
    told = claims.get(env.read().OIDC_GROUPS_CLAIM)
    names = [told] if isinstance(told, str) else told if isinstance(told, list) else []
    return {name for name in names if isinstance(name, str)} & set(GROUPS)


def known(issuer: str, subject: str, wished: str) -> User:
    """The user of this account at the provider, made where he comes for the first time; in the caller's transaction."""
    now = clock.now()
    account = CompanyAccount.objects.select_related("user").filter(issuer=issuer, subject=subject).first()
    if account is not None:
        CompanyAccount.objects.filter(pk=account.pk).update(seen_at=now)
        return User.objects.select_for_update().get(pk=account.user_id)
    user = User.objects.create_user(_free_name(wished, f"{issuer}\n{subject}"))
    CompanyAccount.objects.create(user=user, issuer=issuer, subject=subject, created_at=now, seen_at=now)
    telemetry.log("signin.account_made", user=user.pk)
    return user


def _free_name(wished: str, account: str) -> str:
    """The name the provider tells, where nobody has it; a name that is taken never makes somebody its owner."""
    name = NAMED.sub("-", visible(wished)).strip("-.")[:100] or "staff"
    if not User.objects.filter(username__iexact=name).exists():
        return name
    return f"{name}-{env.digest(account)[:10]}"


def admit(user: User, names: set[str]) -> None:
    """Exactly these of our groups; staff while there is one. A group of the site's own making is left alone."""
    held = set(user.groups.values_list("name", flat=True))
    user.groups.remove(*Group.objects.filter(name__in=(held & set(GROUPS)) - names))
    user.groups.add(*Group.objects.filter(name__in=names - held))
    may = user.groups.exists() or user.is_superuser
    if user.is_staff != may:
        user.is_staff = may
        user.save(update_fields=["is_staff"])


# --- the two pages ---------------------------------------------------------------------------------------------


class SignIn(OIDCAuthenticationRequestView):  # type: ignore[misc]
    """Sends people to the provider."""

    get_settings = staticmethod(setting)

    def __init__(self, **kwargs: Any) -> None:
        super(OIDCAuthenticationRequestView, self).__init__(**kwargs)

    def get(self, request: HttpRequest) -> HttpResponse:
        try:
            self.OIDC_OP_AUTH_ENDPOINT = provider()["authorization_endpoint"]
        except ProviderAway as error:
            return turned_away(request, error, "Your company's sign-in does not answer. Try again, or use a password.")
        self.OIDC_RP_CLIENT_ID = settings.OIDC_RP_CLIENT_ID
        answer: HttpResponse = super().get(request)
        return answer

    def get_extra_params(self, request: HttpRequest) -> dict[str, str]:
        return {"redirect_uri": callback_url(request)}


class Callback(OIDCAuthenticationCallbackView):  # type: ignore[misc]
    """Takes people back from the provider."""

    get_settings = staticmethod(setting)

    def get(self, request: HttpRequest) -> HttpResponse:
        try:
            answer: HttpResponse = super().get(request)
        except SuspiciousOperation as error:
            return turned_away(request, error, "You could not be signed in. Try again.")
        return answer

    def login_failure(self) -> HttpResponse:
        words = "You could not be signed in: your account has no role here, or it is switched off."
        return turned_away(self.request, None, words)


def turned_away(request: HttpRequest, error: Exception | None, words: str) -> HttpResponse:
    """Back to the form, which says so; why stands in the log alone."""
    telemetry.count("signins_refused")
    telemetry.log("signin.refused", error=str(error) if error else "no_role")
    messages.error(request, words)
    return HttpResponseRedirect(reverse("admin:login"))
