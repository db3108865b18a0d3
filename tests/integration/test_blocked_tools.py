"""What a tool's entry and the site's list of blocked tools forbid, at the proposal and at the release (M55)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from runs import orchestrator, store
from runs.contracts import Outcome
from runs.states import Status
from tests.integration.gate_facts import Facts, told_by
from tests.world import World, final, gather, reads, refund, worker_dies
from tools import gate, registry
from tools.contracts import Danger, Decision, Effect, Permission, Proposal, Withheld

pytestmark = pytest.mark.django_db(transaction=True)
UNUSABLE: dict[str, dict[str, Any]] = {
    "tool_never_allowed": {"permission": Permission.NEVER},
    "tool_not_in_scope": {"effect": Effect.READ},
    "tool_too_dangerous": {"permission": Permission.UNRESTRICTED},
}


@pytest.fixture
def facts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Facts]:
    yield from told_by(monkeypatch)


def change(monkeypatch: pytest.MonkeyPatch, name: str, **fields: Any) -> None:
    entry = dataclasses.replace(registry.TOOLS[name], **fields)
    monkeypatch.setattr(registry, "TOOLS", {**registry.TOOLS, name: entry})


# --- the gate by itself --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", UNUSABLE)
def test_entry_is_asked_at_the_proposal_and_at_the_release(
    facts: Facts, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    case = facts.case(amount={"amount": "500.00", "currency": "INR"})
    assert gate.evaluate(case).kind == "allow"
    change(monkeypatch, "issue_refund", **UNUSABLE[rule])
    decision, released = gate.evaluate(case), gate.release(case, None, decision_id="d")
    again = gate.release_again(case, approval_id=None, decision_id="d", body="{}")
    assert (decision.kind, decision.rule) == ("deny", rule)
    for withheld in (released, again):
        assert isinstance(withheld, Withheld) and (withheld.kind, withheld.rule) == ("denied", rule)
    assert not [c for c in facts.server.calls if c.method == "POST"]


def test_blocked_tool_is_denied_at_the_proposal_and_at_the_release(facts: Facts) -> None:
    case = facts.case(amount={"amount": "500.00", "currency": "INR"}, blocked=["issue_refund"])
    decision = gate.evaluate(case)
    assert (decision.kind, decision.rule, decision.escalate) == ("deny", "tool_blocked", "needs_a_person")
    released = gate.release(case, None, decision_id="d")
    assert isinstance(released, Withheld) and (released.kind, released.rule) == ("escalate", "needs_a_person")
    again = gate.release_again(case, approval_id=None, decision_id="d", body="{}")
    assert isinstance(again, Withheld) and (again.kind, again.rule) == ("denied", "tool_blocked")
    assert not facts.server.calls, "nothing was read for what may not be"


def test_sensitive_words_ask_a_person_whatever_the_amount(facts: Facts) -> None:
    small = {"amount": "0.01", "currency": "INR"}
    decision: Decision = facts.decide(amount=small, sensitive=("lawyer",))
    assert (decision.kind, decision.rule, decision.required) == (
        "needs_approval",
        "sensitive_words_require_approval",
        1,
    )
    released = gate.release(facts.case(amount=small, sensitive=("lawyer",)), None, decision_id="d")
    assert isinstance(released, Withheld) and released.kind == "ask_afresh"
    assert [c.inputs for c in decision.checks if c.name == "sensitive_words"] == [{"words": ["lawyer"]}]


READ_RULES: dict[str, dict[str, Any]] = {
    "tool_never_allowed": {"permission": Permission.NEVER},
    "tool_too_dangerous": {"danger": Danger.MODERATE},
    "tool_not_in_scope": {"effect": Effect.WRITE},
}


@pytest.mark.parametrize("rule", READ_RULES)
def test_entry_of_a_read_is_asked_too(facts: Facts, monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    asked = Proposal(call_id="m1.1", tool="get_order", args={"order_id": "8472"})
    scope = facts.case().scope
    assert gate.read_allowed(scope, asked) is None
    assert gate.read_allowed(scope, asked, blocked=["get_order"]) == "tool_blocked"
    change(monkeypatch, "get_order", **READ_RULES[rule])
    assert gate.read_allowed(scope, asked) == rule


def test_registry_refuses_the_start_where_an_entry_contradicts_itself() -> None:
    write, read = registry.TOOLS["issue_refund"], registry.TOOLS["get_order"]
    broken = {
        "issue_refund": dataclasses.replace(write, permission=Permission.UNRESTRICTED),
        "get_order": dataclasses.replace(read, danger=Danger.DANGEROUS, secret_args=("order_id",)),
    }
    with pytest.raises(registry.BrokenRegistry) as refused:
        registry.check_all(broken)
    text = str(refused.value)
    assert text.count("must be safe") == 2 and text.count("no text argument of a write") == 1
    for names in (("amount",), ("unknown",), ("reason", "note")):
        with pytest.raises(registry.BrokenRegistry, match="no text argument of a write"):
            registry.check_all({"issue_refund": dataclasses.replace(write, secret_args=names)})


# --- through the loop ----------------------------------------------------------------------------------------


def test_tool_blocked_between_proposal_and_gate_goes_to_a_person(world: World) -> None:
    run = world.admit(script=[*gather(), refund(), final()])
    world.settings(AGENT_MODELS=world.scripts[str(run.pk)])
    claimed = store.claim(str(run.pk))
    assert claimed is not None
    while (state := store.load(str(run.pk), claimed.token)).status is not Status.ACTION_PROPOSED:
        handled = orchestrator.step(state)
        assert isinstance(handled, Outcome)
        store.checkpoint(state, handled, keep=True)
    store.release(str(run.pk), claimed.token, None)
    world.settings(TOOLS_BLOCKED="issue_refund")
    row = world.resume(run)
    assert (row.status, row.reason, world.posts(), world.refunds()) == ("escalated", "needs_a_person", [], [])
    assert [e["rule"] for e in world.events(run, "gate.decided")] == ["tool_blocked"]


def test_tool_blocked_after_the_yes_is_not_used(world: World) -> None:
    run = world.start(script=[*gather(), refund(), final()])
    world.approve(run)
    worker_dies(run, after="approved")
    world.settings(TOOLS_BLOCKED="issue_refund")
    row = world.resume(run)
    assert (row.status, row.reason, world.posts(), world.refunds()) == ("escalated", "needs_a_person", [], [])
    assert world.events(run, "gate.decided")[-1]["rule"] == "tool_blocked"
    assert world.approval(run).status == "void"


def test_tool_blocked_before_the_write_is_sent_stops_it_once_it_is_released_anew(world: World) -> None:
    run = world.start(script=[*gather(), refund(), final()])
    world.approve(run)
    worker_dies(run, after="intent")
    world.settings(TOOLS_BLOCKED="issue_refund", LEASE_S="0.01")
    row = world.resume(run)
    assert (row.status, world.posts(), world.refunds()) == ("escalated", [], [])


def test_tool_blocked_by_the_site_is_neither_shown_nor_taken(world: World) -> None:
    world.settings(TOOLS_BLOCKED="issue_refund,get_payments")
    run = world.start(script=[reads("get_order", "get_payments"), refund(evidence=("get_order",)), final()])
    assert (world.posts(), world.refunds()) == ([], [])
    assert run.status in ("completed", "escalated") and world.events(run, "write.intent") == []
