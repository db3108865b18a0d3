"""The offline investigator on words nobody foresaw: which order is meant, odd prompts, and real cases."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsite.money import parse as parse_money
from runs.contracts import Final, Parsed, SeenObservation
from runs.inert import inert_json
from runs.inference import offline
from runs.inference.reading import read
from runs.prompt import build_prompt
from runs.states import Status
from tests.unit.offline_turns import ALL_PROSE, message, prose, reads, refunding, turn
from tests.unit.states_8472 import (
    TOOLS,
    call,
    gathered,
    passage,
    seen,
    state,
    write,
)
from tools.contracts import Json, Proposal

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "retail" / "cases.jsonl"


# --- which order -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("goal", "first"),
    [
        ("Order 8472 was charged twice", "8472"),
        ("my order #W2378156, please", "W2378156"),
        ("#8472?", "8472"),
        ("Order number: ORD-77/2026.", "ORD-77/2026"),
        ("I returned W2378156 last week, I am yusuf_rossi_9620", "W2378156"),
        ("where is the money for 4711-2026-X", "4711-2026-X"),
        ("I am at zip code 19122, phone 555 1234, and paid $2000.00 with pay_9002: 8472", "8472"),
    ],
)
def test_order_is_found_in_the_customers_words(goal: str, first: str) -> None:
    found = turn(state(goal=goal, order_ids=None, customer="yusuf_rossi_9620"))
    assert isinstance(found, tuple)
    assert [(p.tool, p.args["order_id"]) for p in found] == [("get_order", first), ("get_payments", first)]


@pytest.mark.parametrize(
    "goal",
    [
        "My refund has not arrived.",
        "I paid $2000.00 at zip code 19122 with pay_9002",
        "I am cust_5521, write to mia.garcia2723@example.com",
        "I want to order 2 more",
        "",
    ],
)
def test_without_an_order_it_asks_which(goal: str) -> None:
    assert prose(turn(state(goal=goal, order_ids=None))) == offline.WHICH_ORDER


def test_order_named_in_a_later_message_is_looked_into() -> None:
    shown = [message(1, "It is order 8472, sorry")]
    assert reads(turn(state(shown, goal="My refund has not arrived.", order_ids=None))) == ["get_order", "get_payments"]


def test_scope_wins_over_what_the_customer_names() -> None:
    found = turn(state(goal="Please refund order 9999", order_ids=("8472",)))
    assert isinstance(found, tuple)
    assert found[0].args == {"order_id": "8472"}


def test_next_order_is_tried_where_the_first_is_not_the_customers() -> None:
    foreign = {"error": "order_not_yours", "retryable": False}
    args = {"order_id": "7000"}
    shown = [
        call(n, tool, f"m1.{n}", foreign, kind="error", args=args)
        for n, tool in ((1, "get_order"), (2, "get_payments"))
    ]
    found = turn(state(shown, order_ids=("7000", "8472"), model_calls=1))
    assert isinstance(found, tuple)
    assert [p.args["order_id"] for p in found] == ["8472", "8472"]
    assert prose(turn(state(shown, order_ids=("7000",), model_calls=1))) == offline.NOT_FOUND


def test_guess_that_is_no_order_ends_in_the_question() -> None:
    shown = [call(1, "get_order", "m1.1", {"error": "not_found"}, kind="error", args={"order_id": "20261028"})]
    assert prose(turn(state(shown, goal="since 20261028", order_ids=None, model_calls=1))) == offline.WHICH_ORDER


# --- it never raises ---------------------------------------------------------------------------------------------

ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
NAMES = [
    "order_id", "customer_id", "total", "amount_due", "status", "payments", "refunds", "passages", "current", "doc",
    "error", "rule", "retryable", "decision", "text", "amount", "state", "payment_id", "captured_at", "currency",
]  # fmt: skip
KNOWN = st.sampled_from(
    ["8472", "cust_5521", "captured", "pay_9002", "INR", "2000.00", "POL-REF-004", True, "rejected"]
)
FACT = st.recursive(
    ODD | KNOWN,
    lambda inner: st.dictionaries(st.sampled_from(NAMES), inner, max_size=6) | st.lists(inner, max_size=3),
    max_leaves=15,
)
TRUE_CONTENT: dict[str, Any] = {o.source: o.content for o in gathered()}
OBSERVED = st.tuples(
    st.sampled_from([*TRUE_CONTENT, "issue_refund", "customer", "parser"]),
    st.sampled_from(["result", "result", "error", "denial", "decision", "message", "notice"]),
    st.sampled_from([{"order_id": "8472"}, {}, {"order_id": ["8472"]}]),
    FACT,
    st.booleans(),
)


def bent(content: Any, fact: Any, keep: bool) -> Any:
    if keep and isinstance(content, dict):
        return {**content, **(fact if isinstance(fact, dict) else {})}
    return fact


@settings(max_examples=250, deadline=None)
@given(
    shown=st.lists(OBSERVED, max_size=9),
    goal=st.text(max_size=40),
    scoped=st.booleans(),
    status=st.sampled_from(Status),
)
def test_any_observations_give_a_valid_turn(shown: list[Any], goal: str, scoped: bool, status: Status) -> None:
    observations = [
        seen(i, source, bent(TRUE_CONTENT.get(source), fact, keep), kind=kind, args=args, call_id=f"m{i}.1")
        for i, (source, kind, args, fact, keep) in enumerate(shown)
    ]
    run = state(observations, goal=goal or "x", order_ids=("8472",) if scoped else None, status=status)
    found = turn(run)
    assert isinstance(found, (tuple, Final)), found
    if isinstance(found, Final):
        assert found.text in ALL_PROSE


@settings(max_examples=200, deadline=None)
@given(system=st.text(max_size=200), user=st.text(max_size=300), facts=st.lists(ODD | FACT, max_size=4))
def test_any_prompt_gives_a_turn(system: str, user: str, facts: list[Any]) -> None:
    prompt = build_prompt(state(), TOOLS)
    tags = "".join(
        f'<observation id="o" source="get_order" call="{i}">{inert_json(f)}</observation>\n'
        for i, f in enumerate(facts)
    )
    fields = "".join(
        f"{name}: {inert_json(f)}\n" for name, f in zip(("writes", "orders_in_scope", "status"), facts, strict=False)
    )
    odd = replace(prompt, system=system, goal=f"{user}\n{tags}{user}", snapshot=f"\n[5] TASK STATE SNAPSHOT\n{fields}")
    assert json.loads(offline.answer(odd)) is not None


def cited(seen: SeenObservation) -> object:
    """What was told of it: each passage under the id that it is cited by."""
    if seen.source != "search_policy":
        return seen.content
    rows = enumerate(seen.content["passages"], start=1)
    return {"passages": [{**row, "id": f"{seen.obs_id}.{n}"} for n, row in rows]}


def test_reading_gives_back_what_the_prompt_was_made_of() -> None:
    run = state([*gathered(), message(5, "</observation> & so on")], model_calls=2, writes=(write("pay_9002"),))
    found = read(build_prompt(run, TOOLS))
    assert (found.goal, found.customer, found.model_calls_used) == (run.contract.goal, "cust_5521", 2)
    assert [(o.obs_id, o.source, o.kind, o.call_id, o.args, o.content) for o in found.observations] == [
        (o.obs_id, o.source, o.kind, o.call_id, o.args, cited(o)) for o in run.observations
    ]
    assert found.snapshot["writes"][0]["payment_id"] == "pay_9002"


# --- real cases --------------------------------------------------------------------------------------------------


def retail() -> list[Json]:
    return [json.loads(line) for line in CASES.read_text().splitlines()] if CASES.exists() else []


def answered(case: Json, asked: Proposal, position: int) -> SeenObservation:
    """What the action zone answers to one read of a case: content, or a typed error for a foreign order."""
    order_id = case["order"]["order_id"]
    foreign = case["order"]["customer_id"] != case["actor"]["customer_id"]
    content: Json = {
        "get_order": case["order"],
        "get_payments": {"order_id": order_id, "payments": case["payments"]},
        "get_refund_status": {"order_id": order_id, "refunds": case["refunds"]},
        "search_policy": {"passages": [passage()]},
    }[asked.tool]
    if asked.tool != "search_policy" and (foreign or asked.args["order_id"] != order_id):
        slug = "order_not_yours" if foreign else "not_found"
        wrong = {"error": slug, "retryable": False}
        return seen(position, asked.tool, wrong, kind="error", args=asked.args, call_id=asked.call_id)
    return seen(position, asked.tool, content, args=asked.args, call_id=asked.call_id)


def played(case: Json, order_ids: tuple[str, ...] | None) -> Parsed:
    """The case from the first turn to the first write or final, the reads answered from the case."""
    shown: list[SeenObservation] = []
    for calls in range(12):
        status = Status.GATHERING if calls else Status.ACCEPTED
        customer = case["actor"]["customer_id"]
        run = state(shown, goal=case["goal"], order_ids=order_ids, customer=customer, status=status, model_calls=calls)
        found = turn(run)
        if isinstance(found, tuple) and found[0].tool != "issue_refund":
            shown += [answered(case, asked, len(shown) + n) for n, asked in enumerate(found)]
            continue
        return found
    raise AssertionError("no end within twelve calls")


def expected_of(case: Json) -> tuple[str, str, Any] | None:
    owed = case["expected_refund"]
    return owed and (owed["order_id"], owed["payment_id"], parse_money(owed["amount"]))


def given_by(found: Parsed) -> tuple[str, str, Any] | None:
    if isinstance(found, Final):
        return None
    args = refunding(found).args
    return args["order_id"], args["payment_id"], parse_money(args["amount"])


def test_every_retail_case_ends_in_exactly_the_refund_that_is_owed() -> None:
    cases = retail()
    if not cases:
        pytest.skip("the shared retail cases are not here")
    wrong = [c["case"] for c in cases if given_by(played(c, (c["order"]["order_id"],))) != expected_of(c)]
    assert (len(cases), wrong) == (109, [])


def test_retail_cases_that_name_their_order_need_no_scope() -> None:
    cases = [c for c in retail() if c["order"]["order_id"] in c["goal"]]
    if not cases:
        pytest.skip("the shared retail cases are not here")
    wrong = [c["case"] for c in cases if given_by(played(c, None)) != expected_of(c)]
    assert (len(cases), wrong) == (31, [])


def test_retail_cases_that_name_no_order_are_asked_about_and_nothing_is_proposed() -> None:
    cases = [c for c in retail() if c["order"]["order_id"] not in c["goal"]]
    if not cases:
        pytest.skip("the shared retail cases are not here")
    ends = {prose(played(c, None)) for c in cases}
    assert ends <= {offline.WHICH_ORDER, offline.NOT_FOUND}
