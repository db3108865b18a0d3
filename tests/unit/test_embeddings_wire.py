"""The embeddings endpoint's answers, read strictly; and its three variables, whole or not at all (M89)."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from agentsite import env
from tests import embeddings as served
from tests.house.walls import imported, sources
from tests.loopback import Answer, Loopback, closed_port, cut, dripped, ok, raw, reset, slow
from tools.adapters.embeddings import Endpoint, TextRefused, embed
from tools.adapters.http import Client
from tools.errors import AccessRefused, BadAnswer, ReadFailed, UpstreamUnavailable

pytestmark = pytest.mark.any_database
TWO = ["refund within thirty days", "a parcel that was lost"]
PATH = "/v1/embeddings"


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with Loopback() as started:
        yield started


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    made = Client()
    yield made
    made.close()


def asked(server: Loopback, client: Client, answer: Answer, texts: list[str] = TWO, timeout_s: float = 5) -> Any:
    server.on(PATH, answer)
    endpoint = Endpoint(url=served.url(server), model=served.MODEL, key=SecretStr(served.KEY))
    return embed(client, endpoint, texts, timeout_s=timeout_s)


def test_vectors_come_in_the_order_of_the_texts_whatever_the_order_of_the_rows(
    server: Loopback, client: Client
) -> None:
    for reverse in (True, False):
        made = asked(server, client, served.answer(reverse=reverse))
        for one, text in zip(made, TWO, strict=True):
            assert list(one) == pytest.approx(served.vector(text), abs=1e-6)


def test_request_is_the_documented_one(server: Loopback, client: Client) -> None:
    asked(server, client, served.answer())
    call = server.calls[-1]
    assert (call.method, call.target) == ("POST", PATH)
    assert json.loads(call.body) == {"model": served.MODEL, "input": TWO, "encoding_format": "float"}
    assert call.headers["authorization"] == f"Bearer {served.KEY}"


def test_vectors_are_made_of_unit_length(server: Loopback, client: Client) -> None:
    made = asked(server, client, served.answer(lambda texts: [[3, 4.0], [10**29, 0]]))
    assert [list(one) for one in made] == [[pytest.approx(0.6), pytest.approx(0.8)], [1.0, 0.0]]


def _rows(first: Any) -> Answer:
    """Two rows of which the first holds this."""
    text = json.dumps({"data": [{"index": 0, "embedding": "@"}, {"index": 1, "embedding": [1.0, 2.0]}]})
    return raw(text.replace('"@"', first if isinstance(first, str) else json.dumps(first)).encode())


BAD = {
    "not a number": _rows("[NaN, 1.0]"),
    "infinite": _rows("[1e999, 1.0]"),
    "infinite by its word": _rows("[Infinity, 1.0]"),
    "no direction": _rows([0.0, 0.0]),
    "no numbers": _rows([]),
    "words": _rows(["1.0", "2.0"]),
    "truths": _rows([True, False]),
    "nulls": _rows([None, 1.0]),
    "base64": _rows('"AACAPwAAAEA="'),
    "nested": _rows([[1.0], [2.0]]),
    "another length than the second": _rows([1.0, 2.0, 3.0]),
    "too many numbers": _rows([1.0] * 8193),
    "too long to have a length": _rows("[1.7e308, 1.7e308]"),
    "a row missing": served.data(lambda rows: rows[:1]),
    "a row too many": served.data(lambda rows: [*rows, {"index": 2, "embedding": [1.0] * 64}]),
    "one row twice": served.data(lambda rows: [rows[0], rows[0]]),
    "indexes from one": served.data(lambda rows: [r | {"index": r["index"] + 1} for r in rows]),
    "indexes below": served.data(lambda rows: [r | {"index": r["index"] - 1} for r in rows]),
    "indexes as words": served.data(lambda rows: [r | {"index": str(r["index"])} for r in rows]),
    "indexes as truths": served.data(lambda rows: [r | {"index": bool(r["index"])} for r in rows]),
    "no indexes": served.data(lambda rows: [{"embedding": r["embedding"]} for r in rows]),
    "rows that are none": served.data(lambda rows: [1, 2]),
    "no list": served.data(lambda rows: {"0": rows}),
    "a list alone": ok([1, 2]),
    "no document": raw(b""),
    "a page": raw(b"<html>sign in</html>"),
    "bytes": raw(b"\xff\xfe"),
    "a key twice": raw(b'{"data": [], "data": []}'),
    "deep": raw(b'{"data": ' + b"[" * 5000 + b"]" * 5000 + b"}"),
    "long": raw(b'{"data": [' + b" " * 9_000_000 + b"]}"),
    "of too many parts": raw(b'{"data": [' + b"0," * 200_000 + b"0]}"),
    "cut": cut({"data": [{"index": 0, "embedding": [1.0] * 64}]}),
    "elsewhere": ok({}, 404),
    "moved": ok({}, 302, more=(("Location", "/v2"),)),
    "made": ok({}, 201),
}


@pytest.mark.parametrize("name", BAD)
def test_answer_that_is_not_whole_is_no_answer(server: Loopback, client: Client, name: str) -> None:
    with pytest.raises(BadAnswer) as caught:
        asked(server, client, BAD[name])
    assert not any(word in str(caught.value) for word in (*TWO, served.KEY, server.url))


@pytest.mark.parametrize(
    ("answer", "error", "slug", "retry_after_s"),
    [
        (ok({}, 400), TextRefused, "text_refused", None),
        (ok({}, 413), TextRefused, "text_refused", None),
        (ok({}, 422), TextRefused, "text_refused", None),
        (ok({}, 401), AccessRefused, "access_refused", None),
        (ok({}, 403), AccessRefused, "access_refused", None),
        (ok({}, 429, more=(("Retry-After", "7"),)), UpstreamUnavailable, "upstream_unavailable", 7.0),
        (ok({}, 500), UpstreamUnavailable, "upstream_unavailable", None),
        (ok({}, 503, more=(("Retry-After", "2"),)), UpstreamUnavailable, "upstream_unavailable", 2.0),
        (reset, UpstreamUnavailable, "upstream_unavailable", None),
        (slow(1.5, served.answer()), UpstreamUnavailable, "timeout", None),
        (dripped({"data": []}, every_s=0.1), UpstreamUnavailable, "timeout", None),
    ],
)
def test_failure_says_what_it_is(
    server: Loopback, client: Client, answer: Answer, error: type[ReadFailed], slug: str, retry_after_s: float | None
) -> None:
    with pytest.raises(error) as caught:
        asked(server, client, answer, timeout_s=0.5)
    assert (type(caught.value), caught.value.slug, caught.value.retry_after_s) == (error, slug, retry_after_s)


def test_nobody_there_is_an_outage(client: Client) -> None:
    endpoint = Endpoint(url=f"{closed_port()}{PATH}", model="m")
    with pytest.raises(UpstreamUnavailable):
        embed(client, endpoint, TWO, timeout_s=2)


def test_odd_characters_are_a_request_like_any_other(server: Loopback, client: Client) -> None:
    odd = ["\ud800 half a pair", "निधि वापसी", "\x00\u202e"]
    made = asked(server, client, served.answer(), odd)
    assert len(made) == 3
    assert served.texts(server.calls[-1]) == odd
    assert all(math.isclose(math.hypot(*one), 1, abs_tol=1e-6) for one in made)


# --- configuration -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("https://models.example/v1/embeddings", "https://models.example/v1/embeddings"),
        ("https://models.example/v1", "https://models.example/v1/embeddings"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/embeddings"),
    ],
)
def test_endpoint_is_named_with_or_without_its_last_step(given: str, wanted: str) -> None:
    with served.configured(None, EMBEDDINGS_URL=given, EMBEDDINGS_MODEL="m"):
        assert wanted == env.read().EMBEDDINGS_URL


@pytest.mark.parametrize(
    "given",
    [
        {"EMBEDDINGS_URL": "models.example/v1", "EMBEDDINGS_MODEL": "m"},
        {"EMBEDDINGS_URL": "ftp://hunter2.example", "EMBEDDINGS_MODEL": "m"},
        {"EMBEDDINGS_URL": "https://user:hunter2@models.example/v1", "EMBEDDINGS_MODEL": "m"},
        {"EMBEDDINGS_URL": "https://models.example/v1?key=hunter2", "EMBEDDINGS_MODEL": "m"},
        {"EMBEDDINGS_URL": "https://models.example/v1#hunter2", "EMBEDDINGS_MODEL": "m"},
        {"EMBEDDINGS_URL": "https://models.example/v1"},
        {"EMBEDDINGS_MODEL": "hunter2"},
        {"EMBEDDINGS_URL": "https://models.example/v1", "EMBEDDINGS_MODEL": " "},
        {"EMBEDDINGS_URL": "https://models.example/v1", "EMBEDDINGS_MODEL": "hunter2" * 40},
        {"EMBEDDINGS_URL": "https://models.example", "EMBEDDINGS_MODEL": "m", "EMBEDDINGS_API_KEY": "hunter2\nx"},
        {"EMBEDDINGS_URL": "https://models.example", "EMBEDDINGS_MODEL": "m", "EMBEDDINGS_API_KEY": "hünter2"},
        {"EMBEDDINGS_URL": "https://models.example", "EMBEDDINGS_MODEL": "m", "EMBEDDINGS_TIMEOUT_S": "0"},
    ],
)
def test_half_a_configuration_does_not_start(given: dict[str, str]) -> None:
    with served.configured(None, **given):
        with pytest.raises(env.BadEnvironment, match="EMBEDDINGS_") as caught:
            env.read()
        assert "hunter2" not in str(caught.value)


def test_key_is_not_held_where_no_model_is_called() -> None:
    given = {"EMBEDDINGS_URL": "https://models.example", "EMBEDDINGS_MODEL": "m", "EMBEDDINGS_API_KEY": served.KEY}
    with served.configured(None, WORKER_QUEUES="writes", **given):
        assert env.read().EMBEDDINGS_API_KEY is None
        assert env.digest(served.KEY) in env.read().SECRETS_ELSEWHERE


def test_numpy_is_loaded_where_vectors_are_and_nowhere_else() -> None:
    top = {
        path
        for path, tree in sources().items()
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom) and any("numpy" in name for name in imported(node))
    }
    assert top == set()
    assert "numpy" in imported(sources()["tools/policy/vectors.py"])
