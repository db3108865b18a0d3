"""What each kind of odd stream becomes, in the words of `test_dialects_kinds`: pieces mixed, lost or endless."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runs.inference.dialects import BY_PROVIDER
from runs.inference.dialects.answers import decode_stream, recall
from tests.models import speaking
from tests.models.speaking import ANTHROPIC, ANTHROPIC_XML, OPENAI, Json, Said, event
from tests.unit.test_dialects_kinds import ARGUMENTS, ORDER, REFUND, became, use


def chunks(*deltas: Any, finish: str | None = "tool_calls", end: bool = True) -> bytes:
    """A stream of OpenAI's with these deltas."""
    lines = [json.dumps({"choices": [{"index": 0, "delta": d}]}) for d in deltas]
    lines += [json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})] if finish else []
    return b"".join(f"data: {line}\n\n".encode() for line in [*lines, *(["[DONE]"] if end else [])])


def piece(text: str | None = None, name: str | None = None, **more: Any) -> Json:
    function = {**({"name": name} if name else {}), **({"arguments": text} if text is not None else {})}
    return {"tool_calls": [{**more, "function": function}]}


def blocks(*inner: str, stop: str = "tool_use", end: bool = True) -> bytes:
    """A stream of Anthropic's with these events between its first and its last two."""
    first = event("message_start", message={"type": "message", "model": "m", "content": [], "usage": {}})
    last = [event("message_delta", delta={"stop_reason": stop}), event("message_stop")] if end else []
    return "".join(f"{e}\n\n" for e in [first, *inner, *last]).encode()


def call_block(index: Any, text: str, name: str = "issue_refund", *, closed: bool = True) -> str:
    start = {"type": "tool_use", "id": f"t{index}", "name": name, "input": {}}
    deltas = [text[i : i + 100] for i in range(0, len(text), 100)]
    lines = [event("content_block_start", index=index, content_block=start)]
    lines += [grown(index, "input_json_delta", partial_json=d) for d in deltas]
    return "\n\n".join([*lines, *([event("content_block_stop", index=index)] if closed else [])])


def grown(index: Any, kind: str, **delta: Any) -> str:
    return event("content_block_delta", index=index, delta={"type": kind, **delta})


# --- arguments in pieces


