"""The OpenAPI document: valid, whole, with examples that fit; and an API that answers nothing it does not declare."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from django.core.cache import cache as counts
from django.test import Client
from drf_spectacular.validation import validate_schema
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from runs.models import Run
from tests import approving, edge
from tests.edge import admitted
from tests.openapi import Fuzz
from tests.routes import api_routes

# A thread of this process may use the generator of numbers while a call is made up: that is no fault of the call.
pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:Do not use the .random. module")]
Json = dict[str, Any]
FEW, MANY = 4, 150
PROBLEM = "application/problem+json"


@pytest.fixture(autouse=True)
def _no_counts_of_others(settings: Any) -> Iterator[None]:
    counts.clear()
    yield
    counts.clear()


@cache
def document() -> Json:
    answer = Client().get("/api/schema/?format=json")
    assert answer.status_code == 200
    found: Json = json.loads(answer.content)
    return found


def calls() -> Iterator[tuple[str, str, Json]]:
    for path, methods in document()["paths"].items():
        for method, call in methods.items():
            yield path, method, call


def test_schema_is_valid_openapi_31() -> None:
    assert document()["openapi"] == "3.1.1"
    validate_schema(document())  # type: ignore[no-untyped-call]


def test_schema_describes_every_route_and_method_and_no_other() -> None:
    described = {(path, method) for path, method, _ in calls()}
    assert described == {(route.template, method) for route in api_routes() for method in route.methods}


def test_every_call_declares_who_may_ask_and_each_refusal() -> None:
    for path, method, call in calls():
        answers = call["responses"]
        assert call["security"] and call["operationId"] and call["description"], path
        assert {"400", "401", "403", "429", "503"} <= set(answers), path
        assert ("404" in answers) == ("{" in path), path
        assert ({"413", "415"} <= set(answers)) == (method == "post"), path
        assert any(status.startswith("2") for status in answers), path
        for status, answer in answers.items():
            assert answer["description"], (path, status)
            assert "X-Trace-Id" in answer["headers"]
            kinds = set(answer.get("content", {}))
            assert (kinds == {PROBLEM}) == status.startswith(("4", "5")), (path, status)
        assert "Retry-After" in answers["429"]["headers"] and "Retry-After" in answers["503"]["headers"]


def test_examples_fit_what_they_are_examples_of() -> None:
    shown = 0
    for _, _, call in calls():
        bodies = [call["requestBody"]] if "requestBody" in call else []
        for content in (kind for part in (*bodies, *call["responses"].values()) for kind in contents(part)):
            for example in content.get("examples", {}).values():
                schema = {**content["schema"], "components": document()["components"]}
                Draft202012Validator(schema).validate(example["value"])
                shown += 1
    assert shown > 30


def contents(part: Json) -> list[Json]:
    return list(part.get("content", {}).values())


def test_components_of_one_name_are_one_thing() -> None:
    """An approval's action has no key of a write; a run's pending action has: two names."""
    schemas = document()["components"]["schemas"]
    assert set(schemas["ActionView"]["properties"]) == {"tool", "args"}
    assert set(schemas["PendingActionView"]["properties"]) == {"tool", "args", "evidence", "idempotency_key"}
    referred = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(document())))
    assert referred <= set(schemas)


# --- fuzzing ----------------------------------------------------------------------------------------------------


def with_token() -> Fuzz:
    edge.tenant()
    bearer = edge.token()
    run = admitted(edge.client(bearer))["run_id"]
    asked = approving.ask(approving.run(request_id="req-asked"))
    return Fuzz({"run_id": run, "approval_id": asked}, {"Authorization": f"Bearer {bearer}"})


def with_session() -> Fuzz:
    edge.tenant()
    run = admitted(edge.client(edge.token()))["run_id"]
    asked = approving.ask(approving.run(request_id="req-asked"))
    may = ("view_run", "operate_run", "view_approval", "decide_approval")
    staff = edge.staff_client("lead_17", "t_acme_in", permissions=may)
    csrf = "a" * 32
    cookies = {"sessionid": staff.cookies["sessionid"].value, "csrftoken": csrf}
    return Fuzz({"run_id": run, "approval_id": asked}, {"X-CSRFToken": csrf}, cookies)


@pytest.mark.any_database
@pytest.mark.django_db(transaction=True)
def test_no_call_with_a_token_answers_what_is_not_declared() -> None:
    fuzz = with_token()
    fuzz.every_operation(FEW)
    assert fuzz.answered["POST /api/v1/runs"][202] >= 1
    assert sum(fuzz.answered["GET /api/v1/runs/{run_id}"][found] for found in (200, 304)) >= 1
    assert set(fuzz.answered["POST /api/v1/approvals/{approval_id}/decision"]) <= {400, 403, 404}
    assert Run.objects.filter(status="completed").count() == 0


@pytest.mark.any_database
@pytest.mark.django_db(transaction=True)
def test_no_call_with_a_session_answers_what_is_not_declared() -> None:
    fuzz = with_session()
    fuzz.every_operation(FEW)
    assert fuzz.answered["GET /api/v1/approvals"][200] >= 1
    assert fuzz.answered["POST /api/v1/runs/{run_id}/cancel"][202] >= 1
    assert set(fuzz.answered["POST /api/v1/runs"]) <= {400, 401, 403}


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("who", [with_token, with_session])
def test_no_call_of_thousands_answers_what_is_not_declared(who: Any) -> None:
    who().every_operation(MANY)
