"""What a run rests on: cited passages, a pinned policy that is not in effect, clauses in a reply (M9, M72, M89)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from django.utils import timezone

from approvals.models import Approval
from runs.models import Event, Observation, Run, Write
from runs.replay import player
from runs.replay.export import export, text
from tests.walking import walk, walk_to
from tests.world import TENANT, World, final, gather, reads, refund
from tools.models import PolicyDocument, PolicyIncident
from tools.policy import documents, incidents

Json = dict[str, Any]
PIN = "POL-REF-004@v4"
FOUND = "We found two captured payments of 2,000.00 INR each on order 8472, which costs 2,000.00 INR."
NONE = "No refund has been issued for this request."
STALE = "We could not confirm which version of our policy applies, so a specialist is looking at your request."
QUOTE = "From our policy POL-REF-004, version 4, “Refunds > 4. Disputed payments”: “A payment under dispute is never "
OWNER = "refunds@acme.example"


def registry_moves_on(version: int = 5) -> None:
    shipped = PolicyDocument.objects.get(tenant_id=TENANT, doc_id="POL-REF-004", version=4)
    front = f"---\nid: POL-REF-004\nversion: {version}\ntitle: Refunds\neffective_from: 2026-05-01\n"
    documents.load(TENANT, f"{front}effective_until: null\nstatus: current\n---\n{shipped.body}")


def shipping(version: int, days: int, status: str = "current") -> None:
    front = f"---\nid: POL-SHIP-001\nversion: {version}\ntitle: Shipping\nstatus: {status}\n---\n"
    documents.load(TENANT, f"{front}\n# Shipping\n\n## 1. Late orders\n\nAn order that is {days} days late is late.\n")


def drafts(*evidence: str, text: str = "Thank you for your patience.") -> Json:
    return {"final": text, "evidence": list(evidence)}


def passage_of(run: Run, section: str) -> str:
    """The id of the passage of that section, in the first observation that holds it."""
    for seen in Observation.objects.filter(run=run, source="search_policy").order_by("position"):
        for n, one in enumerate(seen.content["passages"], start=1):
            if section in one["section"]:
                return f"{seen.obs_id}.{n}"
    raise AssertionError(f"no passage of {section}")


def replays(run: Run) -> bool:
    played = player.play(json.loads(text(export(run))))
    assert played.differences == ()
    return played.identical


def nothing_done(world: World) -> bool:
    return (world.posts(), Approval.objects.count(), Write.objects.count()) == ([], 0, 0)


# --- what a proposal cites -----------------------------------------------------------------------------------------


def test_one_passage_may_be_cited_and_staff_see_that_one(world: World) -> None:
    run = world.start(script=[*gather(), refund(evidence=("get_payments",), cited=("obs_1.1",)), final()])
    assert (run.status, world.rules(run)) == ("awaiting_approval", [])
    first = Observation.objects.get(run=run, obs_id="obs_1").content["passages"][0]
    shown = next(e for e in world.approval(run).evidence if e["tool"] == "search_policy")
    assert (shown["obs_id"], shown["doc"], shown["version"]) == ("obs_1.1", "POL-REF-004", 4)
    assert (shown["section"], shown["fact"]) == (first["section"], f"POL-REF-004@v4 {first['section']}")
    browser, page = world.browser(), f"/admin/approvals/approval/{world.approval(run).id}/"
    assert f"{page}evidence/obs_1.1/" in browser.get(f"{page}change/").content.decode()
    assert "The whole observation" in browser.get(f"{page}evidence/obs_1.1/").content.decode()
    assert browser.get(f"{page}evidence/obs_9.1/").status_code == 404
    assert world.posts() == [] and replays(run)


@pytest.mark.parametrize("cited", ["obs_1.99", "obs_2.1", "obs_1.0", "obs_99", "obs_1.1.1"])
def test_a_passage_that_is_not_there_is_unknown_evidence(world: World, cited: str) -> None:
    run = world.start(script=[*gather(), refund(cited=(cited,)), refund(), final()])
    assert (run.status, world.rules(run)) == ("awaiting_approval", ["unknown_evidence"])
    [denied, _] = world.events(run, "gate.decided")
    assert next(c for c in denied["checks"] if not c["ok"])["inputs"] == {"unknown": [cited]}
    assert world.posts() == []


def test_a_passage_of_another_document_that_was_superseded_since_denies_though_the_pin_is_current(world: World) -> None:
    shipping(1, 30)
    run = world.admit(script=[reads("search_policy"), *gather(), refund(cited=("obs_1",)), final()], goal="late order")
    walk_to(world, run, "action_proposed")
    assert passage_of(run, "Late orders").startswith("obs_1.")
    shipping(2, 60)
    run = world.resume(run)
    assert (run.status, run.reason, world.rules(run)) == ("escalated", "policy_stale", ["policy_stale"])
    [decided] = world.events(run, "gate.decided")
    check = next(c for c in decided["checks"] if not c["ok"])
    assert (check["inputs"]["registry_current"], check["inputs"]["pinned"]) == (4, 4)
    assert "obs_1" in check["inputs"]["stale_cited"] and check["inputs"]["superseded"][0].startswith("POL-SHIP-001@v1 ")
    assert nothing_done(world) and replays(run)
    assert PolicyIncident.objects.count() == 0  # the pinned version is in effect: no incident of it


def test_a_passage_superseded_between_the_yes_and_the_release_stops_the_write(world: World) -> None:
    shipping(1, 30)
    run = world.start(script=[*gather(), refund(cited=("obs_1",)), final()], goal="late order")
    assert passage_of(run, "Late orders").startswith("obs_1.")
    world.approve(run)
    shipping(2, 60)
    run = world.resume(run)
    assert (run.status, run.reason, world.approval(run).status) == ("escalated", "policy_stale", "void")
    assert (world.posts(), Write.objects.count()) == ([], 0) and replays(run)


def test_a_precedent_is_no_evidence_for_a_write(world: World) -> None:
    run = world.admit(script=[*gather(), refund(cited=("obs_case",)), refund(), final()])
    walk(world, run, lambda row: Observation.objects.filter(run=run, source="get_payments").exists())
    Observation.objects.create(
        run=run, obs_id="obs_case", position=99, call_id="c99", span="t99", kind="result", source="search_cases",
        args={}, content={"cases": [{"outcome": "refunded", "precedent": True}]}, content_hash="", meta={},
        fetched_at=datetime.now(UTC),
    )  # fmt: skip
    run = world.resume(run)
    assert (run.status, world.rules(run)) == ("awaiting_approval", ["precedent_is_no_evidence"])
    denied, asked = world.events(run, "gate.decided")
    assert next(c for c in denied["checks"] if not c["ok"])["inputs"] == {"precedents": ["obs_case"]}
    assert (asked["decision"], world.posts()) == ("needs_approval", [])


# --- a pinned version that is not in effect --------------------------------------------------------------------------


def only_draft(*turns: Any) -> list[Any]:
    return [*turns, drafts()]


@pytest.mark.parametrize(
    "script",
    [only_draft(*gather()), only_draft(reads("search_policy"), *gather()), [*gather(), refund(), final()]],
    ids=["draft", "policy first", "refund"],
)
def test_a_run_of_a_policy_that_is_not_in_effect_tells_the_facts_and_goes_to_a_person(
    world: World, script: list[Any]
) -> None:
    registry_moves_on()
    run = world.start(script=script)
    assert (run.status, run.reason, run.outcome, run.reply) == ("escalated", "policy_stale", "handed_to_staff", None)
    assert world.said(run) == f"{FOUND} {NONE} {STALE}"
    assert nothing_done(world) and replays(run)
    [incident] = PolicyIncident.objects.all()
    assert (incident.tenant_id, incident.doc_id, incident.pinned, incident.current) == (TENANT, "POL-REF-004", 4, 5)
    assert (incident.owner, incident.runs, incident.last_run_id) == (OWNER, 1, str(run.pk))
    assert (incident.closed_at, incident.closed_by) == (None, "")


def test_the_facts_are_read_before_it_is_given_up_and_nothing_is_asked_after(world: World) -> None:
    registry_moves_on()
    early = world.start(script=[reads("search_policy"), reads("search_policy"), *gather(), final()])
    assert (early.reason, early.model_calls) == ("policy_stale", 4)
    assert {o.source for o in Observation.objects.filter(run=early, kind="result")} == {
        "search_policy", "get_order", "get_payments", "get_refund_status",
    }  # fmt: skip


def test_a_draft_without_the_facts_goes_to_a_person_too(world: World) -> None:
    registry_moves_on()
    run = world.start(script=[reads("get_order"), drafts()])
    assert (run.status, run.reason, run.reply) == ("escalated", "policy_stale", None)
    assert NONE in world.said(run) and STALE in world.said(run)
    assert nothing_done(world) and replays(run)


def test_a_draft_whose_prose_says_too_much_is_not_asked_for_again(world: World) -> None:
    registry_moves_on()
    run = world.start(script=[reads("get_order"), drafts(text="You get 2000 back in 30 days.")])
    assert (run.reason, run.model_calls, world.events(run, "reply.rejected")) == ("policy_stale", 2, [])


def test_no_version_in_effect_is_an_incident_without_a_current_one(world: World) -> None:
    PolicyDocument.objects.filter(tenant_id=TENANT, doc_id="POL-REF-004").update(status="superseded")
    run = world.start(script=[*gather(), drafts()])
    assert (run.status, run.reason, run.outcome) == ("escalated", "policy_stale", "handed_to_staff")
    [incident] = PolicyIncident.objects.all()
    assert (incident.pinned, incident.current, incident.runs) == (4, None, 1)
    assert nothing_done(world)


def test_one_open_incident_counts_the_runs_and_a_closed_one_is_opened_anew(world: World) -> None:
    registry_moves_on()
    runs = [world.start(f"req-{n}", [*gather(), drafts()]) for n in range(2)]
    [incident] = PolicyIncident.objects.all()
    assert (incident.runs, incident.last_run_id) == (2, str(runs[-1].pk))
    registry_moves_on(6)
    world.start("req-2", [*gather(), drafts()])
    incident.refresh_from_db()
    assert (incident.runs, incident.current) == (3, 6)
    PolicyIncident.objects.filter(pk=incident.pk).update(closed_at=timezone.now(), closed_by="lead_17")
    world.start("req-3", [*gather(), drafts()])
    newest, closed = PolicyIncident.objects.order_by("-id")
    assert (newest.runs, newest.closed_at, closed.runs, closed.closed_by) == (1, None, 3, "lead_17")


def test_incidents_are_a_tenant_s_own_and_none_is_raised_for_a_current_pin(world: World) -> None:
    incidents.abstained(TENANT, PIN, "run-1", OWNER)
    assert PolicyIncident.objects.count() == 0
    registry_moves_on()
    world.begin("t_other")
    incidents.abstained("t_other", PIN, "run-2", OWNER)
    assert PolicyIncident.objects.count() == 0
    incidents.abstained(TENANT, PIN, "run-3", "x" * 400)
    [incident] = PolicyIncident.objects.all()
    assert (incident.tenant_id, incident.last_run_id, len(incident.owner)) == (TENANT, "run-3", 254)


def test_a_run_that_was_shown_no_policy_answers_as_ever(world: World) -> None:
    world.profile(read_tools=["get_order", "get_payments", "get_refund_status"])
    registry_moves_on()
    run = world.start(script=[reads("get_order", "get_payments", "get_refund_status"), drafts()])
    assert (run.status, run.outcome, PolicyIncident.objects.count()) == ("completed", "answered", 0)


def test_a_refund_that_was_made_is_told_though_the_policy_moves_on(world: World) -> None:
    world.settings(AGENT_PASSES_PER_TASK="1")
    run = world.start(script=[*gather(), refund(cited=("obs_1.1",)), drafts()])
    world.approve(run)
    world.resume(run, until="verified")
    registry_moves_on()
    run = world.resume(run)
    assert (run.status, run.outcome, len(world.posts())) == ("completed", "refunded", 1)
    assert "has been made and confirmed" in str(run.reply) and "From our policy" not in str(run.reply)
    assert PolicyIncident.objects.count() == 0 and replays(run)


def test_a_draft_without_evidence_quotes_what_its_refund_was_proposed_on(world: World) -> None:
    """Models with calls of their own draft in plain text, which names no evidence."""
    run = world.start(script=[reads("search_policy"), *gather(), refund(cited=("obs_1.1",)), drafts()])
    section = Observation.objects.get(run=run, obs_id="obs_1").content["passages"][0]["section"]
    world.approve(run)
    run = world.resume(run)
    assert (run.outcome, f"From our policy POL-REF-004, version 4, “{section}”" in str(run.reply)) == ("refunded", True)
    assert replays(run)


# --- clauses in the reply --------------------------------------------------------------------------------------------


def answers(world: World, section: str, **changes: Any) -> tuple[Run, str]:
    """A run whose draft cites the passage of that section, which it searched for itself; and the passage's id."""
    probe = world.admit("req-probe", script=[reads("search_policy"), *gather(), drafts()], **changes)
    walk(world, probe, lambda row: row.status == "completed")
    cited = passage_of(probe, section)
    return world.start(script=[reads("search_policy"), *gather(), drafts(cited)], **changes), cited


