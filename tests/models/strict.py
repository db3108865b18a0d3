"""Why a real provider would answer 400 to a request: its rules about roles, calls and results, as strictly as it keeps
them. Written from the providers' own rules and error messages, and knows nothing of how our requests are made."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

Json = dict[str, Any]
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ANY_ID = re.compile(r"[a-z0-9]{9}")
"""What even the strictest of providers takes as the id of a call."""
MAX_MARKS = 4


class Wrong(Exception):
    """What such a provider says."""


def wrong(provider: str, body: Json) -> str:
    """The first fault of a request to this provider; "" where there is none."""
    try:
        CHECKS[provider](json.loads(json.dumps(body)))
    except Wrong as fault:
        return str(fault)
    return ""


def _must(holds: object, words: str) -> None:
    if not holds:
        raise Wrong(words)


# --- OpenAI --------------------------------------------------------------------------------------------------------


def openai(body: Json) -> None:
    """Each message with tool_calls is followed by exactly one tool message for each of them, before anything else."""
    messages = body["messages"]
    offered = [t["function"]["name"] for t in body.get("tools", []) if t["type"] == "function"]
    _must("tools" not in body or offered, "tools is an empty array")
    _must(messages and messages[0]["role"] == "system", "the first message is the system's")
    owed: list[str] = []
    known: set[str] = set()
    for number, message in enumerate(messages):
        where, role = f"messages[{number}]", message["role"]
        if role == "tool":
            theirs = message["tool_call_id"]
            _must(theirs in owed, f"{where}: a tool message without a preceding tool_call {theirs}")
            owed.remove(theirs)
            _text(message["content"], where)
            continue
        _must(not owed, f"{where}: tool_call_ids did not have response messages: {owed}")
        _must(role in ("user", "assistant") or (role == "system" and number == 0), f"{where}: role {role}")
        if role != "assistant":
            _text(message["content"], where)
            _must(number == 0 or role != messages[number - 1]["role"], f"{where}: roles must alternate")
            continue
        _must(messages[number - 1]["role"] != "assistant", f"{where}: roles must alternate")
        owed = _openai_calls(message, where)
        _must(known.isdisjoint(owed), f"{where}: an id of a call twice")
        known |= set(owed)
        _must(not owed or offered, f"{where}: tool_calls, and no tools")
    _must(not owed, f"tool_call_ids did not have response messages: {owed}")
    _must(messages[-1]["role"] in ("user", "tool"), "the last message is for the model")


def _openai_calls(message: Json, where: str) -> list[str]:
    calls = message.get("tool_calls")
    _must(calls is None or calls, f"{where}: tool_calls is an empty array")
    _must(calls or message.get("content"), f"{where}: neither content nor tool_calls")
    for call in calls or ():
        _must(call["type"] == "function" and NAME.fullmatch(call["function"]["name"]), f"{where}: no function")
        _must(isinstance(json.loads(call["function"]["arguments"]), dict), f"{where}: arguments are no object")
        _must(ANY_ID.fullmatch(call["id"]), f"{where}: id {call['id']}")
    ids = [call["id"] for call in calls or ()]
    _must(len(ids) == len(set(ids)), f"{where}: an id of a call twice")
    return ids


def mistral(body: Json) -> None:
    """OpenAI's rules, and no message of the user right after a result."""
    openai(body)
    roles = [m["role"] for m in body["messages"]]
    for pair in pairwise(roles):
        _must(pair != ("tool", "user"), "unexpected role 'user' after role 'tool'")


def _text(content: Any, where: str) -> None:
    _must(isinstance(content, str) and content.strip(), f"{where}: no content")


# --- Anthropic -----------------------------------------------------------------------------------------------------


def anthropic(body: Json) -> None:
    """Results stand in the message right after their calls, before any text of it, each once."""
    _head(body)
    offered = body.get("tools", [])
    _must("tools" not in body or offered, "tools is empty")
    _must(all(t["input_schema"]["type"] == "object" for t in offered), "tools: input_schema")
    owed: list[str] = []
    known: set[str] = set()
    for number, message in enumerate(body["messages"]):
        where = f"messages.{number}"
        _must(message["role"] == ("assistant" if number % 2 else "user"), f"{where}: roles must alternate")
        _must(message["content"], f"{where}: no content")
        results = [b["tool_use_id"] for b in message["content"] if b["type"] == "tool_result"]
        _must(sorted(results) == sorted(owed), f"{where}: tool_use {owed} and tool_result {results}")
        kinds = [block["type"] for block in message["content"]]
        _must("tool_result" not in kinds[len(results) :], f"{where}: tool_result blocks come first")
        owed = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        _must(not owed or (message["role"] == "assistant" and offered), f"{where}: tool_use, and no tools")
        _must(len(set(owed)) == len(owed) and known.isdisjoint(owed), f"{where}: tool_use ids must be unique")
        known |= set(owed)
        for block in message["content"]:
            _block(block, where)
    _must(not owed and body["messages"][-1]["role"] == "user", "the last message is for the model")
    _must(json.dumps(body).count('"cache_control"') <= MAX_MARKS, "more than four cache marks")


def anthropic_text(body: Json) -> None:
    """Nothing but text, and no tools, which an intermediary would drop."""
    anthropic(body)
    _must("tools" not in body, "tools")
    kinds = {block["type"] for message in body["messages"] for block in message["content"]}
    _must(kinds == {"text"}, f"blocks {kinds}")


def _head(body: Json) -> None:
    _must(type(body.get("max_tokens")) is int and body["max_tokens"] > 0, "max_tokens")
    _must(body["messages"], "no messages")
    for block in body.get("system", []):
        _block(block, "system")


def _block(block: Json, where: str) -> None:
    kind = block["type"]
    _must(kind in ("text", "tool_use", "tool_result"), f"{where}: block {kind}")
    if kind == "text":
        _text(block["text"], where)
    elif kind == "tool_result":
        _text(block["content"], where)
    else:
        _must(isinstance(block["input"], dict) and NAME.fullmatch(block["name"]), f"{where}: tool_use")
        _must(ANY_ID.fullmatch(block["id"]), f"{where}: id {block['id']}")


CHECKS: dict[str, Callable[[Json], None]] = {
    "openai": openai, "mistral": mistral, "anthropic": anthropic, "anthropic_xml": anthropic_text,
}  # fmt: skip
