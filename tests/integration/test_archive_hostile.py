"""Files of archived runs that somebody changed, cut, swapped or brought from elsewhere: refused, naming the field."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentsite import dbtime
from runs.archive import file, sealing
from runs.models import Archive, Run
from runs.store.events import signing_key
from tests import audited
from tests.archived import Cells, aged, away, cells, command, differing, is_empty, only_file, refused
from tests.world import World, final, gather

Json = dict[str, Any]


@pytest.fixture
def archived_run(world: World, tmp_path: Path) -> Run:
    run = world.start("req-1", [*gather(), final("All is well.")])
    aged(run)
    assert away(tmp_path)["runs"] == 1
    return run


def rewritten(path: Path, change: Callable[[list[Json]], None]) -> None:
    """The file with its lines changed and its end counted and hashed anew: whoever has no key can do that much."""
    told = [json.loads(raw) for raw in path.read_text().splitlines()]
    change(told)
    body = b"".join(json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in told[:-1])
    end = {"end": len(told) - 2, "sha256": hashlib.sha256(body).hexdigest()}
    path.write_bytes(body + json.dumps(end, separators=(",", ":")).encode() + b"\n")


def no_way_back(run: Run, path: Path, before: Cells) -> tuple[str, str]:
    """Why neither the run nor the file is brought back, and that nothing changed."""
    words = refused("--restore", str(run.pk)), refused("--restore-all", str(path))
    assert differing(before) == set() and is_empty(run)
    return words


def test_a_changed_line_is_refused_by_its_hash(archived_run: Run, tmp_path: Path) -> None:
    path, before = only_file(tmp_path), cells()

    def swap(told: list[Json]) -> None:
        parts = told[1]["parts"]
        parts["evidence"], parts["either"] = parts["either"], parts["evidence"]

    whole = path.read_bytes()
    rewritten(path, swap)
    for words in no_way_back(archived_run, path, before):
        assert f"run {archived_run.pk}: sha256: another one than the run's row names" in words
    path.write_bytes(whole.replace(b'"runs":1', b'"runs":2'))
    assert "mac: another site wrote it, or it was changed" in refused("--restore-all", str(path))
    assert command("--restore", str(archived_run.pk))["back"] is True  # its own line is whole


def test_a_file_that_is_cut_off_is_refused(archived_run: Run, tmp_path: Path) -> None:
    path, before = only_file(tmp_path), cells()
    whole = path.read_bytes()
    for kept in (0.0, 0.2, 0.9, 0.999):
        path.write_bytes(whole[: int(len(whole) * kept)])
        assert "end: the file is cut off" in refused("--restore-all", str(path)), kept
    path.write_bytes(whole + b"{}\n")
    assert "end: something stands after it" in refused("--restore-all", str(path))
    path.write_bytes(whole.replace(b'{"end":1,"sha256":"', b'{"end":1,"sha256":"0'))
    assert "sha256: not that of its lines" in refused("--restore-all", str(path))
    assert differing(before) == set() and is_empty(archived_run)


def test_what_another_site_wrote_is_refused(archived_run: Run, tmp_path: Path) -> None:
    before, at = cells(), dbtime.now()
    key_id, _ = signing_key()
    line = file.line(str(archived_run.pk), {"evidence": sealing.seal(b"{}", sealing.new_key(), "x")})
    other = tmp_path / "other"
    other.mkdir()
    same_id = file.write(other, file.new_name(at), [line], at=at, signer=(key_id, b"the secret of another site"))
    assert "mac: another site wrote it" in refused("--restore-all", str(same_id))
    unknown = file.write(other, file.new_name(at), [line], at=at, signer=("k99", b"the secret of another site"))
    assert "key_id: AUDIT_KEY of this site holds no such key" in refused("--restore-all", str(unknown))
    assert differing(before) == set()
    assert command("--tidy", "--to", str(other))["removed"] == []  # and it is not ours to remove


def test_runs_that_live_or_that_nobody_knows_are_refused(world: World, archived_run: Run, tmp_path: Path) -> None:
    live = world.start("req-live")
    before, at = cells(), dbtime.now()
    for run_id, words in (
        (str(live.pk), "run: it lives"),
        ("01a22e29-0000-7000-8000-000000000000", "run: this site has no such run"),
        ("../../etc/passwd", "run: this site has no such run"),
        (f"{{{archived_run.pk}}}", "run: this site has no such run"),
    ):  # fmt: skip
        lines = [file.line(str(archived_run.pk), {}), file.line(run_id, {})]
        made = file.write(tmp_path, file.new_name(at), lines, at=at, signer=signing_key())
        assert words in refused("--restore-all", str(made)) and differing(before) == set()
    elsewhere = file.write(tmp_path, file.new_name(at), lines[:1], at=at, signer=signing_key())
    assert command("--restore-all", str(elsewhere)) == {"back": 0, "there": 0, "elsewhere": 1}
    assert differing(before) == set() and world.posts() == []


def test_a_name_leads_out_of_no_folder(archived_run: Run, tmp_path: Path) -> None:
    path, before = only_file(tmp_path), cells()
    for name in ("../archive.jsonl", "/etc/passwd", "archive-x.jsonl", f"a/{path.name}", f"{path.name}\n", ""):
        Archive.objects.update(file=name)
        assert f"file: {name!r} is no name of an archive" in refused("--restore", str(archived_run.pk))
        rewritten(path, partial(_renamed, name))
        assert f"file: {name!r} is no name of an archive" in refused("--restore-all", str(path))
    Archive.objects.update(file=path.name)
    assert differing(before) == set() and is_empty(archived_run)


def _renamed(name: str, told: list[Json]) -> None:
    """As by somebody who has the key."""
    told[0]["file"] = name
    signed = {field: value for field, value in told[0].items() if field not in ("key_id", "mac")}
    told[0]["mac"] = file._mac(signing_key()[1], signed)


def test_no_file_and_what_is_none_are_said_in_one_line(archived_run: Run, tmp_path: Path) -> None:
    before, path = cells(), only_file(tmp_path)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    path.rename(moved / path.name)
    assert "file: there is none" in refused("--restore", str(archived_run.pk))
    assert "file: there is none" in refused("--restore-all", str(moved))
    os.mkfifo(tmp_path / "pipe")
    assert "file: there is none" in refused("--restore-all", str(tmp_path / "pipe"))
    for text, field in ((b"\xff\xfe\n", "agentsite_archive"), (b"[1]\n", "agentsite_archive"), (b"{}\n", "no archive")):
        (tmp_path / "odd").write_bytes(text)
        assert field in refused("--restore-all", str(tmp_path / "odd"))
    assert differing(before) == set()
    assert command("--restore", str(archived_run.pk), "--from", str(moved))["back"] is True


def test_a_key_that_does_not_fit_and_a_row_that_was_changed_are_refused(archived_run: Run, tmp_path: Path) -> None:
    key = Archive.objects.values_list("evidence_key", flat=True).get()
    Archive.objects.update(evidence_key="0" * 64)
    assert "its key does not open it" in refused("--restore", str(archived_run.pk))
    Archive.objects.update(evidence_key=key)
    digest = audited.at(archived_run, 1).digest
    audited.put(archived_run, 1, digest="0" * 64)
    before = cells()
    assert "events[1].payload is not the one whose digest the row holds" in refused("--restore", str(archived_run.pk))
    assert differing(before) == set()
    audited.put(archived_run, 1, digest=digest)
    assert command("--restore", str(archived_run.pk))["back"] is True


def test_a_payload_that_was_changed_by_hand_is_not_hidden_in_an_archive(world: World, tmp_path: Path) -> None:
    run = world.start("req-1", [*gather(), final("All is well.")])
    aged(run)
    audited.put(run, 1, payload='{"goal":"another"}')
    done = away(tmp_path)
    assert (done["runs"], done["nothing"]) == (0, 1) and not is_empty(run)
    assert audited.fault(*audited.no_logs(tmp_path)) == (1, "run.accepted", "changed")
