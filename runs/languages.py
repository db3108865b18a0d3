"""Which language a customer writes, by its small words and its script. A paper: no Django, no clock, no model.

A reply follows the customer's language where the reply's check has that language's word list (`runs.wordlists`); where
it has none, the customer gets the facts alone. Little text says nothing: then the language before it stands.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from runs.contracts import SeenObservation

DEFAULT = "en"
ENOUGH = 2
"""So many small words of another language, and more than of English, tell that language."""
MAX_READ = 4000
WORD = re.compile(r"[^\W\d_]+")
SCRIPTS = {
    "DEVANAGARI": "hi", "BENGALI": "bn", "TAMIL": "ta", "TELUGU": "te", "KANNADA": "kn", "MALAYALAM": "ml",
    "GUJARATI": "gu", "GURMUKHI": "pa", "ARABIC": "ar", "HEBREW": "he", "CYRILLIC": "ru", "GREEK": "el", "THAI": "th",
    "HANGUL": "ko", "HIRAGANA": "ja", "KATAKANA": "ja", "CJK": "zh",
}  # fmt: skip
OTHER = "und"


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that English has too are on no other list: a request in English is never taken for another language's.
SMALL_WORDS = {
    "en": _set(
        "the a an and or but is are was were be been am i my me mine we our us you your it its this that these "
        "those he she they them of to in on at for from with by not no yes have has had do does did can could "
        "will would should please thank thanks hello hi what when where why how which there here if so as because "
        "about again still twice got get need want paid"
    ),
    "de": _set(
        "ich nicht und ist das der den dem mein meine meiner wurde wurden zweimal bitte habe haben hat mit für sie wir "
        "auch noch aber warum wann wo kein keine von zum zur ein eine einen einer ihre ihr uns mir mich danke hallo "
        "bestellung geld zurück wie auf bei nach"
    ),
    "fr": _set(
        "je ne est les des une vous nous mon mes pour avec été deux fois pourquoi quand bonjour merci votre notre dans "
        "sur qui que pas ai où commande argent remboursement cette ce du la le et mais"
    ),
    "es": _set(
        "el los las una mi mis por para con fue dos veces porque cuando hola gracias usted pero está estoy que quiero "
        "dinero pedido dónde cómo del se lo le ha han y mío"
    ),
    "pt": _set(
        "eu não uma meu minha por para com foi duas vezes porque quando olá obrigado obrigada você mas está estou que "
        "quero dinheiro pedido onde ainda meus da os e"
    ),
    "it": _set(
        "il gli una mio mia miei per con stato due volte perché quando ciao grazie sono non che vorrei ordine soldi "
        "dove ho della del di e"
    ),
    "nl": _set(
        "ik niet het een mijn twee keer waarom wanneer voor met maar graag bedankt van geld bestelling terug heb heeft "
        "waar hoe dit dat de"
    ),
    "hi": _set(
        "mera meri mere mujhe nahi nahin hai hain kya ka ki ke ko se kab paisa paise wapas kyun kyu karo kar raha rahi "
        "aur gaya bhi mein ne"
    ),
}


def of_customer(goal: str, observations: Sequence[SeenObservation]) -> str:
    """The language of what the customer wrote last, as far as that tells one; else of what he wrote before."""
    ordered = sorted((o for o in observations if o.kind == "message"), key=lambda o: o.position)
    written = [str(o.content.get("text", "")) for o in ordered if isinstance(o.content, dict)]
    return of_texts([goal, *written])


def of_texts(texts: Sequence[str]) -> str:
    """The language that the last of these texts tells that tells any, as a code; English where none does."""
    # From the last one on: however much a customer wrote before, it is not read once it does not count.
    return next((told for text in reversed(texts) if (told := _of(text[:MAX_READ])) is not None), DEFAULT)


def told(text: str) -> str | None:
    """The language that one text tells, or None."""
    return _of(text[:MAX_READ])


@lru_cache(maxsize=64)
def _of(text: str) -> str | None:
    if (script := _script(text)) is not None:
        return script
    words = Counter(WORD.findall(unicodedata.normalize("NFC", text).casefold()))
    scores = {code: sum(words[w] for w in small) for code, small in SMALL_WORDS.items()}
    best = max(scores, key=lambda code: scores[code])
    if best != DEFAULT and scores[best] >= ENOUGH and scores[best] > scores[DEFAULT]:
        return best
    return DEFAULT if scores[DEFAULT] else None


def _script(text: str) -> str | None:
    """The language of a script that most of the letters are of, where that is not Latin."""
    letters = Counter(unicodedata.name(c, "OTHER").split()[0] for c in text if unicodedata.category(c)[0] == "L")
    latin = sum(letters[name] for name in ("LATIN", "FULLWIDTH", "FEMININE", "MASCULINE"))
    if letters.total() <= 2 * latin:
        return None
    foreign = Counter({name: count for name, count in letters.items() if name in SCRIPTS})
    # Japanese is written with Chinese characters between its own.
    if "CJK" in foreign and foreign["HIRAGANA"] + foreign["KATAKANA"]:
        return "ja"
    return SCRIPTS[foreign.most_common(1)[0][0]] if foreign else OTHER
