"""A model's answer without any secret that this process knows, before it is parsed, hashed or kept (M71)."""

from __future__ import annotations

from dataclasses import replace

from agentsite import redaction
from runs.contracts import Final, Invalid, LLMTurnResult, Parsed
from tools.contracts import Proposal


def clean(turn: LLMTurnResult) -> LLMTurnResult:
    """The same turn; a model may repeat what a hostile note, a customer or a leak put before it."""
    calls = tuple(replace(c, name=redaction.text(c.name), arguments=redaction.text(c.arguments)) for c in turn.calls)
    return replace(
        turn, text=redaction.text(turn.text), thinking=redaction.text(turn.thinking), raw=redaction.text(turn.raw),
        model=redaction.text(turn.model), finish_reason=redaction.text(turn.finish_reason), calls=calls,
    )  # fmt: skip


def read(parsed: Parsed) -> Parsed:
    """The same once it is parsed: JSON may have spelt a secret in escapes, which reading it has undone."""
    if isinstance(parsed, Final):
        return Final(text=redaction.text(parsed.text), evidence=parsed.evidence)
    if isinstance(parsed, Invalid):
        return Invalid(slug=parsed.slug, detail=redaction.values_only(parsed.detail))
    return tuple(_proposal(p) for p in parsed)


def _proposal(proposal: Proposal) -> Proposal:
    cited = tuple(redaction.text(obs) for obs in proposal.evidence)
    return replace(proposal, args=redaction.values_only(proposal.args), evidence=cited)
