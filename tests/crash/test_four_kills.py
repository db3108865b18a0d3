"""SIGKILL of a real worker at the four moments where a refund can be lost or doubled; the provider honours keys.

The world is held still by the business system's own delays, so each kill hits the moment it is named after.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from agentsite.private.processes import wait_until
from tests.conftest import Say
from tests.system.business import Business
from tests.system.people import Client, Staff, request_8472
from tests.system.site import Ground, Site

pytestmark = pytest.mark.own_services

RECOVERY_S = 60.0
"""Generous for a slow machine; measured values are printed. Lease 3 s, sweep 0.5 s."""
HOLD = "delay:300"
SCRIPT = {
    "turns": [{"say": {"tool": "search_policy", "args": {"query": "charged twice"}, "evidence": []}, "delay_s": 2}],
    "then": "offline",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One site and its business system; every case has an order of its own in it."""

    site: Site
    business: Business
    client: Client
    staff: Staff

    def open_case(self, order_id: str) -> str:
        self.business.control("/_faults", clear=True)
        self.business.seed_double_charges(order_id)
        return self.client.admit(request_8472(f"req-{order_id}", order_id=order_id))

    def approve(self, run_id: str) -> None:
        self.staff.approve(self.client.wait_for(run_id, "awaiting_approval")["approval"])

    def kill(self, queue: str) -> float:
        """Kills what works on the queue; what supervises it starts it again. Returns when that was."""
        if self.site.setup == "E":
            self.site.kill("up")
            killed_at = time.monotonic()
            self.site.start("up")
            return killed_at
        self.site.kill_child(queue)
        return time.monotonic()


@pytest.fixture(scope="module", params=["E", "P"])
def scene(request: pytest.FixtureRequest, ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp(f"kills-{request.param}")
    script = folder / "script.json"
    script.write_text(json.dumps(SCRIPT))
    with Business(folder / "business.sqlite3") as business:
        site = Site(request.param, ground, folder / "site", business.url, AGENT_MODELS=f"scripted:{script}")
        try:
            site.manage("qualify", f"scripted:{script}", "--reason", "a delayed first turn, then the offline model")
            site.start()
            yield Scene(site=site, business=business, client=Client(site), staff=Staff(site))
        finally:
            site.close()


def check_end(scene: Scene, run_id: str, order_id: str, killed_at: float, say: Say) -> dict[str, Any]:
    """The run ends by itself with one refund, asked for once, under its one key."""
    done = scene.client.wait_for(run_id, "completed")
    took_s = time.monotonic() - killed_at
    say(f"{scene.site.setup}, {order_id}: completed {took_s:.1f} s after the kill")
    posts = [post for post in scene.business.posts() if post["body"]["order_id"] == order_id]
    key = f"t_acme_in/req-{order_id}:issue_refund:pay_{order_id}b"
    (refund,) = scene.business.made_on(order_id)
    assert [post["idempotency_key"] for post in posts] == [key]
    assert (refund["payment_id"], refund["amount"]["amount"]) == (f"pay_{order_id}b", "2000.00")
    assert (done["outcome"], done["verification"]["passed"]) == ("refunded", True)
    assert [(write["key"], write["state"], write["refund_id"]) for write in done["writes"]] == [
        (key, "confirmed", refund["refund_id"])
    ]
    assert refund["refund_id"] in done["reply"]
    assert took_s < RECOVERY_S
    return done


def test_kill_after_the_intent_before_anything_is_sent(scene: Scene, say: Say) -> None:
    run_id = scene.open_case("intent")
    waiting = scene.client.wait_for(run_id, "awaiting_approval")
    # The release reads the refunds once; the look-up directly before the first byte is the read that hangs.
    scene.business.fault("GET /v1/refunds", "delay:0.01")
    scene.business.fault("GET /v1/refunds", HOLD)
    scene.staff.approve(waiting["approval"])
    held = scene.client.wait_for(run_id, "executing")
    assert scene.business.holds("GET", "/v1/refunds")
    assert ([w["state"] for w in held["writes"]], scene.business.made_on("intent")) == (["intent"], [])
    done = check_end(scene, run_id, "intent", scene.kill("writes"), say)
    assert done["approval"]["status"] == "consumed"


def test_kill_after_the_refund_before_its_reply(scene: Scene, say: Say) -> None:
    run_id = scene.open_case("reply")
    scene.business.fault("POST /v1/refunds", "delay_after:300")
    scene.approve(run_id)
    assert wait_until(lambda: bool(scene.business.made_on("reply")), 30)
    held = scene.client.run(run_id)
    assert (held["status"], [w["state"] for w in held["writes"]]) == ("executing", ["sent"])
    check_end(scene, run_id, "reply", scene.kill("writes"), say)
    types = [event["type"] for event in scene.client.events(run_id)]
    assert types.count("write.sent") == 1
    assert "write.reconciled" in types


def test_kill_after_the_result_before_its_verification(scene: Scene, say: Say) -> None:
    run_id = scene.open_case("result")
    waiting = scene.client.wait_for(run_id, "awaiting_approval")
    # The release reads the order once, the look-up does not; the verification's own read is the one that hangs.
    scene.business.fault("GET /v1/orders", "delay:0.01")
    scene.business.fault("GET /v1/orders", HOLD)
    scene.staff.approve(waiting["approval"])
    held = scene.client.wait_for(run_id, "executed")
    assert scene.business.holds("GET", "/v1/orders")
    assert ([w["state"] for w in held["writes"]], held["verification"]) == (["confirmed"], None)
    check_end(scene, run_id, "result", scene.kill("writes"), say)


def test_kill_during_a_model_call(scene: Scene, say: Say) -> None:
    run_id = scene.open_case("model")
    assert wait_until(scene.site.is_held, 30)
    held = scene.client.run(run_id)
    assert (held["status"], held["usage"]["model_calls"]) == ("accepted", 0)
    killed_at = scene.kill("passes")
    scene.approve(run_id)
    done = check_end(scene, run_id, "model", killed_at, say)
    calls = [event for event in scene.client.events(run_id) if event["type"] == "model.replied"]
    assert len(calls) == done["usage"]["model_calls"]


@pytest.mark.parametrize("scene", ["P"], indirect=True)
def test_kill_of_the_whole_worker_while_its_refund_is_under_way(scene: Scene, say: Say) -> None:
    """Nobody is left to start anything again; a worker that is started later finds the run by itself."""
    run_id = scene.open_case("whole")
    scene.business.fault("POST /v1/refunds", "delay_after:300")
    scene.approve(run_id)
    assert wait_until(lambda: bool(scene.business.made_on("whole")), 30)
    scene.site.kill("worker1")
    killed_at = time.monotonic()
    scene.site.start("worker1")
    check_end(scene, run_id, "whole", killed_at, say)
