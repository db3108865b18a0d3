"""Evidence first: passages for the goal are looked up before the first model call and stand in every prompt (M90).

An index that is not ready parks the run; it is never an empty list.
"""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest

from agentsite import dbtime
from runs import explain, orchestrator, replay, reply, store
from runs.advance import advance
from runs.contracts import Outcome
from runs.models import Event, Observation, Run, Turn
from tests.first_index import building
from tests.world import KEY, TENANT, World, final, gather, reads, refund, s0, turn
from tools.models import PolicyDocument
from tools.policy import documents, index

Json = dict[str, Any]
NOTE = "The customer called about this order and was told to wait. " * 40


def first(world: World, run: Run) -> Observation:
    """What stands before any turn."""
    return Observation.objects.filter(run=run, source="search_policy", call_id="").get()


def prompt(run: Run, number: int) -> str:
    """What the model was sent in a turn."""
    rebuilt = explain.rebuilt(run, Turn.objects.get(run=run, number=number))
    assert rebuilt.same, rebuilt.why
    return "\n".join(part.text for part in rebuilt.parts)


def line(text: str, obs_id: str) -> Json:
    """An observation as a prompt shows it."""
    found = re.search(rf'<observation id="{obs_id}"[^>]*>(.*)</observation>', text)
    assert found is not None, text
    shown: Json = json.loads(found.group(1))
    return shown


# --- what stands there -------------------------------------------------------------------------------------------


def test_passages_for_the_goal_stand_there_before_the_first_call(world: World) -> None:
    run = world.admit()
    world.step(run)
    found = first(world, run)
    assert (found.obs_id, found.position, found.args, found.kind) == ("obs_1", 1, {}, "result")
    rows = found.content["passages"]
    assert 1 <= len(rows) <= 3 and {p["current"] for p in rows} == {True}
    assert ("POL-REF-004", 4) in {(p["doc"], p["version"]) for p in rows}
    assert {"doc", "version", "section", "text", "current", "hash", "score"} == set(rows[0])
    types = list(Event.objects.filter(run=run).order_by("seq").values_list("type", flat=True)[:4])
    assert types == ["run.accepted", "evidence.found", "prompt.built", "model.called"]
    [told] = world.events(run, "evidence.found")
    assert (told["passages"], told["observations"], "cases" in told) == (len(rows), 1, False)


def test_every_prompt_shows_each_passage_with_its_id_document_and_version(world: World) -> None:
    run = world.start()
    assert run.status == "awaiting_approval"
    rows = first(world, run).content["passages"]
    for number in (1, 2, 3):
        shown = line(prompt(run, number), "obs_1")["passages"]
        assert [(p["id"], p["doc"], p["version"], p["text"]) for p in shown] == [
            (f"obs_1.{n}", p["doc"], p["version"], p["text"]) for n, p in enumerate(rows, start=1)
        ]
        assert not {"hash", "score"} & set(shown[0])
    assert world.posts() == []


def test_model_may_search_again_and_cites_what_it_found(world: World) -> None:
    run = world.start()
    world.approve(run)
    run = world.resume(run)
    assert (run.status, run.outcome) == ("completed", "refunded")
    own = Observation.objects.filter(run=run, source="search_policy").exclude(call_id="").get()
    assert (own.call_id, own.obs_id) == ("m2.1", "obs_4")
    assert world.posts() == [("pay_9002", "2000.00", KEY)]


def test_what_was_found_first_is_evidence_enough_for_a_write(world: World) -> None:
    """No search of the model's own: it cites what stands there."""
    asked = [reads("get_order", "get_payments"), reads("get_refund_status")]
    run = world.start(script=[*asked, refund(), final()])
    assert run.status == "awaiting_approval"
    assert "obs_1" in Turn.objects.get(run=run, number=3).proposals[0]["evidence"]
    world.approve(run)
    assert world.resume(run).outcome == "refunded"


