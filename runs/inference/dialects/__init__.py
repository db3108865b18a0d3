"""Three dialects of models behind HTTP, by the provider a route names. Papers: they import no client, clock, Django or
zone, open no socket and read no key."""

from __future__ import annotations

from runs.contracts import LLMTurnResult
from runs.inference.dialects import answers, anthropic_native, anthropic_xml, openai_native
from runs.inference.dialects.dialect import Dialect

BY_PROVIDER: dict[str, Dialect] = {
    "openai": openai_native.DIALECT,
    "anthropic": anthropic_native.DIALECT,
    "anthropic_xml": anthropic_xml.DIALECT,
}


def recall(route: str, raw: str) -> LLMTurnResult:
    """The turn that a recorded answer of this route was, read by today's code. Raises ModelError where it is none."""
    dialect = BY_PROVIDER.get(route.partition(":")[0])
    return LLMTurnResult(text=raw, raw=raw, model="") if dialect is None else answers.recall(dialect, raw)
