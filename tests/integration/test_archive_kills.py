"""SIGKILL of a real archiver: in the middle of a file, between file and rows, in the middle of the rows, after them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentsite import env
from runs.models import Archive, Run
from tests.archived import aged, away, cells, command, differing, is_empty
from tests.world import World, _database_url, final, gather

HELD = """
import os, sys, time, django
django.setup()
from django.core.management import call_command
from runs.archive import file, moving
from runs.store import archived, archiving
left = [2]
def here(*args, **named):
    print("here", flush=True)
    time.sleep(600)
def second(call):
    def held(*args, **named):
        left[0] -= 1
        return call(*args, **named) if left[0] else here()
    return held
def torn(out, *args):
    out.write(b'{"agentsite_archive":1,"fi')
    out.flush()
    here()
"""
PLACES = {
    "in the middle of the file": "file._fill = torn",
    "file whole, not yet under its name": "file.os.fsync = here",
    "file whole, rows untouched": "archiving.move = here",
    "in the middle of the rows": "archived.keep = second(archived.keep)",
    "the first file done, the second not": "moving.BATCH = 2; archiving.move = second(archiving.move)",
}


def killed(folder: Path, place: str) -> None:
    """A process archives into the folder and dies at this place."""
    code = f"{HELD}\n{PLACES[place]}\ncall_command('archive', '--older-than', '90', '--to', {str(folder)!r})\n"
    known = {**env.child_environment(), "DATABASE_URL": _database_url()}
    process = subprocess.Popen([sys.executable, "-c", code], env=known, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert any("here" in line for line in process.stdout), "it came to its end"
    finally:
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
        process.stdout.close()


@pytest.mark.parametrize("place", PLACES)
def test_a_dead_archiver_loses_nothing_and_the_next_one_goes_on(world: World, tmp_path: Path, place: str) -> None:
    runs = [world.start(f"req-{n}", [*gather(), final("All is well.")]) for n in range(3)]
    aged(*runs)
    before, folder = cells(), tmp_path / "archive"
    killed(folder, place)
    moved = set(Archive.objects.values_list("run_id", flat=True))
    assert len(moved) == (2 if "first file done" in place else 0)
    assert {run.pk for run in runs if is_empty(run)} == moved
    assert moved or differing(before) == set()
    assert away(folder)["runs"] == 3 - len(moved) and all(map(is_empty, runs))
    command("--tidy", "--to", str(folder))
    named = set(Archive.objects.values_list("file", flat=True))
    assert {path.name for path in folder.iterdir()} == {*named, ".lock"}
    for run in Run.objects.all():
        command("--restore", str(run.pk))
    assert differing(before) == set() and world.posts() == []
