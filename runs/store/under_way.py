"""What is asked and kept of runs whose model call is under way. Part of the store; a run's own row is only read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agentsite import dbtime, redaction
from agentsite.text import storable
from runs.models import Draft, Run

MAX_DRAFT = 20_000
MAX_READ = 200_000
"""Of a longer one no more is looked at: it is no honest answer, and one thread looks through all calls' each second."""


@dataclass(frozen=True, kw_only=True)
class Spoken:
    """What a call has said so far, thinking and text."""

    run_id: str
    route: str
    thinking: str
    text: str


def last_inputs(run_ids: Iterable[str]) -> dict[str, int]:
    """The sequence number of the last thing a door left for each of these runs."""
    rows = Run.objects.filter(id__in=list(run_ids)).values_list("id", "last_input_seq")
    return {str(run_id): seq for run_id, seq in rows}


def keep_drafts(drafts: Iterable[Spoken]) -> None:
    """Put down what calls have said so far, the newest end of it, in place of what was there."""
    now = dbtime.now()
    rows = [
        Draft(run_id=d.run_id, route=d.route, thinking=_newest(d.thinking), text=_newest(d.text), at=now)
        for d in drafts
    ]
    columns = ["route", "thinking", "text", "at"]
    Draft.objects.bulk_create(rows, update_conflicts=True, unique_fields=["run"], update_fields=columns)


def drop_drafts(run_ids: Iterable[str]) -> None:
    Draft.objects.filter(run_id__in=list(run_ids)).delete()


def _newest(text: str) -> str:
    return redaction.unfinished(storable(text[:MAX_READ]))[-MAX_DRAFT:]
