"""SIGKILL at every seam of a run, four kinds of provider at once: one refund and `completed`, or the truth later.

No hook in production code: the provider, the wire, a lock or the model holds the process still, and it is killed there.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest

from agentsite.private.processes import children, wait_until
from tests.crash.seams.holds import HELD_S, Hold
from tests.crash.seams.providers import HONOURS, PROVIDERS, Provider
from tests.crash.seams.stage import EXPIRY, Stage
from tests.crash.seams.table import ADMIT, EXPIRE, NOT_THERE, SEAMS, Seam
from tests.figures import SEAM
from tests.system.business import Business
from tests.system.people import ENDED, Json
from tests.system.site import Ground

pytestmark = [pytest.mark.own_services, pytest.mark.timeout(180)]
Note = Callable[..., None]

# Round the write the provider stays away for longer than `reconcile_for`, so that nobody can know in time.
AWAY_S, LONG_AWAY_S, END_S, SETTLED_S = 3.0, 15.0, 75.0, 30.0
AWAKE_S = 4.0
"""Longer than a write's whole timeout: whoever wakes and means to send has done it."""
STILL_S = 0.15
"""Held means held: a call that only passes by is gone after this."""
CLOSED = ("confirmed", "not_sent")


@dataclass(kw_only=True)
class Play:
    """One seam on one stage: an order a tenant, one kill."""

    stage: Stage
    seam: Seam
    number: int
    killed_at: float = 0
    ended_after: dict[str, float] = field(default_factory=dict)

    @property
    def orders(self) -> dict[str, str]:
        """Order ids by provider."""
        return {p.name: f"s{self.number}-{p.name}" for p in PROVIDERS}

    @property
    def requests(self) -> list[str]:
        return [f"req-{order}" for order in self.orders.values()]

    def run(self) -> None:
        hold = self.seam.hold()
        for name, business in self.stage.businesses.items():
            business.control("/_faults", clear=True)
            business.control("/_calls", clear=True)  # those of an earlier seam may hang for ever
            business.seed_double_charges(self.orders[name])
        try:
            self._go_to(hold)
            self._kill()
        finally:
            hold.release(self.stage)
        self._provider_goes_away()
        if self.seam.kills == "web":
            assert wait_until(self.stage.site.answers, 30)

    def _go_to(self, hold: Hold) -> None:
        """Every run comes to the seam and is held there."""
        if self.seam.when == ADMIT:
            hold.arm(self.stage)
            self._admit()
        else:
            self._admit()
            asked = self._until_asked()
            hold.arm(self.stage)
            for approval in asked:
                self.stage.decide(approval)
        held = wait_until(lambda: self._is_held(hold) and _a_moment() and self._is_held(hold), HELD_S)
        assert held, f"held {hold.held(self.stage, self.requests)}: {self.stage.statuses(self.requests)}"

    def _is_held(self, hold: Hold) -> bool:
        return hold.held(self.stage, self.requests) >= self.seam.hits

    def _admit(self) -> None:
        for provider in PROVIDERS:
            self.stage.admit(provider.tenant, self.orders[provider.name])

    def _until_asked(self) -> list[Json]:
        orders = list(self.orders.values())
        assert wait_until(lambda: len(self.stage.pending(orders)) == len(orders), 30), self.stage.site.tails()
        return self.stage.pending(orders)

    def _kill(self) -> None:
        site, kills = self.stage.site, self.seam.kills
        if kills in ("web", "worker"):
            role = "web" if kills == "web" else "worker1"
            site.kill(role)
            site.spawn(role)
        else:
            site.kill_child(kills)
        self.killed_at = time.monotonic()

    def _provider_goes_away(self) -> None:
        for provider in PROVIDERS:
            if provider.away:
                self.stage.businesses[provider.name].fault("GET /v1", "status:503", times=0)

    # --- to the end ---

    def until_all_end(self) -> dict[str, Json]:
        """Customers ask again, staff approves what is asked; the runs, by provider."""
        found: dict[str, Json] = {}
        while len(found) < len(PROVIDERS):
            for provider in PROVIDERS:
                if provider.name not in found and (run := self._ended(provider)) is not None:
                    found[provider.name] = run
            for approval in self.stage.pending(list(self.orders.values())):
                self.stage.decide(approval).result()
            assert time.monotonic() - self.killed_at < END_S, self._told(found)
            time.sleep(0.3)
        return found

    def _ended(self, provider: Provider) -> Json | None:
        answer = self.stage.admit(provider.tenant, self.orders[provider.name]).result()
        assert answer.status_code in (200, 202), answer.text
        run: Json = answer.json()
        ended, waited_s = run["status"] in ENDED, time.monotonic() - self.killed_at
        if provider.away and (ended or waited_s > (LONG_AWAY_S if self.seam.write else AWAY_S)):
            self.stage.businesses[provider.name].control("/_faults", clear=True)
        if not ended:
            return None
        self.ended_after[provider.name] = waited_s
        return run

    def _told(self, found: dict[str, Json]) -> str:
        late = [p for p in PROVIDERS if p.name not in found]
        texts = []
        for provider in late:
            client = self.stage.clients[provider.tenant]
            run_id = self.stage.admit(provider.tenant, self.orders[provider.name]).result().json()["run_id"]
            texts.append(client.told(run_id, f"{provider.name} did not end"))
        return "\n".join(texts)


