"""Door: event streams and long polls, in front of Django: a view grants one, here it is served when the view is over.

So the site asks who it is and answers problems as everywhere, and neither a thread nor a connection is held while a
client waits. Decides nothing; imports no zone and no store.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import DatabaseError, InterfaceError
from rest_framework.exceptions import Throttled

from agentsite import clock, env, telemetry
from runs.api import looks
from runs.api.asgi import App, Message, Receive, Scope, Send
from runs.api.hub import Hub, Stream, Wait

SLOT = "agentsite.live"
PATH = re.compile(r"/api/v1/runs/[^/]+(/events)?")
RETRY = b"retry: 2000\n\n"
BEAT = b":\n\n"
HEARTBEAT_S = 15.0
STREAM_S = 600.0
"""A stream ends after this long, so that its client shows again who it is; it goes on where it was."""
AT_ONCE = 8
"""Streams and long polls that Django is asked about at the same moment: a crowd of them leaves room for others."""
LAST_WORD_S = 1.0
RETRY_AFTER_S = 5


@dataclass(frozen=True, kw_only=True)
class Follow:
    """A view's leave to stream a run's events after a sequence number; `over` where the run had ended by then."""

    run_id: str
    after: int
    head: int
    over: bool


@dataclass(frozen=True, kw_only=True)
class Park:
    """A view's wish to be asked again when the run's mark is another one; `etag` is what the client knows."""

    run_id: str
    head: int
    mark: str
    etag: str
    seconds: float


class Seats:
    """How many follow at once in this process, by caller: a limit each, `STREAMS_PER_CALLER`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    def take(self, who: str) -> None:
        """Raises Throttled."""
        with self._lock:
            if self._taken[who] >= env.read().STREAMS_PER_CALLER:
                raise Throttled(RETRY_AFTER_S, "Too many streams and long polls are open.")
            self._taken[who] += 1

    def leave(self, who: str) -> None:
        with self._lock:
            self._taken[who] -= 1
            if not self._taken[who]:
                del self._taken[who]


SEATS = Seats()


class Slot:
    """Where a view and this module meet, in the request's scope: `wanted` is what the view grants."""

    def __init__(self) -> None:
        self.wanted: Follow | Park | None = None
        self.parked: Park | None = None
        self._who: str | None = None
        self._over, self._lock = False, threading.Lock()

    def sit(self, who: str) -> None:
        """Count this request among its caller's, once. Raises Throttled."""
        with self._lock:
            # A client that leaves ends the request at once; the view's thread may come here after that.
            if self._who is None and not self._over:
                SEATS.take(who)
                self._who = who

    def leave(self) -> None:
        """The request is over: its seat is free, and none is taken any more."""
        with self._lock:
            self._over = True
            if self._who is not None:
                SEATS.leave(self._who)
                self._who = None


def slot_of(request: object) -> Slot | None:
    """The slot of a Django request; None under a server that is not ours (WSGI, a test client)."""
    scope = getattr(request, "scope", None)
    return scope.get(SLOT) if isinstance(scope, dict) else None


