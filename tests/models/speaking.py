"""Says one neutral turn in a provider's JSON and as its stream of events: what fake servers and unit tests send."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
OPENAI, ANTHROPIC, ANTHROPIC_XML = "openai", "anthropic", "anthropic_xml"
PROVIDERS = (OPENAI, ANTHROPIC, ANTHROPIC_XML)
# Our finish to the provider's word for it.
SAID = {
    OPENAI: {"stop": "stop", "tool_calls": "tool_calls", "length": "length", "content_filter": "content_filter",
             "refusal": "stop"},
    ANTHROPIC: {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "refusal": "refusal",
                "content_filter": "refusal"},
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a model says. A call is (their id, name, JSON text of the arguments)."""

    text: str | None = None
    calls: tuple[tuple[str, str, str], ...] = ()
    finish: str = "stop"
    thinking: str = ""
    model: str = "m-2026"
    usage: tuple[int, int, int] = (100, 20, 60)
    """input in all, output, of the input from the provider's cache"""


def answer(provider: str, said: Said) -> Json:
    """The whole answer as JSON."""
    return _completion(said) if provider == OPENAI else _message(said)


def events(provider: str, document: Json) -> list[str]:
    """The same answer as the events of its stream, one text each, without the blank line that ends it."""
    return list(_chunks(document) if provider == OPENAI else _message_events(document))


def stream(provider: str, document: Json) -> bytes:
    return "".join(f"{event}\n\n" for event in events(provider, document)).encode()


def _completion(said: Said) -> Json:
    asked, replied, cached = said.usage
    message: Json = {"role": "assistant", "content": said.text, "refusal": None}
    if said.finish == "refusal":
        message |= {"content": None, "refusal": said.text or "No."}
    if said.thinking:
        message["reasoning_content"] = said.thinking
    if said.calls:
        message["tool_calls"] = [
            {"id": i, "type": "function", "function": {"name": name, "arguments": text}} for i, name, text in said.calls
        ]
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": said.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": SAID[OPENAI][said.finish]}],
        "usage": {"prompt_tokens": asked, "completion_tokens": replied, "total_tokens": asked + replied,
                  "prompt_tokens_details": {"cached_tokens": cached}},
    }  # fmt: skip


def _message(said: Said) -> Json:
    asked, replied, cached = said.usage
    content: list[Json] = []
    if said.thinking:
        content.append({"type": "thinking", "thinking": said.thinking, "signature": "c2ln"})
    if said.text is not None:
        content.append({"type": "text", "text": said.text})
    content += [{"type": "tool_use", "id": i, "name": name, "input": json.loads(t)} for i, name, t in said.calls]
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": said.model, "content": content,
        "stop_reason": SAID[ANTHROPIC][said.finish], "stop_sequence": None,
        "usage": {"input_tokens": asked - cached, "cache_creation_input_tokens": 0, "cache_read_input_tokens": cached,
                  "output_tokens": replied},
    }  # fmt: skip


def _pieces(text: str, size: int = 7) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]


# --- OpenAI's chunks -----------------------------------------------------------------------------------------------


def _chunks(document: Json) -> Iterator[str]:
    choice = document["choices"][0]

    def chunk(delta: Json, finish: str | None = None) -> str:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        return f"data: {json.dumps({'model': document['model'], 'choices': choices})}"

    message = choice["message"]
    yield chunk({"role": "assistant", "content": ""})
    for field in ("reasoning_content", "reasoning", "content", "refusal"):
        for piece in _pieces(message.get(field) or ""):
            yield chunk({field: piece})
    for index, call in enumerate(message.get("tool_calls") or []):
        name, text = call["function"]["name"], call["function"]["arguments"]
        first = {"index": index, "id": call["id"], "type": "function", "function": {"name": name, "arguments": ""}}
        yield chunk({"tool_calls": [first]})
        for piece in _pieces(text):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, choice["finish_reason"])
    yield f"data: {json.dumps({'model': document['model'], 'choices': [], 'usage': document['usage']})}"
    yield "data: [DONE]"


# --- Anthropic's events --------------------------------------------------------------------------------------------


def _message_events(document: Json) -> Iterator[str]:
    usage = document["usage"]
    empty: Json = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": {**usage, "output_tokens": 1}}
    yield event("message_start", message={**document, **empty})
    yield event("ping")
    for index, block in enumerate(document["content"]):
        start, deltas = _streamed(block)
        yield event("content_block_start", index=index, content_block=start)
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    end = {"stop_reason": document["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=end, usage={"output_tokens": usage["output_tokens"]})
    yield event("message_stop")


def _streamed(block: Json) -> tuple[Json, list[Json]]:
    kind = block["type"]
    if kind == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": p} for p in _pieces(block["text"])]
    if kind == "tool_use":
        text = json.dumps(block["input"]) if block["input"] else ""
        pieces = _pieces(text) or [""]
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": p} for p in pieces]
    if kind == "thinking":
        thoughts = [{"type": "thinking_delta", "thinking": p} for p in _pieces(block["thinking"])]
        signed = {"type": "signature_delta", "signature": block["signature"]}
        return {"type": "thinking", "thinking": "", "signature": ""}, [*thoughts, signed]
    return block, []


def event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}"
