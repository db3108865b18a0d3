"""The executed status: an independent read compared with the approved action (`write-path.md` 5)."""

from __future__ import annotations

from datetime import datetime

from agentsite import clock
from agentsite.env import Environment
from runs import numbering, verifier
from runs.contracts import Checked, NewEvent, Outcome, RunState, SeenWrite, WriteChange
from runs.orchestrator import endings
from runs.orchestrator.ports import Ports
from runs.states import On
from tools.contracts import Refund
from tools.errors import ReadFailed


def executed(run: RunState, ports: Ports) -> Outcome:
    """Read again, independently, and compare with the approved action."""
    write = run.open_write or next((w for w in reversed(run.writes) if w.state == "confirmed"), None)
    if write is None:  # settled otherwise while no code of ours could load the run
        return endings.escalate(run, "needs_a_person")
    backend, settings = ports.backend_of(run.tenant_id, run.agent), ports.settings()
    try:
        own = ports.own_writes(run.tenant_id, write.order_id)
        ports.leave_database()
        facts = ports.read_facts(backend, write.order_id, run.trace_id, own, 0)
    except ReadFailed as error:
        return _unreadable(run, write, error.slug, settings)
    waited = (run.now - (write.executed_at or write.intent_at)).total_seconds()
    checked = verifier.check(write, refunds=facts.refunds, facts=facts, waited_s=waited, at=clock.rfc3339(run.now))
    if checked.verdict == "not_shown":
        return _not_shown(run, write, "not_shown", settings)
    if checked.verdict == "pending":
        return _still_pending(run, write, checked.refund, settings)
    return _judged(run, write, checked)


def _not_shown(run: RunState, write: SeenWrite, why: str, settings: Environment) -> Outcome:
    """A lagging list is no verdict; missing for `verify_for_s` since the first look that missed it, a person looks.

    Polls of a pending refund lie up to an hour apart, so one look proves nothing however long ago it was last seen.
    """
    seen = write.seen_at or write.executed_at or write.intent_at
    if write.absent_at is None or write.absent_at <= seen:
        return _later(run, WriteChange(key=write.key, state=write.state, absent=True), settings)
    return _later_or_give_up(run, write, why, settings.VERIFY_FOR_S, write.absent_at, settings)


def _unreadable(run: RunState, write: SeenWrite, why: str, settings: Environment) -> Outcome:
    """An outage says nothing about the refund: it is waited out for as long as any dependency."""
    since = write.seen_at or write.executed_at or write.intent_at
    return _later_or_give_up(run, write, why, settings.DEPENDENCY_FOR_S, since, settings)


def _later_or_give_up(
    run: RunState, write: SeenWrite, why: str, patience_s: float, since: datetime, settings: Environment
) -> Outcome:
    if (run.now - since).total_seconds() > patience_s:
        meta = {"key": write.key, "error": why}
        event = NewEvent(type="write.unknown", meta=meta, span=numbering.of_verification(run, write.key))
        return endings.escalate(run, "verification_inconclusive", events=(event,))
    return _later(run, None, settings)


def _later(run: RunState, change: WriteChange | None, settings: Environment) -> Outcome:
    wait = min(settings.RETRY_S * 2 ** min(run.retries, 5), 60.0)
    return Outcome(on=On.WRITE_NOT_SHOWN, due_in_s=wait, waiting_for="refund", retries=run.retries + 1, write=change)


def _still_pending(run: RunState, write: SeenWrite, refund: Refund | None, settings: Environment) -> Outcome:
    """The provider says pending: kept pending, polled by due time, doubling up to an hour."""
    wait = min(settings.PENDING_POLL_S * 2 ** min(run.retries, 12), 3600.0)
    # One that was answered as done keeps its state: its order is free already, and may be taken.
    change = WriteChange(key=write.key, state=write.state, refund=refund)
    return Outcome(on=On.WRITE_NOT_SHOWN, due_in_s=wait, waiting_for="refund", retries=run.retries + 1, write=change)


REASONS = {"failed": "refund_failed", "mismatch": "verification_failed", "over_refunded": "over_refunded"}


def _judged(run: RunState, write: SeenWrite, checked: Checked) -> Outcome:
    passed = checked.verdict == "passed"
    state = "failed" if checked.verdict == "failed" else "confirmed"
    change = WriteChange(key=write.key, state=state, refund=checked.refund)
    meta = {"key": write.key, "verdict": checked.verdict, "refund_id": write.refund_id}
    kind, span = "write.verified" if passed else "write.mismatch", numbering.of_verification(run, write.key)
    event = NewEvent(type=kind, meta=meta, payload=checked.record, span=span)
    if not passed:
        meta["error"] = REASONS[checked.verdict]
        return endings.escalate(
            run, REASONS[checked.verdict], write=change, verification=checked.record, events=(event,)
        )
    # A cancel or a message that came meanwhile stays unread: the verified run's handler answers to it.
    return Outcome(
        on=On.WRITE_VERIFIED, write=change, verification=checked.record, events=(event,), clear_pending=True,
        retries=0, repairs=0,
    )  # fmt: skip
