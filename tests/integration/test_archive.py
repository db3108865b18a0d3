"""Archiving ended runs: what goes, what stays, what comes back, and every door that reads them meanwhile (issue 8)."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from agentsite import dbtime
from approvals.models import Notice
from runs import archive, store
from runs.archive import file, moving
from runs.models import Archive, Attachment, Draft, Event, Observation, Run, Shadow, Turn, Webhook, Write
from runs.store import archived, cases, erasing
from runs.store.erasing import CONVERSATION, EVIDENCE, KINDS
from tests import audited, edge, planted
from tests.approving import signed_in
from tests.archived import aged, away, cells, command, differing, is_empty, only_file, refused
from tests.integration.test_erasing import FOUND, SAID, spoken
from tests.world import GOAL, TENANT, World, final, gather, refund


def told(name: str, *args: str) -> str:
    out = io.StringIO()
    call_command(name, *args, stdout=out, stderr=io.StringIO(), skip_checks=True)
    return out.getvalue()


def fails(name: str, *args: str) -> str:
    with pytest.raises(CommandError) as caught:
        told(name, *args)
    assert caught.value.returncode == 1
    return str(caught.value)


def old_refund(world: World) -> Run:
    """A refund of long ago in which everybody wrote something, with a file and a dead worker's draft."""
    run = spoken(world)
    Draft.objects.create(run=run, route="scripted:x", thinking="half a thought", text="half a", at=dbtime.now())
    aged(run)
    return Run.objects.get(pk=run.pk)


def answered(world: World, request_id: str) -> Run:
    return world.start(request_id, [*gather(), final("All is well.")])


# --- what goes, what stays, what comes back ---------------------------------------------------------------------


def test_every_column_of_every_table_is_as_before_once_it_is_back(world: World, tmp_path: Path) -> None:
    content = bytes(range(256)) * 40
    rejected = world.start("req-3", [*gather(), refund(), final("We are sorry.")])
    world.reject(rejected, "not this one")
    rejected = world.resume(rejected, until="completed")
    run, other = old_refund(world), answered(world, "req-2")
    Attachment.objects.filter(run=run).update(content=content, sha256=_sha256(content))
    aged(other, rejected)
    before = cells()
    done = away(tmp_path)
    assert (done["runs"], done["files"], done["changed"], done["nothing"]) == (3, 1, 0, 0)
    assert [is_empty(r) for r in (run, other, rejected)] == [True] * 3
    assert Attachment.objects.get(run=run).content is None and not Draft.objects.exists()
    assert differing(before) == {
        "runs_archive", "runs_event", "runs_turn", "runs_observation", "runs_attachment", "runs_draft",
    }  # fmt: skip
    assert command("--restore", "req-2")["back"] is True
    assert command("--restore-all", str(only_file(tmp_path))) == {"back": 2, "there": 1, "elsewhere": 0}
    assert differing(before) == set()
    assert len(world.refunds()) == 1


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_what_money_decisions_and_replies_were_stays_in_the_rows(world: World, tmp_path: Path) -> None:
    run = old_refund(world)
    kept = list(Event.objects.filter(archived.STAYS, run=run).order_by("seq").values_list("seq", "payload", "salt"))
    seals = list(Event.objects.filter(run=run).order_by("seq").values_list("seq", "meta", "digest", "prev", "mac"))
    away(tmp_path)
    assert {type_ for type_ in Event.objects.exclude(payload=None).values_list("type", flat=True)} == {
        "approval.decided", "reply.sent", "write.verified",
    }  # fmt: skip
    events = Event.objects.filter(run=run).order_by("seq")
    assert list(events.filter(archived.STAYS).values_list("seq", "payload", "salt")) == kept
    assert list(events.values_list("seq", "meta", "digest", "prev", "mac")) == seals
    assert planted.in_database((FOUND,)) == []  # a note in the order: free text of a system


