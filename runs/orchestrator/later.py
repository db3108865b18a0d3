"""What a handler returns besides an outcome: come again in a moment, or send the write now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tools.contracts import Release


@dataclass(frozen=True, kw_only=True)
class Later:
    """Release the run without a transition, due in so many seconds."""

    due_in_s: float


@dataclass(frozen=True, kw_only=True)
class Send:
    """The write may go out now; `resend` is a fresh release where it is not the first attempt."""

    resend: Release | None = None


def until(now: datetime, then: datetime) -> Later:
    return Later(due_in_s=max(0.05, (then - now).total_seconds()))
