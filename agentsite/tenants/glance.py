"""What one pass of a run asks of its tenant several times within a second is read once. Floor: no domain package.

Nothing that counts rests on it: switches and shadow mode are read again under a lock where a write is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from agentsite import clock, dbtime, statements

Found = TypeVar("Found")
KEPT_S = 1.0
STANDS = (
    "SELECT s.paused, s.paused_at, t.shadow, (SELECT CAST(p.document AS text) FROM tenants_agentprofile p "
    "WHERE p.tenant_id = %s AND p.agent = %s ORDER BY p.revision DESC LIMIT 1) FROM (SELECT 1 AS one) AS once "
    "LEFT JOIN tenants_site s ON s.id = 1 LEFT JOIN tenants_tenant t ON t.id = %s"
)
_known: ContextVar[dict[Hashable, tuple[float, Any]] | None] = ContextVar("known", default=None)


class Standing(NamedTuple):
    """How the site, a tenant and its agent stood at one moment; `profile`: the newest revision's stored text, None
    where the tenant has no such agent."""

    site_stopped: bool
    stopped_at: datetime | None
    shadow: bool
    profile: str | None


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


def tell(key: Hashable, found: object) -> None:
    """What was read just now for another reason is what `looked` finds; outside of a pass it is forgotten."""
    known = _known.get()
    if known is not None:
        known[key] = (clock.monotonic(), found)


def at(tenant_id: str, agent: str = "refunds") -> Standing:
    """Everything that a pass asks of its tenant, by one statement at the first question."""
    return looked(("tenant", tenant_id, agent), partial(_read, tenant_id, agent))


def again(tenant_id: str, agent: str = "refunds") -> Standing:
    """As `at`, but read at this moment, and what the rest of the pass goes by."""
    tell(("tenant", tenant_id, agent), found := _read(tenant_id, agent))
    return found


def _read(tenant_id: str, agent: str) -> Standing:
    with statements.cursor() as cursor:
        cursor.execute(STANDS, [tenant_id, agent, tenant_id])
        paused, paused_at, shadow, document = cursor.fetchone()
    return Standing(bool(paused), dbtime.moment(paused_at), bool(shadow), document)
