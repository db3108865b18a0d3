"""An OpenAI-compatible embeddings endpoint as typed values; takes a client, never imports httpx and holds no vector.

Nothing that arrives is believed: an answer with a row too many, too few, twice or of another length is no answer.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from agentsite.canonical import NotStrictJson, strict_loads
from tools.adapters.http import Client, CutShort, HttpError, Reply, TooLarge, TooSlow
from tools.errors import AccessRefused, BadAnswer, ReadFailed, UpstreamUnavailable

MAX_DIMENSIONS = 8192
BYTES_A_NUMBER = 32
REFUSED_TEXT = (400, 413, 422)
OUTAGE = (408, 425, 429)


class TextRefused(ReadFailed):
    """The endpoint does not take these texts, or not so many: others may pass."""

    slug = "text_refused"


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where vectors are made, by which model, with which key (None: it wants none)."""

    url: str
    model: str
    key: SecretStr | None = None


def embed(client: Client, endpoint: Endpoint, texts: Sequence[str], *, timeout_s: float) -> list[array[float]]:
    """One vector a text, in the order of the texts, all of one length and none of length 0, within `timeout_s` seconds.

    Raises TextRefused, or UpstreamUnavailable, BadAnswer, AccessRefused, none of which repeats a text or the answer.
    """
    # ASCII escapes: a text with a lone surrogate is still a request, and never an exception.
    body = json.dumps({"model": endpoint.model, "input": list(texts), "encoding_format": "float"}).encode()
    most = 65_536 + len(texts) * MAX_DIMENSIONS * BYTES_A_NUMBER
    try:
        reply = client.request(
            "POST", endpoint.url, headers=_headers(endpoint.key), body=body, timeout_s=timeout_s, max_bytes=most
        )
    except (CutShort, TooLarge) as error:
        raise BadAnswer(str(error)) from None
    except HttpError as error:
        raise UpstreamUnavailable(str(error), slug="timeout" if isinstance(error, TooSlow) else None) from None
    return _vectors(_document(reply, len(texts)), len(texts))


def _headers(key: SecretStr | None) -> dict[str, str]:
    plain = {"Content-Type": "application/json"}
    return plain | {"Authorization": f"Bearer {key.get_secret_value()}"} if key else plain


def _document(reply: Reply, many: int) -> Any:
    if reply.status == 200:
        try:
            return strict_loads(reply.body.decode(), most=(many + 1) * (MAX_DIMENSIONS + 64))
        except (UnicodeDecodeError, NotStrictJson):
            raise BadAnswer("no strict JSON") from None
    if reply.status in REFUSED_TEXT:
        raise TextRefused(f"status {reply.status}")
    if reply.status >= 500 or reply.status in OUTAGE:
        raise UpstreamUnavailable(f"status {reply.status}", retry_after_s=reply.retry_after_s)
    if reply.status in (401, 403):
        raise AccessRefused(f"status {reply.status}")
    raise BadAnswer(f"status {reply.status}")


def _vectors(document: Any, many: int) -> list[array[float]]:
    rows = document.get("data") if isinstance(document, dict) else None
    if not isinstance(rows, list) or len(rows) != many:
        raise BadAnswer("another number of rows than texts")
    by_index: dict[int, array[float]] = {}
    for row in rows:
        index = row.get("index") if isinstance(row, dict) else None
        if type(index) is not int or not 0 <= index < many or index in by_index:
            raise BadAnswer("rows that do not belong to the texts")
        by_index[index] = _vector(row.get("embedding"))
    if len({len(vector) for vector in by_index.values()}) != 1:
        raise BadAnswer("vectors of different lengths")
    return [by_index[index] for index in range(many)]


def _vector(numbers: Any) -> array[float]:
    """Of unit length, so that a cosine is a product. Raises BadAnswer."""
    if not isinstance(numbers, list) or not 0 < len(numbers) <= MAX_DIMENSIONS:
        raise BadAnswer("no vector")
    if not all(type(number) in (float, int) for number in numbers):
        raise BadAnswer("a vector of other things than numbers")
    length = math.hypot(*numbers)
    if not math.isfinite(length) or length < 1e-12:
        raise BadAnswer("a vector without a direction")
    return array("f", [number / length for number in numbers])
