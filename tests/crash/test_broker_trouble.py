"""Redis killed, flushed and half-open under runs: no request fails for it, and everything admitted finishes by itself.

The broker carries hints only. In the brief silence as in the long one, what waits for an answer from Redis gets none.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
import redis

from agentsite.private.processes import wait_until
from agentsite.private.servers import Redis
from tests.conftest import Say
from tests.proxy import Proxy
from tests.system.business import Business
from tests.system.people import Client, Json, Staff, request_8472
from tests.system.site import Ground, Site

pytestmark = pytest.mark.own_services

ANSWER_S = 10.0
"""The longest a client may wait while the broker says nothing."""
PUBLISHER = """
import time, uuid
from agentsite import queues
def took(**more):
    began = time.monotonic()
    assert queues.nudge(str(uuid.uuid4()), "accepted", **more) is False
    return time.monotonic() - began
first, second, insisting = took(), took(), took(insist=True)
print(first > 10 * second, insisting > 10 * second)
"""
RUNS = 6
AWAY_S, BRIEF_S, LONG_S = 5.0, 8.0, 35.0


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A site whose web and workers reach Redis by way of a proxy."""

    site: Site
    redis: Redis
    proxy: Proxy
    business: Business
    client: Client
    staff: Staff
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    answers: list[float] = field(default_factory=list)

    def orders(self, count: int) -> list[str]:
        """Fresh orders, each charged twice."""
        made = [f"b{next(self.numbers)}" for _ in range(count)]
        self.business.seed_double_charges(*made)
        return made

    def admit(self, orders: list[str]) -> dict[str, str]:
        """Run ids by order, all asked for at once; each answered in time with 202."""
        with ThreadPoolExecutor(len(orders)) as pool:
            return dict(zip(orders, pool.map(self._admit, orders), strict=True))

    def _admit(self, order: str) -> str:
        began = time.monotonic()
        run_id = self.client.admit(request_8472(f"req-{order}", order_id=order))
        self._answered(began)
        return run_id

    def ask(self, runs: dict[str, str]) -> list[Json]:
        """The approvals these runs wait for."""
        return [self.client.wait_for(run_id, "awaiting_approval")["approval"] for run_id in runs.values()]

    def approve(self, approvals: list[Json]) -> None:
        with ThreadPoolExecutor(len(approvals)) as pool:
            list(pool.map(self._approve, approvals))

    def _approve(self, approval: Json) -> None:
        began = time.monotonic()
        self.staff.approve(approval)
        self._answered(began)

    def _answered(self, began: float) -> None:
        took_s = time.monotonic() - began
        self.answers.append(took_s)
        assert took_s < ANSWER_S, f"the client waited {took_s:.1f} s"

    def all_finish(self, runs: dict[str, str]) -> None:
        """Each run completes by itself, with one refund that was asked for once."""
        for order, run_id in runs.items():
            assert self.client.wait_for(run_id, "completed")["outcome"] == "refunded"
            (refund,) = self.business.made_on(order)
            assert (refund["payment_id"], refund["amount"]["amount"]) == (f"pay_{order}b", "2000.00")
            posts = [post for post in self.business.posts() if post["body"]["order_id"] == order]
            assert len(posts) == 1
        assert self.site.ended() == []


@pytest.fixture(scope="module", params=["P", pytest.param("S", marks=pytest.mark.long)])
def scene(request: pytest.FixtureRequest, ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp(f"broker-{request.param}")
    with Business(folder / "business.sqlite3") as business:
        site = Site(request.param, ground, folder / "site", business.url)
        assert site.broker is not None
        proxy = Proxy("127.0.0.1", site.broker.port)
        site.environment["BROKER_URL"] = proxy.in_front_of(site.broker.url)
        try:
            site.start()
            yield Scene(
                site=site, redis=site.broker, proxy=proxy, business=business, client=Client(site), staff=Staff(site)
            )
        finally:
            site.close()
            proxy.close()


def three_stages(scene: Scene) -> tuple[dict[str, str], list[Json]]:
    """Runs that were just admitted, and approvals of others that nobody decided yet: all in `runs`."""
    parked = scene.admit(scene.orders(RUNS // 2))
    approvals = scene.ask(parked)
    scene.business.fault("GET /v1", "delay:0.3", times=RUNS)  # so that the trouble finds somebody at work
    scene.answers.clear()
    return parked | scene.admit(scene.orders(RUNS // 2)), approvals


def during(scene: Scene, runs: dict[str, str], approvals: list[Json]) -> dict[str, str]:
    """While the broker is no use: some approve, others ask; nobody is turned away and nobody waits."""
    scene.approve(approvals)
    return runs | scene.admit(scene.orders(RUNS // 2))


def afterwards(scene: Scene, runs: dict[str, str], decided: list[Json], say: Say, words: str) -> None:
    back_at = time.monotonic()
    done = {one["approval_id"] for one in decided}
    scene.approve([one for one in scene.ask({o: r for o, r in runs.items() if not _decided(scene, r, done)})])
    scene.all_finish(runs)
    say(
        f"{scene.site.setup}, {words}: {len(runs)} runs finished {time.monotonic() - back_at:.1f} s after, "
        f"slowest answer {max(scene.answers):.2f} s"
    )


def _decided(scene: Scene, run_id: str, done: set[str]) -> bool:
    approval = scene.client.run(run_id)["approval"]
    return approval is not None and approval["approval_id"] in done


@pytest.mark.long
def test_redis_killed_under_runs_and_back_later(scene: Scene, say: Say) -> None:
    runs, approvals = three_stages(scene)
    scene.redis.kill()
    gone_at = time.monotonic()
    runs = during(scene, runs, approvals)
    assert not wait_until(lambda: scene.redis.is_running(), max(0.0, AWAY_S - (time.monotonic() - gone_at)))
    scene.redis.start()
    afterwards(scene, runs, approvals, say, "Redis killed for 5 s")


def test_redis_flushed_under_runs(scene: Scene, say: Say) -> None:
    runs, approvals = three_stages(scene)
    with redis.Redis.from_url(scene.redis.url, socket_timeout=5) as link:
        scene.approve(approvals)
        link.flushall()
        runs |= scene.admit(scene.orders(RUNS // 2))
        link.flushall()
    afterwards(scene, runs, approvals, say, "FLUSHALL twice")


@pytest.mark.parametrize("silent_s", [BRIEF_S, pytest.param(LONG_S, marks=pytest.mark.long)])
def test_redis_half_open_under_runs(scene: Scene, say: Say, silent_s: float) -> None:
    runs, approvals = three_stages(scene)
    scene.proxy.swallow()
    silent_at = time.monotonic()
    runs = during(scene, runs, approvals)
    while time.monotonic() - silent_at < silent_s:
        runs |= scene.admit(scene.orders(1))
        time.sleep(max(0.0, min(2.0, silent_s - (time.monotonic() - silent_at))))
    scene.proxy.let_through()
    afterwards(scene, runs, approvals, say, f"Redis silent for {silent_s:.0f} s")


def test_publishers_do_not_wait_again_for_a_broker_that_made_one_wait(scene: Scene) -> None:
    """But for the sweeper, which insists, in a thread of its own."""
    scene.proxy.swallow()
    try:
        assert scene.site.manage("shell", "-v", "0", "-c", PUBLISHER).splitlines()[-1] == "True True"
    finally:
        scene.proxy.let_through()
