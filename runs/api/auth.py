"""Door: who is asking (a service token or a signed-in member of staff) and what of whom they may touch.

Imports no zone and no store. A token is looked up by its hash alone; it belongs to one tenant and has scopes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from django.conf import settings
from knox.crypto import hash_token
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication, SessionAuthentication, get_authorization_header
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

from agentsite import canonical, clock
from agentsite.refusals import Refusal
from agentsite.tenants.models import ServiceToken, visible_tenants
from runs.api import live

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from rest_framework.views import APIView

READ, WRITE = "runs:read", "runs:write"
SCOPES = (WRITE, READ)
MAX_TOKEN_CHARS = 200
MAX_PIECES = 50_000
"""Of a body's JSON: its megabytes are for files."""


class BearerAuthentication(BaseAuthentication):
    """`Authorization: Bearer TOKEN`. Every reason a token does not serve gives the same answer."""

    def authenticate(self, request: Request) -> tuple[User, ServiceToken] | None:
        words = get_authorization_header(request).split()
        if not words or words[0].lower() != b"bearer":
            return None
        if len(words) != 2:
            raise exceptions.AuthenticationFailed("The Authorization header is not `Bearer TOKEN`.")
        return self._known(words[1])

    def _known(self, raw: bytes) -> tuple[User, ServiceToken]:
        if len(raw) > MAX_TOKEN_CHARS or not raw.isascii():
            raise exceptions.AuthenticationFailed("Invalid token.")
        token = ServiceToken.objects.select_related("user").filter(digest=hash_token(raw.decode())).first()
        if token is None or not token.user.is_active or (token.expiry is not None and token.expiry <= clock.now()):
            raise exceptions.AuthenticationFailed("Invalid token.")
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class StaffSession(SessionAuthentication):
    """A signed-in member of staff, with CSRF; any other signed-in user is nobody here."""

    def authenticate(self, request: Request) -> tuple[User, None] | None:
        user = getattr(request._request, "user", None)
        if user is None or not user.is_active or not user.is_staff:
            return None
        self.enforce_csrf(request)
        return user, None


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who asks: `tenants` None means all (a superuser); `by` is how records name the caller."""

    user: User
    token: ServiceToken | None
    tenants: frozenset[str] | None

    @property
    def by(self) -> str:
        return f"user:{self.user.pk}" if self.token is not None else f"staff:{self.user.get_username()}"

    @property
    def writes(self) -> bool:
        """Whether the caller may say things in the customer's name, as a customer's link lets whoever holds it."""
        return self.token is not None and WRITE in self.token.scope_list()

    @property
    def tenant_id(self) -> str:
        assert self.token is not None, "only a token belongs to one tenant"
        return str(self.token.tenant_id)


def reader(request: Request) -> Caller:
    """A caller who may read runs. Raises Refusal 403 `scope-missing`."""
    token = token_of(request)
    if token is not None:
        _need(token, READ)
        return Caller(user=token.user, token=token, tenants=frozenset({token.tenant_id}))
    return _staff(request)


def client(request: Request) -> Caller:
    """A client program that may write. Raises Refusal 403 `token-required` for staff, else `scope-missing`."""
    token = token_of(request)
    if token is None:
        raise Refusal(403, "token-required", "Only a client program with a token may do this.")
    _need(token, WRITE)
    return Caller(user=token.user, token=token, tenants=frozenset({token.tenant_id}))


def canceller(request: Request) -> Caller:
    """A client that may write, or staff with `runs.operate_run`. Raises Refusal 403."""
    if token_of(request) is not None:
        return client(request)
    staff = _staff(request)
    if not staff.user.has_perm("runs.operate_run"):
        raise Refusal(403, "permission-missing", "This needs the permission runs.operate_run.")
    return staff


def token_of(request: Request) -> ServiceToken | None:
    return request.auth if isinstance(request.auth, ServiceToken) else None


def _staff(request: Request) -> Caller:
    user: Any = request.user
    seen = visible_tenants(user)
    return Caller(user=user, token=None, tenants=None if seen is None else frozenset(seen))


def _need(token: ServiceToken, scope: str) -> None:
    if scope not in token.scope_list():
        raise Refusal(403, "scope-missing", "The token lacks a scope.", f"This needs the scope {scope}.")


class StrictJsonParser(BaseParser):
    """JSON in UTF-8 that reads one way only: no duplicate keys, NaN, huge integers or deep nesting; 40 MB at most."""

    media_type = "application/json"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        limit: int = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        raw = stream.read(limit + 1)
        if len(raw) > limit:
            raise Refusal(413, "body-too-large", "The body is too large.", f"At most {limit // 1_048_576} MB.")
        try:
            return canonical.strict_loads(raw.decode("utf-8"), most=MAX_PIECES)
        except UnicodeDecodeError:
            raise exceptions.ParseError("The body is not UTF-8.") from None
        except canonical.NotStrictJson as error:
            raise exceptions.ParseError(f"The body is refused: {error}.") from None


class AlwaysJson(BaseContentNegotiation):
    """One representation only, so the Accept header is no reason to refuse (RFC 9110, 12.4.1)."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        kind = (request.content_type or "").partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == kind), None)

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        return renderers[0], renderers[0].media_type


class CallerThrottle(SimpleRateThrottle):
    """Per token (by its digest) or member of staff: reads and writes are counted apart.

    Counts are kept per process: a brake on runaway clients, no security limit.
    """

    def __init__(self) -> None:
        # The scope is known only with the request: see `allow_request`.
        pass

    def allow_request(self, request: Request, view: APIView) -> bool:
        slot = live.slot_of(request._request)
        if slot is not None and slot.parked is not None:
            return True  # a long poll that goes on: it was counted when it came
        self.scope = "reads" if request.method in ("GET", "HEAD", "OPTIONS") else "runs"
        self.rate = self.get_rate()
        self.num_requests, self.duration = self.parse_rate(self.rate)
        return super().allow_request(request, view)

    def get_cache_key(self, request: Request, view: APIView) -> str:
        token = token_of(request)
        who = token.digest[:40] if token is not None else f"user-{getattr(request.user, 'pk', None)}"
        return f"throttle-{self.scope}-{who}"
