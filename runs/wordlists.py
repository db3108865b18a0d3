"""Words a model's prose around the facts may and may not hold, by language. A paper: no Django, no clock.

Three nets: characters that plain prose has no use for, words and phrases that state something (each with a slug of
its own), and a list of plain words of courtesy outside of which nothing passes. The last one holds what nobody
thought of: a new paraphrase of an outcome, or a split or misspelt one, is made of words that are on no such list.
Words of which conditions and entitlements are made (can, must, should, if, when, have, need, want, take ...) are on no
list either: they pass only within whole turns of courtesy, so that no rule of ours can be put together from them.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from runs import courtesy

SPACES = frozenset(" \n\t\r")
POINTS = frozenset(".,;:!?'’‘\"“”()-‐‑–—…")
MARKUP = frozenset("<>*_#[]`{}|~\\=^&+/")
ADDRESS = re.compile(r"https?:|www\.|://|\S@\S|[^\W\d]\.(com|net|org|io|co|in|example|app|dev|ly|me)\b", re.I)
WORST_FIRST = ("hidden_character", "digit", "currency", "script", "markup", "symbol")
LATIN = str.maketrans({"æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "’": "'", "‘": "'"})
SENTENCE_END = re.compile(r"[.!?;:\n…]+")
_GAP = " | "
"""Where a sentence ended, or a harmless phrase stood: what is around it does not become one phrase."""
REPEATED = re.compile(r"(.)\1+")
LONGEST_KEPT = 40


@dataclass(frozen=True, kw_only=True, eq=False)
class Words:
    """The lists of one language, one object each. Stems match the beginning of a word; phrases are regular expressions
    over words.

    `forbidden_openings` begin a sentence, after "please" or not. `harmless` phrases are set aside before words are
    looked at, `unmoved` ones only while no money of ours moved; `squeezed` stems are also looked for across spaces and
    points.
    """

    contractions: tuple[tuple[str, str], ...]
    forbidden_phrases: tuple[tuple[str, str], ...]
    forbidden_openings: tuple[tuple[str, str], ...]
    forbidden_words: tuple[tuple[str, frozenset[str]], ...]
    forbidden_stems: tuple[tuple[str, tuple[str, ...]], ...]
    squeezed: tuple[str, ...]
    harmless: tuple[str, ...]
    unmoved: tuple[str, ...]
    courtesy: frozenset[str]


NO_LIST = "no_word_list"


def known(language: str) -> bool:
    """Whether prose in this language can be checked, and so may reach a customer at all."""
    return language in LANGUAGES


def fault(prose: str, language: str, *, moved: bool) -> str | None:
    """Why prose may not be sent, as a stable slug; None where it holds nothing but courtesy.

    `moved`: a refund of this run was made or may have been, so that saying "we could not" might be untrue.
    """
    lists = LANGUAGES.get(language)
    if lists is None:
        return NO_LIST
    return _bad_character(prose) or _bad_word(_folded(prose), lists, moved=moved)


def _bad_character(prose: str) -> str | None:
    if ADDRESS.search(prose):
        return "address"
    found = {_of_character(char) for char in prose}
    return next((slug for slug in WORST_FIRST if slug in found), None)


def _of_character(char: str) -> str | None:
    """The slug of a character that has no place in plain prose in Latin letters."""
    if char in SPACES or char in POINTS or (char.isascii() and char.isalpha()):
        return None
    kinds = {unicodedata.category(c) for c in char + unicodedata.normalize("NFKC", char)}
    if any(kind.startswith("N") for kind in kinds):
        return "digit"
    if "Sc" in kinds:
        return "currency"
    if kinds & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}:
        return "hidden_character"
    if any(kind.startswith("L") for kind in kinds):
        return None if _folded(char).isascii() else "script"
    if char in MARKUP:
        return "markup"
    return None if all(kind.startswith("M") for kind in kinds) else "symbol"


def _folded(text: str) -> str:
    """Lower-case letters without marks, compatibility forms made plain: what the eye reads as a word."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold())
    return "".join(c for c in plain if not unicodedata.category(c).startswith("M")).translate(LATIN)


