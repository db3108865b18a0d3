"""The table's second half: answers that are none, and streams that are cut, mixed, odd or merely spelt differently."""

from __future__ import annotations

import gzip
from collections.abc import Callable

from tests.models import odd
from tests.models.kinds import TYPES, Becomes, Change, Kind, Sent, sent, streamed
from tests.models.odd import READ, Call, Odd, data, event, obj
from tests.models.speaking import ANTHROPIC, ANTHROPIC_XML, OPENAI

CUT = "later: stream_cut"
NOT_JSON = "later: not_json"
NONE = {"json": NOT_JSON, "sse": CUT}
INVALID = "told: invalid_answer"
DRAFT = Odd(says='"Thank you, that is all."')
WRITE = Odd(calls=(Call(),))
OVERLOADED = '{"type": "overloaded_error", "message": "Overloaded"}'


def same(name: str, becomes: Becomes, body: bytes, **more: object) -> Kind:
    return sent("answers", name, becomes, body, **more)


def drafted(provider: str, mode: str) -> bytes:
    return odd.whole(provider, DRAFT) if mode == "json" else odd.stream(odd.events(provider, DRAFT))


def sealed(name: str, becomes: Becomes, change: Callable[[bytes], bytes], **more: object) -> Kind:
    """A good draft whose bytes travel oddly."""

    def sends(provider: str, mode: str) -> Sent:
        body = change(drafted(provider, mode))
        return Sent(**{"body": body, "type": TYPES[mode], **more})  # type: ignore[arg-type]

    return Kind(group="answers", name=name, sends=sends, becomes=becomes)


def swapped(name: str, becomes: Becomes, kind: str, mode_of_body: str) -> Kind:
    """A good draft under the type of the other form."""

    def sends(provider: str, mode: str) -> Sent | None:
        return Sent(body=drafted(provider, mode_of_body), type=kind) if mode == "json" else None

    return Kind(group="answers", name=name, sends=sends, becomes=becomes)


ANSWERS = [
    same("a page", NONE, b"<!doctype html><html><body>Please sign in</body></html>"),
    same("a page under its own type", NOT_JSON, b"<html>sign in</html>", type="text/html"),
    same("nothing", NONE, b""),
    same("half an answer", NONE, b'{"choices": [{"message": {"content": "Your refund of 2,000 has been is'),
    same("a list", NONE, b"[]"),
    same("a list of answers", NONE, b'[{"choices": []}]'),
    same("null", NONE, b"null"),
    same("a number", NONE, b"200"),
    same("a text", NONE, b'"ok"'),
    same("two answers", NONE, b'{"choices": []}\n{"choices": []}'),
    same("100,000 brackets", NONE, b"[" * 100_000),
    same("100,000 objects", NONE, b'{"a":' * 100_000),
    same("bytes that are no UTF-8", NONE, b"\xff\xfe\x00"),
    same("garbage said to be gzip", NONE, b"\x1f\x8b\x08\x00garbage",
         headers={"Content-Encoding": "gzip"}),
    same("garbage of gzip's first bytes", NONE, b"\x1f\x8b\x08\x00\x00\x00"),
    sealed("gzip, which was not asked for", NONE, gzip.compress, headers={"Content-Encoding": "gzip"}),
    sealed("gzip not said to be gzip", NONE, gzip.compress),
    sealed("a byte order mark before it", {"json": NOT_JSON, "sse": "draft"}, lambda body: b"\xef\xbb\xbf" + body),
    sealed("UTF-16", NONE, lambda body: body.decode().encode("utf-16")),
    sealed("white space around it", "draft", lambda body: b"\n\n" + body + b"\n \n"),
    sealed("cut by a lost connection", "later: model_connection_lost", lambda body: body, cut=0.7),
    swapped("a stream said to be JSON", NOT_JSON, TYPES["json"], "sse"),
    swapped("JSON said to be a stream", CUT, TYPES["sse"], "json"),
    swapped("JSON said to be text", "draft", "text/plain", "json"),
    swapped("JSON of no type", "draft", "", "json"),
    same("another document", {"json": "later: not_an_answer", "sse": CUT}, b'{"status": "ok"}'),
    *[same(f"an error under 200: {name}", {"json": becomes, "sse": CUT}, body) for name, becomes, body in (
        ("overloaded", "later: model_unavailable", b'{"error": {"type": "overloaded_error"}}'),
        ("as a text", "later: model_unavailable", b'{"error": "model crashed"}'),
        ("of no words", "later: model_unavailable", b'{"type": "error"}'),
        ("too many requests", "later: model_rate_limited", b'{"error": {"type": "rate_limit_error"}}'),
        ("a wrong key", "final: model_key_refused", b'{"error": {"code": 401, "message": "no"}}'),
        ("no such model", "final: model_not_found", b'{"type": "error", "error": {"type": "not_found_error"}}'),
        ("too long a prompt", "final: context_too_long", b'{"error": {"code": "context_length_exceeded"}}'),
    )],
    same("10 MB", "later: model_answer_too_large", b'{"choices": [], "x": "' + b"x" * 10_000_000 + b'"}'),
]  # fmt: skip


