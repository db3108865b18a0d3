"""Routes in their order: who answers counts, every switch is an event, and a route that is not qualified for exactly
what answered reads and drafts, but gets no refund made."""

from __future__ import annotations

import pytest
from django.core.management import call_command

from runs import qualification
from runs.models import Observation, Qualification, Run, Turn
from tests.breakers import time_goes_by
from tests.integration.test_dialect_runs import ROUTES, admit, finish, nothing_moved, reach, reached
from tests.models.server import Fault, ModelServer, limited
from tests.models.speaking import ANTHROPIC, ANTHROPIC_XML, OPENAI, Said
from tests.system.business import captures
from tests.world import World

DOWN = Fault(status=503, body={"error": {"type": "server_error"}})
REFUSES = Fault(status=401, body={"error": {"type": "authentication_error"}})


def answers_as(server: ModelServer, model: str) -> None:
    """From now on the server names this model in its answers."""
    thinks = server.mind
    server.mind = lambda body: Said(**{**vars(thinks(body)), "model": model})


def unqualify(route: str) -> None:
    provider, _, model = route.partition(":")
    Qualification.objects.filter(provider=provider, requested_model=model).update(revoked=True)


def routes_of(run: Run) -> list[str]:
    return list(Turn.objects.filter(run=run).order_by("number").values_list("route", flat=True))


def switches(world: World, run: Run) -> list[str]:
    return [e["to"] for e in world.events(run, "route.switched")]


# --- the order -----------------------------------------------------------------------------------------------------


def test_second_route_answers_only_where_the_first_does_not(world: World) -> None:
    with ModelServer(OPENAI) as first, ModelServer(ANTHROPIC) as second:
        reach(world, first, second)
        first.faults = [Fault(), DOWN, Fault(), Fault()]
        run = finish(world, admit(world))
    assert routes_of(run) == [ROUTES[OPENAI], ROUTES[ANTHROPIC], ROUTES[OPENAI], ROUTES[OPENAI]]
    assert switches(world, run) == [ROUTES[ANTHROPIC]]
    assert (len(first.requests), len(second.requests)) == (4, 1)
    called = [(e["route"], e.get("error")) for e in world.events(run, "model.failed")]
    assert called == [(ROUTES[OPENAI], "model_unavailable")]


def test_route_that_refuses_our_key_is_asked_once_a_turn_and_the_next_one_answers(world: World) -> None:
    with ModelServer(ANTHROPIC, always=REFUSES) as first, ModelServer(OPENAI) as second:
        reach(world, first, second)
        run = finish(world, admit(world))
    assert (len(first.requests), len(second.requests), run.model_calls) == (4, 4, 4)
    assert switches(world, run) == [ROUTES[OPENAI]] * 4


def test_two_routes_that_always_say_429_see_the_configured_number_of_requests_together(world: World) -> None:
    """B79: every request that leaves us counts, whichever route it went to."""
    with ModelServer(OPENAI, always=limited("7")) as first, ModelServer(ANTHROPIC, always=limited("9")) as second:
        reach(world, first, second, MODEL_TRIES="3")
        run = world.resume(admit(world))
        assert (run.status, run.waiting_for, run.lease_token) == ("waiting_dependency", "dependency", None)
        assert (len(first.requests), len(second.requests)) == (1, 1)
        world.later(run, 3600)
        time_goes_by(3600)
        run = world.resume(run)
        assert (run.status, run.reason) == ("escalated", "dependency_unavailable")
        assert (len(first.requests), len(second.requests)) == (2, 1)
    nothing_moved(world)


