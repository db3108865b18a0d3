"""Placeholders of secrets, `{{secret:NAME}}`: what models, records and people see in a secret's place (M71). A paper.

Finds and replaces them in text; holds no secret and reads none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from tools.contracts import Json

WHOLE = re.compile(r"\{\{secret:([A-Z][A-Z0-9_]{0,63})\}\}", re.ASCII)
# Anything that looks like one: a misspelt placeholder must be refused, not sent as text.
ALIKE = re.compile(r"\{\{\s*secret\b", re.I)


def used(args: Json) -> tuple[tuple[str, str], ...]:
    """(dotted path of the argument, name) of every placeholder; the name is "" where it is misspelt."""
    return tuple(found for path, text in _texts("", args) for found in _named(path, text))


def _named(path: str, text: str) -> Iterable[tuple[str, str]]:
    yield from ((path, name) for name in WHOLE.findall(text))
    if ALIKE.search(WHOLE.sub("", text)):
        yield path, ""


def _texts(path: str, value: object) -> Iterable[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(f"{path}.{name}" if path else str(name), inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(path, inner)


def resolved(text: str, secret: Callable[[str], str]) -> str:
    """The text with each placeholder replaced once, by what `secret` says its name stands for."""
    return WHOLE.sub(lambda found: secret(found[1]), text)