def test_passages_stay_whole_where_the_turns_between_are_compacted_and_left_out(world: World) -> None:
    world.settings(MODEL_WINDOW_TOKENS="5000", MODEL_TAIL_TOKENS="800")
    world.seed(note=NOTE)
    looks = [[*reads("get_order"), {"tool": "search_policy", "args": {"query": f"refund {n}"}}] for n in range(9)]
    run = world.start(script=[*looks, final()])
    assert (run.status, run.model_calls) == ("completed", 10)
    texts = [prompt(run, number) for number in range(1, 11)]
    assert "<compacted" in texts[-1] and "<omitted" in texts[-1], "the window was never short"
    rows = first(world, run).content["passages"]
    heads = {re.split(r"(?<=</observation>)\n", text.partition("[4] OBSERVATIONS")[2])[0] for text in texts}
    assert len(heads) == 1, "the beginning of a prompt moved"
    assert [p["text"] for p in line(texts[-1], "obs_1")["passages"]] == [p["text"] for p in rows]


# --- who gets none -----------------------------------------------------------------------------------------------


def test_agent_that_may_not_search_policies_is_shown_none(world: World) -> None:
    world.profile(read_tools=["get_order", "get_payments", "get_refund_status"])
    run = world.start(script=[reads("get_order"), final()])
    assert (run.status, run.contract["policy_first"]) == ("completed", False)
    assert world.events(run, "evidence.found") == []
    assert not Observation.objects.filter(run=run, source="search_policy").exists()


def test_tool_that_the_site_blocks_is_not_used_for_it_either(world: World) -> None:
    world.settings(TOOLS_BLOCKED="search_policy")
    run = world.start(script=[reads("get_order"), final()])
    assert (run.status, run.contract["policy_first"], world.events(run, "evidence.found")) == ("completed", True, [])
    assert replay.play(json.loads(replay.text(replay.export(run)))).identical


def test_run_that_an_older_release_admitted_goes_on_without(world: World) -> None:
    run = world.admit()
    older = {name: value for name, value in run.contract.items() if name not in ("policy_first", "session_memory")}
    Run.objects.update(contract={**older, "schema_version": 2}, schema=2)
    run = world.resume(run)
    assert (run.status, world.events(run, "evidence.found")) == ("awaiting_approval", [])
    assert replay.play(json.loads(replay.text(replay.export(run)))).identical


def test_tenant_without_any_policy_gets_an_empty_answer_and_not_none(world: World) -> None:
    PolicyDocument.objects.filter(tenant_id=TENANT).delete()
    documents.changed(TENANT)
    run = world.start(script=[*gather(), refund()])
    assert first(world, run).content == {"passages": []}
    assert (run.status, run.reason, world.posts()) == ("escalated", "policy_stale", [])


def test_run_of_a_cancelled_request_looks_for_nothing(world: World) -> None:
    run = world.admit()
    world.cancel(run)
    run = world.resume(run)
    assert (run.status, world.events(run, "evidence.found"), run.model_calls) == ("cancelled", [], 0)


def test_customer_who_writes_before_the_first_pass_changes_nothing_of_it(world: World) -> None:
    run = world.admit()
    world.message(run, "Please hurry.")
    run = world.resume(run)
    assert run.status == "awaiting_approval" and first(world, run).obs_id == "obs_1"
    told = Observation.objects.get(run=run, kind="message")
    assert (told.position, told.content["text"]) == (2, "Please hurry.")


# --- the index is not ready --------------------------------------------------------------------------------------


