"""What a dialect is: how a prompt becomes a provider's request, and its answer a turn. A paper: imports no client,
clock, Django or zone, and what a provider calls things leaves no dialect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from runs.contracts import LLMTurnResult, Prompt, ShownCall, ShownTurn, ToolSchema
from runs.prompt import NATIVE_OUTPUT, TEXT_OUTPUT
from tools.contracts import Json

FAULTS = frozenset({"invalid_json", "invalid_answer", "ambiguous_calls", "too_long"})


class Faulty(Exception):
    """An answer that came whole and breaks its dialect: the model is told `slug`, nothing of the answer is believed."""

    def __init__(self, slug: str) -> None:
        assert slug in FAULTS, slug
        super().__init__(slug)
        self.slug = slug


class Fold(Protocol):
    """Puts the events of one stream together into the answer that would have come unstreamed."""

    ended: bool

    @property
    def usage(self) -> Json:
        """What the provider has said of its tokens so far; no count that it has yet to correct."""

    def said(self) -> str:
        """All that the model has said so far, in the order of no dialect: for counting alone."""

    def spoken(self) -> tuple[str, str]:
        """(thinking, text) so far: for people to watch alone."""

    def take(self, data: str) -> None:
        """One event's data. Raises ModelError for an error the provider reports, Faulty for a broken answer."""

    def whole(self) -> Json:
        """The answer, once the stream has ended. Raises ModelUnavailable `stream_cut` where its end never came."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One question to a provider. `max_output_tokens` bounds the reply, `stream` asks for it as events."""

    model: str
    prompt: Prompt
    max_output_tokens: int
    stream: bool


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Tokens of one answer, 0 where they are not known; the cached ones are among the input."""

    input: int = 0
    output: int = 0
    cached: int = 0


def all_may_come(answer: Json) -> None:
    """A dialect whose folds write nothing that its provider might not."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """`endpoint` takes a base URL, `headers` the provider's key or "" for none, `read` a whole answer, `counts` the
    usage in one. `check` raises Faulty for an answer off the wire that holds what only our own fold may write."""

    home: str
    endpoint: Callable[[str], str]
    headers: Callable[[str], dict[str, str]]
    body: Callable[[Asked], Json]
    fold: Callable[[], Fold]
    read: Callable[[Json], LLMTurnResult]
    counts: Callable[[Json], Counts]
    check: Callable[[Json], None] = all_may_come


def system_of(prompt: Prompt, *, native: bool) -> str:
    """The system text. A dialect with calls of its own says so in place of the JSON contract; all else is the prompt's
    own bytes."""
    return prompt.system.replace(TEXT_OUTPUT, NATIVE_OUTPUT, 1) if native else prompt.system


def call_id(turn: int, call: int) -> str:
    """The id under which the `call`-th call of a turn is sent back: nine of [a-z0-9], which every provider takes."""
    return f"c{_base36(turn, 6)}{_base36(call, 2)}"


def _base36(number: int, width: int) -> str:
    digits = ""
    while number or len(digits) < width:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits


def spoken_args(call: ShownCall, tools: tuple[ToolSchema, ...]) -> Json:
    """A call's arguments as the model had written them: a write carries its evidence among them."""
    writes = any(tool.writes for tool in tools if tool.name == call.tool)
    return {**call.args, "evidence": list(call.evidence)} if writes else call.args


def by_text(prompt: Prompt) -> Prompt:
    """Where no tool is offered, providers refuse a history of calls: it is told in words."""
    if prompt.tools:
        return prompt
    turns = tuple(ShownTurn(number=t.number, notes=tuple(p.removesuffix("\n") for p in t.pieces)) for t in prompt.turns)
    return replace(prompt, turns=turns)
