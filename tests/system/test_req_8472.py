"""The mission's own example through every door that exists, on each set-up."""

from __future__ import annotations

import json

import pytest

from tests.conftest import MakeSite
from tests.sandbox_process import inr
from tests.system.business import KEY, Business
from tests.system.people import Client, Staff, request_8472
from tests.system.site import Site

pytestmark = pytest.mark.own_services


@pytest.mark.parametrize("setup", ["E", pytest.param("S", marks=pytest.mark.long), "P"])
def test_refund_goes_from_post_to_verified_reply(setup: str, make_site: MakeSite, business: Business) -> None:
    site = make_site(setup).start()
    client = Client(site)
    admitted = client.post_run(request_8472())
    assert admitted.status_code == 202, admitted.text
    run_id = admitted.json()["run_id"]
    assert admitted.headers["Location"].endswith(f"/api/v1/runs/{run_id}")
    waiting = client.wait_for(run_id, "awaiting_approval")
    assert business.posts() == []
    staff = Staff(site)
    assert [a["run_id"] for a in staff.approvals(status="pending")] == [run_id]
    staff.approve(waiting["approval"])
    done = client.wait_for(run_id, "completed")

    (post,) = business.posts()
    assert (post["idempotency_key"], post["body"]["payment_id"], post["body"]["amount"], post["status"]) == (
        KEY, "pay_9002", inr("2000.00"), 201,
    )  # fmt: skip
    assert post["body"]["approval_id"] == waiting["approval"]["approval_id"]
    (refund,) = business.made()
    assert (done["outcome"], done["verification"]["passed"]) == ("refunded", True)
    assert done["verification"]["refund_id"] == refund["refund_id"]
    assert [(w["key"], w["state"]) for w in done["writes"]] == [(KEY, "confirmed")]
    assert refund["refund_id"] in done["reply"]
    assert done["usage"]["write_attempts"] == 1

    replayed = client.post_run(request_8472())
    assert (replayed.status_code, replayed.headers["Idempotency-Replayed"]) == (200, "true")
    assert replayed.json()["run_id"] == run_id
    check_record(client, run_id)
    check_second_request(client, business, refund["refund_id"])
    check_logs(site, run_id)


def check_record(client: Client, run_id: str) -> None:
    """The events tell the story in order, without a gap."""
    events = client.events(run_id)
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    moves = [e["data"]["to"] for e in events if e["type"] == "run.status"]
    assert moves == [
        "gathering", "action_proposed", "awaiting_approval", "approved", "executing", "executed", "verified",
        "completed",
    ]  # fmt: skip
    types = [e["type"] for e in events]
    story = [
        "run.accepted", "prompt.built", "model.called", "model.replied", "tool.observed", "gate.decided",
        "approval.requested", "approval.decided", "write.intent", "write.sent", "write.result", "write.verified",
        "reply.sent",
    ]  # fmt: skip
    assert sorted(story, key=types.index) == story


def check_second_request(client: Client, business: Business, refund_id: str) -> None:
    """Another request about the order is told the first reference and makes no refund."""
    second = client.wait_for(client.admit(request_8472("req-8472b")), "completed")
    assert second["outcome"] == "no_refund_due"
    assert refund_id in second["reply"]
    assert (len(business.posts()), len(business.made())) == (1, 1)


def check_logs(site: Site, run_id: str) -> None:
    """The log files alone, with no database to ask, tell the story that the record tells."""
    files = [word for log in sorted(site.folder.glob("*.log")) for word in ("--from-logs", str(log))]
    nowhere = {"DATABASE_URL": "postgres://nobody@127.0.0.1:1/nothing"}
    told = json.loads(site.manage("why", *files, run_id, "--json", "--without-words", **nowhere))
    counted = told.pop("log")
    assert (counted["missing"], counted["doubled"]) == ([], 0) and counted["lines"] > 30
    assert told == json.loads(site.manage("why", run_id, "--json", "--without-words"))
    assert told["outcome"] == "refunded" and f"idempotency key {KEY}" in told["answer"]
