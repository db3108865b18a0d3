"""OpenAI's chat completions, which any compatible server speaks: calls of its own, JSON or a stream.

A paper: imports no client, clock, Django or zone.
"""

from __future__ import annotations

import re
from typing import Any

from runs.contracts import LLMTurnResult, NativeCall, Prompt, ShownTurn, ToolSchema
from runs.errors import ModelUnavailable
from runs.inert import inert_json
from runs.inference.dialects.answers import arguments, loads, number, part, parts, reported, word
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

HOME = "https://api.openai.com/v1"
END = "[DONE]"
# Compatible servers have a few words more; any other word is an answer that did not end as it should.
FINISHES = {
    "stop": "stop", "eos": "stop", "eos_token": "stop", "stop_sequence": "stop", "tool_calls": "tool_calls",
    "function_call": "tool_calls", "length": "length", "max_tokens": "length", "model_length": "length",
    "content_filter": "content_filter",
}  # fmt: skip
THOUGHTS = ("reasoning_content", "reasoning")
MOST_CALLS = 500
# Mistral's models, wherever they are served, refuse a message of the user right after a result.
NO_USER_AFTER_TOOL = re.compile(r"(mis|mix|minis|magis|codes|devs|pix|vox)tral", re.IGNORECASE)


# --- asking ------------------------------------------------------------------------------------------------------


def endpoint(base: str) -> str:
    return f"{base.rstrip('/')}/chat/completions"


def headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def body(asked: Asked) -> Json:
    """The request. A stream is asked to count its tokens, too."""
    more: Json = {"stream": True, "stream_options": {"include_usage": True}} if asked.stream else {}
    if asked.prompt.tools:
        more["tools"] = [_tool(tool) for tool in asked.prompt.tools]
    messages = _messages(by_text(asked.prompt), text_after_results=not NO_USER_AFTER_TOOL.search(asked.model))
    return {"model": asked.model, "messages": messages, "max_completion_tokens": asked.max_output_tokens, **more}


def _messages(prompt: Prompt, *, text_after_results: bool) -> list[Json]:
    """System, goal, then each turn's calls with one message for each result; what is told beside them, and the snapshot
    at the end, are the user's."""
    said: list[Json] = [{"role": "system", "content": system_of(prompt, native=True)}]
    _tell(said, prompt.goal, text_after_results)
    for turn in prompt.turns:
        if turn.calls:
            said += _calls_and_results(turn, prompt.tools)
        for note in turn.notes:
            _tell(said, f"{note}\n", text_after_results)
    _tell(said, prompt.snapshot, text_after_results)
    return said


def _tell(said: list[Json], text: str, text_after_results: bool) -> None:
    """Text for the model: joined to what is the user's already, since many servers want the roles to alternate."""
    if said[-1]["role"] == "user" or (said[-1]["role"] == "tool" and not text_after_results):
        said[-1]["content"] += text
    elif text:
        said.append({"role": "user", "content": text})


def _calls_and_results(turn: ShownTurn, tools: tuple[ToolSchema, ...]) -> list[Json]:
    ids = [call_id(turn.number, nth) for nth, _ in enumerate(turn.calls, start=1)]
    calls = [
        {"id": theirs, "type": "function",
         "function": {"name": call.tool, "arguments": inert_json(spoken_args(call, tools))}}
        for theirs, call in zip(ids, turn.calls, strict=True)
    ]  # fmt: skip
    results = [
        {"role": "tool", "tool_call_id": theirs, "content": f"{call.result}\n"}
        for theirs, call in zip(ids, turn.calls, strict=True)
    ]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def _tool(tool: ToolSchema) -> Json:
    function = {"name": tool.name, "description": tool.summary, "parameters": tool.parameters}
    return {"type": "function", "function": function}


# --- reading -----------------------------------------------------------------------------------------------------


def read(answer: Json) -> LLMTurnResult:
    """The turn of a whole answer. Raises Faulty, and ModelUnavailable for an object that is no completion."""
    if "choices" not in answer:
        raise ModelUnavailable("not_an_answer")
    choices = parts(answer, "choices")
    if len(choices) != 1:
        raise Faulty("invalid_answer")  # one was asked for: none of several is believed
    message, used = part(choices[0], "message"), counts(part(answer, "usage"))
    text, thought = content(message.get("content"))
    finish = FINISHES.get(word(choices[0], "finish_reason"), "unfinished")
    return LLMTurnResult(
        text=text, model=word(answer, "model"), native=True, calls=_calls(message),
        finish_reason="refusal" if word(message, "refusal") else finish,
        thinking=thought or word(message, *THOUGHTS),
        input_tokens=used.input, output_tokens=used.output, cached_tokens=used.cached,
    )  # fmt: skip


def counts(usage: Json) -> Counts:
    """The tokens an answer's usage names. Raises Faulty for details that are no object."""
    return Counts(
        input=number(usage, "prompt_tokens"), output=number(usage, "completion_tokens"),
        cached=number(part(usage, "prompt_tokens_details"), "cached_tokens"),
    )  # fmt: skip


def content(value: Any) -> tuple[str, str]:
    """Text and thinking in a message's content: a text, null, or a list of parts as some servers send it."""
    if value is None or isinstance(value, str):
        return value or "", ""
    text, thought = [], []
    for item in parts({"content": value}, "content"):
        if item.get("type") in ("text", "output_text"):
            text.append(word(item, "text"))
        elif item.get("type") in ("thinking", "reasoning"):
            thought.append(content(item.get("thinking") or item.get("text"))[0])
        else:
            raise Faulty("invalid_answer")
    return "".join(text), "".join(thought)