def _a_moment() -> bool:
    time.sleep(STILL_S)
    return True


def right(play: Play, provider: Provider, run: Json) -> str:
    """What the cell gave, in words; asserts that it is one of the right ends."""
    business, order = play.stage.businesses[provider.name], play.orders[provider.name]
    made, posts = business.made_on(order), _posts(business, order)
    told = play.stage.clients[provider.tenant].told(run["run_id"], provider.name)
    assert len(made) <= 1, f"paid twice\n{told}"
    assert len({post["idempotency_key"] for post in posts}) <= 1, told
    if provider.name != "honours":
        assert len(posts) <= 1, f"asked twice of a provider that keeps no key\n{told}"
    if run["status"] == "completed":
        assert (len(made), run["outcome"], run["verification"]["passed"]) == (1, "refunded", True), told
        assert [write["state"] for write in run["writes"]] == ["confirmed"], told
        return "one refund, completed"
    assert provider.away and play.seam.write, told
    if run["reason"] == "needs_a_person":
        assert (made, posts, [write["state"] for write in run["writes"]]) == ([], [], ["not_sent"]), told
        return "never sent, handed to a person"
    assert (run["status"], run["reason"]) == ("escalated", "outcome_unknown"), told
    return f"outcome_unknown; then {settled(play, run)} by its timer"


def settled(play: Play, run: Json) -> str:
    """The write's own timer, its hours turned by the test's hand, closes the write by what the provider says."""
    client, stage = play.stage.clients["t_away"], play.stage
    business, order = stage.businesses["away"], play.orders["away"]
    (key,) = [write["key"] for write in run["writes"]]
    until = time.monotonic() + SETTLED_S
    while (state := client.run(run["run_id"])["writes"][0]["state"]) not in CLOSED:
        assert time.monotonic() < until, client.told(run["run_id"], "the timer did not settle it")
        stage.execute(f"UPDATE runs_write SET look_at = intent_at WHERE key = '{key}' AND look_at IS NOT NULL")
        time.sleep(0.7)
    made = business.made_on(order)
    assert state == ("confirmed" if made else "not_sent")
    late = client.run(run["run_id"])
    assert (late["status"], late["outcome"]) == ("escalated", "refunded" if made else run["outcome"])
    assert len(_posts(business, order)) <= 1
    return str(state)


def _posts(business: Business, order: str) -> list[Json]:
    return [post for post in business.posts() if (post["body"] or {}).get("order_id") == order]


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(request.param, ground, tmp_path_factory.mktemp(f"seams-{request.param}"))
    try:
        yield made
    finally:
        made.close()


def _numbers(*, brief: bool) -> list[object]:
    return [
        pytest.param(number, id=seam.name.replace(" ", "_"))
        for number, seam in enumerate(SEAMS)
        if (seam.brief and "P" in seam.only_on) or not brief
    ]


@pytest.fixture
def note(request: pytest.FixtureRequest, stage: Stage) -> Note:
    """Leaves one cell of the table that is printed at the end."""

    def cell(seam: Seam, provider: Provider, gave: str, took_s: float | None = None) -> None:
        found = {"setup": stage.setup, "seam": seam.name, "provider": provider.name, "gave": gave, "took_s": took_s}
        request.node.user_properties.append((SEAM, found))

    return cell


