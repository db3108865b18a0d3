"""Regression cases MI, and B79's counts, over each dialect, JSON and streamed. Named by their ids in the list.

No case here refunds anything that is not owed: each one ends without a refund, or with the one of order 8472.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from agentsite import dbtime
from approvals.models import Approval
from runs import orchestrator, store
from runs.contracts import Outcome
from runs.models import Run
from tests.between import due_in_s
from tests.breakers import time_goes_by
from tests.conftest import Say
from tests.integration.test_dialect_runs import admit, finish, nothing_moved, reached
from tests.models import odd
from tests.models.kinds import TYPES
from tests.models.odd import Call, Odd
from tests.models.server import Fault, ModelServer, limited, prompt_in, scripted
from tests.models.speaking import ANTHROPIC, ANTHROPIC_XML, OPENAI, PROVIDERS, Json, Said
from tests.world import World

WAYS = [pytest.param(p, s, id=f"{p}-{'streamed' if s else 'json'}") for p in PROVIDERS for s in (False, True)]
STREAMS = [pytest.param(p, True, id=f"{p}-streamed") for p in PROVIDERS]
every_way = pytest.mark.parametrize(("provider", "streamed"), WAYS)
TWENTY = {
    "order_id": "8472", "payment_id": "pay_9002", "amount": {"amount": "20.00", "currency": "INR"},
    "reason": "duplicate_capture",
}  # fmt: skip
NONE = "No refund has been issued for this request."
PERSON = "specialist"


def proposes(said: Said) -> bool:
    """Whether a turn proposes the write, in whatever dialect."""
    return any(name == "issue_refund" for _, name, _ in said.calls) or '"tool": "issue_refund"' in (said.text or "")


def called(provider: str, tool: str, args: Json, **more: Any) -> Said:
    """One call as a model of this dialect makes it."""
    if provider == ANTHROPIC_XML:
        return Said(text=json.dumps({"tool": tool, "args": args, "evidence": []}, ensure_ascii=False), **more)
    return Said(calls=(("c9", tool, json.dumps(args)),), **{"finish": "tool_calls", **more})


@contextmanager
def instead(server: ModelServer, *turns: Said, of: Callable[[Said], bool]) -> Iterator[None]:
    """The first turns that `of` is true of are these instead."""
    thinks, left = server.mind, list(turns)

    def think(body: Json) -> Said:
        said = thinks(body)
        return left.pop(0) if left and of(said) else said

    server.mind = think
    yield
    assert left == []


def escalated(world: World, run: Run, server: ModelServer, reason: str, calls: int) -> None:
    """It ended with a person, after so many calls, which were all the requests; nobody was asked and nothing paid."""
    assert (run.status, run.reason, run.model_calls, len(server.requests)) == ("escalated", reason, calls, calls)
    assert (run.reply, Approval.objects.count()) == (None, 0)
    assert NONE in world.said(run) and PERSON in world.said(run)
    nothing_moved(world)


# --- B45: cut by length, and it parses ---------------------------------------------------------------------------


@every_way
def test_b45_a_proposal_cut_by_length_reaches_no_gate_and_is_asked_for_again(
    world: World, provider: str, streamed: bool
) -> None:
    cut = called(provider, "issue_refund", TWENTY, finish="length")
    with reached(world, provider, streamed=streamed) as server, instead(server, cut, of=proposes):
        run = finish(world, admit(world))
    assert (run.model_calls, [e["error"] for e in world.errors(run)]) == (5, ["cut_by_length"])
    assert [a.amount_minor for a in Approval.objects.all()] == [200_000]
    assert len(world.events(run, "gate.decided")) == 1


@every_way
def test_b45_a_model_that_is_always_cut_ends_with_a_person(world: World, provider: str, streamed: bool) -> None:
    cut = called(provider, "issue_refund", TWENTY, finish="length")
    with reached(world, provider, streamed=streamed, mind=scripted(provider, [cut])) as server:
        run = world.resume(admit(world))
        escalated(world, run, server, "repair_exhausted", 3)
    assert [e["repairs"] for e in world.events(run, "model.invalid")] == [1, 2, 3]
    assert world.events(run, "gate.decided") == []


@pytest.mark.parametrize(("provider", "mode"), [(OPENAI, "json"), (OPENAI, "sse"), (ANTHROPIC, "sse")])
def test_b45_arguments_that_do_not_parse_are_never_an_empty_object(world: World, provider: str, mode: str) -> None:
    broken = Odd(calls=(Call(name='"search_policy"', args='{"query": "duplicate', evidence=None),))
    body = odd.whole(provider, broken) if mode == "json" else odd.stream(odd.events(provider, broken))
    with reached(world, provider, streamed=mode == "sse") as server:
        server.faults = [Fault(raw=body, kind=TYPES[mode])]
        run = finish(world, admit(world))
    assert [e["error"] for e in world.errors(run)] == ["invalid_json"]
    assert (run.model_calls, run.observations.filter(call_id__startswith="m1.").count()) == (5, 0)


# --- B47: tools that are not there ---------------------------------------------------------------------------------

NAMES = ("issue_refunds", "Issue_Refund", "functions.issue_refund", "issue_refund\u200b", "get_orders", "")
SHOWN = ["get_order", "get_payments", "get_refund_status", "search_policy", "issue_refund"]


@every_way
def test_b47_a_tool_that_is_not_there_is_told_with_those_that_are_and_the_run_lives(
    world: World, provider: str, streamed: bool
) -> None:
    """Two mistakes, a good turn, two mistakes, a good turn: twelve calls would be too many, ten are not."""
    wrong = [called(provider, name, TWENTY) for name in NAMES]
    with reached(world, provider, streamed=streamed) as server:
        thinks, count = server.mind, iter(range(99))
        server.mind = lambda body: wrong.pop(0) if next(count) % 3 < 2 and wrong else thinks(body)
        run = finish(world, admit(world))
    errors = world.errors(run)
    assert (run.model_calls, [e["error"] for e in errors]) == (10, ["unknown_tool"] * 6)
    assert {json.dumps(e["known"][: len(SHOWN)]) for e in errors} == {json.dumps(SHOWN)}
    assert [e["tool"] for e in errors] == [n.replace("\u200b", "\\u200b") for n in NAMES]


@every_way
def test_b47_the_same_mistake_again_and_again_ends_with_a_person(world: World, provider: str, streamed: bool) -> None:
    wrong = called(provider, "issue_refund\u200b", TWENTY)
    with reached(world, provider, streamed=streamed, mind=scripted(provider, [wrong])) as server:
        run = world.resume(admit(world))
        escalated(world, run, server, "repair_exhausted", 2)


# --- B48: nothing said ---------------------------------------------------------------------------------------------

NOTHING = {
    "a call and none": lambda p: Said(text="[]" if p == ANTHROPIC_XML else None, finish="tool_calls"),
    "blank": lambda p: Said(text=" \n\t "),
    "without width": lambda p: Said(text="\u200b\ufeff"),
}


@pytest.mark.parametrize("said", NOTHING)
@every_way
def test_b48_a_model_that_says_nothing_is_reminded_twice_and_the_customer_told_the_truth(
    world: World, provider: str, streamed: bool, said: str
) -> None:
    mind = scripted(provider, [NOTHING[said](provider)])
    with reached(world, provider, streamed=streamed, mind=mind) as server:
        run = world.resume(admit(world))
        escalated(world, run, server, "no_usable_output", 3)
    assert len(world.events(run, "reminder")) <= 2 and len(world.events(run, "model.invalid")) == 3


# --- B50: a stream without its end -----------------------------------------------------------------------------------

HALF = "Your refund of 2,000 has been is"


@every_way
def test_b50_a_reply_that_was_cut_is_never_sent_and_the_facts_are_told_instead(
    world: World, provider: str, streamed: bool
) -> None:
    draft = json.dumps({"final": HALF, "evidence": []}) if provider == ANTHROPIC_XML else HALF
    with reached(world, provider, streamed=streamed, variables={"MODEL_TRIES": "4", "RETRY_S": "0.001"}) as server:
        run = world.resume(admit(world))
        world.approve(run)
        asked, server.mind, server.always = len(server.requests), scripted(provider, [Said(text=draft)]), Fault(cut=0.8)
        run = world.resume(run, until="completed")
        further = len(server.requests) - asked
    [made] = world.refunds()
    assert (run.outcome, len(world.posts()), 1 <= further <= 4) == ("refunded", 1, True)
    assert made["refund_id"] in str(run.reply) and "has been made and confirmed" in str(run.reply)
    sent = world.events(run, "reply.sent")
    assert len(sent) == 1 and "has been is" not in json.dumps([run.reply, sent, world.said(run)])


@every_way
def test_b50_a_proposal_that_was_cut_is_no_proposal(world: World, provider: str, streamed: bool) -> None:
    with reached(world, provider, streamed=streamed, variables={"MODEL_TRIES": "3", "RETRY_S": "0.001"}) as server:
        server.faults = [Fault(), Fault(), *[Fault(cut=0.8)] * 9]
        run = world.resume(admit(world), until="escalated")
    assert (run.reason, run.model_calls, len(server.requests)) == ("dependency_unavailable", 2, 5)
    assert (Approval.objects.count(), world.events(run, "gate.decided")) == (0, [])
    assert NONE in world.said(run)
    nothing_moved(world)


# --- B51: each call has one result -----------------------------------------------------------------------------------


@every_way
def test_b51_a_rejected_proposal_is_answered_once_and_the_run_goes_on_to_its_end(
    world: World, provider: str, streamed: bool
) -> None:
    """The server answers 400 to a call without its result, or a result without its call: `reached` asserts none."""
    with reached(world, provider, streamed=streamed) as server:
        run = world.resume(admit(world))
        world.reject(run, "the courier says otherwise")
        run = world.resume(run)
        told = prompt_in(server.requests[3].body)
    assert (run.status, run.outcome, len(server.requests)) == ("completed", "rejected", 4)
    assert json.dumps([m.content for m in told.messages]).count("the courier says otherwise") == 1
    assert NONE in world.said(run)
    nothing_moved(world)


@pytest.mark.parametrize(("provider", "streamed"), STREAMS)
def test_b51_a_worker_that_dies_between_calls_and_results_leaves_none_without_the_other(
    world: World, provider: str, streamed: bool
) -> None:
    with reached(world, provider, streamed=streamed) as server:
        run = admit(world)
        dies_after_the_first_answer(run, server)
        run = finish(world, run)
    assert (run.model_calls, len(server.requests), world.errors(run)) == (4, 4, [])


def dies_after_the_first_answer(run: Run, server: ModelServer) -> None:
    """The proposals are saved, no observation is; the lease runs out unrenewed."""
    claimed = store.claim(str(run.pk))
    assert claimed is not None
    while not server.requests:
        state = store.load(str(run.pk), claimed.token)
        handled = orchestrator.step(state)
        assert isinstance(handled, Outcome)
        store.checkpoint(state, handled, keep=True)
    assert run.observations.exclude(call_id="").count() == 0
    Run.objects.filter(pk=run.pk).update(lease_until=dbtime.now() - timedelta(seconds=1))


# --- B53: claims that no observation holds ---------------------------------------------------------------------------

CLAIMS = ("Your refund rf_9999 of 2,000 was processed.", "The gateway said: card expired, the refund was declined.")


@pytest.mark.parametrize("claim", CLAIMS, ids=["a refund", "an error"])
@every_way
def test_b53_a_claim_that_no_tool_returned_is_not_sent_and_ends_with_a_person(
    world: World, provider: str, streamed: bool, claim: str
) -> None:
    said = Said(text=json.dumps({"final": claim}) if provider == ANTHROPIC_XML else claim)
    with reached(world, provider, streamed=streamed, mind=scripted(provider, [said])) as server:
        run = world.resume(admit(world))
        escalated(world, run, server, "repair_exhausted", 3)
    assert [e["error"] for e in world.events(run, "model.invalid")] == ["reply_rejected"] * 3
    assert world.events(run, "reply.sent") == []
    assert not {"rf_9999", "expired", "processed"} & set(world.said(run).split())


# --- B79: how many requests ------------------------------------------------------------------------------------------


@every_way
def test_b79_an_endpoint_that_always_says_429_sees_the_configured_number(
    world: World, provider: str, streamed: bool, say: Say
) -> None:
    variables = {"MODEL_TRIES": "4"}
    with reached(world, provider, streamed=streamed, always=limited("7"), variables=variables) as server:
        run = admit(world)
        for seen in (1, 2, 3):
            run = world.resume(run)
            assert (run.status, run.lease_token, len(server.requests)) == ("waiting_dependency", None, seen)
            assert 5 < due_in_s(run) < 14  # of the 7 s some have gone by, and runs told alike come back spread out
            world.later(run, 14)
            time_goes_by(3600)
        run = world.resume(run)
        for _ in range(3):
            world.later(run, 3600)
            assert world.step(run) is None
    assert (run.status, run.reason) == ("escalated", "dependency_unavailable")
    assert (len(server.requests), run.model_calls, len(world.events(run, "model.called"))) == (4, 0, 4)
    say(f"429 for ever with Retry-After 7: {len(server.requests)} requests, MODEL_TRIES 4")
    nothing_moved(world)


@every_way
def test_b79_a_wrong_key_is_one_request(world: World, provider: str, streamed: bool, say: Say) -> None:
    with reached(world, provider, streamed=streamed) as server:
        server.key = "sk-another-key-than-the-site-s"
        run = world.resume(admit(world))
        assert world.step(run) is None
    assert (run.status, run.reason, len(server.requests)) == ("escalated", "dependency_unavailable", 1)
    say(f"a wrong key: {len(server.requests)} request")
    nothing_moved(world)
