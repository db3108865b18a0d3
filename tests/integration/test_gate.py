"""The gate's table: each check denies for its own reason, on facts that it reads itself from a business system."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest

from agentsite.tenants.profiles import CurrencyRule, WriteGrant
from tests.integration.gate_facts import EVIDENCE, POLICY_5, SCOPE, Facts, Json, given_back, inr, own, paid, told_by
from tests.loopback import closed_port, cut, ok, raw, reset
from tools import gate, registry
from tools.contracts import Decision, PolicyState, Proposal, UsedSoFar
from tools.errors import ReadFailed

pytestmark = pytest.mark.django_db  # reads ask the breaker first


@pytest.fixture
def facts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Facts]:
    yield from told_by(monkeypatch)


def inputs(decision: Decision, check: str) -> Json:
    """What a check looked at; every check of a decision is named once."""
    [found] = [c for c in decision.checks if c.name == check]
    return found.inputs


# --- what is asked of a person, what is not ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "kind", "rule", "required", "large"),
    [
        ("0.01", "allow", "refund_within_own_authority", 0, False),
        ("1000.00", "allow", "refund_within_own_authority", 0, False),
        ("1000.01", "needs_approval", "refund_above_1000_requires_approval", 1, False),
        ("2000.00", "needs_approval", "refund_above_1000_requires_approval", 1, False),
        ("4000.00", "needs_approval", "refund_above_1000_requires_approval", 1, False),
        ("4000.01", "needs_approval", "refund_above_1000_requires_approval", 2, True),
        ("5000.00", "needs_approval", "refund_above_1000_requires_approval", 2, True),
    ],
)
def test_threshold_decides_who_must_agree(
    facts: Facts, amount: str, kind: str, rule: str, required: int, large: bool
) -> None:
    facts.shows(order={"total": inr("9000.00"), "amount_due": inr("0.00")}, payments=[paid("pay_9002", "9000.00")])
    decision = facts.decide(amount=inr(amount))
    assert (decision.kind, decision.rule, decision.required, decision.large) == (kind, rule, required, large)
    assert (decision.action_hash, decision.escalate) == (facts.case(amount=inr(amount)).hash, None)
    assert all(check.ok for check in decision.checks)


def test_decision_holds_every_number_it_looked_at(facts: Facts) -> None:
    """M26: the checks of the mission's own example."""
    decision = facts.decide()
    assert (decision.kind, decision.rule) == ("needs_approval", "refund_above_1000_requires_approval")
    assert [check.name for check in decision.checks] == [
        "tool_not_in_scope", "tool_never_allowed", "route_not_qualified", "order_out_of_scope", "write_already_made",
        "evidence_missing", "unknown_evidence", "policy_stale", "order_not_yours", "payment_not_of_order",
        "payment_disputed", "payment_not_captured", "currency_mismatch", "amount_not_positive", "nothing_refundable",
        "amount_exceeds_refundable", "amount_exceeds_payment", "no_limit_for_currency", "amount_exceeds_ceiling",
        "within_own_authority",
    ]  # fmt: skip
    assert inputs(decision, "amount_exceeds_refundable") == {
        "captured": inr("4000.00"), "refunded": inr("0.00"), "amount_due": inr("2000.00"), "refunds": [],
        "max_excess": inr("2000.00"), "requested": inr("2000.00"),
    }  # fmt: skip
    assert inputs(decision, "policy_stale") == {
        "pinned": 4, "registry_current": 4, "doc": "POL-REF-004", "stale_cited": []
    }  # fmt: skip
    assert inputs(decision, "order_not_yours") == {"order_customer": "cust_5521", "actor": "cust_5521"}
    assert decision.facts["payments"][1] == {
        "payment_id": "pay_9002", "state": "captured", "amount": inr("2000.00"), "captured_at": "2026-11-20T09:30:00Z"
    }  # fmt: skip
    json.dumps([c.wire() for c in decision.checks])


@pytest.mark.parametrize(
    ("used", "rule"),
    [
        ({"customer_day": (2, 0)}, "refund_within_own_authority"),
        ({"customer_day": (3, 0)}, "customer_day_total_requires_approval"),
        ({"customer_day": (1, 490_000)}, "refund_within_own_authority"),
        ({"customer_day": (1, 490_001)}, "customer_day_total_requires_approval"),
        ({"tenant_hour": (99, 0)}, "refund_within_own_authority"),
        ({"tenant_hour": (100, 0)}, "tenant_hour_total_requires_approval"),
        ({"tenant_hour": (1, 19_990_001)}, "tenant_hour_total_requires_approval"),
        ({"agent_on_order_minor": 90_000}, "refund_within_own_authority"),
        ({"agent_on_order_minor": 90_001}, "refund_above_1000_requires_approval"),
    ],
)
def test_totals_that_cannot_be_split_send_it_to_a_person(facts: Facts, used: Json, rule: str) -> None:
    """M118: a small amount after others is as large as all of them."""
    decision = facts.decide(amount=inr("100.00"), used=UsedSoFar(**used))
    assert (decision.rule, decision.required) == (rule, 0 if rule == "refund_within_own_authority" else 1)


