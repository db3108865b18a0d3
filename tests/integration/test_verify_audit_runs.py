"""Real runs under `verify_audit`: every way they go is whole, erased ones too; fences and exports (M78)."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from agentsite import env
from runs import replay
from runs.models import Run
from runs.store import erasing
from runs.store.erasing import KINDS
from tests.audited import Json, fault, put, rows, settle_row, verified
from tests.integration.test_erasing import at_rest
from tests.replay import cases
from tests.restoring import Backup, fence
from tests.world import World, gather, refund


@pytest.fixture
def log(world: World) -> Path:
    """The heads log of a world of its own."""
    path = world.folder.parent / f"{world.folder.name}.heads"
    world.settings(HEADS_LOG=str(path))
    return path


@pytest.fixture
def run(world: World, log: Path) -> Run:
    """A run that ended with a refund."""
    waits = world.start()
    world.approve(waits)
    return world.resume(waits, until="completed")


def test_untouched_record_is_whole_and_known_to_the_log(world: World, run: Run, log: Path) -> None:
    code, found = verified()
    assert (code, found["whole"], found["runs"], found["events"]) == (0, True, 1, run.last_seq)
    assert (found["known"], found["unknown"], found["unread"], found["unspanned"]) == (1, 0, 0, 0)
    assert found["lines"] == len(log.read_text().splitlines()) + 1  # and the write that was sent
    assert found["logs"] == [str(log), str(env.read().anchor_log)]
    assert len(world.posts()) == 1


PATHS = (
    cases.rejected, cases.approval_expired_and_asked_again, cases.message_voids_the_approval, cases.repair_exhausted,
    cases.policy_stale, cases.payment_api_unavailable_then_back,
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS, ids=[path.__name__ for path in PATHS])
def test_paths_of_the_corpus_leave_a_whole_record(world: World, log: Path, path: Callable[[World], Run]) -> None:
    path(world)
    code, found = verified()
    assert (code, found["faults"], found["unknown"]) == (0, [], 0)


def test_command_says_it_in_words(run: Run, log: Path) -> None:
    out = io.StringIO()
    call_command("verify_audit", stdout=out, skip_checks=True)
    lines = len(log.read_text().splitlines()) + 1
    assert out.getvalue() == (
        f"Whole: 1 run with {run.last_seq} events.\n"
        f"{lines} lines of 2 logs: 1 of the runs are known there, 0 are not.\n"
    )
    put(run, 3, meta="{}")
    out = io.StringIO()
    with pytest.raises(CommandError, match="1 run not whole"):
        call_command("verify_audit", stdout=out, skip_checks=True)
    assert f"{run.pk}" in out.getvalue() and "req-8472" in out.getvalue() and "changed" in out.getvalue()


def test_what_a_fence_forgives_is_told_apart(world: World, log: Path) -> None:
    run = world.start("req-1", [*gather(), refund()])
    backup = Backup()
    world.message(run, "Is anybody there?")
    world.resume(run)
    lost = world.start("req-2", [*gather()])
    backup.put_back(world)
    code, found = verified()
    assert (code, [f["kind"] for f in found["faults"]]) == (1, ["cut off at the tail", "run removed"])
    world.message(run, "Hello?")
    fence()
    code, found = verified()
    assert (code, found["runs"], found["faults"]) == (0, 1, [])
    assert found["put_back"] >= 3 and str(lost.pk) in log.read_text()
    world.message(run, "Anybody?")
    gone = Run.objects.get(pk=run.pk).last_seq
    rows(run).filter(seq=gone).delete()
    settle_row(run)
    assert fault()[::2] == (gone, "cut off at the tail")  # after the fence nothing is forgiven


def erased(run: Run, *kinds: erasing.Kind) -> None:
    at_rest(run)
    erasing.erase(str(run.pk), kinds or KINDS, why="a test", by="tests")


def test_erased_run_verifies_and_its_payloads_are_counted(run: Run) -> None:
    held = rows(run).filter(payload__isnull=False).count()
    erased(run, erasing.CONVERSATION)
    some = verified()
    assert (some[0], 0 < some[1]["erased"] < held) == (0, True)
    erased(run, erasing.EVIDENCE)
    code, found = verified()
    assert (code, found["erased"]) == (0, held)


def test_payload_that_no_erasure_took_is_named(run: Run) -> None:
    first = rows(run).filter(payload__isnull=False).order_by("seq").first()
    assert first is not None
    put(run, first.seq, payload=None, salt=None)
    assert fault() == (first.seq, first.type, "payload removed")
    put(run, first.seq, salt=first.salt)
    assert fault() == (first.seq, first.type, "payload removed")


def test_erasure_of_one_class_covers_no_other(run: Run) -> None:
    erased(run, erasing.CONVERSATION)
    other = rows(run).filter(type="tool.observed", payload__isnull=False).order_by("seq").first()
    assert other is not None
    put(run, other.seq, payload=None, salt=None)
    assert fault() == (other.seq, "tool.observed", "payload removed")


@pytest.fixture
def exported(run: Run, tmp_path: Path) -> Path:
    file = tmp_path / "run.json"
    file.write_text(replay.text(replay.export(Run.objects.get(pk=run.pk))))
    return file


def edited(file: Path, change: Callable[[Json], Any]) -> str:
    document = json.loads(file.read_text())
    change(document)
    changed = file.with_name("edited.json")
    changed.write_text(replay.text(document))
    return str(changed)


def test_exported_run_verifies_without_a_database(exported: Path, run: Run, log: Path) -> None:
    code, found = verified("--export", str(exported))
    assert (code, found["runs"], found["events"], found["logs"]) == (0, 1, run.last_seq, [])
    code, found = verified("--export", str(exported), "--anchors", str(log))
    assert (code, found["known"]) == (0, 1)


EDITS: dict[str, tuple[Callable[[Json], Any], str]] = {
    "payload": (lambda d: d["events"][0]["payload"].update(goal="another"), "changed"),
    "meta": (lambda d: d["events"][3]["meta"].update(more=1), "changed"),
    "time": (lambda d: d["events"][3].update(at="2026-11-30T00:00:00.000Z"), "changed"),
    "removed": (lambda d: d["events"].pop(3), "removed"),
    "cut": (lambda d: d["events"].pop(), "cut off at the tail"),
    "outcome": (lambda d: d.update(outcome="rejected"), "run row differs"),
    "status": (lambda d: d["run"].update(status="failed"), "run row differs"),
    "without": (lambda d: d["events"][0].update(payload=None, salt=None), "payload removed"),
}


def test_exported_run_that_was_edited_is_found(exported: Path) -> None:
    for name, (change, kind) in EDITS.items():
        assert fault("--export", edited(exported, change))[2] == kind, name


def test_exported_run_that_was_erased_still_verifies(run: Run, tmp_path: Path) -> None:
    erased(run)
    file = tmp_path / "erased.json"
    file.write_text(replay.text(replay.export(Run.objects.get(pk=run.pk))))
    code, found = verified("--export", str(file))
    assert (code, found["erased"] > 5) == (0, True)
    assert all(e["salt"] is None for e in json.loads(file.read_text())["events"])
