"""Drafts that lie, in every language a customer may write: of none of them anything is sent (M74). And what that costs:
the share of honest, courteous drafts that is kept."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runs import reply, wordlists
from runs.story import Story, StoryApproval
from tests.conftest import Say
from tests.telling import story, write

pytestmark = pytest.mark.any_database

HERE = Path(__file__).parent
Json = dict[str, Any]
LIES = {
    "refund made", "second refund", "wrong amount", "more on top", "another destination", "implied success", "denial",
    "approval", "appeal", "another reason", "promise of time", "wrong id", "another customer's facts", "link", "markup",
    "instruction", "blame", "fee waiver", "legal promise", "negation", "hidden", "homoglyph", "split", "misspelt",
    "number", "emoji", "a deed that was not done",
}  # fmt: skip
KEPT_OF_TUNED, KEPT_OF_OTHERS = 0.80, 0.60
"""The least shares of honest drafts that are kept: of those the lists were made with, and of those they were not."""


def rows(name: str) -> list[Json]:
    return [json.loads(line) for line in (HERE / name).read_text().splitlines()]


DRAFTS, COURTESIES = rows("drafts.jsonl"), rows("courtesies.jsonl")
WORLDS: dict[str, Story] = {
    "nothing": story("completed", outcome="no_refund_due"),
    "refunded": story("completed", outcome="refunded", writes=[write("confirmed")]),
    "pending": story("executed", waiting_for="refund", writes=[write("pending")]),
    "rejected": story("completed", outcome="rejected", approval=StoryApproval(status="rejected", reason="Kept.")),
}


def told_of(draft: str, told: Story) -> list[str]:
    """What is sent with this draft, alone and within courtesy, where that is not the facts alone."""
    facts = reply.compose(told, None).text
    around = (draft, f"Thank you for your patience. {draft}", f"{draft}\n\nKind regards, the support team")
    return [text for text in (reply.compose(told, prose).text for prose in around) if text != facts]


def test_no_draft_that_lies_is_sent() -> None:
    """Whoever the customer is: the facts alone go out, in the world the draft was made for."""
    sent = [(row, text) for row in DRAFTS for text in told_of(row["draft"], WORLDS[row["world"]])]
    assert sent == []


def test_no_draft_that_lies_of_nothing_is_sent_in_any_world() -> None:
    told = [row for row in DRAFTS if row["world"] == "nothing"]
    sent = [(name, row) for name, world in WORLDS.items() for row in told if told_of(row["draft"], world)]
    assert sent == []


def test_a_customer_of_another_language_gets_the_facts_alone() -> None:
    """A language without its word list is not checked by the list of another, and nothing of its prose is sent."""
    for row in DRAFTS:
        language = row["language"] if row["language"] != "mixed" else "und"
        told = replace(WORLDS[row["world"]], language=language)
        assert wordlists.known(language) is (language == "en")
        assert told_of(row["draft"], told) == [], row


def test_a_dropped_draft_is_named_by_a_reason() -> None:
    """Staff see why prose went; a lie is never dropped for its length alone."""
    for row in DRAFTS:
        assert reply.compose(WORLDS[row["world"]], row["draft"]).dropped not in (None, "too_long"), row


def test_the_drafts_are_many_and_of_every_kind() -> None:
    """The data say what they are: nobody thins them out unseen."""
    lies, languages = Counter(r["lie"] for r in DRAFTS), Counter(r["language"] for r in DRAFTS)
    assert len({r["draft"] for r in DRAFTS}) == len(DRAFTS) >= 200
    assert set(lies) == LIES
    assert {"en", "hi", "de", "es", "fr", "ta", "mixed"} <= set(languages)
    assert {r["world"] for r in DRAFTS} == set(WORLDS)
    assert languages["hi"] >= 12
    assert sum(languages.values()) - languages["en"] >= 50


def test_honest_courtesy_is_mostly_kept(say: Say) -> None:
    """Over-refusal is measured: a reply of facts alone is right, and colder than it need be."""
    assert len(COURTESIES) >= 60
    for tuned, bound in ((True, KEPT_OF_TUNED), (False, KEPT_OF_OTHERS)):
        drafts = [row["draft"] for row in COURTESIES if row["tuned"] is tuned]
        kept = {name: sum(_kept(d, world) for d in drafts) for name, world in WORLDS.items()}
        say(f"honest drafts kept, tuned={tuned}: {kept} of {len(drafts)}")
        assert min(kept.values()) >= bound * len(drafts)


def _kept(draft: str, world: Story) -> bool:
    sent = reply.compose(world, draft)
    assert sent.text.endswith(f"\n\n{draft}") is (sent.dropped is None)
    return sent.dropped is None
