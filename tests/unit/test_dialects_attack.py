"""Dialects under attack: for any bytes a decoder gives a turn or a typed error, and never half of what was said."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runs.contracts import Final, Invalid, LLMTurnResult, NativeCall
from runs.errors import ModelError, ModelUnavailable
from runs.inference.dialects import BY_PROVIDER
from runs.inference.dialects.answers import decode, decode_stream, recall, refusal
from runs.inference.dialects.dialect import FAULTS, Asked
from runs.inference.dialects.sse import Events
from runs.inference.parse import parse
from runs.prompt import build_prompt
from tests.models import speaking
from tests.models.speaking import ANTHROPIC, OPENAI, PROVIDERS, Json, Said
from tests.unit.states_8472 import TOOLS, gathered, state

EXAMPLES = settings(max_examples=150, deadline=None)
WORDS = (
    "choices", "message", "delta", "content", "tool_calls", "function", "function_call", "arguments", "name", "id",
    "index", "type", "finish_reason", "refusal", "usage", "prompt_tokens", "error", "code", "text", "tool_use",
    "input", "content_block", "partial_json", "input_json_delta", "text_delta", "message_start", "content_block_start",
    "content_block_delta", "content_block_stop", "message_delta", "message_stop", "stop_reason", "end_turn", "stop",
    "issue_refund", "get_order", "[DONE]", "fault", "said", "invalid_json", "thinking", "model", "status", "input_json",
)  # fmt: skip
word = st.sampled_from(WORDS) | st.text(max_size=5)
leaf = st.none() | st.booleans() | st.integers(-2, 600) | st.floats(allow_nan=False) | word | st.just("\ud800\x00")
anything = st.recursive(
    leaf, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(word, inner, max_size=5), max_leaves=20
)
ARGS = {"order_id": "8472", "amount": {"amount": "2000.00", "currency": "INR"}, "evidence": ["obs_1"]}
SAID = Said(
    text="Let me look.", thinking="Hm.", calls=(("c1", "get_order", '{"order_id": "8472"}'),
    ("c2", "issue_refund", json.dumps(ARGS))), finish="tool_calls",
)  # fmt: skip


def sane(turn: LLMTurnResult, provider: str) -> None:
    """A turn as the rest of the product takes it: typed, bounded, readable again from its record."""
    parsed = parse(turn, first_call=1, turn_number=1, tools=TOOLS)
    assert isinstance(parsed, tuple | Final | Invalid)
    assert all(isinstance(c, NativeCall) and isinstance(c.arguments, str) for c in turn.calls)
    assert turn.finish_reason in ("stop", "tool_calls", "length", "content_filter", "refusal", "unfinished")
    assert turn.fault == "" or (turn.fault in FAULTS and isinstance(parsed, Invalid) and parsed.slug == turn.fault)
    assert min(turn.input_tokens, turn.output_tokens, turn.cached_tokens) >= 0
    assert turn.raw.isascii() and recall(BY_PROVIDER[provider], turn.raw) == turn


def attacked(provider: str, body: bytes) -> None:
    dialect = BY_PROVIDER[provider]
    for streamed in (False, True):
        try:
            turn = decode_stream(dialect, [body]) if streamed else decode(dialect, body)
        except ModelError as error:
            assert error.slug
        else:
            sane(turn, provider)


@pytest.mark.parametrize("provider", PROVIDERS)
@EXAMPLES
@given(body=st.binary(max_size=300))
def test_any_bytes_are_a_turn_or_a_typed_error(provider: str, body: bytes) -> None:
    attacked(provider, body)


@pytest.mark.parametrize("provider", PROVIDERS)
@EXAMPLES
@given(value=anything)
def test_any_json_is_a_turn_or_a_typed_error(provider: str, value: Any) -> None:
    attacked(provider, json.dumps(value).encode())


@pytest.mark.parametrize("provider", PROVIDERS)
@EXAMPLES
@given(values=st.lists(anything, max_size=6))
def test_any_events_are_a_turn_or_a_typed_error(provider: str, values: list[Any]) -> None:
    lines = [f"data: {json.dumps(v)}" for v in values]
    attacked(provider, "\n\n".join([*lines, "data: [DONE]", 'data: {"type": "message_stop"}', ""]).encode())


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to everything inside a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(p for key, item in inner for p in places(item, (*path, key)))]


def put(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    copy = json.loads(json.dumps(document))
    at = copy
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return copy


@pytest.mark.parametrize("provider", PROVIDERS)
@EXAMPLES
@given(data=st.data())
def test_an_answer_with_any_one_place_changed_is_a_turn_or_a_typed_error(provider: str, data: st.DataObject) -> None:
    document = speaking.answer(provider, SAID)
    path = data.draw(st.sampled_from([p for p in places(document) if p]))
    attacked(provider, json.dumps(put(document, path, data.draw(anything))).encode())


@pytest.mark.parametrize("provider", PROVIDERS)
@EXAMPLES
@given(data=st.data())
def test_a_stream_with_any_one_place_changed_is_a_turn_or_a_typed_error(provider: str, data: st.DataObject) -> None:
    events = speaking.events(provider, speaking.answer(provider, SAID))
    number = data.draw(st.integers(0, len(events) - 1))
    name, _, text = events[number].rpartition("data: ")
    document = {"it": "[DONE]"} if text == "[DONE]" else json.loads(text)
    path = data.draw(st.sampled_from([p for p in places(document) if p]))
    events[number] = f"{name}data: {json.dumps(put(document, path, data.draw(anything)))}"
    attacked(provider, "".join(f"{e}\n\n" for e in events).encode())


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_stream_cut_at_any_byte_is_no_turn(provider: str) -> None:
    body = speaking.stream(provider, speaking.answer(provider, SAID))
    whole = decode_stream(BY_PROVIDER[provider], [body])
    assert len(whole.calls) == 2
    for length in range(0, len(body) - 1, 3):
        with pytest.raises(ModelUnavailable, match="stream_cut"):
            decode_stream(BY_PROVIDER[provider], [body[:length]])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_answer_cut_at_any_byte_is_no_turn(provider: str) -> None:
    body = json.dumps(speaking.answer(provider, SAID)).encode()
    for length in range(len(body)):
        with pytest.raises(ModelUnavailable, match="not_json"):
            decode(BY_PROVIDER[provider], body[:length])


@pytest.mark.parametrize("provider", [OPENAI, ANTHROPIC])
@EXAMPLES
@given(
    text=st.text(max_size=60), sizes=st.lists(st.integers(1, 40), min_size=1), end=st.sampled_from(["\n", "\r\n", "\r"])
)
def test_any_split_of_the_bytes_and_any_line_end_is_the_same_turn(
    provider: str, text: str, sizes: list[int], end: str
) -> None:
    said = Said(**{**vars(SAID), "text": text})
    body = speaking.stream(provider, speaking.answer(provider, said))
    lines = body.replace(b"\n", end.encode())
    pieces, at = [], 0
    for size in sizes * (len(lines) // sum(sizes) + 1):
        pieces.append(lines[at : at + size])
        at += size
    assert decode_stream(BY_PROVIDER[provider], pieces) == decode_stream(BY_PROVIDER[provider], [body])


@EXAMPLES
@given(body=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200), max_size=8))
def test_events_are_the_same_for_any_split(body: bytes, cuts: list[int]) -> None:
    def read(chunks: list[bytes]) -> list[str]:
        events = Events()
        return [*(data for chunk in chunks for data in events.feed(chunk)), *events.close()]

    edges = [0, *sorted(min(c, len(body)) for c in cuts), len(body)]
    assert read([body[a:b] for a, b in pairwise(edges)]) == read([body])


EVENTS = {
    "one": (b"data: a\n\n", ["a"]),
    "several lines": (b"data: a\ndata: b\n\n", ["a\nb"]),
    "no space": (b"data:a\n\ndata:  b\n\n", ["a", " b"]),
    "comments, names and ids": (b": ping\nevent: x\nid: 7\nretry: 1\ndata: a\n\n:\n\n", ["a"]),
    "an empty field": (b"data\n\ndata:\n\n", ["", ""]),
    "a byte order mark": (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
    "every line end": (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", ["a", "b", "c"]),
    "no last blank line": (b"data: a\n\ndata: b\n", ["a", "b"]),
    "half a line": (b"data: a\n\ndata: b", ["a"]),
}


@pytest.mark.parametrize(("body", "expected"), EVENTS.values(), ids=EVENTS)
def test_events_are_read_as_the_format_says(body: bytes, expected: list[str]) -> None:
    events = Events()
    assert [*events.feed(body), *events.close()] == expected


@EXAMPLES
@given(status=st.integers(100, 599), body=st.binary(max_size=80))
def test_any_status_is_a_typed_error(status: int, body: bytes) -> None:
    error = refusal(status, body, retry_after_s=7)
    later = status in (408, 409, 425, 429) or status >= 500 or status < 200
    assert isinstance(error, ModelUnavailable) is later and error.slug.startswith(("model_", "context_"))
    assert error.retry_after_s == (7 if later else None)


@pytest.mark.parametrize("provider", PROVIDERS)
@EXAMPLES
@given(system=st.text(max_size=200), user=st.text("\ud800\x00 a<é", min_size=1, max_size=200), stream=st.booleans())
def test_any_prompt_is_a_request(provider: str, system: str, user: str, stream: bool) -> None:
    known = build_prompt(state(gathered()), TOOLS)
    prompt = replace(known, system=system, goal=user)
    body = BY_PROVIDER[provider].body(Asked(model="m", prompt=prompt, max_output_tokens=9, stream=stream))
    sent: Json = json.loads(json.dumps(body))
    first = sent["messages"][1 if provider == "openai" else 0]
    goal = first["content"] if provider == "openai" else first["content"][0]["text"]
    assert (first["role"], goal) == ("user", user) and bool(sent.get("stream")) is stream


@pytest.mark.parametrize(
    ("provider", "base", "url"),
    [
        ("openai", "https://llm.example/v1/", "https://llm.example/v1/chat/completions"),
        ("openai", BY_PROVIDER["openai"].home, "https://api.openai.com/v1/chat/completions"),
        ("anthropic", BY_PROVIDER["anthropic"].home, "https://api.anthropic.com/v1/messages"),
        ("anthropic", "http://127.0.0.1:9/v1/", "http://127.0.0.1:9/v1/messages"),
        ("anthropic_xml", "https://proxy.example/claude", "https://proxy.example/claude/v1/messages"),
    ],
)
def test_endpoint_is_found_from_a_base_url(provider: str, base: str, url: str) -> None:
    assert BY_PROVIDER[provider].endpoint(base) == url


def test_key_is_sent_as_each_provider_wants_it_and_not_at_all_where_there_is_none() -> None:
    assert BY_PROVIDER["openai"].headers("k") == {"Authorization": "Bearer k"}
    assert BY_PROVIDER["openai"].headers("") == {}
    for name in ("anthropic", "anthropic_xml"):
        assert BY_PROVIDER[name].headers("k") == {"anthropic-version": "2023-06-01", "x-api-key": "k"}
        assert BY_PROVIDER[name].headers("") == {"anthropic-version": "2023-06-01"}
