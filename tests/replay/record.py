"""Records the corpus anew: `python -m tests.replay.record [NAME …]` runs each path and writes its file.

A path is recorded from real runs in one process: handlers, store, a sandbox over HTTP, a scripted model.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID
from zlib import crc32

import pytest
from django.core.management import call_command
from django.test import TestCase

from tests import conftest  # chooses the database and sets Django up

if TYPE_CHECKING:
    from tests.replay.ways import Path as Case
    from tests.system.business import Business

CORPUS = Path(__file__).parent / "corpus"


def record(names: list[str]) -> None:
    """Writes the files of these paths, of all where none is named."""
    from tests.replay.cases import CASES
    from tests.system.business import Business

    call_command("migrate", verbosity=0)
    with tempfile.TemporaryDirectory() as folder, Business(Path(folder) / "sandbox.sqlite3") as sandbox:
        for case in CASES:
            if not names or case.__name__ in names:
                _undone(case, sandbox, Path(folder))


def _undone(case: Case, sandbox: Business, folder: Path) -> None:
    """Rolled back, as in any test: decisions are rows that the database lets nobody delete."""
    begun = TestCase._enter_atomics()  # type: ignore[attr-defined]
    try:
        _record(case, sandbox, folder)
    finally:
        TestCase._rollback_atomics(begun)  # type: ignore[attr-defined]


def _record(case: Case, sandbox: Business, folder: Path) -> None:
    from runs import replay
    from tests.replay.cases import CASES
    from tests.replay.normal import normal
    from tests.world import World

    ids = iter(UUID(int=(crc32(case.__name__.encode()) << 64) + n) for n in range(1, 1_000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("uuid_utils.compat.uuid7", lambda: next(ids))  # an action's hash covers its run's id
        place = folder / case.__name__
        place.mkdir()
        patch.setenv("VAR_DIR", str(place / "var"))  # an index that another path built is none of this one's
        run = case(World(sandbox, place, patch))
        assert (run.status, run.reason, run.outcome) == CASES[case], case.__name__
        document = normal(json.loads(replay.text(replay.export(run))))
    played = replay.play(document)
    assert played.identical, (case.__name__, played.wire())
    (CORPUS / f"{case.__name__}.json").write_text(replay.text(document), encoding="utf-8")
    print(f"{case.__name__}: {played.turns} turns, {played.steps} steps")


if __name__ == "__main__":
    try:
        record(sys.argv[1:])
    finally:
        conftest.pytest_unconfigure()
