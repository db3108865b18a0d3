"""What one pass of a run asks of its tenant several times within a second is read once. Floor: no domain package.

Nothing that counts rests on it: switches and shadow mode are read again under a lock where a write is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from agentsite import clock

Found = TypeVar("Found")
KEPT_S = 1.0
_known: ContextVar[dict[Hashable, tuple[float, Any]] | None] = ContextVar("known", default=None)


@contextmanager
def of_one_pass() -> Iterator[None]:
    """Within this block, in this thread, what `looked` found holds for KEPT_S seconds."""
    before = _known.set({})
    try:
        yield
    finally:
        _known.reset(before)


def looked(key: Hashable, read: Callable[[], Found]) -> Found:
    """What `read` finds under this key, now or a moment ago in the same pass; outside of one always now."""
    known, now = _known.get(), clock.monotonic()
    if known is None:
        return read()
    at, found = known.get(key, (0.0, None))
    if key in known and now - at < KEPT_S:
        return found  # type: ignore[no-any-return]
    known[key] = (now, fresh := read())
    return fresh
