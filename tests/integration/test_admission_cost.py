"""What a new run costs at the door: few statements, and an answer that is what a look at the run shows."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from agentsite.tenants.models import Tenant
from runs.models import Event, Run, RunOrder
from tests import edge

pytestmark = pytest.mark.django_db(transaction=True)
MOST = 9
"""The token, what stands before, the fence, the run, its orders, its first event, its place, the row for the log."""


@pytest.fixture
def shop() -> Client:
    edge.tenant()
    return edge.client(edge.token())


def shown(shop: Client, answer: Any) -> Any:
    return shop.get(answer["Location"])


@pytest.mark.parametrize("changes", [{}, {"order_ids": ["8472", "8473", "8472"]}, {"goal": "कृपया पैसे वापस करें 🙏"}])
def test_answer_to_a_new_run_is_what_a_look_at_it_shows(shop: Client, changes: dict[str, Any]) -> None:
    answer = edge.post(shop, edge.RUNS, edge.body(**changes))
    look = shown(shop, answer)
    assert (answer.status_code, look.status_code) == (202, 200)
    assert answer.content == look.content
    assert answer["ETag"] == look["ETag"]


def test_answer_to_a_new_run_of_a_tenant_in_shadow_mode_is_what_a_look_shows(shop: Client) -> None:
    Tenant.objects.update(shadow=True)
    answer = edge.post(shop, edge.RUNS, edge.body())
    assert answer.json()["contract"]["shadow"] is True
    assert answer.content == shown(shop, answer).content


def test_new_run_takes_few_statements(shop: Client) -> None:
    edge.post(shop, edge.RUNS, edge.body("req-first"))
    with CaptureQueriesContext(
        connection,
    ) as asked:
        assert edge.post(shop, edge.RUNS, edge.body("req-second")).status_code == 202
    said = [one["sql"] for one in asked.captured_queries if not one["sql"].startswith(("BEGIN", "COMMIT"))]
    assert len(said) <= MOST, said


def test_new_run_has_its_row_its_orders_and_its_first_event_at_the_databases_time(shop: Client) -> None:
    run_id = edge.post(shop, edge.RUNS, edge.body(order_ids=["8472", "8473", "8472"])).json()["run_id"]
    run, [event] = Run.objects.get(id=run_id), list(Event.objects.filter(run_id=run_id))
    assert (run.status, run.version, run.last_seq, run.chain_head) == ("accepted", 1, 1, event.mac)
    assert run.due_at is not None and run.enqueued_at is not None
    assert abs((run.due_at - run.created_at).total_seconds()) < 1
    assert sorted(RunOrder.objects.filter(run_id=run_id).values_list("order_id", flat=True)) == ["8472", "8473"]


def test_times_of_a_new_run_stand_in_the_form_that_lists_compare(shop: Client) -> None:
    run = Run.objects.get(id=edge.post(shop, edge.RUNS, edge.body()).json()["run_id"])
    for name in ("created_at", "updated_at", "status_since", "due_at", "enqueued_at"):
        assert Run.objects.filter(**{name: getattr(run, name)}).count() == 1, name


def test_same_request_again_makes_nothing_new(shop: Client) -> None:
    first = edge.post(shop, edge.RUNS, edge.body())
    again = edge.post(shop, edge.RUNS, edge.body())
    assert (again.status_code, again.json()["run_id"]) == (200, first.json()["run_id"])
    assert (Run.objects.count(), Event.objects.count()) == (1, 1)
