"""What a model's server may send that is hardly HTTP: one request, then the turn or a typed error, nothing else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from runs import backends
from runs.errors import ModelError, ModelRefused
from runs.inference.dialects import BY_PROVIDER
from runs.inference.dialects.dialect import Asked
from runs.inference.transport import Provider, exchange
from runs.prompt import build_prompt
from tests.models import odd
from tests.models.odd import Odd
from tests.models.speaking import OPENAI
from tests.unit.states_8472 import TOOLS, gathered, state

pytestmark = pytest.mark.any_database

DRAFT = Odd(says='"Thank you."')
JSON, EVENTS = odd.whole(OPENAI, DRAFT), odd.stream(odd.events(OPENAI, DRAFT))
HEAD = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(JSON)
WHOLE = HEAD + LENGTH + b"\r\n" + JSON
STREAM = b"Content-Type: text/event-stream\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
LOST = "later: model_connection_lost"
REDIRECTED = "final: model_redirected"  # nobody follows one, so nobody reads where it leads
ANSWERS = {
    "nothing": (b"", LOST),
    "garbage": (b"\x00\xff garbage\r\n\r\n", LOST),
    "a body without a head": (JSON, LOST),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\n\r\n" + JSON, "draft"),
    "a status of two digits": (b"HTTP/1.1 99 Odd\r\n\r\n", LOST),
    "status 999": (b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n", "later: model_unavailable"),
    "another protocol": (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nabc", LOST),
    "a thousand times to go on": (b"HTTP/1.1 100 Continue\r\n\r\n" * 1000 + WHOLE, "draft"),
    "two lengths": (HEAD + LENGTH + b"Content-Length: 5\r\n\r\n" + JSON, LOST),
    "a negative length": (HEAD + b"Content-Length: -5\r\n\r\n" + JSON, LOST),
    "a length past everything": (HEAD + b"Content-Length: 99999999999999999999\r\n\r\n" + JSON, LOST),
    "a chunk of no number": (HEAD + CHUNKED + b"\r\nzz\r\nabc", LOST),
    "a chunk past everything": (HEAD + CHUNKED + b"\r\nffffffffffffffffff\r\nabc", LOST),
    "no last chunk": (HEAD + CHUNKED + b"\r\n%x\r\n" % len(JSON) + JSON, LOST),
    "no last chunk, and all events": (HEAD + STREAM + CHUNKED + b"\r\n%x\r\n" % len(EVENTS) + EVENTS, "draft"),
    "events to the end of the connection": (HEAD + STREAM + b"\r\n" + EVENTS, "draft"),
    "a type in capitals": (HEAD + STREAM.upper() + b"\r\n" + EVENTS, "draft"),
    "a header of 1 MB": (HEAD + b"X: " + b"x" * 1_000_000 + b"\r\n\r\n" + JSON, LOST),
    "headers without an end": (HEAD + b"X: y\r\n" * 100_000, LOST),
    "a header that is no ASCII": (HEAD + b"X: \xff\xfe\r\n" + LENGTH + b"\r\n" + JSON, "draft"),
    "a header with NUL": (HEAD + b"X: a\x00b\r\n" + LENGTH + b"\r\n" + JSON, LOST),
    "another answer behind it": (WHOLE + b"HTTP/1.1 200 OK\r\n\r\nsmuggled", "draft"),
    "a redirect to nowhere": (b"HTTP/1.1 302 Found\r\nLocation: http://[::1\r\nContent-Length: 0\r\n\r\n", REDIRECTED),
}  # fmt: skip
# Seconds until a 429 is asked again; None: nothing usable was said.
WAITS = {
    b"0": 0.0, b"-5": None, b"nan": None, b"inf": None, b"1e400": None, b"9" * 5000: None, b"\xff": None, b"": None,
    b"7, 8": None, b"Fri, 31 Dec 9999 23:59:59 GMT": 3600.0, b"Thu, 01 Jan 0001 00:00:00 GMT": 0.0,
    b"Mon, 30 Nov 2026 99:99:99 GMT": None, b"31 Dec 99999 00:00:00 GMT": None,
}  # fmt: skip


@contextmanager
def saying(answer: bytes) -> Iterator[tuple[str, list[int]]]:
    """The base URL of a server that answers each request with these bytes and hangs up; the requests it got."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        asked: list[int] = []
        thread = threading.Thread(target=_serve, args=(listening, answer, asked), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1", asked
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def _serve(listening: socket.socket, answer: bytes, asked: list[int]) -> None:
    while True:
        try:
            with listening.accept()[0] as connection:
                asked.append(_read(connection))
                connection.sendall(answer)
        except (BrokenPipeError, ConnectionResetError):
            continue
        except OSError:
            return


def _read(connection: socket.socket) -> int:
    """One whole request; bytes of its body."""
    with connection.makefile("rb") as reader:
        lines = list(iter(reader.readline, b"\r\n"))
        length = next(int(x.split(b":")[1]) for x in lines if x.lower().startswith(b"content-length"))
        return len(reader.read(length))


def became(answer: bytes) -> tuple[str, float | None]:
    """What one call makes of it, and when it is to be asked again; it was one request."""
    asks = Asked(model="m", prompt=build_prompt(state(gathered()), TOOLS), max_output_tokens=9, stream=True)
    found: tuple[str, float | None]
    with saying(answer) as (base, asked):
        place = Provider(name=OPENAI, base_url=base, key="", timeout_s=30)
        try:
            turn = exchange(BY_PROVIDER[OPENAI], asks, place, backends.post_to_model)
            found = "draft" if turn.text == "Thank you." else f"told: {turn.fault}", None
        except ModelError as error:
            found = f"{'final' if isinstance(error, ModelRefused) else 'later'}: {error.slug}", error.retry_after_s
    assert len(asked) == 1
    return found


@pytest.mark.parametrize(("answer", "becomes"), ANSWERS.values(), ids=ANSWERS)
def test_answer_that_is_hardly_http_is_typed(answer: bytes, becomes: str) -> None:
    assert became(answer) == (becomes, None)


@pytest.mark.parametrize(("value", "wait_s"), WAITS.items())
def test_retry_after_of_any_bytes_is_a_wait_or_none(value: bytes, wait_s: float | None) -> None:
    answer = b"HTTP/1.1 429 No\r\nRetry-After: " + value + b"\r\nContent-Length: 0\r\n\r\n"
    assert became(answer) == ("later: model_rate_limited", wait_s)
