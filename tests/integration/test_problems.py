"""Every refusal is problem+json with a stable slug and the request's trace id, and repeats nothing secret."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import OperationalError
from django.http import Http404
from django.test import Client, RequestFactory
from django.urls import include, path
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agentsite import problems
from agentsite.refusals import Refusal
from agentsite.tenants import profiles
from agentsite.urls import handler400, handler403, handler404, handler500  # noqa: F401 - this module is a ROOT_URLCONF
from tests import edge

CUP = {"pointer": "/cup", "code": "c", "detail": "d"}


class Raising(APIView):
    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []

    def get(self, request: Request, kind: str) -> Response:
        if kind == "profile":
            profiles.parse({"read_tools": [], "policy_pin": "secret-value"})
        raise {
            "refusal": Refusal(418, "a-teapot", "No coffee.", "Tea only.", [CUP]),
            "denied": PermissionDenied("secret-value"),
            "absent": Http404("secret-value"),
            "database": OperationalError("password=secret-value"),
            "bug": RuntimeError("secret-value"),
        }[kind]  # fmt: skip


urlpatterns = [path("api/v1/raise/<str:kind>", Raising.as_view()), path("", include("agentsite.urls"))]
here = pytest.mark.urls("tests.integration.test_problems")


@here
@pytest.mark.parametrize(
    ("kind", "status", "slug"),
    [
        ("refusal", 418, "a-teapot"),
        ("profile", 400, "invalid-request"),
        ("denied", 403, "permission-denied"),
        ("absent", 404, "not-found"),
        ("database", 503, "temporarily-unavailable"),
        ("bug", 500, "internal-error"),
    ],
)
def test_exception_becomes_a_problem_that_tells_no_secret(kind: str, status: int, slug: str) -> None:
    answer = Client(raise_request_exception=False).get(f"/api/v1/raise/{kind}")
    found = answer.json()
    assert (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json")
    assert (found["type"], found["status"], found["instance"]) == (slug, status, f"/api/v1/raise/{kind}")
    assert found["trace_id"] == answer["X-Trace-Id"]
    assert len(found["trace_id"]) == 32
    assert found["title"]
    assert b"secret-value" not in answer.content


@here
def test_refusal_is_rendered_whole() -> None:
    found = Client().get("/api/v1/raise/refusal").json()
    assert {k: found[k] for k in ("title", "detail", "errors")} == {
        "title": "No coffee.", "detail": "Tea only.", "errors": [CUP],
    }  # fmt: skip


@here
def test_database_that_is_away_says_when_to_come_back() -> None:
    assert Client().get("/api/v1/raise/database")["Retry-After"] == "2"


@here
def test_validation_fault_points_at_its_field() -> None:
    assert edge.pointers(Client().get("/api/v1/raise/profile")) == ["/policy_pin"]


@pytest.mark.parametrize(
    "where", ["/api/v1/nothing", "/api/v2/runs", "/api/v1/runs/", "/health/nothing", "/api/v1/runs/a/b/c"]
)
def test_unknown_path_of_the_api_is_a_problem(where: str) -> None:
    answer = Client().get(where)
    assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json")
    assert answer.json()["type"] == "not-found"


def test_unknown_path_of_the_site_is_a_page() -> None:
    answer = Client().get("/nothing")
    assert (answer.status_code, answer["Content-Type"]) == (404, "text/html; charset=utf-8")
    assert "X-Trace-Id" in answer


def test_bad_host_of_the_api_is_a_problem() -> None:
    answer = Client(raise_request_exception=False).get("/api/v1/runs", headers={"Host": "evil.example"})
    assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")
    assert b"evil.example" not in answer.content


def test_wrong_method_is_405_with_what_is_allowed() -> None:
    answer = Client().get("/api/v1/runs")
    assert (answer.status_code, answer.json()["type"]) == (401, "not-authenticated")


@pytest.mark.django_db
def test_method_that_is_not_offered_is_405() -> None:
    edge.tenant()
    answer = edge.client(edge.token()).put(edge.RUNS)
    assert (answer.status_code, answer.json()["type"]) == (405, "method-not-allowed")
    assert answer["Allow"] == "GET, POST, HEAD, OPTIONS"


def test_problem_with_letters_no_encoding_takes_is_still_sent() -> None:
    request = RequestFactory().get("/api/v1/runs")
    answer = problems.render(request, Refusal(400, "x", "t", errors=[{"pointer": "/\ud800", "code": "", "detail": ""}]))
    assert b'"/\\ud800"' in answer.content
