"""A client of event streams over a bare socket, as EventSource reads them. Imports nothing of ours and no Django."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]
RETRY_S = 0.2


@dataclass(frozen=True, slots=True)
class Got:
    """One event as it arrived; `at` on this process's monotonic clock."""

    seq: int
    type: str
    data: Json
    at: float


class Answer:
    """A response whose body is read as it comes, chunked or to its length."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.status, self.headers = 0, dict[str, str]()

    async def head(self) -> None:
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}

    async def chunk(self) -> bytes:
        """The next piece of the body; empty at its end. Raises IncompleteReadError where the server broke off."""
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return await self.reader.read() if self.status != 204 else b""
        size = int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16)
        data = await self.reader.readexactly(size + 2)
        return data[:-2]

    async def body(self) -> bytes:
        if length := self.headers.get("content-length"):
            return await self.reader.readexactly(int(length))
        found = b""
        while piece := await self.chunk():
            found += piece
        return found

    async def close(self) -> None:
        self.writer.close()


async def ask(url: str, **headers: str) -> Answer:
    """A GET; returns with the head of its answer. Raises OSError, IncompleteReadError."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    lines = [f"GET {target} HTTP/1.1", f"Host: {parts.netloc}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    answer = Answer(reader, writer)
    await answer.head()
    return answer


class Follower:
    """Follows one run through every broken connection, as EventSource does, until the server says 204."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token
        self.got: list[Got] = []
        self.connections, self.beats, self.opened = 0, 0, asyncio.Event()
        self.broken = 0

    @property
    def last(self) -> int:
        return self.got[-1].seq if self.got else 0

    def seen(self, kind: str) -> bool:
        return any(event.type == kind for event in self.got)

    async def follow(self) -> None:
        while True:
            try:
                if not await self.once():
                    return
            except (OSError, asyncio.IncompleteReadError):
                self.broken += 1
            await asyncio.sleep(RETRY_S)

    async def once(self) -> bool:
        """One connection to its end; False where the server has nothing more."""
        known = {"Last_Event_ID": str(self.last)} if self.got else {}
        answer = await ask(self.url, Accept="text/event-stream", Authorization=f"Bearer {self.token}", **known)
        try:
            if answer.status == 204:
                return False
            assert answer.status == 200, (answer.status, await answer.body())
            self.connections += 1
            self.opened.set()
            await self._read(answer)
            return True
        finally:
            await answer.close()

    async def _read(self, answer: Answer) -> None:
        rest = b""
        while piece := await answer.chunk():
            *frames, rest = (rest + piece).split(b"\n\n")
            for frame in frames:
                self._take(frame.decode())

    def _take(self, frame: str) -> None:
        fields = dict(line.split(": ", 1) for line in frame.split("\n") if ": " in line)
        if "data" in fields:
            data = json.loads(fields["data"])
            self.got.append(Got(int(fields["id"]), fields["event"], data, time.monotonic()))
        elif frame.startswith(":"):
            self.beats += 1
