"""Roof: exceptions as RFC 9457 `application/problem+json`. Decides nothing; never repeats what was sent or secret."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.html import escape
from django.views import defaults
from pydantic import ValidationError
from rest_framework import exceptions
from rest_framework.views import set_rollback

from agentsite import redaction, telemetry
from agentsite.refusals import Refusal
from runs.api import bodies

CONTENT_TYPE = "application/problem+json"
MACHINE_PATHS = ("/api/", "/health/", "/metrics")
RETRY_AFTER_S = 2
NOT_FOUND = ("not-found", "There is no such thing.")
SLUGS: dict[type[exceptions.APIException], tuple[str, str]] = {
    exceptions.ParseError: ("malformed-body", "The body cannot be read."),
    exceptions.NotAuthenticated: ("not-authenticated", "Credentials are needed."),
    exceptions.AuthenticationFailed: ("invalid-credentials", "The credentials do not serve."),
    exceptions.PermissionDenied: ("permission-denied", "This is not allowed."),
    exceptions.NotFound: NOT_FOUND,
    exceptions.MethodNotAllowed: ("method-not-allowed", "This method is not offered here."),
    exceptions.NotAcceptable: ("not-acceptable", "No such representation is offered."),
    exceptions.UnsupportedMediaType: ("unsupported-media-type", "The body must be application/json."),
    exceptions.Throttled: ("throttled", "Too many requests."),
    exceptions.ValidationError: ("invalid-request", "The request is not valid."),
}


def handler(error: Exception, context: Mapping[str, Any]) -> HttpResponse | None:
    """DRF's exception handler. None lets the exception through to the server's own 500."""
    refusal, headers = as_refusal(error)
    if refusal is None:
        return None
    set_rollback()
    return render(context["request"]._request, refusal, headers)


def as_refusal(error: Exception) -> tuple[Refusal | None, dict[str, str]]:
    """An exception as what the client is told, and the headers that belong to it."""
    if isinstance(error, Refusal):
        return error, {}
    if isinstance(error, ValidationError):
        return bodies.invalid(bodies.at_fault(error)), {}
    if isinstance(error, exceptions.APIException):
        return _of_framework(error), _headers(error)
    if isinstance(error, Http404):
        return Refusal(404, *NOT_FOUND), {}
    if isinstance(error, RequestDataTooBig):
        return Refusal(413, "body-too-large", "The body is too large."), {}
    if isinstance(error, PermissionDenied):
        return Refusal(403, *SLUGS[exceptions.PermissionDenied]), {}
    if isinstance(error, SuspiciousOperation):
        return Refusal(400, "bad-request", "The request is not valid."), {}
    if isinstance(error, OperationalError | InterfaceError):
        return _database_away(error)
    return None, {}


def _database_away(error: Exception) -> tuple[Refusal, dict[str, str]]:
    telemetry.log("http.database_unavailable", error=type(error).__name__)
    telemetry.count("http_database_unavailable")
    gone = Refusal(503, "temporarily-unavailable", "The service cannot answer now.", "Try again; nothing was done.")
    return gone, {"Retry-After": str(RETRY_AFTER_S)}


def _of_framework(error: exceptions.APIException) -> Refusal:
    slug, title = next((v for kind, v in SLUGS.items() if isinstance(error, kind)), ("error", "The request failed."))
    detail = error.detail if isinstance(error.detail, str) else ""
    if isinstance(error, exceptions.PermissionDenied) and detail.startswith("CSRF"):
        slug, title = "csrf-failed", "The CSRF token is missing or wrong."
    return Refusal(error.status_code, slug, title, str(detail))


def _headers(error: exceptions.APIException) -> dict[str, str]:
    headers = {}
    if challenge := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = str(challenge)
    if (wait := getattr(error, "wait", None)) is not None:
        headers["Retry-After"] = str(max(1, math.ceil(wait)))
    return headers


def render(request: HttpRequest, refusal: Refusal, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """The problem document of a refusal, for one request."""
    body = document(refusal, instance=request.path, trace_id=getattr(request, "trace_id", None))
    return HttpResponse(
        json.dumps(redaction.values_only(body)),
        status=refusal.status, content_type=CONTENT_TYPE, headers={"Cache-Control": "no-store", **(headers or {})},
    )  # fmt: skip


def document(refusal: Refusal, *, instance: str, trace_id: str | None) -> dict[str, Any]:
    """`type` is the bare slug; `detail` and `errors` stand only where there is something to say."""
    body: dict[str, Any] = {"type": refusal.slug, "title": refusal.title, "status": refusal.status}
    if refusal.detail:
        body["detail"] = refusal.detail
    body |= {"instance": instance, "trace_id": trace_id}
    if refusal.errors:
        body["errors"] = refusal.errors
    return body


def _for_machines(request: HttpRequest) -> bool:
    return request.path.startswith(MACHINE_PATHS)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if not _for_machines(request):
        return defaults.bad_request(request, exception)
    refusal, headers = as_refusal(exception)
    return render(request, refusal or Refusal(400, "bad-request", "The request is not valid."), headers)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if not _for_machines(request):
        return defaults.permission_denied(request, exception)
    return render(request, Refusal(403, *SLUGS[exceptions.PermissionDenied]))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if not _for_machines(request):
        return defaults.page_not_found(request, exception)
    return render(request, Refusal(404, *NOT_FOUND, detail="Nothing is served at this path."))


def server_error(request: HttpRequest) -> HttpResponseBase:
    """Django's handler of what no view answered; a database that is away is no fault of ours, on a page as little."""
    raised = sys.exc_info()[1]
    if isinstance(raised, OperationalError | InterfaceError):
        refusal, headers = _database_away(raised)
        return render(request, refusal, headers) if _for_machines(request) else _page(refusal, headers)
    if not _for_machines(request):
        return defaults.server_error(request)
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    return render(request, Refusal(status, "internal-error", "Something failed on our side.", "It was recorded."))


def _page(refusal: Refusal, headers: Mapping[str, str]) -> HttpResponse:
    """A refusal for a person; made without a template, because templates ask the database who is signed in."""
    words = f"<!doctype html><title>{escape(refusal.title)}</title><h1>{escape(refusal.title)}</h1>"
    return HttpResponse(f"{words}<p>{escape(refusal.detail)}</p>", status=refusal.status, headers=headers)
