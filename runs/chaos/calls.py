"""Door: one HTTP call of somebody outside, with JSON both ways. Imports the client module alone; knows no path."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tools.adapters import http
from tools.adapters.http import Reply

TIMEOUT_S = 20.0
MAX_BYTES = 50_000_000


class NoAnswer(Exception):
    """The other side is away, or did not answer in time; it may have acted."""


class Refused(Exception):
    """An answer nobody expects of a whole site or sandbox; the message holds status and body."""


def call(method: str, url: str, *, headers: Mapping[str, str] | None = None, body: Any = None) -> Reply:
    """One exchange; a body is sent as JSON. Raises NoAnswer."""
    if body is None:
        return send(method, url, headers or {}, None)
    return send(method, url, {**(headers or {}), "Content-Type": "application/json"}, json.dumps(body).encode())


def send(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
    """One exchange with the bytes given. Raises NoAnswer."""
    try:
        return http.shared().request(
            method, url, headers=headers, timeout_s=TIMEOUT_S, body=body, max_bytes=MAX_BYTES
        )  # fmt: skip
    except http.HttpError as error:
        raise NoAnswer(f"{method} {url}: {error}") from None


def document(reply: Reply, *statuses: int) -> Any:
    """The answer's JSON. Raises Refused where its status is none of these (200 alone by default)."""
    if reply.status not in (statuses or (200,)):
        raise Refused(f"{reply.status} {reply.body[:300]!r}")
    return json.loads(reply.body)
