"""A late look at an open write whose run has ended: settles it or puts it off; never sends anything."""

from __future__ import annotations

from datetime import timedelta

from agentsite import dbtime, telemetry
from runs.backends import backend_of
from runs.contracts import NewEvent, SeenWrite, WriteChange
from runs.orchestrator.outside import without_connection
from runs.store import own_writes, settled
from tools import dispatcher, rules
from tools.contracts import Backend, Refund
from tools.errors import ReadFailed


def settle(key: str) -> str:
    """Look one open write up again. Returns what came of it: `settled`, `put_off` or `closed`."""
    found = settled.open_write(key)
    if found is None:
        return "closed"
    backend, own = backend_of(found.tenant_id, found.agent), own_writes(found.tenant_id, found.write.order_id)
    without_connection()
    try:
        refunds = dispatcher.look_up(backend, found.write.order_id, found.trace_id)
    except ReadFailed as error:
        telemetry.log("write.still_unknown", error=error.slug, run_id=found.run_id)
        settled.put_off(key, found.looks)
        return "put_off"
    mine = next(w for w in own if w.key == key)
    match = rules.match(mine, refunds, claimed=rules.claimed_by_others(own, key))
    if match.refund is not None:
        return _made(found, match.refund)
    if not match.ambiguous and _surely_absent(found.write, backend):
        change = WriteChange(key=key, state="not_sent", answer="proven_absent")
        settled.settle(found, change, outcome=None, event=_event(key, "not_sent", None))
        return "settled"
    settled.put_off(key, found.looks, absent=not match.ambiguous)
    return "put_off"


def _made(found: settled.OpenWrite, refund: Refund) -> str:
    if refund.state in ("pending", "requires_action"):
        settled.put_off(found.write.key, found.looks)
        return "put_off"
    failed = not rules.counted(refund.state)
    state, outcome = ("failed", "refund_failed") if failed else ("confirmed", "refunded")
    if not failed and not _as_asked(found.write, refund):
        outcome = "partly_refunded"
    change = WriteChange(key=found.write.key, state=state, refund=refund, answer="found_later")
    settled.settle(found, change, outcome=outcome, event=_event(found.write.key, state, refund.refund_id))
    return "settled"


def _as_asked(write: SeenWrite, refund: Refund) -> bool:
    return (refund.payment_id, refund.amount) == (write.payment_id, write.amount)


def _surely_absent(write: SeenWrite, backend: Backend) -> bool:
    """A complete list, long after the last attempt gave up: days of looks stand for the second one."""
    if not write.sent:
        return True
    if backend.settle_s is None or write.absent_at is None:
        return False
    last = max(a.gives_up_at for a in write.attempts if a.gives_up_at is not None)
    quiet = last + timedelta(seconds=backend.settle_s)
    return write.absent_at > quiet and dbtime.now() > write.absent_at + timedelta(seconds=backend.settle_s / 2)


def _event(key: str, state: str, refund_id: str | None) -> NewEvent:
    return NewEvent(type="write.reconciled", meta={"key": key, "state": state, "refund_id": refund_id, "late": True})