def test_a_cited_clause_is_quoted_by_code_and_told_ever_after(world: World) -> None:
    run, _ = answers(world, "4. Disputed payments", goal="Is a disputed payment refunded? The order is 8472.")
    assert (run.status, run.outcome) == ("completed", "answered")
    facts, clause, prose = str(run.reply).split("\n\n")
    assert (facts.startswith(FOUND), prose) == (True, "Thank you for your patience.")
    assert clause.startswith(QUOTE) and clause.endswith("left out of the sum of section 2.”")
    assert world.said(run) == f"{facts}\n\n{clause}"
    [sent] = world.events(run, "reply.sent")
    [told] = sent["clauses"]
    assert (told["doc"], told["version"], told["section"]) == ("POL-REF-004", 4, "Refunds > 4. Disputed payments")
    assert told["text"] in clause and "left_out" not in sent and replays(run)
    registry_moves_on()
    assert world.said(run) == f"{facts}\n\n{clause}"  # what that version said, it said


def test_a_whole_observation_names_no_clause(world: World) -> None:
    run = world.start(script=[*gather(), drafts("obs_1", "obs_2", "obs_99.1", "obs_2.1")])
    assert (run.status, "From our policy" in str(run.reply)) == ("completed", False)
    [sent] = world.events(run, "reply.sent")
    assert set(sent) == {"text"}


