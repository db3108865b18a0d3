"""Reading runs, their events and observations: ETags, cursor pages, filters, other people's tenants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client

from agentsite import clock
from agentsite.canonical import sha256
from runs.models import Observation, Run
from tests import edge
from tests.edge import RUNS, admitted, client, pointers, post

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_counts_of_others() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def shop() -> Client:
    edge.tenant()
    return client(edge.token())


def test_etag_changes_whenever_the_body_does(shop: Client) -> None:
    path = f"{RUNS}/{admitted(shop)['run_id']}"
    first = shop.get(path)
    again = shop.get(path, headers={"If-None-Match": f'"other", W/{first["ETag"]}'})
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
    Run.objects.update(input_tokens=7)
    changed = shop.get(path, headers={"If-None-Match": first["ETag"]})
    assert changed.status_code == 200
    assert changed["ETag"] != first["ETag"]


def test_wait_is_taken_and_unknown_parameters_are_not(shop: Client) -> None:
    path = f"{RUNS}/{admitted(shop)['run_id']}"
    assert shop.get(path, {"wait": "20"}).status_code == 200
    assert shop.get(path, {"wiat": "20"}).status_code == 400


def test_list_pages_forwards_and_back_without_gap_or_repeat(shop: Client) -> None:
    made = [admitted(shop, f"req-{n}")["request_id"] for n in range(5)]
    seen, link = [], f"{RUNS}?limit=2"
    pages = []
    while link:
        page = shop.get(link).json()
        pages.append([r["request_id"] for r in page["results"]])
        seen += pages[-1]
        last, link = page, page["next"]
        admitted(shop, f"late-{len(pages)}")
    assert seen == made[::-1]
    back = shop.get(last["previous"]).json()
    assert [r["request_id"] for r in back["results"]] == pages[-2]
    newest = shop.get(shop.get(shop.get(back["previous"]).json()["previous"]).json()["previous"]).json()
    assert newest["previous"] is None
    assert newest["results"][0]["request_id"] == "late-3"


def test_list_filters(shop: Client) -> None:
    admitted(shop, "req-1", order_ids=["8472", "8473"])
    admitted(shop, "req-2", actor={"customer_id": "cust_2"}, order_ids=["9000"])
    Run.objects.filter(request_id="req-2").update(status="completed", outcome="answered")

    def found(**query: str) -> list[str]:
        return [r["request_id"] for r in shop.get(RUNS, query).json()["results"]]

    assert found() == ["req-2", "req-1"]
    assert found(status="completed") == ["req-2"]
    assert found(status="completed,accepted") == ["req-2", "req-1"]
    assert found(request_id="req-1") == ["req-1"]
    assert found(customer_id="cust_2") == ["req-2"]
    assert found(order_id="8473") == ["req-1"]
    assert found(order_id="8473", status="completed") == []
    moment = clock.rfc3339(Run.objects.get(request_id="req-2").created_at)
    assert found(created_after="2030-01-01T00:00:00Z") == []
    assert found(created_before="2030-01-01T00:00:00Z", created_after="2020-01-01T00:00:00+05:30") == ["req-2", "req-1"]
    assert "req-2" not in found(created_before=moment)


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("statsu=completed", "/statsu"),
        ("status=done", "/status"),
        ("status=accepted&status=failed", "/status"),
        ("order_id=%00", "/order_id"),
        ("request_id=", "/request_id"),
        ("customer_id=a%20b", "/customer_id"),
        ("created_after=yesterday", "/created_after"),
        ("created_before=2026-01-01T00:00:00", "/created_before"),
        ("cursor=xyz", "/cursor"),
        ("limit=101", "/limit"),
        ("limit=0", "/limit"),
    ],
)
def test_list_refuses_a_filter_it_does_not_have(shop: Client, query: str, pointer: str) -> None:
    answer = shop.get(f"{RUNS}?{query}")
    assert (answer.status_code, answer.json()["type"], pointers(answer)) == (400, "invalid-request", [pointer])


def test_events_come_in_order_after_a_sequence_number(shop: Client) -> None:
    path = f"{RUNS}/{admitted(shop)['run_id']}"
    post(shop, path + "/messages", {"text": "are you there?", "message_id": "m1"})
    page = shop.get(path + "/events").json()
    assert [(e["seq"], e["type"], e["version"], e["span"]) for e in page["results"]] == [
        (1, "run.accepted", 1, None), (2, "message.received", 1, None),
    ]  # fmt: skip
    assert page["next"] is None
    assert page["results"][1]["data"]["text"] == "are you there?"
    assert page["results"][1]["data"]["message_id"] == "m1"
    assert [e["seq"] for e in shop.get(path + "/events?after=1").json()["results"]] == [2]
    first = shop.get(path + "/events?limit=1").json()
    assert [e["seq"] for e in shop.get(first["next"]).json()["results"]] == [2]
    for query in ("after=-1", "after=x", "limit=201", "from=1"):
        assert shop.get(f"{path}/events?{query}").status_code == 400


def test_observations_show_what_was_seen_and_its_hash(shop: Client) -> None:
    shown = admitted(shop)
    content: Any = {"order_id": "8472", "note": "<script>"}
    args: Any = {"order_id": "8472"}
    Observation.objects.create(
        run_id=shown["run_id"], obs_id="obs_o1", position=0, call_id="c1", span="s1", kind="result",
        source="get_order", args=args, content=content, content_hash=sha256(content),
        fetched_at=clock.now(),
    )  # fmt: skip
    page = shop.get(f"{RUNS}/{shown['run_id']}/observations").json()
    (only,) = page["results"]
    assert (only["id"], only["tool"], only["span"], only["source"]) == ("obs_o1", "get_order", "s1", "get_order")
    assert (only["content"], only["content_hash"]) == (content, sha256(content))
    assert only["fetched_at"].endswith("Z")
    assert page["next"] is None
