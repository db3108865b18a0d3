"""A thousand event streams on one web process: every event once and in order, soon, for little memory; none is refused.

Clients read bare sockets in this process. Time is printed; its limit tells a stuck machine from a slow one.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import quantiles

import pytest

from tests import sse
from tests.conftest import MakeSite, Say
from tests.scale import cpu
from tests.system.people import Client, request_8472

pytestmark = [pytest.mark.own_services, pytest.mark.long, pytest.mark.timeout(900)]
CLIENTS, RUNS, ROUNDS, ROUND_S = 1000, 20, 8, 1.0
CONNECTING = 50
IDLE_S = 5.0
STUCK_S = 120.0
LATE_S = 5.0
MOST_KB = 300


@pytest.fixture(autouse=True)
def _room_for_sockets() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Follower(sse.Follower):
    """Notes how long after the event's own time it arrived."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__(url, token)
        self.late_s: list[float] = []

    def _take(self, frame: str) -> None:
        before = len(self.got)
        super()._take(frame)
        for event in self.got[before:]:
            at = datetime.fromisoformat(event.data["at"].replace("Z", "+00:00"))
            self.late_s.append((datetime.now(UTC) - at).total_seconds())


def rss_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


async def until_all(followers: list[Follower], last: int) -> None:
    deadline = time.monotonic() + STUCK_S
    while not all(one.last >= last for one in followers):
        behind = [one.last for one in followers if one.last < last]
        assert time.monotonic() < deadline, f"{len(behind)} of {len(followers)} lack events: {behind[:5]}"
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("setup", ["S", "P"])
def test_a_thousand_streams_get_every_event_once_in_order_and_soon(setup: str, make_site: MakeSite, say: Say) -> None:
    site = make_site(setup).start("web")  # nobody works on the runs: what happens in them is what is posted
    client = Client(site)
    runs = [client.admit(request_8472(f"req-{n}", order_id=f"o{n}")) for n in range(RUNS)]
    pid = site.pid("web")
    followers = [Follower(f"{site.url}/api/v1/runs/{runs[n % RUNS]}/events", site.token) for n in range(CLIENTS)]

    async def story() -> tuple[int, int, float, float]:
        before, turns = rss_kb(pid), asyncio.Semaphore(CONNECTING)

        async def connect(one: Follower) -> None:
            async with turns:
                opened = asyncio.create_task(one.opened.wait())
                following.append(asyncio.create_task(one.follow()))
                await opened

        following = list[asyncio.Task[None]]()
        began = time.monotonic()
        await asyncio.gather(*(connect(one) for one in followers))
        await until_all(followers, 1)
        joined_s = time.monotonic() - began
        idle = await asyncio.to_thread(cpu.measure, {"web": pid}, IDLE_S)
        for one in followers:
            one.late_s.clear()  # what was replayed is old
        for turn in range(ROUNDS):
            began = time.monotonic()
            for run_id in runs:
                message = {"text": f"message {turn}", "message_id": f"m{turn}"}
                answer = await asyncio.to_thread(client.http.post, f"/runs/{run_id}/messages", json=message)
                assert answer.status_code == 202, answer.text
            await asyncio.sleep(max(0.0, ROUND_S - (time.monotonic() - began)))
        await until_all(followers, 1 + ROUNDS)
        after = rss_kb(pid)
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        return before, after, joined_s, idle.share

    before, after, joined_s, idle = asyncio.run(story())
    assert {tuple(event.seq for event in one.got) for one in followers} == {tuple(range(1, ROUNDS + 2))}
    assert {(one.connections, one.broken) for one in followers} == {(1, 0)}
    late = [late_s for one in followers for late_s in one.late_s]
    assert len(late) == CLIENTS * ROUNDS
    cuts = quantiles(late, n=100)
    each_kb = (after - before) / CLIENTS
    say(
        f"{CLIENTS} streams on {RUNS} runs, joined in {joined_s:.1f} s; {len(late)} events once and in order; "
        f"p50 {cuts[49] * 1000:.0f} ms, p95 {cuts[94] * 1000:.0f} ms, slowest {max(late) * 1000:.0f} ms; "
        f"{each_kb:.0f} KB a client ({before // 1024} to {after // 1024} MB); idle {idle:.1%} of a core; "
        f"load {os.getloadavg()[0]:.1f}"
    )
    assert cuts[94] < LATE_S
    assert each_kb < MOST_KB