def test_clients_customers_and_figures_see_the_same_run(world: World, tmp_path: Path) -> None:
    world.settings(AGENT_MODELS=world.route([*gather(), final("All is well.")]))
    shop = edge.client(edge.token())
    sent = edge.body(request_id="req-8472", goal=f"{GOAL} {SAID}")
    run_id = edge.post(shop, edge.RUNS, sent).json()["run_id"]
    message = {"text": f"Hello {SAID}", "message_id": "m-1"}
    assert edge.post(shop, f"{edge.RUNS}/{run_id}/messages", message).status_code == 202
    run = world.adopt(run_id, [*gather(), final("All is well.")])
    aged(run)

    def seen() -> list[Any]:
        found = shop.get(f"{edge.RUNS}/{run_id}").json()
        return [found, world.said(run), cases.like(TENANT, "cust_5521", str(uuid4()), GOAL), told("tail", "--json")]

    before = seen()
    away(tmp_path)
    assert is_empty(run) and seen() == before
    again = edge.post(shop, edge.RUNS, sent)
    assert (again.status_code, again["Idempotency-Replayed"], again.json()["run_id"]) == (200, "true", run_id)
    assert edge.post(shop, edge.RUNS, {**sent, "goal": "another"}).status_code == 422
    assert edge.post(shop, f"{edge.RUNS}/{run_id}/messages", message).status_code == 202
    assert Run.objects.count() == 1 and world.posts() == []


def test_every_ending_tells_its_customer_the_same(world: World, tmp_path: Path) -> None:
    run = old_refund(world)
    ends = [("completed", "refunded"), ("escalated", "handed_to_staff"), ("failed", "handed_to_staff"),
            ("cancelled", "cancelled")]  # fmt: skip

    def said() -> list[str]:
        found = []
        for status, outcome in ends:
            Run.objects.filter(pk=run.pk).update(status=status, outcome=outcome)
            found.append(world.said(run))
        Run.objects.filter(pk=run.pk).update(status="completed", outcome="refunded")
        return found

    before = said()
    away(tmp_path)
    assert said() == before and len(set(before)) > 2


# --- which runs ---------------------------------------------------------------------------------------------------


def test_what_is_in_the_way_is_counted_and_nothing_of_it_is_touched(world: World, tmp_path: Path) -> None:
    live = world.start("req-live")
    ended = [answered(world, f"req-{n}") for n in range(6)]
    aged(live, *ended)
    young = answered(world, "req-young")
    refunded = spoken(world)
    aged(refunded)
    Write.objects.filter(run=refunded).update(watch_at=dbtime.now())
    Run.objects.filter(pk=ended[0].pk).update(last_input_seq=99)
    Webhook.objects.create(
        id="msg_1", run=ended[1], tenant_id=TENANT, type="run.completed", seq=9, url="https://client.example/",
        body="{}", due_at=dbtime.now(), created_at=dbtime.now(),
    )  # fmt: skip
    Shadow.objects.create(run=ended[2], tenant_id=TENANT, at=dbtime.now(), compare_at=dbtime.now())
    Run.objects.filter(pk=ended[3].pk).update(created_at=dbtime.now())
    before = cells()
    stopped = {"input_unread": 1, "webhook_due": 1, "compare_due": 1, "customer_link": 1, "refund_watched": 1}
    assert away(tmp_path, "--dry-run") == {"dry_run": True, "runs": 2, "stopped": stopped}
    assert differing(before) == set() and not list(tmp_path.iterdir())
    Write.objects.filter(run=refunded).update(state="unknown")
    done = away(tmp_path)
    del stopped["refund_watched"]
    assert (done["runs"], done["stopped"]) == (2, {**stopped, "write_open": 1})
    assert set(Archive.objects.values_list("run_id", flat=True)) == {ended[4].pk, ended[5].pk}
    assert [is_empty(r) for r in (live, young, refunded, *ended[:4])] == [False] * 7
    Write.objects.filter(run=refunded).update(state="confirmed")
    Run.objects.filter(pk=ended[0].pk).update(last_input_seq=0)


def test_a_notice_that_is_due_keeps_its_run(world: World, tmp_path: Path) -> None:
    run = old_refund(world)
    approval_id = Run.objects.values_list("approval_id", flat=True).get(pk=run.pk)
    notice = Notice.objects.create(
        approval_id=approval_id, tenant_id=TENANT, kind="asked", channel="email", address="lead@acme.example",
        due_at=dbtime.now(), created_at=dbtime.now(),
    )  # fmt: skip
    assert away(tmp_path)["stopped"] == {"notice_due": 1} and not is_empty(run)
    notice.delete()
    assert (away(tmp_path)["runs"], away(tmp_path)["runs"]) == (1, 0)