def error_at(place: int, document: str) -> Change:
    """An error in the middle of the stream, or after all that was said."""

    def change(provider: str, lines: list[str]) -> list[str]:
        event = data(("error", document)) if provider == OPENAI else odd.event("error", ("error", document))
        return [*lines[:place], event, *lines[place:]]

    return change


def only(providers: tuple[str, ...], change: Change) -> Change:
    return lambda provider, lines: change(provider, lines) if provider in providers else None


def inserted(at: int, lines_in: dict[str, list[str]]) -> Change:
    def change(provider: str, lines: list[str]) -> list[str] | None:
        added = lines_in.get(provider)
        place = at if at >= 0 else len(lines) + at + 1
        return None if added is None else [*lines[:place], *added, *lines[place:]]

    return change


def altered(name: str, becomes: Becomes, change: Change, turn: Odd = DRAFT) -> Kind:
    return streamed(name, becomes, change, turn)


def joined(lines: list[str], end: str = "\n") -> bytes:
    return odd.stream(lines, end)


def over_lines(lines: list[str]) -> list[str]:
    """Each event's JSON on several data lines, broken at its first comma."""
    return [line.replace(', "', ',\ndata: "', 1) for line in lines]


def renamed(provider: str, lines: list[str]) -> list[str]:
    """The model's name changes with the last event that names one."""
    if provider == OPENAI:
        return [*lines[:3], *[line.replace('"m-2026"', '"m-cheap"') for line in lines[3:]]]
    started = lines[0].replace('"m-2026"', '"m-cheap"')
    return [lines[0], started, *lines[1:]]


BLOCKS = (ANTHROPIC, ANTHROPIC_XML)


def many_calls() -> str:
    pieces = ", ".join(f'{{"index": {number}}}' for number in range(100_000))
    return f'data: {{"choices": [{{"index": 0, "delta": {{"tool_calls": [{pieces}]}}}}]}}'


