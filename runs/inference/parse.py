"""Reads one model turn into proposals, a draft or a typed refusal. A paper: pure, imports no Django, zone or clock.

Strict JSON, no repair and no coercion: a turn is taken whole or not at all, so half a proposal never exists.
"""

from __future__ import annotations

import re
from typing import Any

from agentsite.canonical import NotStrictJson, canonical, strict_loads
from agentsite.text import blank, has_forbidden, visible
from runs.contracts import ID_PATTERN, Final, Invalid, LLMTurnResult, NativeCall, Parsed, ToolSchema
from tools.contracts import Json, Proposal

MAX_BYTES = 64 * 1024
MAX_CALLS = 64
"""A turn of more is no turn to work with; of what it may hold, policy lets some wait (`runs.orchestrator.people`)."""
MAX_EVIDENCE = 20
SHOWN = 64
CUT = frozenset({"length", "max_tokens"})
# A turn that ended so holds nothing to act upon, even where it parses.
ENDED_BADLY = {"content_filter": "content_filtered", "refusal": "refused_by_model", "unfinished": "unfinished"}

_FENCED = re.compile(r"```[A-Za-z0-9_-]*[ \t]*\r?\n(.*?)\r?\n?```", re.DOTALL)
_ID = re.compile(ID_PATTERN.strip("^$"))


class _Bad(Exception):
    """A turn that breaks the output contract; carries the refusal."""

    def __init__(self, invalid: Invalid) -> None:
        super().__init__(invalid.slug)
        self.invalid = invalid


def parse(turn: LLMTurnResult, *, first_call: int, turn_number: int, tools: tuple[ToolSchema, ...]) -> Parsed:
    """The turn's proposals, its draft, or Invalid; never an exception. Call ids are `m{turn_number}.{i}`, i from
    `first_call` on. Slugs: cut_by_length, content_filtered, refused_by_model, unfinished, a fault of the dialect,
    no_usable_output, too_long, forbidden_characters, invalid_json, invalid_output, unknown_tool,
    write_must_stand_alone."""
    try:
        _ended_well(turn)
        if turn.native and not turn.calls:
            return _spoken(turn)
        value = [_called(call) for call in turn.calls] if turn.native else _value(turn)
        if isinstance(value, dict) and "final" in value:
            return _final(value)
        calls = value if isinstance(value, list) else [value]
        return _proposals(calls, first_call=first_call, turn_number=turn_number, tools=tools)
    except _Bad as bad:
        return bad.invalid


def _ended_well(turn: LLMTurnResult) -> None:
    """A turn cut by length, filtered, refused or broken on its way is invalid even where it parses."""
    if turn.finish_reason in CUT:
        raise _Bad(Invalid(slug="cut_by_length"))
    if turn.fault or turn.finish_reason in ENDED_BADLY:
        raise _Bad(Invalid(slug=turn.fault or ENDED_BADLY[turn.finish_reason]))
    if turn.calls and not turn.native:
        raise _output("", "JSON text alone, no call of the provider's own")


def _spoken(turn: LLMTurnResult) -> Final:
    """Text without a call is the draft of the reply, unless the model says that it made a call."""
    if turn.finish_reason == "tool_calls":
        raise _Bad(Invalid(slug="no_usable_output"))
    return Final(text=_text(turn.text))


def _called(call: NativeCall) -> Json:
    return {"tool": call.name, "args": _json(call.arguments)}


def _value(turn: LLMTurnResult) -> Any:
    """The turn's one JSON value."""
    value = _json(_unfenced(_text(turn.text)))
    if value is None or value == [] or value == "":
        raise _Bad(Invalid(slug="no_usable_output"))
    return value


def _json(text: str) -> Any:
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise _Bad(Invalid(slug="too_long", detail={"max_bytes": MAX_BYTES}))
    try:
        value = strict_loads(text)
    except NotStrictJson as error:
        raise _Bad(Invalid(slug="invalid_json", detail={"expected": "one JSON value", "why": str(error)})) from None
    if has_forbidden(text) or _forbidden(value):
        raise _Bad(Invalid(slug="forbidden_characters"))
    _storable(value)
    return value