def test_usage_is_checked_before_anything_is_done(world: World, tmp_path: Path) -> None:
    aged(answered(world, "req-1"))
    before = cells()
    for days in ("0", "-1", "x", "99999", "9" * 5000):
        assert "a whole number of days" in refused("--older-than", days)
    assert "not allowed with" in refused("--older-than", "90", "--restore", "req-1")
    assert "is required" in refused()
    assert "--dry-run counts" in refused("--restore", "req-1", "--dry-run", code=2)
    assert "--to is the folder" in refused("--restore", "req-1", "--to", str(tmp_path), code=2)
    assert "no tenant 'nobody'" in refused("--older-than", "90", "--tenant", "nobody")
    (tmp_path / "file").touch()
    assert "file" in refused("--older-than", "90", "--to", str(tmp_path / "file"))
    assert differing(before) == set()
    assert command("--restore", "req-1") == {"run_id": str(Run.objects.get().pk), "back": False}


def test_a_run_that_is_erased_while_its_file_is_written_is_left_alone(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, other = old_refund(world), answered(world, "req-2")
    aged(other)
    write = file.write

    def meanwhile(*args: Any, **named: Any) -> Path:
        erasing.erase(str(run.pk), KINDS, why="a test", by="tests")
        return write(*args, **named)

    monkeypatch.setattr(file, "write", meanwhile)
    done = away(tmp_path)
    assert (done["runs"], done["changed"], done["nothing"]) == (1, 1, 0)
    assert list(Archive.objects.values_list("run_id", flat=True)) == [other.pk]
    assert command("--restore-all", str(only_file(tmp_path))) == {"back": 1, "there": 1, "elsewhere": 0}
    assert planted.in_database((SAID,)) == []


# --- erasing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "back", "gone"),
    [(CONVERSATION, {"gate.decided", "tool.observed"}, {"run.accepted", "model.replied"}),
     (EVIDENCE, {"run.accepted"}, {"gate.decided", "tool.observed", "model.replied"})],
)  # fmt: skip
def test_an_erasure_reaches_its_class_in_the_archive_and_no_other(
    world: World, tmp_path: Path, kind: erasing.Kind, back: set[str], gone: set[str]
) -> None:
    run = old_refund(world)
    away(tmp_path)
    assert erasing.erase(str(run.pk), (kind,), why="a test", by="tests") == (kind,)
    assert audited.verified("req-8472")[0] == 0
    assert command("--restore", "req-8472")["back"] is True
    filled = set(Event.objects.filter(run=run, payload__isnull=False).values_list("type", flat=True))
    assert back <= filled and not gone & filled
    assert {Turn.objects.filter(run=run).exclude(raw="").count(), Archive.objects.count()} == {0}
    facts = Observation.objects.filter(run=run, source="get_order").get().content
    assert ("note" in facts) == (kind == CONVERSATION)
    assert (planted.in_database((FOUND,)) == []) == (kind == EVIDENCE)
    code, found = audited.verified("req-8472")
    assert (code, found["archived"], found["erased"] > 0) == (0, 0, True)


def test_nothing_of_an_erased_customer_comes_back_from_any_copy(world: World, tmp_path: Path) -> None:
    run = old_refund(world)
    away(tmp_path)
    note, path = archived.of_run(str(run.pk)), only_file(tmp_path)
    copy = path.read_bytes()
    assert note is not None and planted.in_database(tuple(note.keys.values())) != []
    told("erase_customer", "cust_5521", "--tenant", TENANT, "--reason", "asked for")
    assert planted.in_database((SAID, FOUND, *note.keys.values())) == []
    assert not Archive.objects.exists()
    assert command("--restore", "req-8472")["back"] is False
    assert command("--restore-all", str(path)) == {"back": 0, "there": 1, "elsewhere": 0}
    assert planted.in_database((SAID, FOUND)) == [] and not any(w.encode() in copy for w in (SAID, FOUND, GOAL))
    code, found = audited.verified("req-8472")
    assert (code, found["archived"]) == (0, 0) and found["erased"] > 0


def test_retention_takes_the_words_of_archived_runs_too(world: World, tmp_path: Path) -> None:
    run = old_refund(world)
    away(tmp_path)
    aged(run, days=400)
    told("purge")
    assert not Archive.objects.exists() and planted.in_database((SAID, FOUND)) == []
    assert command("--tidy", "--to", str(tmp_path))["removed"] != [] and list(tmp_path.glob("archive-*")) == []


