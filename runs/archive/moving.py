"""Moves the texts of ended runs into files in bounded batches: written, on the disk, read back, then out of the rows.

Killed anywhere it loses nothing: before the commit the rows hold everything, and a file that no row names can be read
by nobody, because its keys were kept nowhere. Imports no zone, no door.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from django.conf import settings

from agentsite import dbtime, telemetry
from runs.archive import file, sealing
from runs.archive.file import BadArchive
from runs.audit import keys_of
from runs.store import archiving
from runs.store.archived import Note, part_keys
from runs.store.archiving import Bulk, Place
from runs.store.events import signing_key

BATCH = 50
"""Runs a file and transaction."""
LARGE = 32 * 1024 * 1024
"""Bytes of files in a batch, as they came; a single run may hold more."""


class Busy(Exception):
    """Another archiver works in this folder."""


@dataclass(kw_only=True)
class Moved:
    """What was done: runs, files and their bytes; `changed` runs were left alone because they changed meanwhile.

    `stopped`: how many runs of that age were left alone, by the reason; `nothing`: those without a text to move, or
    with rows that are not as they were written.
    """

    runs: int = 0
    files: int = 0
    size: int = 0
    changed: int = 0
    nothing: int = 0
    stopped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Packed:
    """A run on its way: its texts, the keys that seal them, and its line."""

    bulk: Bulk
    conversation_key: str
    evidence_key: str
    line: file.Line


def archive(folder: Path, *, before: datetime, tenant_id: str | None = None) -> Moved:
    """Archive the runs that ended before then and that nothing stands in the way of.

    Raises Busy, and OSError or BadArchive where a file could not be written; what was done before that stays done.
    """
    done, after = Moved(), None
    with alone(folder):
        while places := archiving.due(before, tenant_id, after, BATCH):
            bulks, after = _together(places, done)
            if bulks:
                _batch(folder, bulks, before, done)
        counted = archiving.counted(before, tenant_id)
    done.stopped = {why: number for why, number in sorted(counted.items()) if why != archiving.MAY}
    telemetry.log("runs.archived", runs=done.runs, files=done.files, bytes=done.size, changed=done.changed)
    return done


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """The only archiver in this folder; the lock goes with the process."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(str(folder)) from None
        yield
    finally:
        os.close(lock)


def _together(places: Sequence[Place], done: Moved) -> tuple[list[Bulk], Place]:
    """Runs that go into one file, and the last one that was looked at."""
    sizes, size, taken = archiving.size_of_files([place.run_id for place in places]), 0, list[Place]()
    for place in places:
        size += sizes.get(place.run_id, 0)
        if taken and size > LARGE:
            break
        taken.append(place)
    bulks = archiving.read([str(place.run_id) for place in taken])
    done.nothing += len(taken) - len(bulks)
    return bulks, taken[-1]


def _batch(folder: Path, bulks: Sequence[Bulk], before: datetime, done: Moved) -> None:
    now = dbtime.now()
    at = now.replace(microsecond=now.microsecond // 1000 * 1000)
    name, packed = file.new_name(at), [_packed(bulk) for bulk in bulks]
    path = file.write(folder, name, [p.line for p in packed], at=at, signer=signing_key())
    _proven(path, packed)
    held = [(p.bulk, _note(p, name, folder, at)) for p in packed]
    moved = archiving.move(held, before)
    done.runs, done.changed = done.runs + len(moved), done.changed + len(bulks) - len(moved)
    if not moved:
        return path.unlink()
    done.files, done.size = done.files + 1, done.size + path.stat().st_size
    return None


def _plain(bulk: Bulk) -> dict[str, bytes]:
    """What is sealed, by part: JSON in ASCII, so that any text a database holds comes back as it was."""
    return {part: json.dumps(tables).encode() for part, tables in bulk.parts.items() if tables}


def _packed(bulk: Bulk) -> _Packed:
    plain = _plain(bulk)
    conversation, evidence = (
        sealing.new_key() if {kind, "either"} & set(plain) else "" for kind in ("conversation", "evidence")
    )
    keys = part_keys(conversation, evidence)
    sealed = {part: sealing.seal(text, keys[part], f"{bulk.run_id}/{part}") for part, text in plain.items()}
    line = file.line(bulk.run_id, sealed)
    return _Packed(bulk=bulk, conversation_key=conversation, evidence_key=evidence, line=line)


def _proven(path: Path, packed: Sequence[_Packed]) -> None:
    """What was written opens to what was read. Raises BadArchive."""
    found = {line.run_id: line for line in file.lines(path, keys_of(settings.AUDIT_KEY))}
    for one in packed:
        run_id, keys = one.bulk.run_id, part_keys(one.conversation_key, one.evidence_key)
        sealed = file.parts(found[run_id]) if run_id in found else {}
        try:
            back = {part: sealing.opened(text, keys[part], f"{run_id}/{part}") for part, text in sealed.items()}
        except sealing.Unopened:
            back = {}
        if back != _plain(one.bulk):
            raise BadArchive(f"{path.name}: run {run_id}: what was read back is not what was written")


def _note(packed: _Packed, name: str, folder: Path, at: datetime) -> Note:
    return Note(
        run_id=packed.bulk.run_id, file=name, folder=str(folder), sha256=packed.line.sha256, size=len(packed.line.raw),
        last_seq=packed.bulk.last_seq, at=at, conversation_key=packed.conversation_key,
        evidence_key=packed.evidence_key,
    )  # fmt: skip
