"""Earlier resolved cases of a tenant as precedents: what was done once, never a fact of another run. Writes nothing."""

from __future__ import annotations

from tools.contracts import Json


def like(tenant_id: str, customer_id: str, run_id: str, query: str) -> list[Json]:
    """Resolved cases whose request is like the query, best first, at most MOST_PASSAGES; never the run that asks."""
    return []


def of_session(tenant_id: str, customer_id: str, session_id: str, run_id: str) -> list[Json]:
    """Earlier ended runs of the same customer's session, the newest first."""
    return []
