"""The executing status: look the write up first, send only what is surely absent (`write-path.md` 3 and 4).

An unknown outcome is looked up again by due time, never guessed; a write that was sent keeps its frozen body.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from runs import numbering
from runs.contracts import (
    NewEvent,
    NewObservation,
    Outcome,
    PendingAction,
    RunState,
    SeenAttempt,
    SeenWrite,
    WriteChange,
    pending_from_wire,
)
from runs.orchestrator import endings, proposals, shadowing
from runs.orchestrator.later import Later, Send
from runs.orchestrator.ports import Ports
from runs.states import On
from tools import gate, rules
from tools.contracts import Backend, Refund, Release, SentMark, Withheld
from tools.errors import OutcomeUnknown, ReadFailed, Refused


def executing(run: RunState, ports: Ports) -> Outcome | Later | Send:
    """Look the write up; what is found is recorded, what is surely absent may be sent, else ask again later."""
    write = run.open_write
    if write is None:
        return _settled_by_hand(run)
    backend = ports.backend_of(run.tenant_id, run.agent)
    if write.origin != backend.url:
        # Another system's list proves nothing about this write, and it must never be sent there.
        return _undetermined(run, write, "other_backend", ports)
    try:
        ports.leave_database()
        refunds = ports.look_up(backend, write.order_id, run.trace_id)
    except ReadFailed as error:
        return _undetermined(run, write, error.slug, ports, asked_s=error.retry_after_s)
    found = _find(run, write, refunds, ports)
    if found.ambiguous:
        return _undetermined(run, write, "ambiguous", ports, hopeless=True)
    if found.refund is not None:
        return done(run, write, found.refund, how="write.reconciled" if write.sent else "write.result")
    return _absent(run, write, backend, ports)


def _settled_by_hand(run: RunState) -> Outcome:
    """A person settled the write meanwhile: what was made is verified like any other, what was not is told so."""
    assert run.writes, "executing holds a write"
    write = run.writes[-1]
    if write.state in ("failed", "refused"):  # settled by its own timer, while no code of ours could load the run
        return endings.escalate(run, "refund_failed")
    if write.state == "not_sent":
        return replace(not_made(run, write, "settled_by_staff"), write=None)
    assert write.refund_id is not None, "a refund that was made has an id"
    refund = Refund(
        refund_id=write.refund_id, payment_id=write.payment_id, order_id=write.order_id, state="succeeded",
        amount=write.amount, idempotency_key=None, metadata=None, created_at=None,
    )  # fmt: skip
    return replace(done(run, write, refund, how="write.reconciled"), write=None)


def _find(run: RunState, write: SeenWrite, refunds: tuple[Refund, ...], ports: Ports) -> rules.Match:
    if not refunds:
        return rules.Match()
    own = ports.own_writes(run.tenant_id, write.order_id)
    mine = next(w for w in own if w.key == write.key)
    return rules.match(mine, refunds, claimed=rules.claimed_by_others(own, write.key))


def done(run: RunState, write: SeenWrite, refund: Refund, *, how: str, answer: str = "") -> Outcome:
    """The refund exists: confirmed by its own state, or pending as long as the provider says so."""
    state = "confirmed" if refund.state == "succeeded" else "pending"
    change = WriteChange(key=write.key, state=state, refund=refund, answer=answer or "found")
    meta = {"key": write.key, "refund_id": refund.refund_id, "state": refund.state}
    note = NewObservation(
        kind="result", source=write.tool, call_id=write.call_id, args=write.args,
        content={
            "refund_id": refund.refund_id, "payment_id": refund.payment_id, "order_id": refund.order_id,
            "state": refund.state, "amount": refund.amount.wire(),
        },
    )  # fmt: skip
    observations = () if _has_result(run, write) else (note,)
    event = NewEvent(type=how, meta=meta, span=numbering.of_write(run, write.key))
    return Outcome(
        on=On.WRITE_DONE, write=change, events=(event,), observations=observations,
        waiting_for="refund" if state == "pending" else None, retries=0,
    )  # fmt: skip


def _has_result(run: RunState, write: SeenWrite) -> bool:
    return any(o.call_id == write.call_id for o in run.observations)


def _absent(run: RunState, write: SeenWrite, backend: Backend, ports: Ports) -> Outcome | Later | Send:
    """Not on the list. Whether that proves anything depends on whether it was ever sent, and on the promises."""
    sent = [a for a in write.attempts if a.sent_at is not None]
    if not sent:
        return _send_unsent(run, write, ports)
    if _keys_still_honoured(run, sent, backend):
        return _again(run, write, "keys_honoured", ports)
    return _unproven(run, write, ports) or _again(run, write, "proven_absent", ports)


def _unproven(run: RunState, write: SeenWrite, ports: Ports) -> Outcome | Later | None:
    """What to do while nothing proves that a sent write is absent; None: two late looks at the list have proven it."""
    settle_s = ports.backend_of(run.tenant_id, run.agent).settle_s
    if settle_s is None:
        return _undetermined(run, write, "no_promise", ports)
    quiet_at = max(a.gives_up_at for a in write.attempts if a.gives_up_at is not None) + timedelta(seconds=settle_s)
    if run.now <= quiet_at:
        return _look_again(run, write, (quiet_at - run.now).total_seconds() + 0.05)
    if write.absent_at is None or write.absent_at <= quiet_at:
        return _first_look(run, write, settle_s)
    if (run.now - write.absent_at).total_seconds() < settle_s / 2:
        return _look_again(run, write, settle_s / 2)
    return None


def _keys_still_honoured(run: RunState, sent: list[SeenAttempt], backend: Backend) -> bool:
    first = min(a.sent_at for a in sent if a.sent_at is not None)
    return backend.honours_keys and (run.now - first).total_seconds() < backend.key_life_s / 2


def _first_look(run: RunState, write: SeenWrite, settle_s: float) -> Outcome:
    """The first of two looks that prove absence; the second comes half a settling time later."""
    change = WriteChange(key=write.key, state="unknown", absent=True)
    return Outcome(
        on=On.WRITE_UNDETERMINED, write=change, due_in_s=settle_s / 2 + 0.05,
        events=(_unknown(run, write, "absent_once"),),
    )  # fmt: skip


def _look_again(run: RunState, write: SeenWrite, wait_s: float) -> Outcome | Later:
    if write.state == "unknown":
        return Later(due_in_s=wait_s)
    return Outcome(
        on=On.WRITE_UNDETERMINED, write=WriteChange(key=write.key, state="unknown"), due_in_s=wait_s,
        events=(_unknown(run, write, "not_listed_yet"),),
    )  # fmt: skip


def _send_unsent(run: RunState, write: SeenWrite, ports: Ports) -> Outcome | Later | Send:
    """Prepared and never marked sent: proven never sent. Fresh intents go at once, older ones are released anew."""
    age = (run.now - write.intent_at).total_seconds()
    if (
        age <= ports.settings().LEASE_S / 2
        and run.attempts <= 1
        and not run.inputs
        and not shadowing.applies(run, ports)
    ):
        return Send()
    return _again(run, write, "never_sent", ports)


def _again(run: RunState, write: SeenWrite, why: str, ports: Ports) -> Outcome | Later | Send:
    """Send the frozen body once more, if everything still allows it; else the write is closed as never made."""
    age = (run.now - write.intent_at).total_seconds()
    spent = run.write_attempts >= run.contract.limits.max_write_attempts
    looping = run.attempts > ports.settings().MAX_STEP_ATTEMPTS
    if spent or looping or age > ports.settings().RESEND_FOR_S or endings.has(run, "cancel"):
        if why == "keys_honoured":
            return _unproven(run, write, ports) or not_made(run, write, "proven_absent")
        return not_made(run, write, "cancelled" if endings.has(run, "cancel") else "not_sent_in_time")
    if shadowing.applies(run, ports):
        waits = _unproven(run, write, ports) if why == "keys_honoured" else None
        return waits or shadowing.never_made(run, write, not_made(run, write, shadowing.REASON))
    pending = _pending_of(run, write)
    case, _ = proposals.case_of(run, pending, ports, leave_out=write.key)
    try:
        ports.leave_database()
        released = gate.release_again(
            case, approval_id=write.approval_id, decision_id=write.decision_id, body=write.body, read=ports.read_facts
        )
    except ReadFailed as error:
        return _undetermined(run, write, error.slug, ports, asked_s=error.retry_after_s)
    if isinstance(released, Withheld):
        if why == "keys_honoured":
            return _unproven(run, write, ports) or not_made(run, write, "proven_absent")
        return _withheld(run, write, pending, released)
    return Send(resend=released)


def _withheld(run: RunState, write: SeenWrite, pending: PendingAction, withheld: Withheld) -> Outcome:
    """The facts of this moment no longer allow a write that never went out; the record keeps those facts."""
    outcome = not_made(run, write, withheld.rule)
    if withheld.decision is None:
        return outcome
    decided = proposals.decided(withheld.decision, pending, write.decision_id)
    return replace(outcome, events=(decided, *outcome.events))


def _pending_of(run: RunState, write: SeenWrite) -> PendingAction:
    if run.pending is not None and run.pending.key == write.key:
        return run.pending
    turn = next((t.number for t in run.turns for p in t.proposals if p.call_id == write.call_id), 0)
    return pending_from_wire(
        {
            "call_id": write.call_id, "tool": write.tool, "args": write.args, "evidence": [], "rule": "",
            "action_hash": write.action_hash, "idempotency_key": write.key, "decision_id": write.decision_id,
            "turn": turn,
        }
    )  # fmt: skip


def not_made(run: RunState, write: SeenWrite, why: str, *, state: str = "not_sent", answer: str = "") -> Outcome:
    """Proven that nothing was made, and nothing will be: the write closes, the model sees why."""
    content = {"error": "not_made", "rule": why}
    note = NewObservation(kind="denial", source=write.tool, content=content, call_id=write.call_id, args=write.args)
    meta = {"key": write.key, "state": state, "error": why}
    event = NewEvent(type="write.result", meta=meta, span=numbering.of_write(run, write.key))
    return Outcome(
        on=On.WRITE_NOT_MADE, write=WriteChange(key=write.key, state=state, answer=answer), events=(event,),
        observations=(note,), clear_pending=True,
    )  # fmt: skip


def _undetermined(
    run: RunState, write: SeenWrite, why: str, ports: Ports, *, hopeless: bool = False, asked_s: float | None = None
) -> Outcome | Later:
    """Cannot be told now: asked again by due time for a bounded while, then a person; never guessed.

    `asked_s`: what the business system or its breaker asked for; a look-up waits a minute for that at most.
    """
    since, settings = write.unknown_since or write.intent_at, ports.settings()
    waited = (run.now - since).total_seconds()
    if waited > settings.RECONCILE_FOR_S and not write.sent and not hopeless:
        return not_made(run, write, "not_sent_in_time")  # prepared and never marked: proven never sent
    if hopeless or waited > settings.RECONCILE_FOR_S:
        return endings.escalate(
            run, "outcome_unknown", write=WriteChange(key=write.key, state="unknown", look_in_s=3600.0),
            events=(_unknown(run, write, why),),
        )  # fmt: skip
    wait = min(max(settings.RETRY_S * 2 ** min(write.looks, 8), asked_s or 0.0), 60.0)
    return Outcome(
        on=On.WRITE_UNDETERMINED, write=WriteChange(key=write.key, state="unknown" if write.sent else write.state),
        due_in_s=wait, events=(_unknown(run, write, why),),
    )  # fmt: skip


def can_send(run: RunState, release: Release, ports: Ports) -> bool:
    """Whether this process holds what a send needs: asked before the mark, which spends an attempt.

    Raises what the executor would, before anything is marked, where somebody tampered with the stored write.
    """
    return ports.can_write(release, ports.backend_of(run.tenant_id, run.agent))


def ticket(run: RunState) -> Release:
    """The released write as it was stored; asserts before anything is marked that nobody tampered with it."""
    assert run.open_write is not None, "only an open write is sent"
    return _release_of(run, run.open_write)


def send(run: RunState, release: Release, mark: SentMark, ports: Ports) -> Outcome:
    """POST once, by the right the mark gives; timeouts, resets and 5xx are unknown, never failed."""
    write = run.open_write
    assert write is not None, "only an open write is sent"
    backend, started = ports.backend_of(run.tenant_id, run.agent), ports.monotonic()
    ports.leave_database()
    try:
        answer = ports.run_write(release, mark, backend)
    except Refused as refused:
        if any(a.sent_at is not None and a.number != mark.attempt for a in write.attempts):
            # This answer proves only that *this* call made nothing; an earlier one may have.
            return _lost(run, write, refused.slug, ports)
        return not_made(run, write, refused.slug, state="refused", answer=refused.slug)
    except OutcomeUnknown as unknown:
        return _lost(run, write, unknown.slug, ports)
    took = round((ports.monotonic() - started) * 1000)
    outcome = done(run, write, answer.refund, how="write.result", answer="replayed" if answer.replayed else "made")
    return replace(outcome, active_ms=took)


def _lost(run: RunState, write: SeenWrite, slug: str, ports: Ports) -> Outcome:
    """Nobody knows yet: look it up in a moment."""
    return Outcome(
        on=On.WRITE_UNDETERMINED, write=WriteChange(key=write.key, state="unknown", answer=slug),
        due_in_s=min(1.0, ports.settings().RETRY_S), events=(_unknown(run, write, slug),),
    )  # fmt: skip


def _unknown(run: RunState, write: SeenWrite, slug: str) -> NewEvent:
    meta = {"key": write.key, "error": slug}
    return NewEvent(type="write.unknown", meta=meta, span=numbering.of_write(run, write.key))


def _release_of(run: RunState, write: SeenWrite) -> Release:
    return gate.ticket_of_intent(
        scope=run.scope(), tool=write.tool, args=write.args, hash_=write.action_hash, key=write.key,
        approval_id=write.approval_id, decision_id=write.decision_id, body=write.body, origin=write.origin,
    )  # fmt: skip