def test_profile_without_totals_has_none(facts: Facts) -> None:
    used = UsedSoFar(customer_day=(99, 99_999_999), tenant_hour=(9_999, 999_999_999))
    assert facts.decide(amount=inr("100.00"), used=used, scope={"aggregates": {}}).kind == "allow"


# --- what is denied, each for its own reason ---------------------------------------------------------------------

NO_WRITES: Json = {"write_tools": {}}
POLICY_NONE = PolicyState(doc="POL-REF-004", pinned=4, current=None)
USD = WriteGrant(by_currency={"USD": CurrencyRule(max_amount="5000.00", requires_approval_above="1000.00")})


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"scope": NO_WRITES}, "tool_not_in_scope"),
        ({"tool": "get_order"}, "tool_not_in_scope"),
        ({"tool": "issue_refunds"}, "tool_not_in_scope"),
        ({"qualified": False}, "route_not_qualified"),
        ({"order_id": "8473"}, "order_out_of_scope"),
        ({"closed": frozenset({"pay_9002"})}, "write_already_made"),
        ({"cited": ()}, "evidence_missing"),
        ({"cited": ("obs_1", "obs_pol9")}, "unknown_evidence"),
        ({"cited": ("obs_4",)}, "unknown_evidence"),
        ({"cited": ("obs_1", "obs_3")}, "policy_stale"),
        ({"cited": ("obs_2", "obs_3")}, "policy_stale"),
        ({"policy": POLICY_5}, "policy_stale"),
        ({"policy": POLICY_NONE}, "policy_stale"),
    ],
)
def test_proposal_that_may_not_be_is_denied_before_anything_is_read(facts: Facts, changes: Json, rule: str) -> None:
    decision = facts.decide(**changes)
    assert (decision.kind, decision.rule, decision.action_hash) == ("deny", rule, None)
    assert facts.server.calls == []


@pytest.mark.parametrize(
    ("world", "changes", "rule"),
    [
        ({"order": {"customer_id": "cust_1"}}, {}, "order_not_yours"),
        ({"payments": [paid("pay_9001")]}, {}, "payment_not_of_order"),
        ({}, {"payment_id": "pay_7"}, "payment_not_of_order"),
        ({"payments": [paid("pay_9001"), paid("pay_9002", state="disputed")]}, {}, "payment_disputed"),
        ({"payments": [paid("pay_9001"), paid("pay_9002", state="authorised")]}, {}, "payment_not_captured"),
        ({"payments": [paid("pay_9001"), paid("pay_9002", state="failed")]}, {}, "payment_not_captured"),
        ({"payments": [paid("pay_9001"), paid("pay_9002", state="odd_word")]}, {}, "payment_not_captured"),
        ({}, {"amount": {"amount": "2000.00", "currency": "USD"}}, "currency_mismatch"),
        ({"payments": [paid("pay_9001"), paid("pay_9002", currency="USD")]}, {}, "currency_mismatch"),
        ({"payments": [paid("pay_9001", currency="USD"), paid("pay_9002")]}, {}, "currency_mismatch"),
        ({"order": {"total": {"amount": "9.00", "currency": "GBP"}}}, {}, "currency_mismatch"),
        ({"refunds": [given_back("pay_9001")]}, {}, "nothing_refundable"),
        ({"refunds": [given_back("pay_9001", state="pending")]}, {}, "nothing_refundable"),
        ({"refunds": [given_back("pay_9001", state="odd_word")]}, {}, "nothing_refundable"),
        ({"payments": [paid("pay_9002")]}, {}, "nothing_refundable"),
        ({"payments": [paid("pay_9001", state="disputed"), paid("pay_9002")]}, {}, "nothing_refundable"),
        ({"refunds": [given_back("pay_9001", "0.01")]}, {}, "amount_exceeds_refundable"),
        ({}, {"amount": inr("2000.01")}, "amount_exceeds_refundable"),
        ({}, {"amount": inr("50000.00")}, "amount_exceeds_refundable"),
        ({"order": {"amount_due": inr("0.00")}}, {"amount": inr("2000.01")}, "amount_exceeds_payment"),
        (
            {"order": {"amount_due": inr("0.00")}, "refunds": [given_back("pay_9002", "1500.00")]},
            {"amount": inr("500.01")},
            "amount_exceeds_payment",
        ),
        ({}, {"scope": {"write_tools": {"issue_refund": USD}}}, "no_limit_for_currency"),
        ({}, {"used": UsedSoFar(agent_on_order_minor=300_001)}, "amount_exceeds_ceiling"),
    ],
)
def test_proposal_that_the_live_facts_do_not_bear_is_denied(
    facts: Facts, world: Json, changes: Json, rule: str
) -> None:
    facts.shows(**world)
    decision = facts.decide(**changes)
    assert (decision.kind, decision.rule, decision.action_hash) == ("deny", rule, None)
    assert {call.method for call in facts.server.calls} == {"GET"}


