"""What came back over HTTP, as values: an answer whole, or its head with its body in pieces. Imports no client.

They decide nothing; what an answer means is its caller's to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

from agentsite import clock

MAX_RETRY_AFTER_S = 3600.0
SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer as it came; header names are in lower case, the body is whole and not decoded."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def retry_after_s(self) -> float | None:
        """Seconds its `Retry-After` names, as a number or an HTTP date, an hour at most; None where it names none."""
        return _retry_after_s(self.headers)


@dataclass(frozen=True, kw_only=True)
class Streamed:
    """The head of an answer, and its body in pieces as they come, not decoded; reading a piece raises HttpError."""

    status: int
    headers: Mapping[str, str]
    chunks: Iterator[bytes]

    @property
    def retry_after_s(self) -> float | None:
        return _retry_after_s(self.headers)


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    text = headers.get("retry-after", "").strip()
    if SECONDS.fullmatch(text):
        return min(float(text), MAX_RETRY_AFTER_S)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    # A date without a zone is one in UTC, as HTTP means it.
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return min(max(0.0, (aware - clock.now()).total_seconds()), MAX_RETRY_AFTER_S)
