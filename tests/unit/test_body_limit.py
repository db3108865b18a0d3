"""The ASGI door stops a body that is too large before it is stored anywhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from agentsite.asgi import limit_bodies

Message = Mapping[str, Any]


def served(chunks: list[bytes], *, length: int | None = None, limit: int = 10) -> tuple[int, list[bytes], bytes]:
    """(status, what reached the application, the reply) of one request sent in chunks."""
    reached: list[bytes] = []
    sent: list[Message] = []

    async def app(
        scope: dict[str, Any], receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        more = True
        while more:
            message = await receive()
            reached.append(message["body"])
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    waiting = list(chunks)

    async def receive() -> Message:
        body = waiting.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(waiting)}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"content-length", str(length).encode())] if length is not None else []

    async def serve() -> None:
        await limit_bodies(app, limit)({"type": "http", "headers": headers}, receive, send)

    asyncio.run(serve())
    return sent[0]["status"], reached, sent[1]["body"]


def test_body_within_the_limit_reaches_the_application() -> None:
    assert served([b"12345", b"67890"], length=10) == (200, [b"12345", b"67890"], b"done")


def test_body_that_names_too_great_a_length_is_refused_unread() -> None:
    status, reached, reply = served([b"x"], length=11)
    assert (status, reached, json.loads(reply)["type"]) == (413, [], "body-too-large")


def test_body_that_grows_past_the_limit_is_refused_without_a_length() -> None:
    status, reached, reply = served([b"12345", b"678901", b"never"])
    assert (status, reached, json.loads(reply)["type"]) == (413, [b"12345"], "body-too-large")
