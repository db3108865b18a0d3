"""Floor: this host's log, outside the database, of what it sent and when it was fenced. Imports no domain package.

Append-only, one JSON object a line, on the disk before the call returns. It may never fail a write: what cannot be
logged is counted. A line torn by a kill is not read, and the next one does not stick to it.
"""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentsite import clock, env, journal, telemetry

LOOK_BACK = 64
"""How many of the last lines count: processes append in another order than they committed, each one line at most."""
MAX_LINE = 1024
"""Bytes; what is logged has a fixed length well below it."""
WRITE, FENCE = "write", "fence"


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """A moment that the database must know of, in its own time: a write about to be sent, or a fence.

    Of a write: its event's run, sequence number and chain MAC, and hashes of its key and its order.
    """

    kind: str
    at: datetime
    run: str = ""
    seq: int = 0
    mac: str = ""
    key: str = ""
    order: str = ""

    def wire(self) -> dict[str, Any]:
        of_run = {"run": self.run, "seq": self.seq, "mac": self.mac, "key": self.key, "order": self.order}
        return {"kind": self.kind, "at": clock.rfc3339(self.at)} | (of_run if self.kind == WRITE else {})


def append(anchor: Anchor) -> bool:
    """Add one line and wait for the disk. False where that failed; never raises."""
    try:
        journal.add(env.read().anchor_log, json.dumps(anchor.wire(), sort_keys=True).encode(), synced=True)
    except OSError as error:
        telemetry.count("anchors_failed")
        telemetry.log("anchors.failed", error=type(error).__name__)
        return False
    return True


def tail() -> list[Anchor]:
    """The last LOOK_BACK anchors, oldest first, those of the file before a rotation (`.1`) too.

    A missing log is an empty one. Raises OSError where one is there and cannot be read.
    """
    path = env.read().anchor_log
    found = _read(path)
    if len(found) < LOOK_BACK:
        found = _read(path.with_name(path.name + ".1")) + found
    return found[-LOOK_BACK:]


def _read(path: Path) -> list[Anchor]:
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            start = log.seek(max(0, size - LOOK_BACK * MAX_LINE))
            lines = log.read().split(b"\n")
    except FileNotFoundError:
        return []
    # What stands behind the last line break is torn; what stands before the first one may be half a line.
    whole = lines[1 if start else 0 : -1]
    return [anchor for line in whole if (anchor := _parsed(line)) is not None]


@lru_cache(maxsize=1024)
def _parsed(line: bytes) -> Anchor | None:
    """None for what is no line of ours, whole: torn, of another kind, or written by another hand."""
    try:
        found = json.loads(line)
        anchor = Anchor(**{**found, "at": clock.parse_rfc3339(found["at"])})
        if anchor.kind == WRITE:
            uuid.UUID(anchor.run)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return anchor if anchor.kind in (WRITE, FENCE) and isinstance(anchor.seq, int) else None
