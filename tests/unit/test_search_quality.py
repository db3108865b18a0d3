"""The ranking by words against bm25s with stemming, both measured here, on texts and questions nobody here wrote.

They are those of tau2-bench (MIT), see `../shared/cases/README.md`; without them the test is skipped.
"""

from __future__ import annotations

from functools import lru_cache

import pytest

from tests import search_quality
from tests.conftest import Say
from tools.policy import scoring
from tools.policy.scoring import Score

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.skipif(not search_quality.CASES.is_dir(), reason="../shared/cases/kb is not there"),
]
GOAL = 0.30


@lru_cache(maxsize=1)
def measured() -> tuple[list[Score], list[Score]]:
    """Ours and theirs, question by question."""
    texts, asked = search_quality.texts(), search_quality.asked()
    ours = search_quality.scores(scoring.by_words(texts), asked)
    return ours, search_quality.scores(search_quality.by_bm25s(texts), asked)


def test_search_quality_is_above_bm25s_measured_in_the_same_run(say: Say) -> None:
    ours, theirs = measured()
    gained, at_least, at_most = search_quality.gain(ours, theirs)
    mine, other = scoring.mean(ours), scoring.mean(theirs)
    say(f"nDCG@10 {mine.ndcg:.3f}, bm25s {other.ndcg:.3f}: {gained:+.3f} (95 %: {at_least:+.3f} to {at_most:+.3f})")
    say(f"recall@10 {mine.recall:.3f}, bm25s {other.recall:.3f}; MRR {mine.mrr:.3f}, bm25s {other.mrr:.3f}")
    assert mine.ndcg >= GOAL
    assert mine.ndcg > other.ndcg and mine.recall > other.recall and mine.mrr > other.mrr
    assert at_least > 0


@pytest.mark.parametrize("first", [0, 1], ids=["even", "odd"])
def test_search_quality_gains_on_each_half_of_the_questions(first: int) -> None:
    ours, theirs = measured()
    mine, other = scoring.mean(ours[first::2]), scoring.mean(theirs[first::2])
    assert mine.ndcg >= GOAL
    assert mine.ndcg > other.ndcg + 0.05