def following(app: App, hub: Hub) -> App:
    """The application, with its streams and long polls served from one hub."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        if not _may_follow(scope):
            return await app(scope, receive, send)
        slot = scope[SLOT] = Slot()
        try:
            await _Visit(app, hub, turns, scope, slot, send).serve(receive)
        finally:
            slot.leave()
        return None

    return served


def _may_follow(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] != "GET" or not PATH.fullmatch(scope["path"]):
        return False
    accepts = any(b"text/event-stream" in value.lower() for name, value in scope["headers"] if name == b"accept")
    return accepts or b"wait=" in scope["query_string"]


class _Visit:
    """One request: Django's answer is kept back where the view wants it, and given later or replaced."""

    def __init__(self, app: App, hub: Hub, turns: asyncio.Semaphore, scope: Scope, slot: Slot, send: Send) -> None:
        self.app, self.hub, self.turns = app, hub, turns
        self.scope, self.slot, self.send = scope, slot, send
        self.kept: list[Message] = []

    async def serve(self, receive: Receive) -> None:
        if not await _body_is_read(receive):
            return None
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await self._ask(gone)
            while isinstance(self.slot.wanted, Park):
                if not await self._wait(self.slot.wanted, gone):
                    return await self._give()
                await self._ask(gone)
            if isinstance(self.slot.wanted, Follow) and self.kept:
                await self._stream(self.slot.wanted, gone)
        finally:
            gone.cancel()

    async def _ask(self, gone: asyncio.Future[None]) -> None:
        """Let Django answer; what it says goes out when its turn is over, unless the view asks to keep it.

        Not before: a client that does not read would keep the turn for as long as it likes.
        """
        self.slot.wanted, self.kept = None, []
        asked = False

        async def receive() -> Message:
            nonlocal asked
            if not asked:
                asked = True
                return {"type": "http.request", "body": b"", "more_body": False}
            await asyncio.shield(gone)
            return {"type": "http.disconnect"}

        async with self.turns:
            await self.app(self.scope, receive, self._keep)
        if self.slot.wanted is None:
            await self._give()

    async def _keep(self, message: Message) -> None:
        self.kept.append(message)

    async def _give(self) -> None:
        for message in self.kept:
            await self.send(message)

    async def _wait(self, park: Park, gone: asyncio.Future[None]) -> bool:
        """Whether to ask Django again: the run moved. Not where time is up, the client left or the site ends."""
        until = clock.monotonic() + park.seconds
        wait = Wait(park.run_id, park.mark)
        self.hub.join(wait, park.head)
        try:
            await _first(gone, wait.ended.wait(), timeout=park.seconds)
        finally:
            self.hub.leave(wait)
        left = until - clock.monotonic()
        self.slot.parked = Park(run_id=park.run_id, head=park.head, mark=park.mark, etag=park.etag, seconds=left)
        return wait.ended.is_set() and not gone.done() and not self.hub.closed and left > 0

    async def _stream(self, follow: Follow, gone: asyncio.Future[None]) -> None:
        start = dict(self.kept[0])
        if start["status"] != 200:
            await self._give()
            return
        start["headers"] = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
        stream = Stream(follow.run_id)
        self.hub.join(stream, follow.head)
        try:
            await self.send(start)
            await _first(gone, stream.ended.wait(), self._frames(follow, stream), timeout=STREAM_S)
        except (DatabaseError, InterfaceError) as error:
            telemetry.log("live.replay_failed", run_id=follow.run_id, error=type(error).__name__)
        finally:
            self.hub.leave(stream)
        with suppress(TimeoutError):  # who does not read has no last word
            await asyncio.wait_for(self.send({"type": "http.response.body"}), LAST_WORD_S)

    async def _frames(self, follow: Follow, stream: Stream) -> None:
        """The record after what the client knows, then what the hub tells; returns after the run's last event."""
        await self._say(RETRY)
        last, more = follow.after, True
        while more:
            page, more = await self.hub.read(partial(looks.replay, follow.run_id, last))
            if page:
                last = page[-1].seq
                await self._say(b"".join(frame.text for frame in page))
        while not follow.over:
            try:
                frame = await asyncio.wait_for(stream.frames.get(), HEARTBEAT_S)
            except TimeoutError:
                await self._say(BEAT)
                continue
            if frame is None:
                return
            if frame.seq > last:
                await self._say(frame.text)
                last = frame.seq

    async def _say(self, text: bytes) -> None:
        await self.send({"type": "http.response.body", "body": text, "more_body": True})


async def _first(gone: asyncio.Future[None], *works: Coroutine[Any, Any, object], timeout: float) -> None:
    """Return when the client left, a work is over or time is; works are cancelled then. Raises what they raise."""
    tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait((gone, *tasks), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


async def _body_is_read(receive: Receive) -> bool:
    """Whether the request came whole; a body has no meaning here."""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return False
        if not message.get("more_body", False):
            return True


async def _gone(receive: Receive) -> None:
    """Ends when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
