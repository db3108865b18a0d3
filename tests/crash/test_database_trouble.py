"""PostgreSQL restarted, stopped, or away with Redis: doors say 503 and mean it, and everything admitted finishes.

Nothing of the site is started again by hand, except where the start itself is what a test looks at.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import httpx
import pytest

from agentsite.private.processes import wait_until
from agentsite.private.servers import Postgres, Redis
from tests.conftest import Say
from tests.system import people
from tests.system.business import Business
from tests.system.people import Client, Staff, request_8472
from tests.system.site import STUCK_S, Ground, Site

pytestmark = pytest.mark.own_services

RUNS = 3
AT_ONCE_S = 15.0
"""Less than a pool's patience with a busy database, and generous for a busy machine."""
UNAVAILABLE = {"type": "temporarily-unavailable", "title": "The service cannot answer now.", "status": 503}


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A site on PostgreSQL and Redis; both servers are the test's to stop."""

    site: Site
    cluster: Postgres
    redis: Redis
    business: Business
    client: Client
    staff: Staff
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    turned_down: list[float] = field(default_factory=list)

    def orders(self, count: int) -> list[str]:
        """Fresh orders, each charged twice."""
        made = [f"d{next(self.numbers)}" for _ in range(count)]
        self.business.seed_double_charges(*made)
        return made

    def post(self, order: str) -> httpx.Response:
        return self.client.post_run(request_8472(f"req-{order}", order_id=order))

    def admit(self, order: str) -> str:
        """Asks until it is admitted, as a client is told to; the run's id. The same request is one run."""
        answer = self._insist(lambda: self.post(order), 202)
        return str(answer.json()["run_id"])

    def approve(self, run_id: str) -> None:
        """The same of a decision; staff may be told that the service cannot answer, and never another thing."""
        approval = self._insist(lambda: self.client.http.get(f"/runs/{run_id}"), 200).json()["approval"]
        self._insist(lambda: self.staff.decide(approval), 200)

    def parked(self, orders: list[str]) -> dict[str, str]:
        """Runs by order that wait for their approval."""
        runs = {order: self.admit(order) for order in orders}
        for run_id in runs.values():
            self.client.wait_for(run_id, "awaiting_approval")
        return runs

    def _insist(self, knock: Callable[[], httpx.Response], wanted: int) -> httpx.Response:
        deadline = time.monotonic() + STUCK_S
        while True:
            began = time.monotonic()
            answer = knock()
            if answer.status_code != 503:
                # 200 for an admission: the answer of the one before was lost after its commit.
                assert answer.status_code in (wanted, 200), answer.text
                return answer
            self.turned_down.append(time.monotonic() - began)
            assert_unavailable(answer)
            assert time.monotonic() < deadline, "nobody was let in again"
            time.sleep(0.2)

    def all_finish(self, runs: dict[str, str]) -> None:
        """Each run completes by itself, with one refund that was asked for once."""
        for order, run_id in runs.items():
            assert self.client.wait_for(run_id, "completed")["outcome"] == "refunded"
            (refund,) = self.business.made_on(order)
            assert (refund["payment_id"], refund["amount"]["amount"]) == (f"pay_{order}b", "2000.00")
            assert len([p for p in self.business.posts() if p["body"]["order_id"] == order]) == 1
            assert len(self.client.runs(request_id=f"req-{order}")) == 1
        assert self.site.ended() == []


def assert_unavailable(answer: httpx.Response) -> None:
    """A problem document that says nothing was done and when to come again."""
    assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json"), answer.text
    assert UNAVAILABLE.items() <= answer.json().items()
    assert int(answer.headers["retry-after"]) >= 1


