"""Words of a customer by which a person is needed, looked for before any model is asked (M116). A paper: no Django.

Self-harm and threats of violence (`person`) hand the run over; law, regulator and fraud (`approval`) make every write
need a person. Whole words are compared, whatever their case, width or punctuation, with nothing invisible between them;
in scripts that write no spaces a phrase is found inside a text. Who hides his words on purpose is not chased.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from agentsite.tenants.profiles import SensitiveWords
from runs import prewords
from runs.contracts import RunState

Lists = Mapping[str, SensitiveWords]
SHIPPED: Lists = {
    language: SensitiveWords(person=person, approval=approval)
    for language, (person, approval) in prewords.LANGUAGES.items()
}
MAX_TOLD = 20
_APOSTROPHES = "'’‘ʼ`´"
# Letters and marks that nobody sees: fillers, joiners and selectors.
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u3164") | {chr(c) for c in range(0xFE00, 0xFE10)}
_SPACELESS = (
    (0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF), (0x31F0, 0x31FF), (0x3400, 0x9FFF),
    (0xF900, 0xFAFF), (0x20000, 0x3FFFF),
)  # fmt: skip
_LISTS = TypeAdapter(dict[str, SensitiveWords])


@dataclass(frozen=True, kw_only=True)
class Found:
    """The listed phrases that were found, each once, in the lists' order; MAX_TOLD of a kind at most."""

    person: tuple[str, ...] = ()
    approval: tuple[str, ...] = ()


def found(texts: Iterable[str], given: Lists) -> Found:
    """What the customer's texts hold of every language's lists; `given` replaces shipped lists by language and kind."""
    said = [_plain(text) for text in texts]
    return Found(
        person=_among(said, phrases(given, "person")), approval=_among(said, phrases(given, "approval"))
    )  # fmt: skip


def told(run: RunState) -> tuple[str, ...]:
    """What the customer has said in this run, as far as it was read: the request, then each message."""
    messages = (o.content for o in run.observations if o.kind == "message" and o.source == "customer")
    return run.contract.goal, *(str(content.get("text", "")) for content in messages)


def for_approval(run: RunState) -> tuple[str, ...]:
    """The words by which every write of this run needs a person, for the rest of the run.

    What is unread came after whatever is released now: it waits for that write's reconciliation.
    """
    return found(told(run), run.contract.sensitive).approval


def phrases(given: Lists, kind: str) -> tuple[str, ...]:
    """Every phrase of a kind that counts: of each language the given list, or the shipped one where none is given."""
    return _phrases(given, kind) if given else _shipped(kind)


@lru_cache(maxsize=4)
def _shipped(kind: str) -> tuple[str, ...]:
    return _phrases({}, kind)


def _phrases(given: Lists, kind: str) -> tuple[str, ...]:
    counted: list[str] = []
    for language in sorted({*SHIPPED, *given}):
        own = getattr(given[language], kind) if language in given else None
        shipped = getattr(SHIPPED[language], kind) if language in SHIPPED else None
        counted.extend(own if own is not None else shipped or ())
    return tuple(dict.fromkeys(counted))


def stored(document: object) -> Lists:
    """The lists of a stored contract; none of its own where they cannot be read."""
    try:
        return _LISTS.validate_python(document or {})
    except ValidationError:
        return {}


class _Wanted(NamedTuple):
    """Phrases by their places in a list, as they are looked for: by the first word, and those that stand in letters."""

    by_word: Mapping[str, tuple[tuple[int, str], ...]]
    inside: tuple[tuple[int, str], ...]


def _among(said: list[str], wanted: tuple[str, ...]) -> tuple[str, ...]:
    looked_for = _wanted(wanted)
    places = {place for text in said for place in _places(text, looked_for)}
    return tuple(wanted[place] for place in sorted(places)[:MAX_TOLD])


def _places(text: str, wanted: _Wanted) -> Iterable[int]:
    """Of the phrases that a text holds; only those are compared whose first word it holds, as texts may be long."""
    for word in wanted.by_word.keys() & set(text.split()):
        yield from (place for place, phrase in wanted.by_word[word] if phrase in text)
    if wanted.inside:
        joined = text.replace(" ", "")
        yield from (place for place, phrase in wanted.inside if phrase in joined)


@lru_cache(maxsize=64)
def _wanted(phrases: tuple[str, ...]) -> _Wanted:
    by_word: dict[str, list[tuple[int, str]]] = {}
    inside: list[tuple[int, str]] = []
    for place, phrase in enumerate(phrases):
        plain = _plain(phrase)
        if not plain.strip():
            continue  # nothing of it is left to be looked for
        if any(low <= ord(char) <= high for char in plain for low, high in _SPACELESS):
            inside.append((place, plain.replace(" ", "")))
        else:
            by_word.setdefault(plain.split()[0], []).append((place, plain))
    return _Wanted({word: tuple(found) for word, found in by_word.items()}, tuple(inside))


def _plain(text: str) -> str:
    """Words with one space around each: compatibility forms made plain, case folded, marks kept."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return f" {' '.join(folded.translate(_WRITTEN).split())} "


class _Written(dict[int, int | str | None]):
    """What becomes of each character: kept in a word, a space between words, or nothing."""

    def __missing__(self, code: int) -> int | str | None:
        char = chr(code)
        kind = unicodedata.category(char)
        if char in _APOSTROPHES or char in _UNSEEN or (kind in ("Cc", "Cf") and not char.isspace()):
            self[code] = None
        else:
            self[code] = code if kind[0] in "LMN" else " "
        return self[code]


_WRITTEN = _Written()