@pytest.mark.parametrize(
    ("world", "changes"),
    [
        ({"refunds": [given_back("pay_9001", state="failed")]}, {}),
        ({"refunds": [given_back("pay_9001", state="canceled")]}, {}),
        ({"payments": [paid("pay_9001", state="refunded"), paid("pay_9002")]}, {}),
        ({}, {"amount": inr("2000.00"), "used": UsedSoFar(agent_on_order_minor=300_000)}),
        ({}, {"cited": ("obs_1",), "evidence": (EVIDENCE[0],)}),
        ({}, {"scope": {"order_ids": None}}),
    ],
)
def test_proposal_that_the_live_facts_bear_goes_to_a_person(facts: Facts, world: Json, changes: Json) -> None:
    facts.shows(**world)
    assert facts.decide(**changes).kind == "needs_approval"


def test_order_that_does_not_exist_is_denied_and_no_outage(facts: Facts) -> None:
    facts.server.on("/v1/orders/8472", ok({"error": "order-not-found"}, 404))
    assert (facts.decide().kind, facts.decide().rule) == ("deny", "order_not_found")


@pytest.mark.parametrize("path", ["/v1/orders/8472", "/v1/payments", "/v1/refunds"])
@pytest.mark.parametrize(
    "answer", [ok({"error": "x"}, 503), raw(b""), ok({"error": "busy"}), cut({"payments": [], "refunds": []}), reset]
)
def test_facts_that_cannot_be_read_make_no_decision(facts: Facts, path: str, answer: Any) -> None:
    facts.server.on(path, answer)
    with pytest.raises(ReadFailed):
        facts.decide()


def test_business_system_that_is_gone_makes_no_decision(facts: Facts) -> None:
    backend = dataclasses.replace(facts.case().backend, url=closed_port())
    with pytest.raises(ReadFailed):
        facts.decide(backend=backend)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("intent", "deny"), ("sent", "deny"), ("unknown", "deny"), ("pending", "deny"), ("confirmed", "deny"),
        ("failed", "needs_approval"), ("refused", "needs_approval"), ("not_sent", "needs_approval"),
    ],
)  # fmt: skip
def test_write_of_ours_that_the_list_does_not_show_counts_unless_it_came_to_nothing(
    facts: Facts, state: str, kind: str
) -> None:
    decision = facts.decide(own=(own(state),))
    assert decision.kind == kind
    if kind == "deny":
        assert decision.rule == "nothing_refundable"
        assert inputs(decision, "nothing_refundable")["refunded"] == inr("2000.00")


@pytest.mark.parametrize(
    ("rule", "escalate"),
    [("policy_stale", "policy_stale"), ("route_not_qualified", "route_not_qualified"), ("evidence_missing", None)],
)
def test_denial_says_whether_a_person_must_look(facts: Facts, rule: str, escalate: str | None) -> None:
    changes: dict[str, Json] = {
        "policy_stale": {"policy": POLICY_5}, "route_not_qualified": {"qualified": False},
        "evidence_missing": {"cited": ()},
    }  # fmt: skip
    assert facts.decide(**changes[rule]).escalate == escalate


def test_dispute_goes_to_a_person(facts: Facts) -> None:
    facts.shows(payments=[paid("pay_9001"), paid("pay_9002", state="disputed")])
    assert facts.decide().escalate == "needs_a_person"


def test_cited_evidence_supplies_no_number(facts: Facts) -> None:
    """M27: whatever an observation once said, the amounts are those of this moment."""
    before = facts.decide()
    facts.shows(refunds=[given_back("pay_9001", "1500.00")])
    after = facts.decide()
    assert (before.kind, after.rule) == ("needs_approval", "amount_exceeds_refundable")
    assert inputs(after, "amount_exceeds_refundable")["max_excess"] == inr("500.00")


# --- reads -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "args", "why"),
    [
        ("get_order", {"order_id": "8472"}, None),
        ("get_order", {"order_id": "8473"}, "order_out_of_scope"),
        ("get_refund_status", {"order_id": "8472"}, "tool_not_in_scope"),
        ("issue_refund", {"order_id": "8472"}, "tool_not_in_scope"),
        ("drop_tables", {}, "unknown_tool"),
    ],
)
def test_read_is_allowed_by_scope_alone(tool: str, args: Json, why: str | None) -> None:
    assert gate.read_allowed(SCOPE, Proposal(call_id="m1.1", tool=tool, args=args)) == why


def test_no_tool_that_writes_is_unconditional() -> None:
    """M29: the gate's checks are what a conditional permission means; nothing that writes runs without them."""
    writes = [entry for entry in registry.TOOLS.values() if entry.effect.value == "write"]
    assert [(entry.name, entry.permission.value) for entry in writes] == [("issue_refund", "conditional")]