def test_a_copy_in_a_later_run_stays_in_reach_of_an_erasure(world: World, tmp_path: Path) -> None:
    world.profile(read_tools=["get_order", "search_policy", "search_cases"])
    first = world.start("req-1", [{"tool": "get_order", "args": {"order_id": "8472"}}, final()], goal=f"parcel {SAID}")
    looked = {"tool": "search_cases", "args": {"query": "parcel"}}
    second = world.start("req-2", [looked, final()], goal="My parcel")
    [copy] = Observation.objects.filter(run=second, source="search_cases")
    assert SAID in json.dumps(copy.content)
    aged(first, second)
    assert away(tmp_path)["runs"] == 2
    erasing.erase(str(first.pk), KINDS, why="a test", by="tests")
    command("--restore", "req-2")
    assert SAID not in json.dumps(Observation.objects.get(pk=copy.pk).content)
    assert planted.in_database((SAID,)) == []


# --- the audit ----------------------------------------------------------------------------------------------------


def test_archived_payloads_verify_with_and_without_their_file(world: World, tmp_path: Path) -> None:
    old_refund(world)
    away(tmp_path)
    no_logs = audited.no_logs(tmp_path)
    code, found = audited.verified(*no_logs)
    assert (code, found["erased"], found["read_back"]) == (0, 0, 0) and found["archived"] > 8
    code, read = audited.verified(*no_logs, "--archives", str(tmp_path))
    assert (code, read["archived"], read["read_back"]) == (0, found["archived"], found["archived"])
    exported = tmp_path / "run.json"
    exported.write_text(told("export_run", "req-8472"))
    assert audited.verified("--export", str(exported))[0] == 0


def test_a_payload_that_is_only_called_archived_is_a_fault(world: World, tmp_path: Path) -> None:
    run, no_logs = old_refund(world), audited.no_logs(tmp_path)
    first = Event.objects.get(run=run, seq=1)
    audited.put(run, 1, payload=None, salt=None)
    assert audited.fault(*no_logs) == (1, "run.accepted", "payload removed")
    note = {"file": "archive-20260101T000000Z-0123456789abcdef.jsonl", "folder": "/", "sha256": "0" * 64, "size": 1}
    forged = Archive.objects.create(run=run, **note, last_seq=99, at=dbtime.now(), key_id="k1", mac="0" * 64)
    assert audited.fault(*no_logs) == (1, "run.accepted", "payload removed")
    forged.delete()
    Event.objects.filter(pk=first.pk).update(payload=first.payload, salt=first.salt)
    away(tmp_path)
    assert audited.verified(*no_logs)[0] == 0
    reply = Event.objects.get(run=run, type="reply.sent")
    audited.put(run, reply.seq, payload=None, salt=None)  # of a type that is never archived
    assert audited.fault(*no_logs) == (reply.seq, "reply.sent", "payload removed")
    Event.objects.filter(pk=reply.pk).update(payload=reply.payload, salt=reply.salt)
    Archive.objects.update(sha256="1" * 64)
    assert audited.fault(*no_logs) == (1, "run.accepted", "payload removed")


