"""Door: how often one link may be read and written through. Counts are kept per process: a brake, no security limit."""

from __future__ import annotations

import uuid
from math import ceil

from rest_framework.throttling import SimpleRateThrottle

RATES = {"read": "240/min", "write": "20/min"}


class LinkThrottle(SimpleRateThrottle):
    """Counts what is done through one run's link."""

    def __init__(self, run_id: uuid.UUID, kind: str) -> None:
        self.rate = RATES[kind]
        self.num_requests, self.duration = self.parse_rate(self.rate)
        self._key = f"customer-{kind}-{run_id.hex}"

    def get_cache_key(self, request: object, view: object) -> str:
        return self._key


def wait_s(run_id: uuid.UUID, kind: str) -> int | None:
    """Seconds to wait before another `read` or `write` through this run's link; None: go ahead."""
    brake = LinkThrottle(run_id, kind)
    if brake.allow_request(None, None):  # type: ignore[arg-type]  # the key is made of the link alone
        return None
    return max(1, ceil(brake.wait() or 1))
