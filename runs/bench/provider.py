"""A process of its own: an OpenAI-compatible server that holds thousands of calls and answers each after its time.

    python -m runs.bench.provider --port 8123 --seconds 5 --hold 400

The first call of an order gets a read proposal, every further one a final. `--hold`: no call's time begins before so
many were under way at once. `GET /counts` tells what it saw. Imports the floor alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from agentsite import clock
from agentsite.private.processes import HOST

ORDER = re.compile(rb"\bbench-[0-9]{6}\b")
"""What the requests' prompts name: the order a call is about tells the first call of a run from its later ones."""
MODEL = "bench"
FINAL = "Thank you for your patience."
BACKLOG = 4096
Json = dict[str, Any]


@dataclass
class Counts:
    """Calls so far: asked, answered, under way now, and the most that ever were. Moments are monotonic, in seconds;
    `most_at` is when so many were first under way."""

    asked: int = 0
    answered: int = 0
    now: int = 0
    most: int = 0
    first_at: float = 0.0
    most_at: float = 0.0

    def begin(self) -> None:
        moment = clock.monotonic()
        self.first_at = self.first_at or moment
        self.asked += 1
        self.now += 1
        if self.now > self.most:
            self.most, self.most_at = self.now, moment


class Provider:
    """One event loop; a call costs a timer, no thread. `pieces`: in how many parts an answer is streamed."""

    def __init__(self, seconds: float, pieces: int, hold: int) -> None:
        self.seconds, self.pieces, self.hold = seconds, pieces, hold
        self.counts, self.known, self.full = Counts(), set[bytes](), asyncio.Event()

    async def serve(self, port: int) -> None:
        server = await asyncio.start_server(self._connected, HOST, port, backlog=BACKLOG)
        print(f"listening on {port}", flush=True)  # noqa: T201 - whoever started it waits for this line
        async with server:
            await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _request(reader)) is not None:
                await self._answer(request, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # counted: asked and never answered
        finally:
            writer.close()

    async def _answer(self, request: tuple[bytes, bytes], writer: asyncio.StreamWriter) -> None:
        path, body = request
        if path == b"/counts":
            return await _send(writer, "application/json", [json.dumps(asdict(self.counts)).encode()])
        return await self._call(body, writer)

    async def _call(self, body: bytes, writer: asyncio.StreamWriter) -> None:
        counts = self.counts
        counts.begin()
        if counts.now >= self.hold:
            self.full.set()
        try:
            await self.full.wait()
            asked = json.loads(body)
            if asked.get("stream") and self.pieces > 1:
                await self._stream(self._said(body), writer)
            else:
                await asyncio.sleep(self.seconds)
                await _whole(self._said(body), bool(asked.get("stream")), writer)
            counts.answered += 1
        finally:
            counts.now -= 1

    def _said(self, body: bytes) -> Json:
        """The message: a look at the order where this is the first call about it."""
        found = ORDER.search(body)
        order = found.group() if found else b""
        if order in self.known:
            return {"role": "assistant", "content": FINAL}
        self.known.add(order)
        arguments = json.dumps({"order_id": order.decode()})
        call = {"name": "get_order", "arguments": arguments}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": call}],
        }

    async def _stream(self, message: Json, writer: asyncio.StreamWriter) -> None:
        """The answer after as many pieces of thought, spread over its time."""
        pause = self.seconds / self.pieces
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        for _ in range(self.pieces):
            await asyncio.sleep(pause)
            writer.write(_piece(_event({"reasoning_content": " so"}, None)))
            await writer.drain()
        writer.write(b"".join(_piece(event) for event in _events(message)) + b"0\r\n\r\n")
        await writer.drain()


async def _request(reader: asyncio.StreamReader) -> tuple[bytes, bytes] | None:
    """(path, body); None where the client has hung up between two requests."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    length = re.search(rb"content-length: *([0-9]+)", head, re.I)
    body = await reader.readexactly(int(length.group(1))) if length else b""
    return head.split(b" ", 2)[1], body


async def _whole(message: Json, streamed: bool, writer: asyncio.StreamWriter) -> None:
    if streamed:
        return await _send(writer, "text/event-stream", list(_events(message)))
    choice = {"index": 0, "message": message, "finish_reason": _finish(message)}
    answer = {"id": "chatcmpl-1", "object": "chat.completion", "model": MODEL, "choices": [choice], "usage": USAGE}
    return await _send(writer, "application/json", [json.dumps(answer).encode()])


async def _send(writer: asyncio.StreamWriter, kind: str, parts: list[bytes]) -> None:
    body = b"".join(parts)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


USAGE = {"prompt_tokens": 2000, "completion_tokens": 20, "total_tokens": 2020}


def _finish(message: Json) -> str:
    return "tool_calls" if "tool_calls" in message else "stop"


def _events(message: Json) -> Iterator[bytes]:
    """A whole message as the events of its stream."""
    delta = {k: v for k, v in message.items() if v is not None}
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": 0, **call} for call in delta["tool_calls"]]
    yield _event(delta, None)
    yield _event({}, _finish(message))
    yield _data({"model": MODEL, "choices": [], "usage": USAGE})
    yield b"data: [DONE]\n\n"


def _event(delta: Json, finish: str | None) -> bytes:
    return _data({"model": MODEL, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _data(document: Json) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()


def _piece(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True, help="how long each call takes")
    parser.add_argument("--pieces", type=int, default=1, help="in how many parts an answer is streamed over its time")
    parser.add_argument("--hold", type=int, default=0, help="how many calls must be under way before any is answered")
    given = parser.parse_args()
    asyncio.run(Provider(given.seconds, given.pieces, given.hold).serve(given.port))


if __name__ == "__main__":
    main()