def test_index_that_is_not_ready_parks_the_run_and_is_no_empty_list(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = world.admit()
    with building(TENANT, monkeypatch):
        world.step(run)
        parked = world.fresh(run)
        assert (parked.status, parked.dependency, parked.resume_status) == (
            "waiting_dependency", "search_policy", "accepted",
        )  # fmt: skip
        assert (parked.model_calls, Observation.objects.filter(run=run).count()) == (0, 0)
        assert world.events(run, "tool.error") == [{"tool": "search_policy", "error": "index_building"}]
        assert world.said(run).startswith(reply.MODEL_AWAY)
        world.later(run, 5)
        world.step(run)
        world.step(run)
        assert world.fresh(run).status == "waiting_dependency", "it goes on without what it waits for"
    world.later(run, 60)
    run = world.resume(run)
    assert run.status == "awaiting_approval" and len(first(world, run).content["passages"]) >= 1
    assert len(world.events(run, "evidence.found")) == 1
    document = json.loads(replay.text(replay.export(run)))
    assert replay.play(document).identical and run.down_since is None


def test_model_s_own_search_waits_for_the_index_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.settings(AGENT_PASSES_PER_TASK="1")
    run = world.admit(script=[reads("search_policy"), *s0()])
    world.step(run)
    documents.changed(TENANT)
    with building(TENANT, monkeypatch):
        monkeypatch.setattr(index, "_before", lambda tenant_id: None)
        while (row := world.fresh(run)).status == "gathering":
            world.step(run)
        assert (row.status, row.dependency) == ("waiting_dependency", "search_policy")
        [told] = world.errors(run)
        assert (told["error"], told["retryable"]) == ("index_building", True)
    monkeypatch.undo()
    world.later(run, 60)
    run = world.resume(run)
    assert (run.status, world.posts()) == ("awaiting_approval", [])


def test_index_that_never_comes_hands_the_run_to_a_person(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.settings(DEPENDENCY_FOR_S="0.05")
    with building(TENANT, monkeypatch):
        run = world.admit()
        world.step(run)
        world.later(run, 60)
        run = world.resume(run)
    assert (run.status, run.reason, run.model_calls) == ("escalated", "dependency_unavailable", 0)
    assert not Observation.objects.filter(run=run).exists() and world.posts() == []


# --- a worker that dies -------------------------------------------------------------------------------------------


def dies(run: Run, *, committed: bool) -> None:
    """A worker that looked the evidence up, and died before or after it was committed."""
    claimed = store.claim(str(run.pk))
    assert claimed is not None
    state = store.load(str(run.pk), claimed.token)
    handled = orchestrator.step(state)
    assert isinstance(handled, Outcome)
    if committed:
        store.checkpoint(state, handled, keep=True)
    Run.objects.filter(pk=run.pk).update(lease_until=dbtime.now() - timedelta(seconds=1))


@pytest.mark.parametrize("committed", [False, True])
def test_worker_killed_between_evidence_and_first_call_leaves_it_there_once(world: World, committed: bool) -> None:
    run = world.admit()
    dies(run, committed=committed)
    assert Observation.objects.filter(run=run).count() == int(committed)
    assert (world.fresh(run).status, world.fresh(run).model_calls) == ("accepted", 0)
    run = world.resume(run)
    assert run.status == "awaiting_approval"
    assert len(world.events(run, "evidence.found")) == 1 and first(world, run).obs_id == "obs_1"


def test_evidence_and_first_call_are_one_pass(world: World) -> None:
    """No hint, no queue and no lease between them."""
    world.settings(AGENT_PASSES_PER_TASK="1")
    run = world.admit()
    world.settings(AGENT_MODELS=world.scripts[str(run.pk)])
    assert advance(str(run.pk)) == "gathering"
    assert (world.fresh(run).model_calls, len(world.events(run, "evidence.found"))) == (1, 1)


# --- how people read of it ----------------------------------------------------------------------------------------


def test_pages_and_the_story_tell_it_in_words(world: World) -> None:
    run = world.start(script=[turn(text='{"final": "Thank you.", "evidence": []}')])
    count = len(first(world, run).content["passages"])
    said = f"{count} policy passage{'s' if count > 1 else ''}"
    user = world.person()
    user.is_superuser = True
    user.save()
    browser = world.browser()
    page = browser.get(f"/admin/runs/run/{run.pk}/change/").content.decode()
    assert f"{said}" in page and "Evidence" in page
    story = explain.explain(explain.read(run))
    assert next((r.obs_id, r.source) for r in story.reads) == ("obs_1", "search_policy")


def test_passages_alone_support_no_write(world: World) -> None:
    """A model that read nothing of the order may cite what stood there before its first turn: that is no fact."""
    run = world.start(script=[refund(evidence=(), cited=("obs_1",)), *s0()])
    assert (world.rules(run), run.status, world.posts()) == (["order_not_read"], "awaiting_approval", [])
