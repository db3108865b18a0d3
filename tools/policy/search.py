"""Search over a tenant's policies, and the registry's word on what is current. Never imports runs.

The index ranks; rows decide. Every hit is looked up in the registry, which alone says what its text, its version and
its currency are: what was replaced since the index was built is no answer. Words are matched as `tools.policy.ranking`
does it, the same on any database, and a user's text is never a query language.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Sized
from dataclasses import dataclass, field, replace
from datetime import date
from operator import attrgetter
from typing import NamedTuple

from agentsite import clock, statements
from tools.contracts import Json
from tools.models import PolicyDocument, PolicyPassage
from tools.policy import freshness, index, ranking, vectors
from tools.policy.documents import in_effect
from tools.policy.shelf import Hit, Opened, digest_of

MAX_LIMIT = 20
LOOKED_AT, MORE = 24, 8
"""Hits looked up at first; where too few of them are current, eight times as many."""
NEAR, AT_ONCE = 50, 500
# By their ids alone: SQLite would rather go through every passage of a tenant that is named beside them.
PASSAGES = (
    "SELECT p.id, p.document_id, p.section, p.text, p.content_hash, d.doc_id, d.tenant_id FROM tools_policypassage p "
    "JOIN tools_policydocument d ON d.id = p.document_id WHERE p.id IN ({keys})"
)
FAMILY = (
    "SELECT id, doc_id, version, title, status, effective_from, effective_until FROM tools_policydocument "
    "WHERE tenant_id = %s AND doc_id IN ({docs})"
)
IN_PASSING = 2_000
"""Passages that a question may rank by itself, where the index does not know them yet."""


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A passage with where it stands; `current` is the registry's word, never the text's."""

    doc: str
    version: int
    section: str
    text: str
    current: bool
    content_hash: str
    score: float = 0.0

    def wire(self) -> Json:
        return {
            "doc": self.doc, "version": self.version, "section": self.section, "text": self.text,
            "current": self.current, "hash": self.content_hash, "score": round(self.score, 4),
        }  # fmt: skip


class _Row(NamedTuple):
    """A passage as its row has it."""

    pk: int
    document_id: int
    section: str
    text: str
    content_hash: str


class _Version(NamedTuple):
    """A document's version as its row has it, but for its text."""

    pk: int
    doc_id: str
    version: int
    title: str
    status: str
    effective_from: date | None
    effective_until: date | None


@dataclass
class _Found:
    """What the registry says of hits, best first; `gave_way`: documents that were indexed with another text, and how
    high the best of it ranked."""

    current: list[Passage] = field(default_factory=list)
    superseded: list[Passage] = field(default_factory=list)
    gave_way: dict[int, float] = field(default_factory=dict)


def search(tenant_id: str, query: str, *, pin: str, limit: int = 3) -> list[Passage]:
    """The best passages for a question, best first, at most `limit`: all of them current, or all superseded.

    A superseded version is shown, marked, only where no passage that is current matched (M9). Where no word matches,
    the beginning of the pinned document (`pin` empty: nothing) stands in, so that the governing policy is always at
    hand. Raises IndexBuilding where no index is ready, or where only the next one can tell: never stale, and never
    empty for that reason.
    """
    most = max(0, min(limit, MAX_LIMIT))
    found = _settled(tenant_id, query, most)
    best = (found.current or found.superseded)[:most]
    return best or _beginning(tenant_id, pin)[:most]


def _settled(tenant_id: str, query: str, most: int) -> _Found:
    patience, disowned = index.Patience(), False
    near: list[tuple[int, float]] | None = None
    while (opened := index.current(tenant_id)) is not None:
        near = vectors.nearest(tenant_id, query, NEAR) or [] if near is None else near
        found = _look_up(tenant_id, opened, query, near, most)
        if found.current and not found.gave_way:
            return found
        if index.stamp_of(tenant_id) != opened.stamp:
            newer = _newer(tenant_id, query, found) if found.gave_way else found
            if newer.current:
                return newer
            patience.wait()  # the next index may know what this one cannot
        elif found.gave_way and not disowned:
            disowned = True
            index.disown(tenant_id, opened.stamp)
        else:
            return found
    return _Found()


def _look_up(tenant_id: str, opened: Opened, query: str, near: Sequence[tuple[int, float]], most: int) -> _Found:
    """Goes down the ranking until `most` passages are current, or nothing is left."""
    ask = max(LOOKED_AT, most)
    while True:
        hits = opened.hits(query, ask)
        found = _checked(tenant_id, _fused(hits, near), most)
        if len(hits) < ask or len(found.current) + len(found.gave_way) >= most:
            return found
        ask *= MORE


def _fused(hits: list[Hit], near: Sequence[tuple[int, float]]) -> list[Hit]:
    """Those found by their words, with those that are near in meaning among them."""
    if not near:
        return hits
    of = {hit.pk: hit for hit in hits}
    fused = vectors.fuse([[(hit.pk, hit.score) for hit in hits], near], len(hits) + len(near))
    return [replace(of[pk], score=score) if pk in of else Hit(pk=pk, score=score) for pk, score in fused]


