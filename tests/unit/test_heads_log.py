"""The heads log: whole lines from many processes, after a torn one, and across a rotation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentsite import clock, env, heads, journal

pytestmark = pytest.mark.any_database
RUN = "0194d3a0-0000-7000-8000-000000000001"
AT = clock.parse_rfc3339("2026-11-30T01:02:03.004Z")
APPENDS = """
import sys
from pathlib import Path
from agentsite import journal
for number in range(500):
    journal.add(Path(sys.argv[1]), f"{sys.argv[2]}:{number}:{'x' * 140}".encode(), synced=False)
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "deep" / "heads.jsonl"
    monkeypatch.setenv("HEADS_LOG", str(path))
    env.read.cache_clear()
    return path


def test_head_is_one_short_line_that_only_its_owner_reads(log: Path) -> None:
    assert heads.append(RUN, 12, "ab" * 32, AT)
    [line] = log.read_text().splitlines()
    assert json.loads(line) == {
        "kind": "head", "run": RUN, "seq": 12, "mac": "ab" * 32, "at": "2026-11-30T01:02:03.004Z",
    }  # fmt: skip
    assert len(line) + 1 == 175
    assert log.stat().st_mode & 0o777 == 0o600


def test_torn_line_swallows_no_other(log: Path) -> None:
    heads.append(RUN, 1, "ab" * 32, AT)
    log.write_bytes(log.read_bytes()[:-20])
    heads.append(RUN, 2, "cd" * 32, AT)
    torn, whole = log.read_text().splitlines()
    assert json.loads(whole)["seq"] == 2
    with pytest.raises(ValueError, match="Unterminated"):
        json.loads(torn)


def test_lines_of_four_processes_stay_whole(tmp_path: Path) -> None:
    path = tmp_path / "heads.jsonl"
    command = [sys.executable, "-c", APPENDS, str(path)]
    writers = [subprocess.Popen([*command, str(n)], env=env.child_environment()) for n in range(4)]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0, 0, 0]
    lines = [line for line in path.read_text().splitlines() if line]
    assert len(lines) == len(set(lines)) == 2000
    assert {len(line.partition("x")[2]) for line in lines} == {139}


def test_rotated_file_is_left_alone(log: Path) -> None:
    heads.append(RUN, 1, "ab" * 32, AT)
    log.rename(log.with_name("heads.jsonl.1"))
    heads.append(RUN, 2, "ab" * 32, AT)
    assert [json.loads(p.read_text())["seq"] for p in sorted(log.parent.iterdir())] == [2, 1]


def test_log_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # reads nothing
    for path, tries in ((tmp_path, 1), (Path("/dev/full"), 1), (tmp_path / "\0", 1), (pipe, 1000)):
        monkeypatch.setattr(env.Environment, "heads_log", path)
        assert [heads.append(RUN, 1, "ab" * 32, AT) for _ in range(tries)][-1] is False, path
    os.close(reader)


def test_line_that_is_written_in_part_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", lambda log, line: len(line) - 1)
    with pytest.raises(OSError, match="not whole"):
        journal.add(tmp_path / "heads.jsonl", b"a line", synced=False)