def _calls(message: Json) -> tuple[NativeCall, ...]:
    calls = [_call(item) for item in parts(message, "tool_calls")]
    legacy = message.get("function_call")
    if legacy is None:
        return tuple(calls)
    if calls:
        raise Faulty("ambiguous_calls")
    return (_function("", part(message, "function_call")),)


def _call(item: Json) -> NativeCall:
    if item.get("type") not in (None, "function") or not isinstance(item.get("function"), dict):
        raise Faulty("invalid_answer")
    return _function(word(item, "id"), item["function"])


def _function(theirs: str, function: Json) -> NativeCall:
    return NativeCall(theirs=theirs, name=word(function, "name"), arguments=arguments(function.get("arguments")))


# --- a stream ----------------------------------------------------------------------------------------------------


class _Call:
    """One call whose pieces are still coming."""

    def __init__(self, index: int | None) -> None:
        self.index, self.id, self.name = index, "", ""
        self.pieces: list[str] = []

    def wire(self) -> Json:
        function = {"name": self.name, "arguments": "".join(self.pieces)}
        return {"id": self.id, "type": "function", "function": function}


class Stream:
    """Chunks of one completion put together. Which call a piece belongs to is never guessed."""

    def __init__(self) -> None:
        self.ended = False
        self._model, self._finish = "", ""
        self.usage: Json = {}
        self._texts: dict[str, list[str]] = {"content": [], "refusal": [], "reasoning": []}
        self._calls: list[_Call] = []
        self._legacy: _Call | None = None

    def take(self, data: str) -> None:
        if data.strip() == END:
            self.ended = True
            return
        chunk = loads(data)
        reported(chunk)
        self._same_model(word(chunk, "model"))
        self.usage = part(chunk, "usage") or self.usage
        for choice in parts(chunk, "choices"):
            if choice.get("index", 0) != 0:
                raise Faulty("invalid_answer")
            self._delta(part(choice, "delta"))
            self._end_with(word(choice, "finish_reason"))

    def said(self) -> str:
        calls = [*self._calls, *([self._legacy] if self._legacy else [])]
        pieces = [piece for pieces in self._texts.values() for piece in pieces]
        return "".join([*pieces, *(piece for call in calls for piece in (call.name, *call.pieces))])

    def spoken(self) -> tuple[str, str]:
        return "".join(self._texts["reasoning"]), "".join(self._texts["content"])

    def whole(self) -> Json:
        if not self.ended or not self._finish:
            raise ModelUnavailable("stream_cut")
        message: Json = {name: "".join(pieces) for name, pieces in self._texts.items() if pieces}
        if self._calls:
            message["tool_calls"] = [call.wire() for call in self._calls]
        if self._legacy:
            message["function_call"] = self._legacy.wire()["function"]
        choice = {"index": 0, "message": message, "finish_reason": self._finish}
        return {"model": self._model, "choices": [choice], "usage": self.usage}

    def _same_model(self, model: str) -> None:
        if model and self._model not in ("", model):
            raise Faulty("invalid_answer")
        self._model = self._model or model

    def _end_with(self, finish: str) -> None:
        if finish and self._finish not in ("", finish):
            raise Faulty("invalid_answer")
        self._finish = self._finish or finish

    def _delta(self, delta: Json) -> None:
        text, thought = content(delta.get("content"))
        said = {"content": text, "refusal": word(delta, "refusal"), "reasoning": thought or word(delta, *THOUGHTS)}
        pieces, legacy = parts(delta, "tool_calls"), part(delta, "function_call")
        if self._finish and (any(said.values()) or pieces or legacy):
            raise Faulty("invalid_answer")  # more of an answer that had said that it ended
        for name, grown in said.items():
            self._texts[name] += [grown] if grown else []
        for piece in pieces:
            self._piece(self._call_of(piece), word(piece, "id"), part(piece, "function"))
        if legacy:
            self._legacy = self._legacy or _Call(None)
            self._piece(self._legacy, "", legacy)

    def _piece(self, call: _Call, theirs: str, function: Json) -> None:
        name, piece = word(function, "name"), function.get("arguments")
        if name and call.name not in ("", name):
            raise Faulty("ambiguous_calls")
        call.id, call.name = call.id or theirs, call.name or name
        if piece is not None:
            call.pieces.append(arguments(piece))

    def _call_of(self, piece: Json) -> _Call:
        """The call a piece goes on with, or a new one: by its index, by its id, and by the one call there is."""
        index, theirs, name = piece.get("index"), word(piece, "id"), word(part(piece, "function"), "name")
        if piece.get("type") not in (None, "", "function") or (index is not None and type(index) is not int):
            raise Faulty("invalid_answer")
        if index is not None:
            found = next((c for c in reversed(self._calls) if c.index == index), None)
            # Some servers give every call of a turn the same index; the id tells them apart.
            return self._new(index) if found is None or (theirs and found.id not in ("", theirs)) else found
        known = next((c for c in self._calls if theirs and c.id == theirs), None)
        if known is not None:
            return known
        if theirs or name:
            return self._new(None)
        if len(self._calls) != 1:
            raise Faulty("ambiguous_calls")
        return self._calls[0]

    def _new(self, index: int | None) -> _Call:
        if len(self._calls) == MOST_CALLS:
            raise Faulty("too_long")  # each piece is looked up among the calls so far
        self._calls.append(_Call(index))
        return self._calls[-1]


DIALECT = Dialect(home=HOME, endpoint=endpoint, headers=headers, body=body, fold=Stream, read=read, counts=counts)
