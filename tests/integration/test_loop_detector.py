"""A model that goes round in circles: reminded in the record and in its prompt, then stopped with the reason (M20)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runs import replay
from runs.models import Observation, Run, Turn
from tests.integration.test_dialect_runs import admit, nothing_moved, reached
from tests.models.server import scripted
from tests.models.speaking import OPENAI, Said
from tests.world import KEY, World, final, gather, reads, refund

ORDER, PAYMENTS, POLICY = reads("get_order"), reads("get_payments"), reads("search_policy")


def reminders(world: World, run: Run) -> list[int]:
    """The length of the row at each reminder."""
    return [e["turns"] for e in world.events(run, "reminder")]


def stopped(world: World, run: Run) -> dict[str, Any]:
    assert (run.status, run.reason, run.outcome) == ("escalated", "loop_detected", "handed_to_staff")
    nothing_moved(world)
    [stop] = world.events(run, "loop.stopped")
    return stop


@pytest.mark.parametrize(
    ("cycle", "calls"), [([ORDER], 5), ([ORDER, PAYMENTS], 6), ([ORDER, PAYMENTS, POLICY], 7)], ids=["A", "AB", "ABC"]
)
def test_round_of_calls_is_reminded_and_then_stopped(world: World, cycle: list[Any], calls: int) -> None:
    run = world.start(script=cycle * 6)
    stop = stopped(world, run)
    assert (run.model_calls, reminders(world, run)) == (calls, [2, 3])
    assert (stop["error"], stop["turns"]) == ("loop_detected", 4)
    shown = [c["tool"] for c in stop["calls"]]
    assert shown == [cycle[(calls - 1) % len(cycle)][0]["tool"]]
    notices = [o.content for o in Observation.objects.filter(run=run, kind="notice").order_by("position")]
    assert [n["turns_in_a_row"] for n in notices if n.get("error") == "nothing_new"] == [2, 3]
    assert replay.play(replay.export(world.fresh(run))).identical


def test_thresholds_are_configuration(world: World) -> None:
    world.settings(LOOP_REMIND_AT="1", LOOP_STOP_AT="2")
    run = world.start(script=[ORDER] * 6)
    stopped(world, run)
    assert (run.model_calls, reminders(world, run)) == (3, [1])


def test_calls_that_differ_in_form_alone_are_the_same(world: World) -> None:
    """Keys in another order and white space between and within: one call, whatever it looks like."""
    queries = ("duplicate capture", " duplicate  capture", "duplicate\u00a0capture", "duplicate capture ")
    forms = [f'{{ "args" :{{"query": "{q}"}},\n\t"tool":"search_policy"  }}' for q in queries]
    run = world.start(script=[{"turn": {"text": form}} for form in [*forms, forms[0]]])
    stopped(world, run)
    assert (run.model_calls, reminders(world, run)) == (5, [2, 3])


def test_reminder_stands_in_the_next_prompt(world: World) -> None:
    call = Said(text=None, calls=(("c1", "get_order", '{"order_id": "8472"}'),), finish="tool_calls")
    with reached(world, OPENAI, mind=scripted(OPENAI, [call])) as server:
        run = world.resume(admit(world))
    stopped(world, run)
    told = ["nothing_new" in json.dumps(r.body) for r in server.requests]
    assert told == [False, False, False, True, True]


def test_model_that_heeds_the_reminder_goes_on(world: World) -> None:
    run = world.start(script=[ORDER, ORDER, ORDER, *gather(), refund(), final()])
    assert (run.status, reminders(world, run)) == ("awaiting_approval", [2])
    assert world.posts() == []


def test_reading_again_after_a_change_of_state_is_no_loop(world: World) -> None:
    run = world.start(script=[*gather(), refund(), *gather(), refund(), *gather(), refund()])
    assert run.status == "awaiting_approval"
    for text in ("Wait.", "And now?"):
        world.message(run, text)
        run = world.resume(run)
    assert reminders(world, run) == [] and world.events(run, "loop.stopped") == []
    assert world.posts() == []


def test_outage_of_a_read_is_no_loop_of_the_model(world: World) -> None:
    world.sandbox.fault("GET /v1/orders/", "status:503", times=3)
    run = world.start(script=[ORDER, PAYMENTS, *gather(), refund(), final()])
    assert (run.status, reminders(world, run)) == ("awaiting_approval", [])
    assert world.posts() == []


def test_circles_after_a_refund_end_with_the_facts(world: World) -> None:
    """What was done is told: no circle of the model hides a refund."""
    run = world.start(script=[*gather(), refund(), *[ORDER] * 6])
    world.approve(run)
    run = world.resume(run)
    assert (run.status, run.outcome) == ("completed", "refunded")
    assert world.posts() == [("pay_9002", "2000.00", KEY)]
    assert reminders(world, run) == [2, 3]


def test_circles_through_turns_that_are_no_proposals_are_seen(world: World) -> None:
    """An invalid turn between two equal reads hides no circle: each alone would be forgiven."""
    run = world.start(script=[ORDER, {"turn": {"text": "hm"}}] * 8)
    stopped(world, run)
    assert Turn.objects.filter(run=run, error=None).count() == 5
