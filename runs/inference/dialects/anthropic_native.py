"""Anthropic's messages with tool use of its own, JSON or a stream.

A paper: imports no client, clock, Django or zone.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from runs.contracts import LLMTurnResult, NativeCall, Prompt, ShownTurn, ToolSchema
from runs.errors import ModelUnavailable
from runs.inference.dialects.answers import MAX_COUNT, arguments, loads, number, part, parts, reported, word
from runs.inference.dialects.dialect import (
    Asked,
    Counts,
    Dialect,
    Faulty,
    by_text,
    call_id,
    spoken_args,
    system_of,
)
from tools.contracts import Json

HOME = "https://api.anthropic.com"
VERSION = "2023-06-01"
CACHED: Json = {"cache_control": {"type": "ephemeral"}}
FINISHES = {
    "end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_calls", "max_tokens": "length",
    "model_context_window_exceeded": "length", "refusal": "refusal",
}  # fmt: skip
# Where a fold keeps the arguments that came in pieces: our own field, which no block off the wire may have.
FOLDED = "input_json"
# What may grow in a block of a stream: delta type to its field and the block's field.
DELTAS = {
    "text_delta": ("text", "text"), "input_json_delta": ("partial_json", FOLDED),
    "thinking_delta": ("thinking", "thinking"), "signature_delta": ("signature", "signature"),
}  # fmt: skip
GROWS = {"text": {"text"}, "tool_use": {FOLDED}, "thinking": {"thinking", "signature"}}


# --- asking ------------------------------------------------------------------------------------------------------


def endpoint(base: str) -> str:
    """A base with or without its `/v1`."""
    return f"{base.rstrip('/').removesuffix('/v1')}/v1/messages"


def headers(key: str) -> dict[str, str]:
    return {"anthropic-version": VERSION, **({"x-api-key": key} if key else {})}


def body(asked: Asked) -> Json:
    """The request, marked for the provider's cache: tools, system, and all of the past that stays as it is."""
    tools = [_tool(tool) for tool in asked.prompt.tools]
    if tools:
        tools[-1] |= CACHED
    turned = _messages(by_text(asked.prompt))
    return {**_plain(asked, turned, native=True), **({"tools": tools} if tools else {})}


def text_body(asked: Asked) -> Json:
    """The request without its tools, the past told in words."""
    pieces = [piece for turn in asked.prompt.turns for piece in turn.pieces]
    return _plain(asked, [_user(_text(asked.prompt.goal), *map(_text, pieces))], native=False)


def _plain(asked: Asked, messages: list[Json], *, native: bool) -> Json:
    system = {"type": "text", "text": system_of(asked.prompt, native=native), **CACHED}
    messages[-1]["content"][-1] |= CACHED
    if asked.prompt.snapshot:
        messages[-1]["content"].append(_text(asked.prompt.snapshot))
    more: Json = {"stream": True} if asked.stream else {}
    return {
        "model": asked.model, "max_tokens": asked.max_output_tokens, "system": [system] if system["text"] else [],
        "messages": messages, **more,
    }  # fmt: skip


def _messages(prompt: Prompt) -> list[Json]:
    """The goal, then each turn's calls and, in the next message, first their results, then what stood beside them."""
    messages = [_user(_text(prompt.goal))]
    for turn in prompt.turns:
        if turn.calls:
            messages += _calls_and_results(turn, prompt.tools)
        messages[-1]["content"] += [_text(f"{note}\n") for note in turn.notes]
    return messages


def _calls_and_results(turn: ShownTurn, tools: tuple[ToolSchema, ...]) -> list[Json]:
    calls, results = list[Json](), list[Json]()
    for nth, call in enumerate(turn.calls, start=1):
        theirs = call_id(turn.number, nth)
        calls.append({"type": "tool_use", "id": theirs, "name": call.tool, "input": spoken_args(call, tools)})
        results.append({"type": "tool_result", "tool_use_id": theirs, "content": call.result})
    return [{"role": "assistant", "content": calls}, _user(*results)]