def _text(text: object) -> str:
    if not isinstance(text, str) or blank(text):
        raise _Bad(Invalid(slug="no_usable_output"))
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise _Bad(Invalid(slug="too_long", detail={"max_bytes": MAX_BYTES}))
    if has_forbidden(text):
        raise _Bad(Invalid(slug="forbidden_characters"))
    return text


def _unfenced(text: str) -> str:
    fenced = _FENCED.fullmatch(text.strip())
    inner = fenced.group(1) if fenced else text
    if blank(inner):
        raise _Bad(Invalid(slug="no_usable_output"))
    return inner.strip()


def _forbidden(value: Any) -> bool:
    if isinstance(value, str):
        return has_forbidden(value)
    if isinstance(value, list):
        return any(_forbidden(item) for item in value)
    if isinstance(value, dict):
        return any(has_forbidden(key) or _forbidden(item) for key, item in value.items())
    return False


def _storable(value: Any) -> None:
    # What is proposed is stored and hashed in canonical form; an integer past 2^53 has none.
    try:
        canonical(value)
    except ValueError:
        raise _output("", "integers below 2^53") from None


def _output(field: str, expected: str) -> _Bad:
    return _Bad(Invalid(slug="invalid_output", detail={"field": visible(field)[:SHOWN], "expected": expected}))


def _final(value: Json) -> Final:
    _keys(value, required=("final",), where="")
    text = value["final"]
    if not isinstance(text, str):
        raise _output("final", "a string")
    if blank(text):
        raise _Bad(Invalid(slug="no_usable_output"))
    return Final(text=text, evidence=_evidence(value.get("evidence", []), "evidence"))


def _proposals(
    calls: list[Any], *, first_call: int, turn_number: int, tools: tuple[ToolSchema, ...]
) -> tuple[Proposal, ...]:
    if len(calls) > MAX_CALLS:
        raise _output("", f"a list of at most {MAX_CALLS} calls")
    known = {tool.name: tool for tool in tools}
    found = tuple(
        _proposal(
            call, call_id=f"m{turn_number}.{first_call + i}", where=f"{i}." if len(calls) > 1 else "", known=known
        )
        for i, call in enumerate(calls)
    )
    if len(found) > 1 and any(known[p.tool].writes for p in found):
        raise _Bad(Invalid(slug="write_must_stand_alone"))
    return found


def _proposal(call: Any, *, call_id: str, where: str, known: dict[str, ToolSchema]) -> Proposal:
    if not isinstance(call, dict):
        raise _output(where.rstrip("."), "an object with tool and args, or with final")
    _keys(call, required=("tool", "args"), where=where)
    tool, args = call["tool"], call["args"]
    if not isinstance(tool, str):
        raise _output(f"{where}tool", "a string")
    if tool not in known:
        raise _Bad(Invalid(slug="unknown_tool", detail={"tool": visible(tool)[:SHOWN], "known": list(known)}))
    if not isinstance(args, dict):
        raise _output(f"{where}args", "an object")
    evidence = _evidence(call.get("evidence", []), f"{where}evidence")
    if known[tool].writes and "evidence" in args:
        # A write's schema carries the evidence beside its arguments; it is no part of the action.
        args, inner = _lift(args, f"{where}args.evidence")
        evidence = _evidence(list(dict.fromkeys([*evidence, *inner])), f"{where}evidence")
    return Proposal(call_id=call_id, tool=tool, args=args, evidence=evidence)


def _lift(args: Json, where: str) -> tuple[Json, tuple[str, ...]]:
    rest = {key: value for key, value in args.items() if key != "evidence"}
    return rest, _evidence(args["evidence"], where)


def _keys(value: Json, *, required: tuple[str, ...], where: str) -> None:
    for name in required:
        if name not in value:
            raise _output(f"{where}{name}", "required")
    for name in value:
        if name not in (*required, "evidence"):
            raise _output(f"{where}{name}", f"no field but {', '.join(required)}, evidence")


def _evidence(value: Any, field: str) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_EVIDENCE:
        raise _output(field, f"a list of at most {MAX_EVIDENCE} observation ids")
    if not all(isinstance(item, str) and _ID.fullmatch(item) for item in value):
        raise _output(field, "observation ids")
    return tuple(value)
