"""Keeps a replayed run in memory as the store keeps it in rows: the same folding, no query, no row, no clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from agentsite.clock import parse_rfc3339
from agentsite.money import parse as parse_money
from runs.attachments import SOURCE
from runs.contracts import (
    Intent,
    NewApproval,
    NewEvent,
    Outcome,
    RunState,
    SeenApproval,
    SeenAttempt,
    SeenObservation,
    SeenTurn,
    SeenWrite,
    WriteChange,
    pending_from_wire,
)
from runs.replay.record import GRAIN, Mark, Recorded, Step
from runs.states import Status
from runs.store import asks, folding, money_rows
from tools.contracts import Json, Refund, Release

UNDECIDED = frozenset({"pending"})
OPEN = frozenset({"pending", "approved"})


@dataclass(frozen=True, kw_only=True)
class Chance:
    """What a record does not say of a step: which of the inputs its handler saw, how often it was tried before.

    `stored`: the action in the row was no longer the one that was proposed; `late`: its active time was used up;
    `away`: the look-up gave no answer; `withheld`: the facts of a re-release said no; `final`: the model refused for
    good; `permitted`: who approved may still; `young`: its evidence was just young enough; `lost`: the intent's
    condition that did not hold.
    """

    unseen: int = 0
    attempts: int = 1
    permitted: bool = True
    stored: bool = False
    late: bool = False
    away: bool = False
    withheld: bool = False
    final: bool = False
    young: bool = False
    lost: str | None = None


def begin(record: Recorded) -> RunState:
    """The run as admission left it."""
    row, created = record.run, parse_rfc3339(record.run["created_at"])
    return RunState(
        run_id=record.run_id, tenant_id=row["tenant_id"], request_id=row["request_id"], trace_id=row["trace_id"],
        agent=row["agent"], contract=record.contract, status=Status.ACCEPTED, reason=None, waiting_for=None,
        resume_status=None, dependency=None, status_since=created, created_at=created, version=1, last_input_seq=0,
        folded_input_seq=0, pending=None, verification=None, model_calls=0, write_attempts=0, input_tokens=0,
        output_tokens=0, cost_micros=0, active_ms=0, repairs=0, retries=0, voids=0, attempts=1, lease="", now=created,
        observations=tuple(o for o in record.observations if o.source == SOURCE), turns=(), writes=(), approval=None,
        inputs=(),
        listed_from=parse_rfc3339(row["listed_from"]) if row.get("listed_from") else None,
    )  # fmt: skip


def arrived(run: RunState, record: Recorded, step: Step) -> RunState:
    """The run with what came before a step: inputs, a write settled by hand, an approval made void by a door."""
    inputs = (*run.inputs, *step.inputs)
    run = replace(run, inputs=inputs, last_input_seq=max([run.last_input_seq, *(i.seq for i in step.inputs)]))
    for event in step.settled:
        run = _changed(run, _by_hand(run, event.meta), event.at)
    for event in step.doubted:
        run = _with_write(run, _doubted(run, event.meta))
    if run.approval is not None and (step.door_void or _voided_outside(record, run.approval.approval_id, step.at)):
        run = replace(run, approval=replace(run.approval, status="void"))
    return run


def _doubted(run: RunState, meta: Json) -> SeenWrite:
    """A write that a fence doubted: what was prepared may have been sent, until then."""
    at = parse_rfc3339(meta["fenced_at"])
    write = next(w for w in run.writes if w.key == meta["key"])
    tries = tuple(
        replace(a, sent_at=a.sent_at or a.prepared_at, gives_up_at=at) if a.number in meta["attempts"] else a
        for a in write.attempts
    )
    known = write.state == "pending"
    return replace(
        write, attempts=tries, absent_at=None, state=write.state if known else "unknown",
        unknown_since=write.unknown_since if known else at,
    )  # fmt: skip


def _by_hand(run: RunState, meta: Json) -> WriteChange:
    """What a person found out about a write of a run that lives."""
    if meta["refund_id"] is None:
        return WriteChange(key=meta["key"], state=meta["state"], answer="absent_by_staff")
    write = next(w for w in run.writes if w.key == meta["key"])
    refund = Refund(
        refund_id=meta["refund_id"], payment_id=write.payment_id, order_id=write.order_id, state="succeeded",
        amount=parse_money(meta["amount"]), idempotency_key=None, metadata=None, created_at=None,
    )  # fmt: skip
    return WriteChange(key=write.key, state=meta["state"], refund=refund, answer="found_by_staff")


def _voided_outside(record: Recorded, approval_id: str, at: datetime) -> bool:
    row = record.approvals[approval_id]
    if row["status"] != "void" or row["ended_at"] is None or parse_rfc3339(row["ended_at"]) > at:
        return False
    ours = (e for s in record.steps for e in s.events if e.type == "approval.void")
    return not any(e.meta["approval_id"] == approval_id for e in ours)


def view(run: RunState, record: Recorded, step: Step, chance: Chance) -> RunState:
    """The run as the step's handler saw it."""
    seen = run.inputs[: len(run.inputs) - chance.unseen]
    last = run.last_input_seq if not chance.unseen else max([run.folded_input_seq, *(i.seq for i in seen)])
    deadline = record.contract.limits.deadline_ms
    now = _looked_at(step)
    stored = record.run["pending_action"] if chance.stored else None
    return replace(
        run, pending=pending_from_wire(stored) if stored else run.pending, now=now, inputs=seen, last_input_seq=last,
        attempts=chance.attempts, active_ms=deadline if chance.late else min(run.active_ms, deadline - 1),
        approval=_approval(_kept(run.approval, step, chance), record, now, chance) if run.approval else None,
    )  # fmt: skip