def _bad_word(text: str, lists: Words, *, moved: bool) -> str | None:
    for ending, written_out in lists.contractions:
        text = text.replace(ending, written_out)
    flat, sentences = _words(text), [_words(sentence) for sentence in SENTENCE_END.split(text)]
    rest = _GAP.join(sentences)
    for phrase in lists.harmless if moved else lists.harmless + lists.unmoved:
        rest = re.sub(rf"\b(?:{phrase})\b", _GAP, rest)
    words = rest.replace(_GAP, " ").split()
    stated = next((slug for word in words if (slug := _stated(word, lists))), None)
    unknown = "unknown_word" if set(words) - lists.courtesy else None
    return stated or _phrase(flat, lists) or _opening(sentences, lists) or _squeezed(flat, lists) or unknown


def _words(text: str) -> str:
    return " ".join(re.findall(r"[a-z]+", text))


def _phrase(flat: str, lists: Words) -> str | None:
    return next((slug for slug, phrase in lists.forbidden_phrases if re.search(rf"\b(?:{phrase})\b", flat)), None)


def _opening(sentences: list[str], lists: Words) -> str | None:
    openings = ((slug, re.compile(rf"(?:please )?(?:{opening})\b")) for slug, opening in lists.forbidden_openings)
    return next((slug for slug, opening in openings if any(map(opening.match, sentences))), None)


def _squeezed(flat: str, lists: Words) -> str | None:
    letters = _single(flat.replace(" ", ""))
    return "outcome" if any(_single_stem(stem) in letters for stem in lists.squeezed) else None


def _single(text: str) -> str:
    return REPEATED.sub(r"\1", text)


_single_stem = lru_cache(maxsize=None)(_single)
"""For the lists' own stems alone, of which there are so many."""


def _stated(word: str, lists: Words) -> str | None:
    """What a word states by itself. Prose is made of the same few; one longer than any of them is not remembered."""
    return _of_word(word, lists) if len(word) <= LONGEST_KEPT else _of_word.__wrapped__(word, lists)


@lru_cache(maxsize=8192)
def _of_word(word: str, lists: Words) -> str | None:
    slugs = [slug for slug, words in lists.forbidden_words if word in words]
    short = _single(word)
    slugs += [
        slug for slug, stems in lists.forbidden_stems
        if any(word.startswith(stem) or short.startswith(_single_stem(stem)) for stem in stems)
    ]  # fmt: skip
    return slugs[0] if slugs else None


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _pairs(slug: str, *phrases: str) -> tuple[tuple[str, str], ...]:
    return tuple((slug, phrase) for phrase in phrases)


# --- English -----------------------------------------------------------------------------------------------

