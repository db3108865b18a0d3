"""Door: what those who follow runs read: where each run stands, and its events as frames of an event stream.

Reads rows for many followers at once; writes none, imports no zone and no store.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from django.db.models import Q

from approvals.models import Approval
from runs.api import serial
from runs.models import Event, Run
from runs.states import TERMINAL

ENDED = frozenset(status.value for status in TERMINAL)
CHUNK = 200
PAGE = 200
"""Events a replay reads at once."""
PAGE_BYTES = 256 * 1024
"""What it keeps of them: a client that does not read its stream holds a page of it, and there may be a thousand."""
MOST_NEW = 2_000
"""Events one look reads for CHUNK runs; what is more comes with the next look."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """Where a run stands: its last sequence number, whether it has ended, and a mark that moves with its body."""

    last_seq: int
    ended: bool
    mark: str


@dataclass(frozen=True, slots=True)
class Frame:
    """One event on the wire of a stream; `text` is shared by all who get it."""

    seq: int
    text: bytes


def look(run_ids: Collection[str]) -> dict[str, Look]:
    """Each of these runs as it is now; one that is gone is missing."""
    found: dict[str, Look] = {}
    for some in _chunks(run_ids):
        asked = _approvals(some)
        rows = Run.objects.filter(id__in=some).values_list("id", "last_seq", "status", "version", "updated_at")
        for run_id, last_seq, status, version, updated_at in rows:
            key = str(run_id)
            mark = f"{last_seq}|{version}|{updated_at.isoformat()}|{asked[key]}"
            found[key] = Look(last_seq=last_seq, ended=status in ENDED, mark=mark)
    return found


def _approvals(run_ids: Collection[str]) -> dict[str, list[str]]:
    """A decision shows on its approval at once, before the run's own row tells of it."""
    found: dict[str, list[str]] = defaultdict(list)
    rows = Approval.objects.filter(run_id__in=run_ids).order_by("requested_at", "id")
    for run_id, approval_id, status, by in rows.values_list("run_id", "id", "status", "decided_by"):
        found[str(run_id)].append(f"{approval_id}:{status}:{by}")
    return found


def news(heads: Mapping[str, int]) -> dict[str, list[Frame]]:
    """What happened in each run after its sequence number, in order."""
    found: dict[str, list[Frame]] = defaultdict(list)
    for some in _chunks(heads):
        wanted = Q()
        for run_id in some:
            wanted |= Q(run_id=run_id, seq__gt=heads[run_id])
        for event in Event.objects.filter(wanted).order_by("run_id", "seq")[:MOST_NEW]:
            found[str(event.run_id)].append(frame(event))
    return found


def replay(run_id: str, after: int) -> tuple[list[Frame], bool]:
    """The next events, as many as PAGE and PAGE_BYTES allow but one at least; and whether there may be more."""
    frames, size = list[Frame](), 0
    for event in Event.objects.filter(run_id=run_id, seq__gt=after).order_by("seq")[:PAGE]:
        one = frame(event)
        size += len(one.text)
        if frames and size > PAGE_BYTES:
            return frames, True
        frames.append(one)
    return frames, len(frames) == PAGE


def frame(event: Event) -> Frame:
    """An event as the stream sends it; `data` is the JSON of the page's result."""
    (shown,) = serial.events([event])
    # In ASCII no line of it can end early, whichever characters a reader takes for the end of one.
    data = json.dumps(shown, separators=(",", ":"))
    return Frame(event.seq, f"id: {event.seq}\nevent: {event.type}\ndata: {data}\n\n".encode())


def _chunks(items: Collection[str]) -> Iterator[list[str]]:
    rest = iter(items)
    while some := list(islice(rest, CHUNK)):
        yield some
