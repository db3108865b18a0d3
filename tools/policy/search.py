"""Search over a tenant's policies, and the registry's word on what is current. Never imports runs.

The index ranks; rows decide. Every hit is looked up in the registry, which alone says what its text, its version and
its currency are: what was replaced since the index was built is no answer. Words are matched as `tools.policy.ranking`
does it, the same on any database, and a user's text is never a query language.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Sized
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

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
FAMILY = (
    "SELECT v.id, v.version, v.title, v.status, NULL, v.doc_id, v.effective_from, v.effective_until "
    "FROM tools_policydocument v WHERE v.tenant_id = %s AND v.doc_id IN ({docs})"
)
DOCUMENTS = (
    "SELECT d.doc_id FROM tools_policypassage p JOIN tools_policydocument d ON d.id = p.document_id "
    "WHERE p.id IN ({keys}) UNION ALL SELECT %s"
)
# Passages by their ids alone, as SQLite would rather go through every passage of a tenant that is named beside them;
# all versions of their documents; and the stamp of what is searched. One statement: all of one moment.
REGISTRY = (
    "{family} UNION ALL SELECT p.id, p.document_id, p.section, p.text, p.content_hash, NULL, NULL, NULL "
    "FROM tools_policypassage p WHERE p.id IN ({keys}) UNION ALL "
    "SELECT NULL, NULL, c.stamp, NULL, NULL, NULL, NULL, NULL FROM tools_policycorpus c WHERE c.tenant_id = %s"
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
    high the best of it ranked. `stamp`: that of the corpus at the same moment, where there was any hit."""

    current: list[Passage] = field(default_factory=list)
    superseded: list[Passage] = field(default_factory=list)
    gave_way: dict[int, float] = field(default_factory=dict)
    stamp: str | None = None


def search(tenant_id: str, query: str, *, pin: str, limit: int = 3) -> list[Passage]:
    """The best passages for a question, best first, at most `limit`: all of them current, or all superseded.

    A superseded version is shown, marked, only where no passage that is current matched (M9). Where no word matches,
    the beginning of the pinned document (`pin` empty: nothing) stands in, so that the governing policy is always at
    hand. Raises IndexBuilding where no index is ready, or where only the next one can tell: never stale, and never
    empty for that reason.
    """
    most = max(0, min(limit, MAX_LIMIT))
    found = _Search(tenant_id, query, pin, most).settled()
    best = (found.current or found.superseded)[:most]
    return best or _beginning(tenant_id, pin)[:most]


class _Search:
    """One question of a tenant, put to as many indexes as it takes."""

    def __init__(self, tenant_id: str, query: str, pin: str, most: int) -> None:
        self._tenant_id, self._query, self._pin, self._most = tenant_id, query, pin, most

    @cached_property
    def _near(self) -> Sequence[tuple[int, float]]:
        return vectors.nearest(self._tenant_id, self._query, NEAR) or []

    def settled(self) -> _Found:
        return self._at_once() or self._patiently()

    def _at_once(self) -> _Found | None:
        """By the index that is open here already, where the rows say in the same breath that it is the one."""
        opened = index.open_here(self._tenant_id)
        found = self._look_up(opened) if opened is not None else None
        if opened is None or found is None or found.stamp != opened.stamp:
            return None
        return found if found.current and not found.gave_way else None

    def _patiently(self) -> _Found:
        patience, disowned = index.Patience(), False
        while (opened := index.current(self._tenant_id)) is not None:
            found = self._look_up(opened)
            if found.current and not found.gave_way:
                return found
            if index.stamp_of(self._tenant_id) != opened.stamp:
                newer = _newer(self._tenant_id, self._query, found) if found.gave_way else found
                if newer.current:
                    return newer
                patience.wait()  # the next index may know what this one cannot
            elif found.gave_way and not disowned:
                disowned = True
                index.disown(self._tenant_id, opened.stamp)
            else:
                return found
        return _Found()

    def _look_up(self, opened: Opened) -> _Found:
        """Goes down the ranking until `most` passages are current, or nothing is left."""
        ask = max(LOOKED_AT, self._most)
        while True:
            hits = opened.hits(self._query, ask)
            found = self._checked(_fused(hits, self._near))
            if len(hits) < ask or len(found.current) + len(found.gave_way) >= self._most:
                return found
            ask *= MORE

    def _checked(self, hits: Sequence[Hit]) -> _Found:
        """What the registry says of these hits, down to the last that is needed."""
        found = _Found()
        for begin in range(0, len(hits), AT_ONCE):
            some = hits[begin : begin + AT_ONCE]
            rows = _of_registry(self._tenant_id, [hit.pk for hit in some], self._pin)
            found.stamp = rows.stamp
            for hit in some:
                if len(found.current) >= self._most:
                    return found
                _sort_in(found, hit, rows.passages.get(hit.pk))
        return found


