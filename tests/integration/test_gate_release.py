"""The gate's last word before an intent: everything again, and the ticket that it alone makes (M36)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.gate_facts import KEY, NOW, POLICY_5, Facts, Json, inr, own, paid, told_by
from tools import gate
from tools.contracts import ApprovalTicket, Release, UsedSoFar, Withheld

pytestmark = pytest.mark.django_db  # reads ask the breaker first


@pytest.fixture
def facts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Facts]:
    yield from told_by(monkeypatch)


def ticket(case: gate.Case, **changes: Any) -> ApprovalTicket:
    fresh = ApprovalTicket(
        approval_id="apr_1", status="approved", action_hash=case.hash, required=1, large=False, deciders=("lead_17",),
        execute_by=NOW, deciders_permitted=True, in_time=True,
    )  # fmt: skip
    return dataclasses.replace(fresh, **changes)


def released(facts: Facts, approval: Json | None, **changes: Any) -> Release | Withheld:
    case = facts.case(**changes)
    return gate.release(case, None if approval is None else ticket(case, **approval), decision_id="d1")


def test_release_carries_exactly_the_action_that_was_approved(facts: Facts) -> None:
    release = released(facts, {})
    assert isinstance(release, Release)
    assert (release.action_hash, release.key) == (facts.case().hash, KEY)
    assert (release.approval_id, release.epoch) == ("apr_1", 7)
    assert json.loads(release.body) == {
        "order_id": "8472", "payment_id": "pay_9002", "amount": inr("2000.00"), "reason": "twice",
        "approval_id": "apr_1", "expected_refunded": inr("0.00"), "metadata": {"run_id": "run_1", "key": KEY},
    }  # fmt: skip
    assert (release.customer_limit, release.tenant_limit) == ((3, 500_000), (100, 20_000_000))


def test_release_without_a_person_names_the_gate_s_own_decision(facts: Facts) -> None:
    release = released(facts, None, amount=inr("999.00"))
    assert isinstance(release, Release)
    body = json.loads(release.body)
    assert (body["approval_id"], body["metadata"]["decision_id"]) == (None, "d1")


@pytest.mark.parametrize(
    ("approval", "changes", "kind", "rule"),
    [
        ({"action_hash": "sha256:0"}, {}, "escalate", "approval_invalid"),
        ({}, {"hashed": "sha256:0"}, "escalate", "approval_invalid"),
        ({"status": "pending"}, {}, "escalate", "approval_invalid"),
        ({"status": "rejected"}, {}, "escalate", "approval_invalid"),
        ({"in_time": False}, {}, "ask_afresh", "refund_above_1000_requires_approval"),
        ({"deciders_permitted": False}, {}, "ask_afresh", "refund_above_1000_requires_approval"),
        ({"deciders": ()}, {}, "ask_afresh", "refund_above_1000_requires_approval"),
        (None, {}, "ask_afresh", "refund_above_1000_requires_approval"),
        ({}, {"policy": POLICY_5}, "escalate", "policy_stale"),
        ({}, {"qualified": False}, "escalate", "route_not_qualified"),
        ({}, {"own": (own("sent"),)}, "denied", "nothing_refundable"),
        ({}, {"used": UsedSoFar(tenant_hour=(100, 0))}, "hold", "tenant_hour_total"),
        ({}, {"used": UsedSoFar(agent_on_order_minor=250_000)}, "ask_afresh", "refund_above_1000_requires_approval"),
    ],
)
def test_release_is_withheld_for_what_changed_since(
    facts: Facts, approval: Json | None, changes: Json, kind: str, rule: str
) -> None:
    """M36: hash, expiry, permission, policy, facts and totals, all of this moment."""
    withheld = released(facts, approval, **changes)
    assert isinstance(withheld, Withheld)
    assert (withheld.kind, withheld.rule) == (kind, rule)


def test_customer_total_is_lifted_by_a_person_and_the_tenant_total_by_nobody(facts: Facts) -> None:
    assert isinstance(released(facts, {}, used=UsedSoFar(customer_day=(3, 0))), Release)
    assert isinstance(released(facts, {}, used=UsedSoFar(tenant_hour=(100, 0))), Withheld)


def test_two_people_who_agreed_release_a_large_one_and_one_does_not(facts: Facts) -> None:
    facts.shows(order={"total": inr("9000.00"), "amount_due": inr("0.00")}, payments=[paid("pay_9002", "9000.00")])
    large = {"amount": inr("4500.00")}
    both = released(facts, {"required": 2, "large": True, "deciders": ("a", "b")}, **large)
    one = released(facts, {"required": 2, "large": True, "deciders": ("a",)}, **large)
    small = released(facts, {"deciders": ("a", "b")}, **large)
    assert (type(both), type(one), type(small)) == (Release, Withheld, Withheld)


def test_release_again_keeps_the_frozen_bytes(facts: Facts) -> None:
    case = facts.case(leave_out=KEY)
    again = gate.release_again(case, approval_id="apr_1", decision_id="d1", body='{"frozen":"bytes"}')
    assert isinstance(again, Release)
    assert (again.body, again.key) == ('{"frozen":"bytes"}', KEY)


@pytest.mark.parametrize(
    ("approval_id", "changes", "kind"),
    [
        ("apr_1", {"hashed": "sha256:0"}, "escalate"),
        (None, {}, "denied"),
        ("apr_1", {"own": (own("sent"),)}, "denied"),
    ],
)
def test_release_again_asks_everything_again(facts: Facts, approval_id: str | None, changes: Json, kind: str) -> None:
    withheld = gate.release_again(facts.case(**changes), approval_id=approval_id, decision_id="d1", body="{}")
    assert isinstance(withheld, Withheld)
    assert withheld.kind == kind
