"""Roof: one trace id a request, liveness and readiness. Changes nothing; knows no business rule.

Ready is 503 only where this process cannot work: no database, a missing migration, a hung thread. What is merely
degraded (broker, models, business system) is named at 200, because runs wait for it by themselves.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from socket import create_connection
from typing import Any
from urllib.parse import urlsplit

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.db import DatabaseError, InterfaceError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.views.decorators.http import require_safe

from agentsite import clock, env, telemetry
from agentsite.tenants import switches
from runs.management.schema import missing_migrations

TRACE_ID = re.compile(r"[0-9a-f]{32}")
TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
NO_TRACE = "0" * 32
CACHED_S = 5.0
CONNECT_S = 0.5
CHECKS_S = 1.0
PORTS = {"redis": 6379, "rediss": 6379, "amqp": 5672, "amqps": 5671, "http": 80, "https": 443}
PROVIDER_URLS = {"openai": "https://api.openai.com", "anthropic": "https://api.anthropic.com"}


# --- trace ids ---------------------------------------------------------------------------------------------


def trace_of(request: HttpRequest) -> str:
    """32 hex digits: the client's `X-Trace-Id` or `traceparent` where it is one, else new."""
    given = request.headers.get("X-Trace-Id", "").strip().lower().replace("-", "")
    if not TRACE_ID.fullmatch(given):
        parent = TRACEPARENT.fullmatch(request.headers.get("traceparent", "").strip().lower())
        given = parent.group(1) if parent else NO_TRACE
    return uuid.uuid4().hex if given == NO_TRACE else given


class TraceMiddleware:
    """Gives every request a trace id: on the request, on every log line inside, and on the reply."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        trace_id = trace_of(request)
        request.trace_id = trace_id  # type: ignore[attr-defined]
        if self.is_async:
            return self._later(request, trace_id)
        with telemetry.context(trace_id=trace_id):
            return _traced(self.get_response(request), trace_id)

    async def _later(self, request: HttpRequest, trace_id: str) -> HttpResponseBase:
        with telemetry.context(trace_id=trace_id):
            return _traced(await self.get_response(request), trace_id)


def _traced(response: HttpResponseBase, trace_id: str) -> HttpResponseBase:
    response.headers.setdefault("X-Trace-Id", trace_id)
    return response


# --- health ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Report:
    """What readiness found: the parts that must work, and those that may be degraded."""

    needed: dict[str, str]
    others: dict[str, str]

    @property
    def ready(self) -> bool:
        return all(word == "ok" for word in self.needed.values())

    def wire(self) -> dict[str, Any]:
        degraded = any(word != "ok" for word in self.others.values())
        status = "unavailable" if not self.ready else "degraded" if degraded else "ok"
        return {"status": status, "checks": {**self.needed, **self.others}}


class _Cached:
    """The last report and when it was made, so that a probe a second costs one look every five."""

    lock = threading.Lock()
    made_at = -CACHED_S
    report: Report | None = None


@require_safe
def live(request: HttpRequest) -> HttpResponse:
    """The process answers; nothing else is looked at."""
    return JsonResponse({"status": "ok"})


@require_safe
def ready(request: HttpRequest) -> HttpResponse:
    """200 while this process can work, else 503; names every part."""
    report = current_report()
    return JsonResponse(report.wire(), status=200 if report.ready else 503, headers={"Cache-Control": "no-store"})


def current_report() -> Report:
    """A report at most five seconds old."""
    with _Cached.lock:
        if _Cached.report is None or clock.monotonic() - _Cached.made_at > CACHED_S:
            _Cached.report = Report(needed=_needed(), others=_others())
            _Cached.made_at = clock.monotonic()
        return _Cached.report


def forget() -> None:
    """The next probe looks afresh."""
    with _Cached.lock:
        _Cached.report = None


def _needed() -> dict[str, str]:
    found = {"database": "ok", "migrations": "ok", "threads": "hung" if hung_threads() else "ok"}
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        if missing_migrations():
            found["migrations"] = "missing"
    except (DatabaseError, InterfaceError) as error:
        telemetry.log("health.database_away", error=type(error).__name__)
        found |= {"database": "unreachable", "migrations": "unknown"}
    return found


def hung_threads() -> int:
    """Threads of this process past twice their deadline."""
    from runs import leases

    return int(leases.hung())


def _others() -> dict[str, str]:
    """Each dependency as `ok` or `degraded`, looked at side by side, for a second at most."""
    addresses = {"broker": _broker(), "models": _models(), "business_system": _address(env.read().COMMERCE_URL)}
    asked = {name: address for name, address in addresses.items() if address is not None}
    found = dict.fromkeys(addresses, "ok")
    pool = ThreadPoolExecutor(max_workers=max(1, len(asked)), thread_name_prefix="health")
    futures = {name: pool.submit(_answers, *address) for name, address in asked.items()}
    wait(futures.values(), timeout=CHECKS_S)
    pool.shutdown(wait=False, cancel_futures=True)  # a name server that hangs is not waited for
    for name, future in futures.items():
        found[name] = "ok" if future.done() and future.result() else "degraded"
    return found | ({"fence": "demanded"} if _fence_demanded() else {})


def _fence_demanded() -> bool:
    """Whether writes wait for `manage.py fence`: no reason to send nobody here, the site reads and talks."""
    try:
        return switches.fence()[1] is not None
    except (DatabaseError, InterfaceError):
        return False  # said by the part that is missing


def _broker() -> tuple[str, int] | None:
    url = env.read().BROKER_URL
    return None if url.startswith("memory") else _address(url)


def _models() -> tuple[str, int] | None:
    """Where the primary route's provider is; None for a model that needs no network."""
    given = env.read()
    provider = given.AGENT_MODELS[0].partition(":")[0].removesuffix("_xml")
    configured = {"openai": given.OPENAI_BASE_URL, "anthropic": given.ANTHROPIC_BASE_URL}.get(provider, "")
    return _address(configured or PROVIDER_URLS[provider]) if provider in PROVIDER_URLS else None


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or PORTS.get(parts.scheme, 443)


def _answers(host: str, port: int) -> bool:
    try:
        create_connection((host, port), timeout=CONNECT_S).close()
    except OSError:
        return False
    return True
