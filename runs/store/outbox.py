"""Leaves a webhook with the very transition or correction it tells of. Part of the store; imports no zone.

Every path that moves a run, or corrects one that ended, goes through `events.move`, which calls this: none can forget.
The body is made once, of what a client may see anyway; no field of staff is in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from django.db import transaction

from agentsite import addresses, clock, dbtime, queues, statements
from approvals.models import Approval
from runs import reply
from runs.models import Run, Webhook, new_id
from runs.store.inserts import EventRow
from runs.store.lease import raw_id
from runs.store.tell import story

TOLD_STATUSES = frozenset({"awaiting_approval", "waiting_reply", "completed", "escalated", "cancelled", "failed"})
# An expiry is told of by its own event: a run with a confirmed refund goes back to `verified` by it.
TOLD_EVENTS = {
    "approval.expired": "run.approval_expired", "run.corrected": "run.corrected", "run.resolved": "run.resolved",
}  # fmt: skip
ASKING = ("run.awaiting_approval", "run.approval_expired")
UNREADABLE = (AttributeError, KeyError, TypeError, ValueError)
"""What telling a story raises where a row's columns hold what no code of ours wrote."""
MAX_KNOWN = 20_000
_uncalled: set[str] = set()
"""Runs without a `callback_url` that this process has met; beyond so many it begins anew."""
# Only what is needed: a column that cannot be read must not keep a run from ending.
NEEDED = (
    "tenant_id", "request_id", "trace_id", "agent", "callback_url", "status", "waiting_for", "outcome", "reason",
    "version", "reply", "approval_id",
)  # fmt: skip


def kind_of(type_: str, meta: Any) -> str | None:
    """The type of the webhook that tells of an event; None for an event that no client is called about."""
    if type_ == "run.status":
        return f"run.{meta['to']}" if meta["to"] in TOLD_STATUSES else None
    return TOLD_EVENTS.get(type_)


def leave(run_id: str, happened: Sequence[EventRow]) -> None:
    """A row for each event that the run's client is called about, in the caller's transaction, after its changes."""
    told = [(event, kind) for event in happened if (kind := kind_of(event.type, event.meta)) is not None]
    if not told or not _is_called(run_id):
        return
    run = Run.objects.only(*NEEDED).get(id=run_id)
    now, message = dbtime.now(), _message(run)
    rows = [
        Webhook(
            id=f"msg_{new_id().hex}", run_id=run.id, tenant_id=run.tenant_id, type=kind, seq=event.seq,
            url=run.callback_url, host=addresses.place(run.callback_url)[:270], due_at=now, created_at=now,
            body=_body(run, event, kind, message),
        )
        for event, kind in told
    ]  # fmt: skip
    Webhook.objects.bulk_create(rows)
    transaction.on_commit(queues.nudge_deliver, robust=True)


def _is_called(run_id: str) -> bool:
    """Whether the client is called at all: an address never comes later, so of most runs a process asks once."""
    if run_id in _uncalled:
        return False
    with statements.cursor() as cursor:
        cursor.execute("SELECT callback_url FROM runs_run WHERE id = %s", [raw_id(run_id)])
        row = cursor.fetchone()
    if row is None or row[0]:
        return True
    know(run_id, row[0])
    return False


def is_asked(run_id: str, types: Iterable[tuple[str, Any]]) -> bool:
    """Whether `leave` will ask for the run's address, of events by type and meta: a statement may bring it before."""
    return run_id not in _uncalled and any(kind_of(type_, meta) for type_, meta in types)


def know(run_id: str, callback_url: str) -> None:
    """Remember in this process that a run has no address to call, so that nobody need ask for it."""
    if not callback_url:
        if len(_uncalled) >= MAX_KNOWN:
            _uncalled.clear()
        _uncalled.add(run_id)


def _body(run: Run, event: EventRow, kind: str, message: str) -> str:
    data = {
        "run_id": str(run.id), "request_id": run.request_id, "trace_id": run.trace_id, "tenant_id": run.tenant_id,
        "agent": run.agent, "seq": event.seq, "version": run.version, "status": run.status,
        "waiting_for": run.waiting_for, "outcome": run.outcome, "reason": run.reason, "customer_message": message,
        "reply": run.reply,
    }  # fmt: skip
    if kind in ASKING:
        data["approval"] = _approval(run.approval_id)
    if kind in ("run.corrected", "run.resolved"):
        data["previous_outcome"] = event.meta.get("from")
    return json.dumps({"type": kind, "timestamp": clock.rfc3339(event.at), "data": data}, separators=(",", ":"))


def _approval(approval_id: str | None) -> dict[str, str] | None:
    """What a client sees of the question, without anybody of staff."""
    row = Approval.objects.filter(id=approval_id).first() if approval_id else None
    if row is None:
        return None
    return {
        "approval_id": row.id, "status": row.status, "action_hash": row.action_hash,
        "expires_at": clock.rfc3339(row.expires_at),
    }  # fmt: skip


def _message(run: Run) -> str:
    """What the customer may be told at this moment; of a run that cannot be read, that it is not finished."""
    try:
        return reply.customer_message(story(str(run.id)))
    except UNREADABLE:
        return reply.LEADS.get(run.status, reply.LEADS["gathering"])
