"""Ends a run that no code can load any more. Part of the store; the only status change without a RunState."""

from __future__ import annotations

from django.db import transaction

from agentsite import dbtime
from approvals import queue
from runs.contracts import NewEvent
from runs.models import OPEN_WRITES, Run, Write
from runs.states import On, Status, next_status
from runs.store import events
from runs.store.lease import release

NEEDED = ("status", "version", "lease_token", "last_seq", "chain_head")


def fail_unloadable(run_id: str, token: str, why: str) -> Status | None:
    """`failed` with reason `schema_unknown`. While a write of it is open the run is kept and comes back (None).

    A release that can read it may go on then; else the write's own timer, looked at each time, settles the write.
    """
    if Write.objects.filter(run_id=run_id, state__in=OPEN_WRITES).exists():
        release(run_id, token, 60.0)
        return None
    with transaction.atomic():
        # Only what is needed: a column that cannot be read must not keep the run from ending.
        row = Run.objects.select_for_update().only(*NEEDED).get(id=run_id)
        if row.lease_token != token:
            return None
        to = next_status(Status(row.status), On.FAILED)
        queue.void(run_id, "run_failed")
        meta = {"from": row.status, "to": to.value, "reason": "schema_unknown", "error": why}
        here = events.Position(seq=row.last_seq, head=row.chain_head)
        position = events.append(run_id, here, row.version + 1, [NewEvent(type="run.status", meta=meta)])
        Run.objects.filter(id=run_id).update(
            status=to.value, reason="schema_unknown", outcome=_outcome(run_id), version=row.version + 1,
            last_seq=position.seq, chain_head=position.head, due_at=None, lease_token=None, lease_until=None,
            waiting_for=None, completed_at=dbtime.now(), updated_at=dbtime.now(),
        )  # fmt: skip
    return to


def looks_due(run_id: str) -> list[str]:
    """Keys of the run's open writes whose timer has come; of the write's own columns alone."""
    due = Write.objects.filter(run_id=run_id, state__in=OPEN_WRITES, look_at__lte=dbtime.now())
    return list(due.values_list("key", flat=True))


def _outcome(run_id: str) -> str:
    """What was refunded stays told, whoever takes the run over."""
    states = set(Write.objects.filter(run_id=run_id).values_list("state", flat=True))
    if "confirmed" in states:
        return "partly_refunded"
    return "refund_failed" if "failed" in states else "handed_to_staff"
