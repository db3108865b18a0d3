"""Every route of the API, found from the URL conf: another tenant's ids are unknown, scopes part reading from writing,
nobody unknown gets in, and none of it leaves anything behind."""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client

from approvals.models import Approval, Decision
from runs.models import Attachment, Event, Feedback, Input, Run, Write
from tests import approving, edge
from tests.edge import RUNS, body, post
from tests.routes import Route, api_routes

pytestmark = pytest.mark.django_db
HERE, THERE = "t_acme_in", "t_other"
ROUTES = [(route, method) for route in api_routes() for method in route.methods]
WITH_IDS = [(route, method) for route, method in ROUTES if route.names]
FILE = b"a photo of the receipt"
BODIES: dict[str, Any] = {
    "/api/v1/runs": body("req-new"),
    "/api/v1/runs/{run_id}/messages": {"text": "hello"},
    "/api/v1/runs/{run_id}/feedback": {"rating": "up"},
    "/api/v1/runs/{run_id}/cancel": {},
    "/api/v1/approvals/{approval_id}/decision": {"decision": "approve", "action_hash": "sha256:" + "0" * 64},
}
KEPT = (Run, Input, Event, Feedback, Approval, Decision, Write, Attachment)


@pytest.fixture(autouse=True)
def _no_counts_of_others() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@dataclass(frozen=True, kw_only=True)
class Side:
    """One tenant: its clients, its staff, and the ids of what is its own."""

    writer: Client
    reader: Client
    staff: Client
    ids: dict[str, str]


def side(tenant_id: str) -> Side:
    edge.tenant(tenant_id)
    writer = edge.client(edge.token(tenant_id, scopes="runs:write", name=f"w-{tenant_id}"))
    reader = edge.client(edge.token(tenant_id, scopes="runs:read", name=f"r-{tenant_id}"))
    file = {
        "name": "receipt.png", "media_type": "image/png", "sha256": hashlib.sha256(FILE).hexdigest(),
        "content_base64": base64.b64encode(FILE).decode(),
    }  # fmt: skip
    run_id = post(writer, RUNS, body(attachments=[file])).json()["run_id"]
    asked = approving.ask(approving.run(tenant_id=tenant_id, request_id="req-asked"))
    attachment = str(Attachment.objects.get(run_id=run_id).pk)
    may = ("view_run", "operate_run", "view_approval", "decide_approval")
    staff = edge.staff_client(f"lead-{tenant_id}", tenant_id, permissions=may)
    ids = {"run_id": run_id, "approval_id": asked, "attachment_id": attachment}
    return Side(writer=writer, reader=reader, staff=staff, ids=ids)


@pytest.fixture
def here() -> Side:
    return side(HERE)


@pytest.fixture
def there() -> Side:
    return side(THERE)


def rows() -> list[Any]:
    return [list(model._default_manager.order_by("pk").values()) for model in KEPT]


def ask(client: Client, route: Route, method: str, ids: dict[str, str]) -> Any:
    path = route.path(**{name: ids[name] for name in route.names})
    return client.get(path) if method == "get" else post(client, path, BODIES[route.template])


def test_every_route_that_writes_has_its_body_here() -> None:
    assert set(BODIES) == {route.template for route, method in ROUTES if method != "get"}
    assert {method for _, method in ROUTES} == {"get", "post"}


def test_another_tenants_id_is_404_on_every_route_and_changes_nothing(here: Side, there: Side) -> None:
    before = rows()
    for route, method in WITH_IDS:
        foreign_is_unknown(route, method, here, there)
    assert rows() == before


def foreign_is_unknown(route: Route, method: str, here: Side, there: Side) -> None:
    unknown = {name: str(uuid.uuid4()) for name in route.names}
    for client in (here.writer, here.reader, here.staff):
        foreign, none = (ask(client, route, method, ids) for ids in (there.ids, unknown))
        told = [{k: v for k, v in a.json().items() if k not in ("instance", "trace_id")} for a in (foreign, none)]
        assert (foreign.status_code, told[0]) == (none.status_code, told[1]), (route, foreign.content)
        assert foreign.status_code in (403, 404), route
        assert foreign["Content-Type"] == "application/problem+json"
    allowed = [ask(client, route, method, there.ids).status_code for client in (here.writer, here.reader, here.staff)]
    assert 404 in allowed, f"nobody here may make this call, so that a 403 shows nothing: {route}"
    mixed = {**there.ids, "run_id": here.ids["run_id"]}
    if len(route.names) > 1:
        assert ask(here.reader, route, method, mixed).status_code == 404


def test_nobody_gets_nothing(here: Side) -> None:
    before = rows()
    for route, method in ROUTES:
        for client in (Client(), edge.client("no such token")):
            answer = ask(client, route, method, here.ids)
            assert (answer.status_code, answer["Content-Type"]) == (401, "application/problem+json"), route
            assert answer["WWW-Authenticate"] == "Bearer"
    assert rows() == before


def test_scopes_part_reading_from_writing_on_every_route(here: Side) -> None:
    for route, method in ROUTES:
        parted(route, method, here)


def parted(route: Route, method: str, here: Side) -> None:
    before = rows()
    wrong = here.writer if method == "get" else here.reader
    right = here.reader if method == "get" else here.writer
    answer = ask(wrong, route, method, here.ids)
    assert (answer.status_code, answer["Content-Type"]) == (403, "application/problem+json"), route
    of_approvals = route.template.startswith("/api/v1/approvals")
    if of_approvals:  # a token of any kind does neither there
        assert ask(right, route, method, here.ids).status_code == 403
        assert not Decision.objects.filter(counted=True).exists()
        return
    assert answer.json()["type"] == "scope-missing"
    assert rows() == before
    assert ask(right, route, method, here.ids).status_code in (200, 202)


def test_staff_reads_its_tenants_and_speaks_for_no_client(here: Side) -> None:
    for route, method in ROUTES:
        answer = ask(here.staff, route, method, here.ids)
        if method == "get" or route.template.endswith("/cancel"):
            assert answer.status_code in (200, 202), route
        else:
            decides = route.template.endswith("/decision")
            wanted = (409, "action-changed") if decides else (403, "token-required")
            assert (answer.status_code, answer.json()["type"]) == wanted, route


def test_two_tenants_with_the_same_request_id_are_two_runs(here: Side, there: Side) -> None:
    assert here.ids["run_id"] != there.ids["run_id"]
    for one, other in ((here, there), (there, here)):
        again = post(one.writer, RUNS, {**body("req-same"), "goal": "Mine."})
        assert again.status_code == 202
        listed = [run["run_id"] for run in one.reader.get(RUNS, {"request_id": "req-same"}).json()["results"]]
        assert listed == [again.json()["run_id"]]
        assert other.reader.get(f"{RUNS}/{listed[0]}").status_code == 404


def test_messages_of_one_id_in_two_tenants_are_two_messages(here: Side, there: Side) -> None:
    for one in (here, there):
        path = f"{RUNS}/{one.ids['run_id']}/messages"
        assert post(one.writer, path, {"text": "Mine.", "message_id": "m1"}).status_code == 202
    assert Input.objects.filter(message_id="m1").count() == 2