def test_a_clause_superseded_at_the_moment_of_the_reply_is_left_out_and_recorded(world: World) -> None:
    shipping(1, 30)
    goal = "My order is late."
    run, cited = answers(world, "1. Late orders", goal=goal)
    assert "An order that is 30 days late is late." in str(run.reply)
    late = world.admit("req-late", script=[reads("search_policy"), *gather(), drafts(cited)], goal=goal)
    walk(world, late, lambda row: Observation.objects.filter(run=late, source="get_refund_status").exists())
    shipping(2, 60)
    late = world.resume(late)
    assert (late.status, "30 days" in str(late.reply), "60 days" in str(late.reply)) == ("completed", False, False)
    [sent] = world.events(late, "reply.sent")
    assert sent["left_out"] == [{"cited": cited, "error": "not_current"}]
    assert sent["superseded"][0].startswith("POL-SHIP-001@v1 ") and "clauses" not in sent
    assert replays(late) and replays(run)


def test_a_customer_of_another_language_gets_the_facts_alone(world: World) -> None:
    goal = "Ich habe die Bestellung 8472 zweimal bezahlt, warum ist das Geld noch nicht da?"
    run = world.start(script=[*gather(), drafts("obs_1.1")], goal=goal)
    [sent] = world.events(run, "reply.sent")
    assert (sent["left_out"], run.reply) == ([{"cited": "obs_1.1", "error": "language"}], world.said(run))
    assert "From our policy" not in str(run.reply)


def test_an_erased_reply_quotes_nothing_any_more(world: World) -> None:
    run, _ = answers(world, "4. Disputed payments", goal="Is a disputed payment refunded? The order is 8472.")
    Event.objects.filter(run=run, type="reply.sent").update(payload=None)
    assert "From our policy" not in world.said(run)


def test_prose_with_a_rule_of_its_own_is_sent_back_and_never_leaves(world: World) -> None:
    rules = ["You can bring your order to us whenever you want.", "You must ask us if you want the rest.", "Thank you."]
    run = world.start(script=[*gather(), *(drafts(text=prose) for prose in rules)])
    assert (run.status, world.fresh(run).repairs) == ("completed", 2)
    assert str(run.reply).endswith("\n\nThank you.") and "bring" not in str(run.reply) and "rest" not in str(run.reply)
    assert nothing_done(world)
