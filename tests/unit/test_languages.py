"""Which language a customer writes (M121): told by small words and scripts, never guessed from too little."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs import languages, wordlists
from tests.telling import seen

MESSAGES = Path(__file__).resolve().parents[3] / "shared/cases/messages/banking77_refund.csv"
ENGLISH = (
    "Order 8472 was charged twice, and my refund has not arrived.",
    "Has my top-up been cancelled?",
    "refund pls",
    "8472",
    "",
    "I bought it in San José at the Café de la Paz and want my money back.",
    "Die Hard DVD arrived broken, please refund me.",
)
OTHERS = {
    "de": "Meine Bestellung wurde zweimal abgebucht, und das Geld ist nicht zurück.",
    "fr": "J'ai été débité deux fois pour la commande 8472.",
    "es": "¿Dónde está mi dinero? Lo pagué dos veces.",
    "pt": "O meu pedido foi cobrado duas vezes.",
    "it": "Il mio ordine è stato addebitato due volte.",
    "nl": "Mijn bestelling is twee keer betaald.",
    "hi": "mera paisa wapas kab milega",
    "ja": "私の注文は二重に請求されました",
    "zh": "我的订单被收费两次",
    "ru": "С меня дважды списали деньги за заказ 8472",
    "ar": "تم خصم المبلغ مرتين",
}


@pytest.mark.parametrize("text", ENGLISH)
def test_english_is_english_whatever_it_mentions(text: str) -> None:
    assert languages.of_texts([text]) == "en"


@pytest.mark.skipif(not MESSAGES.exists(), reason="the recorded messages lie beside the repository, not in it")
def test_none_of_the_recorded_messages_is_taken_for_another_language() -> None:
    with MESSAGES.open(newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    assert len(texts) == 1013
    assert [text for text in texts if languages.of_texts([text]) != "en"] == []


@pytest.mark.parametrize(("code", "text"), OTHERS.items())
def test_another_language_is_told(code: str, text: str) -> None:
    assert languages.of_texts([text]) == code
    assert languages.of_texts([ENGLISH[0], text]) == code
    assert languages.of_texts([text, ENGLISH[0]]) == "en"


def test_devanagari_is_hindi_as_its_romanised_words_are() -> None:
    assert languages.of_texts(["मेरा पैसा वापस कब मिलेगा"]) == "hi"


@pytest.mark.parametrize("little", ["ok", "Danke", "8472", "?", "😀", ""])
def test_too_little_text_leaves_the_language_before_it(little: str) -> None:
    assert languages.of_texts([OTHERS["de"], little]) == "de"


def test_language_follows_what_the_customer_wrote_last() -> None:
    german = seen(2, "customer", {"text": OTHERS["de"]}, kind="message")
    note = seen(3, "get_order", {"note": OTHERS["fr"]})
    assert languages.of_customer(ENGLISH[0], [german, note]) == "de"
    english = seen(4, "customer", {"text": "Yes, it is about this order."}, kind="message")
    assert languages.of_customer(ENGLISH[0], [english, german, note]) == "en"


@given(st.text(max_size=200))
def test_any_text_has_a_language(text: str) -> None:
    assert languages.of_texts([text]).isalpha()


def test_english_shares_no_small_word_that_could_tell_another_language() -> None:
    assert {code for code, small in languages.SMALL_WORDS.items() if small & languages.SMALL_WORDS["en"]} == {"en"}


def test_every_language_with_a_word_list_can_be_told() -> None:
    assert set(wordlists.LANGUAGES) <= set(languages.SMALL_WORDS)