@pytest.mark.parametrize(("arguments", "becomes"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_of_an_openai_call_in_a_stream(arguments: Any, becomes: str) -> None:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    said = Said(calls=(("c1", "issue_refund", text),), finish="tool_calls")
    body = speaking.stream(OPENAI, speaking.answer(OPENAI, said))
    assert became(OPENAI, body, streamed=True) == becomes


@pytest.mark.parametrize(("arguments", "becomes"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_of_an_anthropic_call_in_a_stream(arguments: Any, becomes: str) -> None:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    # A call that streams no argument at all has those of its start, which are none.
    expected = "told: invalid_arguments order_id" if text == "" else becomes
    assert became(ANTHROPIC, blocks(call_block(0, text)), streamed=True) == expected


# --- whole streams

A, B = {"index": 0, "id": "a"}, {"index": 1, "id": "b"}
HALF = (ORDER[:8], ORDER[8:])
OPENAI_STREAMS = {
    "two_calls_interleaved": (
        chunks(piece(HALF[0], "get_order", **A), piece(HALF[0], "get_payments", **B), piece(HALF[1], index=0),
               piece(HALF[1], index=1)), "get_order get_payments"),
    "equal_indexes_with_ids": (
        chunks(piece(ORDER, "get_order", index=0, id="a"), piece(ORDER, "get_payments", index=0, id="b")),
        "get_order get_payments"),
    "equal_indexes_without_ids": (
        chunks(piece(ORDER, "get_order", index=0), piece(ORDER, "get_payments", index=0)), "told: ambiguous_calls"),
    "equal_indexes_of_one_name": (
        chunks(piece(ORDER, "get_order", index=0), piece(ORDER, "get_order", index=0)), "told: invalid_json"),
    "id_and_name_in_every_piece": (
        chunks(piece(HALF[0], "get_order", **A), piece(HALF[1], "get_order", **A)), "get_order"),
    "missing_index_of_one_call": (chunks(piece(HALF[0], "get_order", id="a"), piece(HALF[1])), "get_order"),
    "missing_index_with_ids": (
        chunks(piece(HALF[0], "get_order", id="a"), piece(HALF[0], "get_payments", id="b"), piece(HALF[1], id="a"),
               piece(HALF[1], id="b")), "get_order get_payments"),
    "missing_index_of_several": (
        chunks(piece(HALF[0], "get_order", id="a"), piece(HALF[0], "get_payments", id="b"), piece(HALF[1])),
        "told: ambiguous_calls"),
    "missing_index_and_no_call_yet": (chunks(piece(ORDER)), "told: ambiguous_calls"),
    "missing_id": (chunks(piece(HALF[0], "get_order", index=0), piece(HALF[1], index=0)), "get_order"),
    "null_everything": (chunks({"content": None, "tool_calls": None, "refusal": None, "function_call": None},
                               {"content": "Thank you."}, finish="stop"), "draft"),
    "a_boolean_index": (chunks(piece(ORDER, "get_order", index=True)), "told: invalid_answer"),
    "a_text_index": (chunks(piece(ORDER, "get_order", index="0")), "told: invalid_answer"),
    "another_type": (chunks(piece(ORDER, "get_order", index=0, type="custom")), "told: invalid_answer"),
    "a_whole_object_at_once": (chunks({"tool_calls": [{"index": 0, "function": {
        "name": "get_order", "arguments": {"order_id": "8472"}}}]}), "get_order"),
    "read_and_write": (chunks(piece(ORDER, "get_order", **A), piece(REFUND, "issue_refund", **B)),
                       "told: write_must_stand_alone"),
    "legacy": (chunks({"function_call": {"name": "get_order", "arguments": HALF[0]}},
                      {"function_call": {"arguments": HALF[1]}}, finish="function_call"), "get_order"),
    "refusal": (chunks({"refusal": "I "}, {"refusal": "will not."}, finish="stop"), "told: refused_by_model"),
    "content_filter": (chunks({"content": "Your"}, finish="content_filter"), "told: content_filtered"),
    "cut_by_length": (chunks(piece(REFUND, "issue_refund", **A), finish="length"), "told: cut_by_length"),
    "tool_calls_without_one": (chunks({"content": "I shall look."}), "told: no_usable_output"),
    "no_finish": (chunks(piece(REFUND, "issue_refund", **A), finish=None), "later: stream_cut"),
    "no_end": (chunks(piece(REFUND, "issue_refund", **A), end=False), "later: stream_cut"),
    "no_end_of_a_draft": (chunks({"content": "Your refund of 2,000 has been is"}, finish=None, end=False),
                          "later: stream_cut"),
    "nothing": (b"", "later: stream_cut"),
    "an_end_alone": (b"data: [DONE]\n\n", "later: stream_cut"),
    "an_end_without_its_blank_line": (chunks({"content": "Thanks."}, finish="stop").rstrip(), "later: stream_cut"),
    "an_end_of_one_line": (chunks({"content": "Thanks."}, finish="stop")[:-1], "draft"),
    "more_after_the_finish": (chunks({"content": "a"}, finish="stop", end=False) + chunks({"content": "b"}),
                              "told: invalid_answer"),
    "two_finishes": (chunks(finish="stop", end=False) + chunks(finish="length"), "told: invalid_answer"),
    "another_choice": (b'data: {"choices": [{"index": 1, "delta": {}}]}\n\n', "told: invalid_answer"),
    "two_models": (b'data: {"model": "a", "choices": []}\n\ndata: {"model": "b", "choices": []}\n\n',
                   "told: invalid_answer"),
    "an_error_inside": (chunks(piece(REFUND, "issue_refund", **A), end=False)
                        + b'data: {"error": {"code": 502, "message": "bad gateway"}}\n\n', "later: model_unavailable"),
    "a_final_error_inside": (b'data: {"error": {"type": "invalid_api_key"}}\n\n', "final: model_key_refused"),
    "garbage_inside": (b"data: {oops\n\n", "later: not_json"),
    "duplicate_keys_inside": (b'data: {"choices": [], "choices": []}\n\n', "told: invalid_json"),
    "a_page": (b"<html>\n\n<body>sign in</body>", "later: stream_cut"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "becomes"), OPENAI_STREAMS.values(), ids=OPENAI_STREAMS)
def test_openai_stream(body: bytes, becomes: str) -> None:
    assert became(OPENAI, body, streamed=True) == becomes


TEXT_START = event("content_block_start", index=0, content_block={"type": "text", "text": ""})
STOP = event("content_block_stop", index=0)


def stopping(reason: str | None) -> str:
    return event("message_delta", delta={"stop_reason": reason})


ANTHROPIC_STREAMS = {
    "two_calls": (blocks(call_block(0, ORDER, "get_order"), call_block(1, ORDER, "get_payments")),
                  "get_order get_payments"),
    "a_call_without_arguments": (blocks(call_block(0, "", "get_order")), "told: invalid_arguments order_id"),
    "a_draft": (blocks(TEXT_START, grown(0, "text_delta", text="Thanks."), STOP, stop="end_turn"), "draft"),
    "an_unknown_event": (blocks(event("surprise", index=9), TEXT_START, grown(0, "text_delta", text="Thanks."), STOP,
                                stop="end_turn"), "draft"),
    "an_unknown_delta_of_text": (blocks(TEXT_START, grown(0, "surprise"), grown(0, "text_delta", text="Thanks."), STOP,
                                        stop="end_turn"), "draft"),
    "an_unknown_delta_of_a_call": (blocks(call_block(0, REFUND, closed=False), grown(0, "surprise"), STOP),
                                   "told: invalid_answer"),
    "text_in_a_call": (blocks(call_block(0, REFUND, closed=False), grown(0, "text_delta", text="!"), STOP),
                       "told: invalid_answer"),
    "a_piece_after_the_block": (blocks(call_block(0, ORDER, "get_order"), grown(0, "input_json_delta",
                                       partial_json="x")), "told: invalid_answer"),
    "equal_indexes": (blocks(call_block(0, ORDER, "get_order"), call_block(0, REFUND)), "told: ambiguous_calls"),
    "an_index_without_a_start": (blocks(grown(3, "input_json_delta", partial_json=ORDER)), "told: ambiguous_calls"),
    "a_missing_index": (blocks(call_block(None, ORDER)), "told: invalid_answer"),
    "a_block_that_never_closes": (blocks(call_block(0, REFUND, closed=False)), "later: stream_cut"),
    "input_at_the_start_and_in_pieces": (
        blocks(event("content_block_start", index=0, content_block=use({"order_id": "8471"}, "get_order")),
               grown(0, "input_json_delta", partial_json=ORDER), STOP), "told: ambiguous_calls"),
    "input_at_the_start_alone": (
        blocks(event("content_block_start", index=0, content_block=use({"order_id": "8472"}, "get_order")), STOP),
        "get_order"),
    "cut_by_length": (blocks(call_block(0, REFUND), stop="max_tokens"), "told: cut_by_length"),
    "refusal": (blocks(TEXT_START, grown(0, "text_delta", text="No."), STOP, stop="refusal"), "told: refused_by_model"),
    "no_stop_reason": (blocks(call_block(0, REFUND), end=False) + b'data: {"type": "message_stop"}\n\n',
                       "later: stream_cut"),
    "no_end": (blocks(call_block(0, REFUND), end=False), "later: stream_cut"),
    "no_start": (b'data: {"type": "message_stop"}\n\n', "later: stream_cut"),
    "two_starts": (blocks() .replace(b"message_stop", b"ping") + blocks(), "told: invalid_answer"),
    "an_overload_inside": (blocks(call_block(0, REFUND), event("error", error={"type": "overloaded_error"})),
                           "later: model_unavailable"),
    "a_refused_key_inside": (blocks(event("error", error={"type": "authentication_error"})),
                             "final: model_key_refused"),
    "garbage_inside": (blocks("data: oops"), "later: not_json"),
    "two_stop_reasons": (blocks(call_block(0, REFUND), stopping("max_tokens")), "told: invalid_answer"),
    "one_stop_reason_twice": (blocks(call_block(0, REFUND), stopping("tool_use")), "issue_refund"),
    "a_stop_reason_then_null": (
        blocks(call_block(0, REFUND), stopping("max_tokens"), stopping(None), event("message_stop")),
        "told: cut_by_length"),
    "null_then_a_stop_reason": (blocks(call_block(0, REFUND), stopping(None)), "issue_refund"),
    "a_piece_after_the_stop_reason": (
        blocks(call_block(0, '{"order_id": "847', "get_order", closed=False), stopping("tool_use"),
               grown(0, "input_json_delta", partial_json='2"}'), STOP), "told: invalid_answer"),
    "a_block_after_the_stop_reason": (
        blocks(call_block(0, ORDER, "get_order"), stopping("tool_use"), call_block(1, ORDER, "get_payments")),
        "told: invalid_answer"),
    "a_start_with_our_own_field": (
        blocks(event("content_block_start", index=0, content_block={**use({}), "input_json": REFUND}), STOP),
        "told: invalid_answer"),
    "nothing": (b"", "later: stream_cut"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "becomes"), ANTHROPIC_STREAMS.values(), ids=ANTHROPIC_STREAMS)
def test_anthropic_stream(body: bytes, becomes: str) -> None:
    assert became(ANTHROPIC, body, streamed=True) == becomes


def test_text_dialect_reads_no_stream_on_after_its_stop_reason() -> None:
    more = grown(0, "text_delta", text="and more")
    assert became(ANTHROPIC_XML, blocks(TEXT_START, stopping("end_turn"), more, STOP), streamed=True) == (
        "told: invalid_answer"
    )


# --- tokens of a stream that breaks

HUNDRED = "x" * 400
USED = b'data: {"choices": [], "usage": {"prompt_tokens": 90, "completion_tokens": 9}}\n\n'
BROKEN = [
    (OPENAI, chunks({"content": HUNDRED}, {"tool_calls": 5}), (0, 114)),  # with the event that broke it
    (OPENAI, USED + chunks({"tool_calls": 5}), (90, 9)),
    (ANTHROPIC, blocks(TEXT_START, grown(0, "text_delta", text=HUNDRED), grown(0, "input_json_delta")), (0, 121)),
]


@pytest.mark.parametrize(("provider", "body", "counted"), BROKEN, ids=["estimated", "named", "estimated_blocks"])
def test_tokens_of_a_broken_stream_are_known_or_estimated(provider: str, body: bytes, counted: tuple[int, int]) -> None:
    turn = decode_stream(BY_PROVIDER[provider], [body])
    assert (turn.fault, turn.input_tokens, turn.output_tokens) == ("invalid_answer", *counted)
    assert recall(BY_PROVIDER[provider], turn.raw) == turn


def test_first_count_of_an_anthropic_stream_is_no_count_of_its_output() -> None:
    usage = {"input_tokens": 90, "output_tokens": 1}
    start = event("message_start", message={"type": "message", "model": "m", "usage": usage})
    events = [start, TEXT_START, grown(0, "text_delta", text=HUNDRED), grown(7, "text_delta")]
    turn = decode_stream(BY_PROVIDER[ANTHROPIC], ["".join(f"{e}\n\n" for e in events).encode()])
    assert (turn.fault, turn.input_tokens) == ("ambiguous_calls", 90) and turn.output_tokens > 100
