"""One turn of the offline investigator, and words to say what came of it; for tests that need no database."""

from __future__ import annotations

from runs.contracts import Final, LLMTurnResult, Parsed, RunState, SeenObservation, ToolSchema
from runs.inference import offline
from runs.inference.parse import parse
from runs.prompt import build_prompt
from tests.unit.states_8472 import TOOLS, call, seen, wire
from tools.contracts import Json, Proposal

ALL_PROSE = [*offline.GRAVITY, offline.THANKS, offline.WHICH_ORDER, offline.STOPPED]
OFTEN = ("upstream_unavailable", True)


def turn(run: RunState, tools: tuple[ToolSchema, ...] = TOOLS) -> Parsed:
    """One turn through prompt, model and parser, as the engine takes it."""
    prompt = build_prompt(run, tools)
    spoken = LLMTurnResult(text=offline.answer(prompt), model=offline.MODEL)
    return parse(spoken, first_call=1, turn_number=run.model_calls + 1, tools=tools)


def reads(found: Parsed) -> list[str]:
    assert isinstance(found, tuple), found
    assert "issue_refund" not in [p.tool for p in found]
    return [p.tool for p in found]


def refunding(found: Parsed) -> Proposal:
    assert isinstance(found, tuple), found
    assert [p.tool for p in found] == ["issue_refund"]
    return found[0]


def paid(found: Parsed) -> tuple[str, str, str]:
    args = refunding(found).args
    return args["payment_id"], args["amount"]["amount"], args["reason"]


def prose(found: Parsed) -> str:
    assert isinstance(found, Final), found
    return found.text


def failed(position: int, tool: str, call_id: str, slug: str, retryable: bool) -> SeenObservation:
    return call(position, tool, call_id, {"error": slug, "retryable": retryable}, kind="error")


def message(position: int, text: str) -> SeenObservation:
    return seen(position, "customer", {"text": text}, kind="message")


def denial(position: int, content: Json, call_id: str = "m3.1") -> SeenObservation:
    args = {"order_id": "8472", "payment_id": "pay_9002", "amount": wire("2000.00"), "reason": "duplicate_capture"}
    return seen(position, "issue_refund", content, kind="denial", call_id=call_id, args=args)
