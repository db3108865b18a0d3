"""Liveness, readiness, metrics and the trace id on every reply."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.test import AsyncClient, Client

from agentsite import clock, health
from runs import leases
from runs.models import Run, Sweeper
from tests import edge

TRACE = "0123456789abcdef0123456789abcdef"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    health.forget()
    yield
    health.forget()


@pytest.fixture
def reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_answers", lambda host, port: True)


def test_live_looks_at_nothing() -> None:
    answer = Client().get("/health/live")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.django_db
@pytest.mark.usefixtures("reachable")
def test_ready_names_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "missing_migrations", list)
    answer = Client().get("/health/ready")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ok",
        "checks": {
            "database": "ok", "migrations": "ok", "threads": "ok", "broker": "ok", "models": "ok",
            "business_system": "ok",
        },
    }  # fmt: skip


@pytest.mark.django_db
def test_ready_names_a_business_system_that_is_away_at_200(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "missing_migrations", list)
    monkeypatch.setattr(health, "_answers", lambda host, port: False)
    answer = Client().get("/health/ready")
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert answer.json()["checks"]["business_system"] == "degraded"


@pytest.mark.django_db
@pytest.mark.usefixtures("reachable")
@pytest.mark.parametrize(
    ("what", "value", "part", "word"),
    [
        ("missing_migrations", lambda: ["runs.0002_more"], "migrations", "missing"),
        ("hung_threads", lambda: 1, "threads", "hung"),
    ],
)
def test_ready_is_503_where_this_process_cannot_work(
    monkeypatch: pytest.MonkeyPatch, what: str, value: Any, part: str, word: str
) -> None:
    monkeypatch.setattr(health, "missing_migrations", list)
    monkeypatch.setattr(health, what, value)
    answer = Client().get("/health/ready")
    assert (answer.status_code, answer.json()["status"], answer.json()["checks"][part]) == (503, "unavailable", word)


@pytest.mark.django_db
@pytest.mark.usefixtures("reachable")
def test_ready_is_503_without_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> list[str]:
        raise OperationalError("connection refused: password=hunter2")

    monkeypatch.setattr(health, "missing_migrations", away)
    answer = Client().get("/health/ready")
    assert (answer.status_code, answer.json()["checks"]["database"]) == (503, "unreachable")
    assert b"hunter2" not in answer.content


@pytest.mark.django_db
@pytest.mark.usefixtures("reachable")
def test_ready_looks_again_only_after_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    now = 100.0

    def look() -> list[str]:
        looks.append(1)
        return []

    monkeypatch.setattr(health, "missing_migrations", look)
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    for step, expected in ((0.0, 1), (4.9, 1), (5.1, 2)):
        now = 100.0 + step
        Client().get("/health/ready")
        assert len(looks) == expected


@pytest.mark.django_db
def test_hung_threads_are_those_of_the_leases() -> None:
    assert health.hung_threads() == leases.hung() == 0


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"X-Trace-Id": TRACE}, TRACE),
        ({"X-Trace-Id": TRACE.upper()}, TRACE),
        ({"traceparent": f"00-{TRACE}-0123456789abcdef-01"}, TRACE),
        ({"X-Trace-Id": "nonsense", "traceparent": f"00-{TRACE}-0123456789abcdef-01"}, TRACE),
        ({"X-Trace-Id": "0" * 32}, None),
        ({"X-Trace-Id": "g" * 32}, None),
        ({"X-Trace-Id": TRACE + "0"}, None),
        ({"traceparent": f"00-{'0' * 32}-0123456789abcdef-01"}, None),
        ({}, None),
    ],
)
def test_trace_id_is_the_clients_where_it_is_one(headers: dict[str, str], expected: str | None) -> None:
    found = Client(headers=headers).get("/health/live")["X-Trace-Id"]
    assert re.fullmatch("[0-9a-f]{32}", found)
    assert found == expected or (expected is None and found not in headers.values())


def test_trace_id_is_on_replies_of_the_asynchronous_server_too() -> None:
    async def asked() -> str:
        answer = await AsyncClient().get("/health/live", headers={"X-Trace-Id": TRACE})
        return str(answer["X-Trace-Id"])

    assert asyncio.run(asked()) == TRACE


def value_of(text: str, line: str) -> float:
    found = re.search(rf"^{re.escape(line)} (.+)$", text, re.M)
    assert found, f"no {line}"
    return float(found.group(1))


@pytest.mark.django_db
def test_metrics_are_read_from_the_rows() -> None:
    edge.tenant()
    shop = edge.client(edge.token())
    for n in range(3):
        edge.admitted(shop, f"req-{n}")
    Run.objects.filter(request_id="req-0").update(status="completed", outcome="answered", completed_at=clock.now())
    Sweeper.objects.create(id=1, last_pass_at=clock.now() - timedelta(seconds=100))
    answer = Client().get("/metrics")
    text = answer.content.decode()
    assert answer["Content-Type"].startswith("text/plain")
    assert value_of(text, 'agentsite_runs{status="accepted"}') == 2
    assert value_of(text, 'agentsite_runs{status="completed"}') == 1
    assert value_of(text, 'agentsite_runs{status="failed"}') == 0
    assert value_of(text, "agentsite_approvals_pending") == 0
    assert value_of(text, "agentsite_approvals_oldest_pending_seconds") == 0
    assert value_of(text, 'agentsite_writes_open{state="unknown"}') == 0
    assert 95 < value_of(text, "agentsite_sweeper_last_pass_seconds") < 130
    assert value_of(text, "agentsite_database_up") == 1
    assert "cust_5521" not in text


def test_root_leads_to_the_console() -> None:
    answer = Client().get("/")
    assert (answer.status_code, answer["Location"]) == (302, "/admin/")


@pytest.mark.django_db
def test_schema_describes_the_runs_api() -> None:
    schema = Client().get("/api/schema/", headers={"Accept": "application/vnd.oai.openapi+json"}).json()
    assert schema["openapi"] == "3.1.1"
    assert set(schema["paths"]["/api/v1/runs"]) == {"get", "post"}
    posted = schema["paths"]["/api/v1/runs"]["post"]
    assert posted["security"] == [{"token": []}], "a program asks; staff read and decide"
    assert posted["requestBody"]["content"]["application/json"]["schema"]["$ref"] == "#/components/schemas/RunRequest"
    assert schema["components"]["schemas"]["RunRequest"]["required"] == ["request_id", "goal", "actor"]
    assert {"runs_retrieve", "runs_events", "runs_observations", "runs_message", "runs_feedback", "runs_cancel"} <= {
        operation["operationId"] for of_path in schema["paths"].values() for operation in of_path.values()
    }


@pytest.mark.django_db
def test_docs_load_nothing_from_elsewhere_and_no_inline_script() -> None:
    page = Client().get("/api/docs/")
    text = page.content.decode()
    assert page.status_code == 200
    assert re.findall(r"<script(?![^>]*\bsrc=)[^>]*>|<style|style=", text) == []
    assert re.findall(r"""(?:src|href)="(https?:)?//""", text) == []
    script = Client().get("/api/docs/?script=")
    assert script["Content-Type"].startswith("application/javascript")
    assert "SwaggerUIBundle" in script.content.decode()
