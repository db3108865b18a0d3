"""Roof: the ASGI application, behind a limit on the size of a body (the framework spools a body before it asks), with
its streams and long polls served beside Django."""

from __future__ import annotations

import json
import os
import uuid
import warnings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentsite.settings")

from django.conf import settings
from django.core.asgi import get_asgi_application

from runs.api.asgi import App, Message, Receive, Scope, Send

# Static files are few, small and read from disk: that WhiteNoise hands them over synchronously is no news.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")

PROBLEM = {"type": "body-too-large", "title": "The body is too large.", "status": 413}


class BodyTooLarge(Exception):
    """A client sent more than the limit, whatever length it named."""


def limit_bodies(app: App, limit: int) -> App:
    """The application, answering 413 to a body of more than `limit` bytes before it is stored anywhere."""

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await app(scope, receive, send)
        if _named_length(scope) > limit:
            return await _refuse(send)
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await app(scope, _counted(receive, limit), sending)
        except BodyTooLarge:
            if not started:
                await _refuse(send)
        return None

    return limited


def _named_length(scope: Scope) -> int:
    named = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    return int(named) if named.isdigit() else 0


def _counted(receive: Receive, limit: int) -> Receive:
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > limit:
            raise BodyTooLarge
        return message

    return counted


async def _refuse(send: Send) -> None:
    trace_id = uuid.uuid4().hex
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"connection", b"close"),
        (b"x-trace-id", trace_id.encode()),
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps({**PROBLEM, "trace_id": trace_id}).encode()})


_django = get_asgi_application()

from runs.api.hub import Hub  # noqa: E402 - it knows rows, so Django comes first
from runs.api.live import following  # noqa: E402

hub = Hub()
application: App = limit_bodies(following(_django, hub), settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
