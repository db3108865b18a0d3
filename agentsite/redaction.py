"""Secrets that this process knows, and their removal from whatever is kept, shown or logged (M71).

By known value: every secret of the environment, passwords inside its URLs, variables that a tenant's profile names, and
what `keep` was told; one that a process must not hold is known by its digest, where it stands as a word of its own. By
key name: what stands under a name such as `password`. May not raise. Imports no room.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson

from agentsite import env

REDACTED = "[redacted]"
SHORTEST = 12
"""A shorter value is no secret but a piece of other words: replacing it would spoil texts and protect nothing."""
MAX_DEPTH = 60
MAX_JOINTS = 20
MAX_REMEMBERED = 20_000

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# `input_tokens` is a count and `idempotency_key` a name of ours: only what ends like this holds a secret.
_SECRET_NAME = re.compile(
    r"(?:token|secret|password|passwd|passphrase|authorization|api_?key|access_?key|private_?key|cookie|credentials?"
    r"|card_?number)$|(?:^|_)(?:pan|cvv2?|cvc2?|pwd|security_code)$"
)
_WORD = re.compile(r"[^\s\"'<>(){}\[\]\\]{12,4096}")
_BREAK = re.compile(r"[\s\"'<>(){}\[\]\\]")
_JOINT = re.compile(r"[=:/,;]+")
_names: frozenset[str] = frozenset()
_kept: frozenset[str] = frozenset()
_LEAVES = frozenset({str, int, float, bool, type(None)})
_harmless: set[str] = set()
"""Names that were found to be no secret's: most data hold the same few."""
_innocent: set[int] = set()
"""Hashes of words that were found to be no secret that is held elsewhere: words themselves are not kept."""


def learn(*variables: str) -> None:
    """Variables of the environment that hold secrets, as a tenant's profile names them."""
    global _names
    _names |= {name for name in variables if name}


def keep(*values: str) -> None:
    """Secrets that stand in no variable, such as generated ones."""
    global _kept
    _kept |= {value for value in values if value}


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether what stands under this key is a secret by its name."""
    return _SECRET_NAME.search(re.sub(r"[^a-z0-9]+", "_", _CAMEL.sub("_", name).lower())) is not None


def redact(value: Any, known: Iterable[str] = ()) -> Any:
    """JSON-like data without any secret: itself where it holds none, else a copy; `known` are further secret values."""
    return _cleared(value, _known(*known), by_name=True)


def values_only(value: Any) -> Any:
    """The same by known value alone, for data whose keys are our own."""
    return _cleared(value, _known(), by_name=False)


def named(value: Any) -> Any:
    """The same by key name alone, for data that are written as a text which `text` is going to clean."""
    if _is_plain(value, by_name=True, depth=0):
        return value
    return _without(value, _NOTHING, by_name=True, depth=0)


def text(line: str) -> str:
    """One text without any known secret."""
    return _cleaned(line, _known())


def unfinished(said: str) -> str:
    """A text that is still being written: what may be the beginning of a secret at its end is held back too."""
    cleaned, known = text(said), _known()
    begun = (size for form in known.forms for size in range(min(len(form) - 1, len(cleaned)), SHORTEST // 2, -1)
             if cleaned.endswith(form[:size]))  # fmt: skip
    # Of one that is held elsewhere only the whole is known, so every word waits until it is whole.
    word = len(cleaned) - max((found.end() for found in _BREAK.finditer(cleaned)), default=0) if known.elsewhere else 0
    return cleaned[: len(cleaned) - max(word, *begun, 0)]


class _Known(NamedTuple):
    """Every known secret as it may stand in a text, the longest first, and as it stands in JSON's bytes; digests of
    those that are held elsewhere."""

    forms: tuple[str, ...]
    needles: tuple[bytes, ...]
    elsewhere: frozenset[str]


_NOTHING = _Known((), (), frozenset())


def _known(*further: str) -> _Known:
    try:
        site = env.read()
        named = tuple(found.get_secret_value() for name in _names if (found := env.secret(name)))
        return _all(site.secret_values, _kept, (*named, *further), tuple(site.SECRETS_ELSEWHERE))
    except (SystemExit, ValueError):  # a broken environment: its own line names the variable, never the value
        return _all((), _kept, further, ())


@lru_cache(maxsize=8)
def _all(site: tuple[str, ...], kept: frozenset[str], more: tuple[str, ...], elsewhere: tuple[str, ...]) -> _Known:
    forms = _forms(frozenset({*site, *kept, *more}))
    needles = tuple(json.dumps(form, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass") for form in forms)
    return _Known(forms, needles, frozenset(elsewhere))


def _forms(plain: frozenset[str]) -> tuple[str, ...]:
    """Plain, escaped as in JSON, and encoded as in a URL."""
    long = [secret for secret in plain if len(secret) >= SHORTEST]
    written = {form for secret in long for form in (secret, *_encoded(secret))}
    return tuple(sorted(written, key=lambda form: (-len(form), form)))


def _encoded(secret: str) -> tuple[str, str, str]:
    return json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], quote(secret, safe="")


def _cleared(value: Any, known: _Known, *, by_name: bool) -> Any:
    if isinstance(value, str):
        return _cleaned(value, known)
    if _is_plain(value, by_name=by_name, depth=0) and not _may_hold(value, known):
        return value
    return _without(value, known, by_name=by_name, depth=0)


def _is_plain(value: Any, *, by_name: bool, depth: int) -> bool:
    """Whether it is JSON of the plain types alone, not too deep, with no secret's name in it where those count."""
    kind = type(value)
    if depth >= MAX_DEPTH:
        return kind in _LEAVES
    if kind is dict:
        if by_name and not (value.keys() <= _harmless or _are_harmless(value)):
            return False
        inner = value.values()
    elif kind is list:
        inner = value
    else:
        return kind in _LEAVES
    for one in inner:  # noqa: SIM110 - a generator would cost as much as the look itself
        if type(one) not in _LEAVES and not _is_plain(one, by_name=by_name, depth=depth + 1):
            return False
    return True