def void_unseen(step: Step, chance: Chance) -> bool:
    """Whether the approval became void, with the first message of these, only after the handler had looked."""
    return step.door_void and 0 < chance.unseen == len(step.inputs)


def _kept(approval: SeenApproval, step: Step, chance: Chance) -> SeenApproval:
    return replace(approval, status="pending") if void_unseen(step, chance) else approval


def _looked_at(step: Step) -> datetime:
    """When the handler looked: a verification names it; elsewhere the instant its events were written."""
    verified = step.first("write.verified", "write.mismatch")
    at = (verified.payload or {}).get("at") if verified else None
    return parse_rfc3339(at) if at else step.at + GRAIN


def _approval(kept: SeenApproval, record: Recorded, now: datetime, chance: Chance) -> SeenApproval:
    row = record.approvals[kept.approval_id]
    counted = [d for d in row["decisions"] if d["counted"] and parse_rfc3339(d["at"]) <= now]
    yes = tuple(d["by"] for d in counted if d["kind"] == "approve")
    status = kept.status
    if status in UNDECIDED and any(d["kind"] == "reject" for d in counted):
        status = "rejected"
    elif status in UNDECIDED and len(yes) >= row["required"]:
        status = "approved"
    last = counted[-1] if counted and status != "pending" else None
    execute_by = parse_rfc3339(row["execute_by"]) if last and row["execute_by"] else None
    return replace(
        kept, status=status, decided_at=parse_rfc3339(last["at"]) if last else None,
        decided_by=last["by"] if last else None, reason=last["reason"] if last else "", execute_by=execute_by,
        expired=kept.expires_at <= now, late=execute_by is not None and execute_by <= now,
        deciders_permitted=status == "approved" and chance.permitted, deciders=yes,
        shown_changes=tuple((row.get("reread") or {}).get("changes", ())),
    )  # fmt: skip


def marked(run: RunState, record: Recorded, mark: Mark) -> RunState:
    """The run after the commit directly before the socket."""
    times = {a["number"]: a for a in record.writes[mark.key]["attempts"]}
    gives_up = times.get(mark.attempt, {}).get("gives_up_at")
    until = parse_rfc3339(gives_up) if gives_up else mark.at + timedelta(seconds=record.settings["WRITE_TIMEOUT_S"])
    write = next(w for w in run.writes if w.key == mark.key)
    tries = tuple(
        replace(a, sent_at=mark.at, gives_up_at=until) if a.number == mark.attempt else a for a in write.attempts
    )
    changed = replace(write, state="sent", attempts=tries)
    return replace(_with_write(run, changed), write_attempts=run.write_attempts + 1)


def commit(
    run: RunState, outcome: Outcome, to: Status, record: Recorded, step: Step
) -> tuple[RunState, tuple[NewEvent, ...]]:
    """The run after a transition, and every event of it in the store's order."""
    asked_run, asked = _asked(run, outcome, to, record, step)
    wrote_run, wrote = _wrote(asked_run, outcome, step)
    events = (*outcome.events, *asked, *wrote, *folding.status_event(run, outcome, to))
    folded = folding.fields(run, outcome, to)
    left = tuple(i for i in run.inputs if i.seq > folded["folded_input_seq"])
    since = run.status_since if to is run.status else step.at
    return replace(
        wrote_run, **folded, status_since=since, inputs=left, turns=(*run.turns, *_turn(run, outcome)),
        observations=(*run.observations, *_recorded(run, outcome, record)),
    ), events  # fmt: skip


def _recorded(run: RunState, outcome: Outcome, record: Recorded) -> tuple[SeenObservation, ...]:
    """The record's own rows where they are there: what the next prompt shows has the times of then."""
    first = len(run.observations)
    made = folding.observed(run, outcome)
    known = record.observations[first : first + len(made)]
    return (*known, *made[len(known) :])


def _turn(run: RunState, outcome: Outcome) -> tuple[SeenTurn, ...]:
    turn = outcome.turn
    if turn is None:
        return ()
    return (
        SeenTurn(
            number=run.model_calls + 1, route=turn.route, answered_model=turn.answered_model,
            prompt_version=turn.prompt.version, proposals=turn.proposals, final=turn.final, error=turn.error,
            input_tokens=turn.input_tokens, estimate=turn.estimate,
        ),
    )  # fmt: skip


