"""Regression cases EO with real processes that are killed, frozen or cut off. Named by their ids in the list of cases.

Periods are shrunk: a day is seconds here. What needs no second process stands in `tests/integration`.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from agentsite.private.processes import children, wait_until
from tests.conftest import MakeSite
from tests.proxy import Proxy, Rule
from tests.system.business import Business
from tests.system.people import Client, Json, Staff, request_8472
from tests.system.site import Ground, Site

pytestmark = pytest.mark.own_services

KEY_LIFE_S = 2.0
SLOW_POST_S = 9.0
"""Longer than a lease, and than other workers take to start."""


@dataclass(frozen=True, kw_only=True)
class Shop:
    """Set-up P with a proxy before its database; every case has an order of its own."""

    site: Site
    business: Business
    database: Proxy
    client: Client
    staff: Staff

    def approved(self, order_id: str) -> str:
        """A run whose refund is released as soon as a worker comes to it."""
        self.business.seed_double_charges(order_id)
        run_id = self.client.admit(request_8472(f"req-{order_id}", order_id=order_id))
        self.staff.approve(self.client.wait_for(run_id, "awaiting_approval")["approval"])
        return run_id

    def posts(self, order_id: str) -> list[Json]:
        return [post for post in self.business.posts() if post["body"]["order_id"] == order_id]

    def ended_well(self, run_id: str, order_id: str) -> Json:
        """P.n = 1 and P.keys = 1, under the very key that the intent stored."""
        done = self.client.wait_for(run_id, "completed")
        [(stored,)] = self.site.rows(f"SELECT key FROM runs_write WHERE order_id = '{order_id}'")
        [made] = self.business.made_on(order_id)
        assert {post["idempotency_key"] for post in self.posts(order_id)} == {stored} == {made["idempotency_key"]}
        assert len({json.dumps(post["body"], sort_keys=True) for post in self.posts(order_id)}) == 1
        assert (done["outcome"], done["verification"]["passed"]) == ("refunded", True)
        assert [(w["state"], w["refund_id"]) for w in done["writes"]] == [("confirmed", made["refund_id"])]
        assert {"failed", "escalated"}.isdisjoint(e["data"]["to"] for e in self.types(run_id, "run.status"))
        return done

    def types(self, run_id: str, kind: str) -> list[Json]:
        return [event for event in self.client.events(run_id) if event["type"] == kind]


@pytest.fixture(scope="module")
def shop(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("eo")
    with Business(folder / "business.sqlite3") as business:
        site = Site("P", ground, folder / "site", business.url, WRITE_TIMEOUT_S="20")
        parts = urlsplit(site.database)
        assert parts.hostname is not None and parts.port is not None
        proxy = Proxy(parts.hostname, parts.port)
        site.environment["DATABASE_URL"] = proxy.in_front_of(site.database)
        try:
            site.start()
            yield Shop(site=site, business=business, database=proxy, client=Client(site), staff=Staff(site))
        finally:
            site.close()
            proxy.close()


def test_b22_a_worker_killed_after_its_post_is_followed_under_the_stored_key(shop: Shop) -> None:
    shop.business.fault("POST /v1/refunds", "delay_after:300")
    run_id = shop.approved("b22")
    assert wait_until(lambda: bool(shop.business.made_on("b22")), 30)
    shop.site.kill_child("writes")
    done = shop.ended_well(run_id, "b22")
    assert (len(shop.posts("b22")), done["usage"]["write_attempts"]) == (1, 1)
    assert len(shop.types(run_id, "write.reconciled")) == 1


def test_b27_a_connection_lost_while_the_result_is_saved_leaves_the_intent_for_the_next_look(shop: Shop) -> None:
    rule = shop.database.hold(Rule(at=b"COMMIT", mark=b"write.result", most=1))
    run_id = shop.approved("b27")
    assert wait_until(lambda: len(rule.held) == 1, 30)
    worker = shop.site.child("writes")
    held = shop.client.run(run_id)
    assert (held["status"], [w["state"] for w in held["writes"]]) == ("executing", ["sent"])
    shop.database.let_go()
    done = shop.ended_well(run_id, "b27")
    assert shop.site.child("writes") == worker, "the process lived on"
    assert (len(shop.posts("b27")), done["usage"]["write_attempts"]) == (1, 1)
    assert (len(shop.types(run_id, "write.result")), len(shop.types(run_id, "write.reconciled"))) == (0, 1)


@pytest.mark.long
def test_b29_a_post_slower_than_a_lease_is_sent_by_nobody_else_and_saved_once(shop: Shop) -> None:
    """The worker is frozen with its POST under way; two others come, look first, and the first one wakes up late."""
    shop.business.fault("POST /v1/refunds", f"delay:{SLOW_POST_S}")
    run_id = shop.approved("b29")
    assert shop.business.holds("POST", "/v1/refunds")
    frozen = shop.site.child("writes")
    assert frozen is not None
    family = [frozen, *children(frozen)]
    for pid in family:
        os.kill(pid, signal.SIGSTOP)
    try:
        shop.site.start("worker2", "worker3")
        done = shop.ended_well(run_id, "b29")
        record = shop.client.events(run_id)
        assert wait_until(lambda: all(post["status"] is not None for post in shop.posts("b29")), 30)
    finally:
        for pid in family:
            os.kill(pid, signal.SIGCONT)
    time.sleep(1)  # it reads its answer, and tries to save it
    assert (shop.client.run(run_id), shop.client.events(run_id)) == (done, record)
    assert len(shop.posts("b29")) == done["usage"]["write_attempts"] <= 2
    assert "pass.failed" not in "".join(log.read_text() for log in shop.site.folder.glob("worker[23].log"))
    shop.site.kill("worker2", "worker3")


def test_b26_a_key_forgotten_while_everything_was_down_proves_nothing(make_site: MakeSite, business: Business) -> None:
    """Two refunds whose answers were lost: one is found on the list, of the other the list says nothing at all."""
    business.seed_double_charges("listed", "away")
    business.control("/_config", key_life_s=KEY_LIFE_S, lists_keys=False)
    site = make_site("E", COMMERCE_KEY_LIFE_S=str(KEY_LIFE_S), RECONCILE_FOR_S="1", BREAKER_FAILURES="1000").start()
    client, staff = Client(site), Staff(site)
    runs = {i: client.admit(request_8472(f"req-{i}", order_id=i)) for i in ("listed", "away")}
    asked = [client.wait_for(run_id, "awaiting_approval")["approval"] for run_id in runs.values()]
    business.fault("POST /v1/refunds", "delay_after:300", times=2)
    for approval in asked:
        staff.approve(approval)
    assert wait_until(lambda: len(business.made()) == 2, 30)
    site.kill()
    time.sleep(KEY_LIFE_S)
    business.fault("GET /v1/refunds?order_id=away", "status:503", times=0)
    site.start()
    found = client.wait_for(runs["listed"], "completed")
    lost = client.wait_for(runs["away"], "escalated")
    assert (found["outcome"], lost["reason"], lost["writes"][0]["state"]) == ("refunded", "outcome_unknown", "unknown")
    assert "We could not confirm whether the refund" in lost["customer_message"]
    assert sorted(post["body"]["order_id"] for post in business.posts()) == ["away", "listed"]
    assert (len(business.keys()), len(business.made())) == (2, 2)
