"""Whoever changes the record of a run is found by `verify_audit`: which row, and what became of it (M78)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.db import connection, transaction

from agentsite import clock, dbtime, env, heads
from agentsite.tenants.models import Tenant
from runs import audit
from runs.contracts import NewEvent
from runs.models import Event, Run
from runs.store import events
from tests.audited import Json, at, cut, fault, no_logs, put, renumber, rows, settle_row, sign_anew, verified

TENANT = "t_acme_in"


@pytest.fixture
def log(db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The heads log of a host of its own, beside its log of writes."""
    path = tmp_path / "logs" / "heads.jsonl"
    monkeypatch.setenv("HEADS_LOG", str(path))
    monkeypatch.setenv("ANCHOR_LOG", str(path.with_name("writes.jsonl")))
    env.read.cache_clear()
    yield path
    env.read.cache_clear()


@pytest.fixture
def committed(django_capture_on_commit_callbacks: Any) -> Callable[[], Any]:
    """What happens inside is on the disk, as far as those are told who wait for it."""
    return partial(django_capture_on_commit_callbacks, execute=True)


@pytest.fixture
def lives(log: Path, committed: Callable[[], Any]) -> Callable[..., Run]:
    """Makes runs with the record of a refund: twelve events in four commits."""

    def live(request_id: str = "req-8472", steps: int = 4) -> Run:
        run = begun(request_id, committed)
        for happened, columns in LIFE[: steps - 1]:
            with committed(), transaction.atomic():
                events.note(run, happened, **columns)
        return Run.objects.get(pk=run.pk)

    return live


def begun(request_id: str, committed: Callable[[], Any], *, named: bool = True) -> Run:
    now = dbtime.now()
    Tenant.objects.get_or_create(id=TENANT)
    run = Run.objects.create(
        tenant_id=TENANT, request_id=request_id, body_hash="", trace_id=uuid.uuid4().hex, agent="refunds",
        customer_id="cust_5521", contract={}, created_by="user:0", status_since=now, created_at=now, updated_at=now,
    )  # fmt: skip
    meta = {"request_id": run.request_id, "trace_id": run.trace_id, "agent": run.agent, "release": ""}
    meta |= {"tenant_id": run.tenant_id} if named else {}
    with committed(), transaction.atomic():
        events.note(run, [NewEvent(type="run.accepted", meta=meta, payload={"goal": "Naïve “words” of a customer"})])
    return run


def moved(before: str, to: str, **more: Any) -> NewEvent:
    return NewEvent(type="run.status", meta={"from": before, "to": to, "reason": None, "took_ms": 1, **more})


LIFE: list[tuple[list[NewEvent], Json]] = [
    (
        [
            NewEvent(type="prompt.built", span="m1", meta={"version": "refunds@3"}),
            NewEvent(type="model.replied", span="m1", meta={"calls": 1}, payload={"raw": "{}"}),
            NewEvent(type="tool.observed", span="t1", meta={"tool": "get_order"}, payload={"content": {"a": 1.5}}),
            moved("accepted", "gathering"),
        ],
        {"status": "gathering"},
    ),
    (
        [
            NewEvent(type="gate.decided", meta={"rule": "x"}, payload={"decision": "allow", "checks": []}),
            NewEvent(type="write.intent", span="t2", meta={"key": "k"}, payload={"body": "{}"}),
            NewEvent(type="write.sent", span="t2", meta={"key": "k", "attempt": 1}),
            moved("gathering", "executing"),
        ],
        {"status": "executing"},
    ),
    (
        [
            NewEvent(type="write.verified", span="t3", meta={"key": "k"}, payload={"passed": True}),
            NewEvent(type="reply.sent", meta={}, payload={"text": "It has been made."}),
            moved("executing", "completed", outcome="refunded"),
        ],
        {"status": "completed", "outcome": "refunded"},
    ),
]


