"""The run after a checkpoint as the next handler sees it, without reading it again. Part of the store; imports no zone.

Only where nothing but the handler's own outcome changed what the run is made of: a write, an approval or an input of a
door is read from its rows. What was made JSON for a row is seen as that row would show it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from agentsite.canonical import canonical_text
from approvals.states import OPEN
from runs.contracts import Final, Outcome, RunState, SeenObservation, SeenTurn, pending_from_wire
from runs.states import On, Status
from runs.store import folding, recalled
from tools.contracts import Proposal

HOLDABLE = (On.EVIDENCE_FOUND, On.APPROVAL_GRANTED)
"""What may wait for the next handler's commit: found or read in our own rows alone, and found again after a kill."""


def after(
    run: RunState, outcome: Outcome, to: Status, now: datetime, seen: Sequence[SeenObservation] | None = None
) -> RunState | None:
    """The run as a load would show it, but for its version of `now`, its tries and its record's position; None where it
    has to be loaded. `outcome` is the cleaned one; `seen` its observations, where they were numbered already."""
    if not plain(run, outcome):
        return None
    seen = folding.observed(run, outcome) if seen is None else seen
    changed: dict[str, Any] = folding.fields(run, outcome, to)
    if outcome.pending is not None:
        changed["pending"] = pending_from_wire(_stored(outcome.pending.wire()))
    if outcome.verification is not None:
        changed["verification"] = _stored(outcome.verification)
    return replace(
        run, **changed, now=now, status_since=run.status_since if to is run.status else now,
        observations=(*run.observations, *(_observation(o) for o in seen)),
        turns=(*run.turns, *_turn(run, outcome)), versions=run.versions | _stored(outcome.versions),
    )  # fmt: skip


def holdable(run: RunState, outcome: Outcome) -> bool:
    """Whether an outcome may be committed together with the next one: nothing outside was asked or told."""
    return outcome.on in HOLDABLE and outcome.folded is None and not recalled.quotes(outcome)


def plain(run: RunState, outcome: Outcome) -> bool:
    """Whether nothing but the outcome itself changes what the run is made of, and nobody else may have."""
    approval = run.approval is None or run.approval.status not in OPEN or outcome.on is On.APPROVAL_GRANTED
    touches = (outcome.approval, outcome.void_approval, outcome.intent, outcome.resend, outcome.write, outcome.folded)
    return approval and not run.inputs and not outcome.expire_approval and all(one is None for one in touches)


def _stored(document: Any) -> Any:
    return json.loads(canonical_text(document))


def _observation(seen: SeenObservation) -> SeenObservation:
    return replace(seen, args=_stored(seen.args), content=_stored(seen.content), meta=_stored(seen.meta))


def _turn(run: RunState, outcome: Outcome) -> tuple[SeenTurn, ...]:
    turn = outcome.turn
    if turn is None:
        return ()
    final = Final(text=turn.final.text, evidence=tuple(turn.final.evidence)) if turn.final else None
    return (
        SeenTurn(
            number=run.model_calls + 1, route=turn.route, answered_model=turn.answered_model,
            prompt_version=turn.prompt.version, proposals=tuple(_proposal(p) for p in turn.proposals), final=final,
            error=_stored(turn.error) if turn.error is not None else None, input_tokens=turn.input_tokens,
            estimate=turn.estimate,
        ),
    )  # fmt: skip


def _proposal(given: Proposal) -> Proposal:
    return replace(given, args=_stored(given.args), evidence=tuple(given.evidence))