def _user(*blocks: Json) -> Json:
    return {"role": "user", "content": list(blocks)}


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _tool(tool: ToolSchema) -> Json:
    return {"name": tool.name, "description": tool.summary, "input_schema": tool.parameters}


# --- reading -----------------------------------------------------------------------------------------------------


def read(answer: Json) -> LLMTurnResult:
    """The turn of a whole answer. Blocks of tools that the provider ran itself are no calls of ours: passed over.

    Raises Faulty, and ModelUnavailable for an object that is no message.
    """
    if "content" not in answer:
        raise ModelUnavailable("not_an_answer")
    blocks, used = parts(answer, "content"), counts(part(answer, "usage"))
    if not all(isinstance(block.get("type"), str) for block in blocks):
        raise Faulty("invalid_answer")
    return LLMTurnResult(
        text=_joined(blocks, "text"), thinking=_joined(blocks, "thinking"), model=word(answer, "model"), native=True,
        calls=tuple(_call(block) for block in blocks if block["type"] == "tool_use"),
        finish_reason=FINISHES.get(word(answer, "stop_reason"), "unfinished"),
        input_tokens=used.input, output_tokens=used.output, cached_tokens=used.cached,
    )  # fmt: skip


def counts(usage: Json) -> Counts:
    """The tokens an answer's usage names."""
    cached = number(usage, "cache_read_input_tokens")
    # This provider counts what it read from its cache, or wrote to it, beside the input.
    asked = number(usage, "input_tokens") + cached + number(usage, "cache_creation_input_tokens")
    return Counts(input=min(asked, MAX_COUNT), output=number(usage, "output_tokens"), cached=cached)


def check(answer: Json) -> None:
    """Raises Faulty for an answer off the wire with a block that gives its arguments in our fold's own field."""
    for block in parts(answer, "content"):
        _off_the_wire(block)


def _off_the_wire(block: Json) -> Json:
    if FOLDED in block:
        raise Faulty("invalid_answer")
    return block


def as_text(turn: LLMTurnResult) -> LLMTurnResult:
    """The same turn, its text read by the JSON contract."""
    return replace(turn, native=False)


def _joined(blocks: list[Json], kind: str) -> str:
    return "".join(word(block, kind) for block in blocks if block["type"] == kind)


def _call(block: Json) -> NativeCall:
    streamed = block.get(FOLDED)
    given = streamed if isinstance(streamed, str) else arguments(_no_text(block.get("input")))
    return NativeCall(theirs=word(block, "id"), name=word(block, "name"), arguments=given)


def _no_text(value: Any) -> Any:
    """An input that is a text is not read as JSON a second time: it stays a text, which is no set of arguments."""
    if isinstance(value, str):
        raise Faulty("invalid_answer")
    return value


# --- a stream ----------------------------------------------------------------------------------------------------


class _Block:
    """One block whose pieces are still coming."""

    def __init__(self, start: Json) -> None:
        self.start, self.open = _off_the_wire(start), True
        self.pieces: dict[str, list[str]] = {}

    def grow(self, field: str, piece: str) -> None:
        if not self.open or field not in GROWS.get(str(self.start.get("type")), ()):
            raise Faulty("invalid_answer")
        self.pieces.setdefault(field, []).append(piece)

    def said(self) -> str:
        given = [json.dumps(self.start[name]) for name in ("text", "thinking", "input") if self.start.get(name)]
        return "".join([*given, *(piece for pieces in self.pieces.values() for piece in pieces)])

    def wire(self) -> Json:
        grown = {field: f"{word(self.start, field)}{''.join(pieces)}" for field, pieces in self.pieces.items()}
        # A call without arguments streams one empty piece: then what it started with stands.
        whole = {field: text for field, text in grown.items() if text}
        if FOLDED in whole and self.start.get("input"):
            raise Faulty("ambiguous_calls")
        return {**self.start, **whole}