# --- what a fallback may do ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", [ANTHROPIC, ANTHROPIC_XML])
def test_unqualified_fallback_reads_but_its_write_is_handed_to_a_person(world: World, second: str) -> None:
    with ModelServer(OPENAI, always=DOWN) as down, ModelServer(second) as fallback:
        reach(world, down, fallback)
        unqualify(ROUTES[second])
        run = world.resume(admit(world))
        assert fallback.wrong == []
    assert (run.status, run.reason, run.outcome) == ("escalated", "route_not_qualified", "handed_to_staff")
    assert routes_of(run) == [ROUTES[second]] * 3 and switches(world, run) == [ROUTES[second]] * 3
    read = Observation.objects.filter(run=run, kind="result").values_list("source", flat=True)
    assert {"get_order", "get_payments", "get_refund_status", "search_policy"} == set(read)
    [decided] = world.events(run, "gate.decided")
    assert (decided["decision"], decided["error"]) == ("deny", "route_not_qualified")
    assert world.writes(run) == []
    nothing_moved(world)


def test_unqualified_fallback_drafts_the_reply_where_nothing_is_to_be_written(world: World) -> None:
    world.seed(payments=[{**captures("8472", "pay_9002")[0], "state": "failed"}])
    with ModelServer(OPENAI, always=DOWN) as down, ModelServer(ANTHROPIC) as fallback:
        reach(world, down, fallback)
        unqualify(ROUTES[ANTHROPIC])
        run = world.resume(admit(world))
    assert (run.status, run.outcome) == ("completed", "no_refund_due")
    assert set(routes_of(run)) == {ROUTES[ANTHROPIC]} and run.reply
    nothing_moved(world)


def test_write_that_the_qualified_primary_proposed_is_made_though_a_fallback_drafts_the_reply(world: World) -> None:
    with ModelServer(OPENAI) as first, ModelServer(ANTHROPIC) as fallback:
        reach(world, first, fallback, AGENT_PASSES_PER_TASK="1")
        unqualify(ROUTES[ANTHROPIC])
        first.faults = [Fault(), Fault(), Fault()]
        first.always = DOWN
        run = finish(world, admit(world))
    assert routes_of(run) == [ROUTES[OPENAI]] * 3 + [ROUTES[ANTHROPIC]]


# --- a reply that names another model ------------------------------------------------------------------------------


def test_route_qualified_for_the_model_that_really_answers_may_write(world: World) -> None:
    with reached(world, OPENAI) as server:
        answers_as(server, "m-2026-10-01")
        unqualify(ROUTES[OPENAI])
        call_command("qualify", ROUTES[OPENAI], reason="a test", answers_as="m-2026-10-01", verbosity=0)
        run = finish(world, admit(world))
    assert {t.answered_model for t in Turn.objects.filter(run=run)} == {"m-2026-10-01"}


def test_qualification_for_another_answer_covers_not_the_name_that_was_asked(world: World) -> None:
    with reached(world, OPENAI):
        unqualify(ROUTES[OPENAI])
        qualification.qualify(ROUTES[OPENAI], agent="refunds", reason="a test", by="tests", answers_as="m-2026-10-01")
        run = world.resume(admit(world))
    assert (run.status, run.reason) == ("escalated", "route_not_qualified")
    nothing_moved(world)


def test_model_that_changes_under_a_proposal_made_before_counts_as_the_one_that_proposed(world: World) -> None:
    """Only the turn that proposed the write matters, in both directions."""
    with reached(world, OPENAI) as server:
        thinks, named = server.mind, iter(["m-2027", "m-2027", "m-2026", "m-2027"])
        server.mind = lambda body: Said(**{**vars(thinks(body)), "model": next(named)})
        finish(world, admit(world))


@pytest.mark.parametrize("name", ["", "m-2026 ", "M-2026", "m‑2026"])
def test_name_that_is_almost_the_right_one_is_another(world: World, name: str) -> None:
    with reached(world, OPENAI) as server:
        answers_as(server, name)
        run = world.resume(admit(world))
    assert (run.status, run.reason) == ("escalated", "route_not_qualified")
    nothing_moved(world)


def test_right_that_ends_between_approval_and_intent_makes_no_refund(world: World) -> None:
    with reached(world, OPENAI):
        run = world.resume(admit(world))
        assert run.status == "awaiting_approval"
        world.approve(run)
        unqualify(ROUTES[OPENAI])
        run = world.resume(run)
    assert (run.status, run.reason) == ("escalated", "route_not_qualified")
    nothing_moved(world)
