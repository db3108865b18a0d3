"""Which search index of a tenant serves in this process, and who builds the next one. Never imports runs or approvals.

An index bears the stamp of what it was built from (`PolicyCorpus`). A process that finds another stamp in the row looks
for that index on its host's disk, and builds it where nobody has: at once where there is little to index, else in a
thread, while the one before it serves. Nothing it says is taken for current: `tools.policy.search` checks every hit.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from django.db import DatabaseError, InterfaceError, connection, connections

from agentsite import clock, statements, telemetry
from tools.errors import IndexBuilding
from tools.models import PolicyCorpus, PolicyDocument, PolicyPassage
from tools.policy import shelf
from tools.policy.shelf import Content, Opened, Unusable

SMALL = 2_000
"""Passages that are indexed at once, by whoever asks first: tens of milliseconds."""
POLL_S, POLLS = 0.02, 100
"""How often, and how many times, an answer is waited for that only the next index can give: two seconds."""
COMMAND_POLLS = 30_000
AFTER_A_FAULT_S = 5
MOST_OPEN = 256
MOST_ROUNDS = 5
DOCUMENTS_AT_ONCE = 200


@dataclass
class _Process:
    """What a process has open. A child begins with nothing: what its parent opened is not its own."""

    opened: dict[str, Opened] = field(default_factory=dict)
    small: dict[str, bool] = field(default_factory=dict)
    not_before: dict[str, float] = field(default_factory=dict)


_PROCESSES: dict[int, _Process] = {}
"""By process id, and never emptied: to close what a parent opened would wait for threads that no child has."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """An index on this host's disk: `passages` and `size` (bytes) None where there is none with this stamp."""

    stamp: str
    passages: int | None
    size: int | None
    building: bool


def current(tenant_id: str) -> Opened | None:
    """The index that serves; None where the tenant has no policy at all.

    Its stamp is the row's, or another one while the next index is built. Raises IndexBuilding where none is ready.
    """
    patience = Patience()
    while (stamp := stamp_of(tenant_id)) is not None:
        found = _ready(tenant_id, stamp) or _begun(tenant_id, stamp) or _before(tenant_id)
        if found is not None:
            return found
        patience.wait()
    return None


def open_here(tenant_id: str) -> Opened | None:
    """The index that served last in this process, asked of nobody: whoever searches it compares its stamp."""
    return _here().opened.get(tenant_id)


def build_now(tenant_id: str) -> Opened | None:
    """The index with the row's stamp, built here unless somebody else does. For commands: takes what it takes.

    Raises Unusable where this host's disk takes none, IndexBuilding where another builder does not come to an end.
    """
    patience = Patience(COMMAND_POLLS)
    while (stamp := stamp_of(tenant_id)) is not None:
        found = _ready(tenant_id, stamp)
        lock = shelf.try_lock(tenant_id) if found is None else None
        if lock is not None:
            try:
                found = _ready(tenant_id, stamp) or _build(tenant_id)
            finally:
                lock.release()
        if found is not None:
            return found
        patience.wait()
    return None


class Patience:
    """Waits in small steps, with no connection held, so many times and no more."""

    def __init__(self, polls: int | None = None) -> None:
        self._left = POLLS if polls is None else polls

    def wait(self) -> None:
        """A moment later. Raises IndexBuilding at the end."""
        if self._left <= 0:
            raise IndexBuilding(retry_after_s=1.0)
        self._left -= 1
        if not connection.in_atomic_block:
            connection.close()
        time.sleep(POLL_S)


def stamp_of(tenant_id: str) -> str | None:
    """The stamp of what is to be searched now; None where the tenant has no policy."""
    with statements.cursor() as cursor:
        cursor.execute("SELECT stamp FROM tools_policycorpus WHERE tenant_id = %s", [tenant_id])
        row = cursor.fetchone()
    if row is not None:
        return str(row[0])
    if not PolicyDocument.objects.filter(tenant_id=tenant_id).exists():
        return None
    # Loaded by a release that kept no stamps.
    new = {"stamp": secrets.token_hex(16), "changed_at": clock.now()}
    return PolicyCorpus.objects.get_or_create(tenant_id=tenant_id, defaults=new)[0].stamp


def disown(tenant_id: str, stamp: str) -> None:
    """What bears this stamp is not what the rows hold: they were changed by no hand of ours. They get a new one."""
    new = {"stamp": secrets.token_hex(16), "changed_at": clock.now()}
    PolicyCorpus.objects.filter(tenant_id=tenant_id, stamp=stamp).update(**new)


def standing(tenant_id: str) -> Standing | None:
    """The state of this host's index, looked at and not touched; None where the tenant has no policy."""
    stamp = PolicyCorpus.objects.filter(tenant_id=tenant_id).values_list("stamp", flat=True).first()
    if stamp is None:
        return None
    found = shelf.opened(tenant_id, stamp)
    return Standing(
        stamp=stamp, passages=None if found is None else len(found), size=shelf.size_on_disk(tenant_id, stamp),
        building=shelf.is_locked(tenant_id),
    )  # fmt: skip


