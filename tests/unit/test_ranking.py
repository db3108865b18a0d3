"""What the ranking by words finds, in which order, and that no text is an instruction to the engine."""

from __future__ import annotations

import multiprocessing
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tantivy import Index

from tools.policy import ranking
from tools.policy.ranking import Entry, Ranker, build, in_memory, open_index

pytestmark = pytest.mark.any_database


def entry(key: int, text: str, *, title: str = "Policy", section: str = "") -> Entry:
    return Entry(key=key, title=title, section=section, text=text)


WINDOW = entry(7, "A refund may be asked for within 30 days of delivery.", section="Refunds > Window")
FEES = entry(3, "A restocking fee of 10 % is kept for opened boxes.", section="Refunds > Fees")
PARCELS = entry(5, "Parcels are sent twice a day.", section="Delivery")
THREE = (WINDOW, FEES, PARCELS)


def keys(ranker: Ranker, text: str, limit: int = 10) -> list[int]:
    return [key for key, _ in ranker.search(text, limit)]


def test_ranking_finds_the_passage_that_is_asked_for() -> None:
    ranker = in_memory(THREE)
    assert keys(ranker, "How many days after delivery can I ask for my refund?")[0] == 7
    assert keys(ranker, "why was a restocking fee taken")[0] == 3
    assert keys(ranker, "two parcels") == [5]


def test_ranking_takes_endings_case_and_accents_as_one_word() -> None:
    ranker = in_memory([entry(1, "Refunding a café"), entry(2, "Shipping")])
    for text in ("REFUNDED", "refunds", "cafe", "cafe\u0301", "CAFÉS", "re\u200bfund", "ｒｅｆｕｎｄ"):
        assert keys(ranker, text) == [1], text


@pytest.mark.parametrize(
    ("text", "asked", "other"),
    [
        ("रिफ़ंड सात दिनों में", "मेरा रिफ़ंड", "डिलीवरी कल होगी"),
        ("返金は30日以内です", "返金したい", "配送は翌日"),
        ("คืนเงินภายใน 30 วัน", "ขอคืนเงิน", "\u0e2a\u0e48\u0e07"),
        ("ক্ষতিপূরণ সাত দিনে", "ক্ষতিপূরণ কবে", "ডেলিভারি"),
    ],
)
def test_ranking_finds_words_of_other_scripts(text: str, asked: str, other: str) -> None:
    assert keys(in_memory([entry(1, other), entry(2, text)]), asked)[0] == 2


@pytest.mark.parametrize("text", ["", " \n", "?!", "the of and is", "Can I have it from you, please?", "zebra"])
def test_ranking_finds_nothing_where_no_word_that_says_something_matches(text: str) -> None:
    assert in_memory(THREE).search(text, 10) == []


def test_ranking_of_no_entries_is_empty(tmp_path: Path) -> None:
    assert in_memory([]).search("refund", 10) == []
    build(tmp_path / "none", [])
    assert open_index(tmp_path / "none").search("refund", 10) == []


@pytest.mark.parametrize("limit", [0, -1])
def test_ranking_gives_no_more_than_asked_for(limit: int) -> None:
    ranker = in_memory(THREE)
    assert ranker.search("refund delivery fee parcels", limit) == []
    assert len(ranker.search("refund delivery fee parcels", 2)) == 2


@pytest.mark.parametrize(
    "text",
    [
        "text:refund", 'refund AND "', "key:5", "refund^99 OR -parcels", "+refund +(", "*", "ref*", "[a TO z]",
        "refund~2", "\\", "/re.*/", "IN [refund]", "refund\x00", "\ud800refund", "refund" + "\u202e", "(" * 5000,
    ],
)  # fmt: skip
def test_ranking_reads_no_text_as_a_query_language(text: str) -> None:
    ranker = in_memory(THREE)
    plain = {key for word in ("refund", "parcels", "text", "key", "5") for key in keys(ranker, word)}
    assert set(keys(ranker, text)) <= plain


def test_ranking_puts_a_matching_title_above_a_matching_text() -> None:
    other = entry(1, "Refund of a deposit is described elsewhere.", title="Rentals of machines")
    meant = entry(2, "Machines are sent back by the carrier.", title="Refund")
    filler = [entry(n, "Nothing of this kind here.", title=f"Chapter {n}") for n in range(10, 20)]
    assert keys(in_memory([other, meant, *filler]), "refund") == [2, 1]


def test_ranking_hears_what_is_said_often_but_no_word_without_end() -> None:
    ranker = in_memory(THREE)
    assert keys(ranker, "parcels refund window, refund, refund, refund")[0] == 7
    once, often = (dict(ranker.search("parcels " * times + "refund", 10)) for times in (1, 1000))
    assert often[5] < 9 * once[5]


