"""What a run did, as the native dialects tell it to a provider that answers 400 to any call without its result and any
result without its call: whatever became of a call, no such request is ever made (B51, M67)."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from agentsite import dbtime
from approvals import queue
from runs import orchestrator, store
from runs.contracts import Outcome
from runs.models import Observation, Run, Turn
from tests.integration.test_dialect_runs import admit, finish, reached
from tests.models import strict
from tests.models.server import ModelServer
from tests.models.speaking import ANTHROPIC, OPENAI
from tests.unit.conversations import flat, pairs
from tests.world import World, inr

Json = dict[str, Any]
ONE_PASS = {"AGENT_PASSES_PER_TASK": "1"}
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.parametrize("provider", [OPENAI, ANTHROPIC])]


def dies_with_its_proposals_saved(world: World, run: Run) -> None:
    """A worker that asks the model, commits the turn, and is killed before anything is done about it."""
    claimed = store.claim(str(run.pk))
    assert claimed is not None, "nothing is due"
    turns = Turn.objects.filter(run=run)
    asked = turns.count()
    while turns.count() == asked:
        state = store.load(str(run.pk), claimed.token)
        handled = orchestrator.step(state)
        assert isinstance(handled, Outcome)
        store.checkpoint(state, handled, keep=True)
    assert turns.get(number=asked + 1).proposals
    Run.objects.filter(pk=run.pk).update(lease_until=dbtime.now() - timedelta(seconds=1))


def told(server: ModelServer) -> list[tuple[str, str]]:
    """The calls of the newest request, each with its result; every request so far was one that a provider takes."""
    assert server.wrong == []
    for request in server.requests:
        assert strict.wrong(server.provider, request.body) == ""
    return pairs(server.provider, server.requests[-1].body)


def test_b51_run_whose_worker_died_with_its_proposals_saved_goes_on_to_its_end(provider: str, world: World) -> None:
    with reached(world, provider, variables=ONE_PASS) as server:
        run = admit(world)
        dies_with_its_proposals_saved(world, run)
        answers = Observation.objects.filter(run=run).exclude(call_id="")
        assert (Turn.objects.filter(run=run).count(), answers.count()) == (1, 0)
        run = finish(world, run)
        assert [call for call, _ in told(server)] == ["m1.1", "m1.2", "m2.1", "m2.2", "m3.1"]
    assert (run.model_calls, len(server.requests)) == (4, 4)


def test_b51_write_whose_worker_died_before_the_gate_is_decided_once(provider: str, world: World) -> None:
    with reached(world, provider, variables=ONE_PASS) as server:
        run = admit(world)
        while Turn.objects.filter(run=run).count() < 2 or len(Observation.objects.filter(run=run)) < 4:
            world.step(run)
        dies_with_its_proposals_saved(world, run)
        assert (world.fresh(run).status, queue.latest(str(run.pk))) == ("action_proposed", None)
        finish(world, run)
        assert told(server)[-1][0] == "m3.1"


def test_b51_rejected_write_has_its_one_result_and_the_run_ends(provider: str, world: World) -> None:
    with reached(world, provider) as server:
        run = world.resume(admit(world))
        assert run.status == "awaiting_approval"
        world.reject(run, "paid out in cash at the counter")
        run = world.resume(run)
        assert (run.status, run.outcome) == ("completed", "rejected")
        *reads, (call, result) = told(server)
        assert ([c for c, _ in reads], call) == (["m1.1", "m1.2", "m2.1", "m2.2"], "m3.1")
        assert ' kind="decision"' in result and "paid out in cash at the counter" in result
    assert (world.posts(), world.refunds()) == ([], [])


def test_write_overtaken_by_a_message_has_its_one_result_and_the_message_stands_beside_it(
    provider: str, world: World
) -> None:
    with reached(world, provider) as server:
        run = world.resume(admit(world))
        world.message(run, "Only the second payment, please.")
        run = world.resume(run)
        assert run.status == "awaiting_approval"
        calls = dict(told(server))
        assert '"error": "superseded"' in calls["m3.1"]
        assert "Only the second payment, please." in json.dumps(server.requests[-1].body)
        assert "Only the second" not in json.dumps(list(calls.values()))
    assert world.posts() == []


def test_next_request_begins_with_the_last_one_up_to_its_snapshot(provider: str, world: World) -> None:
    """M98: what a provider's cache of prefixes can serve, as long as the same tools are shown."""
    with reached(world, provider) as server:
        finish(world, admit(world))
        bodies = [request.body for request in server.requests][:3]
    for before, after in pairwise(bodies):
        assert "".join(flat(after)).startswith(past_of(before))
    assert len({json.dumps([body.get("system"), body["tools"]]) for body in bodies}) == 1


def past_of(body: Json) -> str:
    """All before the snapshot, without the message or block that it began."""
    past = "".join(flat(body)).partition("[5] TASK STATE SNAPSHOT")[0]
    for opening in ('{"type": "text", "text": "\\n', "\n", "\x01user \x02"):
        past = past.removesuffix(opening)
    return past


def test_large_result_is_shown_by_reference_and_the_gate_sees_all_of_it(provider: str, world: World) -> None:
    """M69."""
    world.seed(payments=[failed(n) for n in range(15)])
    with reached(world, provider) as server:
        run = finish(world, admit(world))
        shown = dict(told(server))["m1.2"]
    row = Observation.objects.get(run=run, call_id="m1.2")
    assert len(row.content["payments"]) == 17 and "n" * 300 in row.content["payments"][-1]["note"]
    assert ' form="reference"' in shown and row.content_hash in shown and "nnn" not in shown
    assert shown.count('"payment_id": ') == 17
    [decided] = world.events(run, "gate.decided")
    assert len(decided["facts"]["payments"]) == 17
    assert world.posts() == [("pay_9002", "2000.00", world.posts()[0][2])]


def failed(number: int) -> Json:
    return {
        "payment_id": f"pay_a{number}", "order_id": "8472", "state": "failed", "amount": inr("2000.00"),
        "captured_at": None, "note": "n" * 300,
    }  # fmt: skip
