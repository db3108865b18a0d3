"""A loopback HTTP server whose every answer a test writes itself, faults of the wire included."""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Call:
    """One request as it arrived; header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class Wire(BaseHTTPRequestHandler):
    """One connection; what is sent is up to the answer of the test."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        server = self.server
        assert isinstance(server, Loopback)
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        server.calls.append(Call(self.command, self.path, headers, body))
        server.answer_to(self.path)(self)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    def bytes_back(self, status: int, body: bytes, length: int | None = None, more: Headers = ()) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in more:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


Answer = Callable[[Wire], None]


def ok(document: Any, status: int = 200, more: Headers = ()) -> Answer:
    return lambda wire: wire.bytes_back(status, json.dumps(document).encode(), more=more)


def raw(body: bytes, status: int = 200) -> Answer:
    return lambda wire: wire.bytes_back(status, body)


def cut(document: Any, status: int = 200) -> Answer:
    """Half a body under a whole Content-Length, then the end of the connection."""

    def answer(wire: Wire) -> None:
        body = json.dumps(document).encode()
        wire.bytes_back(status, body[: len(body) // 2], length=len(body))
        wire.close_connection = True

    return answer


def reset(wire: Wire) -> None:
    """No answer: the client's kernel sees a reset."""
    wire.close_connection = True
    wire.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.rfile.close()
    wire.wfile.close()
    wire.connection.close()


def slow(seconds: float, then: Answer) -> Answer:
    def answer(wire: Wire) -> None:
        time.sleep(seconds)
        try:
            then(wire)
        except OSError:
            wire.close_connection = True

    return answer


def dripped(document: Any, *, every_s: float, head: bool = False) -> Answer:
    """A byte at a time, the body or all of it: no single read of the client waits long."""

    def answer(wire: Wire) -> None:
        body = json.dumps(document).encode()
        first = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
        wire.close_connection = True
        try:
            if not head:
                wire.wfile.write(first)
            for byte in first + body if head else body:
                wire.wfile.write(bytes([byte]))
                wire.wfile.flush()
                time.sleep(every_s)
        except OSError:
            pass

    return answer


class Loopback(ThreadingHTTPServer):
    """Answers by path prefix, longest first; a list of answers is used up one by one, the last one stays."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Wire)
        self.calls: list[Call] = []
        self._answers: dict[str, list[Answer]] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is what these tests are about."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def on(self, prefix: str, *answers: Answer) -> None:
        with self._lock:
            self._answers[prefix] = list(answers)

    def answer_to(self, target: str) -> Answer:
        with self._lock:
            prefix = max((p for p in self._answers if target.startswith(p)), key=len, default=None)
            if prefix is None:
                return ok({"error": "not-found"}, 404)
            answers = self._answers[prefix]
            return answers.pop(0) if len(answers) > 1 else answers[0]

    def targets(self) -> list[str]:
        return [call.target for call in self.calls]


def closed_port() -> str:
    """A URL where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"
