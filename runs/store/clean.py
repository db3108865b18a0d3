"""Takes secrets out of what enters the store, before it is hashed, chained or shown (M71). Part of the store; no zone.

A proposal's arguments are left alone: they are bound to a hash, and were made of a model's answer that was cleaned
when it came (`runs.orchestrator.spoken`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from operator import is_
from typing import Any, TypeVar

from pydantic import ValidationError

from agentsite import redaction
from agentsite.tenants.models import current_profile
from agentsite.text import storable
from runs.contracts import Contract, Final, NewEvent, NewObservation, NewTurn, Outcome


def outcome(given: Outcome) -> Outcome:
    """What a handler found, without secrets; its events are cleaned where every event is."""
    return _changed(
        given,
        observations=_all(given.observations),
        turn=_turn(given.turn) if given.turn is not None else None,
        reply=redaction.text(given.reply) if given.reply is not None else None,
        verification=redaction.redact(given.verification),
    )


def _all(seen: tuple[NewObservation, ...]) -> tuple[NewObservation, ...]:
    cleaned = tuple(_observation(one) for one in seen)
    return seen if all(map(is_, cleaned, seen)) else cleaned


def _observation(seen: NewObservation) -> NewObservation:
    return _changed(seen, content=redaction.redact(seen.content), meta=redaction.redact(seen.meta))


def _turn(turn: NewTurn) -> NewTurn:
    final = turn.final
    return _changed(
        turn,
        raw=redaction.text(turn.raw),
        final=_changed(final, text=redaction.text(final.text)) if final is not None else None,
        error=redaction.redact(turn.error),
    )


def event(happened: NewEvent) -> NewEvent:
    return _changed(happened, meta=redaction.redact(happened.meta), payload=redaction.redact(happened.payload))


Frozen = TypeVar("Frozen", Outcome, NewObservation, NewTurn, NewEvent, Final)


def _changed(given: Frozen, **cleaned: Any) -> Frozen:
    """The value itself where nothing had to be cleaned: the most common case makes no copy."""
    if all(getattr(given, name) is found for name, found in cleaned.items()):
        return given
    return replace(given, **cleaned)


def contract(given: Contract) -> Contract:
    """The request with the customer's own words cleaned."""
    return given.model_copy(update={"goal": redaction.text(given.goal)})


def said(text: str, tenant_id: str, agent: str) -> str:
    """What somebody wrote to a run, storable and without the secrets of the site and of the run's tenant."""
    with suppress(ValidationError):  # one that cannot be loaded names no variables; the site's own still count
        current_profile(tenant_id, agent)
    return redaction.text(storable(text))
