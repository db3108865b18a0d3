"""What each kind of odd answer becomes: a typed error, a turn that is told it is invalid, or exactly what was said.

Every case runs through the decoder, the parser and the registry's normaliser, as in the loop. What a case becomes is
one word: `draft` or the names of the proposed tools where it counts, `told: SLUG` where the model hears of it,
`later: SLUG` or `final: SLUG` where the provider failed.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from runs.contracts import Final, Invalid, LLMTurnResult
from runs.errors import ModelError, ModelRefused
from runs.inference.dialects import BY_PROVIDER
from runs.inference.dialects.answers import decode, decode_stream
from runs.inference.parse import parse
from tests.models.speaking import ANTHROPIC, ANTHROPIC_XML, OPENAI, Json
from tests.unit.states_8472 import TOOLS
from tools import registry
from tools.errors import InvalidArguments

ARGS = {
    "order_id": "8472", "payment_id": "pay_9002", "amount": {"amount": "2000.00", "currency": "INR"},
    "reason": "duplicate_capture", "evidence": ["obs_1"],
}  # fmt: skip
REFUND = json.dumps(ARGS)
ORDER = '{"order_id": "8472"}'


def became(provider: str, body: bytes, *, streamed: bool = False) -> str:
    dialect = BY_PROVIDER[provider]
    try:
        turn = decode_stream(dialect, [body]) if streamed else decode(dialect, body)
    except ModelError as error:
        return f"{'final' if isinstance(error, ModelRefused) else 'later'}: {error.slug}"
    return judged(turn)


def judged(turn: LLMTurnResult) -> str:
    parsed = parse(turn, first_call=1, turn_number=1, tools=TOOLS)
    if isinstance(parsed, Invalid):
        return f"told: {parsed.slug}"
    if isinstance(parsed, Final):
        return "draft"
    try:
        for proposal in parsed:
            registry.normalise(proposal.tool, proposal.args)
    except InvalidArguments as error:
        return f"told: invalid_arguments {error.field}"
    return " ".join(proposal.tool for proposal in parsed)


def completion(finish: Any = "tool_calls", **message: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return json.dumps({"model": "m", "choices": [choice]}).encode()


def called(*calls: Json, finish: str = "tool_calls", **message: Any) -> bytes:
    return completion(finish, content=None, tool_calls=list(calls), **message)


def call(arguments: Any, name: Any = "issue_refund", **more: Any) -> Json:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def message(*blocks: Any, stop: Any = "tool_use") -> bytes:
    return json.dumps({"type": "message", "model": "m", "content": list(blocks), "stop_reason": stop}).encode()


def use(arguments: Any, name: Any = "issue_refund") -> Json:
    return {"type": "tool_use", "id": "t1", "name": name, "input": arguments}


# --- one call's arguments --------------------------------------------------------------------------------------------

ARGUMENTS = {
    "as_text": (REFUND, "issue_refund"),
    "as_an_object": (ARGS, "issue_refund"),
    "double_encoded": (json.dumps(REFUND), "told: invalid_output"),
    "joined": (ORDER + REFUND, "told: invalid_json"),
    "cut_short": (REFUND[:-9], "told: invalid_json"),
    "empty": ("", "told: invalid_json"),
    "null": (None, "told: invalid_output"),
    "a_list": ([ARGS], "told: invalid_output"),
    "a_number": ("3", "told: invalid_output"),
    "duplicate_keys": (REFUND.replace('"order_id"', '"order_id": "8471", "order_id"', 1), "told: invalid_json"),
    "nan": (REFUND.replace('"2000.00"', "NaN"), "told: invalid_json"),
    "infinite": (REFUND.replace('"2000.00"', "1e999"), "told: invalid_json"),
    "a_boolean_amount": ({**ARGS, "amount": True}, "told: invalid_arguments amount"),
    "a_float_amount": (
        {**ARGS, "amount": {"amount": 2000.0, "currency": "INR"}},
        "told: invalid_arguments amount.amount",
    ),
    "a_bare_number": ({**ARGS, "amount": 2000}, "told: invalid_arguments amount"),
    "other_digits": (
        {**ARGS, "amount": {"amount": "２０００.00", "currency": "INR"}},
        "told: invalid_arguments amount.amount",
    ),
    "grouped_digits": (
        {**ARGS, "amount": {"amount": "2,000", "currency": "INR"}},
        "told: invalid_arguments amount.amount",
    ),
    "nul": ({**ARGS, "reason": "a\x00b"}, "told: forbidden_characters"),
    "lone_surrogate": ({**ARGS, "reason": "\ud800"}, "told: forbidden_characters"),
    "an_absurd_integer": (REFUND.replace('"2000.00"', "9" * 5000), "told: invalid_json"),
    "an_integer_past_2_53": (REFUND.replace('"2000.00"', "9007199254740993"), "told: invalid_output"),
    "100000_brackets": ("[" * 100_000, "told: too_long"),
    "deep_brackets": ("[" * 5000 + "]" * 5000, "told: invalid_json"),
    "an_unknown_field": ({**ARGS, "approved": True}, "told: invalid_arguments approved"),
    "evidence_that_is_none": ({**ARGS, "evidence": "obs_1"}, "told: invalid_output"),
}
# Where arguments are an object by the provider's own format, a text in their place is never read as JSON.
IN_BLOCKS = {name: given for name, given in ARGUMENTS.items() if not isinstance(given[0], str)}


@pytest.mark.parametrize(("arguments", "becomes"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_of_an_openai_call(arguments: Any, becomes: str) -> None:
    assert became(OPENAI, called(call(arguments))) == becomes


@pytest.mark.parametrize(("arguments", "becomes"), IN_BLOCKS.values(), ids=IN_BLOCKS)
def test_arguments_of_an_anthropic_call(arguments: Any, becomes: str) -> None:
    assert became(ANTHROPIC, message(use(arguments))) == becomes


@pytest.mark.parametrize("arguments", [REFUND, "", "{}", json.dumps(REFUND)])
def test_text_in_place_of_an_anthropic_input_is_not_read(arguments: str) -> None:
    assert became(ANTHROPIC, message(use(arguments))) == "told: invalid_answer"


# --- calls of a turn -------------------------------------------------------------------------------------------------

READ = call(ORDER, "get_order")
OPENAI_TURNS = {
    "missing_id": (called({"type": "function", "function": READ["function"]}), "get_order"),
    "null_id": (called({**READ, "id": None}), "get_order"),
    "missing_type": (called({"id": "c1", "function": READ["function"]}), "get_order"),
    "another_type": (called({**READ, "type": "custom"}), "told: invalid_answer"),
    "missing_function": (called({"id": "c1", "type": "function"}), "told: invalid_answer"),
    "a_call_that_is_none": (completion(tool_calls=["get_order"]), "told: invalid_answer"),
    "missing_name": (called(call(ORDER, None)), "told: unknown_tool"),
    "a_name_that_is_none": (called(call(ORDER, 7)), "told: invalid_answer"),
    "a_name_with_a_prefix": (called(call(REFUND, "functions.issue_refund")), "told: unknown_tool"),
    "a_name_with_an_invisible_letter": (called(call(REFUND, "issue_refund\u200b")), "told: unknown_tool"),
    "null_content_and_no_call": (completion("stop", content=None), "told: no_usable_output"),
    "blank_content": (completion("stop", content=" \n\t"), "told: no_usable_output"),
    "absent_content": (completion("stop"), "told: no_usable_output"),
    "content_in_parts": (completion("stop", content=[{"type": "text", "text": "Thanks."}]), "draft"),
    "content_in_parts_of_no_text": (completion("stop", content=[{"type": "image_url"}]), "told: invalid_answer"),
    "a_draft": (completion("stop", content="Thank you."), "draft"),
    "a_draft_that_looks_like_a_call": (completion("stop", content=json.dumps({"tool": "issue_refund"})), "draft"),
    "tool_calls_without_one": (completion("tool_calls", content="I shall look.", tool_calls=[]),
                               "told: no_usable_output"),
    "legacy_function_call": (
        completion("function_call", content=None, function_call=READ["function"]), "get_order",
    ),
    "legacy_beside_new": (called(READ, function_call=READ["function"]), "told: ambiguous_calls"),
    "two_reads": (called(READ, call(ORDER, "get_payments", id="c2")), "get_order get_payments"),
    "two_writes": (called(call(REFUND), call(REFUND, id="c2")), "told: write_must_stand_alone"),
    "read_and_write": (called(READ, call(REFUND, id="c2")), "told: write_must_stand_alone"),
    "sixty_five_reads": (called(*[READ] * 65), "told: invalid_output"),
    "calls_that_end_with_stop": (called(READ, finish="stop"), "get_order"),
    "cut_by_length_though_parseable": (called(call(REFUND), finish="length"), "told: cut_by_length"),
    "content_filter": (called(call(REFUND), finish="content_filter"), "told: content_filtered"),
    "refusal": (completion("stop", content=None, refusal="No."), "told: refused_by_model"),
    "refusal_beside_a_call": (called(call(REFUND), refusal="No."), "told: refused_by_model"),
    "no_finish": (completion(None, content="Thank you."), "told: unfinished"),
    "an_unknown_finish": (called(call(REFUND), finish="abort"), "told: unfinished"),
    "no_choice": (b'{"model": "m", "choices": []}', "told: invalid_answer"),
    "two_choices": (
        json.dumps({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}] * 2}).encode(),
        "told: invalid_answer",
    ),
    "no_completion": (b'{"status": "ok"}', "later: not_an_answer"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "becomes"), OPENAI_TURNS.values(), ids=OPENAI_TURNS)
def test_openai_turn(body: bytes, becomes: str) -> None:
    assert became(OPENAI, body) == becomes


LOOK = use({"order_id": "8472"}, "get_order")
TEXT = {"type": "text", "text": "Thank you."}
ANTHROPIC_TURNS = {
    "missing_id": (message({k: v for k, v in LOOK.items() if k != "id"}), "get_order"),
    "missing_type": (message({k: v for k, v in LOOK.items() if k != "type"}), "told: invalid_answer"),
    "missing_name": (message(use({}, None)), "told: unknown_tool"),
    "missing_input": (message({"type": "tool_use", "id": "t", "name": "get_order"}), "told: invalid_output"),
    "a_block_that_is_none": (message("text"), "told: invalid_answer"),
    "content_that_is_text": (b'{"content": "hello", "stop_reason": "end_turn"}', "told: invalid_answer"),
    "no_block": (message(stop="end_turn"), "told: no_usable_output"),
    "blank_text": (message({"type": "text", "text": " "}, stop="end_turn"), "told: no_usable_output"),
    "null_text": (message({"type": "text", "text": None}, stop="end_turn"), "told: no_usable_output"),
    "a_draft": (message(TEXT, stop="end_turn"), "draft"),
    "thinking_alone": (message({"type": "thinking", "thinking": "Hm."}, stop="end_turn"), "told: no_usable_output"),
    "text_before_calls": (message(TEXT, LOOK), "get_order"),
    "tool_use_without_one": (message(TEXT), "told: no_usable_output"),
    "two_writes": (message(use(ARGS), use(ARGS)), "told: write_must_stand_alone"),
    "read_and_write": (message(LOOK, use(ARGS)), "told: write_must_stand_alone"),
    "cut_by_length_though_parseable": (message(use(ARGS), stop="max_tokens"), "told: cut_by_length"),
    "window_exceeded": (message(use(ARGS), stop="model_context_window_exceeded"), "told: cut_by_length"),
    "refusal": (message(TEXT, stop="refusal"), "told: refused_by_model"),
    "paused": (message(TEXT, stop="pause_turn"), "told: unfinished"),
    "no_stop_reason": (message(use(ARGS), stop=None), "told: unfinished"),
    "the_provider_s_own_tool": (message({"type": "server_tool_use", "name": "issue_refund", "input": ARGS}, TEXT,
                                        stop="end_turn"), "draft"),
    "no_message": (b'{"status": "ok"}', "later: not_an_answer"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "becomes"), ANTHROPIC_TURNS.values(), ids=ANTHROPIC_TURNS)
def test_anthropic_turn(body: bytes, becomes: str) -> None:
    assert became(ANTHROPIC, body) == becomes


def spoken(text: str, stop: str = "end_turn") -> bytes:
    return message({"type": "text", "text": text}, stop=stop)


WRITE = json.dumps({"tool": "issue_refund", "args": {k: v for k, v in ARGS.items() if k != "evidence"}})
XML_TURNS = {
    "a_call": (spoken(WRITE), "issue_refund"),
    "a_fenced_call": (spoken(f"```json\n{WRITE}\n```"), "issue_refund"),
    "a_draft": (spoken('{"final": "Thank you.", "evidence": []}'), "draft"),
    "prose": (spoken("Thank you."), "told: invalid_json"),
    "prose_around_a_call": (spoken(f"I propose {WRITE}"), "told: invalid_json"),
    "cut_by_length_though_parseable": (spoken(WRITE, stop="max_tokens"), "told: cut_by_length"),
    "a_call_of_the_provider_s_own": (message(use(ARGS)), "told: invalid_output"),
    "a_call_of_both_forms": (message({"type": "text", "text": WRITE}, use(ARGS)), "told: invalid_output"),
}


@pytest.mark.parametrize(("body", "becomes"), XML_TURNS.values(), ids=XML_TURNS)
def test_text_turn(body: bytes, becomes: str) -> None:
    assert became(ANTHROPIC_XML, body) == becomes


# --- answers that are none -------------------------------------------------------------------------------------------

NONE = {
    "html": (b"<html>sign in</html>", "later: not_json"),
    "nothing": (b"", "later: not_json"),
    "half": (b'{"choices": [{"message": {"content": "Your refund', "later: not_json"),
    "a_list": (b"[]", "later: not_json"),
    "null": (b"null", "later: not_json"),
    "100000_brackets": (b"[" * 100_000, "later: not_json"),
    "100000_objects": (b'{"a":' * 100_000, "later: not_json"),
    "no_utf8": (b"\xff\xfe\x00", "later: not_json"),
    "duplicate_keys": (b'{"choices": [], "choices": []}', "told: invalid_json"),
    "nan": (b'{"content": [], "choices": [], "x": NaN}', "told: invalid_json"),
    "an_error": (b'{"error": {"type": "overloaded_error"}}', "later: model_unavailable"),
    "an_error_of_text": (b'{"error": "model crashed"}', "later: model_unavailable"),
    "an_error_with_a_status": (b'{"error": {"code": 401, "message": "no"}}', "final: model_key_refused"),
    "a_limit": (b'{"error": {"type": "rate_limit_error"}}', "later: model_rate_limited"),
    "a_wrong_key": (b'{"type": "error", "error": {"type": "authentication_error"}}', "final: model_key_refused"),
    "a_missing_model": (b'{"error": {"type": "not_found_error"}}', "final: model_not_found"),
    "too_long_a_prompt": (b'{"error": {"code": "context_length_exceeded"}}', "final: context_too_long"),
    "an_error_of_no_words": (b'{"type": "error"}', "later: model_unavailable"),
    "megabytes": (b'{"content": [], "choices": [], "x": "' + b"x" * 400_000 + b'"}', "told: too_long"),
}


@pytest.mark.parametrize("provider", BY_PROVIDER)
@pytest.mark.parametrize(("body", "becomes"), NONE.values(), ids=NONE)
def test_answer_that_is_none(provider: str, body: bytes, becomes: str) -> None:
    assert became(provider, body) == becomes


# --- what a turn carries ---------------------------------------------------------------------------------------------


def test_evidence_is_lifted_out_of_a_native_write_and_ids_are_ours() -> None:
    turn = decode(BY_PROVIDER[OPENAI], called(call(REFUND)))
    parsed = parse(turn, first_call=1, turn_number=7, tools=TOOLS)
    assert isinstance(parsed, tuple)
    [proposal] = parsed
    assert (proposal.call_id, proposal.evidence, turn.calls[0].theirs) == ("m7.1", ("obs_1",), "c1")
    assert proposal.args == {name: value for name, value in ARGS.items() if name != "evidence"}


USAGES: list[tuple[str, Json, tuple[int, int, int]]] = [
    (OPENAI, {"prompt_tokens": 90, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 60}},
     (90, 9, 60)),
    (OPENAI, {"prompt_tokens": True, "completion_tokens": -4, "prompt_tokens_details": None}, (0, 0, 0)),
    (OPENAI, {"prompt_tokens": "90", "completion_tokens": 10**20}, (0, 10**9, 0)),
    (ANTHROPIC, {"input_tokens": 10, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 20,
                 "output_tokens": 9}, (90, 9, 60)),
    (ANTHROPIC, {}, (0, 0, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "usage", "counted"), USAGES)
def test_tokens_are_counted_whole_and_believed_only_as_counts(
    provider: str, usage: Json, counted: tuple[int, int, int]
) -> None:
    body = json.loads(completion("stop", content="Hi.") if provider == OPENAI else message(TEXT, stop="end_turn"))
    turn = decode(BY_PROVIDER[provider], json.dumps({**body, "usage": usage}).encode())
    assert (turn.input_tokens, turn.output_tokens, turn.cached_tokens) == counted


def test_answer_that_names_no_model_names_none() -> None:
    assert decode(BY_PROVIDER[ANTHROPIC], b'{"content": [], "stop_reason": "end_turn"}').model == ""


@pytest.mark.parametrize("provider", [ANTHROPIC, ANTHROPIC_XML])
def test_block_off_the_wire_with_the_field_of_our_own_fold_is_not_believed(provider: str) -> None:
    """Else one call would have two sets of arguments, of which an intermediary saw and passed the other."""
    body = message({**use({"order_id": "8472"}, "get_order"), "input_json": '{"order_id": "8471"}'})
    assert became(provider, body) == "told: invalid_answer"


@pytest.mark.parametrize(
    ("usage", "counted"),
    [({"prompt_tokens": 90, "completion_tokens": 9}, (90, 9)), ({"prompt_tokens": 90}, (90, 0)), ("lots", (0, 0))],
)
def test_tokens_of_a_broken_answer_are_known_or_estimated(usage: Any, counted: tuple[int, int]) -> None:
    body = {"choices": [{"message": {"content": 5, "reasoning": "x" * 460}}], "usage": usage}
    sent = json.dumps(body).encode()
    turn = decode(BY_PROVIDER[OPENAI], sent)
    estimated = -(-len(sent) // 4)
    assert (turn.fault, turn.input_tokens) == ("invalid_answer", counted[0]) and estimated > 115
    assert turn.output_tokens == (counted[1] or estimated)
