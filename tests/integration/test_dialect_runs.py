"""The whole loop over HTTP models: every dialect, JSON and streamed, takes the way the offline model takes; and when a
provider fails, requests are counted, waits are due times, and nothing half said is acted upon."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from django.core.management import call_command

from runs import qualification
from runs.models import Run, Turn
from tests.between import LONGEST, due_in_s
from tests.breakers import time_goes_by
from tests.integration.test_seed_a import PATH
from tests.models.server import KEY as MODEL_KEY
from tests.models.server import Fault, ModelServer, limited, scripted
from tests.models.speaking import ANTHROPIC, ANTHROPIC_XML, OPENAI, PROVIDERS, SAID, Said
from tests.world import KEY, World

ROUTES = {OPENAI: "openai:m-2026", ANTHROPIC: "anthropic:m-2026", ANTHROPIC_XML: "anthropic_xml:m-2026"}
PARKED = {("gathering", "waiting_dependency"), ("waiting_dependency", "gathering")}
ASKED = [f"m{number}" for number in (1, 2, 3, 4)]


def reach(world: World, *servers: ModelServer, **variables: str) -> None:
    """These servers are the site's routes, in this order, and all of them may propose writes."""
    known = {name: value for server in servers for name, value in server.variables().items()}
    routes = [ROUTES[server.provider] for server in servers]
    world.settings(AGENT_MODELS=",".join(routes), BREAKER_FAILURES="1000", **known, **variables)
    for route in routes:
        qualification.qualify(route, agent="refunds", reason="a test", by="tests")


def admit(world: World, **changes: Any) -> Run:
    """A run whose model is the site's, not a script of its own."""
    run = world.admit(**changes)
    world.scripts.pop(str(run.pk))
    return run


@contextmanager
def reached(world: World, provider: str, *, streamed: bool = True, **more: Any) -> Iterator[ModelServer]:
    variables = more.pop("variables", {})
    with ModelServer(provider, **more) as server:
        reach(world, server, MODEL_STREAM=str(int(streamed)), **variables)
        yield server
        assert server.wrong == []


def finish(world: World, run: Run) -> Run:
    """Up to the question, through it, to the end; the one refund that is owed, once."""
    run = world.resume(run)
    assert (run.status, run.waiting_for) == ("awaiting_approval", "approval"), (run.reason, world.errors(run))
    assert world.posts() == []
    world.approve(run)
    run = world.resume(run)
    assert (run.status, run.outcome) == ("completed", "refunded")
    assert world.posts() == [("pay_9002", "2000.00", KEY)]
    parked = [t for t in world.transitions(run) if "waiting_dependency" in t]
    assert [t for t in world.transitions(run) if t not in parked] == PATH
    assert set(parked) <= PARKED
    assert (run.reply or "").endswith("Thank you for your patience. Please write to us again if anything is unclear.")
    return run


def nothing_moved(world: World) -> None:
    assert (world.posts(), world.refunds()) == ([], [])


# --- the same way in every mode ------------------------------------------------------------------------------------


def test_offline_model_takes_the_way_that_every_dialect_takes(world: World) -> None:
    world.settings(AGENT_MODELS="offline:investigator")
    qualification.ensure_offline()
    run = finish(world, admit(world))
    assert (run.model_calls, world.errors(run)) == (4, [])