def _checked(tenant_id: str, hits: Sequence[Hit], most: int) -> _Found:
    """What the registry says of these hits, down to the last that is needed."""
    found = _Found()
    for hit, passage in _of_registry(tenant_id, hits):
        if len(found.current) >= most:
            break
        if passage is not None:
            (found.current if passage.current else found.superseded).append(passage)
        elif hit.document is not None:
            found.gave_way.setdefault(hit.document, hit.score)
    return found


def _of_registry(tenant_id: str, hits: Sequence[Hit]) -> Iterator[tuple[Hit, Passage | None]]:
    """Each hit with the passage as its row has it; None where it is gone or another, or its version gave way."""
    for begin in range(0, len(hits), AT_ONCE):
        some = hits[begin : begin + AT_ONCE]
        found = _rows(tenant_id, [hit.pk for hit in some])
        for hit in some:
            passage = found.get(hit.pk)
            stands = passage is not None and hit.digest in (None, digest_of(passage.content_hash))
            yield hit, replace(passage, score=hit.score) if passage is not None and stands else None


def _rows(tenant_id: str, keys: list[int]) -> dict[int, Passage]:
    """Of these passages those that are searched, by their rows' ids."""
    today = clock.now().date()
    with statements.cursor() as cursor:
        cursor.execute(PASSAGES.format(keys=_marks(keys)), keys)
        found = [(_Row(*row), doc_id) for *row, doc_id, of_tenant in cursor.fetchall() if of_tenant == tenant_id]
    searched = _searched(tenant_id, {doc_id for _, doc_id in found})
    return {row.pk: _passage(row, searched[row.document_id], today) for row, _ in found if row.document_id in searched}


def _searched(tenant_id: str, docs: Collection[str]) -> dict[int, _Version]:
    """Of these documents the versions that are searched, by their rows' ids."""
    if not docs:
        return {}
    with statements.cursor() as cursor:
        cursor.execute(FAMILY.format(docs=_marks(docs)), [tenant_id, *docs])
        rows = cursor.fetchall()
    family = (
        _Version(row[0], row[1], row[2], row[3], row[4], freshness.day(row[5]), freshness.day(row[6])) for row in rows
    )
    return {document.pk: document for document in index.shown(family).values()}


def _marks(values: Sized) -> str:
    return ", ".join(["%s"] * len(values))


# --- what the index does not know yet --------------------------------------------------------------------------


def _newer(tenant_id: str, query: str, found: _Found) -> _Found:
    """With the texts that took the places of those that gave way, as far as words of the question are in them.

    The best of each stands where its document stood; the next index ranks them by the whole corpus again.
    """
    gave = PolicyDocument.objects.filter(tenant_id=tenant_id, pk__in=found.gave_way).order_by()
    place: dict[str, float] = {}
    for pk, doc in gave.values_list("pk", "doc_id"):
        place[doc] = max(place.get(doc, 0.0), found.gave_way[pk])
    searched = _searched(tenant_id, place)
    passages = PolicyPassage.objects.filter(document__in=searched).order_by("document__doc_id", "position")
    rows = list(passages[: IN_PASSING + 1])
    if len(rows) > IN_PASSING:
        return _Found()  # too much to be ranked in passing: only the next index can
    entries = [
        ranking.Entry(key=key, title=searched[row.document_id].title, section=row.section, text=row.text)
        for key, row in enumerate(rows)
    ]
    best: dict[str, float] = {}
    for key, score in ranking.in_memory(entries).search(query, len(rows)):
        passage = _passage(rows[key], searched[rows[key].document_id], clock.now().date())
        share = score / best.setdefault(passage.doc, score)
        _add(found, replace(passage, score=place[passage.doc] * share))
    found.current.sort(key=attrgetter("score"), reverse=True)
    return found


def _add(found: _Found, passage: Passage) -> None:
    known = {(p.doc, p.version, p.content_hash) for p in (*found.current, *found.superseded)}
    if (passage.doc, passage.version, passage.content_hash) not in known:
        (found.current if passage.current else found.superseded).append(passage)


# --- where no word matches -------------------------------------------------------------------------------------


def _beginning(tenant_id: str, pin: str) -> list[Passage]:
    """The first passages of the pinned document, of the version that is searched."""
    if not pin:
        return []
    doc, _ = freshness.split_pin(pin)
    searched = _searched(tenant_id, [doc])
    rows = PolicyPassage.objects.filter(document__in=searched).order_by("position")[:MAX_LIMIT]
    return [_passage(row, searched[row.document_id], clock.now().date()) for row in rows]


def _passage(row: PolicyPassage | _Row, document: _Version, today: date) -> Passage:
    return Passage(
        doc=document.doc_id, version=document.version, section=row.section, text=row.text,
        current=in_effect(document, today), content_hash=row.content_hash,
    )  # fmt: skip
