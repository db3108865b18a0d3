"""Model turns at their edges: outages, one budget for all routes, inputs that overtake a turn, text none can store."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from runs.contracts import LLMTurnResult, Outcome, Prompt
from runs.errors import ModelRefused, ModelUnavailable
from runs.inference import gateway
from runs.models import Run, Turn
from runs.orchestrator.steps import Handled
from runs.states import On
from tests.between import LONGEST, after_look, due_in_s
from tests.world import World, final, gather, inr, reads, refund, s0, turn

SLOW_S = 0.12


def calls(world: World, *answers: Callable[[], LLMTurnResult]) -> list[tuple[str, float]]:
    """Puts these answers behind the gateway, the last one for ever; returns the (route, timeout) of each call."""
    seen: list[tuple[str, float]] = []

    def complete(route: str, prompt: Prompt, *, timeout_s: float, **more: object) -> LLMTurnResult:
        seen.append((route, timeout_s))
        return answers[min(len(seen), len(answers)) - 1]()

    world.patch.setattr(gateway, "complete", complete)
    return seen


def says(text: str, **fields: Any) -> Callable[[], LLMTurnResult]:
    return lambda: LLMTurnResult(**{"text": text, "model": "m", "raw": text, **fields})


def unavailable(*, after_s: float = 0, retry_after_s: float | None = None) -> Callable[[], LLMTurnResult]:
    def fail() -> LLMTurnResult:
        time.sleep(after_s)
        raise ModelUnavailable("model_unavailable", retry_after_s=retry_after_s)

    return fail


DONE = says('{"final": "Thank you.", "evidence": []}')


# --- outages cost no active time -------------------------------------------------------------------------------


def test_model_timeout_that_parks_the_run_adds_no_active_time(world: World) -> None:
    world.settings(RETRY_S="5")
    calls(world, unavailable(after_s=SLOW_S))
    run = world.start()
    assert (run.status, run.resume_status, run.active_ms, run.model_calls) == ("waiting_dependency", "accepted", 0, 0)


def test_model_timeout_ends_at_the_call_s_own_limit(world: World) -> None:
    world.settings(RETRY_S="5", MODEL_TIMEOUT_S="0.1")
    started = time.monotonic()
    run = world.start(script=[turn(text="{}", delay_s=30)])
    assert (run.status, run.active_ms) == ("waiting_dependency", 0)
    assert world.events(run, "model.failed")[0]["error"] == "model_timeout"
    assert time.monotonic() - started < 5


def test_model_that_is_away_for_hours_leaves_the_deadline_whole(world: World) -> None:
    """Thirty seconds of active time are not spent by a hundred failing calls."""
    world.settings(RETRY_S="0.001")
    calls(world, *[unavailable(after_s=0.02)] * 8, DONE)
    run = world.start(limits={"deadline_ms": 100})
    assert (run.status, run.outcome) == ("completed", "answered")
    assert run.active_ms < 100


def test_outage_of_reads_adds_no_active_time(world: World) -> None:
    world.settings(RETRY_S="5", CALL_TIMEOUT_S="0.15")
    run = world.admit(script=[reads("get_order"), *s0()])
    world.sandbox.fault("GET /v1/orders", "delay:1", times=0)
    run = world.resume(run)
    asked = Turn.objects.get(run=run).took_ms
    assert (run.status, run.waiting_for, run.active_ms) == ("waiting_dependency", "dependency", asked)


def test_outage_at_the_gate_adds_no_active_time(world: World) -> None:
    world.settings(RETRY_S="5")
    run = world.start()
    world.approve(run)
    world.settings(CALL_TIMEOUT_S="0.15")
    world.sandbox.fault("GET /v1/orders", "delay:1", times=0)
    before = run.active_ms
    run = world.resume(run)
    assert (run.status, run.active_ms) == ("waiting_dependency", before)


@pytest.mark.parametrize(("asked_s", "waits_s"), [(7.0, 7.0), (999_999.0, 3600.0), (None, 5.0)])
def test_retry_after_is_heard_and_bounded(world: World, asked_s: float | None, waits_s: float) -> None:
    world.settings(RETRY_S="5")
    calls(world, unavailable(retry_after_s=asked_s))
    run = world.start()
    assert run.status == "waiting_dependency"
    assert waits_s - 3 < due_in_s(run) <= waits_s * LONGEST


# --- one budget for all routes ---------------------------------------------------------------------------------


def routes(world: World, count: int) -> list[str]:
    made = [world.route([final()]) for _ in range(count)]
    world.settings(AGENT_MODELS=",".join(made))
    return made


def started(world: World, names: list[str], **limits: int) -> Run:
    """A run on several routes, driven until it rests."""
    run = world.admit(limits=limits or None)
    world.scripts[str(run.pk)] = ",".join(names)
    return world.resume(run)


def test_call_may_take_no_longer_than_the_active_time_that_is_left(world: World) -> None:
    seen = calls(world, says('{"tool": "get_order", "args": {"order_id": "8472"}}'), DONE)
    run = world.admit(limits={"deadline_ms": 5000})
    Run.objects.filter(pk=run.pk).update(active_ms=2000)
    world.resume(run)
    first, second = (timeout_s for _, timeout_s in seen)
    assert 2.9 < first <= 3.0
    assert 1.0 <= second < first


def test_call_near_the_deadline_still_has_a_second(world: World) -> None:
    seen = calls(world, DONE)
    run = world.admit(limits={"deadline_ms": 5000})
    Run.objects.filter(pk=run.pk).update(active_ms=4999)
    world.resume(run)
    assert [round(timeout_s, 1) for _, timeout_s in seen] == [1.0]


def test_call_takes_no_longer_than_its_own_limit(world: World) -> None:
    world.settings(MODEL_TIMEOUT_S="0.4")
    seen = calls(world, DONE)
    world.start()
    assert [round(timeout_s, 1) for _, timeout_s in seen] == [0.4]


def test_routes_of_one_turn_share_one_budget(world: World) -> None:
    world.settings(MODEL_TIMEOUT_S="5")
    names = routes(world, 3)
    seen = calls(world, unavailable(after_s=SLOW_S), unavailable(after_s=SLOW_S), DONE)
    run = started(world, names)
    assert (run.status, [route for route, _ in seen]) == ("completed", names)
    budgets = [timeout_s for _, timeout_s in seen]
    assert budgets[0] <= 5 and budgets[1] <= 5 - SLOW_S and budgets[2] <= 5 - 2 * SLOW_S
    assert [e["to"] for e in world.events(run, "route.switched")] == names[1:]
    assert Turn.objects.get(run=run).route == names[2]


def test_route_is_not_begun_where_the_budget_is_spent(world: World) -> None:
    world.settings(MODEL_TIMEOUT_S="1.1", RETRY_S="5")
    names = routes(world, 3)
    seen = calls(world, unavailable(after_s=SLOW_S))
    run = started(world, names)
    assert (run.status, [route for route, _ in seen]) == ("waiting_dependency", names[:1])
    assert world.events(run, "route.switched") == []


def test_route_that_refuses_is_followed_by_the_next(world: World) -> None:
    def refuse() -> LLMTurnResult:
        raise ModelRefused("model_refused")

    names = routes(world, 2)
    calls(world, refuse, DONE)
    assert started(world, names).status == "completed"


# --- an input that overtakes a turn ----------------------------------------------------------------------------


def ends(handled: Handled) -> bool:
    return isinstance(handled, Outcome) and handled.on in (On.REPLY_SENT, On.ESCALATED)


@pytest.mark.parametrize(("kind", "status", "said"), [("message", "completed", 2), ("cancel", "cancelled", 1)])
def test_turn_that_an_input_overtakes_is_counted_and_its_reply_never_sent(
    world: World, kind: str, status: str, said: int
) -> None:
    run = world.admit(script=[*gather(), final("Thank you."), final("Have a nice day.")])
    after_look(world, lambda: world.leave(run, kind, "And another thing."), ends)
    run = world.resume(run)
    assert (run.status, run.model_calls) == (status, 2 + said)
    assert [t.number for t in Turn.objects.filter(run=run)] == list(range(1, 3 + said))
    third = Turn.objects.get(run=run, number=3)
    assert (third.error, third.final, third.raw) == (
        {"error": "overtaken_by_input"}, None, '{"final": "Thank you.", "evidence": []}',
    )  # fmt: skip
    tokens = Turn.objects.filter(run=run).values_list("input_tokens", "output_tokens")
    assert [run.input_tokens, run.output_tokens] == [sum(column) for column in zip(*tokens, strict=True)]
    assert third.output_tokens > 0
    assert len(world.events(run, "model.replied")) == 2 + said
    sent = [e["text"] for e in world.events(run, "reply.sent")]
    assert sent == ([] if kind == "cancel" else [run.reply])
    assert [("Have a nice day." in text, "Thank you." in text) for text in sent] == [(True, False)] * len(sent)


def test_exhausted_turn_that_a_message_overtakes_is_counted_and_ends_nothing(world: World) -> None:
    bad = turn(text="no JSON at all")
    run = world.admit(script=[bad, bad, bad, final()])
    after_look(world, lambda: world.message(run, "Hello?"), ends)
    run = world.resume(run)
    assert (run.status, run.outcome, run.model_calls) == ("completed", "answered", 4)
    assert Turn.objects.get(run=run, number=3).error == {"error": "overtaken_by_input"}
    assert world.events(run, "notice") == []


# --- text that one database takes and another does not ------------------------------------------------------------

ODD = {
    "nul": ('{"final": "a\x00b"}', "forbidden_characters", '{"final": "a\\u0000b"}'),
    "surrogate": ('{"final": "a\ud800b"}', "forbidden_characters", '{"final": "a\\ud800b"}'),
    "written out": ('{"final": "a\\u0000b"}', "forbidden_characters", '{"final": "a\\u0000b"}'),
    "a pair cut in two": ('{"final": "\\ud83d"}', "forbidden_characters", '{"final": "\\ud83d"}'),
    "controls": ("\x1b[2J\x07", "invalid_json", "\\u001b[2J\\u0007"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "slug", "raw"), ODD.values(), ids=ODD)
def test_turn_of_characters_no_database_takes_is_stored_and_repaired(
    world: World, text: str, slug: str, raw: str
) -> None:
    calls(world, says(text), DONE)
    run = world.start()
    assert (run.status, run.model_calls) == ("completed", 2)
    first = Turn.objects.get(run=run, number=1)
    assert (first.raw, (first.error or {})["error"]) == (raw, slug)
    assert [e["error"] for e in world.errors(run)] == [slug]


def test_odd_and_over_long_names_of_models_and_reasons_are_stored_cut(world: World) -> None:
    calls(
        world, says("nothing", model="m\x00\ud800" + "m" * 500, finish_reason="\x00" + "r" * 100),
        says('{"final": "Thank you."}', model="n" * 1000, finish_reason="stop" * 30),
    )  # fmt: skip
    run = world.start()
    assert (run.status, run.model_calls) == ("completed", 2)
    first, second = Turn.objects.filter(run=run).order_by("number")
    assert first.answered_model == ("m\\u0000\\ud800" + "m" * 500)[:200]
    assert first.finish_reason == ("\\u0000" + "r" * 100)[:32]
    assert (second.answered_model, second.finish_reason) == ("n" * 200, ("stop" * 30)[:32])
    assert run.versions["model"] == "n" * 200


# --- the same target again ----------------------------------------------------------------------------------------


def test_proposals_for_a_refunded_payment_are_bounded_and_the_run_completes_with_the_facts(world: World) -> None:
    run = world.start(script=[*gather(), refund()])
    world.approve(run)
    run = world.resume(run)
    assert (run.status, run.outcome, run.model_calls) == ("completed", "refunded", 6)
    assert (world.rules(run), len(world.posts())) == (["write_already_made"] * 3, 1)
    [made] = world.refunds()
    assert f"has been made and confirmed; its reference is {made['refund_id']}" in str(run.reply)


def test_further_proposals_that_fail_otherwise_are_bounded_too(world: World) -> None:
    run = world.start(script=[*gather(), refund(), refund("pay_9001", "9000.00")])
    world.approve(run)
    run = world.resume(run)
    assert (run.status, run.outcome, run.model_calls) == ("completed", "refunded", 6)
    assert (world.rules(run), len(world.posts())) == (["nothing_refundable"] * 3, 1)


def test_further_refund_after_a_denied_one_is_still_possible(world: World) -> None:
    world.seed(amount_due=inr("0.00"))
    script = [*gather(), refund("pay_9001", "400.00"), refund("pay_9001", "400.00"), refund("pay_9002", "400.00")]
    run = world.start(script=[*script, final()])
    assert (run.status, run.outcome, world.rules(run)) == ("completed", "refunded", ["write_already_made"])
    assert [p for p, _, _ in world.posts()] == ["pay_9001", "pay_9002"]