class Stream:
    """Events of one message put together. An event or delta of an unknown type is passed over, as the provider asks."""

    def __init__(self) -> None:
        self.ended = False
        self._message: Json | None = None
        self._usage: Json = {}
        self._end: Json = {}
        self._blocks: dict[int, _Block] = {}

    @property
    def usage(self) -> Json:
        # The start names a first token or two as the output: only the end counts them.
        return self._usage if self._end.get("stop_reason") else {**self._usage, "output_tokens": None}

    def said(self) -> str:
        return "".join(block.said() for block in self._blocks.values())

    def spoken(self) -> tuple[str, str]:
        return self._grown_so_far("thinking"), self._grown_so_far("text")

    def _grown_so_far(self, field: str) -> str:
        return "".join(piece for block in self._blocks.values() for piece in block.pieces.get(field, ()))

    def take(self, data: str) -> None:
        event = loads(data)
        reported(event)
        handlers = {
            "message_start": self._started, "content_block_start": self._block_started,
            "content_block_delta": self._grown, "content_block_stop": self._block_stopped,
            "message_delta": self._ending, "message_stop": self._stopped,
        }  # fmt: skip
        kind = word(event, "type")
        if kind in handlers:
            handlers[kind](event)

    def whole(self) -> Json:
        if not self.ended or self._message is None or not self._end.get("stop_reason"):
            raise ModelUnavailable("stream_cut")
        if any(block.open for block in self._blocks.values()):
            raise ModelUnavailable("stream_cut")
        content = [self._blocks[index].wire() for index in sorted(self._blocks)]
        return {**self._message, **self._end, "content": content, "usage": self._usage}

    def _started(self, event: Json) -> None:
        if self._message is not None:
            raise Faulty("invalid_answer")
        self._message = part(event, "message")
        self._usage = part(self._message, "usage")

    def _block_started(self, event: Json) -> None:
        index = _index(event)
        self._not_after_the_end()
        if self._message is None:
            raise Faulty("invalid_answer")
        if index in self._blocks:
            raise Faulty("ambiguous_calls")
        self._blocks[index] = _Block(part(event, "content_block"))

    def _grown(self, event: Json) -> None:
        self._not_after_the_end()
        delta, block = part(event, "delta"), self._block(event)
        field, grows = DELTAS.get(word(delta, "type"), ("", ""))
        if field:
            block.grow(grows, word(delta, field))
        elif block.start.get("type") == "tool_use":
            raise Faulty("invalid_answer")  # a call with a piece nobody here can read is no call

    def _block_stopped(self, event: Json) -> None:
        self._block(event).open = False

    def _ending(self, event: Json) -> None:
        delta = part(event, "delta")
        stop, model = word(delta, "stop_reason"), word(delta, "model")
        if stop and self._end.get("stop_reason", stop) != stop:
            raise Faulty("invalid_answer")
        if model and model != word(self._message or {}, "model"):
            raise Faulty("invalid_answer")
        # A later null or empty word takes nothing back.
        self._end = {**self._end, **{name: value for name, value in delta.items() if value not in (None, "")}}
        self._usage = {**self._usage, **{k: v for k, v in part(event, "usage").items() if v is not None}}

    def _stopped(self, event: Json) -> None:
        self.ended = True

    def _not_after_the_end(self) -> None:
        """More of an answer that had said why it ended is no answer."""
        if self._end.get("stop_reason"):
            raise Faulty("invalid_answer")

    def _block(self, event: Json) -> _Block:
        block = self._blocks.get(_index(event))
        if block is None:
            raise Faulty("ambiguous_calls")
        return block


def _index(event: Json) -> int:
    index = event.get("index")
    if type(index) is not int:
        raise Faulty("invalid_answer")
    return index


DIALECT = Dialect(
    home=HOME, endpoint=endpoint, headers=headers, body=body, fold=Stream, read=read, counts=counts, check=check
)
