"""`checkpoint`: the one way a status changes. One transaction carries the transition, its rows and its events.

Compare-and-set on version and lease; an unread input forbids every terminal status (`write-path.md` 1).
Lock order everywhere: site, tenant, run, approval, order guard, counters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import IntegrityError, connection, transaction

from agentsite import clock, dbtime, env, statements
from agentsite.canonical import canonical_text
from runs.contracts import NewEvent, Outcome, RunState, SeenObservation
from runs.errors import Fenced, RunError
from runs.states import TERMINAL, WAITING, Status, next_status
from runs.store import (
    asks,
    carrying,
    clean,
    events,
    folding,
    inserts,
    left,
    money_rows,
    outbox,
    recalled,
    shadows,
    told,
)
from runs.store.inserts import Statement
from runs.store.lease import handler_deadline_s, raw_id
from runs.store.load import listed_from
from tools.policy import incidents

FAR_S = 315_360_000.0
STILL_S = 2.0
"""For so long a due time that has come is that of now."""
LOCK = (
    "SELECT version, lease_token, last_seq, chain_head, last_input_seq, approval_id, restored_at "
    "FROM runs_run WHERE id = %s"
)
AS_READ = " AND last_seq = %s AND last_input_seq = %s AND restored_at IS NULL"
FREED = "lease_token = NULL, lease_until = NULL, lease_deadline = NULL"
Held = tuple[RunState, Outcome]
"""A run and what a handler found on it."""
Keeps = Callable[[Status, RunState | None], bool]


class UnreadInput(RunError):
    """A door left an input after the handler looked: run the handler again with it."""

    slug = "unread_input"


@dataclass(frozen=True, kw_only=True)
class Moved:
    """What a checkpoint made of a run. `kept`: this process still has it; `due`: it is free and due at once.

    `state`: the run for the next handler; None where it was given back or has to be loaded.
    """

    status: Status
    kept: bool
    due: bool
    state: RunState | None


@dataclass(frozen=True, kw_only=True)
class Step:
    """One handler's outcome, cleaned, with the run it was found on, and all the events that tell of it."""

    run: RunState
    outcome: Outcome
    to: Status
    seen: tuple[SeenObservation, ...] = ()
    events: tuple[NewEvent, ...] = ()


def checkpoint(run: RunState, outcome: Outcome, *, keep: bool | Keeps, held: Sequence[Held] = ()) -> Moved:
    """Commit what a handler found. `keep` renews the lease for the next handler; else the run is given back with it.
    It may ask for that by the status and, where it is known, the run that the next handler would see.

    `held`: outcomes of earlier handlers of this pass that were not committed yet, each with the run it was found on.
    Raises Fenced (another worker has the run), UnreadInput, or IntentLost; then nothing at all was changed.
    """
    outcome = clean.outcome(outcome)
    first = held[0][0] if held else run
    if _plain(first, run, outcome):
        try:
            return _committed(run, outcome, keep, held, _as_read(first))
        except (_Overtaken, IntegrityError):
            pass  # a door left something since the run was read, an event perhaps: now it is looked at under the lock
    return _committed(run, outcome, keep, held, None)


