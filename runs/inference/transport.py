"""One HTTP exchange with a model provider: exactly one request, no retry, no redirect, a limit on everything.

Imports no client, adapter, store, gate or Django: the client is handed in as `Post`. What fails becomes a ModelError
that says whether to try later (by due time, which is the run's business and holds no worker) or never.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from agentsite import telemetry
from agentsite.redaction import REDACTED
from runs.contracts import LLMTurnResult, NativeCall
from runs.errors import ModelError, ModelInterrupted, ModelUnavailable
from runs.inference.dialects import answers
from runs.inference.dialects.dialect import Asked, Dialect, Fold

MAX_ANSWER_BYTES = 8_000_000
MAX_ERROR_BYTES = 64 * 1024
SHORTEST_SECRET = 12
# A run of backslashes is looked at once, from its beginning: an answer may hold nothing else.
_ESCAPED = re.compile(r"(?<!\\)\\++(?:u00(?!22|5c)([2-7][0-9a-f])|/)", re.IGNORECASE)


class WireFailed(Exception):
    """The exchange ended without a whole answer. `slug`: model_unreachable (surely nothing was sent), model_timeout,
    model_connection_lost or model_answer_too_large."""

    def __init__(self, slug: str) -> None:
        super().__init__(slug)
        self.slug = slug


@dataclass(frozen=True, kw_only=True)
class Answering:
    """The head of an answer (header names in lower case) and its body as it comes; reading it raises WireFailed."""

    status: int
    headers: Mapping[str, str]
    retry_after_s: float | None
    chunks: Iterator[bytes]


class Post(Protocol):
    def __call__(
        self, url: str, *, headers: Mapping[str, str], body: bytes, timeout_s: float, max_bytes: int
    ) -> AbstractContextManager[Answering]:
        """POST once, within `timeout_s` seconds in all. Raises WireFailed."""


def goes_on() -> bool:
    """A call that nobody wants to cut."""
    return False


def unwatched(fold: Fold) -> None:
    """A call that nobody watches."""


@dataclass(frozen=True, kw_only=True)
class Provider:
    """Where a provider is, the key to it ("" for none), and how long one call to it may take in seconds."""

    name: str
    base_url: str
    key: str
    timeout_s: float
    should_stop: Callable[[], bool] = goes_on
    heard: Callable[[Fold], None] = unwatched


def exchange(dialect: Dialect, asked: Asked, provider: Provider, post: Post) -> LLMTurnResult:
    """One request, one turn. Raises ModelUnavailable, ModelRefused, or ModelInterrupted where `should_stop` says so."""
    outcome = "answered"
    try:
        turn = _asked_once(dialect, asked, provider, post)
        _count_tokens(provider.name, turn)
        return turn
    except ModelError as error:
        outcome = error.slug
        raise
    finally:
        telemetry.count("model_requests", provider=provider.name, outcome=outcome)


def _count_tokens(provider: str, turn: LLMTurnResult) -> None:
    """What the provider says it read, read from its cache, and wrote; of a broken answer at least an estimate."""
    for kind, tokens in (("input", turn.input_tokens), ("cached", turn.cached_tokens), ("output", turn.output_tokens)):
        telemetry.count("model_tokens", tokens, provider=provider, kind=kind)


def _asked_once(dialect: Dialect, asked: Asked, provider: Provider, post: Post) -> LLMTurnResult:
    accept = "text/event-stream, application/json" if asked.stream else "application/json"
    headers = {"Content-Type": "application/json", "Accept": accept, **_trace(), **dialect.headers(provider.key)}
    # ASCII escapes: a prompt with a lone surrogate is still a request, and never an exception.
    body = json.dumps(dialect.body(asked), separators=(",", ":")).encode()
    url = dialect.endpoint(provider.base_url)
    try:
        with post(
            url, headers=headers, body=body, timeout_s=provider.timeout_s, max_bytes=MAX_ANSWER_BYTES
        ) as answering:
            turn = _turn(dialect, answering, provider)
    except WireFailed as failed:
        raise ModelUnavailable(failed.slug) from None
    return _redacted(turn, provider.key)


def _trace() -> dict[str, str]:
    """The run's trace and the span of this turn, where the call is made for a run."""
    parent = telemetry.traceparent()
    return {"traceparent": parent} if parent else {}


def _turn(dialect: Dialect, answering: Answering, provider: Provider) -> LLMTurnResult:
    if answering.status != 200:
        said = _beginning(answering.chunks)
        raise answers.refusal(answering.status, said, retry_after_s=answering.retry_after_s)
    # The answer's own word counts: a server may answer whole where a stream was asked for.
    if "text/event-stream" in answering.headers.get("content-type", "").lower():
        chunks = _as_outage(answering.chunks)
        return answers.decode_stream(dialect, chunks, should_stop=provider.should_stop, heard=provider.heard)
    body = b"".join(_until_stopped(answering.chunks, provider.should_stop))
    return answers.decode(dialect, _without(provider.key, body))


def _as_outage(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """A connection that breaks inside a stream ends it as an outage that knows what had come."""
    try:
        yield from chunks
    except WireFailed as failed:
        raise ModelUnavailable(failed.slug) from None


def _until_stopped(chunks: Iterator[bytes], should_stop: Callable[[], bool]) -> Iterator[bytes]:
    for chunk in chunks:
        if should_stop():
            raise ModelInterrupted("interrupted")
        yield chunk


def _beginning(chunks: Iterator[bytes]) -> bytes:
    """The first bytes of an error's body; what cannot be read of it changes nothing about its status."""
    said = bytearray()
    try:
        for chunk in chunks:
            said += chunk
            if len(said) >= MAX_ERROR_BYTES:
                break
    except WireFailed:
        pass
    return bytes(said[:MAX_ERROR_BYTES])


def _without(key: str, body: bytes) -> bytes:
    """A whole answer before anything cuts it: of a key cut in two, no half would be found."""
    return body.replace(key.encode(), REDACTED.encode()) if len(key) >= SHORTEST_SECRET else body


def _redacted(turn: LLMTurnResult, key: str) -> LLMTurnResult:
    """A provider's key that comes back in an answer is kept nowhere. A short one, such as the `x` that a local server
    is given, is no secret but a piece of other words."""
    if len(key) < SHORTEST_SECRET or key not in _unescaped(turn.raw):
        return turn
    text, thinking, model, raw = (_cleaned(said, key) for said in (turn.text, turn.thinking, turn.model, turn.raw))
    calls = tuple(NativeCall(**{n: _cleaned(v, key) for n, v in vars(c).items()}) for c in turn.calls)
    return replace(turn, text=text, thinking=thinking, model=model, raw=raw, calls=calls)


def _cleaned(text: str, key: str) -> str:
    """A text without the key, not even spelt in escapes: it may be JSON that is yet to be read."""
    text = text.replace(key, REDACTED)
    return plain.replace(key, REDACTED) if key in (plain := _unescaped(text)) else text


def _unescaped(text: str) -> str:
    """Escapes of printable ASCII written out, however deep they are nested, but for quotes and backslashes."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else "/", text)
