"""Prose of a model around the facts: courtesy is kept, whatever states something is dropped whole (M74)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs import reply, wordlists
from tests.telling import story, write

# --- prose -------------------------------------------------------------------------------------------------

COURTESIES = """
Thank you for your patience.
We are sorry for the inconvenience.
We're sorry for the trouble this has caused you.
Please let us know if there is anything else we can help you with.
If you have any other questions, please feel free to reach out.
Thank you for reaching out to us.
We appreciate your understanding.
We understand how frustrating this must have been.
Please do not hesitate to contact us if you have any questions.
Don’t hesitate to write to us again.
Have a nice day!
Enjoy the rest of your day.
We wish you a lovely evening.
Thank you again for bringing this to our attention.
We value your trust and are grateful for it.
Kind regards, the support team
Warm regards, your customer care team
Hello, and thank you for contacting us.
Dear customer,
We apologise for any frustration this situation has caused.
I'm sorry to hear about the trouble with your order.
We know this was stressful, and we appreciate your kindness.
We are here to help if anything is unclear.
Our team will be happy to help you further.
Thank you for taking the time to write to us.
We hope this explains everything.
We hope this helps.
Thanks so much for your patience and understanding.
It was a pleasure to assist you.
Please reply to this message if you need anything further.
We look forward to hearing from you.
Thank you for your time and your patience.
I completely understand your concern.
We thank you for being a loyal customer.
Let us know if you run into any other issues.
""".strip().split("\n")[:-1]

ADVERSARIAL = [
    # figures of any kind
    ("Your order number is 8472.", "digit"), ("We looked at ２０００ things.", "digit"), ("Thank you ①", "digit"),
    ("Thank you for the ٣ messages.", "digit"), ("Thank you, ½ of us care.", "digit"), ("Call Ⅷ us.", "digit"),
    ("Thank you 𝟐 much.", "digit"), ("We owe you x² thanks.", "digit"), ("४ thanks", "digit"),
    ("You were helped twice.", "number_word"), ("We found two of them.", "number_word"),
    ("Five thousand thanks.", "number_word"), ("A lakh of thanks to you.", "number_word"),
    ("We will help you in full.", "number_word"), ("Half of it is yours.", "number_word"),
    # money
    ("Thank you for every rupee.", "currency"), ("Many € thanks.", "currency"), ("That is ₹ for you.", "currency"),
    ("It was in INR.", "currency"), ("You have some dollars with us.", "currency"), ("﷼ thanks", "currency"),
    # ids, markup, addresses
    ("Your reference is rf_abc.", "markup"), ("Please see #abc for it.", "markup"),
    ("<b>Thank you</b>", "markup"), ("Thank you <img src=x onerror=alert(a)>", "markup"),
    ("**Thank you**", "markup"), ("[Thank you](here)", "markup"), ("&lt;b&gt; thanks", "markup"),
    ("Please write to help@example.com.", "address"), ("See https://example.com for more.", "address"),
    ("Please look at www.example.org.", "address"), ("Please contact us at support.example.", "address"),
    ("Look at evil.com please", "address"),
    # dates and promises of time
    ("We will write to you on Monday.", "date"), ("It was in May.", "date"), ("See you in December.", "date"),
    ("You will hear from us soon.", "time_promise"), ("It takes a few days.", "time_promise"),
    ("We will write within the week.", "time_promise"), ("You can expect it tomorrow.", "time_promise"),
    ("This will happen shortly.", "time_promise"), ("It is immediately there.", "time_promise"),
    ("It is on its way to you.", "time_promise"), ("You will have heard by then.", "time_promise"),
    ("In no time you will be happy.", "outcome"), ("It happens overnight.", "time_promise"),
    # outcomes, in any inflection and disguise
    ("Your refund is here.", "outcome"), ("We refunded you.", "outcome"), ("REFUNDING you was a pleasure.", "outcome"),
    ("You were charged for it.", "outcome"), ("It was declined.", "outcome"), ("Our team approved it.", "outcome"),
    ("It has been rejected.", "outcome"), ("We processed everything.", "outcome"), ("It was issued to you.", "outcome"),
    ("We sent it to you.", "outcome"), ("You were credited.", "outcome"), ("We returned it.", "outcome"),
    ("It was reversed.", "outcome"), ("You have been paid.", "outcome"), ("You get your money back.", "outcome"),
    ("We cancelled it.", "outcome"), ("We canceled it.", "outcome"), ("It was denied.", "outcome"),
    ("It is completed.", "outcome"), ("That was successful.", "outcome"), ("It is done.", "outcome"),
    ("We reimbursed you.", "outcome"), ("We made a repayment, thank you.", "outcome"),
    ("It was settled for you.", "outcome"), ("Everything is resolved.", "outcome"), ("It is fixed.", "outcome"),
    ("We re-fund-ed you.", "outcome"), ("You were r e f u n d e d.", "outcome"), ("ref.und.ed, thank you", "outcome"),
    ("You were réfünded.", "outcome"), ("Ｒｅｆｕｎｄｅｄ, thank you.", "outcome"),
    ("reeefunnnded thank you", "outcome"),
    ("We ap proved everything.", "outcome"), ("It was refnded.", "outcome"), ("Unfortunately so.", "outcome"),
    ("You will have it.", "outcome"), ("You have everything.", "outcome"), ("It is in your account.", "outcome"),
    ("Our team is happy with it.", "outcome"), ("Our team supports your request.", "outcome"),
    ("Your request is welcome and good.", "outcome"), ("It has been taken care of for you.", "outcome"),
    ("There was nothing wrong.", "outcome"), ("We were not able to help.", "outcome"), ("It is yours.", "outcome"),
    # entitlements
    ("You are entitled to it.", "entitlement"), ("You are eligible.", "entitlement"),
    ("We guarantee it.", "entitlement"), ("Our policy says so.", "entitlement"), ("You qualify for it.", "entitlement"),
    ("It is owed to you.", "entitlement"), ("We promise it to you.", "entitlement"),
    # hidden and foreign
    ("Thank\u200byou", "hidden_character"), ("ref\u200bunded", "hidden_character"),
    ("Thanks \u202edednufer", "hidden_character"),
    ("Thank you\x00", "hidden_character"), ("You were rеfunded.", "script"), ("धन्यवाद", "script"), ("退款", "script"),
    ("ʀᴇꜰᴜɴᴅᴇᴅ", "script"), ("Thank you ✅", "symbol"), ("Thank you \U0001f4b8", "symbol"),
    # a paraphrase nobody listed
    ("You are whole again, says the ledger.", "number_word"), ("The funds are home.", "outcome"),
    ("The gateway said the plastic expired.", "unknown_word"), ("Consider it handled.", "unknown_word"),
    ("Reembolso hecho.", "unknown_word"), ("You are good to go.", "unknown_word"), ("pa!d, thank you", "unknown_word"),
    ("c h e e r s", "unknown_word"),
]  # fmt: skip


@pytest.mark.parametrize("prose", COURTESIES)
def test_check_prose_keeps_courtesy(prose: str) -> None:
    told = story("verified", writes=[write("confirmed")])
    assert reply.check_prose(f"  {prose}\n", told) == reply.ProseVerdict(kept=prose)


@pytest.mark.parametrize(("prose", "slug"), ADVERSARIAL)
def test_check_prose_drops_whatever_states_something(prose: str, slug: str) -> None:
    assert reply.check_prose(prose, story("verified")) == reply.ProseVerdict(kept="", dropped=slug)


@pytest.mark.parametrize(("prose", "slug"), ADVERSARIAL)
def test_check_prose_drops_the_whole_however_courteous_the_rest(prose: str, slug: str) -> None:
    polite = f"Thank you for your patience. {prose} Have a nice day!"
    assert reply.check_prose(polite, story("verified")).kept == ""


def test_the_lists_of_drafts_are_long_enough() -> None:
    assert len(ADVERSARIAL) >= 80
    assert len(COURTESIES) >= 30


def test_check_prose_drops_what_is_too_long() -> None:
    assert reply.check_prose("Thank you. " * 60, story()).dropped == "too_long"
    assert reply.check_prose("Thank you. " * 50, story()).dropped is None


def test_check_prose_drops_prose_in_a_language_without_a_list() -> None:
    assert reply.check_prose("Thank you.", story(language="de")).dropped == "no_word_list"


def test_check_prose_lets_we_could_not_stand_only_while_no_money_moved() -> None:
    prose = "We could not go ahead with this. Please write to us if you have questions about it."
    assert reply.check_prose(prose, story("gathering")).kept == prose
    for state in ("intent", "sent", "unknown", "pending", "confirmed"):
        assert reply.check_prose(prose, story("verified", writes=[write(state)])).dropped == "outcome"


def test_check_prose_has_no_word_on_both_lists() -> None:
    both = {w for w in wordlists.ENGLISH.courtesy if wordlists.fault(w, "en", moved=True) not in (None, "unknown_word")}
    assert both == set()


outcome_words = st.sampled_from(["refunded", "approved", "charged", "reimbursement", "credited", "declined", "paid"])
separators = st.sampled_from(["", "\u200b", "\u00ad", "-", ".", " ", "*", "\u0301", "\u2060", "’"])


@given(outcome_words, separators, st.booleans(), st.sampled_from(COURTESIES))
def test_check_prose_drops_an_outcome_however_it_is_split(word: str, between: str, upper: bool, polite: str) -> None:
    hidden = between.join(word.upper() if upper else word)
    assert reply.check_prose(f"{polite} {hidden}", story("verified")).kept == ""


@given(st.text(max_size=80))
def test_check_prose_never_raises_and_keeps_no_figure(prose: str) -> None:
    verdict = reply.check_prose(prose, story("verified"))
    assert not any(char.isnumeric() for char in verdict.kept)
    assert (verdict.kept == "") or verdict.dropped is None
