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

from agentsite import env

REDACTED = "[redacted]"
SHORTEST = 12
"""A shorter value is no secret but a piece of other words: replacing it would spoil texts and protect nothing."""
MAX_DEPTH = 60
MAX_JOINTS = 20

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
    """A copy of JSON-like data without any secret; `known` are further secret values."""
    return _without(value, _known(*known), by_name=True, depth=0)


def values_only(value: Any) -> Any:
    """The same by known value alone, for data whose keys are our own."""
    return _without(value, _known(), by_name=False, depth=0)


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
    """Every known secret as it may stand in a text, the longest first; digests of those that are held elsewhere."""

    forms: tuple[str, ...]
    elsewhere: frozenset[str]


def _known(*further: str) -> _Known:
    try:
        elsewhere = frozenset(env.read().SECRETS_ELSEWHERE)
        return _Known(_forms(frozenset({*_plain(), *further})), elsewhere)
    except (SystemExit, ValueError):  # a broken environment: its own line names the variable, never the value
        return _Known(_forms(frozenset({*_kept, *further})), frozenset())


def _plain() -> Iterable[str]:
    yield from _kept
    yield from env.read().secret_values
    for name in _names:
        if found := env.secret(name):
            yield found.get_secret_value()


@lru_cache(maxsize=8)
def _forms(plain: frozenset[str]) -> tuple[str, ...]:
    """Plain, escaped as in JSON, and encoded as in a URL."""
    long = [secret for secret in plain if len(secret) >= SHORTEST]
    written = {form for secret in long for form in (secret, *_encoded(secret))}
    return tuple(sorted(written, key=lambda form: (-len(form), form)))


def _encoded(secret: str) -> tuple[str, str, str]:
    return json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], quote(secret, safe="")


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
    """The word, or what of it is no secret: one may stand behind a name (`token=…`) and before a full stop."""
    starts = [0, *(found.end() for found in _JOINT.finditer(word))][:MAX_JOINTS]
    for start in starts:
        rest = word[start:]
        for candidate in (rest, rest.rstrip(".,:;!?")):
            if len(candidate) >= SHORTEST and env.digest(candidate) in elsewhere:
                return word.replace(candidate, REDACTED)
    return word
