"""The only now(). Unit tests turn it; no offset setting exists in production.

Leases and due times compare in *database* time (`runs.store`); this clock dates records and measures durations.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now() -> datetime:
    """The current time, aware, in UTC."""
    return datetime.now(UTC)


def monotonic() -> float:
    """Seconds on a clock that never steps; only differences mean anything."""
    return time.monotonic()


def rfc3339(moment: datetime) -> str:
    """An RFC 3339 string in UTC with milliseconds, such as `2026-11-29T12:00:00.000Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_rfc3339(text: str) -> datetime:
    """The aware time behind an RFC 3339 string. Raises ValueError, also for one without an offset."""
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    if moment.tzinfo is None:
        raise ValueError("a time needs an offset")
    return moment.astimezone(UTC)