def at_seam(stage: Stage, number: int, note: Note) -> None:
    seam = SEAMS[number]
    if stage.setup not in seam.only_on:
        for provider in PROVIDERS:
            note(seam, provider, f"n/a: {NOT_THERE[stage.setup]}")
        return
    if seam.when == EXPIRE:
        at_expiry(stage, seam, number, note)
        return
    play = Play(stage=stage, seam=seam, number=number)
    play.run()
    for name, run in play.until_all_end().items():
        provider = next(p for p in PROVIDERS if p.name == name)
        note(seam, provider, right(play, provider, run), play.ended_after[name])


def at_expiry(stage: Stage, seam: Seam, number: int, note: Note) -> None:
    """An approval runs out, and who notes it dies: it is noted all the same, and nothing was refunded."""
    order, business, hold = f"s{number}-expiry", stage.businesses["honours"], seam.hold()
    business.seed_double_charges(order)
    hold.arm(stage)
    stage.admit(EXPIRY, order).result()
    assert wait_until(lambda: hold.held(stage, [f"req-{order}"]) >= 1, HELD_S)
    stage.site.kill_child(seam.kills)
    killed_at = time.monotonic()
    hold.release(stage)
    expired = wait_until(lambda: stage.statuses([f"req-{order}"]) == {f"req-{order}": "approval_expired"}, 30)
    assert expired, stage.site.tails()
    assert (_posts(business, order), business.made_on(order)) == ([], [])
    note(seam, HONOURS, "expired, nothing refunded", time.monotonic() - killed_at)
    for provider in PROVIDERS[1:]:
        note(seam, provider, "n/a: an expiry asks no provider")


class Frozen(Play):
    """Nobody dies: the process stops in the middle, and wakes when others have finished its work."""

    def _kill(self) -> None:
        child = self.stage.site.child(self.seam.kills)
        assert child is not None
        self.asleep = [child, *children(child)]
        self._signal(signal.SIGSTOP)
        self.stage.site.spawn("worker2")
        self.killed_at = time.monotonic()

    def wake(self) -> None:
        self._signal(signal.SIGCONT)
        time.sleep(AWAKE_S)
        self.stage.site.kill("worker2")

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.asleep:
            os.kill(pid, number)

    def refunds(self) -> dict[str, tuple[int, int]]:
        """(requests, refunds) of each provider."""
        businesses = self.stage.businesses
        return {
            name: (len(_posts(businesses[name], order)), len(businesses[name].made_on(order)))
            for name, order in self.orders.items()
        }


ONE_STAGE = [pytest.param(setup, marks=pytest.mark.xdist_group(f"seams-{setup}")) for setup in "PS"]


@pytest.mark.parametrize("number", _numbers(brief=True))
@pytest.mark.parametrize("stage", ONE_STAGE[:1], indirect=True)
def test_kill_at_a_seam_pays_once(stage: Stage, number: int, note: Note) -> None:
    at_seam(stage, number, note)


@pytest.mark.long
@pytest.mark.parametrize("number", _numbers(brief=False))
@pytest.mark.parametrize("stage", ONE_STAGE, indirect=True)
def test_kill_at_every_seam_pays_once(stage: Stage, number: int, note: Note) -> None:
    at_seam(stage, number, note)


FREEZES = ["mark of the sending, after its commit", pytest.param("answer of the POST", marks=pytest.mark.long)]


@pytest.mark.parametrize("name", FREEZES)
@pytest.mark.parametrize("stage", ONE_STAGE[:1], indirect=True)
def test_frozen_process_that_wakes_after_others_finished_sends_nothing(stage: Stage, name: str, note: Note) -> None:
    """Its lease has lapsed and its time to send is over by its own clock: it is fenced out, nothing is paid twice."""
    (seam,) = [one for one in SEAMS if one.name == name]
    frozen = Frozen(stage=stage, seam=seam, number=100 + SEAMS.index(seam))
    try:
        frozen.run()
        for provider_name, run in frozen.until_all_end().items():
            provider = next(p for p in PROVIDERS if p.name == provider_name)
            gave = right(frozen, provider, run)
            note(replace(seam, name=f"{name}, frozen"), provider, gave, frozen.ended_after[provider_name])
        before = frozen.refunds()
    finally:
        frozen.wake()
    assert frozen.refunds() == before, stage.site.tails()
