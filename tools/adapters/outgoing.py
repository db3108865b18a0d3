"""POSTs a message to a program outside, of whose answer the head alone counts. It follows no redirect."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from agentsite import telemetry
from tools.adapters.http import Client, HttpError

MAX_ANSWER = 16_384


@dataclass(frozen=True, kw_only=True)
class Taken:
    """The head of an answer; `retry_after_s` is 0 where it names none."""

    status: int
    retry_after_s: float


def post(client: Client, url: str, *, headers: Mapping[str, str], body: bytes, timeout_s: float) -> Taken:
    """One JSON message, within `timeout_s` seconds in all. Raises HttpError where no head came.

    A little of the body is read, so that the connection ends well; whatever happens there changes nothing.
    """
    parent = telemetry.traceparent()  # of the run it tells of
    sent = {**headers, "content-type": "application/json", **({"traceparent": parent} if parent else {})}
    with client.stream(
        "POST", url, headers=sent, timeout_s=timeout_s, silence_s=timeout_s, body=body, max_bytes=MAX_ANSWER
    ) as answer:
        taken = Taken(status=answer.status, retry_after_s=answer.retry_after_s or 0.0)
        with suppress(HttpError):
            for _ in answer.chunks:
                pass
    return taken
