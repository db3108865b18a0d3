"""Words by which a person is needed: what must be caught, what must not, how texts are compared, what profiles say."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import ValidationError

from agentsite.tenants.profiles import Profile, SensitiveWords
from runs import precheck, prewords, wordlists
from tests.conftest import Say

MESSAGES = Path(__file__).resolve().parents[3] / "shared/cases/messages/banking77_refund.csv"
MOST_DIVERTED = 0.02
FOR_A_PERSON = {
    "en": (
        "I will kill myself if this money does not come back", "honestly i'm thinking about suicide",
        "I just want to die.", "I don't want to live any more because of this", "I have been self-harming... self harm",
        "there is nothing to live for now", "I'm going to end it all tonight", "I'd be better off dead",
        "Refund me or I'll kill you", "I am going to hurt someone if you do not answer", "I know where you live",
        "I will burn down your office", "we will murder all of you", "You will die for this", "I'll come after you",
        "I'm gonna shoot everyone there", "watch your back!", "I WANT TO KILL HIM", "I'll break your legs",
        "I will kill your driver", "hope you all die", "I\u2019ll kill them", "put a bullet in somebody",
        "I feel suicidal over this bill", "I am going to bring a gun",
    ),
}  # fmt: skip
FOR_APPROVAL = {
    "en": (
        "I will take you to court", "My lawyer will be in touch", "I'll sue you for this", "I will sue happily",
        "Expect legal action.", "see you in court!", "I am going to the consumer court", "I have filed a police report",
        "The ombudsman will hear of it", "I'll complain to the RBI", "reporting you to the regulator",
        "This is fraud", "fraudulent charge on my card", "you are scammers", "I was scammed by your shop",
        "I'll file a chargeback", "chargeback fraud", "an unauthorised charge of 2000", "Unauthorized transaction!",
        "my attorney general knows", "this is illegal", "my account was hacked", "Trading Standards will love this",
        "class action incoming", "They stole my money", "taken without my permission",
    ),
}  # fmt: skip
NEAR_MISSES = {
    "en": (
        "this is killing my budget", "My name is Sue, I ordered court shoes", "Sue Miller paid for order 8472",
        "I am dying to get my refund", "the battery is dead", "it would not kill you to answer", "a killer deal",
        "the sauce could kill you with its heat", "I hurt my back lifting the box", "I cut myself on the broken glass",
        "the price was a shot in the dark", "photo shoot on Monday", "bath bombs arrived crushed", "bullet journal",
        "tennis court booking", "fraught with delays", "my policy number", "I missed the deadline",
        "cancel it or I will be upset", "you will be charged", "I need to beat the deadline", "heart attack on a plate",
        "I will hurt your rating with one star", "this will kill your reputation", "skilled myself in it",
        "the issue was reported to the shop", "suede shoes", "scampi", "hangers, and hang it up yourself",
        "charged twice back to back", "Am I being charged twice?",
    ),
}  # fmt: skip


def found(*texts: str, **lists: SensitiveWords) -> precheck.Found:
    return precheck.found(texts, lists)


def cases(of: Mapping[str, tuple[str, ...]]) -> list[str]:
    return [text for texts in of.values() for text in texts]


@pytest.mark.parametrize("text", cases(FOR_A_PERSON))
def test_words_of_harm_go_to_a_person(text: str) -> None:
    assert found(text).person != ()


@pytest.mark.parametrize("text", cases(FOR_APPROVAL))
def test_words_of_law_and_fraud_need_approval_and_divert_nothing(text: str) -> None:
    assert found(text).approval != () and found(text).person == ()


@pytest.mark.parametrize("text", cases(NEAR_MISSES))
def test_near_miss_is_not_caught(text: str) -> None:
    assert found(text) == precheck.Found()


def test_every_language_of_the_reply_has_lists_and_cases_both_ways() -> None:
    assert set(precheck.SHIPPED) == set(wordlists.LANGUAGES) == set(prewords.LANGUAGES)
    assert set(FOR_A_PERSON) == set(FOR_APPROVAL) == set(NEAR_MISSES) == set(precheck.SHIPPED)


@pytest.mark.skipif(not MESSAGES.exists(), reason=f"the messages are not there ({MESSAGES})")
def test_real_messages_are_hardly_ever_diverted(say: Say) -> None:
    with MESSAGES.open(newline="") as lines:
        texts = [row["text"] for row in csv.DictReader(lines)]
    hits = [found(text) for text in texts]
    person, approval = sum(bool(h.person) for h in hits), sum(bool(h.approval) for h in hits)
    say(f"of {len(texts)} real messages {person} go to a person ({person / len(texts):.2%}), "
        f"{approval} make writes need approval ({approval / len(texts):.2%})")  # fmt: skip
    assert len(texts) == 1013
    assert sum(bool(h.person or h.approval) for h in hits) <= MOST_DIVERTED * len(texts)
    assert person == 0, "no message about a refund speaks of harm"


# --- how texts are compared ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "KILL MYSELF", "kill\n\tmyself", "ｋｉｌｌ　ｍｙｓｅｌｆ", "ki\u200bll my\u00adself", "kill, myself!",
        "kill\ufe0f myself", "(kill)-(myself)", "kill\u2028myself", "ﬁrst I will KILL Myself", "kill\u034f myself",
    ],
)  # fmt: skip
def test_case_width_punctuation_and_the_invisible_do_not_matter(text: str) -> None:
    assert found(text).person == ("kill myself",)


@pytest.mark.parametrize("text", ["skill myself", "kill myselfish", "overkill myself", "kill the myself"])
def test_words_are_whole(text: str) -> None:
    assert found(text) == precheck.Found()


def test_apostrophes_of_every_kind_are_left_out() -> None:
    assert {found(f"I don{mark}t want to live").person for mark in "'’ʼ`"} == {("dont want to live",)}


def test_scripts_without_spaces_are_searched_inside_words_and_across_breaks() -> None:
    chinese = SensitiveWords(person=("自杀",), approval=("律师",))
    assert found("如果不退款我就自杀了", zh=chinese).person == ("自杀",)
    assert found("我会请律\n师来", zh=chinese).approval == ("律师",)
    assert found("自由 杀价", zh=chinese) == precheck.Found()


def test_marks_belong_to_their_words() -> None:
    hindi = SensitiveWords(person=("मर",), approval=())
    assert found("मैं मर जाऊँगा", hi=hindi).person == ("मर",)
    assert found("मरि मरा", hi=hindi).person == ()


def test_each_phrase_is_named_once_from_all_texts_and_never_too_many() -> None:
    assert found("fraud", "a fraud and a scam").approval == ("fraud", "scam")
    many = SensitiveWords(approval=tuple(f"word{n}" for n in range(90)), person=())
    assert len(found(" ".join(f"word{n}" for n in range(90)), xx=many).approval) == precheck.MAX_TOLD


@pytest.mark.parametrize("text", ["", " ", "\x00", "\ud800", "\u200b" * 50, "!" * 20_000, "a" * 20_000])
def test_any_text_is_looked_at(text: str) -> None:
    assert found(text) == precheck.Found()


# --- what a profile says -------------------------------------------------------------------------------------


def test_profile_replaces_a_list_of_a_language_and_leaves_the_other() -> None:
    mine = SensitiveWords(approval=("black magic",))
    assert found("my lawyer does black magic", en=mine).approval == ("black magic",)
    assert found("I will kill myself", en=mine).person == ("kill myself",)


def test_empty_list_takes_the_shipped_one_away() -> None:
    assert found("I will kill myself, says my lawyer", en=SensitiveWords(person=(), approval=())) == precheck.Found()


def test_further_language_stands_beside_the_shipped_one() -> None:
    german = SensitiveWords(person=("bringe mich um",), approval=("Anwalt", "STRASSE"))
    both = found("Mein ANWALT und my lawyer, Straße", de=german)
    assert both.approval == ("Anwalt", "STRASSE", "lawyer")


def profile(**fields: object) -> Profile:
    return Profile.model_validate({"read_tools": [], "policy_pin": "P@v1", **fields})


def test_profile_takes_word_lists_and_has_none_by_default() -> None:
    assert profile().sensitive == {} and profile().secrets == {}
    given = profile(sensitive={"en": {"person": ["a phrase"]}}).sensitive["en"]
    assert (given.person, given.approval) == (("a phrase",), None)


@pytest.mark.parametrize(
    "lists",
    [
        {"en": {"persons": []}}, {"EN": {}}, {"english-words": {}}, {"": {}}, {"en": []}, {"en": {"person": "kill"}},
        {"en": {"person": [1]}}, {"en": {"person": ["x"]}}, {"en": {"person": ["  "]}}, {"en": {"person": ["!!"]}},
        {"en": {"person": ["a\x00b"]}}, {"en": {"person": ["a\ud800"]}}, {"en": {"person": ["a" * 81]}},
        {"en": {"approval": ["ab"] * 1001}}, {f"{chr(97 + n // 26)}{chr(97 + n % 26)}": {} for n in range(31)},
        [], None, "en",
    ],
)  # fmt: skip
def test_misspelt_or_boundless_word_lists_refuse_the_profile(lists: object) -> None:
    with pytest.raises(ValidationError):
        profile(sensitive=lists)


@pytest.mark.parametrize(
    "secrets",
    [{"lower": "X"}, {"A B": "X"}, {"NAME": ""}, {"NAME": "A B"}, {"NAME": 1}, {"NAME": "A=B"}, ["NAME"],
     {f"N{n}": "X" for n in range(51)}],
)  # fmt: skip
def test_misspelt_secrets_refuse_the_profile(secrets: object) -> None:
    with pytest.raises(ValidationError):
        profile(secrets=secrets)


def test_lists_of_a_stored_contract_that_cannot_be_read_are_the_shipped_ones() -> None:
    assert precheck.stored(None) == precheck.stored({"en": 5}) == precheck.stored("x") == {}
    assert precheck.stored({"en": {"person": ["a phrase"]}})["en"].person == ("a phrase",)
