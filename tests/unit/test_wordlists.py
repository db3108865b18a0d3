"""Prose of a model around the facts: courtesy is kept, whatever states something is dropped whole (M74)."""

from __future__ import annotations

import re

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


# Periods, conditions and entitlements put together from plain words: none of it may leave as prose (M74, M90).
RULES = """
You should have the rest.
You can bring your order to us whenever you want.
You are welcome to it.
You are welcome to everything.
You must bring everything with you if you want help.
We added everything to your order.
You can take it.
You should have the value of your order.
You can ask for everything if you are in doubt.
You can share your order with others.
You should have your order.
You have further help whenever you need it.
If you have the order you can have the rest.
You must ask us if you want it.
Customer orders must be as they were.
The order must be as it was.
Every order can come to us.
Everyone should have this.
You can have the rest if you ask.
You need to ask us.
You need to write to us if you want the rest.
You would need to share the details if you want the value.
We should be bringing your order to you.
We can bring it to you.
We could bring everything to you.
You should enjoy your order.
It must be with you.
You would like it and you can have that.
It is always so.
You can order again whenever you like.
If the order was unpleasant you can always reach us for the rest.
Please share the order with us if it was not as you wanted.
You have the right kind of order.
You can trust that you will have help.
We always help customers like you.
Whatever you want is what you have.
We must help you if you ask.
You were to have the rest.
You can bring in other people.
You want it and so you have more.
Let us have the order and you have the value.
You have our word.
The value is with you.
You should know the value of it.
You are with us and so it is yours.
You have what you need.
You have all of it.
We want you to have the rest of it.
You could have the most of it.
Your concern is valued as an order.
If so, you should have it.
Only you can have the order.
You have a good case.
As a loyal customer you have more.
As a loyal customer you can have further orders on us.
It is on us.
Have the order on us.
Please take the order to our team together with your details.
Please bring the order and your details to our team.
You can contact us if there is a problem with the order whenever it happened.
Our team must see the order.
The team needs the order.
The team needs to have the order with them.
We need the order with you.
You should ask for more.
You can ask for more.
Please ask for the value.
You should be asking for all of it.
You could have asked for the rest.
You are to have it all.
It should be with you.
It would be with you if you asked.
It should all be as you want.
It is as it should have been.
You have your answer and the rest of it.
We will have it with you.
Everything is with you.
Everything is as you would want it.
We will bring it.
We find for you.
We have found that you have a concern.
It is our pleasure to have it with you.
There is more for you.
There is something for you.
Something is there for you.
You have something from us.
Enjoy something from us.
Enjoy everything.
Enjoy the rest.
Please enjoy what is yours.
Let it be known.
Let it be yours.
Take everything with you.
Take the rest.
Your order is as good as with you.
We did what you wanted.
We did that.
We did as you asked.
You had help.
You matter and your order matters most.
You should be having it.
You should be glad.
You should be happy with what you have.
You are good.
That is good for you.
Good for you.
We care for your order and so it is with you.
We will take it from you.
We will take the order from you.
Please have the order with you.
Have your details to hand.
No one else can have it.
Others have it.
As others did you should.
We let you have the order.
We let everyone have the rest.
You can find it there.
You find the rest in your account.
Welcome to the rest.
Feel free to take it.
Feel free to have the order.
Feel free to enjoy your order.
Feel free to ask for the rest.
Of course you can.
Of course you have it.
Please do so if you want it.
You may.
You can.
You can and you should.
You must.
You should not.
You cannot.
You can be helped if you are a customer.
If you are a customer we help.
We help where we can.
Help is there if you have the order.
Where the order was unpleasant we help.
While you have the order we help.
So long as you have the order we help.
When you have the order we help.
You were in the wrong.
You can contact us about every order.
In our experience orders like this are yours.
Every customer can have it.
All customers have it.
For every order there is something.
If there is something for you, it is good.
If you ask, there is something we can do for you.
We share everything.
You are someone we want to have more.
We want more for you.
We raised it.
We look after it.
Your order must be good.
The order must be as pleasant as it was.
You can get our order.
You can get our help with the order and the rest of it.
You can ask us for the order.
You can ask our team for everything.
Please ask us for everything.
If you have any problem with your order you can ask us for all of it.
You have to bring the order.
You have to write the details.
You have to ask.
You can write to us for the order.
If you have a problem you have our word.
You would be happy to have it.
We would be happy if you have it.
We would be glad to have you have it.
You have been good to us so it is yours.
It is always with you.
Your order is just yours.
You need to explain everything.
You need a good explanation.
You need help from a person to have the order.
You can have help.
We need you to write.
We need to look at the order.
You could tell us more and have more.
Other customers have the order with them.
Whoever asks has it.
It must be you who asks.
It should be you who asks.
Only customers like you have this.
Only with the order.
Provided you ask.
You can do it.
You can so.
You can all have it.
You can do everything with the order.
What you can do is great.
You can help yourself to it.
Help yourself to the order.
Please help yourself.
It is all for you.
Everything is for you.
The order is for you.
The order is for you to have.
You are to reply.
You are to write to us.
Write to us and it is settled.
Reply and everything is good.
Reply to us and everything is with you.
We feel you are right.
Our team feels your request is important and good.
""".strip().split("\n")
TURNS = """
If you have any other questions, please let us know.
Please let us know if there's anything else we can help you with.
If there is anything else you need, please reply to this message.
If anything is unclear, you can always write to us.
We understand how frustrating this must be.
We're sorry you had to contact us about this.
We would be happy to help you further.
Thank you for sharing this with us.
Could you please tell us which order you mean?
Which order would you like us to look at?
Could you tell us more about the problem with your order?
We appreciate that you have been so patient.
If you would like us to explain anything, please write to us.
Should you have any further questions, do not hesitate to contact us.
We hope you find this helpful.
As a loyal customer, you matter to us.
We have read everything you shared with us.
Thank you for bringing this to our attention, and we are sorry for the worry it has caused you.
A colleague needs to look at this.
How can we help you?
It would help us to know which order this is about.
Thank you so much for your kindness.
We wish you all the best.
I am so sorry to hear this.
You can reach out to us again at any time.
Please let us know if you have any questions about this.
If you need any further assistance, please feel free to reach out to us.
Please feel free to contact us if you need anything else.
Thanks for letting us know.
We would like to apologise for the inconvenience.
Let us know if we can help with anything else.
If there is anything else I can do for you, please let me know.
Thank you for giving us the opportunity to help.
If there is something else we can do, we would be happy to hear from you.
Could you share more details about the problem?
Please share more details so we can help you.
Have you contacted us about this order?
Please let us know which order you would like us to look into.
What else should we know about this?
Please write to us if you would like a colleague to look at this.
If you have more details to share, please reply to this message.
Our team is here for you if you need us.
We can understand why you were worried.
I appreciate your patience while I looked into this for you.
It must be frustrating to have to write to us about this.
Please take a look at the details here, and let us know if you have any questions.
We have looked into your request and shared the details with you here.
""".strip().split("\n")
WEIGHTY = (
    """
can could must should would shall may if when whenever where while unless until have has had having need needs needed
want wanted wish like let take bring add added enjoy find keep get give rest share more so as yours value only
""".strip()
    .replace("\n", " ")
    .split(" ")
)


