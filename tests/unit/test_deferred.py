"""Which calls of a turn wait, and by which rule (M122): a function of the turn alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.orchestrator.people import MAX_READS, deferred
from tools.contracts import Proposal

READ, MESSAGE, ASK, PLAN, ESCALATE = "get_order", "message", "ask", "plan", "escalate"


def turn(*tools: str) -> tuple[Proposal, ...]:
    return tuple(Proposal(call_id=f"m1.{n}", tool=tool, args={}) for n, tool in enumerate(tools, start=1))


@pytest.mark.parametrize(
    ("tools", "late"),
    [
        ((READ,), {}),
        ((ASK,), {}),
        ((ESCALATE,), {}),
        ((READ, MESSAGE, PLAN), {}),
        ((MESSAGE, MESSAGE), {}),
        ((READ,) * 8, {}),
        ((READ,) * 9, {9: "too_many_reads"}),
        ((*(READ,) * 8, PLAN, MESSAGE, READ), {11: "too_many_reads"}),
        ((PLAN, PLAN), {2: "one_plan_a_turn"}),
        ((READ, ASK), {2: "stands_alone"}),
        ((ASK, READ), {1: "stands_alone"}),
        ((MESSAGE, ESCALATE), {2: "stands_alone"}),
        ((PLAN, ASK), {2: "stands_alone"}),
        ((ASK, ASK), {2: "stands_alone"}),
        ((ESCALATE, ASK), {2: "stands_alone"}),
        ((ASK, READ, ESCALATE), {1: "stands_alone", 3: "stands_alone"}),
    ],
)
def test_calls_that_wait_and_why(tools: tuple[str, ...], late: dict[int, str]) -> None:
    assert deferred(turn(*tools)) == {f"m1.{n}": rule for n, rule in late.items()}


@given(st.lists(st.sampled_from([READ, "search_policy", MESSAGE, ASK, PLAN, ESCALATE]), min_size=1, max_size=64))
def test_something_always_goes_ahead_and_never_too_much(tools: list[str]) -> None:
    calls = turn(*tools)
    late = deferred(calls)
    ahead = [p.tool for p in calls if p.call_id not in late]
    assert ahead
    assert sum(tool in (READ, "search_policy") for tool in ahead) <= MAX_READS
    assert ahead.count(PLAN) <= 1
    assert len(ahead) == 1 or not {ASK, ESCALATE} & set(ahead)
    assert deferred(tuple(p for p in calls if p.call_id not in late)) == {}