def _committed(
    run: RunState, outcome: Outcome, keep: bool | Keeps, held: Sequence[Held], assumed: Locked | None
) -> Moved:
    """`assumed`: what the row holds if nobody touched it since it was read, which the UPDATE then asks for."""
    to = leads_to(run, outcome)
    money_rows.look_before_closing(outcome.write)
    alone = assumed is not None and _alone(outcome, to)
    with nullcontext() if alone else transaction.atomic():
        released = outcome.intent.release if outcome.intent else outcome.resend
        if released is not None:
            money_rows.lock_switches(run, released)
        elif outcome.write is not None:
            money_rows.lock_closing(outcome.write)
        row = assumed or _locked(held[0][0] if held else run)
        folded = outcome.folded if outcome.folded is not None else run.folded_input_seq
        if to in TERMINAL and row.last_input_seq > folded:
            raise UnreadInput(to.value)
        listed = listed_from(row.restored_at, run.tenant_id, run.agent)
        if to is Status.COMPLETED and listed != run.listed_from:
            raise UnreadInput("restored")  # what it is about to say was true before the database was put back
        approval_id, asked = asks.apply(run, outcome, to)
        wrote = money_rows.apply(run, outcome, row.last_input_seq)
        outcome = recalled.noted(run, outcome)
        _stale(run, outcome, to)
        steps = [*(_step(r, clean.outcome(o), ()) for r, o in held), _step(run, outcome, (*asked, *wrote.events))]
        same = listed == run.listed_from and row.last_input_seq == run.last_input_seq
        after = carrying.after(run, outcome, to, run.now, steps[-1].seen) if same else None
        kept = to not in TERMINAL and (keep if isinstance(keep, bool) else keep(to, after))
        change = _Change(
            row=row, steps=steps, approval_id=approval_id or row.approval_id, kept=kept, folded=folded,
            assumed=assumed is not None, alone=alone, also=wrote.rows,
        )  # fmt: skip
        position = events.move(run.run_id, _here(row), [(s.run.version + 1, s.events) for s in steps], change.write)
        shadows.keep(run, outcome)
    return _moved(change, position, after)


class _Overtaken(Exception):
    """The row is not as it was read."""


def _plain(first: RunState, run: RunState, outcome: Outcome) -> bool:
    """Whether a checkpoint needs nothing of its row but that it is as it was read; then no lock comes before it."""
    return first.listed_from is None and not recalled.quotes(outcome) and carrying.plain(run, outcome)


def _alone(outcome: Outcome, to: Status) -> bool:
    """Whether a plain checkpoint is one statement, which commits by itself: nothing else is written with it."""
    told = any(outbox.kind_of(event.type, event.meta) for event in outcome.events)
    return inserts.stands_alone() and to not in TERMINAL and to.value not in outbox.TOLD_STATUSES and not told


def _as_read(run: RunState) -> Locked:
    approval_id = run.approval.approval_id if run.approval is not None else None
    return Locked(
        last_seq=run.last_seq, chain_head=run.chain_head, last_input_seq=run.last_input_seq, approval_id=approval_id,
        restored_at=None,
    )  # fmt: skip


def _stale(run: RunState, outcome: Outcome, to: Status) -> None:
    if to is Status.ESCALATED and outcome.reason == "policy_stale":
        contract = run.contract
        incidents.abstained(run.tenant_id, contract.policy_version_pin, run.run_id, contract.queue_owner)


def leads_to(run: RunState, outcome: Outcome) -> Status:
    """The status that an outcome leads to. Raises IllegalTransition."""
    return next_status(run.status, outcome.on, confirmed_write=bool(run.confirmed), resume=outcome.resume)


def goes_on(run: RunState, outcome: Outcome) -> RunState | None:
    """The run as the next handler of this pass would see it, nothing committed; None where that is not known."""
    return carrying.after(run, clean.outcome(outcome), leads_to(run, outcome), run.now)


def _step(run: RunState, outcome: Outcome, more: tuple[NewEvent, ...]) -> Step:
    to = leads_to(run, outcome)
    happened = (*outcome.events, *more, *_status_event(run, outcome, to))
    return Step(run=run, outcome=outcome, to=to, seen=folding.observed(run, outcome), events=happened)


def _here(row: Locked) -> events.Position:
    return events.Position(seq=row.last_seq, head=row.chain_head)


def _moved(change: _Change, position: events.Position, after: RunState | None) -> Moved:
    """`after`: the run as the next handler sees it, but for what this commit gave it."""
    last, now = change.steps[-1], change.now
    state = None
    if after is not None and now is not None and change.kept:
        state = replace(
            after, now=now, status_since=now if last.to is not last.run.status else after.status_since,
            attempts=_tries(last.run, last.to, keep=True), last_seq=position.seq, chain_head=position.head,
        )  # fmt: skip
    return Moved(status=last.to, kept=change.kept, due=change.due and not change.kept, state=state)


