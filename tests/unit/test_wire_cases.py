"""231 recorded replies of real providers, written by nobody here: every call, text and finish as they are, none lost.

The records are those of pydantic-ai's tests (MIT), see `../shared/cases/README.md`; without them the test is skipped.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from runs.contracts import Final, LLMTurnResult, ToolSchema
from runs.errors import ModelError, ModelRefused
from runs.inference.dialects import BY_PROVIDER
from runs.inference.dialects.answers import decode, decode_stream, recall, refusal
from runs.inference.parse import parse
from tests.conftest import Say
from tests.models import speaking

CASES = Path(__file__).resolve().parents[3] / "shared/cases/wire/records.jsonl"
Json = dict[str, Any]
PROVIDER = {"chat": "openai", "messages": "anthropic"}
FINISH = {"end_turn": "stop", "tool_use": "tool_calls", "stop": "stop", "tool_calls": "tool_calls"}
pytestmark = pytest.mark.skipif(not CASES.exists(), reason=f"the wire cases are not there ({CASES})")


def records() -> list[Json]:
    return [json.loads(line) for line in CASES.read_text().splitlines()] if CASES.exists() else []


def outcome(record: Json, turn: LLMTurnResult) -> Json:
    """A turn and what the parser makes of it, in the words of the record."""
    tools = tuple(ToolSchema(name=n, summary="", parameters={}, writes=False) for n in record["tools"])
    parsed = parse(turn, first_call=1, turn_number=1, tools=tools)
    assert isinstance(parsed, tuple | Final), (record["id"], parsed)
    calls = [] if isinstance(parsed, Final) else [(p.call_id, p.tool, p.args) for p in parsed]
    said = parsed.text if isinstance(parsed, Final) else turn.text
    return {"calls": calls, "theirs": [c.theirs for c in turn.calls], "text": said, "finish": turn.finish_reason}


def right(record: Json) -> Json:
    expect = record["expect"]
    args = [c["arguments"] for c in expect["tool_calls"]]
    args = [json.loads(a) if isinstance(a, str) else a for a in args]
    named = zip(expect["tool_calls"], args, strict=True)
    return {
        "calls": [(f"m1.{i}", call["name"], a) for i, (call, a) in enumerate(named, start=1)],
        "theirs": [c["id"] for c in expect["tool_calls"]], "text": expect["text"] or "",
        "finish": FINISH[expect["finish"]],
    }  # fmt: skip


def is_right(record: Json) -> str:
    """How the record came out right; raises where it did not."""
    dialect = BY_PROVIDER[PROVIDER[record["api"]]]
    body = record["body"].encode()
    if "error" in record["expect"]:
        error = refusal(record["status"], body)
        assert isinstance(error, ModelRefused) and record["expect"]["error"]["message"] not in str(error)
        return error.slug
    turn = decode(dialect, body)
    assert outcome(record, turn) == right(record), record["id"]
    assert turn.model == json.loads(record["body"])["model"] and turn.input_tokens > 0 and turn.output_tokens > 0
    assert recall(dialect, turn.raw) == turn, record["id"]
    return "calls" if turn.calls else "text"


def test_every_recorded_reply_is_read_right(say: Say) -> None:
    found = Counter(is_right(record) for record in records())
    say(f"wire records right: {found.total()} of {len(records())}: {dict(found)}")
    assert found == {"text": 141, "calls": 85, "model_not_found": 1, "model_request_refused": 4}


@pytest.mark.parametrize("api", PROVIDER)
def test_every_recorded_reply_reads_the_same_as_a_stream(api: str) -> None:
    provider, read = PROVIDER[api], 0
    for record in records():
        if record["api"] != api or "error" in record["expect"]:
            continue
        document = json.loads(record["body"])
        whole, streamed = (
            decode(BY_PROVIDER[provider], record["body"].encode()),
            decode_stream(BY_PROVIDER[provider], [speaking.stream(provider, document)]),
        )
        assert outcome(record, streamed) == right(record), record["id"]
        assert (streamed.model, streamed.thinking, streamed.input_tokens, streamed.output_tokens) == (
            whole.model, whole.thinking, whole.input_tokens, whole.output_tokens,
        ), record["id"]  # fmt: skip
        read += 1
    assert read == {"chat": 87, "messages": 139}[api]


def test_recorded_errors_raise_under_status_200_too() -> None:
    errors = [r for r in records() if "error" in r["expect"]]
    for record in errors:
        with pytest.raises(ModelError):
            decode(BY_PROVIDER[PROVIDER[record["api"]]], record["body"].encode())
    assert len(errors) == 5
