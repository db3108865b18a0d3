"""How large a prompt is thought to be, in tokens, by bytes alone. A paper: pure, knows no tokeniser and no provider.

An estimate is the same for every model; a run's own earlier turns tell by how much its models count otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable

from runs.contracts import Prompt, RunState, ShownTurn, ToolSchema
from runs.inert import inert_json

PER_MESSAGE = 8
"""Tokens of what a provider puts round one message or block."""
LEAST, MOST = 0.5, 4.0


def tokens(text: str) -> int:
    """An estimate, rounded up; 0 for no text."""
    plain = len(text.encode("ascii", "ignore"))
    other = len(text.encode("utf-8", "surrogatepass")) - plain
    # JSON and English come to 3 to 4 bytes a token; any other character is 2 to 4 bytes, and a token or more.
    return -(-2 * plain // 7) + -(-other // 2)


def of_turn(turn: ShownTurn) -> int:
    """A turn with its calls, results and notes, and what is put round them."""
    around = PER_MESSAGE * (2 * len(turn.calls) + len(turn.notes))
    return sum(tokens(piece) for piece in turn.pieces) + around


def of_fixed(*, system: str, goal: str, snapshot: str, tools: Iterable[ToolSchema]) -> int:
    """What every prompt of a run holds, its tools once more as a provider's own."""
    schemas = sum(tokens(t.name + t.summary + inert_json(t.parameters)) + PER_MESSAGE for t in tools)
    return sum(tokens(text) + PER_MESSAGE for text in (system, goal, snapshot)) + schemas


def of_prompt(prompt: Prompt) -> int:
    fixed = of_fixed(system=prompt.system, goal=prompt.goal, snapshot=prompt.snapshot, tools=prompt.tools)
    return fixed + sum(of_turn(turn) for turn in prompt.turns)


def ratio(run: RunState) -> float:
    """Tokens that providers counted for one estimated, by the run's turns so far, within 0.5 and 4; 1 without any."""
    known = [t for t in run.turns if t.input_tokens > 0 and t.estimate > 0]
    if not known:
        return 1.0
    found = sum(t.input_tokens for t in known) / sum(t.estimate for t in known)
    return min(MOST, max(LEAST, found))