MORE = '{"choices": [{"index": 0, "delta": {"content": " And more."}}]}'
TEXT_BLOCK = [
    event("content_block_start", ("index", "0"), ("content_block", '{"type": "text", "text": ""}')),
    event("content_block_delta", ("index", "0"), ("delta", '{"type": "text_delta", "text": "x"}')),
    event("content_block_stop", ("index", "0")),
]
STREAMS = [
    altered("without its end", CUT, lambda p, lines: lines[:-1]),
    altered("without its end, of a write", CUT, lambda p, lines: lines[:-1], WRITE),
    altered("cut in the middle of a write", CUT, lambda p, lines: lines[:6], WRITE),
    altered("cut inside an event", CUT, lambda p, lines: joined(lines)[:-40], WRITE),
    altered("cut before the last blank line", {OPENAI: CUT, "else": CUT}, lambda p, lines: joined(lines).rstrip()),
    altered("an end alone", CUT, lambda p, lines: lines[-1:]),
    altered("its end first", {OPENAI: CUT, "else": CUT}, lambda p, lines: [lines[-1], *lines[:-1]]),
    altered("an error inside", "later: model_unavailable", error_at(3, OVERLOADED), WRITE),
    altered("an error after the finish", "later: model_unavailable", error_at(-1, OVERLOADED), WRITE),
    altered("an error of the key inside", "final: model_key_refused", error_at(3, '{"type": "authentication_error"}')),
    altered("an error of the limit inside", "later: model_rate_limited", error_at(3, '{"type": "rate_limit_error"}')),
    altered("an event that is no JSON", NOT_JSON, lambda p, lines: [*lines[:2], "data: {oops", *lines[2:]]),
    altered("an event that is a list", NOT_JSON, lambda p, lines: [*lines[:2], "data: []", *lines[2:]]),
    altered("an empty event", {OPENAI: NOT_JSON, "else": NOT_JSON}, lambda p, lines: [*lines[:2], "data:", *lines[2:]]),
    altered("an event with a field twice", "told: invalid_json",
            lambda p, lines: [*lines[:2], 'data: {"type": "ping", "type": "ping"}', *lines[2:]]),
    altered("an event with NaN", "told: invalid_json",
            lambda p, lines: [*lines[:2], 'data: {"type": "ping", "x": NaN}', *lines[2:]]),
    altered("100,000 brackets in an event", NOT_JSON,
            lambda p, lines: [lines[0], "data: " + "[" * 100_000, *lines[1:]]),
    altered("a line of 10 MB", "later: model_answer_too_large",
            lambda p, lines: [lines[0], ": " + "x" * 10_000_000, *lines[1:]]),
    altered("a line of 1 MB in a comment", "draft", lambda p, lines: [lines[0], ": " + "x" * 1_000_000, *lines[1:]]),
    altered("lines that end with CR LF", "draft", lambda p, lines: joined(lines, "\r\n")),
    altered("lines that end with CR", "draft", lambda p, lines: joined(lines, "\r")),
    altered("comments and keep-alives", "draft", lambda p, lines: [": keep-alive", *lines[:2], ":", *lines[2:]]),
    altered("ids and retry times", "draft", lambda p, lines: [f"id: 7\nretry: 10\n{line}" for line in lines]),
    altered("no space after the colon", "draft", lambda p, lines: [x.replace("data: ", "data:") for x in lines]),
    altered("data over several lines", "draft", lambda p, lines: over_lines(lines)),
    altered("no names of events", "draft", lambda p, lines: [x[x.index("data:"):] for x in lines]),
    altered("pings", "draft", only(BLOCKS, lambda p, lines: [lines[0], *[event("ping")] * 50, *lines[1:]])),
    altered("more after its end", "draft", lambda p, lines: [*lines, "data: {oops"]),
    altered("the model's name changing", INVALID, renamed),
    altered("text after the finish", INVALID, inserted(-2, {
        OPENAI: [f"data: {MORE}"], ANTHROPIC: TEXT_BLOCK, ANTHROPIC_XML: TEXT_BLOCK})),
    altered("two words of finish", INVALID, lambda p, lines: [
        *lines[:-1], lines[-3 if p == OPENAI else -2].replace("stop", "length").replace("end_turn", "max_tokens")
        .replace("length_reason", "stop_reason"), lines[-1]]),
    altered("another choice", INVALID, inserted(2, {
        OPENAI: ['data: {"choices": [{"index": 1, "delta": {"content": "x"}}]}']})),
    altered("two choices at once", INVALID, inserted(2, {
        OPENAI: ['data: {"choices": [{"index": 0, "delta": {}}, {"index": 1, "delta": {}}]}']})),
    altered("choices of null", "draft", inserted(2, {OPENAI: ['data: {"choices": null}']})),
    altered("an unknown event", "draft", inserted(2, {p: [event("surprise", ("index", "9"))] for p in BLOCKS})),
    altered("an unknown delta of a text", "draft", inserted(2, {p: [
        event("content_block_delta", ("index", "0"), ("delta", '{"type": "surprise", "x": 1}'))] for p in BLOCKS})),
    altered("an unknown delta of a call", INVALID, inserted(2, {ANTHROPIC: [
        event("content_block_delta", ("index", "0"), ("delta", '{"type": "surprise", "x": 1}'))]}), WRITE),
    altered("text in a call", INVALID, inserted(3, {ANTHROPIC: [
        event("content_block_delta", ("index", "0"), ("delta", '{"type": "text_delta", "text": "!"}'))]}), WRITE),
    altered("pieces of a block that never began", "told: ambiguous_calls", inserted(2, {p: [
        event("content_block_delta", ("index", "7"), ("delta", '{"type": "text_delta", "text": "x"}'))]
        for p in BLOCKS})),
    altered("a block that never ends", CUT, only(BLOCKS, lambda p, lines: [x for x in lines if "block_stop" not in x])),
    altered("a block that begins twice", "told: ambiguous_calls", inserted(2, {p: TEXT_BLOCK[:1] for p in BLOCKS})),
    altered("a block that ends twice", "draft", inserted(-3, {p: TEXT_BLOCK[2:] for p in BLOCKS})),
    altered("two messages", INVALID, only(BLOCKS, lambda p, lines: [*lines[:-1], *lines])),
    altered("a name of the model in the last words", INVALID, only(BLOCKS, lambda p, lines: [
        *lines[:-2], lines[-2].replace('{"stop_reason"', '{"model": "m-cheap", "stop_reason"'), lines[-1]])),
    altered("100,000 calls", {OPENAI: "told: too_long"}, inserted(2, {OPENAI: [many_calls()]})),
    altered("blocks before the message", INVALID, only(BLOCKS, lambda p, lines: [*lines[1:4], lines[0], *lines[4:]])),
]  # fmt: skip


