"""One pass of the loop: claim a due run, run its handlers, checkpoint each, hint for the next pass.

`advance` is the only caller of the store's checkpoint. Recovery is no branch: it is the same handler, run again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

from agentsite import clock, env, queues, telemetry
from agentsite.tenants import glance, switches
from runs import leases, orchestrator, store
from runs.contracts import Outcome, RunState
from runs.errors import Fenced, IntentLost, UnknownSchema
from runs.orchestrator import Later, Send
from runs.states import TERMINAL, WAITING, On, Status

MAX_PASS_S = 10.0
MAX_HANDLERS = 40
RESEND_AGAIN_S = 1.0
UNREADABLE = (UnknownSchema, KeyError, TypeError, ValueError)
"""What reading a row's columns raises where they hold what no code of ours wrote."""
MAX_BACKOFF = 5
"""Two to this power: the seconds until a step that failed is tried again, at most."""


@dataclass(frozen=True, kw_only=True)
class _Left:
    """How a pass leaves its run. `due`: free and due at once; None where only its row knows."""

    status: Status
    due: bool | None = None


def advance(run_id: str) -> Status | None:
    """Run one pass (AGENT_PASSES_PER_TASK of them) on a due run. None: nothing was due, or another worker has it.

    Raises only for bugs of ours, after giving the run back with its try counted.
    """
    claimed = store.claim(run_id)
    if claimed is None:
        return None
    with leases.kept(run_id, claimed.token), glance.of_one_pass():
        left = _guarded(claimed)
    if left is None:
        return None
    if left.status not in TERMINAL and (store.due_now(run_id) if left.due is None else left.due):
        queues.nudge(run_id, left.status.value)
    return left.status


def _guarded(claimed: store.Claimed) -> _Left | None:
    try:
        return _passed(claimed)
    except Fenced:
        telemetry.count("passes_fenced")
        return None
    except BaseException:
        # The try stays counted: a step that keeps failing is escalated by the claim after the last one.
        store.release(claimed.run_id, claimed.token, 2.0 ** min(claimed.attempts, MAX_BACKOFF), failed=True)
        raise


def _passed(claimed: store.Claimed) -> _Left | None:
    try:
        return _Pass(run_id=claimed.run_id, token=claimed.token, read=claimed.read).handlers()
    except UnknownSchema as error:
        status = _unloadable(claimed.run_id, claimed.token, str(error))
        return None if status is None else _Left(status=status)


def _unloadable(run_id: str, token: str, why: str) -> Status | None:
    """No code can load the run: an open write of it is settled by its own timer, from its row alone; then it fails."""
    for key in store.looks_due(run_id):
        try:
            orchestrator.settle(key, lease=token)
        except UNREADABLE as unreadable:
            telemetry.log("write.unreadable", key=key, error=str(unreadable))
            store.leave_to_a_person(key)
    return store.fail_unloadable(run_id, token, why)


