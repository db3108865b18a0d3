"""A model call under way is cut by what a door leaves for its run, and staff can watch what it says (M21, M97)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import connections

from runs.models import Draft, Event, Run, Turn
from tests.integration.test_dialect_runs import admit, nothing_moved, reach
from tests.models.server import Fault, ModelServer
from tests.models.speaking import ANTHROPIC, OPENAI, PROVIDERS, Said
from tests.world import World

LONG = Said(text="word " * 1500)
STUCK_S = 30


def talks_on(server: ModelServer) -> ModelServer:
    """The first answer streams for over a minute; every further one is the investigator's."""
    thinks, answers = server.mind, iter([LONG])
    server.mind = lambda body: next(answers, None) or thinks(body)
    server.faults = [Fault(every_s=0.05)]
    return server


@contextmanager
def meanwhile(server: ModelServer, act: Callable[[], object]) -> Iterator[None]:
    """`act` happens once the server was asked."""

    def wait_and_act() -> None:
        while not server.requests:
            time.sleep(0.01)
        try:
            act()
        finally:
            connections.close_all()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    try:
        yield
    finally:
        thread.join(STUCK_S)
    assert not thread.is_alive()


def failures(run: Run) -> list[str]:
    return [e.meta["error"] for e in Event.objects.filter(run=run, type="model.failed").order_by("seq")]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_message_cuts_the_call_under_way_and_is_in_the_next_prompt(world: World, provider: str) -> None:
    started = time.monotonic()
    with ModelServer(provider) as server, ModelServer(ANTHROPIC) as other:
        reach(world, talks_on(server), *([other] if provider == OPENAI else []))
        run = admit(world)
        with meanwhile(server, lambda: world.message(run, "It is about the second charge only.")):
            run = world.resume(run, until="awaiting_approval", limit_s=STUCK_S)
        assert other.requests == []  # what was cut is no outage: the route stays
        first, second = (str(r.body) for r in server.requests[:2])
    assert "It is about the second charge only." not in first and "It is about the second charge only." in second
    assert (failures(run), Event.objects.filter(run=run, type="route.switched").count()) == (["interrupted"], 0)
    assert Turn.objects.filter(run=run, number=1).values_list("raw", flat=True)[0].find("word word") == -1
    assert time.monotonic() - started < STUCK_S, "a stream of over a minute was read to its end"
    assert (run.model_calls, len(server.requests)) == (3, 4)
    assert run.output_tokens > 3 * 20, "what had come of the cut call is counted"
    nothing_moved(world)


def test_cancel_cuts_the_call_under_way(world: World) -> None:
    with ModelServer(OPENAI) as server:
        reach(world, talks_on(server))
        run = admit(world)
        with meanwhile(server, lambda: world.cancel(run)):
            run = world.resume(run, until="cancelled", limit_s=STUCK_S)
        assert (len(server.requests), failures(run), run.reason) == (1, ["interrupted"], "cancelled_by_client")
    nothing_moved(world)


def test_script_is_cut_in_its_delay(world: World) -> None:
    run = world.admit(script=[{"turn": {"say": {"final": "Thank you."}, "delay_s": 60}}])

    def cancel() -> None:
        world.cancel(run)
        connections.close_all()

    at = threading.Timer(0.3, cancel)
    at.start()
    run = world.resume(run, until="cancelled", limit_s=STUCK_S)
    at.join()
    assert failures(run) == ["interrupted"]


def test_what_a_call_says_so_far_can_be_watched_and_is_gone_with_it(world: World) -> None:
    seen: list[str] = []

    def watch(run: Run) -> None:
        while not (drafts := Draft.objects.filter(run=run).values_list("text", "route")):
            time.sleep(0.05)
        seen.extend(drafts[0])
        world.cancel(run)

    with ModelServer(OPENAI) as server:
        reach(world, talks_on(server))
        run = admit(world)
        with meanwhile(server, lambda: watch(run)):
            world.resume(run, until="cancelled", limit_s=STUCK_S)
    assert seen[0].startswith("word word ") and seen[1] == "openai:m-2026"
    deadline = time.monotonic() + STUCK_S
    while Draft.objects.filter(run=run).exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