@pytest.fixture
def run(lives: Callable[..., Run]) -> Run:
    """A run that ended with a refund."""
    return lives()


# --- rows that were changed, removed, inserted, moved -----------------------------------------------------------

CHANGES: dict[str, Any] = {
    "type": "notice", "version": 99, "span": "m99", "meta": '{"a":1}', "payload": '{"goal":"another"}',
    "salt": "0" * 32, "digest": "0" * 64, "prev": "0" * 64, "mac": "0" * 64,
    "at": "2026-11-30 01:02:03.004+00:00",
}  # fmt: skip


@pytest.mark.parametrize("column", CHANGES)
def test_changed_column_of_any_row_is_found(run: Run, tmp_path: Path, column: str) -> None:
    """Every row in its turn, by the chain alone."""
    args = no_logs(tmp_path)
    for event in rows(run).order_by("seq"):
        before = getattr(event, column)
        put(run, event.seq, **{column: CHANGES[column]})
        assert fault(*args)[::2] == (event.seq, "changed"), event.type
        Event.objects.filter(pk=event.pk).update(**{column: before})
    assert verified(*args)[0] == 0


def test_smallest_changes_are_found(run: Run, tmp_path: Path) -> None:
    """What two readers might read alike: a time finer than what is signed, JSON with a blank, a span taken away."""
    args, row = no_logs(tmp_path), at(run, 4)
    for column, value in (
        ("at", row.at.replace(microsecond=row.at.microsecond + 1)),
        ("meta", json.dumps(row.meta, separators=(",", ":")) + " "),
        ("span", None if row.span else "m1"),
    ):
        put(run, 4, **{column: value})
        assert fault(*args)[::2] == (4, "changed"), column
        Event.objects.filter(pk=row.pk).update(**{column: getattr(row, column)})


@pytest.mark.parametrize("where", [1, 4])
def test_removed_row_is_a_gap(run: Run, tmp_path: Path, where: int) -> None:
    at(run, where).delete()
    assert fault(*no_logs(tmp_path)) == (where, None, "removed")


def test_removed_row_is_named_where_the_others_were_renumbered(run: Run, tmp_path: Path) -> None:
    at(run, 4).delete()
    renumber(run, 5, -1)
    settle_row(run)
    assert fault(*no_logs(tmp_path)) == (4, None, "removed")


def test_two_rows_that_changed_places_are_reordered(run: Run, tmp_path: Path) -> None:
    here, there = at(run, 4), at(run, 6)
    for pk, seq in ((here.pk, 999), (there.pk, 4), (here.pk, 6)):
        Event.objects.filter(pk=pk).update(seq=seq)
    assert fault(*no_logs(tmp_path)) == (4, there.type, "reordered")


def test_two_rows_whose_contents_changed_places_are_reordered(run: Run, tmp_path: Path) -> None:
    here, there = at(run, 4), at(run, 6)
    what = ("type", "at", "version", "span", "meta", "payload", "salt", "digest")
    for into, of in ((here, there), (there, here)):
        Event.objects.filter(pk=into.pk).update(**{name: getattr(of, name) for name in what})
    assert fault(*no_logs(tmp_path)) == (4, there.type, "reordered")


def test_row_that_was_moved_out_of_the_way_is_reordered(run: Run, tmp_path: Path) -> None:
    Event.objects.filter(pk=at(run, 4).pk).update(seq=run.last_seq + 3)
    assert fault(*no_logs(tmp_path))[::2] == (4, "reordered")


def forged(run: Run, seq: int, prev: str) -> Event:
    return Event(
        run=run, seq=seq, type="approval.decided", at=clock.now(), version=3, meta={"decision": "approve"},
        digest="a" * 64, prev=prev, mac="b" * 64, key_id="k1",
    )  # fmt: skip


