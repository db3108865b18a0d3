"""Anthropic's messages by text alone, for intermediaries that drop tool fields: no tools are sent, a turn is the JSON
of the output contract, observations stand in the prompt's tags. A paper: imports no client, clock, Django or zone."""

from __future__ import annotations

from runs.contracts import LLMTurnResult
from runs.inference.dialects import anthropic_native
from runs.inference.dialects.dialect import Asked, Dialect
from tools.contracts import Json


def body(asked: Asked) -> Json:
    return anthropic_native.text_body(asked)


def read(answer: Json) -> LLMTurnResult:
    """The turn of a whole answer; a call in the provider's own form is kept, and refused by the parser."""
    return anthropic_native.as_text(anthropic_native.read(answer))


DIALECT = Dialect(
    home=anthropic_native.HOME, endpoint=anthropic_native.endpoint, headers=anthropic_native.headers, body=body,
    fold=anthropic_native.Stream, read=read, counts=anthropic_native.counts, check=anthropic_native.check,
)  # fmt: skip
