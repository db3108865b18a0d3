"""A TCP proxy that holds chosen connections still at chosen bytes, lets bytes arrive late, or swallows all. Threads.

A rule looks at what clients send. A connection that matches is held: `before`, its bytes do not reach the server;
`after`, they do and the server's answer does not come back. What is held ends with its client or with `let_go`.
A connection that lived while everything was swallowed stays half-open for good: nothing passes, and nobody is told.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from agentsite.private.processes import HOST

CHUNK = 65536
BEGIN, ENDS = b"BEGIN", (b"COMMIT", b"ROLLBACK")
COMMIT = ENDS[0]
PARSE, BIND, LONGEST = b"P", b"B", 1 << 24
"""What begins a message of PostgreSQL that prepares a statement under a name, and one that runs it by that name; the
next four bytes are its length."""


@dataclass(kw_only=True)
class Rule:
    """Hold the connection that sends `at`, once it has sent `mark` since it began its transaction.

    A statement outside of any transaction commits by itself: where `at` is COMMIT, it is held at its mark. A prepared
    one is sent by its name: it is held where its text has `at`, each time that it is run and not when it is prepared.

    skip: so many matches pass first. late_s: bytes held before the server reach it this long after their sender left;
    None: they never do.
    """

    at: bytes
    mark: bytes = b""
    after: bool = False
    most: int = 4
    skip: int = 0
    late_s: float | None = None
    held: list[_Link] = field(default_factory=list)


class Proxy:
    """Listens on a port of its own in front of one server."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._listener = socket.create_server((HOST, 0), backlog=200)
        self.port: int = self._listener.getsockname()[1]
        self.lock = threading.Lock()
        self.rule: Rule | None = None
        self.swallows = False
        self._links: set[_Link] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self, rule: Rule) -> Rule:
        """From now on; the rule's `held` grows."""
        with self.lock:
            self.rule = rule
        return rule

    def let_go(self) -> None:
        """No rule any more; what is still held is cut, at both ends."""
        with self.lock:
            rule, self.rule = self.rule, None
        for link in list(rule.held) if rule else []:
            if rule is not None and rule.late_s is None:
                link.cut()

    def swallow(self) -> None:
        """From now on no byte passes, either way, and no connection is closed or refused."""
        self.swallows = True
        for link in list(self._links):
            link.half_open = True

    def let_through(self) -> None:
        """New connections work again; those of the silence stay dead."""
        self.swallows = False

    def cut(self) -> None:
        """Every connection of this moment, as a network that breaks."""
        for link in list(self._links):
            link.cut()

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def in_front_of(self, url: str) -> str:
        """The same URL by way of this proxy."""
        parts = urlsplit(url)
        credentials, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{credentials}{at}{HOST}:{self.port}"))

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._upstream, timeout=5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        link = _Link(self, client, server)
        self._links.add(link)
        link.half_open = self.swallows
        link.run()
        self._links.discard(link)


class _Link:
    """One client's connection and ours to the server."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._marked = self._mute = self._begun = False
        self._prepared: dict[bytes, bytes] = {}
        self.half_open = False

    def run(self) -> None:
        back = threading.Thread(target=self._answers, daemon=True)
        back.start()
        with contextlib.suppress(OSError):
            self._requests()
        self.cut()
        back.join()

    def cut(self) -> None:
        for end in (self._client, self._server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(OSError):
                end.close()

    def _requests(self) -> None:
        while data := self._client.recv(CHUNK):
            if self.half_open:
                continue
            rule = self._met(data)
            if rule is None:
                self._server.sendall(data)
            else:
                self._hold(rule, data)
                return

    def _met(self, data: bytes) -> Rule | None:
        with self._proxy.lock:
            rule, run_by = self._proxy.rule, self._run_by(data)
            if BEGIN in data:
                self._marked, self._begun = False, True
            alone = not self._begun
            if any(end in data for end in ENDS):
                self._begun = False
            if rule is None:
                return None
            self._marked = self._marked or rule.mark in data
            meets = rule.at in run_by or (alone and rule.at == COMMIT and rule.mark and rule.mark in data)
            if not self._marked or not meets or len(rule.held) >= rule.most:
                return None
            if rule.skip > 0:
                rule.skip, self._marked = rule.skip - 1, False
                return None
            self._mute = rule.after
            rule.held.append(self)
            return rule

    def _run_by(self, data: bytes) -> bytes:
        """What these bytes have the server do: of a statement that is only prepared, nothing yet."""
        if int.from_bytes(data[1:5], "big") > LONGEST:
            return data  # a text, such as "POST"
        if data[:1] == PARSE:
            name, _, text = data[5:].partition(b"\0")
            self._prepared[name] = text
            return b"" if name else data
        if data[:1] == BIND:
            return data + self._prepared.get(data[5:].split(b"\0")[1], b"")
        return data

    def _hold(self, rule: Rule, data: bytes) -> None:
        """Until the client leaves; what it still sends belongs to the same request."""
        if rule.after:
            self._server.sendall(data)
        with contextlib.suppress(OSError):
            while more := self._client.recv(CHUNK):
                data += more
        if rule.late_s is not None:
            time.sleep(rule.late_s)
            self._server.sendall(data)
            time.sleep(1)  # for the server to read it: a closed connection may lose what it has not

    def _answers(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._server.recv(CHUNK):
                if not (self._mute or self.half_open):
                    self._client.sendall(data)
        if not self._mute:
            with contextlib.suppress(OSError):
                self._client.shutdown(socket.SHUT_RDWR)
