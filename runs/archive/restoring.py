"""Brings archived texts back into their rows, and reads them for whoever verifies. Imports no zone, no door.

A file is nothing to be believed: a line counts where its hash is the one that the run's own signed note names.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from django.conf import settings

from agentsite import telemetry
from runs.archive import file, sealing
from runs.archive.file import BadArchive
from runs.audit import keys_of
from runs.models import LIVE_VALUES, Run
from runs.store import archived, archiving
from runs.store.archived import Note


@dataclass(frozen=True, kw_only=True)
class Restored:
    """What a file's runs came to: brought back now, there already, or archived in another file since."""

    back: int = 0
    there: int = 0
    elsewhere: int = 0


def restore(run_id: str, folder: Path | None = None) -> bool:
    """The run's texts are in their rows again; False where they never left. `folder`: where its file is now.

    What was erased meanwhile stays erased. Raises BadArchive; then nothing changed.
    """
    note = archived.of_run(run_id)
    if note is None:
        return False
    _back(note, file.find(file.named(folder or Path(note.folder), note.file), run_id, note.sha256))
    return True


def restore_file(path: Path) -> Restored:
    """The same of every run in a file that is whole and ours. Raises BadArchive, before any run is touched."""
    keys, done, due = keys_of(settings.AUDIT_KEY), Restored(), list[Note]()
    for line in file.lines(path, keys):
        note = _fitting(line, path)
        if isinstance(note, Note):
            due.append(note)
        else:
            done = replace(done, **{note: getattr(done, note) + 1})
    for note in due:
        _back(note, file.find(path, note.run_id, note.sha256))
    return replace(done, back=len(due))


def _fitting(line: file.Line, path: Path) -> Note | str:
    """The note of a run that the line brings back, or what became of the run. Raises BadArchive for neither."""
    where = f"{path.name}: run {line.run_id}"
    run = _run(line.run_id)
    if run is None:
        raise BadArchive(f"{where}: run: this site has no such run")
    if run.status in LIVE_VALUES:
        raise BadArchive(f"{where}: run: it lives")
    note = archived.of_run(str(run.pk))
    if note is None:
        return "there"
    if note.sha256 == line.sha256:
        return note
    if note.file != path.name:
        return "elsewhere"
    raise BadArchive(f"{where}: sha256: another one than the run's row names")


def _run(run_id: str) -> Run | None:
    try:
        known = uuid.UUID(run_id)
    except ValueError:
        return None
    return Run.objects.only("status").filter(pk=known).first() if str(known) == run_id else None


def _back(note: Note, line: file.Line) -> None:
    try:
        archiving.put_back(note, _tables(note, line))
    except archiving.Refused as refused:
        raise BadArchive(f"{note.file}: {refused}") from None
    telemetry.log("run.restored", run_id=note.run_id, file=note.file)


def _tables(note: Note, line: file.Line) -> dict[archiving.Part, archiving.Table]:
    """The parts that a key is left for, opened. Raises BadArchive."""
    sealed, found = file.parts(line), dict[archiving.Part, archiving.Table]()
    for part in archiving.PARTS:
        if part in sealed and part in note.keys:
            try:
                plain = sealing.opened(sealed[part], note.keys[part], f"{note.run_id}/{part}")
            except sealing.Unopened:
                raise BadArchive(f"{note.file}: run {note.run_id}: parts.{part}: its key does not open it") from None
            found[part] = json.loads(plain)
    return found


def payloads(run_id: str, folder: Path) -> Mapping[int, tuple[str, str]]:
    """(canonical text, salt) of the run's archived events by sequence number, as far as a key is left. Raises
    BadArchive."""
    note = archived.of_run(run_id)
    if note is None:
        return {}
    tables = _tables(note, file.find(file.named(folder, note.file), run_id, note.sha256))
    rows: list[Any] = [row for part in tables.values() for row in part.get("events", ())]
    return {seq: (text, salt) for seq, text, salt in rows}
