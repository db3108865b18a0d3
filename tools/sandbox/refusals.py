"""The one exception of the sandbox, and the JSON edge; imports nothing else of the package."""

import json
import math
from typing import Any, NoReturn

Document = dict[str, Any]
"""A JSON object as it crosses the wire."""


class Refused(Exception):
    """An answer other than success; `error` is the stable slug a caller may branch on."""

    def __init__(self, status: int, error: str, detail: str = "") -> None:
        super().__init__(f"{status} {error} {detail}".strip())
        self.status = status
        self.error = error
        self.detail = detail

    def document(self) -> Document:
        """The body of the answer; `detail` is for people and absent where there is nothing to add."""
        return {"error": self.error, "detail": self.detail} if self.detail else {"error": self.error}


def invalid(detail: str) -> Refused:
    """A request that means nothing whatever the ledger holds."""
    return Refused(400, "invalid-request", detail)


def parse_object(raw: bytes) -> Document:
    """The JSON object in `raw`; raises `Refused` 400 for anything else."""
    try:
        value = json.loads(raw, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise Refused(400, "invalid-json", str(error)) from None
    if not isinstance(value, dict):
        raise Refused(400, "invalid-json", "an object is expected")
    return value


def canonical(value: object) -> str:
    """One text for equal JSON values: two bodies are the same request when these are equal."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def refuse_unknown(body: Document, known: frozenset[str]) -> None:
    """A misspelt field would otherwise be ignored in silence."""
    if extra := sorted(set(body) - known):
        raise invalid(f"unknown fields: {', '.join(extra)}")


def text_of(body: Document, field: str, *, limit: int = 128) -> str:
    """A required one-line text, such as an id; never empty, no control characters or lone surrogates."""
    value = body.get(field)
    if not isinstance(value, str) or not 0 < len(value) <= limit or not value.isprintable():
        raise invalid(f"{field}: a text of 1 to {limit} printable characters is expected")
    return value


def optional_text(body: Document, field: str, *, limit: int = 128) -> str | None:
    """As `text_of`, where null and absence mean the same."""
    return None if body.get(field) is None else text_of(body, field, limit=limit)


def optional_object(body: Document, field: str) -> Document | None:
    """A nested object that is stored as it came."""
    value = body.get(field)
    if value is not None and not isinstance(value, dict):
        raise invalid(f"{field}: an object is expected")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is out of range")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> Document:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found
