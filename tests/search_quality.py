"""Measures the search on `../shared/cases/kb` beside bm25s, and what each part of the ranking brings.

    python -m tests.search_quality

Both in one process on the same texts and questions: nDCG@10, recall@10 and MRR over documents, then nDCG@10 of the
even and the odd questions apart. Needs the development dependencies.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean

import bm25s  # type: ignore[import-untyped]
import Stemmer  # type: ignore[import-not-found]

from tools.policy import passages, ranking, scoring
from tools.policy.scoring import Document, Question, Score

CASES = Path(__file__).resolve().parents[2] / "shared/cases/kb"
Rank = Callable[[str], Iterable[str]]
SENTENCE = re.compile(r"(?<=[.!?:;])\s+|\n+")
RESAMPLED = 10_000
OURS, THEIRS = "this search, by words", "bm25s, stemmed, its English stop words"


def texts() -> list[Document]:
    with (CASES / "documents.jsonl").open(encoding="utf-8") as lines:
        return scoring.documents(lines)


def asked() -> list[Question]:
    with (CASES / "queries.jsonl").open(encoding="utf-8") as lines:
        return scoring.questions(lines)


def by_bm25s(found: Sequence[Document], *, stopwords: str | list[str] | None = "en") -> Rank:
    """bm25s as its own documentation sets it up: English stemmer, its defaults (k1 1.5, b 0.75); whole documents."""
    stemmer = Stemmer.Stemmer("english")
    made = bm25s.BM25()
    words = [f"{one.title}\n{one.text}" for one in found]
    made.index(bm25s.tokenize(words, stopwords=stopwords, stemmer=stemmer, show_progress=False), show_progress=False)

    def rank(question: str) -> list[str]:
        tokens = bm25s.tokenize([question], stopwords=stopwords, stemmer=stemmer, show_progress=False, return_ids=False)
        best, _ = made.retrieve(tokens, k=100, show_progress=False)
        return [found[at].id for at in best[0]]

    return rank


def _parts(found: Sequence[Document]) -> list[Document]:
    """Every passage as a document of its own, under its document's id."""
    return [
        Document(id=one.id, title=one.title, text=f"{part.path}\n{part.text}")
        for one in found
        for part in passages.split(one.text)
    ]


def scores(rank: Rank, questions: Sequence[Question]) -> list[Score]:
    return [scoring.score(rank(one.query), one.relevant) for one in questions]


def gain(ours: Sequence[Score], theirs: Sequence[Score]) -> tuple[float, float, float]:
    """The mean gain in nDCG@10 over the questions in pairs, with its 95 % interval (bootstrap, seeded)."""
    pairs = [mine.ndcg - other.ndcg for mine, other in zip(ours, theirs, strict=True)]
    dice = random.Random(49)
    means = sorted(fmean(dice.choices(pairs, k=len(pairs))) for _ in range(RESAMPLED))
    return fmean(pairs), means[RESAMPLED // 40], means[-RESAMPLED // 40]


# --- the ranking without one of its parts ------------------------------------------------------------------------


@contextmanager
def _with(name: str, value: object) -> Iterator[None]:
    before = getattr(ranking, name)
    setattr(ranking, name, value)
    try:
        yield
    finally:
        setattr(ranking, name, before)


def _without(name: str, value: object, found: Sequence[Document], questions: Sequence[Question]) -> list[Score]:
    with _with(name, value):
        return scores(scoring.by_words(found), questions)


def _whole(found: Sequence[Document]) -> Rank:
    entries = [
        ranking.Entry(key=at, title=one.title, section="", text=one.text) for at, one in enumerate(found)
    ]  # fmt: skip
    ranker = ranking.in_memory(entries)
    return lambda question: [found[key].id for key, _ in ranker.search(question, 100)]


def _sentences(found: Sequence[Document]) -> Rank:
    """Every sentence asked by itself, the rankings fused by reciprocal rank."""
    by_words = scoring.by_words(found)

    def rank(question: str) -> list[str]:
        total: dict[str, float] = {}
        for sentence in filter(None, SENTENCE.split(question)):
            for place, document in enumerate(dict.fromkeys(by_words(sentence)), start=1):
                total[document] = total.get(document, 0.0) + 1 / (60 + place)
        return sorted(total, key=lambda document: (-total[document], document))

    return rank


def table(found: Sequence[Document], questions: Sequence[Question]) -> dict[str, list[Score]]:
    """What was measured, by what it was measured of."""
    few = "a an and are as at be but by for if in into is it no not of on or such that the their then there these they"
    return {
        THEIRS: scores(by_bm25s(found), questions),
        "bm25s, stemmed, no stop words": scores(by_bm25s(found, stopwords=None), questions),
        "bm25s, stemmed, on passages": scores(by_bm25s(_parts(found)), questions),
        "bm25s, stemmed, on passages, our stop words": scores(
            by_bm25s(_parts(found), stopwords=ranking.STOP), questions
        ),
        OURS: scores(scoring.by_words(found), questions),
        "whole documents instead of passages": scores(_whole(found), questions),
        "a short list of stop words": _without("ANALYSER", ranking.analyser(few.split()), found, questions),
        "no weight on titles": _without("TITLE_TIMES", 1, found, questions),
        "a repeated word counted in full": _without("REPEATED", 1e9, found, questions),
        "every word counted once": _without("REPEATED", 0, found, questions),
        "all words of the question": _without("MAX_TERMS", 10_000, found, questions),
        "sentences asked apart, fused": scores(_sentences(found), questions),
    }


def main() -> None:
    found, questions = texts(), asked()
    measured = table(found, questions)
    print(f"{len(questions)} questions, {len(found)} documents\n")
    print(f"{'':<44} nDCG@10 recall@10   MRR   even   odd")
    for name, got in measured.items():
        mean, even, odd = scoring.mean(got), scoring.mean(got[::2]), scoring.mean(got[1::2])
        print(f"{name:<44}  {mean.ndcg:.3f}    {mean.recall:.3f}   {mean.mrr:.3f}  {even.ndcg:.3f}  {odd.ndcg:.3f}")
    theirs, ours = measured[THEIRS], measured[OURS]
    print("\ngain over bm25s {:+.3f} (95 %: {:+.3f} to {:+.3f})".format(*gain(ours, theirs)))


if __name__ == "__main__":
    main()
