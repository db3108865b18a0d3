"""Cases from public bug reports that need real processes, named by their id in `../shared/cases/regressions.md`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis
from celery import Celery

from agentsite.private.processes import wait_until
from tests.conftest import MakeSite, Say
from tests.sandbox_process import inr
from tests.system.business import KEY, Business
from tests.system.people import ENDED, Client, Json, Staff, request_8472
from tests.system.site import Ground, Site

pytestmark = pytest.mark.own_services
KEY_PREFIX = "agentsite:"


# --- set-up E ----------------------------------------------------------------------------------------------


def test_b01_a_restart_after_the_approval_asks_no_model(
    make_site: MakeSite, business: Business, tmp_path: Path
) -> None:
    """Approved, killed before the intent; whatever the model would say now, what was approved is what is done."""
    site = make_site("E").start()
    client = Client(site)
    run_id = client.admit(request_8472())
    waiting = client.wait_for(run_id, "awaiting_approval")
    business.fault("GET /v1/orders", "delay:300")  # the release reads its facts, and hangs
    Staff(site).approve(waiting["approval"])
    assert business.holds("GET", "/v1/orders")
    assert client.run(run_id)["writes"] == []
    site.kill("up")
    site.environment["AGENT_MODELS"] = four_thousand(site, tmp_path)
    site.start("up")
    done = client.wait_for(run_id, "completed")

    (post,) = business.posts()
    assert (post["body"]["payment_id"], post["body"]["amount"]) == ("pay_9002", inr("2000.00"))
    assert [(write["key"], write["amount"]) for write in done["writes"]] == [(KEY, inr("2000.00"))]
    types = [event["type"] for event in client.events(run_id)]
    between = types[types.index("approval.decided") : types.index("write.intent")]
    assert "model.called" not in between
    assert len(business.made()) == 1


def four_thousand(site: Site, folder: Path) -> str:
    """A qualified route whose every answer is a refund of 4,000.00."""
    args = {"order_id": "8472", "payment_id": "pay_9002", "amount": inr("4000.00"), "reason": "duplicate_capture"}
    evidence = ["{{obs:get_payments}}", "{{obs:search_policy}}"]
    script = folder / "four_thousand.json"
    script.write_text(json.dumps({"turns": [{"say": {"tool": "issue_refund", "args": args, "evidence": evidence}}]}))
    site.manage("qualify", f"scripted:{script}", "--reason", "it would refund 4,000")
    return f"scripted:{script}"


# --- set-up S ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shop(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Business]]:
    """One site for several cases, each with an order of its own; its first model turn takes a second."""
    folder = tmp_path_factory.mktemp("shop")
    script = folder / "slow.json"
    turn = {"say": {"tool": "search_policy", "args": {"query": "charged twice"}, "evidence": []}, "delay_s": 1}
    script.write_text(json.dumps({"turns": [turn], "then": "offline"}))
    with Business(folder / "business.sqlite3") as business:
        site = Site("S", ground, folder / "site", business.url, AGENT_MODELS=f"scripted:{script}")
        try:
            site.manage("qualify", f"scripted:{script}", "--reason", "slow at first")
            yield site.start(), business
        finally:
            site.close()


def until_asked(site: Site, business: Business, order_id: str) -> tuple[Client, Json]:
    """A run of an order of its own that waits for a person."""
    business.seed_double_charges(order_id)
    client = Client(site)
    run_id = client.admit(request_8472(f"req-{order_id}", order_id=order_id))
    return client, client.wait_for(run_id, "awaiting_approval")


def test_b06_a_broker_that_is_away_loses_no_decision(shop: tuple[Site, Business], say: Say) -> None:
    site, business = shop
    client, waiting = until_asked(site, business, "b06")
    assert site.broker is not None
    staff, approval_id = Staff(site), waiting["approval"]["approval_id"]
    page = staff.review_page(approval_id)
    site.broker.kill()
    assert "Saved: lead_17 approved this" in staff.click(approval_id, page=page)
    assert "Already recorded: lead_17 approved this" in staff.click(approval_id, page=page)
    (decision,) = staff.approval(approval_id)["decisions"]
    assert (decision["by"], decision["decision"]) == ("lead_17", "approve")
    site.broker.start()
    back_at = time.monotonic()
    done = client.wait_for(waiting["run_id"], "completed")
    say(f"B06: completed {time.monotonic() - back_at:.1f} s after the broker's return")
    assert (done["outcome"], len(business.made_on("b06"))) == ("refunded", 1)


def test_b08_an_approval_outlives_every_process_and_the_broker(shop: tuple[Site, Business]) -> None:
    site, business = shop
    client, waiting = until_asked(site, business, "b08")
    assert site.broker is not None
    site.kill()
    site.broker.kill()  # it keeps nothing: its queues are empty afterwards
    site.broker.start()
    site.start()
    staff = Staff(site)
    (listed,) = [a for a in staff.approvals(status="pending") if a["run_id"] == waiting["run_id"]]
    assert (listed["approval_id"], listed["expires_at"]) == (
        waiting["approval"]["approval_id"], waiting["approval"]["expires_at"],
    )  # fmt: skip
    assert "Saved: lead_17 approved this" in staff.click(listed["approval_id"])
    done = client.wait_for(waiting["run_id"], "completed")
    assert (done["outcome"], len(business.made_on("b08"))) == ("refunded", 1)


def test_b60_a_step_delivered_many_times_is_done_once(shop: tuple[Site, Business]) -> None:
    site, business = shop
    assert site.broker is not None
    business.seed_double_charges("b60")
    client, staff = Client(site), Staff(site)
    run_id = client.admit(request_8472("req-b60", order_id="b60"))
    deliver(site, run_id, "passes", 3)
    waiting = client.wait_for(run_id, "awaiting_approval")
    staff.approve(waiting["approval"])
    deliver(site, run_id, "writes", 3)
    done = client.wait_for(run_id, "completed")
    deliver(site, run_id, "passes", 3)
    deliver(site, run_id, "writes", 3)
    assert wait_until(lambda: waits(site) == 0, 30)
    time.sleep(1)  # what was taken from the queues last is at work

    assert client.run(run_id) == done
    events = client.events(run_id)
    types = [event["type"] for event in events]
    assert types.count("model.called") == done["usage"]["model_calls"]
    moves = [(event["data"]["from"], event["data"]["to"]) for event in events if event["type"] == "run.status"]
    assert len(moves) == len(set(moves)) == 8
    versions = [event["version"] for event in events if event["type"] == "run.status"]
    assert versions == sorted(set(versions))
    assert (len(business.made_on("b60")), done["usage"]["write_attempts"]) == (1, 1)


def deliver(site: Site, run_id: str, queue: str, times: int) -> None:
    """The same message several times, as a broker that redelivers would."""
    assert site.broker is not None
    app = Celery("redelivery", broker=site.broker.url, set_as_current=False)
    app.conf.broker_transport_options = {"global_keyprefix": KEY_PREFIX}
    with app.connection_for_write() as link:
        for _ in range(times):
            app.send_task("runs.advance", args=[run_id], queue=queue, ignore_result=True, connection=link)


def waits(site: Site) -> int:
    """Messages that nobody has taken yet."""
    assert site.broker is not None
    with redis.Redis.from_url(site.broker.url) as link:
        return sum(int(link.llen(f"{KEY_PREFIX}{queue}")) for queue in ("passes", "writes"))


def test_b66_four_workers_on_one_sqlite_file_lock_nobody_out(make_site: MakeSite, business: Business) -> None:
    site = make_site("S", workers=4, WRITES_PROCESSES="1", PASSES_THREADS="4").start()
    client, staff = Client(site), Staff(site)
    old, new = [f"old{n}" for n in range(8)], [f"new{n}" for n in range(40)]
    business.seed_double_charges(*old, *new)
    asked = [client.admit(request_8472(f"req-{i}", order_id=i)) for i in old]
    approvals = [client.wait_for(run_id, "awaiting_approval")["approval"] for run_id in asked]
    with ThreadPoolExecutor(48) as pool:
        clicks = [pool.submit(staff.decide, approval) for approval in approvals]
        posts = [pool.submit(client.post_run, request_8472(f"req-{i}", order_id=i)) for i in new]
        assert {click.result().status_code for click in clicks} == {200}
        assert {post.result().status_code for post in posts} == {202}
        deadline = time.monotonic() + 120
        while live := [run for run in client.runs() if run["status"] not in ENDED]:
            assert time.monotonic() < deadline, client.told(live[0]["run_id"], f"{len(live)} runs are stuck")
            list(pool.map(staff.approve, staff.approvals(status="pending")))
            time.sleep(0.2)
    runs = client.runs()
    assert [run["outcome"] for run in runs] == ["refunded"] * 48
    assert [len(business.made_on(order_id)) for order_id in (*old, *new)] == [1] * 48
    logs = "".join(log.read_text() for log in site.folder.glob("*.log"))
    assert "database is locked" not in logs
    assert "pass.failed" not in logs


# --- set-up P ----------------------------------------------------------------------------------------------

ADMIT = """
import time
from django.db import transaction
from runs import admission
from runs.contracts import RunRequest
body = {body!r}
try:
    with transaction.atomic():
        made = admission.admit(
            tenant_id="t_acme_in", created_by="user:0", request=RunRequest.model_validate(body), raw_body=body
        )
        time.sleep(2)
        if {rolls_back!r}:
            raise InterruptedError
except InterruptedError:
    pass
print(made.run_id)
"""


def test_b63_a_run_in_an_outer_transaction_starts_with_its_commit(make_site: MakeSite, business: Business) -> None:
    business.seed_double_charges("late", "never")
    site = make_site("P").start()
    client = Client(site)
    late, never = (
        site.manage("shell", "-c", ADMIT.format(body=request_8472(f"req-{i}", order_id=i), rolls_back=rolls_back))
        for i, rolls_back in (("late", False), ("never", True))
    )
    client.wait_for(late.split()[-1], "awaiting_approval")
    assert client.http.get(f"/runs/{never.split()[-1]}").status_code == 404
    assert [run["request_id"] for run in client.runs()] == ["req-late"]
    assert [call for call in business.calls() if "never" in call["path"]] == []
    assert "DoesNotExist" not in site.tails(1000)
    assert "pass.failed" not in site.tails(1000)
