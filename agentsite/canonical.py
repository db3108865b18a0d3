"""Canonical JSON (RFC 8785) and the hashes made of it; and the strict reader of JSON from outside."""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any, NoReturn

import orjson
import rfc8785

MAX_DEPTH = 32
MAX_INT_DIGITS = 30
# A string, also one that the text ends in, as one piece: a file inside one is megabytes long.
_PIECES = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[{,]|[\]}]', re.DOTALL)
# Of these values alone the fast encoder's bytes are those of RFC 8785: it accepts more types, and of numbers with a
# point it writes whole, tiny and huge ones another way. It refuses what is no text, integers from 2^53 on and keys that
# are no strings, as the slow one.
_PLAIN = frozenset({str, int, bool, type(None)})
_LEAST, _MOST = 1e-4, 1e15
_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER | orjson.OPT_PASSTHROUGH_SUBCLASS
# Keys go by UTF-16 units, which is the order of their bytes but for characters beyond the first plane: four bytes each.
_BEYOND = (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4")


class NotStrictJson(ValueError):
    """Text that is no JSON, or JSON that two readers could read in two ways."""


def canonical(value: Any) -> bytes:
    """RFC 8785 bytes of a JSON value. Raises ValueError for NaN, integers of 2^53 and up, lone surrogates."""
    fast = _fast(value)
    if fast is not None:
        return fast
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise ValueError(f"not canonical: {type(error).__name__}") from None


def _fast(value: Any) -> bytes | None:
    """The same bytes, some 25 times as fast, where they surely are the same; None: let the slow encoder say."""
    try:
        made = orjson.dumps(value, option=_SORTED) if _is_plain(value) else None
    except (TypeError, RecursionError):
        return None
    beyond = made is not None and not made.isascii() and any(lead in made for lead in _BEYOND)
    return None if beyond else made


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is float:
        return _LEAST < abs(value) < _MOST and not value.is_integer()
    if kind is not dict and kind is not list and kind is not tuple:
        return kind in _PLAIN
    for inner in value.values() if kind is dict else value:
        if type(inner) not in _PLAIN and not _is_plain(inner):
            return False
    return True


def canonical_text(value: Any) -> str:
    return canonical(value).decode()


def sha256(value: Any) -> str:
    """`sha256:` and the hex digest over the canonical form."""
    return "sha256:" + hashlib.sha256(canonical(value)).hexdigest()


def sha256_bytes(raw: bytes) -> str:
    return "sha256:" + hashlib.sha256(raw).hexdigest()


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise NotStrictJson("a key occurs twice")
    return result


def _no_constant(name: str) -> NoReturn:
    raise NotStrictJson(f"{name} is no JSON number")


def _bounded_int(digits: str) -> int:
    if len(digits) > MAX_INT_DIGITS:
        raise NotStrictJson("an integer is absurdly long")
    return int(digits)


def _finite_float(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise NotStrictJson("a number is not finite")
    return value


def _check_shape(text: str, most: float) -> None:
    depth = 0
    for number, piece in enumerate(_PIECES.finditer(text)):
        if number >= most:
            raise NotStrictJson("of too many parts")
        first = text[piece.start()]
        depth += (first in "[{") - (first in "]}")
        if depth > MAX_DEPTH:
            raise NotStrictJson("nested too deeply")


def strict_loads(text: str, *, most: float = math.inf) -> Any:
    """JSON with duplicate keys, NaN, infinities, absurd integers and deep nesting refused (NotStrictJson).

    `most` strings, commas and brackets: megabytes of little else take long, and many times their size, to read.
    """
    _check_shape(text, most)
    try:
        return json.loads(
            text,
            object_pairs_hook=_no_duplicates,
            parse_constant=_no_constant,
            parse_int=_bounded_int,
            parse_float=_finite_float,
        )
    except NotStrictJson:
        raise
    except (ValueError, RecursionError) as error:
        raise NotStrictJson(f"not JSON: {type(error).__name__}") from None