def out_of_order(provider: str, lines: list[str]) -> list[str] | None:
    """The second call's block before the first one's, with their own indexes."""
    if provider != ANTHROPIC:
        return None
    second = next(i for i, line in enumerate(lines) if "block_start" in line and '"index": 1' in line)
    return [lines[0], *lines[second:-2], *lines[1:second], *lines[-2:]]


def interleaved(provider: str, lines: list[str]) -> list[str] | None:
    """The pieces of two calls in turns, each with its own index."""
    if provider == ANTHROPIC_XML:
        return None
    mine = [[x for x in lines if f'"index": {n}' in _inner(provider, x)] for n in (0, 1)]
    rest = [x for x in lines if x not in mine[0] and x not in mine[1]]
    turns = [x for n in range(max(map(len, mine))) for of in mine for x in of[n : n + 1]]
    begins = 1 if provider == ANTHROPIC else 2
    return [*rest[:begins], *turns, *rest[begins:]]


def _inner(provider: str, line: str) -> str:
    return line.partition('"tool_calls": ')[2] if provider == OPENAI else line


def inserted_inside(lines_in: dict[str, list[str]]) -> Change:
    """Between two pieces of the draft's own text."""
    return inserted(4, lines_in)


PAIR = Odd(calls=(READ, Call(name='"get_payments"', args=READ.args, evidence=None, id='"call_p"')))
STREAMS += [
    altered("two calls whose blocks come out of order", "get_order get_payments", out_of_order, PAIR),
    altered("a character in two pieces", "draft", inserted_inside({
        OPENAI: ['data: {"choices": [{"index": 0, "delta": {"content": "\\ud83d"}}]}',
                 'data: {"choices": [{"index": 0, "delta": {"content": "\\ude00"}}]}'],
        **{p: [event("content_block_delta", ("index", "0"), ("delta", obj(("type", '"text_delta"'), ("text", half))))
               for half in ('"\\ud83d"', '"\\ude00"')] for p in BLOCKS}})),
    altered("half a character in a piece", "told: forbidden_characters", inserted_inside({
        OPENAI: ['data: {"choices": [{"index": 0, "delta": {"content": "\\ud83d"}}]}'],
        **{p: [event("content_block_delta", ("index", "0"), ("delta", obj(("type", '"text_delta"'), ("text", half))))
               for half in ('"\\ude00"',)] for p in BLOCKS}})),
    altered("two calls in turns", "get_order get_payments", interleaved, PAIR),
    altered("a write without its first piece", {OPENAI: "told: invalid_json", ANTHROPIC: "told: ambiguous_calls"},
            lambda p, lines: None if p == ANTHROPIC_XML else lines[:1] + lines[3 if p == OPENAI else 2:], WRITE),
    altered("a write without a piece of its middle", {"else": "told: invalid_json"},
            lambda p, lines: lines[:5] + lines[6:], WRITE),
    altered("a write with a piece twice", {"else": "told: invalid_json"},
            lambda p, lines: [*lines[:6], lines[5], *lines[6:]], WRITE),
]  # fmt: skip
SENT = [*ANSWERS, *STREAMS]