@pytest.mark.parametrize("streamed", [False, True], ids=["json", "streamed"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_run_completes_over_a_dialect(world: World, provider: str, streamed: bool) -> None:
    with reached(world, provider, streamed=streamed) as server:
        run = finish(world, admit(world))
    assert (run.model_calls, len(server.requests), world.errors(run)) == (4, 4, [])
    assert [bool(r.body.get("stream")) for r in server.requests] == [streamed] * 4
    turns = list(Turn.objects.filter(run=run).order_by("number"))
    assert {(t.route, t.answered_model) for t in turns} == {(ROUTES[provider], "m-2026")}
    ends = ["stop"] * 4 if provider == ANTHROPIC_XML else ["tool_calls"] * 3 + ["stop"]
    assert [(t.span, t.finish_reason) for t in turns] == list(zip(ASKED, ends, strict=True))
    assert (run.input_tokens, run.output_tokens) == (400, 80)
    assert MODEL_KEY not in json.dumps([t.raw for t in turns])


def test_server_that_streams_not_is_read_whole(world: World) -> None:
    with reached(world, OPENAI, always=Fault(whole=True)) as server:
        run = finish(world, admit(world))
    assert (run.model_calls, len(server.requests)) == (4, 4)


def test_server_that_counts_no_tokens_is_counted_for(world: World) -> None:
    with reached(world, OPENAI) as server:
        thinks = server.mind
        server.mind = lambda body: Said(**{**vars(thinks(body)), "usage": (0, 0, 0)})
        run = finish(world, admit(world))
    assert run.input_tokens > 4 * 500 and 0 < run.output_tokens < 1000


# --- routes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), [(OPENAI, ANTHROPIC), (ANTHROPIC_XML, OPENAI)])
def test_second_route_goes_on_when_the_first_dies_between_two_steps(world: World, first: str, second: str) -> None:
    with ModelServer(first) as dying, ModelServer(second) as living:
        reach(world, dying, living, AGENT_PASSES_PER_TASK="1")
        run = admit(world)
        while len(dying.requests) < 2:
            world.step(run)
        dying.die()
        run = finish(world, run)
    assert (len(dying.requests), len(living.requests), run.model_calls) == (2, 2, 4)
    assert [e["to"] for e in world.events(run, "route.switched")] == [ROUTES[second]] * 2
    assert {e["error"] for e in world.events(run, "model.failed")} <= {"model_unreachable", "model_connection_lost"}
    routes = list(Turn.objects.filter(run=run).order_by("number").values_list("route", flat=True))
    assert routes == [ROUTES[first]] * 2 + [ROUTES[second]] * 2


def test_route_that_answers_under_another_name_proposes_no_write(world: World) -> None:
    with reached(world, OPENAI) as server:
        thinks = server.mind
        server.mind = lambda body: Said(**{**vars(thinks(body)), "model": "m-2027"})
        run = world.resume(admit(world))
    assert (run.status, run.reason) == ("escalated", "route_not_qualified")
    nothing_moved(world)


# --- requests are counted, waits are due times ---------------------------------------------------------------------


@pytest.mark.parametrize(("provider", "dated"), [*((p, False) for p in PROVIDERS), (ANTHROPIC, True)])
def test_endpoint_that_always_says_429_sees_the_configured_number_of_requests(
    world: World, provider: str, dated: bool
) -> None:
    after = format_datetime(datetime.now(UTC) + timedelta(seconds=3600), usegmt=True) if dated else "7"
    with reached(world, provider, always=limited(after), variables={"MODEL_TRIES": "3"}) as server:
        run = admit(world)
        for tries in (1, 2):
            run = world.resume(run)
            assert (run.status, run.waiting_for, run.lease_token) == ("waiting_dependency", "dependency", None)
            assert (3000 if dated else 5) < due_in_s(run) <= (3600 if dated else 7) * LONGEST
            assert world.resume(run).status == "waiting_dependency"  # not due: nothing is asked
            assert len(server.requests) == tries
            world.later(run, 3600 * LONGEST)
            time_goes_by(3600)  # for the breaker, which a named time opens at once
        run = world.resume(run)
        assert (run.status, run.reason) == ("escalated", "dependency_unavailable")
        assert (len(server.requests), run.model_calls, run.active_ms) == (3, 0, 0)
    assert [e["error"] for e in world.events(run, "model.failed")] == ["model_rate_limited"] * 3
    assert len(world.events(run, "model.called")) == 3
    nothing_moved(world)


def test_wrong_key_is_one_request(world: World) -> None:
    with reached(world, OPENAI) as server:
        world.settings(OPENAI_API_KEY="sk-another")
        run = world.resume(admit(world))
    assert (run.status, len(server.requests)) == ("escalated", 1)
    assert [e["error"] for e in world.events(run, "model.failed")] == ["model_key_refused"]
    nothing_moved(world)


REPORTED = b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error"}}\n\n'
OUTAGES = {
    "server_error": (Fault(status=503, body={"error": {"message": "sorry"}}), "model_unavailable"),
    "no_json": (Fault(raw=b"<html>Please sign in</html>"), "not_json"),
    "empty": (Fault(raw=b""), "not_json"),
    "error_under_200": (Fault(body={"error": {"type": "overloaded_error"}}), "model_unavailable"),
    "cut_body": (Fault(cut=0.6, whole=True), "model_connection_lost"),
    "stream_without_its_end": (Fault(cut=0.9), "stream_cut"),
    "empty_stream": (Fault(raw=b"", kind="text/event-stream"), "stream_cut"),
    "error_in_the_stream": (Fault(raw=REPORTED, kind="text/event-stream"), "model_unavailable"),
}  # fmt: skip


@pytest.mark.parametrize("provider", [OPENAI, ANTHROPIC])
def test_answers_that_fail_on_their_way_propose_nothing_and_cost_one_request_each(world: World, provider: str) -> None:
    """The third answer, which is the proposal of the write, fails in every way there is, one after the other."""
    faults, slugs = zip(*OUTAGES.values(), strict=True)
    with reached(world, provider, variables={"RETRY_S": "0.0001"}) as server:
        server.faults = [Fault(), Fault(), *faults]
        run = finish(world, admit(world, limits={"max_model_calls": 4}))
        assert (len(server.requests), run.model_calls) == (4 + len(faults), 4)
    assert [e["error"] for e in world.events(run, "model.failed")] == list(slugs)


@pytest.mark.parametrize("fault", [Fault(pause_s=2), Fault(every_s=0.2)], ids=["silent", "dripping"])
def test_provider_that_hangs_ends_with_the_call_s_own_time(world: World, fault: Fault) -> None:
    with reached(world, OPENAI, variables={"MODEL_TIMEOUT_S": "0.5", "RETRY_S": "60"}) as server:
        server.faults = [fault]
        run = world.resume(admit(world))
        assert (run.status, run.active_ms, len(server.requests)) == ("waiting_dependency", 0, 1)
    assert [e["error"] for e in world.events(run, "model.failed")] == ["model_timeout"]
    nothing_moved(world)


def test_stream_that_falls_silent_ends_before_the_call_s_own_time(world: World) -> None:
    with reached(world, ANTHROPIC, variables={"MODEL_SILENCE_S": "0.3", "RETRY_S": "60"}) as server:
        server.faults = [Fault(every_s=3)]
        run = world.resume(admit(world))
    assert [e["error"] for e in world.events(run, "model.failed")] == ["model_timeout"]
    assert run.status == "waiting_dependency"
    nothing_moved(world)


# --- what the model itself does wrong ------------------------------------------------------------------------------

READ = ("c1", "get_order", '{"order_id": "8472"}')
TWENTY = {"order_id": "8472", "payment_id": "pay_9002", "amount": {"amount": "20.00", "currency": "INR"}}
WRITE = ("c2", "issue_refund", json.dumps({**TWENTY, "reason": "duplicate_capture", "evidence": []}))
BAD = [
    (OPENAI, "cut_by_length", Said(calls=(WRITE,), finish="length")),
    (ANTHROPIC, "write_must_stand_alone", Said(calls=(READ, WRITE), finish="tool_calls")),
    (OPENAI, "no_usable_output", Said(text="I shall call a tool.", finish="tool_calls")),
]


@pytest.mark.parametrize(("provider", "slug", "said"), BAD)
def test_bad_turns_of_a_native_dialect_are_told_and_bounded(world: World, provider: str, slug: str, said: Said) -> None:
    with reached(world, provider, mind=scripted(provider, [said])) as server:
        run = world.resume(admit(world))
    reason = "no_usable_output" if slug == "no_usable_output" else "repair_exhausted"
    assert (run.status, run.reason, len(server.requests)) == ("escalated", reason, 3)
    told = [o.content for o in run.observations.exclude(source="search_policy").order_by("position")]
    assert [e["error"] for e in told] == [slug] * 3
    for word in ("choices", "tool_calls", "stop_reason", "tool_use", SAID[ANTHROPIC]["length"]):
        assert word not in json.dumps(told), "the provider's own words reached the model"
    nothing_moved(world)


def test_repaired_turn_counts_and_the_run_goes_on(world: World) -> None:
    with reached(world, OPENAI) as server:
        thinks, turns = server.mind, iter([BAD[0][2]])
        server.mind = lambda body: next(turns, None) or thinks(body)
        run = finish(world, admit(world))
    assert (run.model_calls, [e["error"] for e in world.errors(run)]) == (5, ["cut_by_length"])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_run_over_a_dialect_replays_from_its_record_alone(world: World, provider: str) -> None:
    """With a stream that was cut and an answer that broke its dialect; the provider is gone when it is replayed."""
    broken = Fault(raw=b'{"choices": [], "content": [], "choices": [], "content": []}')
    with reached(world, provider, variables={"RETRY_S": "0.0001"}) as server:
        server.faults = [broken, Fault(cut=0.5), Fault(), Fault()]
        run = finish(world, admit(world))
    assert [e["error"] for e in world.errors(run)] == ["invalid_json"]
    assert [e["error"] for e in world.events(run, "model.failed")] == ["stream_cut"]
    call_command("replay", str(run.pk), stdout=io.StringIO(), stderr=io.StringIO(), skip_checks=True)