@pytest.fixture(scope="module")
def scene(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("database")
    with Business(folder / "business.sqlite3") as business:
        site = Site("P", ground, folder / "site", business.url)
        assert site.broker is not None
        try:
            site.start()
            yield Scene(
                site=site, cluster=ground.cluster, redis=site.broker, business=business, client=Client(site),
                staff=Staff(site),
            )  # fmt: skip
        finally:
            if not ground.cluster.is_running():
                ground.cluster.start()
            site.close()


def busy(scene: Scene, ended: threading.Event, orders: Iterator[str]) -> dict[str, str]:
    """Admits one run after the other until the trouble is over."""
    admitted = {}
    while not ended.is_set():
        order = next(orders)
        admitted[order] = scene.admit(order)
        ended.wait(0.3)
    return admitted


@pytest.mark.parametrize("mode", [pytest.param("fast", marks=pytest.mark.long), "immediate"])
def test_postgres_restarted_under_runs(scene: Scene, say: Say, mode: str) -> None:
    parked, ended = scene.parked(scene.orders(RUNS)), threading.Event()
    scene.turned_down.clear()
    scene.business.fault("GET /v1", "delay:0.3", times=2 * RUNS)  # so that the restart finds somebody at work
    with ThreadPoolExecutor(RUNS + 1) as pool:
        client = pool.submit(busy, scene, ended, iter(scene.orders(60)))
        clicks = [pool.submit(scene.approve, run_id) for run_id in list(parked.values())[:-1]]
        assert wait_until(scene.site.is_held, 30)
        {"fast": scene.cluster.restart, "immediate": scene.cluster.restart_at_once}[mode]()
        back_at = time.monotonic()
        clicks.append(pool.submit(scene.approve, list(parked.values())[-1]))
        assert wait_until(lambda: all(click.done() for click in clicks), STUCK_S)
        ended.set()
        admitted = client.result()
    for click in clicks:
        click.result()
    for run_id in admitted.values():
        scene.client.wait_for(run_id, "awaiting_approval")
        scene.approve(run_id)
    scene.all_finish(parked | admitted)
    say(
        f"{mode}: {len(parked | admitted)} runs finished {time.monotonic() - back_at:.1f} s after, "
        f"{len(scene.turned_down)} requests turned down, slowest {max(scene.turned_down, default=0):.1f} s"
    )


def test_database_and_broker_away_at_the_moment_of_post_and_click(scene: Scene, say: Say) -> None:
    parked = scene.parked(scene.orders(2))
    (fresh,) = scene.orders(1)
    decided, clicked_at = (scene.client.run(run_id)["approval"] for run_id in parked.values())
    page = scene.staff.review_page(clicked_at["approval_id"])
    scene.redis.kill()
    scene.cluster.stop()
    with ThreadPoolExecutor(3) as pool:
        began = time.monotonic()
        post, decision = pool.submit(scene.post, fresh), pool.submit(scene.staff.decide, decided)
        click = pool.submit(clicked, scene, clicked_at["approval_id"], page)
        scene.site.kill_child("passes")
        answers = [post.result(), decision.result(), click.result()]
    for answer in (*answers[:2], scene.post(fresh)):  # the last finds no connection left to try
        assert_unavailable(answer)
    told_s = time.monotonic() - began
    assert told_s < AT_ONCE_S
    assert (answers[2].status_code, answers[2].headers["retry-after"]) == (503, "2")
    assert "The service cannot answer now." in answers[2].text
    scene.cluster.start()
    scene.redis.start()
    back_at = time.monotonic()
    for run_id in parked.values():
        scene.approve(run_id)
    run_id = scene.admit(fresh)
    scene.client.wait_for(run_id, "awaiting_approval")
    scene.approve(run_id)
    scene.all_finish({**parked, fresh: run_id})
    say(f"both away: told so twice within {told_s:.1f} s, 3 runs finished {time.monotonic() - back_at:.1f} s after")


def clicked(scene: Scene, approval_id: str, page: str) -> httpx.Response:
    """The answer to the button of a review page that was loaded in better times."""
    form = {"decision": "approve", "reason": "", **people._hidden(page)}
    return scene.staff.http.post(f"/admin/approvals/approval/{approval_id}/change/", data=form)


def test_processes_started_without_a_database_wait_for_it(scene: Scene, say: Say) -> None:
    parked = scene.parked(scene.orders(1))
    scene.cluster.stop()
    scene.site.kill()
    logs = [scene.site.folder / f"{role}.log" for role in scene.site.roles]
    said = [len(log.read_text()) for log in logs]
    for role in scene.site.roles:
        scene.site.spawn(role)
    waits = ['"tries": 2'] * len(logs)
    assert wait_until(
        lambda: all(w in log.read_text()[n:] for w, log, n in zip(waits, logs, said, strict=True)), STUCK_S
    )
    scene.cluster.start()
    back_at = time.monotonic()
    assert wait_until(lambda: scene.site.answers() and scene.site.consumers().total() == 3, STUCK_S)
    for run_id in parked.values():
        scene.approve(run_id)
    scene.all_finish(parked)
    say(f"started without a database: up and done {time.monotonic() - back_at:.1f} s after")
