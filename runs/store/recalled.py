"""Copies of a customer's cases in later runs of his: noted as they are made, gone when the case is. Part of the store.

Both happen under a lock of the case's own row, so that no copy is made of what is being erased. Imports no zone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

from approvals.erasing import readable
from runs.contracts import NewObservation, Outcome, RunState
from runs.models import Observation, Recalled, Run
from runs.story import PRECEDENTS
from tools.contracts import Json

GONE: Json = {"precedent": True, "erased": True}
"""What stands in place of a case that was erased."""


def quotes(outcome: Outcome) -> bool:
    """Whether it brings copies of earlier cases, which `noted` looks at under their locks."""
    return any(True for seen in outcome.observations for _ in _quoted(seen))


def noted(run: RunState, outcome: Outcome) -> Outcome:
    """The outcome with the cases that still stand; which those are is noted. Within the checkpoint's transaction."""
    quoted = {str(case["run"]) for seen in outcome.observations for case in _quoted(seen)}
    if not quoted:
        return outcome
    # The rows are ended runs, which hold no lock of a live one: no two checkpoints can wait for one another.
    kept = Run.objects.select_for_update(of=("self",), no_key=True).filter(
        pk__in=quoted, tenant_id=run.tenant_id, conversation_erased_at=None, evidence_erased_at=None
    )
    stand = {str(pk) for pk in kept.order_by("pk").values_list("pk", flat=True)}
    Recalled.objects.bulk_create(
        [Recalled(run_id=UUID(run.run_id), of_id=UUID(pk)) for pk in sorted(stand)], ignore_conflicts=True
    )
    return replace(outcome, observations=tuple(_without(o, quoted - stand) for o in outcome.observations))


def forget(run_id: str) -> None:
    """No later run holds a copy of this one any more. Within the transaction that erases it and holds its row."""
    copies = Recalled.objects.filter(of_id=UUID(run_id))
    holders = list(copies.values_list("run_id", flat=True))
    rows = Observation.objects.filter(run_id__in=holders, source__in=PRECEDENTS, kind="result")
    for pk in rows.order_by("pk").values_list("pk", flat=True):
        one = Observation.objects.filter(pk=pk)
        one.update(**readable(lambda pk: _scrubbed(pk, run_id), pk, {"content": GONE, "meta": {"erased": True}}))
    copies.delete()


def _scrubbed(pk: int, run_id: str) -> dict[str, Any]:
    """The hash stays what it was: it tells that something else stood here.

    The row is locked as it is read: whoever erases another case of the same copy, or the run that holds it, and
    commits in between must not find his part brought back.
    """
    seen = Observation.objects.select_for_update(no_key=True).only("content", "meta").get(pk=pk)
    content = _emptied(seen.content, {run_id})
    return {} if content == seen.content else {"content": content, "meta": {**seen.meta, "erased": True}}


def _quoted(seen: NewObservation) -> Iterator[Json]:
    if seen.source in PRECEDENTS and seen.kind == "result":
        yield from (case for case in seen.content["cases"] if "run" in case)


def _without(seen: NewObservation, gone: set[str]) -> NewObservation:
    is_copy = any(str(case["run"]) in gone for case in _quoted(seen))
    return replace(seen, content=_emptied(seen.content, gone)) if is_copy else seen


def _emptied(content: Json, gone: set[str]) -> Json:
    if content.get("erased"):
        return content
    return {**content, "cases": [GONE if str(case.get("run")) in gone else case for case in content["cases"]]}
