"""Freshness incidents for the owner of a tenant's policies: one open row a pinned version, counted. Never imports runs.

A run raises one in the transaction in which it abstains, so that neither is there without the other.
"""

from __future__ import annotations

from django.db.models import F

from agentsite import clock
from tools.models import PolicyIncident
from tools.policy.freshness import policy_state

MAX_OWNER = 254


def abstained(tenant_id: str, pin: str, run_id: str, owner: str) -> None:
    """A run handed its case to staff because of its policy: counted where the pinned version is not in effect.

    Where it is, the run rested on something else that was not: that is no incident of the pin.
    """
    state = policy_state(tenant_id, pin)
    if state.current == state.pinned:
        return
    now = clock.now()
    opened = PolicyIncident(
        tenant_id=tenant_id, doc_id=state.doc, pinned=state.pinned, runs=0, owner=owner[:MAX_OWNER],
        last_run_id=run_id, first_seen_at=now, last_seen_at=now,
    )  # fmt: skip
    # Two at once: the second waits for the first one's commit, finds its row and counts up. One that is closed
    # meanwhile is left as it is, and the next run's opens another.
    PolicyIncident.objects.bulk_create([opened], ignore_conflicts=True)
    PolicyIncident.objects.filter(
        tenant_id=tenant_id, doc_id=state.doc, pinned=state.pinned, closed_at__isnull=True
    ).update(runs=F("runs") + 1, current=state.current, owner=owner[:MAX_OWNER], last_run_id=run_id, last_seen_at=now)
