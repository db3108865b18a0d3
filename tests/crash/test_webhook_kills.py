"""A worker that is killed between a webhook's sending and its record: sent again under the same id, none is lost."""

from __future__ import annotations

import json
import threading
from collections import Counter

import pytest

from agentsite.private.processes import wait_until
from tests.conftest import MakeSite
from tests.loopback import Loopback, Wire, ok
from tests.system.business import Business
from tests.system.people import Client, request_8472

pytestmark = [pytest.mark.own_services, pytest.mark.long]

ORDERS = ("a1", "a2", "a3")


@pytest.mark.parametrize("setup", ["E", "P"])
def test_webhook_of_a_killed_worker_is_sent_again_and_none_is_lost(
    make_site: MakeSite, business: Business, setup: str
) -> None:
    business.seed_double_charges(*ORDERS)
    let_go = threading.Event()

    def held(wire: Wire) -> None:
        let_go.wait(120)
        try:
            ok({})(wire)
        except OSError:
            wire.close_connection = True

    with Loopback() as receiver:
        receiver.on("/", held)
        site = make_site(
            setup, WEBHOOK_PRIVATE_HOSTS="127.0.0.1", WEBHOOK_TIMEOUT_S="3", WEBHOOK_FIRST_WAIT_S="0.5"
        ).start()
        client = Client(site)
        for order in ORDERS:
            client.admit({**request_8472(f"req-{order}", order_id=order), "callback_url": receiver.url + "/hooks"})
        assert wait_until(lambda: len(receiver.calls) > 0, 60), site.tails()
        if setup == "E":
            site.kill()
        else:
            site.kill_child("maintenance")
        before = {call.headers["webhook-id"]: call.body for call in receiver.calls}
        let_go.set()  # the receiver had it, and nobody is there to hear its answer
        receiver.on("/", ok({}))
        if setup == "E":
            site.start()
        wanted = [("delivered", len(ORDERS))]
        count = "SELECT state, COUNT(*) FROM runs_webhook GROUP BY state"
        assert wait_until(lambda: site.rows(count) == wanted, 90), (site.rows(count), site.tails())
    heard = Counter(call.headers["webhook-id"] for call in receiver.calls)
    assert set(heard) == {str(row[0]) for row in site.rows("SELECT id FROM runs_webhook")}
    assert {heard[webhook_id] >= 2 for webhook_id in before} == {True}
    bodies = {(call.headers["webhook-id"], call.body) for call in receiver.calls}
    assert len(bodies) == len(ORDERS)
    assert {json.loads(body)["type"] for _, body in bodies} == {"run.awaiting_approval"}
    died = site.rows("SELECT COUNT(*) FROM runs_delivery WHERE error = 'under_way'")
    assert died[0][0] >= 1 and business.posts() == []
