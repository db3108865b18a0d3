"""Which tools a turn is shown (M61), turns that hold nothing (B47, B48), and the customer's language (M121)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentsite import checks, env
from runs import store
from runs.management import tenancy
from runs.management.findings import configuration
from runs.models import Observation
from runs.orchestrator.offered import offered
from tests.to_people import (
    NONE,
    PEOPLE,
    PERSON,
    READS,
    Json,
    ask,
    message,
    replayed,
    results,
    shown,
)
from tests.walking import walk_to
from tests.world import World, final, gather, reads, refund, s0
from tools import registry
from tools.contracts import Permission

# --- what is shown (M61) ---------------------------------------------------------------------------------------


def test_everything_granted_is_shown_and_recorded(world: World) -> None:
    run = world.start(script=[final()])
    assert shown(run) == [[*READS, "issue_refund", *PEOPLE]]


def test_profile_that_blocks_tools_grants_them_to_no_run(world: World) -> None:
    world.profile(blocked_tools=["issue_refund", "ask"])
    run = world.start(script=[*gather(), refund(), refund(), final()])
    assert (run.status, run.reason, world.posts()) == ("escalated", "repair_exhausted", [])
    assert shown(run)[0] == [*READS, "message", "plan", "escalate"]
    scope = run.contract["scope"]
    assert (scope["write_tools"], scope["people_tools"]) == ({}, ["message", "plan", "escalate"])
    assert world.errors(run)[0]["error"] == "unknown_tool"
    assert world.errors(run)[0]["known"] == [*READS, "message", "plan", "escalate"]


def test_site_that_blocks_a_write_after_the_proposal_lets_nothing_out(world: World) -> None:
    run = world.start(script=[*gather(), refund(), final()])
    world.approve(run)
    world.settings(TOOLS_BLOCKED="issue_refund")
    run = world.resume(run)
    assert (run.status, run.reason, world.approval(run).status) == ("escalated", "needs_a_person", "void")
    assert world.events(run, "gate.decided")[-1]["rule"] == "tool_blocked"
    assert (world.posts(), world.refunds(), world.writes(run)) == ([], [], [])


def test_site_that_blocks_reads_and_words_lets_none_run(world: World) -> None:
    run = world.admit(script=[[message(), *reads("get_order", "get_payments")], final()])
    run = walk_to(world, run, "gathering")
    world.settings(TOOLS_BLOCKED="message,get_order")
    run = world.resume(run)
    assert results(run) == [
        ("message", "denial", "tool_blocked"), ("get_order", "denial", "tool_blocked"),
        ("get_payments", "result", ""),
    ]  # fmt: skip
    assert world.events(run, "customer.told") == []


def test_write_tool_is_gone_once_its_attempts_are_spent(world: World) -> None:
    run = world.start(script=[*gather(), refund(), final()], limits={"max_write_attempts": 1})
    world.approve(run)
    assert world.resume(run).outcome == "refunded"
    assert ["issue_refund" in names for names in shown(run)] == [True, True, True, False]


def test_tool_that_is_never_allowed_or_of_another_role_is_not_shown(world: World) -> None:
    run = world.admit()
    claimed = store.claim(str(run.pk))
    assert claimed is not None
    state = store.load(str(run.pk), claimed.token)
    never = replace(registry.entry("get_order"), permission=Permission.NEVER)
    world.patch.setattr(registry, "TOOLS", {**registry.TOOLS, "get_order": never})
    world.patch.setattr(registry, "ROLES", {"refunds": ("get_order", "get_payments", "plan")})
    assert [tool.name for tool in offered(state, env.read())] == ["get_payments", "plan"]
    assert offered(replace(state, agent="returns"), env.read()) == ()
    store.release(str(run.pk), claimed.token, None)


def test_misspelt_blocked_tool_stops_the_start_and_is_a_finding(world: World) -> None:
    world.settings(TOOLS_BLOCKED="issue_refunds, ask")
    assert [(e.id, e.msg) for e in checks.blocked_tools_exist(None)] == [
        ("agentsite.E004", "TOOLS_BLOCKED: issue_refunds is no tool")
    ]
    [finding] = [f for f in configuration.examine() if f.name == "blocked tools"]
    assert (finding.verdict, finding.detail) == ("fail", "issue_refunds is no tool")
    world.settings(TOOLS_BLOCKED="ask")
    assert checks.blocked_tools_exist(None) == []
    [finding] = [f for f in configuration.examine() if f.name == "blocked tools"]
    assert (finding.verdict, finding.detail) == ("warn", "no run may use ask")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"people_tools": ["ask", "issue_refund"]}, "people_tools: issue_refund is no people tool"),
        ({"read_tools": ["get_order", "plan"]}, "read_tools: plan is no read tool"),
        ({"blocked_tools": ["asks"]}, "blocked_tools: asks is no tool"),
    ],
)
def test_profile_of_a_wrong_class_is_refused(world: World, change: Json, fault: str) -> None:
    with pytest.raises(tenancy.BadProfile) as refused:
        world.profile(**change)
    assert refused.value.faults == [fault]


# --- the customer's language (M121) ----------------------------------------------------------------------------

GERMAN = "Meine Bestellung wurde zweimal abgebucht, und das Geld ist nicht zurück."


def test_customer_of_a_language_without_a_word_list_gets_the_facts_alone(world: World) -> None:
    run = world.start(script=[*gather(), refund(), final()], goal=GERMAN)
    world.approve(run)
    run = world.resume(run)
    assert (run.status, run.outcome, run.model_calls) == ("completed", "refunded", 4)
    assert "has been made and confirmed" in (run.reply or "") and "Thank you" not in (run.reply or "")
    assert world.events(run, "reply.rejected") == [{"error": "no_word_list"}]
    assert {"message", "ask"} & set(shown(run)[0]) == set()
    assert replayed(run) == []


def test_draft_for_such_a_customer_needs_no_repair(world: World) -> None:
    run = world.start(script=[*gather(), final()], goal=GERMAN)
    assert (run.status, run.model_calls, "Thank you" in (run.reply or "")) == ("completed", 3, False)


def test_language_follows_the_customer_and_not_the_records(world: World) -> None:
    world.seed(note="Meine Bestellung wurde zweimal abgebucht und das Geld ist nicht zurück")
    run = world.start(script=[ask(), *gather(), final()])
    assert run.status == "waiting_reply"
    world.message(run, GERMAN)
    run = world.resume(run)
    assert (run.status, "Thank you" in (run.reply or "")) == ("completed", False)
    assert ["ask" in names for names in shown(run)] == [True, False, False, False]
    other = world.start("req-2", script=[*gather(), final()])
    assert other.reply is not None and other.reply.endswith("Thank you for your patience.")


# --- turns that hold nothing (B47, B48) ------------------------------------------------------------------------


def test_turns_without_use_are_reminded_twice_and_then_a_person_has_it(world: World) -> None:
    run = world.start(script=[{"turn": {"text": "", "finish_reason": "tool_calls"}}])
    assert (run.status, run.reason, run.model_calls) == ("escalated", "no_usable_output", 3)
    reminders = world.events(run, "reminder")
    assert [(r["error"], r["number"], r["of"]) for r in reminders] == [("no_usable_output", n, 2) for n in (1, 2)]
    notes = Observation.objects.filter(run=run, kind="notice").order_by("position")
    assert [(o.source, o.content["error"], o.content["reminder"]) for o in notes] == [
        ("engine", "no_usable_output", 1), ("engine", "no_usable_output", 2),
    ]  # fmt: skip
    assert (world.said(run), world.posts()) == (f"{NONE} {PERSON}", [])
    assert replayed(run) == []


def test_reminder_that_helps_lets_the_run_go_on(world: World) -> None:
    run = world.start(script=[{"turn": {"text": "[]"}}, *s0()])
    assert (run.status, len(world.events(run, "reminder"))) == ("awaiting_approval", 1)


def test_same_wrong_name_twice_in_a_row_goes_to_a_person_and_two_names_do_not(world: World) -> None:
    wrong = {"tool": "issue_refunds", "args": {}}
    run = world.start(script=[wrong])
    assert (run.status, run.reason, run.model_calls) == ("escalated", "repair_exhausted", 2)
    assert [(e["error"], e["tool"], e["known"]) for e in world.errors(run)] == [
        ("unknown_tool", "issue_refunds", [*READS, "issue_refund", *PEOPLE])
    ] * 2  # fmt: skip
    other = {"tool": "Issue_Refund", "args": {}}
    run = world.start("req-2", script=[wrong, other, *s0()])
    assert (run.status, run.model_calls) == ("awaiting_approval", 5)
    assert world.posts() == []