@dataclass(kw_only=True)
class _Pass:
    """One claim of a run. `turns`: model turns begun; `looked`: when its state was last of now, monotonic.

    `read`: the run as the claim found it, for the first handler; `queue`: whose work this is; `held`: outcomes that are
    committed together with the next one.
    """

    run_id: str
    token: str
    read: store.Read | None = None
    began: float = field(default_factory=clock.monotonic)
    looked: float = 0.0
    turns: int = 0
    queue: str | None = None
    held: tuple[store.Held, ...] = ()

    def handlers(self) -> _Left | None:
        """Handlers, one checkpoint each, until the run rests, leaves for another queue, or the pass is over.

        None where the run was given back without a transition.
        """
        state: RunState | None = None
        for _ in range(MAX_HANDLERS):
            run = self._loaded() if state is None else state
            status, self.queue = run.status, self.queue or _queue_of(run.status)
            if self._over(run):
                break
            self.turns += orchestrator.asks_model(run)
            with telemetry.context(run_id=self.run_id, trace_id=run.trace_id, tenant=run.tenant_id):
                moved = self._handle(run)
            if moved is None:
                return None
            if not moved.kept:
                return _Left(status=moved.status, due=moved.due)
            status, state = moved.status, moved.state
        self._settle_held()
        store.release(self.run_id, self.token, None)
        return _Left(status=status)

    def _loaded(self) -> RunState:
        self.looked = clock.monotonic()
        return store.load(self.run_id, self.token, self.read)

    def _over(self, run: RunState) -> bool:
        """Whether the pass ends before the run's next handler."""
        turns = self.turns + orchestrator.asks_model(run)
        return turns > env.read().AGENT_PASSES_PER_TASK or clock.monotonic() - self.began > MAX_PASS_S

    def _handle(self, run: RunState) -> store.Moved | None:
        """One handler and its checkpoint; None where the run was given back without a transition."""
        handled = orchestrator.step(run)
        if isinstance(handled, Send):
            return self._send(run, handled)
        return self._hold(run, handled) or self._commit(run, handled)

    def _hold(self, run: RunState, handled: Outcome | Later) -> store.Moved | None:
        """The run for the next handler, whose commit takes this outcome with it, where it may wait for that."""
        if isinstance(handled, Later) or not store.holdable(run, handled):
            return None
        state = store.goes_on(run, handled)
        queue = queues.queue_for(state.status.value) if state is not None else ""
        if state is None or queue not in env.read().queues:
            return None
        self.queue = queue  # whoever may make the write folds the yes that leads to it
        self.held = (*self.held, (run, handled))
        now = run.now + timedelta(seconds=clock.monotonic() - self.looked)
        self.looked = clock.monotonic()
        return store.Moved(status=state.status, kept=True, due=False, state=replace(state, now=now))

    def _settle_held(self) -> None:
        """Commit what waited for a next outcome that does not come."""
        if self.held:
            *earlier, (run, outcome) = self.held
            store.checkpoint(run, outcome, keep=True, held=earlier)
            self.held = ()

    def _commit(self, run: RunState, handled: Outcome | Later) -> store.Moved | None:
        if isinstance(handled, Later):
            self._settle_held()
            store.release(self.run_id, self.token, handled.due_in_s, seen=run.last_input_seq)
            return None
        try:
            moved = store.checkpoint(run, handled, keep=partial(self._keeps, handled), held=self.held)
        except (store.UnreadInput, store.DecidedMeanwhile):
            # The same handler runs again and sees what came; a paid model call is counted all the same.
            counted = orchestrator.overtaken(handled)
            return self._again(run.status) if counted is None else self._commit(run, counted)
        except IntentLost as lost:
            resolved = orchestrator.resolve_intent(run, lost.which)
            return self._again(run.status) if resolved is None else self._commit(run, resolved)
        self.held, self.looked = (), clock.monotonic()
        return moved

    def _again(self, status: Status) -> store.Moved:
        """The run is read afresh for the handler that comes next."""
        self._settle_held()
        return store.Moved(status=status, kept=True, due=False, state=None)

    def _keeps(self, outcome: Outcome, to: Status, after: RunState | None) -> bool:
        """Whether this pass goes on with the run after a checkpoint; else its lease is given back with it."""
        waits = outcome.due_in_s is None and to in WAITING
        if (
            waits
            or outcome.due_at is not None
            or (outcome.due_in_s or 0.0) > 0.0
            or queues.queue_for(to.value) != self.queue
        ):
            return False
        return after is None or not self._over(after)

    def _send(self, run: RunState, send: Send) -> store.Moved | None:
        """Prepare where needed, mark sent by a commit of its own, POST once, and record what came of it."""
        release = orchestrator.ticket(run)
        if not orchestrator.can_send(run, release):
            return self._commit(run, Later(due_in_s=RESEND_AGAIN_S))
        if send.resend is not None:
            try:
                store.checkpoint(run, Outcome(on=On.WRITE_RESENT, resend=send.resend), keep=True)
            except IntentLost as lost:
                telemetry.log("write.resend_lost", which=lost.which)
                return self._commit(run, _not_now(run))
            run = self._loaded()
        write = run.open_write
        mark = store.mark_sent(run, write) if write is not None else None
        if mark is None:
            return self._commit(run, _not_now(run))
        handled = orchestrator.send(run, release, mark)
        return self._commit(self._loaded(), handled)


def _queue_of(status: Status) -> str:
    """Whose work a claimed run is: one that waits with a yes may be taken by who writes, and by him for that alone."""
    queue = queues.queue_for(status.value)
    return queue if queue in env.read().queues else queues.WRITES


def _not_now(run: RunState) -> Later:
    """The right to send was not to be had: in a moment, or while a stop switch is thrown, ever more slowly."""
    return Later(due_in_s=switches.hold_s(run.tenant_id) or RESEND_AGAIN_S)
