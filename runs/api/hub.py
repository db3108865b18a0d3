"""Door: one poller a process for everybody who follows runs: a bounded queue a stream, a mark a long poll.

The database is the truth and is asked a few times a second, for all followers together; none of them holds a thread or
a connection. Writes no row; imports no zone.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import DatabaseError, InterfaceError, connections

from agentsite import telemetry
from runs.api import looks
from runs.api.looks import Frame, Look

T = TypeVar("T")
POLL_S = 0.25
QUEUE_FRAMES = 256
THREADS = 4


class Follower:
    """Whoever waits for one run. `ended` is set where it has waited enough, or was dropped."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.ended = asyncio.Event()

    def seen(self, look: Look | None) -> None:
        """The run as it is now; None where it is gone."""
        raise NotImplementedError

    def told(self, frames: list[Frame]) -> None:
        """What happened since the last time."""

    def finish(self) -> None:
        """There is nothing more to wait for."""
        self.ended.set()


class Stream(Follower):
    """Takes events; one that takes them too slowly is dropped and comes back with the last id it knows."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.frames: asyncio.Queue[Frame | None] = asyncio.Queue(QUEUE_FRAMES)

    def seen(self, look: Look | None) -> None:
        if look is None or look.ended:
            self.finish()

    def told(self, frames: list[Frame]) -> None:
        if self.frames.qsize() + len(frames) >= QUEUE_FRAMES:
            telemetry.count("live_streams_dropped")
            return self.ended.set()
        for frame in frames:
            self.frames.put_nowait(frame)
        return None

    def finish(self) -> None:
        """Nothing comes after what is in the queue."""
        if not self.ended.is_set() and not self.frames.full():
            self.frames.put_nowait(None)


class Wait(Follower):
    """Ends as soon as the run's mark is another one than this."""

    def __init__(self, run_id: str, mark: str) -> None:
        super().__init__(run_id)
        self.mark = mark

    def seen(self, look: Look | None) -> None:
        if look is None or look.mark != self.mark:
            self.ended.set()


class _Run:
    """One run that is followed: `head` is the last event its streams were told of."""

    def __init__(self, head: int) -> None:
        self.head = head
        self.followers: set[Follower] = set()

    @property
    def streamed(self) -> bool:
        return any(isinstance(follower, Stream) for follower in self.followers)


class Hub:
    """Everybody who follows a run in this process. All methods belong to one event loop."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._some = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="live")
        self.closed = False

    def join(self, follower: Follower, head: int) -> None:
        """Follow; `head` is a sequence number the run surely has reached, so that later events are told."""
        run = self._runs.setdefault(follower.run_id, _Run(head))
        run.followers.add(follower)
        if self._poller is None or self._poller.done():
            # Nothing of the request that happens to be first may live on in the poller: not its ids, not its thread.
            loop = asyncio.get_running_loop()
            self._poller = loop.create_task(self._poll(), name="live", context=contextvars.Context())
        self._some.set()
        if self.closed:
            follower.finish()

    def leave(self, follower: Follower) -> None:
        run = self._runs.get(follower.run_id)
        if run is None:
            return
        run.followers.discard(follower)
        if not run.followers:
            del self._runs[follower.run_id]

    def close(self) -> None:
        """The site ends: streams end here and go on elsewhere, long polls answer what they know."""
        self.closed = True
        for run in list(self._runs.values()):
            for follower in list(run.followers):
                follower.finish()

    async def read(self, ask: Callable[[], T]) -> T:
        """What a question to the database gives, from one of few threads that keep no connection."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, _asked, ask)

    async def _poll(self) -> None:
        while not self.closed:
            await self._some.wait()
            if not self._runs:
                self._some.clear()
                continue
            try:
                await self._look()
            except (DatabaseError, InterfaceError) as error:
                telemetry.log("live.look_failed", error=type(error).__name__)
                telemetry.count("live_looks_failed")
            await asyncio.sleep(POLL_S)

    async def _look(self) -> None:
        """One look at all runs that are followed. Whoever joins meanwhile is looked at the next time."""
        now = list(self._runs)
        found = await self.read(lambda: looks.look(now))
        heads = {run_id: run.head for run_id in found if (run := self._runs.get(run_id)) and run.streamed}
        moved = {run_id: head for run_id, head in heads.items() if found[run_id].last_seq > head}
        news = await self.read(lambda: looks.news(moved)) if moved else {}
        for run_id in now:
            self._tell(run_id, found.get(run_id), news.get(run_id, []))

    def _tell(self, run_id: str, look: Look | None, frames: list[Frame]) -> None:
        run = self._runs.get(run_id)
        if run is None:
            return
        run.head = max([run.head, *(frame.seq for frame in frames)])
        whole = look is None or not frames or run.head >= look.last_seq
        for follower in list(run.followers):
            if frames:
                follower.told(frames)
            if isinstance(follower, Wait) or whole:
                follower.seen(look)


def _asked(ask: Callable[[], T]) -> T:
    try:
        return ask()
    finally:
        connections.close_all()