@pytest.mark.parametrize("copied", [False, True])
def test_inserted_row_is_found_in_the_middle(run: Run, tmp_path: Path, copied: bool) -> None:
    new = forged(run, 5, at(run, 4).mac) if not copied else at(run, 2)
    renumber(run, 5, +1)
    new.pk, new.seq = None, 5
    new.save(force_insert=True)
    settle_row(run)
    assert fault(*no_logs(tmp_path)) == (5, new.type, "inserted")


def test_row_that_was_added_at_the_end_is_found(run: Run, tmp_path: Path) -> None:
    forged(run, run.last_seq + 1, run.chain_head).save()
    assert fault(*no_logs(tmp_path)) == (run.last_seq + 1, "approval.decided", "inserted")
    settle_row(run)
    assert fault(*no_logs(tmp_path))[::2] == (run.last_seq + 1, "changed")


def test_only_the_first_row_of_a_run_is_named(run: Run, tmp_path: Path) -> None:
    for seq in (7, 3, 5):
        put(run, seq, version=98)
    assert fault(*no_logs(tmp_path))[::2] == (3, "changed")


def test_numbers_of_any_size_hold_nobody_up(run: Run, tmp_path: Path) -> None:
    put(run, 3, version=98)
    Event.objects.filter(pk=at(run, 5).pk).update(seq=2**31 - 1)
    Run.objects.filter(pk=run.pk).update(last_seq=2**31 - 1)
    assert fault(*no_logs(tmp_path))[::2] == (3, "changed")


@pytest.mark.parametrize("column", ["mac", "type", "span", "digest", "key_id", "payload", "meta"])
@pytest.mark.parametrize("odd", ["é", b"\xff", b"\x00"], ids=["no ASCII", "no UTF-8", "a zero"])
def test_row_that_holds_what_no_row_of_ours_does_is_named(
    run: Run, tmp_path: Path, column: str, odd: str | bytes
) -> None:
    if connection.vendor == "postgresql" and isinstance(odd, bytes):
        pytest.skip("PostgreSQL takes text alone where text belongs")
    put(run, 3, **{column: odd})
    assert fault(*no_logs(tmp_path))[::2] == (3, "unknown key" if column == "key_id" else "changed")
    assert fault(*no_logs(tmp_path), "req-8472")[0] == 3


def test_run_row_with_a_number_that_is_none_is_named(run: Run, tmp_path: Path) -> None:
    if connection.vendor == "postgresql":
        pytest.skip("PostgreSQL takes numbers alone where a number belongs")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_run SET last_seq = 'x'")
    assert fault(*no_logs(tmp_path))[2] == "run row differs"


# --- what only a log outside knows --------------------------------------------------------------------------------


def test_tail_that_was_cut_off_shows_in_the_runs_own_row(run: Run, tmp_path: Path) -> None:
    rows(run).filter(seq__gt=run.last_seq - 2).delete()
    assert fault(*no_logs(tmp_path)) == (run.last_seq - 1, None, "cut off at the tail")


def test_tail_that_was_cut_off_with_the_row_shows_in_the_log(run: Run, tmp_path: Path) -> None:
    gone = cut(run, 3)
    assert verified(*no_logs(tmp_path))[0] == 0
    assert fault() == (gone, None, "cut off at the tail")


def test_run_that_is_gone_is_known_to_the_log(lives: Callable[..., Run]) -> None:
    run, other = lives("req-1"), lives("req-2")
    gone = str(run.pk)
    rows(run).delete()
    run.delete()
    code, found = verified()
    assert (code, found["runs"], found["faulty"]) == (1, 1, 1)
    assert found["faults"][0] | {"why": ""} == {
        "run_id": gone, "request_id": "", "seq": 1, "type": None, "kind": "run removed", "why": "",
    }  # fmt: skip
    assert fault(gone)[2] == "run removed"
    assert verified(str(other.pk))[0] == 0
    assert verified("--tenant", TENANT)[0] == 0  # a log names no tenant
    assert verified("--after", gone)[0] == 0


