"""A customer or a profile that says very much costs little: words are looked for once a text, not once a phrase."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pydantic import ValidationError

from agentsite.tenants import profiles
from agentsite.tenants.profiles import SensitiveWords
from runs import languages, precheck, wordlists

COMPLAINT = "Please look at my order again, it was charged twice and nobody answers. " * 230
FAR_TOO_LONG_S = 8.0


def test_thousand_long_messages_are_looked_through_in_no_time() -> None:
    texts = [f"{COMPLAINT}{number}" for number in range(1000)]
    began = time.process_time()
    assert precheck.found([*texts, "My lawyer says I should kill myself"], {}) == precheck.Found(
        person=("kill myself",), approval=("lawyer",)
    )
    assert time.process_time() - began < FAR_TOO_LONG_S / 2


def test_the_longest_lists_of_a_profile_are_looked_for_in_no_time() -> None:
    def phrases(begin: str) -> tuple[str, ...]:
        return tuple(f"{begin}{chr(0x4E00 + n // 40)}{chr(0x4E00 + n % 40)}" for n in range(1000))

    lists = {f"a{chr(97 + n)}": SensitiveWords(person=phrases(f"漢{n}"), approval=phrases(f"字{n}")) for n in range(26)}
    texts = [f"{COMPLAINT}{number} 漢25 丂七" for number in range(5)]
    began = time.process_time()
    assert precheck.found(texts, lists).person == ("漢25丂七",)
    assert time.process_time() - began < FAR_TOO_LONG_S


def test_phrase_of_a_profile_is_found_by_words_wherever_it_stands() -> None:
    lists = {"en": SensitiveWords(person=("bad thing", "thing", "a b c", "\u3164\u3164"), approval=("bad",))}
    assert precheck.found(["BAD, thing!"], lists) == precheck.Found(person=("bad thing", "thing"), approval=("bad",))
    assert precheck.found(["nothing badly; thing-bad"], lists) == precheck.Found(person=("thing",), approval=("bad",))
    assert precheck.found(["xa b c", "a b cx", "a-b-c"], lists).person == ("a b c",)


def test_language_is_told_by_the_last_words_alone() -> None:
    class Unread:
        def __getitem__(self, part: Any) -> str:
            raise AssertionError("what came before is not read")

    texts: Any = [Unread(), "ich habe das nicht bestellt, bitte das Geld zurück", "8472!"]
    assert languages.of_texts(texts) == "de"


def test_claims_made_of_plain_words_are_no_courtesy() -> None:
    claims = (
        "It has reached you.", "Everything reached you.", "We did it for you.", "Our team did that.",
        "We have done it.", "Everything is as it should be.", "It is on us.", "All of it is for you.",
        "You can look forward to it.", "So be it.", "Is it yours to have?",
    )  # fmt: skip
    courteous = (
        "Thank you for reaching out to us.", "We are here for you.", "Which order is this about?",
        "We look forward to hearing from you.", "What do you want us to look at?", "Please do reach us again.",
    )  # fmt: skip
    assert [c for c in claims if wordlists.fault(c, "en", moved=False) is None] == []
    assert [c for c in courteous if wordlists.fault(c, "en", moved=True) is not None] == []


def test_profile_with_more_phrases_than_every_run_should_carry_is_refused_by_name() -> None:
    def document(languages_given: int) -> dict[str, Any]:
        words = [f"phrase {n}" for n in range(1000)]
        lists = {f"a{chr(97 + n)}": {"person": words} for n in range(languages_given)}
        return {"read_tools": ["get_order"], "policy_pin": "POL-REF-004@v4", "sensitive": lists}

    assert len(profiles.parse(document(3)).sensitive) == 3
    with pytest.raises(ValidationError) as refused:
        profiles.parse(document(4))
    assert [error["loc"] for error in refused.value.errors()] == [("sensitive",)]
