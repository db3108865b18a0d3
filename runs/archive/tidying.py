"""Removes files of archived runs that no row needs: left by a dead archiver, or whose runs are back or erased whole.

Files of another site are left alone. Imports no zone, no door.
"""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from runs.archive import file
from runs.archive.moving import alone
from runs.audit import keys_of
from runs.store import archived


def tidy(folder: Path) -> tuple[str, ...]:
    """The names of the files that are gone now. Raises Busy while an archiver works there, OSError."""
    with alone(folder):
        found = sorted(path for path in folder.iterdir() if path.is_file())
        unfinished = [p for p in found if p.name.endswith(file.UNFINISHED) and _is_name(p.stem)]
        whole, keys = [p for p in found if _is_name(p.name)], keys_of(settings.AUDIT_KEY)
        needed = archived.named([p.name for p in whole])
        gone = [*unfinished, *(p for p in whole if p.name not in needed and file.whose(p, keys))]
        for path in gone:
            path.unlink()
        file.synced(folder)
    return tuple(path.name for path in gone)


def _is_name(name: str) -> bool:
    return file.NAME.fullmatch(name) is not None
