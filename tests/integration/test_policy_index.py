"""The index of this host: built once, checked when opened, never believed about what is current (M89, B57)."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Iterable, Iterator
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from agentsite import env
from agentsite.tenants.models import Tenant
from runs.management.findings import searching
from tools.errors import IndexBuilding
from tools.models import PolicyCorpus, PolicyDocument, PolicyPassage
from tools.policy import index, ranking, shelf
from tools.policy.documents import load
from tools.policy.search import search

T, OTHER = "t_acme_in", "t_other"
PIN = "POL-REF-004@v4"


def text(body: str, *, doc: str = "POL-REF-004", version: int = 4, status: str = "current", **more: str) -> str:
    front = {"id": doc, "version": str(version), "title": "Refunds", "status": status} | more
    return "---\n" + "".join(f"{k}: {v}\n" for k, v in front.items()) + f"---\n\n## Rule\n\n{body}\n"


def found(query: str, tenant: str = T, pin: str = "") -> list[tuple[str, bool]]:
    return [(f"{p.doc}@v{p.version}", p.current) for p in search(tenant, query, pin=pin, limit=8)]


def directories(tenant: str = T) -> list[str]:
    """Names of the indexes on disk, and of anything else that is not the lock."""
    return sorted(p.name for p in shelf.folder(tenant).iterdir() if p.name != shelf.LOCK)


def stamp(tenant: str = T) -> str:
    return PolicyCorpus.objects.get(tenant_id=tenant).stamp


def forget() -> None:
    """This process has opened nothing yet."""
    index._PROCESSES.clear()


@pytest.fixture(autouse=True)
def host(db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A disk of the test's own, two tenants, and a process that has opened nothing."""
    own = env.read().VAR_DIR.absolute() / tmp_path.name / "var"
    monkeypatch.setenv("VAR_DIR", str(own))
    env.read.cache_clear()
    forget()
    for tenant in (T, OTHER):
        Tenant.objects.create(id=tenant)
    yield own / shelf.FOLDER
    forget()
    shutil.rmtree(own.parent, ignore_errors=True)
    monkeypatch.undo()
    env.read.cache_clear()


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tenant's corpus is too large to be indexed by whoever asks, also within a test's transaction."""
    monkeypatch.setattr(index, "SMALL", -1)
    monkeypatch.setattr(index, "POLLS", 3)


# --- what is built, and when -----------------------------------------------------------------------------------


def test_index_is_a_directory_named_by_its_stamp() -> None:
    load(T, text("Lost parcels are refunded."))
    assert found("parcels") == [("POL-REF-004@v4", True)]
    (name,) = directories()
    assert name.startswith(f"{stamp()}-")
    manifest = json.loads((shelf.place(T, stamp()) / "manifest.json").read_text())
    assert (manifest["stamp"], manifest["passages"]) == (stamp(), 1)
    assert "Lost parcels" not in (shelf.place(T, stamp()) / "rows").read_bytes().decode(errors="replace")


def test_index_is_built_once_for_each_stamp(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Path] = []
    real = ranking.build

    def build(path: Path, entries: Iterable[ranking.Entry]) -> None:
        built.append(path)
        real(path, entries)

    monkeypatch.setattr(ranking, "build", build)
    load(T, text("Lost parcels are refunded."))
    for _ in range(3):
        assert found("parcels") != []
    forget()  # another process of this host
    assert found("parcels") != []
    assert len(built) == 1
    load(T, text("Broken parcels are refunded.", version=5))
    assert (found("parcels"), len(built)) == ([("POL-REF-004@v5", True)], 2)
    assert len(directories()) == 1


def test_same_file_loaded_again_builds_nothing() -> None:
    load(T, text("Lost parcels are refunded."))
    assert found("parcels") != []
    before = directories()
    load(T, text("Lost parcels are refunded."))
    assert found("parcels") != []
    assert directories() == before


def test_index_holds_one_version_of_each_document_and_no_draft() -> None:
    load(T, text("parcels one", version=1, status="superseded"))
    load(T, text("parcels two", version=2, status="superseded"))
    load(T, text("parcels three", version=3, status="draft"))
    load(T, text("parcels four", doc="POL-B", version=7))
    load(T, text("parcels five", doc="POL-B", version=9, status="superseded"))
    load(T, text("parcels six", doc="POL-C", status="draft"))
    opened = index.current(T)
    assert opened is not None
    held = PolicyPassage.objects.filter(pk__in=[hit.pk for hit in opened.hits("parcels", 10)])
    assert sorted(str(p.document) for p in held) == ["POL-B@v7", "POL-REF-004@v2"]


def test_tenant_without_a_policy_has_no_index_and_gets_nothing() -> None:
    assert index.current(T) is None
    assert found("anything", pin=PIN) == []
    assert not shelf.folder(T).exists()


def test_policies_of_an_older_release_get_a_stamp() -> None:
    load(T, text("Lost parcels are refunded."))
    PolicyCorpus.objects.all().delete()
    assert found("parcels") == [("POL-REF-004@v4", True)]
    assert stamp()


@pytest.mark.parametrize("count", [0, 1])
def test_corpus_of_drafts_alone_is_an_empty_index(count: int) -> None:
    for number in range(count + 1):
        load(T, text("parcels", version=number + 1, status="draft"))
    assert found("parcels", pin=PIN) == []


def test_tenants_have_separate_indexes() -> None:
    load(T, text("Lost parcels are refunded."))
    load(OTHER, text("Lost parcels are never refunded.", doc="POL-X", version=1))
    assert found("parcels") == [("POL-REF-004@v4", True)]
    assert found("parcels", OTHER) == [("POL-X@v1", True)]


def test_hit_of_another_tenant_is_no_answer() -> None:
    """Even an index that holds another tenant's passage: rows are asked for this tenant's alone."""
    theirs = load(OTHER, text("Lost parcels are never refunded.", doc="POL-X", version=1)).passages.get()
    load(T, text("Broken vases are refunded."))
    planted = shelf.Content(
        pk=theirs.pk, document=theirs.document_id, content_hash=theirs.content_hash, title="", section="",
        text=theirs.text,
    )  # fmt: skip
    shelf.build(T, stamp(), [planted])
    assert found("parcels") == []


# --- rows decide -----------------------------------------------------------------------------------------------


def test_document_that_ended_today_is_marked_without_a_new_index(monkeypatch: pytest.MonkeyPatch) -> None:
    load(T, text("Lost parcels are refunded."))
    assert found("parcels") == [("POL-REF-004@v4", True)]
    before = stamp()
    PolicyDocument.objects.update(effective_until="2001-01-01")
    assert found("parcels") == [("POL-REF-004@v4", False)]
    assert stamp() == before


def test_rows_changed_by_hand_are_noticed_and_indexed_anew() -> None:
    """Nobody told the corpus: the hit that is gone tells it."""
    load(T, text("Lost parcels are refunded.", version=3, status="superseded"))
    load(T, text("Lost parcels are refunded at once."))
    assert found("parcels") == [("POL-REF-004@v4", True)]
    before = stamp()
    PolicyDocument.objects.filter(version=4).delete()
    assert found("parcels") == [("POL-REF-004@v3", False)]
    assert stamp() != before


def test_text_changed_under_its_row_is_no_answer_of_the_old_index() -> None:
    load(T, text("Lost parcels are refunded."))
    assert found("parcels") != []
    PolicyPassage.objects.update(text="Broken vases are refunded.", content_hash="sha256:" + "0" * 64)
    assert found("parcels") == []
    assert found("vases") == [("POL-REF-004@v4", True)]


def test_current_passage_is_found_behind_many_superseded_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Superseded hits do not crowd the current one out, however many rank before it."""
    monkeypatch.setattr("tools.policy.search.AT_ONCE", 50)  # a database takes no list of any length
    for number in range(70):
        load(T, text("parcels parcels parcels", doc=f"POL-OLD-{number}", version=1, status="superseded"))
    load(T, text("Among very many other words that say nothing of it, parcels are named here once and no more."))
    assert found("parcels") == [("POL-REF-004@v4", True)]


