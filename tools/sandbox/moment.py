"""Times of the sandbox: RFC 3339 in UTC with microseconds."""

import time
from datetime import UTC, datetime

from tools.sandbox.refusals import invalid


def now_s() -> float:
    """Seconds since the epoch, for lags and key lives."""
    return time.time()


def now_text() -> str:
    """This moment on the wire."""
    return _text(datetime.now(UTC))


def parse_moment(value: str, field: str) -> str:
    """A given moment in the one form; raises `Refused` 400 where it is none or has no zone."""
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise invalid(f"{field}: an RFC 3339 time is expected")
    return _text(moment.astimezone(UTC))


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