def _status_event(run: RunState, outcome: Outcome, to: Status) -> tuple[NewEvent, ...]:
    """The change of status, and how long the handler had the run: what was waited for a worker stands apart.

    Of an end, what the run's row will say of it too, so that a row edited afterwards differs from its record.
    """
    more: dict[str, Any] = {"took_ms": max(0, round((clock.now() - run.now).total_seconds() * 1000))}
    if to in TERMINAL:
        kept = {"kept_reason": run.reason} if outcome.reason is None and run.reason is not None else {}
        more |= {"outcome": outcome.outcome, **kept}
    return tuple(replace(e, meta={**e.meta, **more}) for e in folding.status_event(run, outcome, to))


@dataclass(frozen=True, kw_only=True)
class Locked:
    """What doors may have changed since the run was read, under the row's lock."""

    last_seq: int
    chain_head: str
    last_input_seq: int
    approval_id: str | None
    restored_at: datetime | None


def _locked(run: RunState) -> Locked:
    lock = " FOR UPDATE" if connection.vendor == "postgresql" else ""  # SQLite's transaction holds the whole file
    with statements.cursor() as cursor:
        cursor.execute(f"{LOCK}{lock}", [raw_id(run.run_id)])
        row = cursor.fetchone()
    if row is None or (row[0], row[1]) != (run.version, run.lease):
        raise Fenced(run.run_id)
    return Locked(
        last_seq=row[2], chain_head=row[3], last_input_seq=row[4], approval_id=row[5],
        restored_at=dbtime.moment(row[6]),
    )  # fmt: skip


def _due(outcome: Outcome, to: Status, unread: bool) -> tuple[str, list[Any]]:
    if to in TERMINAL:
        return "NULL", []
    if unread and to not in (Status.EXECUTING, Status.EXECUTED):
        return dbtime.now_sql(), []
    if outcome.due_at is not None:
        return "%s", [dbtime.param(outcome.due_at)]
    wait = outcome.due_in_s if outcome.due_in_s is not None else (FAR_S if to in WAITING else 0.0)
    if wait <= 0:
        # One that was due a moment ago stays where it is in the index: a row that moves there is written in each.
        now, ago = dbtime.now_sql(), dbtime.plus_sql()
        return f"CASE WHEN due_at <= {now} AND due_at > {ago} THEN due_at ELSE {now} END", [dbtime.plus_param(-STILL_S)]
    return dbtime.plus_sql(), [dbtime.plus_param(wait)]


