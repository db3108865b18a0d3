"""The anchor log: a host's memory, outside the database, of what it sent; and what a database older than it means."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from django.test import Client

from agentsite import anchors, canonical, clock, dbtime, env, health
from agentsite.anchors import FENCE, WRITE, Anchor
from agentsite.tenants import switches
from runs import store
from runs.management import findings
from runs.models import Event, Run
from tests.operating import operator, seen
from tests.restoring import Backup, approved, fence
from tests.world import KEY, TENANT, World, worker_dies

RUN = "0194d3a0-0000-7000-8000-000000000001"
HELD = "The database is an older one: no write goes out"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "deep" / "anchors.jsonl"
    monkeypatch.setenv("ANCHOR_LOG", str(file))
    env.read.cache_clear()
    return file


def anchor(seq: int = 1, mac: str = "ab" * 32) -> Anchor:
    return Anchor(kind=WRITE, at=clock.parse_rfc3339("2026-11-30T01:02:03.004Z"), run=RUN, seq=seq, mac=mac)


# --- the file --------------------------------------------------------------------------------------------------


def test_log_stands_under_var_unless_it_is_named(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert env.read().anchor_log == log
    monkeypatch.delenv("ANCHOR_LOG")
    env.read.cache_clear()
    assert env.read().anchor_log == env.read().VAR_DIR.absolute() / "anchors.jsonl"


def test_anchor_is_one_line_of_json_that_only_its_owner_reads(log: Path) -> None:
    assert anchors.append(anchor()) and anchors.append(Anchor(kind=FENCE, at=anchor().at))
    first, second = log.read_text().splitlines()
    assert json.loads(first) == {
        "kind": "write", "at": "2026-11-30T01:02:03.004Z", "run": RUN, "seq": 1, "mac": "ab" * 32, "key": "",
        "order": "",
    }  # fmt: skip
    assert json.loads(second) == {"kind": "fence", "at": "2026-11-30T01:02:03.004Z"}
    assert log.stat().st_mode & 0o777 == 0o600
    assert anchors.tail() == [anchor(), Anchor(kind=FENCE, at=anchor().at)]


def test_missing_log_is_an_empty_one(log: Path) -> None:
    assert anchors.tail() == []


def test_torn_last_line_is_not_read_and_the_next_does_not_stick_to_it(log: Path) -> None:
    anchors.append(anchor(1))
    whole = log.read_bytes()
    log.write_bytes(whole + whole[: len(whole) // 2])
    assert anchors.tail() == [anchor(1)]
    anchors.append(anchor(2))
    assert anchors.tail() == [anchor(1), anchor(2)]
    log.write_bytes(whole[:-1])
    assert anchors.tail() == []  # whole but for its end: whoever wrote it had not come to send


@pytest.mark.parametrize(
    "line",
    [b"", b"null", b"[1]", b'{"kind": "head", "at": "2026-11-30T00:00:00Z"}', b'{"kind": "write"}', b"\xff\xfe",
     b'{"kind": "write", "at": "yesterday", "run": "r", "seq": 1, "mac": "m"}',
     b'{"kind": "write", "at": "2026-11-30T00:00:00Z", "run": "no-run", "seq": 1, "mac": "m"}'],
)  # fmt: skip
def test_line_of_another_hand_is_passed_over(log: Path, line: bytes) -> None:
    anchors.append(anchor(1))
    log.write_bytes(log.read_bytes() + line + b"\n")
    anchors.append(anchor(2))
    assert anchors.tail() == [anchor(1), anchor(2)]


def test_rotated_log_is_read_on_in_the_file_before_it(log: Path) -> None:
    for seq in range(1, 4):
        anchors.append(anchor(seq))
    log.rename(log.with_name("anchors.jsonl.1"))
    assert [a.seq for a in anchors.tail()] == [1, 2, 3]
    anchors.append(anchor(4))
    assert [a.seq for a in anchors.tail()] == [1, 2, 3, 4]


def test_only_the_last_lines_count(log: Path) -> None:
    for seq in range(200):
        anchors.append(anchor(seq, mac="cd" * 32))
    assert [a.seq for a in anchors.tail()] == list(range(200 - anchors.LOOK_BACK, 200))


# --- what is noted ---------------------------------------------------------------------------------------------


def test_intent_alone_is_not_noted(world: World) -> None:
    worker_dies(approved(world), after="intent")
    assert (anchors.tail(), world.posts()) == ([], [])


def test_right_to_send_is_noted_before_it_is_used(world: World) -> None:
    run = approved(world)
    worker_dies(run, after="sent")
    sent = Event.objects.get(run=run, type="write.sent")
    [noted] = anchors.tail()
    assert (noted.run, noted.seq, noted.mac) == (str(run.pk), sent.seq, sent.mac)
    assert (noted.key, noted.order) == (canonical.sha256(KEY), canonical.sha256([TENANT, "8472"]))
    assert abs((noted.at - sent.at).total_seconds()) < 5
    assert KEY not in env.read().anchor_log.read_text() and not world.posts()
    assert store.behind() is None


def test_log_that_cannot_be_written_or_read_stops_no_refund(world: World) -> None:
    (world.folder / "file").write_text("")
    world.settings(ANCHOR_LOG=str(world.folder / "file" / "anchors.jsonl"))
    run = world.resume(approved(world), until="completed", limit_s=90)
    assert (run.outcome, len(world.posts())) == ("refunded", 1)
    assert found("restore")[0] == "warn"
    (world.folder / "file").unlink()  # the world's folder holds scripts alone


def found(name: str) -> tuple[str, str]:
    """Verdict and words of one of doctor's findings."""
    return next((one.verdict, one.detail) for one in findings.examine() if one.name == name)