def _are_harmless(names: Iterable[Any]) -> bool:
    found = [name for name in names if type(name) is not str or is_secret_name(name)]
    if found:
        return False
    if len(_harmless) < MAX_REMEMBERED:
        _harmless.update(names)
    return True


def _may_hold(value: Any, known: _Known) -> bool:
    """Whether a known secret may stand in plain JSON; False only where surely none does. One look at all its texts."""
    try:
        raw = orjson.dumps(value)
    except TypeError:
        return True
    for needle in known.needles:
        if needle in raw:
            return True
    # Behind an escape a word of the JSON begins elsewhere than in the text.
    return bool(known.elsewhere) and (b"\\" in raw or _cleaned(said := raw.decode(), known) != said)


def _without(value: Any, known: _Known, *, by_name: bool, depth: int) -> Any:
    if isinstance(value, str):
        return _cleaned(value, known)
    if depth > MAX_DEPTH:
        return REDACTED
    if isinstance(value, Mapping):
        return {
            _cleaned(key, known) if isinstance(key, str) else key: REDACTED
            if by_name and is_secret_name(str(key))
            else _without(inner, known, by_name=by_name, depth=depth + 1)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without(inner, known, by_name=by_name, depth=depth + 1) for inner in value]
    return value


def _cleaned(line: str, known: _Known) -> str:
    for secret in known.forms:
        if secret in line:
            line = line.replace(secret, REDACTED)
    return _WORD.sub(lambda word: _known_word(word[0], known.elsewhere), line) if known.elsewhere else line


def _known_word(word: str, elsewhere: frozenset[str]) -> str:
    """The word, or what of it is no secret."""
    mark = hash((word, elsewhere))
    if mark in _innocent:
        return word
    secret = next((one for one in _candidates(word) if env.digest(one) in elsewhere), None)
    if secret is not None:
        return word.replace(secret, REDACTED)
    if len(_innocent) >= MAX_REMEMBERED:
        _innocent.clear()
    _innocent.add(mark)
    return word


def _candidates(word: str) -> Iterable[str]:
    """What of a word may be a secret: one may stand behind a name (`token=…`) and before a full stop."""
    starts = [0, *(found.end() for found in _JOINT.finditer(word))][:MAX_JOINTS]
    rests = (word[start:] for start in starts)
    either = dict.fromkeys(one for rest in rests for one in (rest, rest.rstrip(".,:;!?")))
    return (one for one in either if len(one) >= SHORTEST)
