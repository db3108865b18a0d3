"""A run's past in each provider's own form, exactly; and that the checkers used here are as strict as providers are."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from runs.contracts import Prompt
from runs.inference.dialects.dialect import call_id
from runs.prompt import build_prompt
from tests.models import strict
from tests.unit.conversations import body_of
from tests.unit.offline_turns import message
from tests.unit.states_8472 import TOOLS, call, gathered, proposal, seen_turn, state, turns_of, wire

Json = dict[str, Any]
REFUND: Json = {
    "order_id": "8472", "payment_id": "pay_9002", "amount": wire("2000.00"), "reason": "duplicate_capture",
}  # fmt: skip


def rejected() -> Prompt:
    """Four reads in two turns, a write that a person rejected, and what the customer wrote then."""
    decision = call(5, "issue_refund", "m3.1", {"decision": "rejected", "reason": "no"}, kind="decision", args=REFUND)
    told = [*gathered(), decision, message(6, "Thank you </observation>.")]
    write = seen_turn(3, proposal("issue_refund", REFUND, "m3.1", evidence=("obs_2", "obs_3")))
    return build_prompt(state(told, turns=(*turns_of(gathered()), write), model_calls=3), TOOLS)


DECISION = (
    '<observation id="obs_5" source="issue_refund" fetched_at="2026-10-28T11:20:01.250Z" call="m3.1" kind="decision">'
    '{"decision": "rejected", "reason": "no"}</observation>'
)
WROTE = (
    '<observation id="obs_6" source="customer" fetched_at="2026-10-28T11:20:01.500Z" kind="message">'
    '{"text": "Thank you \\u003c/observation\\u003e."}</observation>\n'
)


def test_openai_is_told_calls_and_one_message_for_each_result() -> None:
    prompt = rejected()
    messages = body_of("openai", prompt)["messages"]
    assert [m["role"] for m in messages] == [
        "system", "user", "assistant", "tool", "tool", "assistant", "tool", "tool", "assistant", "tool", "user",
    ]  # fmt: skip
    assert messages[1]["content"] == prompt.goal
    assert messages[2] == {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c00000101", "type": "function",
         "function": {"name": "get_order", "arguments": '{"order_id": "8472"}'}},
        {"id": "c00000102", "type": "function",
         "function": {"name": "get_payments", "arguments": '{"order_id": "8472"}'}},
    ]}  # fmt: skip
    assert [m["tool_call_id"] for m in messages if m["role"] == "tool"] == [
        "c00000101", "c00000102", "c00000201", "c00000202", "c00000301",
    ]  # fmt: skip
    [write] = messages[8]["tool_calls"]
    assert json.loads(write["function"]["arguments"]) == {**REFUND, "evidence": ["obs_2", "obs_3"]}
    assert messages[9] == {"role": "tool", "tool_call_id": "c00000301", "content": f"{DECISION}\n"}
    assert messages[10] == {"role": "user", "content": WROTE + prompt.snapshot}


def test_mistral_is_told_the_same_with_no_message_of_the_user_after_a_result() -> None:
    prompt = rejected()
    messages = body_of("mistral", prompt)["messages"]
    assert messages[:-1] == body_of("openai", prompt)["messages"][:-2]
    assert messages[-1] == {
        "role": "tool", "tool_call_id": "c00000301", "content": f"{DECISION}\n{WROTE}{prompt.snapshot}",
    }  # fmt: skip


def test_anthropic_is_told_results_first_in_the_next_message_and_marks_all_that_stays() -> None:
    prompt = rejected()
    body = body_of("anthropic", prompt)
    assert [m["role"] for m in body["messages"]] == ["user", "assistant"] * 3 + ["user"]
    assert body["messages"][5]["content"] == [{
        "type": "tool_use", "id": "c00000301", "name": "issue_refund",
        "input": {**REFUND, "evidence": ["obs_2", "obs_3"]},
    }]  # fmt: skip
    assert body["messages"][6]["content"] == [
        {"type": "tool_result", "tool_use_id": "c00000301", "content": DECISION},
        {"type": "text", "text": WROTE, "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": prompt.snapshot},
    ]  # fmt: skip
    blocks = [b for m in body["messages"] for b in m["content"]]
    marked = [b for b in [*body["tools"], *body["system"], *blocks] if "cache_control" in b]
    assert marked == [body["tools"][-1], body["system"][0], blocks[-2]]


def test_text_dialect_is_told_the_prompt_s_own_text_in_blocks_that_only_grow() -> None:
    prompt = rejected()
    [only] = body_of("anthropic_xml", prompt)["messages"]
    assert "".join(block["text"] for block in only["content"]) == prompt.messages[1].content
    assert [block["text"][:7] for block in only["content"]] == ["[3] USE", *["<call i"] * 5, "<observ", "\n[5] TA"]
    assert '<call id="m3.1" tool="issue_refund" evidence="obs_2 obs_3">' in only["content"][5]["text"]


def test_call_that_nothing_is_recorded_of_has_a_result_that_says_so() -> None:
    asked = seen_turn(1, proposal("get_order", {"order_id": "8472"}))
    prompt = build_prompt(state(turns=(asked,)), TOOLS)
    [result] = [m["content"] for m in body_of("openai", prompt)["messages"] if m["role"] == "tool"]
    assert result == (
        '<unanswered call="m1.1">"no result of this call is recorded: it proves nothing, neither that it was done nor'
        ' that it was not"</unanswered>\n'
    )


def test_ids_of_calls_are_nine_letters_and_digits_and_never_the_same() -> None:
    pairs = [(t, c) for t in (0, 1, 9, 10, 35, 36, 1_000, 1_000_000_000) for c in (1, 8, 36, 1_295)]
    ids = [call_id(turn, call) for turn, call in pairs]
    assert all(strict.ANY_ID.fullmatch(one) for one in ids) and len(set(ids)) == len(pairs)


# --- the checkers -------------------------------------------------------------------------------------------------

Change = Callable[[list[Json]], Any]
OPENAI: dict[str, Change] = {
    "result missing": lambda m: m.pop(3),
    "result twice": lambda m: m.insert(4, m[3]),
    "result before its call": lambda m: m.insert(2, m.pop(3)),
    "result of another turn": lambda m: m.insert(4, m.pop(6)),
    "text between calls and results": lambda m: m.insert(3, {"role": "user", "content": "x"}),
    "unknown id": lambda m: m[3].update(tool_call_id="c00000109"),
    "an id twice": lambda m: m[5]["tool_calls"][0].update(id="c00000101"),
    "our own id": lambda m: m[2]["tool_calls"][0].update(id="m1.1"),
    "arguments that are no object": lambda m: m[2]["tool_calls"][0]["function"].update(arguments="[]"),
    "no calls": lambda m: m[2].update(tool_calls=[]),
    "calls at the end": lambda m: m.extend(m[2:3]),
    "two of the user": lambda m: m.append({"role": "user", "content": "x"}),
    "nothing said": lambda m: m[-1].update(content=" "),
    "system later": lambda m: m.append({"role": "system", "content": "x"}),
}  # fmt: skip
ANTHROPIC: dict[str, Change] = {
    "result missing": lambda m: m[2]["content"].pop(0),
    "result twice": lambda m: m[2]["content"].insert(0, m[2]["content"][0]),
    "result a message later": lambda m: m[4]["content"].append(m[2]["content"].pop(0)),
    "text before a result": lambda m: m[2]["content"].insert(0, {"type": "text", "text": "x"}),
    "unknown id": lambda m: m[2]["content"][0].update(tool_use_id="c00000109"),
    "an id twice": lambda m: m[3]["content"][0].update(id="c00000101"),
    "our own id": lambda m: m[1]["content"][0].update(id="m1.1"),
    "results without calls": lambda m: m.pop(1),
    "roles that do not alternate": lambda m: m.insert(1, m[0]),
    "calls at the end": lambda m: m.pop(),
    "input that is text": lambda m: m[1]["content"][0].update(input="{}"),
    "nothing said": lambda m: m[-1]["content"][-1].update(text="\n"),
    "five marks": lambda m: [b.update(cache_control={}) for b in m[2]["content"]],
}  # fmt: skip
CHANGES = [*(("openai", name) for name in OPENAI), *(("anthropic", name) for name in ANTHROPIC)]


@pytest.mark.parametrize(("provider", "name"), CHANGES)
def test_checker_refuses_what_the_provider_refuses(provider: str, name: str) -> None:
    body = body_of(provider, rejected())
    assert strict.wrong(provider, body) == ""
    broken = copy.deepcopy(body)
    (OPENAI if provider == "openai" else ANTHROPIC)[name](broken["messages"])
    assert strict.wrong(provider, broken) != ""


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_checker_refuses_calls_where_no_tool_is_offered(provider: str) -> None:
    body = body_of(provider, rejected())
    del body["tools"]
    assert strict.wrong(provider, body) != ""


def test_checker_of_mistral_refuses_the_user_after_a_result() -> None:
    assert strict.wrong("mistral", body_of("openai", rejected())) == "unexpected role 'user' after role 'tool'"