# --- what is missing -------------------------------------------------------------------------------------------


def test_database_that_holds_everything_demands_nothing(world: World) -> None:
    world.resume(approved(world), until="completed", limit_s=90)
    store.look()
    assert (switches.fence(), found("restore")[0]) == ((None, None), "ok")


def test_older_database_demands_a_fence_and_everybody_is_told(world: World) -> None:
    run = approved(world)
    backup = Backup()
    world.resume(run, until="completed", limit_s=90)
    backup.put_back(world)
    desk = operator()
    assert HELD not in seen(desk, "/admin/")
    verdict, words = found("restore")
    assert (verdict, "no write goes out until `manage.py fence`" in words) == ("fail", True)
    assert switches.fence() == (None, None)  # doctor changes nothing
    store.look()
    _, demanded_at = switches.fence()
    assert demanded_at is not None and abs((dbtime.now() - demanded_at).total_seconds()) < 10
    assert HELD in seen(desk, "/admin/")
    health.forget()
    ready = Client().get("/health/ready")
    assert (ready.status_code, ready.json()["checks"]["fence"]) == (200, "demanded")
    assert b"agentsite_fence_demanded 1.0" in Client().get("/metrics").content
    health.forget()
    store.look()
    assert switches.fence() == (None, demanded_at)  # once
    finish(world, run)


def finish(world: World, run: Run) -> None:
    """Fenced, the run finds the refund that the database forgot, and tells its customer of it."""
    fence()
    Run.objects.update(restored_at=dbtime.now() - timedelta(minutes=1))  # the lists show everything by now
    [made] = world.refunds()
    run = world.resume(run, until="completed", limit_s=90)
    assert (run.outcome, world.sandbox.posts()) == ("no_refund_due", [])
    assert made["refund_id"] in (run.reply or "")


def test_another_history_of_the_same_run_is_an_older_database(world: World) -> None:
    """Restored and written on without a fence: the same run and number, another event."""
    run = approved(world)
    worker_dies(run, after="sent")
    Event.objects.filter(run=run, type="write.sent").update(mac="00" * 32)
    store.look()
    assert switches.fence()[1] is not None
    Event.objects.filter(run=run, type="write.sent").update(mac=anchors.tail()[-1].mac)


def test_line_that_is_not_the_last_is_missed_too(world: World) -> None:
    """Processes append in another order than they committed."""
    run = approved(world)
    worker_dies(run, after="sent")
    [held] = anchors.tail()
    log = env.read().anchor_log
    line = log.read_bytes()
    log.write_bytes(b"")
    anchors.append(Anchor(kind=WRITE, at=held.at, run=RUN, seq=3, mac="ab" * 32))
    log.write_bytes(log.read_bytes() + line)
    missing = store.behind()
    assert missing is not None and (missing.run, missing.seq) == (RUN, 3)


def test_fence_forgives_what_was_sent_before_it_and_is_missed_itself(world: World) -> None:
    run = approved(world)
    backup = Backup()
    world.resume(run, until="completed", limit_s=90)
    backup.put_back(world)
    fence()
    assert store.behind() is None
    backup.put_back(world)  # the same backup again: its fence is forgotten, too
    missing = store.behind()
    assert missing is not None and missing.kind == FENCE
    finish(world, run)
    assert (store.behind(), switches.fence()[1]) == (None, None)


@pytest.mark.django_db
def test_database_in_which_no_run_ever_was_is_fenced_at_its_start(log: Path) -> None:
    anchors.append(anchor())
    store.look()
    fenced_at, demanded_at = switches.fence()
    assert fenced_at is not None and demanded_at is None
    assert [a.kind for a in anchors.tail()] == [WRITE, FENCE]
    assert store.behind() is None