def _sort_in(found: _Found, hit: Hit, passage: Passage | None) -> None:
    """One hit by what its row says: none where the passage is gone or another, or its version gave way."""
    if passage is not None and hit.digest in (None, digest_of(passage.content_hash)):
        (found.current if passage.current else found.superseded).append(replace(passage, score=hit.score))
    elif hit.document is not None:
        found.gave_way.setdefault(hit.document, hit.score)


def _fused(hits: list[Hit], near: Sequence[tuple[int, float]]) -> list[Hit]:
    """Those found by their words, with those that are near in meaning among them."""
    if not near:
        return hits
    of = {hit.pk: hit for hit in hits}
    fused = vectors.fuse([[(hit.pk, hit.score) for hit in hits], near], len(hits) + len(near))
    return [replace(of[pk], score=score) if pk in of else Hit(pk=pk, score=score) for pk, score in fused]


class _Registry(NamedTuple):
    """Of the passages asked about those that are searched, by their rows' ids; and the corpus' stamp."""

    passages: dict[int, Passage]
    stamp: str | None


def _of_registry(tenant_id: str, keys: list[int], pin: str) -> _Registry:
    """What rows say at one moment; the pass is told what they say of the pinned document (`pin` empty: nothing)."""
    versions, rows, stamp = list[_Version](), list[_Row](), None
    for row in _asked(tenant_id, keys, pin):
        if row[5] is not None:
            versions.append(_version(row))
        elif row[0] is not None:
            rows.append(_Row(*row[:5]))
        else:
            stamp = str(row[2])
    if pin:
        freshness.note(tenant_id, pin, versions)
    searched, today = _shown(versions), clock.now().date()
    found = {row.pk: _passage(row, searched[row.document_id], today) for row in rows if row.document_id in searched}
    return _Registry(found, stamp)


def _asked(tenant_id: str, keys: list[int], pin: str) -> list[tuple[Any, ...]]:
    doc = freshness.split_pin(pin)[0] if pin else ""
    with statements.cursor() as cursor:
        cursor.execute(_registry(_marks(keys)), [tenant_id, *keys, doc, *keys, tenant_id])
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


@lru_cache(maxsize=64)
def _registry(keys: str) -> str:
    return REGISTRY.format(keys=keys, family=FAMILY.format(docs=DOCUMENTS.format(keys=keys)))


def _version(row: Sequence[Any]) -> _Version:
    pk, version, title, status, _, doc_id, begins, ends = row
    return _Version(pk, doc_id, version, title, status, freshness.day(begins), freshness.day(ends))


def _shown(versions: Iterable[_Version]) -> dict[int, _Version]:
    """Of these versions those that are searched, by their rows' ids."""
    return {document.pk: document for document in index.shown(versions).values()}


def _searched(tenant_id: str, docs: Collection[str]) -> dict[int, _Version]:
    """Of these documents the versions that are searched, by their rows' ids."""
    if not docs:
        return {}
    with statements.cursor() as cursor:
        cursor.execute(FAMILY.format(docs=_marks(docs)), [tenant_id, *docs])
        return _shown(_version(row) for row in cursor.fetchall())


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
