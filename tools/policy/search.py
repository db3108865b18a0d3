"""Lexical search over a tenant's policies, and the registry's word on what is current. Never imports runs.

Ranking is BM25 in this process over plain words: a user's text is never a query language, on any database.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from agentsite import clock
from tools.contracts import Json
from tools.models import PolicyDocument, PolicyPassage
from tools.policy import freshness
from tools.policy.documents import in_effect

WORD = re.compile(r"\w+")
MAX_QUERY = 16_384
MAX_TERMS = 400
MAX_LIMIT = 20
K1, B = 1.5, 0.75
# Words that stand in every text say nothing about what is asked; without them a query of such words matches nothing.
STOP = frozenset(
    WORD.findall(
        "a an and are as at be been but by can could did do does for from had has have he her his i if in into is "
        "it its me my no not of on or our she so than that the their them then there these they this to was we "
        "were what when which while who will with would you your"
    )
)


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


def search(tenant_id: str, query: str, *, pin: str, limit: int = 3) -> list[Passage]:
    """The best passages for a question, current ones first, at most `limit`.

    A superseded version is shown, marked, only where its document has no current one (M9). Where no word matches, the
    beginning of the pinned document stands in, so that the governing policy is always at hand.
    """
    rows = _candidates(tenant_id, clock.now().date())
    scored = [(score, row) for score, row in zip(_bm25(query, rows), rows, strict=True) if score > 0]
    if not scored:
        doc, _ = freshness.split_pin(pin)
        return [row for row in rows if row.doc == doc][: _bounded(limit)]
    # Sorting is stable, and candidates come by document, version and position: equal scores keep that order.
    best = sorted(scored, key=lambda pair: (not pair[1].current, -pair[0]))
    return [row for _, row in best[: _bounded(limit)]]


def _bounded(limit: int) -> int:
    return max(0, min(limit, MAX_LIMIT))


def _candidates(tenant_id: str, today: date) -> list[Passage]:
    """Passages of the current version of each document, else of its newest superseded one; never of a draft."""
    documents = PolicyDocument.objects.filter(tenant_id=tenant_id).exclude(status="draft").defer("body")
    shown: dict[str, PolicyDocument] = {}
    for document in documents.order_by("doc_id", "-version"):
        if document.doc_id not in shown or in_effect(document, today):
            shown[document.doc_id] = document
    by_id = {document.pk: document for document in shown.values()}
    rows = PolicyPassage.objects.filter(document__in=by_id).order_by("document__doc_id", "position")
    return [_passage(row, by_id[row.document_id], today) for row in rows]


def _passage(row: PolicyPassage, document: PolicyDocument, today: date) -> Passage:
    return Passage(
        doc=document.doc_id, version=document.version, section=row.section, text=row.text,
        current=in_effect(document, today), content_hash=row.content_hash,
    )  # fmt: skip


# --- ranking -----------------------------------------------------------------------------------------------


def _bm25(query: str, rows: Sequence[Passage]) -> list[float]:
    wanted = dict(_terms(query[:MAX_QUERY]).most_common(MAX_TERMS))
    bags = [_terms(f"{row.section}\n{row.text}") for row in rows]
    lengths = [sum(bag.values()) for bag in bags]
    average = sum(lengths) / len(lengths) if lengths else 1.0
    weight = {t: times * _idf(len(bags), sum(1 for bag in bags if t in bag)) for t, times in wanted.items()}
    return [
        sum(weight[t] * _saturated(bag[t], length / average) for t in wanted if t in bag)
        for bag, length in zip(bags, lengths, strict=True)
    ]


def _idf(passages: int, holding: int) -> float:
    return math.log(1 + (passages - holding + 0.5) / (holding + 0.5))


def _saturated(count: int, relative_length: float) -> float:
    return count * (K1 + 1) / (count + K1 * (1 - B + B * relative_length))


@lru_cache(maxsize=4096)
def _terms(text: str) -> Counter[str]:
    """Words of a text that say something, case and light English endings aside, counted."""
    return Counter(stem(word) for word in WORD.findall(text.casefold()) if word not in STOP)


def stem(word: str) -> str:
    """A word without its light English endings: refunds, refunded and refunding are one term."""
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and re.search("[aeiouy]", word[: -len(ending)]):
            word = word[: -len(ending)]
            break
    if len(word) > 6 and word.endswith(("tion", "sion")):
        word = word[:-3]
    if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "lsz":
        word = word[:-1]
    return (
        word[:-1] + "i" if len(word) > 3 and word.endswith("y") else word.removesuffix("e") if len(word) > 3 else word
    )
