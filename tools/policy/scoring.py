"""Scores a ranking of documents against questions with known answers. Knows no Django and no rows.

Relevance is yes or no; a document counts once, where it first stands in the ranking.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import fmean
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentsite.text import visible
from tools.contracts import Json
from tools.policy import passages
from tools.policy.ranking import Entry, in_memory

AT = 10
PASSAGES = 20
"""Passages of a ranking that are looked at: as many as one search gives at most."""
MAX_LINES = 100_000


class NotScorable(ValueError):
    """A file holds something else than what is scored; says the line and the field, never the value."""


class Question(BaseModel):
    """A question and the ids of the documents that answer it."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
    id: str = Field(min_length=1, max_length=200)
    query: str = Field(min_length=1)
    relevant: tuple[str, ...] = Field(min_length=1, strict=False)


class Document(BaseModel):
    """A text to be found, in Markdown."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
    id: str = Field(min_length=1, max_length=200)
    title: str
    text: str


Line = TypeVar("Line", Question, Document)


@dataclass(frozen=True, kw_only=True)
class Score:
    """nDCG and recall of the first ten documents, and the reciprocal rank of the first right one; each 0 to 1."""

    ndcg: float
    recall: float
    mrr: float

    def wire(self) -> Json:
        return {f"ndcg@{AT}": round(self.ndcg, 4), f"recall@{AT}": round(self.recall, 4), "mrr": round(self.mrr, 4)}


def score(ranked: Iterable[str], relevant: Iterable[str]) -> Score:
    """Of one question; `relevant` holds at least one document."""
    wanted = set(relevant)
    assert wanted, "a question without an answer has no score"
    right = [document in wanted for document in dict.fromkeys(ranked)]
    return Score(
        ndcg=_gain(right[:AT]) / _gain([True] * min(len(wanted), AT)),
        recall=sum(right[:AT]) / len(wanted),
        mrr=1 / (right.index(True) + 1) if True in right else 0.0,
    )


def _gain(right: Sequence[bool]) -> float:
    return sum(1 / math.log2(rank + 1) for rank, is_right in enumerate(right, start=1) if is_right)


def mean(scores: Sequence[Score]) -> Score:
    """Of at least one score."""
    return Score(
        ndcg=fmean(one.ndcg for one in scores),
        recall=fmean(one.recall for one in scores),
        mrr=fmean(one.mrr for one in scores),
    )


# --- files -------------------------------------------------------------------------------------------------------


def questions(lines: Iterable[str]) -> list[Question]:
    """One JSON object a line: `id`, `query`, `relevant` (ids of documents). Raises NotScorable."""
    return _read(lines, Question)


def documents(lines: Iterable[str]) -> list[Document]:
    """One JSON object a line: `id`, `title`, `text`. Raises NotScorable."""
    return _read(lines, Document)


def _read(lines: Iterable[str], kind: type[Line]) -> list[Line]:
    found: dict[str, Line] = {}
    for number, line in enumerate(islice(lines, MAX_LINES), start=1):
        if not line.strip():
            continue
        try:
            one = kind.model_validate_json(line)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "the line"
            raise NotScorable(f"line {number}: {where}: {first['msg']}") from None
        if one.id in found:
            raise NotScorable(f"line {number}: id: stands twice")
        found[one.id] = one
    if not found:
        raise NotScorable("holds no line to score")
    return list(found.values())


# --- rankings ----------------------------------------------------------------------------------------------------


def _cut(text: Document) -> tuple[passages.Section, ...]:
    try:
        return passages.split(text.text)
    except passages.TooMuchText as error:
        raise NotScorable(f"document {visible(text.id)}: text: less to keep together: {error}") from None


def by_words(texts: Iterable[Document]) -> Callable[[str], list[str]]:
    """The ids of these documents for a question, best first, ranked by their passages as a tenant's are; no database.

    A document's place is that of its best passage; its id may stand again for further passages.
    """
    owners: list[str] = []
    entries: list[Entry] = []
    for text in texts:
        for part in _cut(text):
            section = part.path or text.title  # as the registry stores it
            entries.append(Entry(key=len(owners), title=text.title, section=section, text=part.text))
            owners.append(text.id)
    ranker = in_memory(entries)
    return lambda question: [owners[key] for key, _ in ranker.search(question, PASSAGES)]
