"""One pass of the loop: claim a due run, run its handlers, checkpoint each, hint for the next pass.

`advance` is the only caller of the store's checkpoint. Recovery is no branch: it is the same handler, run again.
"""

from __future__ import annotations

from agentsite import clock, env, queues, telemetry
from agentsite.tenants import switches
from runs import leases, orchestrator, store
from runs.contracts import Outcome, RunState
from runs.errors import Fenced, IntentLost, UnknownSchema
from runs.orchestrator import Later, Send
from runs.states import TERMINAL, On, Status

MAX_PASS_S = 10.0
MAX_HANDLERS = 40
RESEND_AGAIN_S = 1.0
UNREADABLE = (UnknownSchema, KeyError, TypeError, ValueError)
"""What reading a row's columns raises where they hold what no code of ours wrote."""
MAX_BACKOFF = 5
"""Two to this power: the seconds until a step that failed is tried again, at most."""


def advance(run_id: str) -> Status | None:
    """Run one pass (AGENT_PASSES_PER_TASK of them) on a due run. None: nothing was due, or another worker has it.

    Raises only for bugs of ours, after giving the run back with its try counted.
    """
    claimed = store.claim(run_id)
    if claimed is None:
        return None
    with leases.kept(run_id, claimed.token):
        status = _guarded(run_id, claimed.token, claimed.attempts)
    if status is not None and status not in TERMINAL and store.due_now(run_id):
        queues.nudge(run_id, status.value)
    return status


def _guarded(run_id: str, token: str, attempts: int) -> Status | None:
    try:
        return _passed(run_id, token)
    except Fenced:
        telemetry.count("passes_fenced")
        return None
    except BaseException:
        # The try stays counted: a step that keeps failing is escalated by the claim after the last one.
        store.release(run_id, token, 2.0 ** min(attempts, MAX_BACKOFF), failed=True)
        raise


def _passed(run_id: str, token: str) -> Status | None:
    try:
        return _passes(run_id, token)
    except UnknownSchema as error:
        return _unloadable(run_id, token, str(error))


def _unloadable(run_id: str, token: str, why: str) -> Status | None:
    """No code can load the run: an open write of it is settled by its own timer, from its row alone; then it fails."""
    for key in store.looks_due(run_id):
        try:
            orchestrator.settle(key, lease=token)
        except UNREADABLE as unreadable:
            telemetry.log("write.unreadable", key=key, error=str(unreadable))
            store.leave_to_a_person(key)
    return store.fail_unloadable(run_id, token, why)


def _passes(run_id: str, token: str) -> Status | None:
    """Handlers, one checkpoint each, until the run rests, changes its queue, or the pass is over."""
    started, turns, status = clock.monotonic(), 0, None
    for _ in range(MAX_HANDLERS):
        run = store.load(run_id, token)
        turns += orchestrator.asks_model(run)
        if turns > env.read().AGENT_PASSES_PER_TASK or clock.monotonic() - started > MAX_PASS_S:
            break
        with telemetry.context(run_id=run_id, trace_id=run.trace_id, tenant=run.tenant_id):
            status = _handle(run)
        if status is None or status in TERMINAL:
            return status
        if queues.queue_for(status.value) != queues.queue_for(run.status.value):
            break
        if store.rests(run_id, token):
            return status
    store.release(run_id, token, None)
    return status or run.status


def _handle(run: RunState) -> Status | None:
    """One handler and its checkpoint; None where the run was given back without a transition."""
    handled = orchestrator.step(run)
    return _send(run, handled) if isinstance(handled, Send) else _commit(run, handled)


def _commit(run: RunState, handled: Outcome | Later) -> Status | None:
    if isinstance(handled, Later):
        store.release(run.run_id, run.lease, handled.due_in_s, seen=run.last_input_seq)
        return None
    try:
        return store.checkpoint(run, handled, keep=True)
    except (store.UnreadInput, store.DecidedMeanwhile):
        # The same handler runs again and sees what came; a paid model call is counted all the same.
        counted = orchestrator.overtaken(handled)
        return run.status if counted is None else _commit(run, counted)
    except IntentLost as lost:
        resolved = orchestrator.resolve_intent(run, lost.which)
        return run.status if resolved is None else _commit(run, resolved)


def _send(run: RunState, send: Send) -> Status | None:
    """Prepare where needed, mark sent by a commit of its own, POST once, and record what came of it."""
    release = orchestrator.ticket(run)
    if not orchestrator.can_send(run, release):
        return _commit(run, Later(due_in_s=RESEND_AGAIN_S))
    if send.resend is not None:
        try:
            store.checkpoint(run, Outcome(on=On.WRITE_RESENT, resend=send.resend), keep=True)
        except IntentLost as lost:
            telemetry.log("write.resend_lost", which=lost.which)
            return _commit(run, _not_now(run))
        run = store.load(run.run_id, run.lease)
    write = run.open_write
    mark = store.mark_sent(run, write) if write is not None else None
    if mark is None:
        return _commit(run, _not_now(run))
    handled = orchestrator.send(run, release, mark)
    return _commit(store.load(run.run_id, run.lease), handled)


def _not_now(run: RunState) -> Later:
    """The right to send was not to be had: in a moment, or while a stop switch is thrown, ever more slowly."""
    return Later(due_in_s=switches.hold_s(run.tenant_id) or RESEND_AGAIN_S)
