"""Reads answers of every dialect: bytes in, a turn or a typed error out, for any bytes.

A paper: imports no client, clock, Django or zone. What the provider or the way to it did wrong is a ModelError: another
route, or later. What the model did wrong is a turn with a fault: it is told, and its repairs are bounded. A stream that
never ended, or an error inside one, is never a turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from agentsite.canonical import NotStrictJson, strict_loads
from runs.contracts import LLMTurnResult
from runs.errors import ContextTooLong, ModelError, ModelInterrupted, ModelRefused, ModelUnavailable
from runs.inference.dialects.dialect import FAULTS, Counts, Dialect, Faulty, Fold
from runs.inference.dialects.sse import Events
from tools.contracts import Json

MAX_RAW = 256 * 1024
MAX_SAID = 2000
MAX_COUNT = 1_000_000_000
"""Tokens that are believed of one answer: with a cap as large, a run's sum still fits its column."""
BYTES_PER_TOKEN = 4
KEPT = frozenset({"fault", "said", "input", "output", "cached"})

_TOO_LONG = re.compile(
    r"context[_ ]length|context[_ ]window|maximum context|context size|prompt is too long|input is too long"
    r"|too many (input |prompt )?tokens|max_model_len|request_too_large|string_above_max_length"
)
# The first that a reported error's code, type or status matches; an unknown one is an outage: later, bounded.
_KINDS = (
    (re.compile(r"rate_?limit|too_many_requests|insufficient_quota"), 429),
    (re.compile(r"overloaded|unavailable|server|internal"), 503),
    (re.compile(r"auth|api_?key|permission|forbidden|billing"), 401),
    (re.compile(r"not_?found"), 404),
    (re.compile(r"context_length|exceed_context|request_too_large"), 413),
    (re.compile(r"invalid_request|bad_?request|unsupported"), 400),
)
NONE = Counts()
_LATER = frozenset({408, 409, 425, 429})


def decode(dialect: Dialect, body: bytes) -> LLMTurnResult:
    """The turn in a whole answer. Raises ModelError where it is none: no JSON, or an error under status 200."""
    # Bytes that are no UTF-8 become lone surrogates, which no parser of ours lets through.
    text = body.decode("utf-8", "surrogateescape")
    answer: Json = {}
    try:
        answer = loads(text)
        dialect.check(answer)
        return _read(dialect, answer)
    except Faulty as fault:
        return faulty(fault.slug, text, _counts(dialect, answer.get("usage"), text))


def decode_stream(
    dialect: Dialect, chunks: Iterable[bytes], *, should_stop: Callable[[], bool] = lambda: False,
    heard: Callable[[Fold], None] = lambda fold: None,
) -> LLMTurnResult:  # fmt: skip
    """The turn in a stream of events, which is read no further than its end. `should_stop` is asked before each chunk,
    `heard` is shown what has come after each event.

    Raises ModelInterrupted where it says yes, ModelUnavailable `stream_cut` where the end never came, ModelError for an
    error that the provider reports inside; each knows the tokens of what had come.
    """
    fold, data = dialect.fold(), ""
    try:
        for data in _events(chunks, should_stop):
            fold.take(data)
            heard(fold)
            if fold.ended:
                break
        return _read(dialect, fold.whole())
    except ModelError as error:
        used = _counts(dialect, fold.usage, fold.said())
        error.after(used.input, used.output)
        raise
    except Faulty as fault:
        said = fold.said() if fold.ended else f"{fold.said()}{data}"  # the event that broke it was not taken
        return faulty(fault.slug, "", _counts(dialect, fold.usage, said))


def recall(dialect: Dialect, raw: str) -> LLMTurnResult:
    """The turn again, from its own stored `raw`. Raises ModelError where today's reader takes it for no answer."""
    kept = loads(raw)
    fault = kept.get("fault")
    # Of a broken answer little more than its fault was kept. An answer off the wire may hold a word of that name, too;
    # never that alone: without what its dialect reads it would be no answer, and not recorded as one.
    if isinstance(fault, str) and fault in FAULTS and kept.keys() <= KEPT:
        used = {name: number(kept, name) for name in ("input", "output", "cached")}
        return faulty(fault, word(kept, "said"), Counts(**used))
    try:
        return _read(dialect, kept)
    except Faulty as broken:
        return faulty(broken.slug, raw)


def _events(chunks: Iterable[bytes], should_stop: Callable[[], bool]) -> Iterator[str]:
    events = Events()
    for chunk in chunks:
        if should_stop():
            raise ModelInterrupted("interrupted")
        yield from events.feed(chunk)
    yield from events.close()


