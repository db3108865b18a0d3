"""nDCG, recall and reciprocal rank by hand, and what a file to be scored may not hold."""

from __future__ import annotations

import json
import math

import pytest

from tools.policy import scoring
from tools.policy.scoring import Document, NotScorable, Score, score

pytestmark = pytest.mark.any_database


def test_score_of_a_perfect_ranking_is_one() -> None:
    assert score(["a", "b", "c"], ["b", "a"]) == Score(ndcg=1.0, recall=1.0, mrr=1.0)


def test_score_of_nothing_found_is_zero() -> None:
    assert score([], ["a"]) == score(["b"], ["a"]) == Score(ndcg=0.0, recall=0.0, mrr=0.0)


def test_score_discounts_by_the_place() -> None:
    found = score(["x", "a", "y", "b"], ["a", "b", "c"])
    ideal = 1 + 1 / math.log2(3) + 1 / 2
    assert found.ndcg == pytest.approx((1 / math.log2(3) + 1 / math.log2(5)) / ideal)
    assert found.recall == pytest.approx(2 / 3)
    assert found.mrr == 1 / 2


def test_score_looks_at_ten_documents_and_a_document_counts_once() -> None:
    others = [f"x{n}" for n in range(9)]
    assert score([*others, "a"], ["a"]).recall == 1.0
    eleventh = score([*others, "x9", "a"], ["a"])
    assert (eleventh.ndcg, eleventh.recall, eleventh.mrr) == (0.0, 0.0, 1 / 11)
    # Passages of one document take one place, however many they are.
    assert score(["x0", "x0", "x0", *others, "a"], ["a"]).recall == 1.0
    assert score(["a", "a"], ["a", "b"]) == score(["a"], ["a", "b"])


def test_score_ideal_is_that_of_ten_places_where_more_are_right() -> None:
    right = [f"d{n}" for n in range(25)]
    assert score(right, right) == Score(ndcg=pytest.approx(1.0), recall=0.4, mrr=1.0)  # type: ignore[arg-type]


def test_mean_is_over_questions() -> None:
    found = scoring.mean([Score(ndcg=1.0, recall=0.5, mrr=1.0), Score(ndcg=0.0, recall=0.0, mrr=0.5)])
    assert found == Score(ndcg=0.5, recall=0.25, mrr=0.75)
    assert found.wire() == {"ndcg@10": 0.5, "recall@10": 0.25, "mrr": 0.75}


def test_questions_are_read_line_by_line() -> None:
    line = json.dumps({"id": "q1", "query": "May I send it back?", "relevant": ["d1", "d2"]})
    [only] = scoring.questions([line, "\n", ""])
    assert (only.id, only.query, only.relevant) == ("q1", "May I send it back?", ("d1", "d2"))


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "holds no line to score"),
        (["  ", "\n"], "holds no line to score"),
        (["{"], "line 1: the line: Invalid JSON"),
        (["[1]"], "line 1: the line: "),
        (['{"id": "a", "query": "x", "relevant": ["d"]}', '{"id": "b", "query": "x"}'], "line 2: relevant: "),
        (['{"id": "a", "query": "x", "relevant": []}'], "line 1: relevant: "),
        (['{"id": "a", "query": "x", "relevant": "d1"}'], "line 1: relevant: "),
        (['{"id": "a", "query": "x", "relevant": [7]}'], "line 1: relevant.0: "),
        (['{"id": "a", "query": "x", "relevant": ["d"], "relevent": []}'], "line 1: relevent: "),
        (['{"id": "a", "query": "x", "relevant": ["d"]}'] * 2, "line 2: id: stands twice"),
    ],
)
def test_questions_that_cannot_be_scored_name_line_and_field(lines: list[str], says: str) -> None:
    with pytest.raises(NotScorable) as told:
        scoring.questions(lines)
    assert says in str(told.value)


def test_by_words_ranks_documents_by_their_best_passage() -> None:
    rank = scoring.by_words(
        [
            Document(id="long", title="Deliveries", text="## Parcels\n\nSent daily.\n\n## Late\n\nLate parcel: wait."),
            Document(id="short", title="Refunds", text="## When\n\nA refund takes five days.\n\n## Who\n\nThe buyer."),
        ]
    )
    assert rank("how long does a refund take") == ["short", "short"]  # its title stands over both passages
    assert next(iter(rank("my parcel is late"))) == "long"
    assert rank("?") == []