class Versioned(Protocol):
    """A version of a document, a row or what was read of one."""

    @property
    def doc_id(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def status(self) -> str: ...


V = TypeVar("V", bound=Versioned)


def shown(documents: Iterable[V]) -> dict[str, V]:
    """Of each document the version that is searched: the current one, else the newest superseded one; never a draft."""
    chosen: dict[str, V] = {}
    for document in documents:
        known = chosen.get(document.doc_id)
        if document.status != "draft" and (known is None or _order(document) > _order(known)):
            chosen[document.doc_id] = document
    return chosen


def _order(document: Versioned) -> tuple[bool, int]:
    return document.status == "current", document.version


# --- this process ----------------------------------------------------------------------------------------------


def _here() -> _Process:
    return _PROCESSES.setdefault(os.getpid(), _Process())


def _keep(tenant_id: str, found: Opened) -> Opened:
    opened = _here().opened
    if tenant_id not in opened and len(opened) >= MOST_OPEN:
        opened.pop(next(iter(opened)), None)
    opened[tenant_id] = found
    return found


def _ready(tenant_id: str, stamp: str) -> Opened | None:
    """The index with this stamp: open already, or on this host's disk."""
    known = _here().opened.get(tenant_id)
    if known is not None and known.stamp == stamp:
        return known
    found = shelf.opened(tenant_id, stamp)
    return None if found is None else _keep(tenant_id, found)


def _before(tenant_id: str) -> Opened | None:
    """The index that serves until the next one is there."""
    known = _here().opened.get(tenant_id)
    if known is None and (found := shelf.any_opened(tenant_id)) is not None:
        known = _keep(tenant_id, found)
    return known


# --- building --------------------------------------------------------------------------------------------------


def _begun(tenant_id: str, stamp: str) -> Opened | None:
    """Sees to it that the index with this stamp is being built; the index where that was done at once."""
    if clock.monotonic() < _here().not_before.get(tenant_id, 0.0):
        return None
    try:
        lock = shelf.try_lock(tenant_id)
        if lock is None:
            return None
        if connection.in_atomic_block or _is_small(tenant_id, stamp):
            return _built_with(lock, tenant_id, stamp)
        _start(tenant_id, lock)
    except Unusable as error:
        _note_fault(tenant_id, error)
    return None


def _built_with(lock: shelf.Lock, tenant_id: str, stamp: str) -> Opened:
    try:
        # Somebody may have built it since it was looked for.
        return _ready(tenant_id, stamp) or _build(tenant_id)
    finally:
        lock.release()


def _start(tenant_id: str, lock: shelf.Lock) -> None:
    # No daemon: a process that ends waits the seconds that a whole index takes, and leaves no half of one.
    thread = threading.Thread(target=_build_behind, args=(tenant_id, lock), name="policy-index")
    try:
        thread.start()
    except RuntimeError as error:
        lock.release()
        raise Unusable(str(error)) from error


def _build_behind(tenant_id: str, lock: shelf.Lock) -> None:
    """A thread's whole life: builds until the index is that of the row."""
    try:
        for _ in range(MOST_ROUNDS):
            stamp = stamp_of(tenant_id)
            if stamp is None or _ready(tenant_id, stamp) is not None:
                break
            _build(tenant_id)
    except (Unusable, DatabaseError, InterfaceError) as error:
        _note_fault(tenant_id, error)
    finally:
        lock.release()
        connections.close_all()


def _build(tenant_id: str) -> Opened:
    """By the holder of the lock. The stamp is read first: what changes while we build makes another one."""
    stamp = stamp_of(tenant_id)
    assert stamp is not None, "an index is built for a tenant that has a stamp"
    started_at = clock.monotonic()
    found = _keep(tenant_id, shelf.build(tenant_id, stamp, _contents(tenant_id)))
    took_ms = round((clock.monotonic() - started_at) * 1000)
    telemetry.count("policy_indexes_built")
    if len(found) > SMALL:  # a small one takes no longer than a read, and may be built under somebody's terminal
        telemetry.log("policy_index.built", tenant=tenant_id, stamp=stamp, passages=len(found), took_ms=took_ms)
    return found


def _note_fault(tenant_id: str, error: Exception) -> None:
    """Not tried again at once: a full disk stays full, and every question would pay for it."""
    _here().not_before[tenant_id] = clock.monotonic() + AFTER_A_FAULT_S
    telemetry.count("policy_index_faults")
    telemetry.log("policy_index.not_built", tenant=tenant_id, error=type(error).__name__, detail=str(error)[:300])


def _is_small(tenant_id: str, stamp: str) -> bool:
    known = _here().small
    if stamp not in known:
        if len(known) >= MOST_OPEN:
            known.clear()
        rows = PolicyPassage.objects.filter(document__tenant_id=tenant_id, document__status="current")
        known[stamp] = rows.count() <= SMALL
    return known[stamp]


def _contents(tenant_id: str) -> Iterator[Content]:
    """What is to be found, by document and place in it: the order in which equal scores stand."""
    documents = PolicyDocument.objects.filter(tenant_id=tenant_id).exclude(status="draft").defer("body")
    chosen = sorted(shown(documents.order_by()).values(), key=lambda document: document.doc_id)
    for begin in range(0, len(chosen), DOCUMENTS_AT_ONCE):
        yield from _passages({document.pk: document for document in chosen[begin : begin + DOCUMENTS_AT_ONCE]})


def _passages(documents: dict[int, PolicyDocument]) -> Iterator[Content]:
    number = {pk: n for n, pk in enumerate(documents)}
    columns = ("document_id", "position", "pk", "content_hash", "section", "text")
    rows = PolicyPassage.objects.filter(document__in=number).order_by().values_list(*columns)
    for document, _, pk, content_hash, section, text in sorted(rows, key=lambda row: (number[row[0]], row[1])):
        title = documents[document].title
        yield Content(pk=pk, document=document, content_hash=content_hash, title=title, section=section, text=text)
