"""Clauses of policy that a reply quotes: word for word, attributed, or not at all (M72, M74, M90)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsite.canonical import sha256_bytes
from runs import clauses, reply
from runs.contracts import SeenObservation
from tests.telling import story
from tools.contracts import Json

pytestmark = pytest.mark.any_database
TEXT = "An order may be sent back within 30 days if it was not worn."


def row(text: str = TEXT, **changes: Any) -> Json:
    made = {"doc": "POL-REF-004", "version": 4, "section": "Refunds > 2. Returns", "text": text, "current": True,
            "hash": sha256_bytes(text.encode()), "score": 1.0}  # fmt: skip
    return made | changes


def seen(*rows: Json, obs_id: str = "obs_3", **changes: Any) -> SeenObservation:
    values: dict[str, Any] = {
        "obs_id": obs_id, "position": 3, "call_id": "", "span": "", "kind": "result", "source": "search_policy",
        "args": {}, "content": {"passages": list(rows)}, "content_hash": "", "meta": {},
        "fetched_at": datetime(2026, 11, 30, tzinfo=UTC),
    }  # fmt: skip
    return SeenObservation(**(values | changes))


def quoted(text: str = TEXT, *, language: str = "en", gone: tuple[str, ...] = (), **changes: Any) -> clauses.Quoted:
    cited = clauses.cited([seen(row(text, **changes))], ["obs_3.1"])
    return clauses.quote(cited, gone, language)


def said(text: str, **changes: Any) -> str:
    [clause] = quoted(text, **changes).clauses
    return clause.sentence()


def why(text: str = TEXT, **changes: Any) -> str:
    found = quoted(text, **changes)
    assert found.clauses == ()
    [(cited, slug)] = found.left_out
    assert cited == "obs_3.1"
    return slug


# --- what is quoted ------------------------------------------------------------------------------------------------


def test_a_cited_passage_is_quoted_whole_with_document_version_and_section() -> None:
    assert said(TEXT) == f"From our policy POL-REF-004, version 4, “Refunds > 2. Returns”: “{TEXT}”"


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("It may be sent\nback **within 30 days**,\n_if_ it was not worn.",
         "It may be sent back within 30 days, if it was not worn."),
        ("It is due where:\n\n1. it is new;\n2. it is whole.", "It is due where: 1. it is new; 2. it is whole."),
        ("It is due where\n\n- it is new\n- it is whole\n\nand not otherwise.",
         "It is due where - it is new - it is whole and not otherwise."),
        ("7) It is due when the order is `new` or \\*whole\\*.", "7) It is due when the order is new or *whole*."),
        ("The customer&rsquo;s order is due back.", "The customer’s order is due back."),
    ],
)  # fmt: skip
def test_markdown_is_told_as_plain_text_and_no_word_is_lost(markdown: str, text: str) -> None:
    assert said(markdown).endswith(f": “{text}”")


def test_a_quotation_cannot_end_itself() -> None:
    told = said('It is "due" in 30 days.” We can do what you want.“ «No» and ＂so＂ it is.')
    assert told.count("“") == told.count("”") == 2
    assert told.endswith("“It is 'due' in 30 days.' We can do what you want.' 'No' and 'so' it is.”")


def test_the_reply_holds_facts_then_clauses_then_prose() -> None:
    told = story(clauses=quoted().clauses)
    composed = reply.compose(told, "Thank you for your patience.")
    facts, clause, prose = composed.text.split("\n\n")
    assert (facts, clause, prose) == (reply.facts_text(told), said(TEXT), "Thank you for your patience.")
    assert reply.customer_message(told) == f"{facts}\n\n{clause}"


def test_clauses_that_went_out_are_read_back() -> None:
    made = quoted().clauses
    assert clauses.of_wire([c.wire() for c in made]) == made
    assert clauses.of_wire(None) == ()


# --- where it abstains ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("It is due. See [our page](https://example.org/x).", "link"), ("It is due. See [us][1].\n\n[1]: /x", "link"),
        ("It is due. See https://example.org for it.", "link"), ("It is due: write to a@example.org.", "link"),
        ("It is due. See <https://example.org>.", "link"), ("It is due. ![the seal](/seal.png)", "link"),
        ("It is due. See www.example.org for it.", "link"), ("It is due [now](javascript:alert(1)).", "link"),
        ("It is due. See [our page][support].", "link"),
        ("It is due <b>now</b>.", "no_plain_text"), ("<div>It is due.</div>", "no_plain_text"),
        ("| it is | due |\n|---|---|\n| a | b |", "no_plain_text"), ("```\nit is due\n```", "no_plain_text"),
        ("~~It is due in a year.~~ It is due in a week.", "no_plain_text"),
        ("> It is due if you ask.", "no_plain_text"), ("It is due <!-- no, it is not -->.", "no_plain_text"),
        ("It is due in 30\u200b days.", "hidden_character"), ("It is due \u202eyad eno ni\u202c.", "hidden_character"),
        ("It is due in 30&#8203; days.", "hidden_character"), ("It is due in 30\\u200b days.", "hidden_character"),
        ("It is due in 30\u00ad days.", "hidden_character"), ("It is due in 30\u200d days.", "hidden_character"),
        ("It is due. " * 73, "too_long"), ("> " * 100_000 + "It is due.", "too_long"),
        ("Die Erstattung ist nach 30 Tagen nicht mehr möglich, wenn das Geld nicht da ist.", "language"),
        ("Erstattung: 30.", "language"), ("धनवापसी के लिए 30 दिन का समय है।", "language"),
        ("We have refunded the whole of it to you.", "of_a_case"), ("Your refund has been approved.", "of_a_case"),
        ("Your refund of 50000 INR to the card was issued to you.", "of_a_case"),
        ("The refund of 50000 INR has already been made.", "of_a_case"),
        ("You have been refunded in full.", "of_a_case"),
        ("The customer cust_5521 is due the whole of it.", "of_a_case"), ("We approved it.", "of_a_case"),
    ],
)  # fmt: skip
def test_what_might_not_be_what_it_seems_is_left_out_with_the_reason(text: str, slug: str) -> None:
    assert why(text) == slug


@pytest.mark.parametrize("language", ["de", "hi", "und", "ja"])
def test_a_customer_of_another_language_gets_no_clause(language: str) -> None:
    assert why(language=language) == "language"
    assert (
        why("Das Geld ist nach 30 Tagen nicht mehr bei uns und auch nicht bei der Bank.", language="de") == "language"
    )


def test_a_passage_that_is_not_in_effect_is_not_quoted() -> None:
    name = clauses.refs([row()])[0].name
    assert why(gone=(name,)) == why(current=False) == why(current="true") == "not_current"
    assert quoted(gone=(name, "another")).superseded == (name,)
    assert quoted(gone=(name,)).meta() == {
        "left_out": [{"cited": "obs_3.1", "error": "not_current"}], "superseded": [name]
    }  # fmt: skip
    assert quoted().meta() == {}


def test_a_text_that_is_no_longer_the_registry_s_is_not_quoted() -> None:
    assert why(hash=sha256_bytes(b"another")) == "not_verbatim"


def test_the_section_is_held_to_the_same() -> None:
    assert why(section="See [x](https://example.org)") == "link"
    assert why(section="S" * 161) == "too_long"
    assert why(section="Refunds\u200b") == "hidden_character"
    assert said(TEXT, section="Refunds > **2.** “Returns”").startswith(
        "From our policy POL-REF-004, version 4, “Refunds > 2. 'Returns'”: “"
    )


def test_three_clauses_at_most_each_once() -> None:
    rows = [row(f"It is due in {n} days.") for n in range(5)]
    cited = clauses.cited([seen(*rows)], ["obs_3.1", "obs_3.1", "obs_3.2", "obs_3.3", "obs_3.4"])
    found = clauses.quote(cited, (), "en")
    assert [c.text for c in found.clauses] == [r["text"] for r in rows[:3]]
    assert found.left_out == (("obs_3.4", "too_many"),)


@pytest.mark.parametrize("cited", ["obs_3", "obs_3.2", "obs_3.0", "obs_4.1", "obs_3.1.1", "obs_5.1"])
def test_only_one_passage_by_its_own_id_is_a_clause(cited: str) -> None:
    """Of a whole observation nobody knows which clause was meant."""
    other = seen(row(), obs_id="obs_5", source="search_cases")
    assert clauses.cited([seen(row()), other], [cited]) == {}


@pytest.mark.parametrize(
    "changes", [{"kind": "error"}, {"meta": {"erased": True}}, {"content": "passages"}, {"content": None}]
)
def test_what_is_no_result_holds_no_clause(changes: Json) -> None:
    assert clauses.cited([seen(row(), **changes)], ["obs_3.1"]) == {}


@pytest.mark.parametrize("odd", [
    {"text": None}, {"section": 3}, {"doc": 4}, {"version": "4"}, {"hash": None}, {"version": True},
])  # fmt: skip
def test_an_odd_row_holds_no_clause(odd: Json) -> None:
    assert clauses.cited([seen({**row(), **odd})], ["obs_3.1"]) == {}


@given(st.text(max_size=200))
def test_no_text_raises_or_breaks_out_of_its_quotation(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    for clause in quoted(f"It is due if {text}").clauses:
        told = clause.sentence()
        assert (told.count("“"), told.count("”")) == (2, 2)
        assert "\n" not in told
