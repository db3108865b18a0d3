"""A host on which somebody else builds a tenant's first index, for as long as a test wants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agentsite.private.processes import wait_until
from tools.policy import index, shelf

STUCK_S = 30.0


@contextmanager
def building(tenant_id: str, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Holds the builder's lock; nobody waits for him longer than a moment."""
    held: list[shelf.Lock] = []
    # A thread that an earlier test left behind may still be about to end.
    assert wait_until(lambda: _taken(tenant_id, held), STUCK_S), "somebody builds it"
    try:
        with patch.context() as within:  # afterwards everybody is as patient as ever
            within.setattr(index, "POLLS", 2)
            yield
    finally:
        held[0].release()


def _taken(tenant_id: str, held: list[shelf.Lock]) -> bool:
    lock = shelf.try_lock(tenant_id)
    if lock is not None:
        held.append(lock)
    return lock is not None