def test_a_file_that_is_gone_or_changed_is_a_fault_where_it_is_asked_for(world: World, tmp_path: Path) -> None:
    old_refund(world)
    away(tmp_path)
    path, no_logs = only_file(tmp_path), audited.no_logs(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"evidence":"', b'"evidence":"AAAA', 1))
    assert audited.fault(*no_logs, "--archives", str(tmp_path)) == (1, None, "archive not whole")
    path.unlink()
    assert audited.fault(*no_logs, "--archives", str(tmp_path)) == (1, None, "archive not whole")
    assert audited.verified(*no_logs)[0] == 0


# --- every door that reads it ---------------------------------------------------------------------------------------


def test_commands_say_where_the_texts_are_and_work_again_once_they_are_back(world: World, tmp_path: Path) -> None:
    run = old_refund(world)
    before = told("why", "req-8472")
    away(tmp_path)
    path = only_file(tmp_path)
    why = told("why", "req-8472")
    assert f"in {path}" in why and "its numbers are in the archive" in why and "lead_17 approved" in why
    assert "order 8472, 2,000.00 INR in all" in why and "Refund rf_" in why
    shown = json.loads(told("why", "req-8472", "--json"))["archived"]
    assert (shown["file"], shown["folder"]) == (path.name, str(tmp_path))
    assert f"archived: its texts lie in {path.name} since" in fails("replay", "req-8472")
    command("--restore", str(run.pk))
    assert told("why", "req-8472") == before
    assert "The same" in told("replay", "req-8472")


def test_pages_and_answers_of_an_archived_run(world: World, tmp_path: Path) -> None:
    run = old_refund(world)
    away(tmp_path)
    shop, lead = edge.client(edge.token()), signed_in(world.person("root", is_superuser=True))
    page = lead.get(f"/admin/runs/run/{run.pk}/change/").content.decode()
    assert only_file(tmp_path).name in page and "(in the archive)" in page and "The answer as it came is in" in page
    assert "archived: its texts lie in" in lead.get(f"/admin/runs/run/{run.pk}/prompt/1/").content.decode()
    approval_id = Run.objects.values_list("approval_id", flat=True).get(pk=run.pk)
    for path in (f"/admin/approvals/approval/{approval_id}/change/", "/admin/runs/run/", "/admin/runs/write/"):
        assert lead.get(path).status_code == 200, path
    assert shop.get(f"/api/v1/runs/{run.pk}/events").status_code == 200
    seen = shop.get(f"/api/v1/runs/{run.pk}/observations").json()["results"]
    assert {o["source"] for o in seen if o["content"].get("archived")} >= {"get_order", "search_policy"}
    file_id = Attachment.objects.get(run=run).pk
    answer = shop.get(f"/api/v1/runs/{run.pk}/attachments/{file_id}")
    assert (answer.status_code, answer.json()["title"]) == (410, "The file is in an archive.")
    assert lead.get(reverse("admin:runs_run_file", args=[run.pk, file_id])).status_code == 404


def test_what_people_do_after_the_end_still_works_and_survives_the_restore(world: World, tmp_path: Path) -> None:
    run = old_refund(world)
    away(tmp_path)
    store.feedback(str(run.pk), "up", "a late word")
    Run.objects.filter(pk=run.pk).update(status="escalated", outcome="handed_to_staff")
    seq = Run.objects.values_list("last_seq", flat=True).get(pk=run.pk)
    store.finish(
        store.Resolution(run_id=str(run.pk), by="ops_3", reason="other", note="as agreed", text="Done.", seen_seq=seq)
    )
    assert world.said(run) == "Done."
    command("--restore", "req-8472")
    done = Event.objects.get(run=run, type="run.resolved")
    assert done.payload["text"] == "Done." and not is_empty(run)
    Run.objects.filter(pk=run.pk).update(status="completed", outcome="refunded")


# --- files that no run needs ------------------------------------------------------------------------------------------


def test_tidy_removes_what_no_row_needs_and_nothing_else(world: World, tmp_path: Path) -> None:
    run = old_refund(world)
    away(tmp_path)
    needed = only_file(tmp_path)
    names = [f"archive-20260101T00000{n}Z-0123456789abcdef.jsonl" for n in range(3)]
    (tmp_path / names[0]).write_bytes(b"{}\n")  # nobody knows whose
    (tmp_path / f"{names[1]}.part").write_bytes(needed.read_bytes()[:99])
    (tmp_path / "notes.txt").write_text("somebody's own")
    assert command("--tidy", "--to", str(tmp_path))["removed"] == [f"{names[1]}.part"]
    command("--restore", str(run.pk))
    assert command("--tidy", "--to", str(tmp_path))["removed"] == [needed.name]
    assert {path.name for path in tmp_path.iterdir()} == {names[0], "notes.txt", ".lock"}


def test_a_second_archiver_in_a_folder_is_told_so(world: World, tmp_path: Path) -> None:
    aged(answered(world, "req-1"))
    with moving.alone(tmp_path):
        assert f"another archiver works in {tmp_path}" in refused("--older-than", "90", "--to", str(tmp_path))
        assert not Archive.objects.exists()
    assert away(tmp_path)["runs"] == 1


def test_one_file_holds_a_bounded_batch(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "BATCH", 2)
    aged(*(answered(world, f"req-{n}") for n in range(5)))
    before = cells()
    assert (away(tmp_path)["files"], len(list(tmp_path.glob("archive-*")))) == (3, 3)
    for path in tmp_path.glob("archive-*"):
        assert archive.restore_file(path).there == 0
    assert differing(before) == set()
