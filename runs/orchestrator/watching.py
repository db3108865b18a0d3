"""A look at a confirmed refund days after its run's end: still there, or failed after all; never sends anything."""

from __future__ import annotations

from agentsite import clock, telemetry
from runs import verifier
from runs.backends import backend_of
from runs.contracts import Checked, NewEvent, WriteChange
from runs.orchestrator.outside import without_connection
from runs.store import own_writes, watched
from tools import rules
from tools.errors import ReadFailed
from tools.facts import read_facts


def watch(key: str) -> str:
    """Read one refund again, independently. Returns `still_there`, `failed`, `again`, `doubted` or `closed`."""
    found = watched.watched(key)
    if found is None:
        return "closed"
    with telemetry.context(run_id=found.run_id, trace_id=found.trace_id, tenant=found.tenant_id):
        return _looked(found)


def _looked(found: watched.Watched) -> str:
    backend, own = backend_of(found.tenant_id, found.agent), own_writes(found.tenant_id, found.write.order_id)
    if backend.url != found.write.origin:
        return _unanswered(found, "other_backend")
    without_connection()
    try:
        facts = read_facts(backend, found.write.order_id, found.trace_id, own=own, epoch=0)
    except ReadFailed as error:
        return _unanswered(found, error.slug)
    at = clock.rfc3339(clock.now())
    return _judged(found, verifier.check(found.write, refunds=facts.refunds, facts=facts, waited_s=0, at=at))


def _unanswered(found: watched.Watched, why: str) -> str:
    """No answer is no failure: again in an hour, for as long as the watch lasts; then staff are told."""
    telemetry.log("refund.not_watched", error=why, run_id=found.run_id)
    return "again" if watched.unanswered(found) else _given_up(found, why)


def _given_up(found: watched.Watched, why: str) -> str:
    watched.answered(found, seen=False, notice=_notice(found, "refund_not_watched", why))
    return "doubted"


def _judged(found: watched.Watched, checked: Checked) -> str:
    """A failed state beats everything: a provider may well empty the rest of a refund that failed."""
    refund = checked.refund
    if refund is not None and not rules.counted(refund.state):
        return _failed(found, checked)
    if checked.verdict == "passed":
        watched.answered(found, seen=True)
        return "still_there"
    if checked.verdict == "not_shown":
        return _not_shown(found)
    if checked.verdict == "pending":
        return _unanswered(found, "pending")
    telemetry.count("refunds_doubted", verdict=checked.verdict)
    watched.answered(found, seen=True, notice=_notice(found, "refund_doubted", checked.verdict, checked))
    return "doubted"


def _not_shown(found: watched.Watched) -> str:
    """One list without it may lag; missing twice, an hour apart, is told to staff. It corrects nothing."""
    write = found.write
    missed = write.absent_at is not None and (write.seen_at is None or write.absent_at > write.seen_at)
    if not missed and watched.unanswered(found, missing=True):
        return "again"
    telemetry.count("refunds_doubted", verdict="not_shown")
    watched.answered(found, seen=False, notice=_notice(found, "refund_doubted", "not_shown"))
    return "doubted"


def _failed(found: watched.Watched, checked: Checked) -> str:
    assert checked.refund is not None, "a failure is seen on a refund"
    change = WriteChange(key=found.write.key, state="failed", refund=checked.refund)
    meta = {"key": found.write.key, "state": "failed", "refund_id": checked.refund.refund_id, "late": True}
    event = NewEvent(type="write.reconciled", meta={**meta, "error": "refund_failed"}, payload=checked.record)
    if watched.failed(found, change, event):
        telemetry.count("refunds_failed_late")
        telemetry.log("refund.failed_late", run_id=found.run_id, key=found.write.key)
    return "failed"


def _notice(found: watched.Watched, error: str, why: str, checked: Checked | None = None) -> NewEvent:
    meta = {"to": "staff", "error": error, "why": why, "key": found.write.key}
    return NewEvent(type="notice", meta=meta, payload=checked.record if checked else None)