@dataclass(kw_only=True)
class _Change:
    """The one UPDATE of a checkpoint, with the rows of its steps. `now`, `due`: what the database said of it."""

    row: Locked
    steps: Sequence[Step]
    approval_id: str | None
    kept: bool
    folded: int
    assumed: bool
    alone: bool
    also: Sequence[Statement] = ()
    now: datetime | None = None
    due: bool = False

    def write(self, positions: Sequence[events.Position], happened: Sequence[Statement]) -> left.Rows | None:
        """Add the rows, change the run; how it leaves what its lines tell of. Raises Fenced."""
        rows = [one for step in self.steps for one in _rows(step)]
        columns, last, about = self._columns(positions), self.steps[-1], self._about()
        run_them = inserts.run_alone if self.alone else inserts.run_with
        found = run_them([*self.also, *rows, *happened], self._update(columns[-1], left.returning(about)))
        if found is None:
            raise _Overtaken if self.assumed else Fenced(last.run.run_id)
        self.due, self.now = bool(found[0]), dbtime.moment(found[1])
        now = left.found(about, found[2:], [one.written for one in self.also])
        if now is not None and left.CALLED in now:
            outbox.know(last.run.run_id, now[left.CALLED])
        for step, at, said in zip(self.steps, positions, columns, strict=True):
            told.stood(step.run, step.outcome, step.seen, said, version=step.run.version + 1, seq=at.seq, now=now)
        return now

    def _about(self) -> frozenset[str]:
        """What is asked of the rows: what the lines of the events and of a write's silent change tell, and whether
        anybody is called."""
        happened = [event for step in self.steps for event in step.events]
        silent = {"writes"} if any(told.in_silence(step.outcome) for step in self.steps) else set[str]()
        called = outbox.is_asked(self.steps[0].run.run_id, ((event.type, event.meta) for event in happened))
        return left.about(happened) | silent | ({left.CALLED} if called else set[str]())

    def _columns(self, positions: Sequence[events.Position]) -> list[dict[str, Any]]:
        """For each step what the row says after it."""
        after, each = dict[str, Any](), list[dict[str, Any]]()
        for step, at in zip(self.steps, positions, strict=True):
            after = after | _columns(step, self.approval_id, at, keep=self.kept)
            each.append(after)
        return each

    def _update(self, columns: dict[str, Any], more: str) -> Statement:
        """`more`: what it returns behind the two that are asked for here."""
        first, last = self.steps[0].run, self.steps[-1]
        due, due_params = _due(last.outcome, last.to, self.row.last_input_seq > self.folded)
        now, plus = dbtime.now_sql(), dbtime.plus_sql()
        lease = f"lease_until = {plus}, lease_deadline = {plus}" if self.kept else FREED
        lease_s = (env.read().LEASE_S, handler_deadline_s()) if self.kept else ()
        since = f", status_since = {now}" if any(s.to is not s.run.status for s in self.steps) else ""
        ended = f", completed_at = {now}" if last.to in TERMINAL else ""
        waits = last.outcome.due_at or last.outcome.due_in_s or last.to in WAITING
        names = ", ".join(f"{name} = %s" for name in columns)
        sql = (
            f"UPDATE runs_run SET {names}, due_at = {due}, {lease}, updated_at = {now}, "
            f"enqueued_at = {'NULL' if waits else now}, enqueue_tries = 0{since}{ended} "
            f"WHERE id = %s AND version = %s AND lease_token = %s{AS_READ if self.assumed else ''} "
            f"RETURNING COALESCE(due_at <= {now}, FALSE) AS due, {now} AS at{more}"
        )
        fence = [raw_id(first.run_id), first.version, first.lease]
        fence += [self.row.last_seq, self.row.last_input_seq] if self.assumed else []
        leased = [dbtime.plus_param(seconds) for seconds in lease_s]
        return Statement(sql=sql, params=[*columns.values(), *due_params, *leased, *fence])


def _rows(step: Step) -> list[Statement]:
    took = [new.took_ms for new in step.outcome.observations]
    return [*inserts.turn(step.run, step.outcome), *inserts.observations(step.run.run_id, step.seen, took)]


def _columns(step: Step, approval_id: str | None, position: events.Position, *, keep: bool) -> dict[str, Any]:
    run, outcome, to = step.run, step.outcome, step.to
    changed = folding.fields(run, outcome, to)
    columns = changed | {
        "status": to.value,
        "down_since": dbtime.param(changed["down_since"]),
        "resume_status": run.status.value if to is Status.WAITING_DEPENDENCY else None,
        "last_seq": position.seq,
        "chain_head": position.head,
        "approval_id": approval_id,
        "attempts": _tries(run, to, keep=keep),
    }
    if "pending" in columns:
        del columns["pending"]
        columns["pending_action"] = canonical_text(outcome.pending.wire()) if outcome.pending else None
    if outcome.outcome is not None:
        columns["outcome"] = outcome.outcome
    if outcome.verification is not None:
        columns["verification"] = canonical_text(outcome.verification)
    if outcome.reply is not None:
        columns["reply"] = outcome.reply
    if outcome.versions:
        columns["versions"] = canonical_text(run.versions | outcome.versions)
    return columns


def _tries(run: RunState, to: Status, *, keep: bool) -> int:
    """Each commit begins the count anew; but a write whose step kept killing its workers stays only looked up."""
    if run.status is to is Status.EXECUTING and run.attempts > env.read().MAX_STEP_ATTEMPTS:
        return run.attempts
    return 1 if keep else 0
