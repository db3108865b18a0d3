"""A circuit breaker as tests drive it: made to fail, asked, and set back in time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from agentsite import dbtime, env
from tools import breaker
from tools.models import Breaker

DEPENDENCY, ACCOUNT = "business_system", "t_acme_in@https://shop.example"
N = 3
COOL_S = 5.0
FAST = {
    "BREAKER_FAILURES": str(N), "BREAKER_COOL_S": str(COOL_S), "BREAKER_MAX_COOL_S": "60", "CALL_TIMEOUT_S": "0.5",
    "WRITE_TIMEOUT_S": "0.5", "T_READ": "r-1", "T_WRITE": "w-1",
}  # fmt: skip


@contextmanager
def shortened() -> Iterator[pytest.MonkeyPatch]:
    """Few failures, short calls, two credentials; the patch may change more."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in FAST.items():
            patch.setenv(name, value)
        env.read.cache_clear()
        yield patch
    env.read.cache_clear()


def allowed(account: str = ACCOUNT, **how: Any) -> breaker.Permit:
    asked = breaker.allow(DEPENDENCY, account, **how)
    assert isinstance(asked, breaker.Permit), asked
    return asked


def kept_back(account: str = ACCOUNT, **how: Any) -> float:
    """Seconds a caller is told to wait; fails where he is let through."""
    asked = breaker.allow(DEPENDENCY, account, **how)
    assert isinstance(asked, breaker.Open), asked
    return asked.retry_in_s


def fail(times: int = N, account: str = ACCOUNT, retry_after_s: float | None = None) -> None:
    for _ in range(times):
        breaker.failed(allowed(account), retry_after_s)


def time_goes_by(seconds: float) -> None:
    """For every breaker: its times lie so much further back."""
    ago = timedelta(seconds=seconds)
    for row in Breaker.objects.all():
        times = {n: getattr(row, n) for n in ("opened_at", "open_until", "probe_until") if getattr(row, n)}
        Breaker.objects.filter(pk=row.pk).update(**{name: at - ago for name, at in times.items()})


def state(account: str = ACCOUNT) -> tuple[str, int]:
    row = Breaker.objects.get(dependency=DEPENDENCY, account=account)
    return breaker.state(row, dbtime.now()), row.failures