def _read(dialect: Dialect, answer: Json) -> LLMTurnResult:
    reported(answer)
    raw = json.dumps(answer, separators=(",", ":"))
    if len(raw) > MAX_RAW:
        raise Faulty("too_long")
    # Of the record, not of the answer: the halves of a character that came in two pieces of a stream are one in both.
    return replace(dialect.read(json.loads(raw)), raw=raw)


def faulty(slug: str, said: str, used: Counts = NONE) -> LLMTurnResult:
    """A turn of which nothing is believed but its tokens; its record keeps those and the beginning of what was said."""
    kept = {"fault": slug, "said": said[:MAX_SAID], **vars(used)}
    return LLMTurnResult(
        text="", model="", native=True, fault=slug, raw=json.dumps(kept, separators=(",", ":")),
        input_tokens=used.input, output_tokens=used.output, cached_tokens=used.cached,
    )  # fmt: skip


def _counts(dialect: Dialect, usage: Any, said: str) -> Counts:
    """The tokens of a broken answer: as its usage names them, and what it wrote estimated where that names none."""
    try:
        used = dialect.counts(usage if isinstance(usage, dict) else {})
    except Faulty:
        used = NONE
    return used if used.output else replace(used, output=tokens(said))


def tokens(text: str) -> int:
    """An estimate: four bytes a token, rounded up."""
    return min(-(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN), MAX_COUNT)


def loads(text: str) -> Json:
    """One JSON object, strictly. Raises ModelUnavailable `not_json` where it is no JSON or no object, and Faulty
    `invalid_json` for an object that two readers could read in two ways."""
    try:
        value = strict_loads(text)
    except NotStrictJson:
        raise (Faulty("invalid_json") if _loosely_json(text) else ModelUnavailable("not_json")) from None
    if not isinstance(value, dict):
        raise ModelUnavailable("not_json")
    return value


def _loosely_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text, parse_int=str), dict)
    except (ValueError, RecursionError):
        return False


# --- errors a provider reports ----------------------------------------------------------------------------------


def refusal(status: int, body: bytes, *, retry_after_s: float | None = None) -> ModelError:
    """What an answer under this HTTP status means; the provider's own words stay out of it."""
    text = body[: 64 * 1024].decode("utf-8", "replace").lower()
    if status in (400, 413, 422) and _TOO_LONG.search(text):
        return ContextTooLong("context_too_long")
    if status == 429:
        return ModelUnavailable("model_rate_limited", retry_after_s=retry_after_s)
    if status in _LATER or status >= 500 or status < 200:
        return ModelUnavailable("model_unavailable", retry_after_s=retry_after_s)
    if status in (401, 403):
        return ModelRefused("model_key_refused")
    if status == 404:
        return ModelRefused("model_not_found")
    return ModelRefused("model_redirected" if 300 <= status < 400 else "model_request_refused")


def reported(answer: Json) -> None:
    """Raises the ModelError of an error that came under status 200, whole or inside a stream."""
    error = answer.get("error")
    if not error and answer.get("type") != "error":
        return
    words = json.dumps(error).lower()
    raise refusal(_status_of(error if isinstance(error, dict) else {}, words), words.encode())


def _status_of(error: Json, words: str) -> int:
    for name in ("code", "status", "http_code"):
        number = error.get(name)
        if type(number) is int and 400 <= number < 600:
            return number
    if _TOO_LONG.search(words):
        return 413
    named = " ".join(str(error.get(name, "")) for name in ("code", "type", "status")).lower()
    return next((status for pattern, status in _KINDS if pattern.search(named)), 503)


# --- fields that every dialect reads -----------------------------------------------------------------------------


def part(value: Json, name: str) -> Json:
    """An object, {} where it is absent or null. Raises Faulty for anything else."""
    found = value.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise Faulty("invalid_answer")
    return found


def parts(value: Json, name: str) -> list[Json]:
    """A list of objects, empty where it is absent or null. Raises Faulty for anything else."""
    found = value.get(name)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise Faulty("invalid_answer")
    return found


def word(value: Json, *names: str) -> str:
    """The first of these fields that holds a text, "" where none does. Raises Faulty for a value that is no text."""
    for name in names:
        found = value.get(name)
        if found is not None and not isinstance(found, str):
            raise Faulty("invalid_answer")
        if found:
            return found
    return ""


def number(value: Json, name: str) -> int:
    """A count of tokens; 0 where it is absent or none."""
    found = value.get(name)
    return min(found, MAX_COUNT) if type(found) is int and found > 0 else 0


def arguments(value: Any) -> str:
    """A call's arguments as JSON text: text as it came, anything else written out, so that the parser judges both."""
    return value if isinstance(value, str) else json.dumps(value)