@pytest.mark.parametrize("prose", RULES)
def test_no_rule_is_put_together_from_plain_words(prose: str) -> None:
    for told in (story("verified"), story("verified", writes=[write("confirmed")])):
        assert reply.check_prose(prose, told).kept == ""
        assert reply.check_prose(f"Thank you for your patience. {prose} Kind regards", told).kept == ""


@pytest.mark.parametrize("prose", TURNS)
def test_turns_of_courtesy_may_use_such_words(prose: str) -> None:
    assert reply.check_prose(prose, story("verified", writes=[write("confirmed")])).kept == prose


@pytest.mark.parametrize("word", WEIGHTY)
def test_a_word_of_which_rules_are_made_is_on_no_list_of_its_own(word: str) -> None:
    assert word not in wordlists.ENGLISH.courtesy
    for prose in (f"You {word} the order.", f"{word} the order", f"The order {word} be with our team."):
        assert reply.check_prose(prose, story("gathering")).kept == ""


@given(st.sampled_from(WEIGHTY), st.lists(st.sampled_from(sorted(wordlists.ENGLISH.courtesy)), max_size=6))
def test_no_such_word_passes_outside_of_a_whole_turn(word: str, around: list[str]) -> None:
    """Whatever stands around it, it takes one of the turns to let it through."""
    prose = " ".join([*around, word, "order"])
    if reply.check_prose(prose, story("verified")).kept:
        turns = (*wordlists.ENGLISH.harmless, *wordlists.ENGLISH.unmoved)
        assert any(re.search(rf"\b(?:{turn})\b", prose) for turn in turns)


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