# --- approvals ----------------------------------------------------------------------------------------------


def _asked(
    run: RunState, outcome: Outcome, to: Status, record: Recorded, step: Step
) -> tuple[RunState, tuple[NewEvent, ...]]:
    happened: list[NewEvent] = []
    approval = run.approval
    if outcome.expire_approval and approval is not None:
        approval = replace(approval, status="expired")
        happened.append(asks.expired_event(approval.approval_id))
    reason = asks.why_void(run, outcome, to)
    if reason is not None and approval is not None and approval.status in OPEN:
        approval = replace(approval, status="void")
        happened.append(asks.void_event(approval.approval_id, reason))
    if outcome.approval is not None:
        approval = _new_approval(outcome.approval, record, step)
        happened.append(asks.requested_event(approval.approval_id, outcome.approval))
    return replace(run, approval=approval), tuple(happened)


def _new_approval(new: NewApproval, record: Recorded, step: Step) -> SeenApproval:
    """The question as it was recorded; one that the record does not know never ends."""
    asked = step.first("approval.requested")
    row: Json = record.approvals.get(asked.meta["approval_id"], {}) if asked else {}
    expires = parse_rfc3339(row["expires_at"]) if row else datetime.max.replace(tzinfo=step.at.tzinfo)
    return SeenApproval(
        approval_id=row.get("approval_id", ""), status="pending", action_hash=new.pending.action_hash,
        required=new.decision.required, large=new.decision.large, expires_at=expires, decided_at=None, decided_by=None,
        reason="", execute_by=None, expired=False, late=False, deciders_permitted=False, deciders=(),
    )  # fmt: skip


# --- writes -------------------------------------------------------------------------------------------------


def _wrote(run: RunState, outcome: Outcome, step: Step) -> tuple[RunState, tuple[NewEvent, ...]]:
    if outcome.intent is not None:
        return _intended(run, outcome.intent, step.at)
    if outcome.resend is not None:
        return _prepared_again(run, outcome.resend, step.at)
    if outcome.write is not None:
        return _changed(run, outcome.write, step.at), ()
    return run, ()


def _intended(run: RunState, intent: Intent, at: datetime) -> tuple[RunState, tuple[NewEvent, ...]]:
    release = intent.release
    earlier = next((w for w in run.writes if w.key == release.key), None)
    number = len(earlier.attempts) + 1 if earlier else 1
    write = SeenWrite(
        key=release.key, order_id=release.order_id, payment_id=release.payment_id, tool=release.tool,
        args=release.args, action_hash=release.action_hash, approval_id=release.approval_id,
        decision_id=release.decision_id, body=release.body, origin=release.origin, amount=release.amount,
        state="intent", refund_id=None, refund_state=None, call_id=intent.pending.call_id, intent_at=at,
        unknown_since=None, absent_at=None, executed_at=None, seen_at=None, looks=0,
        attempts=(*(earlier.attempts if earlier else ()), _prepared(number, at)),
    )  # fmt: skip
    approval = replace(run.approval, status="consumed") if run.approval and release.approval_id else run.approval
    others = tuple(w for w in run.writes if w.key != release.key)
    run = replace(run, writes=(*others, write), approval=approval)
    return run, (money_rows.intent_event(release, number),)


def _prepared(number: int, at: datetime) -> SeenAttempt:
    return SeenAttempt(number=number, prepared_at=at, sent_at=None, gives_up_at=None, answer="")


def _prepared_again(run: RunState, release: Release, at: datetime) -> tuple[RunState, tuple[NewEvent, ...]]:
    write = next(w for w in run.writes if w.key == release.key)
    unsent = next((a for a in write.attempts if a.sent_at is None and not a.answer), None)
    number = unsent.number if unsent else len(write.attempts) + 1
    tries = write.attempts if unsent else (*write.attempts, _prepared(number, at))
    changed = replace(write, absent_at=None, attempts=tries)
    return _with_write(run, changed), (money_rows.released_again_event(release, number),)


def _changed(run: RunState, change: WriteChange, at: datetime) -> RunState:
    write = next(w for w in run.writes if w.key == change.key)
    fields = folding.write_fields(change, at, unknown_since=write.unknown_since, executed_at=write.executed_at)
    sent = [a.number for a in write.attempts if a.sent_at is not None]
    tries = tuple(
        replace(a, answer=change.answer) if change.answer and sent and a.number == sent[-1] else a
        for a in write.attempts
    )
    return _with_write(run, replace(write, **fields, looks=write.looks + 1, attempts=tries))


def _with_write(run: RunState, changed: SeenWrite) -> RunState:
    return replace(run, writes=tuple(changed if w.key == changed.key else w for w in run.writes))
