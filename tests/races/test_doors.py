"""Fifty at once through real doors: one run, one decision, and never a server error."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx
import pytest

from tests.system.business import Business
from tests.system.people import Client, Staff, request_8472
from tests.system.site import Ground, Site

pytestmark = pytest.mark.own_services
CROWD = 50


@dataclass(frozen=True, kw_only=True)
class Doors:
    business: Business
    client: Client
    approves: Staff
    rejects: Staff


@pytest.fixture(scope="module", params=["E", "P"])
def doors(request: pytest.FixtureRequest, ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    folder = tmp_path_factory.mktemp(f"doors-{request.param}")
    with Business(folder / "business.sqlite3") as business:
        site = Site(request.param, ground, folder / "site", business.url)
        try:
            site.create_approver("lead_18")
            site.start()
            yield Doors(business=business, client=Client(site), approves=Staff(site), rejects=Staff(site, "lead_18"))
        finally:
            site.close()


def all_at_once(calls: list[Callable[[], httpx.Response]]) -> list[httpx.Response]:
    gate = threading.Barrier(len(calls))

    def one(call: Callable[[], httpx.Response]) -> httpx.Response:
        gate.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(one, calls))


def test_fifty_equal_requests_are_one_run(doors: Doors) -> None:
    doors.business.seed_double_charges("crowd")
    body = request_8472("req-crowd", order_id="crowd")
    answers = all_at_once([lambda: doors.client.post_run(body)] * CROWD)
    assert Counter(answer.status_code for answer in answers) == {202: 1, 200: CROWD - 1}
    (run_id,) = {answer.json()["run_id"] for answer in answers}
    assert [run["run_id"] for run in doors.client.runs(request_id="req-crowd")] == [run_id]
    changed = doors.client.post_run({**body, "goal": "Something else."})
    assert (changed.status_code, changed.json()["type"]) == (422, "request-id-reused")


def test_fifty_opposite_decisions_are_one_decision(doors: Doors) -> None:
    doors.business.seed_double_charges("split")
    run_id = doors.client.admit(request_8472("req-split", order_id="split"))
    asked = doors.client.wait_for(run_id, "awaiting_approval")["approval"]
    clicks = [
        lambda: doors.approves.decide(asked, "approve"),
        lambda: doors.rejects.decide(asked, "reject", "not this one"),
    ] * (CROWD // 2)
    answers = all_at_once(clicks)
    assert Counter(answer.status_code for answer in answers) == {200: CROWD // 2, 409: CROWD // 2}
    assert {answer.json()["type"] for answer in answers if answer.status_code == 409} == {"already-decided"}

    (decision,) = doors.approves.approval(asked["approval_id"])["decisions"]
    won = answers[0].status_code == 200
    assert (decision["by"], decision["decision"]) == (("lead_17", "approve") if won else ("lead_18", "reject"))
    done = doors.client.wait_for(run_id, "completed")
    made = len(doors.business.made_on("split"))
    assert (done["outcome"], made) == (("refunded", 1) if won else ("rejected", 0))