_SUBJECT = "(?:request|order|case|account|everything|all|records?|policy|policies|team|it|this|that)"
_WHO = "(?:we|i|they|team|someone|person|people|colleagues?)"
_THAT = "(?:it|this|that|these|those|them|everything|all|something)"
_GOOD = "(?:good|great|fine|well|nice|wonderful|lovely|pleasant|welcome|happy|glad|pleased|kind)"
_ENGLISH_WORDS = (
    ("number_word", _set(
        "zero nil none one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
        "sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred hundreds "
        "thousand thousands lakh lakhs crore crores million millions billion billions dozen dozens first second "
        "seconds third fourth fifth half halves quarter double twice thrice triple single couple pair both full "
        "partial whole entire percent"
    )),
    ("currency", _set(
        "inr usd eur gbp jpy kwd aud cad chf cny sgd aed rupee rupees rs paise paisa dollar dollars buck bucks cent "
        "cents euro euros pound pounds sterling quid pence penny yen yuan franc francs dinar dinars dirham dirhams "
        "bitcoin crypto"
    )),
    ("date", _set(
        "january february march april may june july august september october november december jan feb mar apr jun "
        "jul aug sep sept oct nov dec monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu "
        "thur thurs fri sat sun date dates dated calendar"
    )),
    ("time_promise", _set(
        "today tomorrow tonight yesterday soon sooner soonest shortly immediately instantly instant presently now "
        "asap within hour hours minute minutes moment moments momentarily day days daily week weeks weekly weekend "
        "month months monthly year years morning afternoon evening night noon midnight overnight quick quickly prompt "
        "promptly fast faster rapid rapidly eventually later before after until till by early earlier deadline eta "
        "next already time times timely working business upcoming pending straight"
    )),
    ("outcome", _set(
        "sent send sends sending paid pay pays paying repaid repay back got gotten done gone went made make makes "
        "deny denies denied denial void voided fix fixed won win lost lose money cash fund funds sum total fee fees "
        "cost costs price bank card wallet gift bonus yes no not never nothing cannot sure right wrong true false"
    )),
    ("entitlement", _set("owe owes owed owing due rule rules law legal legally right rights")),
)  # fmt: skip
_ENGLISH_STEMS = (
    ("outcome", (
        "refund", "refnd", "reimburs", "charg", "debit", "bill", "deduct", "declin", "approv", "disapprov", "reject",
        "process", "issu", "credit", "return", "revers", "payment", "payback", "payout", "cancel", "complet", "succe",
        "settl", "resolv", "sort", "finali", "transfer", "deposit", "disburs", "compensat", "correct", "confirm",
        "verif", "authori", "captur", "duplicat", "accept", "allow", "grant", "releas", "remit", "remitt", "receiv",
        "initiat", "submit", "schedul", "expedit", "waive", "voucher", "coupon", "discount", "disput", "fraud", "fail",
        "error", "mistake", "recover", "restor", "retriev", "adjust", "balanc", "amount", "transact", "invoic",
        "receipt", "statement", "unfortunat", "unable", "arriv", "deliver", "escalat", "investigat", "review",
    )),
    ("entitlement", ("entitl", "eligib", "guarant", "qualif", "promis", "polic", "liab", "assur", "oblig", "ensur")),
)  # fmt: skip
_TROUBLE = "(?:problems?|troubles?|issues?|concern|worry|difficulty|inconvenience|disappointment|frustration)"
_BAD = "(?:difficult|hard|unpleasant|disappointing|frustrating|upsetting|stressful|troubling|worrying|dishonest)"
_OTHERS = "(?:someone|somebody|anyone|anybody|everyone|everybody|others?|people|persons?|another|customers?|friends?)"
_ACTOR = "(?:we|i|they|team|colleagues?|someone|person)"
_HELPED = (
    rf"(?:is|are|was|were|be|been|being) (?:{courtesy.VERY} )*(?:helped|answered)",
    rf"helped (?:you|them|{_OTHERS}|with|on)",
    rf"(?:they|team|person|{_OTHERS}|colleagues?) (?:\w+ ){{0,12}}?(?:is|are|was|were) (?:{courtesy.VERY} )*{_GOOD}"
    r"(?! (?:to (?:help|hear|assist|answer|explain|listen|talk|welcome)|you)\b)",
    rf"{_GOOD} (?:requests?|orders?|customers?|cases?)",
)
_BLAME = (
    rf"(?:you|yourself|your \w+|team|service|{_OTHERS}|colleagues?|orders?|messages?|requests?) (?:have |has |had )?"
    r"(?:all )?caused?",
    rf"caused? (?:our|your|a|an|it|this|that|these|them|all|everything|{_OTHERS})",
    rf"such {_TROUBLE} (?:is|was|were)",
    rf"{_THAT} (?:is|was) (?:{courtesy.VERY} )*(?:you|us|me|them|{_OTHERS}|our|your)(?! pleasure| patience)",
    rf"{_TROUBLE} (?:is|was|were|are) (?:{courtesy.VERY} )*(?:you|us|me|them|{_OTHERS}|our|your|with)",
    rf"(?:you|they|team|service|{_OTHERS}|messages?|requests?|orders?) (?:is|are|was|were) "
    rf"(?:{courtesy.VERY} |{courtesy.ANY} |our |your )*{_TROUBLE}",
    rf"(?:you|your \w+|they|{_OTHERS}) (?:is|are|was|were) (?:{courtesy.VERY} )*(?:an? )?{_BAD}",
    rf"{_BAD} (?:of you|customers?|persons?|people|requests?|messages?)",
    r"disappointed (?:in|with|about|at)",
    rf"(?<!if )(?<!should )there (?:is|are|was|were) (?:{courtesy.ANY} )*{_TROUBLE}",
    rf"{_THAT} (?:is|was) (?:a|an|the|some) {_TROUBLE}",
)
_INSTRUCTION = (
    rf"(?:contact|ask|tell|message|reach|forward|(?:write|talk|speak|reply|reach out|reaching out) (?:to|with)) "
    rf"(?:(?:a|an|any|some|the|your|other|another|further) )*{_OTHERS}",
    rf"with {_OTHERS}",
    r"orders? (?:other|others|another|again|things?|something|everything|further)",
    r"(?:forward|message|write) (?:it|this|that|these|the|your)",
    r"your details?",
    r"with (?:the|your) details?",
    r"at the other",
    rf"details? to {_OTHERS}",
)
_OPENINGS = (
    ("instruction", r"(?:just |also |do )?look(?! forward) \w+"),
    ("instruction", r"(?:just |also |do )?trust \w+"),
    ("outcome", r"(?:just |also |do )?be (?:happy|glad|pleased|grateful|patient and)"),
)
_DEED = (
    rf"{_ACTOR} (?:have |has |had |also |already )*(?:contacted|asked|told|messaged|reached|wrote|written)(?! in\b)",
    rf"{_ACTOR} (?:am|is|are|was|were) (?:still |also |just )*(?:reaching|asking|contacting|messaging|telling)",
    r"looking (?:into|at) (?:\w+ ){1,3}again",
    r"(?<!any )other (?:customers?|orders?|people|persons?|messages?|requests?|details?)",
    r"(?:know|knows|knew|understood|understand|found) (?:about )?(?:the|an?|your) (?:problems?|troubles?|issues?|"
    r"requests?|details?)(?! (?:is|was|has|had|must|may|might))",
)
_ENGLISH_COURTESY = _set("""
    a about again all also although always am an and answer answering any anyone anything apologies
    apologise apologised apologize apologized apology appreciate appreciated appreciates appreciative are ask
    asked asking assist assistance assisting at attention be bear been being best but care carefully caring
    cause caused chat clarification clarify colleague colleagues concern concerned concerns confusion contact
    contacted contacting conversation cooperation customer dear deeply detail details did difficult disappointed
    disappointing disappointment do does else even ever every everyone everything experience explain explained
    explaining explains feedback feel feeling feelings for forward from frustrated frustrating frustration further
    genuinely glad gladly good grateful gratitude great greetings happy hard hear heard hearing
    hello help helped helpful helping helps here hey hi honest honestly honesty hope hopes hoping how however i
    importance important in inconvenience inconvenienced inconvenient into is it its just kind kindest kindly
    kindness know knowing listen listening look looked looking lot lovely loyal loyalty matter
    matters me mean means message messages much my nice of on opportunity or order
    other others our ours out patience patient patiently people person pleasant please pleased pleasure problem
    problems queries query question questions raise raising reach reached reaching read really reassurance regards
    regret relationship reply request respect say saying service sincere sincerely
    situation some someone sorry stress stressful such support supporting sympathise sympathize
    team tell telling thank thankful thanking thanks that the their them then there these they thing things this
    those thought thoughtful thoughts to together too touch trouble troubles troubling truly trust unclear
    understand understandable understandably understanding understood unpleasant unsettling upset upsetting us
    valued very warm warmest warmly was we welcome well were what which
    who why wishes with wonderful worried worry worrying write writing written wrote you your yourself
""")
ENGLISH = Words(
    contractions=(
        ("n't", " not"), ("'ll", " will"), ("'re", " are"), ("'ve", " have"), ("'m", " am"), ("'d", " would"),
        ("'s", " is"), ("'", ""),
    ),
    forbidden_phrases=(
        *_pairs(
            "outcome",
            rf"{_SUBJECT} (?:is|was|are|were|has been|have been|looks?|looked) (?:(?:all|very|so|really|just) )*{_GOOD}"
            r"(?! to\b)",
            r"(?:have|has|had|enjoy) (?:it|this|that|them|those|these|everything|all|what)",
            r"find (?:it|them|those|these|everything|all|what)",
            r"(?:in|into|to|on|at|by|from|of) (?:your|the|this|that) account",
            rf"{_GOOD} (?:with|for|about|on) (?:it|this|that|your|the|our)",
            r"(?:support|supports|supported|supporting|welcome|welcomes|welcomed|trust|trusts|value) "
            r"(?:it|this|that|your (?:request|order)|the (?:request|order))",
            rf"(?:is|are|was|were|be|been|being) (?:{courtesy.VERY} )*"
            r"(?:yours|with you|there(?! anything else)|out|on it|in(?! more detail))",
            r"you (?:are|were) (?:all )?(?:good|fine|great)(?! to\b)", rf"{_GOOD} for you",
            r"there (?:is|are|was|were) (?:more|much|everything|everyone|another|others?|always|all)",
            r"(?<!\bif )there (?:is|are|was|were) something",
            r"there (?:is|are|was|were) something(?! (?:(?:else|further|more) )*(?:that )?(?:we|i|our team|you)\b)",
            r"(?:it|this|that|everything|all) (?:is|was|are) (?:all |just )*here",
            r"taken? care of (?!yourself|yourselves)", r"all yours", r"as you (?:wish|wished|want|wanted|asked)",
            r"what you (?:wanted|want|asked|asked for|wished|hoped)", r"money back", r"charge back",
            r"reach(?:ed|ing)? you", r"so be it",
            r"as (?:it|they|this|that|these|those|everything|all) (?:should|must)",
            rf"{_WHO} (?:(?:all|just|really|also|gladly|have|had|to|can|will|would) )*(?:do|did) {_THAT}",
            rf"what (?:\w+ ){{0,2}}?{_ACTOR} (?:(?:all|just|really|also|together) )*did",
            rf"(?:is|are|was|were|be|been|being) (?:{courtesy.VERY} )*(?:for you|on us)(?! to\b)",
            rf"forward to {_THAT}", rf"{_THAT} yours",
        ),
        *_pairs("time_promise", r"on (?:its|the|their) way", r"in (?:no )?time", r"any (?:day|moment|minute)"),
        *_pairs(
            "entitlement",
            r"polic(?:y|ies) (?:says?|states?|allows?|entitles?|means?|lets?|is|are|does|gives?)",
            rf"welcome to(?! {courtesy.CONTACT})", rf"(?:feel )?free to(?! {courtesy.CONTACT})", r"help yourself",
            rf"ask(?:s|ed|ing)?(?: {courtesy.US})? for(?! (?:{courtesy.ANY} )*(?:your |the |our )?{courtesy.HELP})",
            r"(?:every|all|most|such) (?:customers?|orders?|requests?|people|person|one)",
            r"any (?:customers?|orders?)",
        ),
        *_pairs(
            "condition",
            r"only (?:if|when|where|while|after|once|with|for|to|you|customers?)", r"(?:un)?less you",
            r"(?:so|as) long as", r"(?:you|customers?) (?:are|were) to", r"(?:you|customers?) (?:must|may|shall)",
        ),
        *_pairs("outcome", *_HELPED),
        *_pairs("blame", *_BLAME),
        *_pairs("instruction", *_INSTRUCTION),
        *_pairs("deed", *_DEED),
    ),
    forbidden_openings=_OPENINGS,
    forbidden_words=_ENGLISH_WORDS,
    forbidden_stems=_ENGLISH_STEMS,
    squeezed=("refund", "reimburs", "approv", "chargeback", "moneyback", "entitle"),
    harmless=(
        *courtesy.TURNS,
        r"(?:have|enjoy|wishing you|wish you) (?:a|the rest of your) ?(?:very )?(?:nice|good|great|lovely|wonderful|"
        r"pleasant)? ?(?:rest of your )?(?:day|evening|weekend|week|afternoon|morning)",
        r"good (?:morning|afternoon|evening|day)",
        r"(?:for|of) your (?:valuable )?time", r"for your business", r"for taking the time to (?:write|contact|reach)",
        r"yours (?:sincerely|truly|kindly|warmly)", r"(?:sincerely|truly|kindly|warmly) yours",
        r"(?:please )?do not hesitate", r"feel free", r"(?:get|keep|stay) in touch", r"(?:any|no) other",
        r"(?:write|get|come) back to us", r"at any time", r"(?:the|this|any|other|further|your|such an|an) issues?",
        r"will (?:always |gladly |only )?be (?:happy|glad|pleased|delighted|here|there)(?: to (?:help|assist|answer))?",
        r"(?:once|thanks|thank you) (?:again|once again|once more)", r"take care", r"in any way", r"of course",
        r"(?:completely|fully|totally) understand",
        r"(?:please )?check the order you gave us", r"no one", r"(?:we are )?here (?:to help|for you)",
    ),
    unmoved=(
        r"could not go ahead with this", r"could not find (?:this|that|the|your) order(?: for your account)?",
        r"could not find a current policy for this", r"do not want to guess",
        r"(?:we|i) wish (?:we|i) could (?:do more|help (?:you )?(?:more|further))(?: for you)?(?: here)?",
        r"could not read everything we need about (?:this|that|the|your) order",
        r"could not tell which order this is about", r"a person needs to look at (?:it|this)",
        r"(?:the )?records of this order need a look by a person",
    ),
    courtesy=_ENGLISH_COURTESY,
)  # fmt: skip
LANGUAGES: dict[str, Words] = {"en": ENGLISH}