def test_ranking_of_equal_scores_is_by_key_whatever_the_order_they_came_in() -> None:
    same = [entry(key, "Refund within 30 days") for key in range(300)]
    random.Random(7).shuffle(same)
    for limit in (1, 10, 299):
        assert keys(in_memory(same), "refund days", limit) == list(range(limit))


def test_ranking_of_equal_scores_is_by_key_in_an_index_of_many_parts() -> None:
    same = [entry(key, "Refund within 30 days") for key in range(300)]
    random.Random(8).shuffle(same)
    parts = Index(ranking._schema(), sort_by_field="key")
    for begin in range(0, 300, 100):
        ranking._fill(parts, same[begin : begin + 100])
    ranker = Ranker(parts)
    assert ranker._searcher.num_segments == 3
    for limit in (1, 10, 299):
        assert keys(ranker, "refund days", limit) == list(range(limit))


def test_ranking_on_disk_is_that_in_memory_and_the_same_each_time(tmp_path: Path) -> None:
    dice = random.Random(3)
    words = [f"word{n}" for n in range(50)]
    many = [entry(n, " ".join(dice.choices(words, k=30)), title=dice.choice(words)) for n in range(400)]
    build(tmp_path / "a", many)
    build(tmp_path / "b", reversed(many))
    memory, a, b = in_memory(many), open_index(tmp_path / "a"), open_index(tmp_path / "b")
    for _ in range(20):
        asked = " ".join(dice.choices(words, k=8))
        found = memory.search(asked, 25)
        assert found == a.search(asked, 25) == b.search(asked, 25)
        assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)


def test_ranking_serves_on_where_its_directory_is_removed(tmp_path: Path) -> None:
    build(tmp_path / "x", THREE)
    ranker = open_index(tmp_path / "x")
    shutil.rmtree(tmp_path / "x")
    assert keys(ranker, "restocking")[0] == 3


def test_ranking_opens_nothing_that_is_missing_or_torn(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        open_index(tmp_path / "missing")
    build(tmp_path / "torn", THREE)
    (tmp_path / "torn" / "meta.json").write_text("{")
    with pytest.raises(ValueError):
        open_index(tmp_path / "torn")


def _asked_in_a_child(path: Path) -> list[int]:
    return keys(open_index(path), "restocking fee")


def test_ranking_opens_in_a_child_of_a_process_that_has_it_open(tmp_path: Path) -> None:
    build(tmp_path / "x", THREE)
    here = open_index(tmp_path / "x")
    assert keys(here, "restocking")[0] == 3
    with multiprocessing.get_context("fork").Pool(1) as child:
        assert child.apply(_asked_in_a_child, (tmp_path / "x",))[0] == 3


def test_ranking_of_long_questions_and_huge_words_is_bounded() -> None:
    ranker = in_memory([*THREE, entry(9, "x" * 1_000_000 + " refund " + "y " * 100_000)])
    assert keys(ranker, "refund " + "z" * 1_000_000)[0] == 7
    assert keys(ranker, "z " * 20_000 + "refund") == []  # beyond what is read of a question
    assert keys(ranker, " ".join(f"w{n}" for n in range(2000))) == []


@pytest.mark.parametrize("marks", ["\u0301\u0316", "\u0f73\u0301", "\uff9e\u0316", "\u0344\u0316"])
def test_ranking_puts_no_million_marks_into_their_order(marks: str) -> None:
    ranker = in_memory([*THREE, entry(9, "Restocking r" + marks * 200_000 + " fee " * 40)])  # hours, if it did
    assert set(keys(ranker, "restocking" + marks * 4_000 + " fee")) == {3, 9}


def test_ranking_keeps_as_many_marks_as_any_writing_has() -> None:
    ranker = in_memory([entry(1, "q" + "\u0301" * 10), entry(2, "\u0915\u094d\u0937\u093f")])
    assert keys(ranker, "\u0915\u094d\u0937\u093f") == [2] and keys(ranker, "q" + "\u0301" * 10) == [1]


def test_ranking_of_a_long_question_goes_by_what_is_said_most_often_then_first() -> None:
    ranker, others = in_memory(THREE), " ".join(f"w{n}" for n in range(ranking.MAX_TERMS))
    assert keys(ranker, f"{others} restocking") == []
    assert keys(ranker, f"{others} restocking restocking") == [3]
    assert keys(ranker, f"restocking {others}") == [3]


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300))
def test_ranking_answers_any_text(text: str) -> None:
    found = RANKER.search(text, 10)
    assert found == RANKER.search(text, 10)
    assert {key for key, _ in found} <= {3, 5, 7}


RANKER = in_memory(THREE)
