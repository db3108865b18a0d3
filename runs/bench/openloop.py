"""Requests sent at a fixed rate whatever comes back, each timed from the moment it was due. Imports the floor alone.

A client that waits for one answer before it asks again measures a slow server as an idle one; this one does not.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from agentsite import clock
from runs.bench.numbers import nearest

LENGTH = re.compile(rb"content-length: *([0-9]+)", re.I)
NO_ANSWER = 0
MAX_HEAD = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Of all requests, in milliseconds from the moment each was due: falling behind counts. `late_ms` is how late they
    were sent, at the 95th percentile: where it is large, the client and not the server was measured."""

    statuses: Mapping[int, int]
    took_ms: Sequence[float]
    late_ms: float

    def at(self, share: float) -> float:
        """The time within which so large a share was answered, by the nearest rank."""
        return nearest(self.took_ms, share)


def post(url: str, bodies: Sequence[bytes], *, headers: Mapping[str, str], rate: float, limit_s: float) -> Answers:
    """POSTs every body, `rate` a second, on as many connections as it takes. One that was not answered within
    `limit_s` seconds of its due moment counts under NO_ANSWER, like one whose connection broke."""
    return asyncio.run(_Client(url, headers, limit_s).send(bodies, rate))


@dataclass(kw_only=True)
class _Line:
    """One connection, kept open."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class _Client:
    def __init__(self, url: str, headers: Mapping[str, str], limit_s: float) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None and parts.port is not None, url
        self._host, self._port, self._limit_s = parts.hostname, parts.port, limit_s
        given = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n{given}"
        self._idle = list[_Line]()
        self._statuses, self._took_ms, self._late_ms = Counter[int](), list[float](), list[float]()

    async def send(self, bodies: Sequence[bytes], rate: float) -> Answers:
        began, under_way = clock.monotonic(), list[asyncio.Task[None]]()
        for number, body in enumerate(bodies):
            due = began + number / rate
            await asyncio.sleep(due - clock.monotonic())
            under_way.append(asyncio.create_task(self._one(body, due)))
        await asyncio.gather(*under_way)
        for line in self._idle:
            line.writer.close()
        return Answers(statuses=dict(self._statuses), took_ms=self._took_ms, late_ms=nearest(self._late_ms, 0.95))

    async def _one(self, body: bytes, due: float) -> None:
        self._late_ms.append((clock.monotonic() - due) * 1000)
        try:
            status = await asyncio.wait_for(self._exchange(body), due + self._limit_s - clock.monotonic())
        except (TimeoutError, OSError, EOFError, asyncio.LimitOverrunError):
            status = NO_ANSWER
        self._statuses[status] += 1
        self._took_ms.append((clock.monotonic() - due) * 1000)

    async def _exchange(self, body: bytes) -> int:
        """The answer's status, its body read to the end."""
        line = self._idle.pop() if self._idle else await self._open()
        line.writer.write(f"{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        head = await line.reader.readuntil(b"\r\n\r\n")
        length = LENGTH.search(head)
        await line.reader.readexactly(int(length[1]) if length else 0)
        self._idle.append(line)
        return int(head.split(b" ", 2)[1])

    async def _open(self) -> _Line:
        reader, writer = await asyncio.open_connection(self._host, self._port, limit=MAX_HEAD)
        return _Line(reader=reader, writer=writer)
