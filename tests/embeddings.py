"""A loopback embeddings endpoint: vectors by meaning for texts, and every fault an endpoint may have."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agentsite import env
from tests.loopback import Answer, Call, Loopback, Wire

DIMENSIONS = 64
MODEL = "loopback-e5"
KEY = "sk-embeddings-0123456789abcdef"
# Words of one line mean the same: their vectors do too, though they share no letters.
MEANING = [
    "refund refunds refunded reimbursement reimbursed moneyback repaid",
    "duplicate duplicates twice double doubled",
    "shipping delivery freight carriage",
    "parcel package consignment",
    "lost vanished missing disappeared",
    "days deadline period window",
]
_PLACE = {word: place for place, line in enumerate(MEANING) for word in line.split()}

Rows = Callable[[list[str]], list[Any]]


def vector(text: str, dimensions: int = DIMENSIONS, model: str = "") -> list[float]:
    """Of unit length; words without a line of their own fall where their hash falls. Another model turns all."""
    numbers = [0.0] * dimensions
    for word in re.findall(r"[a-z]+", text.lower()):
        known = _PLACE.get(word)
        at = 8 + hashlib.sha256(word.encode()).digest()[0] % (dimensions - 8) if known is None else known
        numbers[at] += 1.0 if known is None else 3.0
    if model:
        turn = hashlib.sha256(model.encode()).digest()
        numbers = [n if turn[i % 32] % 2 else -n for i, n in enumerate(numbers)]
    length = math.sqrt(sum(n * n for n in numbers))
    return [n / length for n in numbers] if length else [1.0, *[0.0] * (dimensions - 1)]


def answer(rows: Rows | None = None, *, reverse: bool = True) -> Answer:
    """200 with a row a text, in reversed order, since the index alone says whose a row is."""

    def told(wire: Wire) -> None:
        asked = texts(last(wire))
        made = rows(asked) if rows else [vector(text) for text in asked]
        data = [{"object": "embedding", "index": at, "embedding": one} for at, one in enumerate(made)]
        document = {"object": "list", "data": data[::-1] if reverse else data, "model": MODEL}
        wire.bytes_back(200, json.dumps(document).encode())

    return told


def taking(most: int, *, chars: int = 10**9) -> Answer:
    """An endpoint that refuses more than so many texts, or a longer one."""

    def told(wire: Wire) -> None:
        asked = texts(last(wire))
        if len(asked) > most or any(len(text) > chars for text in asked):
            wire.bytes_back(413, b'{"error": {"message": "too much", "type": "invalid_request_error"}}')
        else:
            answer()(wire)

    return told


def data(change: Callable[[list[dict[str, Any]]], Any]) -> Answer:
    """200 with rows that were changed."""

    def told(wire: Wire) -> None:
        rows = [{"index": at, "embedding": vector(text)} for at, text in enumerate(texts(last(wire)))]
        wire.bytes_back(200, json.dumps({"data": change(rows)}).encode())

    return told


def last(wire: Wire) -> Call:
    server = wire.server
    assert isinstance(server, Loopback)
    return server.calls[-1]


def texts(call: Call) -> list[str]:
    asked = json.loads(call.body)["input"]
    assert isinstance(asked, list)
    return asked


def said(server: Loopback) -> str:
    """All that left, to look for what must not."""
    return "\n".join(call.body.decode() + json.dumps(call.headers) for call in server.calls)


def url(server: Loopback) -> str:
    return f"{server.url}/v1/embeddings"


@contextmanager
def configured(server: Loopback | None, **more: str) -> Iterator[pytest.MonkeyPatch]:
    """The environment of a site that searches by meaning too, at this server."""
    with pytest.MonkeyPatch.context() as patch:
        given = {"EMBEDDINGS_URL": url(server), "EMBEDDINGS_MODEL": MODEL, "EMBEDDINGS_API_KEY": KEY} if server else {}
        for name, value in {**given, "EMBEDDINGS_TIMEOUT_S": "20", "BREAKER_FAILURES": "3", **more}.items():
            patch.setenv(name, value)
        env.read.cache_clear()
        try:
            yield patch
        finally:
            patch.undo()
            env.read.cache_clear()
