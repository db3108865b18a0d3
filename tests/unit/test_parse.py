"""Model output becomes whole proposals, a draft or a typed refusal: nothing is repaired and nothing is half taken."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsite.canonical import canonical
from runs.contracts import Final, Invalid, LLMTurnResult, Parsed
from runs.inference.parse import MAX_BYTES, parse
from tests.unit.states_8472 import TOOLS, proposal, wire

READ = {"tool": "get_order", "args": {"order_id": "8472"}, "evidence": []}
ARGS = {"order_id": "8472", "payment_id": "pay_9002", "amount": wire("2000.00"), "reason": "duplicate_capture"}
WRITE = {"tool": "issue_refund", "args": ARGS, "evidence": ["obs_p1", "obs_pol1"]}
KNOWN = ["get_order", "get_payments", "get_refund_status", "search_policy", "issue_refund"]


def parsed(text: Any, *, finish: str = "stop", first: int = 1, number: int = 3) -> Parsed:
    turn = LLMTurnResult(text=text, model="m", finish_reason=finish)
    return parse(turn, first_call=first, turn_number=number, tools=TOOLS)


def said(value: Any) -> Parsed:
    return parsed(json.dumps(value))


def refused(slug: str, **detail: Any) -> Invalid:
    return Invalid(slug=slug, detail=detail)


def test_one_call_is_one_proposal() -> None:
    assert said(WRITE) == (proposal("issue_refund", ARGS, "m3.1", ("obs_p1", "obs_pol1")),)


def test_calls_of_a_list_are_numbered_from_the_first_call_on() -> None:
    found = parsed(json.dumps([READ, {"tool": "search_policy", "args": {"query": "q"}}]), first=4, number=2)
    assert found == (
        proposal("get_order", {"order_id": "8472"}, "m2.4"),
        proposal("search_policy", {"query": "q"}, "m2.5"),
    )


def test_calls_beyond_what_policy_allows_are_all_kept_up_to_the_hard_cap() -> None:
    """M122: none is dropped here; who waits is decided where each gets its result."""
    found = said([READ] * 64)
    assert isinstance(found, tuple)
    assert [p.call_id for p in found] == [f"m3.{n}" for n in range(1, 65)]


def test_final_is_a_draft() -> None:
    assert said({"final": "Thank you.", "evidence": ["obs_1"]}) == Final(text="Thank you.", evidence=("obs_1",))
    assert said({"final": "Thank you."}) == Final(text="Thank you.", evidence=())


@pytest.mark.parametrize(
    "text",
    [f"```json\n{json.dumps(READ)}\n```", f"```\n{json.dumps(READ)}```", f"  \n```JSON\r\n{json.dumps(READ)}\r\n```\n"],
)
def test_one_code_fence_around_the_value_is_taken_off(text: str) -> None:
    assert parsed(text) == (proposal("get_order", {"order_id": "8472"}, "m3.1"),)


@pytest.mark.parametrize(
    "text",
    [
        f"Here it is: {json.dumps(READ)}",
        f"{json.dumps(READ)} {json.dumps(READ)}",
        f"```json\n```json\n{json.dumps(READ)}\n```\n```",
        f"```json\n{json.dumps(READ)}\n```\n```json\n{json.dumps(WRITE)}\n```",
        "I will look into your order.",
        '{"tool": "get_order", "args": {"order_id": "8472"},}',
        "{'tool': 'get_order', 'args': {}}",
        '{"tool": "get_order", "args": {"order_id": "8472"}, "tool": "issue_refund"}',
        '{"tool": "issue_refund", "args": {"amount": NaN}}',
        '{"tool": "issue_refund", "args": {"amount": 1e999}}',
        '{"tool": "get_order", "args": ' + "[" * 40 + "]" * 40 + "}",
        '{"tool": "issue_refund", "args": {"amount": ' + "9" * 40 + "}}",
        '{"tool": "get_order", "args": {"order_id": "84',
    ],
)
def test_what_is_not_exactly_one_strict_json_value_is_invalid_json(text: str) -> None:
    found = parsed(text)
    assert isinstance(found, Invalid)
    assert (found.slug, found.detail["expected"]) == ("invalid_json", "one JSON value")


@pytest.mark.parametrize("finish", ["length", "max_tokens"])
def test_turn_cut_by_length_is_refused_whole_though_it_parses(finish: str) -> None:
    cut = {"tool": "issue_refund", "args": {**ARGS, "amount": wire("20.00")}}
    assert parsed(json.dumps(cut), finish=finish) == refused("cut_by_length")
    assert parsed(json.dumps({"final": "Your refund has been is"}), finish=finish) == refused("cut_by_length")


@pytest.mark.parametrize(
    "text", ["", "   \n\t", None, "[]", "null", '""', '{"final": ""}', '{"final": " \\n"}', "```json\n\n```"]
)
def test_turn_without_content_is_no_usable_output(text: str | None) -> None:
    assert parsed(text) == refused("no_usable_output")
    assert parsed(text, finish="tool_calls") == refused("no_usable_output")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("issue_refunds", "issue_refunds"),
        ("Issue_Refund", "Issue_Refund"),
        ("functions.issue_refund", "functions.issue_refund"),
        ("issue_refund\u200b", "issue_refund\\u200b"),
        ("issue_refund ", "issue_refund "),
        ("get_orders", "get_orders"),
        ("", ""),
        ("x" * 200, "x" * 64),
    ],
)
def test_tool_that_is_not_shown_is_unknown_and_never_matched_by_likeness(name: str, shown: str) -> None:
    assert said({"tool": name, "args": ARGS}) == refused("unknown_tool", tool=shown, known=KNOWN)
    assert said([READ, {"tool": name, "args": {}}]) == refused("unknown_tool", tool=shown, known=KNOWN)


def test_tool_of_the_registry_that_this_turn_did_not_show_is_unknown() -> None:
    turn = LLMTurnResult(text=json.dumps(WRITE), model="m")
    found = parse(turn, first_call=1, turn_number=1, tools=TOOLS[:2])
    assert found == refused("unknown_tool", tool="issue_refund", known=["get_order", "get_payments"])


@pytest.mark.parametrize("calls", [[WRITE, WRITE], [READ, WRITE], [WRITE, READ, READ]])
def test_write_must_stand_alone(calls: list[Any]) -> None:
    assert said(calls) == refused("write_must_stand_alone")


def test_write_alone_in_a_list_stands_alone() -> None:
    assert said([WRITE]) == said(WRITE)


@pytest.mark.parametrize(
    ("value", "field", "expected"),
    [
        ({"args": {}}, "tool", "required"),
        ({"tool": "get_order"}, "args", "required"),
        ({}, "tool", "required"),
        ({"tool": 7, "args": {}}, "tool", "a string"),
        ({"tool": ["get_order"], "args": {}}, "tool", "a string"),
        ({"tool": "get_order", "args": "{}"}, "args", "an object"),
        ({"tool": "get_order", "args": None}, "args", "an object"),
        ({"tool": "get_order", "args": [], "evidence": []}, "args", "an object"),
        ({**READ, "why": "x"}, "why", "no field but tool, args, evidence"),
        ({**READ, "final": "x"}, "tool", "no field but final, evidence"),
        ({"final": 5}, "final", "a string"),
        ({"final": ["x"]}, "final", "a string"),
        ({"final": "x", "tool": "issue_refund"}, "tool", "no field but final, evidence"),
        ({**READ, "evidence": "obs_1"}, "evidence", "a list of at most 20 observation ids"),
        ({**READ, "evidence": ["o"] * 21}, "evidence", "a list of at most 20 observation ids"),
        ({**READ, "evidence": ["obs 1"]}, "evidence", "observation ids"),
        ({**READ, "evidence": ["obs_1\n"]}, "evidence", "observation ids"),
        ({**READ, "evidence": [1]}, "evidence", "observation ids"),
        ({"final": "x", "evidence": None}, "evidence", "a list of at most 20 observation ids"),
        ({**WRITE, "args": {**ARGS, "evidence": "obs_1"}}, "args.evidence", "a list of at most 20 observation ids"),
        ([READ] * 65, "", "a list of at most 64 calls"),
        ([READ, {"final": "x"}], "1.tool", "required"),
        ([READ, 5], "1", "an object with tool and args, or with final"),
        ([READ, {"tool": "get_order", "args": 1}], "1.args", "an object"),
        ([[READ]], "", "an object with tool and args, or with final"),
        (5, "", "an object with tool and args, or with final"),
        ("text", "", "an object with tool and args, or with final"),
        (False, "", "an object with tool and args, or with final"),
        ({"tool": "issue_refund", "args": {"amount": 2**53}}, "", "integers below 2^53"),
        ({**READ, "x\u202e" * 60: 1}, "x\\u202e" * 9 + "x", "no field but tool, args, evidence"),
    ],
)
def test_output_of_another_shape_names_the_field_and_what_was_expected(value: Any, field: str, expected: str) -> None:
    assert said(value) == refused("invalid_output", field=field, expected=expected)


def test_arguments_are_never_coerced_or_read_out_of_a_string() -> None:
    args = {**ARGS, "amount": "2,000", "payment_id": 9002, "extra": True}
    found = said({"tool": "issue_refund", "args": args})
    assert found == (proposal("issue_refund", args, "m3.1"),)


def test_evidence_beside_a_writes_arguments_is_lifted_out_of_the_action() -> None:
    inner = {"tool": "issue_refund", "args": {**ARGS, "evidence": ["obs_2", "obs_1"]}}
    assert said(inner) == (proposal("issue_refund", ARGS, "m3.1", ("obs_2", "obs_1")),)
    both = {**inner, "evidence": ["obs_1", "obs_3"]}
    assert said(both) == (proposal("issue_refund", ARGS, "m3.1", ("obs_1", "obs_3", "obs_2")),)


def test_evidence_inside_a_reads_arguments_stays_an_argument() -> None:
    found = said({"tool": "get_order", "args": {"order_id": "8472", "evidence": ["obs_1"]}})
    assert found == (proposal("get_order", {"order_id": "8472", "evidence": ["obs_1"]}, "m3.1"),)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(READ) + "\x00",
        '{"final": "a\ud800b"}',
        '{"final": "a\\u0000b"}',
        '{"final": "a\\udc00b"}',
        '{"tool": "get_order", "args": {"a\\u0000": 1}}',
        '{"tool": "get_order", "args": {"a": [{"b": "\\ud800"}]}}',
    ],
)
def test_nul_and_lone_surrogates_are_refused_anywhere(text: str) -> None:
    assert parsed(text) == refused("forbidden_characters")


def test_whole_surrogate_pairs_are_text() -> None:
    assert parsed('{"final": "\\ud83d\\ude00"}') == Final(text="😀")


def test_text_over_64_kb_is_too_long() -> None:
    frame = len(json.dumps({"final": ""}))
    assert parsed(json.dumps({"final": "a" * (MAX_BYTES - frame)})) == Final(text="a" * (MAX_BYTES - frame))
    assert parsed(json.dumps({"final": "a" * (MAX_BYTES - frame + 1)})) == refused("too_long", max_bytes=65536)
    assert parsed("é" * 40_000) == refused("too_long", max_bytes=65536)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
ANY = st.recursive(LEAVES, lambda s: st.lists(s, max_size=3) | st.dictionaries(st.text(max_size=8), s, max_size=3))
CALL = st.fixed_dictionaries(
    {"tool": st.sampled_from([*KNOWN, "issue_refunds"]) | ANY, "args": st.dictionaries(st.text(max_size=5), ANY) | ANY},
    optional={"evidence": st.lists(st.sampled_from(["obs_1", "o b", ""])) | ANY, "final": ANY, "x": ANY},
)
SPOKEN = st.one_of(
    st.text(st.characters(exclude_categories=())),
    st.one_of(ANY, CALL, st.lists(CALL, max_size=10)).map(json.dumps),
    st.one_of(CALL, st.lists(CALL, max_size=3)).map(lambda v: f"```json\n{json.dumps(v)}\n```"),
)


@settings(max_examples=300, deadline=None)
@given(text=SPOKEN, finish=st.sampled_from(["stop", "length", "tool_calls", ""]))
def test_any_text_gives_whole_storable_proposals_or_a_refusal(text: str, finish: str) -> None:
    found = parsed(text, finish=finish)
    if isinstance(found, tuple):
        assert 1 <= len(found) <= 8
        assert [p.call_id for p in found] == [f"m3.{i}" for i in range(1, len(found) + 1)]
        assert {p.tool for p in found} <= set(KNOWN)
        assert len(found) == 1 or all(p.tool != "issue_refund" for p in found)
        assert all(canonical(p.args) for p in found)
    elif isinstance(found, Final):
        assert found.text.strip()
    else:
        assert canonical({"error": found.slug, **found.detail})


@pytest.mark.parametrize("finish", ["stop", "length"])
@settings(max_examples=60, deadline=None)
@given(cut=st.integers(min_value=0, max_value=len(json.dumps(WRITE)) - 1))
def test_proposal_cut_anywhere_is_no_proposal(finish: str, cut: int) -> None:
    assert isinstance(parsed(json.dumps(WRITE)[:cut], finish=finish), Invalid)
