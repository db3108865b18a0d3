"""Two archivers at once, and an archiver beside an erasure: no run is doubled, lost or brought back."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from agentsite import dbtime
from runs import archive
from runs.archive import Moved
from runs.models import Archive, Run
from runs.store import erasing
from tests import planted
from tests.archived import aged, cells, differing, is_empty
from tests.races.contest import Contest
from tests.world import final, gather

pytestmark = pytest.mark.parametrize("times", [3, pytest.param(20, marks=pytest.mark.long)])
SAID = "Quixote-words"


def ended(contest: Contest, number: int) -> list[Run]:
    runs = [
        contest.world.start(f"req-{number}-{n}", [*gather(), final("All is well.")], goal=f"Order 8472 {SAID}")
        for n in range(3)
    ]  # fmt: skip
    aged(*runs)
    return runs


def archives(folder: Path) -> Moved:
    return archive.archive(folder, before=dbtime.now() - timedelta(days=90))


def test_each_run_is_archived_by_one_of_two(contest: Contest, tmp_path: Path, times: int) -> None:
    """In folders of their own, as on two hosts."""
    for number in range(times):
        runs, here, there = ended(contest, number), tmp_path / f"a{number}", tmp_path / f"b{number}"
        before = cells()
        done = contest.race(partial(archives, here), partial(archives, there))
        assert sum(d.runs for d in done) == 3 and all(map(is_empty, runs))
        assert Archive.objects.filter(run__in=runs).count() == 3
        for path in (*here.glob("archive-*"), *there.glob("archive-*")):
            archive.restore_file(path)
        assert differing(before) == set()
        Run.objects.filter(pk__in=[run.pk for run in runs]).update(completed_at=dbtime.now())


def erases(runs: list[Run]) -> Moved:
    for run in runs:
        erasing.erase(str(run.pk), erasing.KINDS, why="a race", by="tests")
    return Moved()


def test_what_is_erased_meanwhile_never_comes_back(contest: Contest, tmp_path: Path, times: int) -> None:
    for number in range(times):
        runs = ended(contest, number)
        contest.race(partial(archives, tmp_path), partial(erases, runs))
        for path in tmp_path.glob("archive-*"):
            archive.restore_file(path)
        assert not Archive.objects.exists() and planted.in_database((SAID,)) == []
