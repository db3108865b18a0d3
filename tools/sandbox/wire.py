"""The sockets: reads a request, sends an answer whole or spoilt; decides nothing."""

import os
import socket
import struct
import time
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from tools.sandbox.exchange import Answer, Request, refusal
from tools.sandbox.refusals import Refused

BODY_LIMIT = 1_000_000
"""Bytes of a request body."""


class Wire(BaseHTTPRequestHandler):
    """One connection, kept alive over many requests."""

    protocol_version = "HTTP/1.1"
    server_version = "sandbox"
    timeout = 120
    # Head and body leave in one segment and at once; else every answer on a kept connection waits for a delayed ACK.
    wbufsize = -1
    disable_nagle_algorithm = True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the standard library refuses by itself (a malformed request line) is JSON too."""
        self.close_connection = True
        self.send(refusal(Refused(code, "bad-request", message or "")))

    def log_message(self, format: str, *args: object) -> None:
        """Silent: `GET /_calls` is the log."""

    def received(self, *, body: bool = True) -> Request:
        """The request as a value; without `body` nothing beyond the head is read."""
        parts = urlsplit(self.path)
        scheme, _, token = (self.headers.get("Authorization") or "").partition(" ")
        return Request(
            method=self.command,
            path=parts.path,
            query=parts.query,
            bearer=token.strip() if scheme.lower() == "bearer" else None,
            key=self.headers.get("Idempotency-Key"),
            trace_id=self._trace_id(),
            raw=self._read_body() if body else b"",
        )

    def _trace_id(self) -> str | None:
        # It goes back into a header, so a folded one must not bring its line breaks along.
        trace_id = self.headers.get("X-Trace-Id") or ""
        return trace_id if 0 < len(trace_id) <= 200 and trace_id.isprintable() else None

    def _read_body(self) -> bytes | Refused:
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not (length.isascii() and length.isdigit()):
            return self._unread(Refused(411, "length-required", "a Content-Length is expected"))
        if len(length) > 9 or int(length) > BODY_LIMIT:
            return self._unread(Refused(413, "body-too-large", f"{BODY_LIMIT} bytes at most"))
        raw = self.rfile.read(int(length))
        if len(raw) < int(length):
            raise ConnectionAbortedError("the client left in the middle of its body")
        return raw

    def _unread(self, refused: Refused) -> Refused:
        # What was not read would be taken for the next request.
        self.close_connection = True
        return refused

    def send(self, answer: Answer, sent: int | None = None) -> None:
        """Head and body; of the body only the first `sent` bytes, whatever the head promises."""
        bare = answer.status in (204, 304) or getattr(self, "command", None) == "HEAD"
        self.send_response(answer.status)
        if not bare:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer.body)))
        self._send_further_headers(answer.status)
        self.end_headers()
        self.wfile.write(b"" if bare else answer.body[:sent])
        self.wfile.flush()

    def _send_further_headers(self, status: int) -> None:
        trace_id = self._trace_id() if hasattr(self, "headers") else None
        if trace_id:
            self.send_header("X-Trace-Id", trace_id)
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        if self.close_connection:
            self.send_header("Connection", "close")

    def drip(self, body: bytes, seconds: float) -> None:
        """A byte at a time: no single read of the client waits long, the whole takes `seconds`."""
        for position in range(len(body)):
            time.sleep(seconds / len(body))
            self.wfile.write(body[position : position + 1])
            self.wfile.flush()

    def reset(self) -> None:
        """Closes so that the client's kernel sees a reset and not an end."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # The reader and the writer hold the socket open beyond its close(); the descriptor itself has to go.
        os.close(self.connection.detach())
