"""Streams and long polls of a real server: killed, ended and crowded, and the README's own examples."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from agentsite import env
from tests import sse
from tests.conftest import Say
from tests.system.business import Business
from tests.system.people import Client, Staff, request_8472
from tests.system.site import STUCK_S, Ground, Site

pytestmark = pytest.mark.own_services
T = TypeVar("T")
POLLS = 200
OPEN = 20
SECONDS_TO_END = 5.0
MOST_THREADS = 60
README = (env.ROOT / "README.md").read_text()


@dataclass(frozen=True, kw_only=True)
class Door:
    site: Site
    business: Business
    client: Client

    @property
    def role(self) -> str:
        return self.site.roles[0]

    def url(self, run_id: str, more: str = "") -> str:
        return f"{self.site.url}/api/v1/runs/{run_id}{more}"

    def waiting_run(self, order_id: str) -> str:
        """A run that rests before its approval."""
        self.business.seed_double_charges(order_id)
        run_id = self.client.admit(request_8472(f"req-{order_id}", order_id=order_id))
        self.client.wait_for(run_id, "awaiting_approval")
        return run_id

    def follower(self, run_id: str) -> sse.Follower:
        return sse.Follower(self.url(run_id, "/events"), self.site.token)


@pytest.fixture(scope="module", params=["E", "P"])
def door(request: pytest.FixtureRequest, ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    folder = tmp_path_factory.mktemp(f"live-{request.param}")
    with Business(folder / "business.sqlite3") as business:
        site = Site(request.param, ground, folder / "site", business.url).start()
        try:
            yield Door(site=site, business=business, client=Client(site))
        finally:
            site.close()


async def in_thread(call: Callable[[], T]) -> T:
    return await asyncio.to_thread(call)


async def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + STUCK_S
    while not true():
        assert time.monotonic() < deadline, f"stuck: {what}"
        await asyncio.sleep(0.02)


def run(work: Awaitable[T]) -> T:
    async def bounded() -> T:
        return await asyncio.wait_for(work, 2 * STUCK_S)

    return asyncio.run(bounded())


def test_stream_resumes_after_a_killed_server_without_gap_or_repeat(door: Door) -> None:
    """Killed twice: between two states of a run at rest, and while its refund is being made."""
    run_id = door.waiting_run("resumed")
    follower = door.follower(run_id)

    async def story() -> None:
        following = asyncio.create_task(follower.follow())
        await until(lambda: follower.seen("approval.requested"), "the approval was not told")
        asked = door.client.run(run_id)["approval"]
        door.site.kill(door.role)
        door.site.spawn(door.role)
        await until(door.site.answers, "the server did not come back")
        staff = await in_thread(lambda: Staff(door.site))
        door.business.fault("POST /v1/refunds", "delay_after:3")  # it is still being made when the server is killed
        await in_thread(lambda: staff.approve(asked))
        await until(lambda: follower.seen("approval.decided"), "the decision was not told")
        door.site.kill(door.role)
        door.site.spawn(door.role)
        await following

    run(story())
    told = door.client.events(run_id)
    assert [event.data for event in follower.got] == told
    assert [event.seq for event in follower.got] == list(range(1, len(told) + 1))
    assert [(event.seq, event.type) for event in follower.got] == [(e["seq"], e["type"]) for e in told]
    assert told[-1]["data"]["to"] == "completed" if told[-1]["type"] == "run.status" else True
    assert (follower.connections >= 3, follower.broken >= 2) == (True, True)
    assert len(door.business.made_on("resumed")) == 1


def test_two_hundred_long_polls_hold_nothing_and_answer_at_once(door: Door, say: Say) -> None:
    run_id = door.waiting_run("polled")
    etag = door.client.http.get(f"/runs/{run_id}").headers["ETag"]

    sent = list[int]()

    async def poll() -> tuple[int, float]:
        asking = asyncio.create_task(
            sse.ask(door.url(run_id, "?wait=20"), If_None_Match=etag, Authorization=f"Bearer {door.site.token}")
        )
        await asyncio.sleep(0.1)
        sent.append(1)
        answer = await asking
        body = json.loads(await answer.body())
        await answer.close()
        assert len(body["run_id"]) == 36
        return answer.status, time.monotonic()

    async def crowd() -> tuple[list[tuple[int, float]], float, list[float], int]:
        polls = [asyncio.create_task(poll()) for _ in range(POLLS)]
        pid = door.site.pid(door.role)
        await until(lambda: len(sent) == POLLS, "a long poll did not arrive")
        await asyncio.sleep(1)
        await until(lambda: _threads(pid) < MOST_THREADS, "parked long polls hold threads")
        threads = _threads(pid)
        others = []
        for _ in range(10):
            began = time.monotonic()
            assert (await in_thread(lambda: door.client.http.get("/runs?limit=1"))).status_code == 200
            others.append(time.monotonic() - began)
        assert not any(one.done() for one in polls)
        moved = time.monotonic()
        await in_thread(lambda: door.client.http.post(f"/runs/{run_id}/messages", json={"text": "Any news?"}))
        return list(await asyncio.gather(*polls)), moved, others, threads

    answers, moved, others, threads = run(crowd())
    assert Counter(status for status, _ in answers) == {200: POLLS}
    last = max(at for _, at in answers) - moved
    say(f"{POLLS} parked: {threads} threads, others' slowest {max(others):.2f} s; all told after {last:.1f} s")
    assert max(others) < SECONDS_TO_END


def _threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_readme_examples_do_what_they_say(door: Door) -> None:
    """As a reader pastes them, against a real site with the sandbox behind it."""
    script = _block("curl", "sh").replace("http://127.0.0.1:8080", door.site.url)
    assert script.count("curl ") == 6
    door.business.seed_double_charge(reset=False)
    done = subprocess.run(
        ["sh", "-eu", "-c", script], env={"PATH": os.environ["PATH"], "TOKEN": door.site.token}, capture_output=True,
        text=True, timeout=STUCK_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done
    (run,) = door.client.runs(request_id="req-1")
    assert (run["status"], run["outcome"]) == ("cancelled", "cancelled")
    assert "event: message.received" in done.stdout and "event: cancel.requested" in done.stdout
    assert done.stdout.rstrip().endswith('"rating":"up","text":"Quick and clear."}')
    assert door.business.made_on("8472") == []


@pytest.mark.any_database
def test_readme_verifies_a_webhook_and_refuses_a_forged_one() -> None:
    secret, body = "whsec_" + base64.b64encode(b"sixteen bytes and more").decode(), '{"type": "run.completed"}'
    at = datetime.now(UTC)
    signature = Webhook(secret).sign("msg_1", at, body)
    headers = {"webhook-id": "msg_1", "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}
    reader: dict[str, Any] = {}
    exec(_block("verify", "python"), reader)
    assert reader["received"](body.encode(), headers, secret) == {"type": "run.completed"}
    with pytest.raises(WebhookVerificationError):
        reader["received"](body.replace("completed", "failed").encode(), headers, secret)


def _block(mark: str, language: str) -> str:
    part = README.split(f"<!-- {mark} -->")[1].split(f"<!-- /{mark} -->")[0].strip()
    assert part.startswith(f"```{language}\n") and part.endswith("```")
    return part.removeprefix(f"```{language}\n").removesuffix("```")


def test_sigterm_ends_the_server_with_open_streams_and_long_polls(door: Door, say: Say) -> None:
    run_id = door.waiting_run("ended")
    followers = [door.follower(run_id) for _ in range(OPEN)]

    async def poll() -> int:
        answer = await sse.ask(door.url(run_id, "?wait=20"), Authorization=f"Bearer {door.site.token}")
        assert json.loads(await answer.body())["status"] == "awaiting_approval"
        return answer.status

    async def story() -> tuple[list[bool], list[int], float]:
        streams = [asyncio.create_task(one.once()) for one in followers]
        polls = [asyncio.create_task(poll()) for _ in range(OPEN)]
        await until(lambda: all(one.seen("approval.requested") for one in followers), "a stream did not begin")
        await asyncio.sleep(1)
        began = time.monotonic()
        await in_thread(lambda: door.site.stop(door.role))
        return list(await asyncio.gather(*streams)), list(await asyncio.gather(*polls)), time.monotonic() - began

    ended, answered, took_s = run(story())
    door.site.start(door.role)
    assert (ended, answered) == ([True] * OPEN, [200] * OPEN)
    say(f"{door.role} with {OPEN} streams and {OPEN} long polls ended {took_s:.1f} s after SIGTERM")
    assert took_s < SECONDS_TO_END