def test_run_without_a_row_of_its_record_is_cut_off(run: Run, tmp_path: Path) -> None:
    rows(run).delete()
    Run.objects.filter(pk=run.pk).update(last_seq=0, chain_head="")
    assert fault(*no_logs(tmp_path)) == (1, None, "cut off at the tail")


def test_rotated_log_is_read_too(run: Run, log: Path) -> None:
    log.rename(log.with_name(log.name + ".1"))
    assert verified()[1]["known"] == 1
    cut(run, 1)
    assert fault()[2] == "cut off at the tail"


def test_torn_and_foreign_lines_are_counted_and_the_others_hold(run: Run, log: Path) -> None:
    whole = log.read_bytes()
    odd = [
        b"", b"null", b"[1]", b"{", b"\xff\xfe", b"[" * 5000, b'{"kind":"head"}',
        b'{"kind":"other","at":"2026-11-30T00:00:00Z"}',
        b'{"kind":"head","run":"r","seq":1,"mac":"m","at":"2026-11-30T00:00:00Z"}', whole.split(b"\n")[0][:90],
        b'{"kind":"head","run":"%s","seq":"1","mac":"m","at":"2026-11-30T00:00:00Z"}' % str(run.pk).encode(),
    ]  # fmt: skip
    log.write_bytes(b"\n".join([*odd, whole.rstrip(b"\n")]) + b"\n" + whole[:60])
    code, found = verified()
    assert (code, found["known"], found["unread"]) == (0, 1, len(odd) + 1)  # the empty line is none, the long one two
    gone = cut(run, 1)
    assert fault()[0] == gone


def test_log_that_cannot_be_read_is_named(run: Run, tmp_path: Path) -> None:
    for path in (tmp_path / "absent.jsonl", tmp_path):
        code, found = verified("--anchors", str(path))
        assert code == 1 and str(path) in found["error"] and "cannot be read" in found["error"]


def test_history_that_the_holder_of_the_key_wrote_anew_shows_in_the_log(run: Run, tmp_path: Path) -> None:
    where = rows(run).get(type="gate.decided").seq
    sign_anew(run, lambda row: setattr(row, "payload", {"decision": "allow"}), where)
    assert verified(*no_logs(tmp_path))[0] == 0
    assert fault()[::2] == (where + 3, "changed")  # the head of the commit that the row belonged to
    assert "first stands after place 5" in verified()[1]["faults"][0]["why"]


def test_logs_of_two_hosts_are_read_together(lives: Callable[..., Run], log: Path, tmp_path: Path) -> None:
    first = lives("req-1")
    one = log.rename(tmp_path / "host1.jsonl")
    second = lives("req-2")
    two = log.rename(tmp_path / "host2.jsonl")
    code, found = verified("--anchors", str(one))
    assert (code, found["known"], found["unknown"]) == (0, 1, 1)
    both = ("--anchors", str(one), "--anchors", str(two))
    assert (verified(*both)[1]["known"], verified(*both)[1]["unknown"]) == (2, 0)
    gone = cut(first, 1), cut(second, 2)
    assert [f["seq"] for f in verified(*both)[1]["faults"]] == list(gone)


def test_run_that_was_moved_to_another_tenant_differs(run: Run, log: Path, committed: Callable[[], Any]) -> None:
    begun("req-older", committed, named=False)  # an older release did not name the tenant
    assert verified()[0] == 0
    Tenant.objects.create(id="t_other")
    Run.objects.filter(pk=run.pk).update(tenant_id="t_other")
    assert fault()[::2] == (1, "run row differs")
    assert fault("--tenant", "t_other")[::2] == (1, "run row differs")


# --- the run's own row -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "columns",
    [{"status": "cancelled"}, {"reason": "needs_a_person"}, {"outcome": "no_refund_due"}, {"outcome": None},
     {"trace_id": "0" * 32}, {"request_id": "req-1"}, {"agent": "others"}, {"chain_head": "0" * 64}, {"last_seq": 3}],
    ids=str,
)  # fmt: skip
def test_run_row_that_was_edited_beside_its_record_is_named(run: Run, columns: Json) -> None:
    Run.objects.filter(pk=run.pk).update(**columns)
    assert fault()[2] == "run row differs"


