"""A late look at a write that outlived its run: settles an open one or puts it off, watches a confirmed one.

It never sends anything.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from agentsite import clock, dbtime, telemetry
from runs import verifier
from runs.backends import backend_of
from runs.contracts import Checked, NewEvent, SeenWrite, WriteChange
from runs.errors import IntentLost
from runs.orchestrator.outside import without_connection
from runs.orchestrator.watching import watch
from runs.store import own_writes, settled
from tools.contracts import Backend, Refund
from tools.errors import ReadFailed
from tools.facts import read_facts


def settle(key: str, *, lease: str = "") -> str:
    """Look one write up again. Returns what came of it: `settled`, `put_off`, or what `watching.watch` says.

    `lease`: its run lives, no code can load it, and the caller holds it by this token; the write's row is enough.
    """
    found = settled.open_write(key, lease=lease)
    if found is None:
        return watch(key)
    with telemetry.context(run_id=found.run_id, trace_id=found.trace_id, tenant=found.tenant_id):
        return _looked(found)


def _looked(found: settled.OpenWrite) -> str:
    backend, own = backend_of(found.tenant_id, found.agent), own_writes(found.tenant_id, found.write.order_id)
    if backend.url != found.write.origin:
        return _put_off(found, "other_backend")
    without_connection()
    try:
        facts = read_facts(backend, found.write.order_id, found.trace_id, own=own, epoch=0)
    except ReadFailed as error:
        return _put_off(found, error.slug)
    at = clock.rfc3339(clock.now())
    checked = verifier.check(found.write, refunds=facts.refunds, facts=facts, waited_s=0, at=at)
    if checked.verdict == "not_shown":
        return _not_shown(found, backend, facts.refunds, ambiguous=bool(checked.record.get("ambiguous")))
    return _seen(found, checked, facts.refunds)


def _put_off(
    found: settled.OpenWrite, why: str, listed: tuple[Refund, ...] | None = None, *, absent: bool = False
) -> str:  # fmt: skip
    """`listed` is what the business system showed; None where it did not answer."""
    telemetry.log("write.still_unknown", error=why, run_id=found.run_id)
    settled.put_off(found, why, absent=absent, listed=listed)
    return "put_off"


def _seen(found: settled.OpenWrite, checked: Checked, listed: tuple[Refund, ...]) -> str:
    """Confirmed only where it succeeded exactly as asked; a difference stays with staff, who see both."""
    if checked.verdict == "pending":
        return _put_off(found, "pending", listed)
    if checked.verdict in ("mismatch", "over_refunded"):
        telemetry.count("writes_differ")
        return _put_off(found, checked.verdict, listed)
    passed = checked.verdict == "passed"
    state = "confirmed" if passed else "failed"
    change = WriteChange(key=found.write.key, state=state, refund=checked.refund, answer="found_later")
    outcome = settled.outcome_of(found.others, made=passed)
    settled.settle(found, change, outcome=outcome, event=_event(found.write.key, state, checked))
    return "settled"


def _not_shown(
    found: settled.OpenWrite, backend: Backend, listed: tuple[Refund, ...], *, ambiguous: bool
) -> str:  # fmt: skip
    if ambiguous or backend.settle_s is None or found.write.refund_id is not None:
        # One that the provider once named was made: a list without it proves nothing, a person looks.
        return _put_off(found, "ambiguous" if ambiguous else "not_shown", listed)
    quiet = _quiet_at(found.write, backend.settle_s)
    first = found.write.absent_at
    if quiet is not None and (first is None or first <= quiet):
        return _put_off(found, "absent_once", listed, absent=dbtime.now() > quiet)
    if first is not None and dbtime.now() <= first + timedelta(seconds=backend.settle_s / 2):
        return _put_off(found, "absent_once", listed)
    change = WriteChange(key=found.write.key, state="not_sent", answer="proven_absent")
    try:
        settled.settle(found, change, outcome=None, event=_event(found.write.key, "not_sent", None))
    except IntentLost as lost:
        return _put_off(found, lost.which, listed)
    return "settled"


def _quiet_at(write: SeenWrite, settle_s: float) -> datetime | None:
    """When the last attempt must have come to rest; None where nothing was ever sent."""
    gave_up = [a.gives_up_at for a in write.attempts if a.gives_up_at is not None]
    return max(gave_up) + timedelta(seconds=settle_s) if gave_up else None


def _event(key: str, state: str, checked: Checked | None) -> NewEvent:
    refund_id = checked.refund.refund_id if checked and checked.refund else None
    meta = {"key": key, "state": state, "refund_id": refund_id, "late": True}
    return NewEvent(type="write.reconciled", meta=meta, payload=checked.record if checked else None)
