"""Roof: one trace id a request, liveness, readiness and metrics. Changes nothing; knows no business rule.

Ready is 503 only where this process cannot work: no database, a missing migration, a hung thread. What is merely
degraded (broker, models, business system) is named at 200, because runs wait for it by themselves.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from socket import create_connection
from typing import Any
from urllib.parse import urlsplit

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.db import DatabaseError, InterfaceError, connection
from django.db.models import Count, Min
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from agentsite import clock, dbtime, env, telemetry
from agentsite.tenants import switches
from agentsite.tenants.models import Site, Tenant
from approvals.models import Approval, Notice
from approvals.states import Approved
from runs.management.schema import missing_migrations
from runs.models import OPEN_WRITES, Process, Run, Sweeper, Webhook, Write
from runs.states import Status
from tools.models import Breaker, PolicyIncident

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


# --- metrics -----------------------------------------------------------------------------------------------


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Counters of this process, and gauges read from the database now, in the Prometheus text format."""
    gauges = CollectorRegistry(auto_describe=False)
    gauges.register(Gauges())
    return HttpResponse(generate_latest(REGISTRY) + generate_latest(gauges), content_type=CONTENT_TYPE_LATEST)


class Gauges(Collector):
    """What the rows say at this moment, so that a restart loses nothing and any web process says the same."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        try:
            found = [
                *_runs(),
                *_approvals(),
                *_writes(),
                *_fleet(),
                *_breakers(),
                *_switches(),
                *_outside(),
                *_policies(),
            ]
        except (DatabaseError, InterfaceError):
            yield _gauge("database_up", "whether the database answered", 0)
            return
        yield _gauge("database_up", "whether the database answered", 1)
        yield from found


def _gauge(name: str, words: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"agentsite_{name}", words, value=value)


def _by(name: str, words: str, label: str, counted: dict[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"agentsite_{name}", words, labels=[label])
    for key, value in sorted(counted.items()):
        family.add_metric([key], value)
    return family


def _runs() -> Iterator[GaugeMetricFamily]:
    counted = dict.fromkeys((status.value for status in Status), 0)
    counted |= dict(Run.objects.order_by().values_list("status").annotate(n=Count("id")))
    yield _by("runs", "runs by status", "status", counted)


def _approvals() -> Iterator[GaugeMetricFamily]:
    pending = Approval.objects.filter(status=Approved.PENDING.value)
    found = pending.aggregate(n=Count("id"), oldest=Min("requested_at"))
    yield _gauge("approvals_pending", "approvals that wait for a person", found["n"])
    age = (dbtime.now() - found["oldest"]).total_seconds() if found["oldest"] else 0.0
    yield _gauge("approvals_oldest_pending_seconds", "age of the oldest pending approval", max(0.0, age))


def _writes() -> Iterator[GaugeMetricFamily]:
    counted = dict.fromkeys(OPEN_WRITES, 0)
    rows = Write.objects.filter(state__in=OPEN_WRITES).order_by()
    counted |= dict(rows.values_list("state").annotate(n=Count("key")))
    yield _by("writes_open", "writes whose end is not known", "state", counted)
    yield _gauge("fence_demanded", "1 while every write waits for `manage.py fence` after a restore", _fence_demanded())


def _fleet() -> Iterator[GaugeMetricFamily]:
    last = Sweeper.objects.values_list("last_pass_at", flat=True).first()
    age = (dbtime.now() - last).total_seconds() if last else -1.0
    yield _gauge("sweeper_last_pass_seconds", "time since the last pass of recovery, -1 before the first", age)
    hung = Process.objects.filter(hung__gt=0).count()
    yield _gauge("processes_hung", "processes of ours with a thread past twice its deadline", hung)


def _breakers() -> Iterator[GaugeMetricFamily]:
    counted = dict.fromkeys(["business_system"], 0)
    rows = Breaker.objects.exclude(open_until=None).order_by()
    counted |= dict(rows.values_list("dependency").annotate(n=Count("id")))
    yield _by("breakers_open", "circuit breakers that are not closed", "dependency", counted)


def _switches() -> Iterator[GaugeMetricFamily]:
    counted = {"site": Site.objects.filter(paused=True).count(), "tenant": Tenant.objects.filter(paused=True).count()}
    yield _by("switches_stopped", "stop switches that are thrown", "scope", counted)


def _outside() -> Iterator[GaugeMetricFamily]:
    webhooks, notices = dict.fromkeys(("due", "dead"), 0), dict.fromkeys(("due", "failed"), 0)
    rows = Webhook.objects.filter(state__in=webhooks).order_by()
    webhooks |= dict(rows.values_list("state").annotate(n=Count("id")))
    yield _by("webhooks", "webhooks that are due, and those given up", "state", webhooks)
    oldest = Webhook.objects.filter(state="due").aggregate(at=Min("created_at"))["at"]
    age = (dbtime.now() - oldest).total_seconds() if oldest else 0.0
    yield _gauge("webhooks_oldest_due_seconds", "age of the oldest webhook that is not delivered", max(0.0, age))
    told = Notice.objects.filter(state__in=notices).order_by()
    notices |= dict(told.values_list("state").annotate(n=Count("id")))
    yield _by("notices", "notices to staff that are due, and those that could not be sent", "state", notices)


def _policies() -> Iterator[GaugeMetricFamily]:
    found = PolicyIncident.objects.filter(closed_at=None).count()
    yield _gauge("policy_incidents_open", "policy versions that profiles pin and that are not current", found)