def test_live_run_that_is_said_to_have_ended_is_named(lives: Callable[..., Run]) -> None:
    run = lives(steps=3)
    assert verified()[0] == 0
    Run.objects.filter(pk=run.pk).update(outcome="refunded")
    assert fault()[2] == "run row differs"


# --- keys, older rows -------------------------------------------------------------------------------------


@pytest.fixture
def keys(settings: LazySettings) -> Iterator[Callable[[str], None]]:
    def chosen(text: str) -> None:
        settings.AUDIT_KEY = text
        events.signing_key.cache_clear()

    yield chosen
    events.signing_key.cache_clear()


def test_rotated_key_verifies_old_rows_until_it_is_dropped(
    lives: Callable[..., Run], committed: Callable[[], Any], keys: Callable[[str], None], settings: LazySettings
) -> None:
    old, new = settings.AUDIT_KEY, f"k2:{'n' * 40}"
    run = lives()
    before = run.last_seq
    keys(f"{new},{old}")
    with committed(), transaction.atomic():
        events.note(run, [NewEvent(type="notice", meta={})])
    assert [e.key_id for e in rows(run).order_by("seq")] == ["k1"] * before + ["k2"]
    assert verified()[0] == 0
    keys(new)
    assert fault()[::2] == (1, "unknown key")
    keys(old)
    assert fault()[::2] == (before + 1, "unknown key")
    keys(f"k2:{'x' * 40},{old}")
    assert fault()[::2] == (before + 1, "changed")


def test_row_of_an_older_release_verifies_without_its_span_and_is_counted(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = events.signed_part
    monkeypatch.setattr(events, "signed_part", lambda **given: {k: v for k, v in real(**given).items() if k != "span"})
    sign_anew(run, lambda row: None, 2)
    env.read().heads_log.unlink()
    code, found = verified()
    assert (code, found["unspanned"], found["logs"]) == (0, run.last_seq - 1, [])


# --- asked for ---------------------------------------------------------------------------------------------------


def test_usage_is_2_and_an_unknown_run_1(run: Run, tmp_path: Path) -> None:
    assert verified("--export", str(tmp_path / "run.json"), "req-8472")[0] == 2
    assert verified("--after", str(run.pk), "req-8472")[0] == 2
    assert verified("req-nobody")[0] == 1
    assert verified("req-8472")[1]["runs"] == 1


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"run": 1, "events": []}', '{"run": {"run_id": "x"}, "events": [1]}',
             '{"run": {"run_id": {}}, "events": []}'],
)  # fmt: skip
def test_file_that_is_no_export_is_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "odd.json"
    file.write_text(text)
    code, found = verified("--export", str(file))
    assert code == 1 and found["error"].startswith(f"{file}: ")


def test_all_faults_are_counted_and_a_bounded_number_is_listed(
    lives: Callable[..., Run], log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runs.audit.verifying.MAX_FAULTS", 2)
    monkeypatch.setattr("runs.audit.rows.BATCH", 2)  # several statements
    made = [lives(f"req-{n}", 1) for n in range(5)]
    for run in made[1:]:
        put(run, 1, version=7)
    code, found = verified()
    assert (code, found["runs"], found["faulty"]) == (1, 5, 4)
    assert [f["run_id"] for f in found["faults"]] == [str(run.pk) for run in made[1:3]]
    assert found["last"] == str(made[-1].pk)
    assert verified("--after", str(made[3].pk))[1]["faulty"] == 1
    assert heads.append(str(made[0].pk), 9, "x", clock.now()) and audit.logs_here()[0] == log
    assert verified()[1]["faulty"] == 5