def test_answer_is_all_current_or_all_superseded() -> None:
    load(T, text("parcels lost", doc="POL-A", version=1, status="superseded"))
    load(T, text("parcels broken", doc="POL-B", version=1))
    load(T, text("vases", doc="POL-C", version=1, status="superseded"))
    assert found("parcels vases") == [("POL-B@v1", True)]
    assert found("vases") == [("POL-C@v1", False)]


def test_order_of_loading_changes_no_answer() -> None:
    texts = [text("parcels lost or broken", doc=f"POL-{n}", version=1) for n in range(6)]
    for one in texts:
        load(T, one)
    for one in reversed(texts):
        load(OTHER, one)
    answers = [[(p.doc, p.score) for p in search(t, "broken parcels", pin="", limit=4)] for t in (T, OTHER)]
    assert answers[0] == answers[1]
    assert [doc for doc, _ in answers[0]] == ["POL-0", "POL-1", "POL-2", "POL-3"]


def test_near_in_meaning_stands_among_those_found_by_words_and_rows_decide_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vector may be of a superseded version, of a row that is gone or of another tenant: it brings none of these."""
    old = load(T, text("Kites are taken back.", doc="POL-K", version=1)).passages.get()
    load(T, text("Kites are not taken back.", doc="POL-K", version=2))
    meant = load(T, text("Gliders are taken back.", doc="POL-G", version=1)).passages.get()
    theirs = load(OTHER, text("Gliders are never taken back.", doc="POL-X", version=1)).passages.get()
    both = load(T, text("Lost parcels are refunded.")).passages.get()
    asked: list[tuple[str, str, int]] = []

    def nearest(tenant: str, query: str, limit: int) -> list[tuple[int, float]]:
        asked.append((tenant, query, limit))
        return [(old.pk, 0.9), (10**9, 0.9), (theirs.pk, 0.8), (meant.pk, 0.7), (both.pk, 0.6)]

    monkeypatch.setattr("tools.policy.search.vectors.nearest", nearest)
    answer = search(T, "parcels", pin="", limit=8)
    assert [(p.doc, p.version, p.current) for p in answer] == [("POL-REF-004", 4, True), ("POL-G", 1, True)]
    assert [round(p.score, 6) for p in answer] == [round(1 / 61 + 1 / 65, 6), round(1 / 64, 6)]
    assert asked == [(T, "parcels", 50)]
    opened = index.current(T)
    assert opened is not None
    assert opened.stamp == stamp(), "what a vector alone brought says nothing about the index"


# --- while another builder works -------------------------------------------------------------------------------


def test_none_ready_is_index_building_and_never_an_empty_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "POLLS", 3)
    load(T, text("Lost parcels are refunded."))
    lock = shelf.try_lock(T)
    assert lock is not None
    with pytest.raises(IndexBuilding) as raised:
        search(T, "parcels", pin=PIN)
    assert (raised.value.slug, raised.value.retryable, raised.value.retry_after_s) == ("index_building", True, 1.0)
    lock.release()
    assert found("parcels") == [("POL-REF-004@v4", True)]


def test_old_index_serves_what_is_still_current_while_the_next_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "POLLS", 3)
    load(T, text("Lost parcels are refunded."))
    load(T, text("Broken vases are refunded.", doc="POL-V", version=1))
    assert found("parcels") != []
    lock = shelf.try_lock(T)
    assert lock is not None
    load(T, text("Broken vases are never refunded.", doc="POL-V", version=2))
    assert found("parcels") == [("POL-REF-004@v4", True)]
    with pytest.raises(IndexBuilding):  # only the next index can know whether there is something
        search(T, "gone astray", pin=PIN)
    forget()  # a process that starts now serves the old one too
    assert found("parcels") == [("POL-REF-004@v4", True)]
    lock.release()
    assert found("vases") == [("POL-V@v2", True)]


def test_text_that_replaced_another_answers_in_its_place_before_it_is_indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    """B57: never the superseded one, and nobody waits: rows are there before the index."""
    monkeypatch.setattr(index, "POLLS", 3)
    load(T, text("Broken vases are refunded.", doc="POL-V", version=1))
    load(T, text("Vases and other pots that were lost on their way to the customer.", doc="POL-W", version=1))
    assert [name for name, _ in found("broken vases")] == ["POL-V@v1", "POL-W@v1"]
    lock = shelf.try_lock(T)
    assert lock is not None
    load(T, text("Broken vases are never refunded.", doc="POL-V", version=2))
    (first, second) = search(T, "broken vases", pin="", limit=8)
    assert (first.doc, first.version, first.current, first.text) == (
        "POL-V",
        2,
        True,
        "Broken vases are never refunded.",
    )
    assert (second.doc, second.current, first.score > second.score > 0) == ("POL-W", True, True)
    load(T, text("Zeppelins.", doc="POL-V", version=3))
    assert found("broken vases") == [("POL-W@v1", True)]
    load(T, text("Broken vases are what this says.", doc="POL-V", version=3), replace=True)
    assert found("broken vases") == [("POL-V@v3", True), ("POL-W@v1", True)]
    lock.release()
    assert found("broken vases") == [("POL-V@v3", True), ("POL-W@v1", True)]


def test_replaced_text_too_long_to_be_ranked_in_passing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "POLLS", 3)
    monkeypatch.setattr("tools.policy.search.IN_PASSING", 0)
    load(T, text("Broken vases are refunded.", doc="POL-V", version=1))
    assert found("vases") != []
    lock = shelf.try_lock(T)
    assert lock is not None
    load(T, text("Broken vases are never refunded.", doc="POL-V", version=2))
    with pytest.raises(IndexBuilding):
        search(T, "vases", pin="")
    lock.release()
    assert found("vases") == [("POL-V@v2", True)]


def test_withdrawn_document_is_marked_before_the_next_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "POLLS", 3)
    load(T, text("Broken vases are refunded.", doc="POL-V", version=1))
    load(T, text("Vases and other pots.", doc="POL-W", version=1))
    assert found("vases") != []
    lock = shelf.try_lock(T)
    assert lock is not None
    load(T, text("Broken vases are refunded.", doc="POL-V", version=1, status="superseded"))
    assert found("vases") == [("POL-W@v1", True)]
    lock.release()
    assert found("broken") == [("POL-V@v1", False)]


def test_superseded_answer_waits_for_the_index_that_may_know_a_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "POLLS", 3)
    load(T, text("Old parcels.", doc="POL-OLD", version=1, status="superseded"))
    assert found("parcels") == [("POL-OLD@v1", False)]
    lock = shelf.try_lock(T)
    assert lock is not None
    load(T, text("New parcels."))
    with pytest.raises(IndexBuilding):
        search(T, "parcels", pin=PIN)
    lock.release()
    assert found("parcels") == [("POL-REF-004@v4", True)]


def test_search_waits_for_a_builder_that_is_about_to_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    load(T, text("Lost parcels are refunded."))
    lock = shelf.try_lock(T)
    assert lock is not None
    waits: list[float] = []

    def waited(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2 and lock is not None:
            lock.release()

    monkeypatch.setattr("tools.policy.index.time.sleep", waited)
    assert found("parcels") == [("POL-REF-004@v4", True)]
    assert waits == [index.POLL_S] * 2


# --- a disk that is not what it was ----------------------------------------------------------------------------


def replaced(path: Path, raw: bytes) -> None:
    """Another file of that name: who has the old one open reads on in it."""
    path.unlink()
    path.write_bytes(raw)


def wreck(how: str, host: Path) -> None:
    where = shelf.place(T, stamp())
    manifest = json.loads((where / "manifest.json").read_text())
    if how == "everything gone":
        shutil.rmtree(host)
    elif how == "no manifest":
        (where / "manifest.json").unlink()
    elif how == "empty file":
        replaced(where / "rows", b"")
    elif how == "file gone":
        next((where / "words").glob("*.store")).unlink()
    elif how == "a byte turned":
        path = next((where / "words").glob("*.term"))
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 0xFF
        replaced(path, bytes(raw))
    elif how == "manifest is no mapping":
        replaced(where / "manifest.json", b"[]")
    elif how == "another's manifest":
        replaced(where / "manifest.json", json.dumps(manifest | {"stamp": "0" * 32}).encode())


@pytest.mark.parametrize(
    "how",
    ["everything gone", "no manifest", "empty file", "file gone", "a byte turned", "manifest is no mapping",
     "another's manifest"],
)  # fmt: skip
def test_index_lost_or_torn_is_rebuilt_from_rows(how: str, host: Path) -> None:
    load(T, text("Lost parcels are refunded."))
    assert found("parcels") != []
    wreck(how, host)
    assert found("parcels") == [("POL-REF-004@v4", True)], "who has it open reads on"
    forget()
    assert shelf.opened(T, stamp()) is None
    assert found("parcels") == [("POL-REF-004@v4", True)]
    (name,) = directories()
    assert name.startswith(stamp())


def test_leftovers_of_dead_builders_are_removed(host: Path) -> None:
    load(T, text("Lost parcels are refunded."))
    for name in (f"{shelf.HALF_BUILT}dead", f"{shelf.GONE}dead", "0" * 32 + "-00000000"):
        (host / T / name / "words").mkdir(parents=True)
    assert found("parcels") != []
    (name,) = directories()
    assert name.startswith(stamp())


def test_another_release_builds_its_own_beside(monkeypatch: pytest.MonkeyPatch, host: Path) -> None:
    """Two releases on one host, which may rank otherwise, do not take turns with one directory."""
    load(T, text("Lost parcels are refunded."))
    assert found("parcels") != []
    (ours,) = directories()
    monkeypatch.setattr(shelf, "_how_made", lambda: "0123abcd")
    forget()
    assert found("parcels") == [("POL-REF-004@v4", True)]
    assert directories() == sorted([ours, f"{stamp()}-0123abcd"])


def test_disk_that_takes_nothing_is_index_building_and_left_alone_for_a_moment(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "POLLS", 3)
    load(T, text("Lost parcels are refunded."))
    host.parent.mkdir(parents=True, exist_ok=True)
    host.write_text("a file where the folder should be")
    tried: list[str] = []
    real = shelf.try_lock

    def try_lock(tenant: str) -> shelf.Lock | None:
        tried.append(tenant)
        return real(tenant)

    monkeypatch.setattr(shelf, "try_lock", try_lock)
    for _ in range(2):
        with pytest.raises(IndexBuilding):
            search(T, "parcels", pin=PIN)
    assert tried == [T]
    with pytest.raises(shelf.Unusable):
        index.build_now(T)


def test_failing_ranking_keeps_the_old_index(monkeypatch: pytest.MonkeyPatch) -> None:
    load(T, text("Lost parcels are refunded."))
    assert found("parcels") != []

    def broken(path: Path, entries: Iterable[ranking.Entry]) -> None:
        raise ValueError("no space left on device")

    monkeypatch.setattr(ranking, "build", broken)
    load(T, text("Broken vases are refunded.", doc="POL-V", version=1))
    assert found("parcels") == [("POL-REF-004@v4", True)]


# --- processes and threads -------------------------------------------------------------------------------------


def test_lock_is_one_builders_alone_among_threads_too() -> None:
    lock = shelf.try_lock(T)
    assert lock is not None
    others: list[shelf.Lock | None] = []
    thread = threading.Thread(target=lambda: others.append(shelf.try_lock(T)))
    thread.start()
    thread.join()
    assert others == [None]
    assert shelf.is_locked(T)
    lock.release()
    lock.release()
    assert not shelf.is_locked(T)


def test_disk_without_locks_is_a_fault_and_no_builder_that_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("tools.policy.shelf.fcntl.flock", without)
    with pytest.raises(shelf.Unusable, match="no locks available"):
        shelf.try_lock(T)


def test_lock_on_a_folder_that_was_removed_keeps_nobody_out(host: Path) -> None:
    first = shelf.try_lock(T)
    assert first is not None
    shutil.rmtree(host)
    second = shelf.try_lock(T)
    assert second is not None
    first.release()
    assert shelf.is_locked(T)
    second.release()


def test_child_forked_while_we_build_keeps_no_lock() -> None:
    lock = shelf.try_lock(T)
    assert lock is not None
    begun, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:  # a child that lives on, as one of a pool does
        os.write(begun[1], b"x")
        os.read(done[0], 1)
        os._exit(0)
    try:
        os.read(begun[0], 1)
        os.close(lock._descriptor)  # as if we were killed: the kernel closes what we had, nobody unlocks
        shelf._held.discard(lock._descriptor)
        assert not shelf.is_locked(T)
    finally:
        os.write(done[1], b"x")
        os.waitpid(child, 0)
        for end in (*begun, *done):
            os.close(end)


def test_forked_child_opens_its_own(large: None) -> None:
    """Its parent's reader is not used by a child, which finds the index on disk, and ranks the same."""
    load(T, text("Lost parcels are refunded."))
    opened = index.build_now(T)
    assert opened is not None
    mine = opened.hits("parcels", 5)
    stands, told = stamp(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            fresh = index._here().opened == {} and index._ready(T, stands) is not opened
            theirs = index._here().opened[T].hits("parcels", 5)
            os.write(told[1], b"same" if fresh and theirs == mine else b"other")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(told[0], 10) == b"same"
    for end in told:
        os.close(end)


def test_large_corpus_is_built_at_once_within_a_transaction(large: None) -> None:
    """No other connection could see what this one has not committed."""
    load(T, text("Lost parcels are refunded."))
    assert connection.in_atomic_block
    assert found("parcels") == [("POL-REF-004@v4", True)]


# --- commands --------------------------------------------------------------------------------------------------


def printed(*args: str) -> str:
    out = StringIO()
    call_command(*args, stdout=out)
    return out.getvalue()


def test_search_policies_prints_ids_and_scores() -> None:
    load(T, text("Lost parcels are refunded."))
    load(T, text("Parcels are parcels, and vases are vases.", doc="POL-B", version=2))
    told = json.loads(printed("search_policies", "lost parcels?", "--tenant", T, "--json"))
    passages = {str(p.document): p for p in PolicyPassage.objects.all()}
    first, second = (passages["POL-REF-004@v4"], passages["POL-B@v2"])
    assert told["tenant"] == T
    assert [p.pop("score") > 0 for p in told["passages"]] == [True, True]
    assert told["passages"] == [
        {"id": f"{name} {row.content_hash}", "doc": row.document.doc_id, "version": row.document.version,
         "section": "Rule", "hash": row.content_hash, "current": True}
        for name, row in (("POL-REF-004@v4", first), ("POL-B@v2", second))
    ]  # fmt: skip
    assert (
        len(json.loads(printed("search_policies", "parcels", "--tenant", T, "--limit", "1", "--json"))["passages"]) == 1
    )


def test_search_policies_prints_for_people() -> None:
    load(T, text("Lost parcels\u202e are refunded.", version=3, status="superseded"))
    words = printed("search_policies", "parcels", "--tenant", T)
    assert "POL-REF-004@v3  Rule  (superseded)" in words
    assert "\u202e" not in words
    assert printed("search_policies", "zeppelin", "--tenant", T) == "no passage matches\n"


@pytest.mark.parametrize(
    ("args", "code"),
    [(("t_nobody",), 1), ((T, "--limit", "0"), 2), ((T, "--limit", "99"), 2)],
)
def test_search_policies_fails_with_its_exit_codes(args: tuple[str, ...], code: int) -> None:
    with pytest.raises(CommandError) as failed:
        printed("search_policies", "x", "--tenant", *args)
    assert failed.value.returncode == code


@pytest.mark.parametrize("query", ["", "  ", "title:refund AND", "*", '"', "(", "\x00", "refund\ud800", "x" * 100_000])
def test_search_policies_takes_any_text(query: str) -> None:
    load(T, text("Lost parcels are refunded."))
    assert json.loads(printed("search_policies", query, "--tenant", T, "--json"))["tenant"] == T


def test_index_policies_builds_the_index_at_once(tmp_path: Path) -> None:
    (tmp_path / "one.md").write_text(text("Lost parcels are refunded."))
    told = json.loads(printed("index_policies", str(tmp_path), "--tenant", T, "--json"))
    assert told["index"] == {"stamp": stamp(), "passages": 1}
    assert told["vectors"] is None
    assert shelf.opened(T, stamp()) is not None
    assert printed("index_policies", str(tmp_path), "--tenant", T).splitlines()[-1] == (
        "1 passages are searched on this host"
    )


def test_index_policies_says_where_the_disk_takes_none(tmp_path: Path, host: Path) -> None:
    (tmp_path / "one.md").write_text(text("Lost parcels are refunded."))
    host.parent.mkdir(parents=True, exist_ok=True)
    host.write_text("a file")
    with pytest.raises(CommandError, match="loaded, but this host's disk takes no index"):
        printed("index_policies", str(tmp_path), "--tenant", T)
    assert PolicyDocument.objects.get().status == "current"


# --- doctor ----------------------------------------------------------------------------------------------------


def line() -> tuple[str, str]:
    (one,) = searching.of_tenant(T)
    return one.verdict, one.detail


def test_doctor_tells_how_this_hosts_index_stands(host: Path) -> None:
    assert list(searching.of_tenant(T)) == []
    load(T, text("Lost parcels are refunded."))
    assert line() == ("ok", "not on this host yet: whoever searches first builds it")
    assert not host.exists(), "it looks and changes nothing"
    lock = shelf.try_lock(T)
    assert lock is not None
    assert line() == ("warn", "is being built on this host")
    lock.release()
    index.build_now(T)
    assert line()[0] == "ok"
    assert line()[1].startswith("1 passages on this host, ")
    assert stamp()[:8] in line()[1]


def test_doctor_tells_of_a_disk_that_takes_no_index(host: Path) -> None:
    load(T, text("Lost parcels are refunded."))
    host.parent.mkdir(parents=True, exist_ok=True)
    host.write_text("a file")
    assert line()[0] == "fail"
    assert "is no directory" in line()[1]
