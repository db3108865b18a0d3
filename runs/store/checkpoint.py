"""`checkpoint`: the one way a status changes. One transaction carries the transition, its rows and its events.

Compare-and-set on version and lease; an unread input forbids every terminal status (`write-path.md` 1).
Lock order everywhere: site, tenant, run, approval, order guard, counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from django.db import connection, transaction

from agentsite import clock, dbtime, env
from agentsite.canonical import canonical_text
from runs.contracts import NewEvent, Outcome, RunState, SeenObservation
from runs.errors import Fenced, RunError
from runs.models import Observation, Run, Turn
from runs.states import TERMINAL, WAITING, Status, next_status
from runs.store import asks, clean, events, folding, money_rows, recalled, shadows, told
from runs.store.lease import handler_deadline_s, raw_id
from runs.store.load import listed_from
from tools.policy import incidents

FAR_S = 315_360_000.0


class UnreadInput(RunError):
    """A door left an input after the handler looked: run the handler again with it."""

    slug = "unread_input"


def checkpoint(run: RunState, outcome: Outcome, *, keep: bool) -> Status:
    """Commit what a handler found; returns the new status. `keep` renews the lease for the next handler.

    Raises Fenced (another worker has the run), UnreadInput, or IntentLost; then nothing at all was changed.
    """
    outcome = clean.outcome(outcome)
    to = next_status(run.status, outcome.on, confirmed_write=bool(run.confirmed), resume=outcome.resume)
    money_rows.look_before_closing(outcome.write)
    with transaction.atomic():
        released = outcome.intent.release if outcome.intent else outcome.resend
        if released is not None:
            money_rows.lock_switches(run, released)
        elif outcome.write is not None:
            money_rows.lock_closing(outcome.write)
        row = _locked(run)
        folded = outcome.folded if outcome.folded is not None else run.folded_input_seq
        if to in TERMINAL and row.last_input_seq > folded:
            raise UnreadInput(to.value)
        if to is Status.COMPLETED and listed_from(row.restored_at, run.tenant_id, run.agent) != run.listed_from:
            raise UnreadInput("restored")  # what it is about to say was true before the database was put back
        approval_id, asked = asks.apply(run, outcome, to)
        wrote = money_rows.apply(run, outcome, row.last_input_seq)
        outcome = recalled.noted(run, outcome)
        if to is Status.ESCALATED and outcome.reason == "policy_stale":
            contract = run.contract
            incidents.abstained(run.tenant_id, contract.policy_version_pin, run.run_id, contract.queue_owner)
        _insert_turn(run, outcome)
        seen = _insert_observations(run, outcome)
        version = run.version + 1
        happened = (*outcome.events, *asked, *wrote, *_status_event(run, outcome, to))
        here = events.Position(seq=row.last_seq, head=row.chain_head)
        update = partial(
            _update, run, outcome, to, row=row, approval_id=approval_id, keep=keep, folded=folded, seen=seen
        )
        events.move(run.run_id, here, version, happened, update)
        shadows.keep(run, outcome)
    return to


def _status_event(run: RunState, outcome: Outcome, to: Status) -> tuple[NewEvent, ...]:
    """The change of status, and how long the handler had the run: what was waited for a worker stands apart.

    Of an end, what the run's row will say of it too, so that a row edited afterwards differs from its record.
    """
    more: dict[str, Any] = {"took_ms": max(0, round((clock.now() - run.now).total_seconds() * 1000))}
    if to in TERMINAL:
        kept = {"kept_reason": run.reason} if outcome.reason is None and run.reason is not None else {}
        more |= {"outcome": outcome.outcome, **kept}
    return tuple(replace(e, meta={**e.meta, **more}) for e in folding.status_event(run, outcome, to))


def _locked(run: RunState) -> Run:
    row = Run.objects.select_for_update().only(
        "version", "lease_token", "last_seq", "chain_head", "last_input_seq", "approval_id", "restored_at"
    ).get(id=run.run_id)  # fmt: skip
    if row.version != run.version or row.lease_token != run.lease:
        raise Fenced(run.run_id)
    return row


def _insert_turn(run: RunState, outcome: Outcome) -> None:
    turn = outcome.turn
    if turn is None:
        return
    final = {"text": turn.final.text, "evidence": list(turn.final.evidence)} if turn.final else None
    Turn.objects.create(
        run_id=run.run_id, number=run.model_calls + 1, span=turn.span, route=turn.route,
        answered_model=turn.answered_model, prompt_version=turn.prompt.version, prompt_hash=turn.prompt.hash,
        template_hash=turn.prompt.template_hash, tools_version=turn.prompt.tools_hash,
        registry_version=turn.registry_version, policy_version=run.contract.policy_version_pin,
        tools_shown=[t.name for t in turn.prompt.tools], raw=turn.raw,
        proposals=[
            {"call_id": p.call_id, "tool": p.tool, "args": p.args, "evidence": list(p.evidence)}
            for p in turn.proposals
        ],
        final=final, error=turn.error, finish_reason=turn.finish_reason, input_tokens=turn.input_tokens,
        output_tokens=turn.output_tokens, cached_tokens=turn.cached_tokens, estimate=turn.estimate,
        cost_micros=turn.cost_micros, started_at=run.now, took_ms=turn.took_ms,
    )  # fmt: skip


def _insert_observations(run: RunState, outcome: Outcome) -> tuple[SeenObservation, ...]:
    seen = folding.observed(run, outcome)
    Observation.objects.bulk_create(
        [
            Observation(
                run_id=run.run_id, obs_id=o.obs_id, position=o.position, call_id=o.call_id, span=o.span, kind=o.kind,
                source=o.source, args=o.args, content=o.content, content_hash=o.content_hash, meta=o.meta,
                fetched_at=o.fetched_at, took_ms=new.took_ms,
            )
            for o, new in zip(seen, outcome.observations, strict=True)
        ]
    )  # fmt: skip
    return seen


def _due(outcome: Outcome, to: Status, unread: bool) -> tuple[str, list[Any]]:
    if to in TERMINAL:
        return "NULL", []
    if unread and to not in (Status.EXECUTING, Status.EXECUTED):
        return dbtime.now_sql(), []
    if outcome.due_at is not None:
        return "%s", [dbtime.param(outcome.due_at)]
    wait = outcome.due_in_s if outcome.due_in_s is not None else (FAR_S if to in WAITING else 0.0)
    return dbtime.plus_sql(), [dbtime.plus_param(wait)]


def _update(
    run: RunState,
    outcome: Outcome,
    to: Status,
    position: events.Position,
    *,
    row: Run,
    approval_id: str | None,
    keep: bool,
    folded: int,
    seen: Sequence[SeenObservation],
) -> None:
    columns = _columns(run, outcome, to, approval_id or row.approval_id, position, keep)
    due, due_params = _due(outcome, to, row.last_input_seq > folded)
    now, plus = dbtime.now_sql(), dbtime.plus_sql()
    kept = keep and to not in TERMINAL
    lease = f"lease_until = {plus}, lease_deadline = {plus}" if kept else (
        "lease_token = NULL, lease_until = NULL, lease_deadline = NULL"
    )  # fmt: skip
    lease_params = [dbtime.plus_param(env.read().LEASE_S), dbtime.plus_param(handler_deadline_s())] if kept else []
    since = f", status_since = {now}" if to is not run.status else ""
    ended = f", completed_at = {now}" if to in TERMINAL else ""
    names = ", ".join(f"{name} = %s" for name in columns)
    queued = "NULL" if outcome.due_at or outcome.due_in_s or to in WAITING else now
    sql = (
        f"UPDATE runs_run SET {names}, due_at = {due}, {lease}, updated_at = {now}, "
        f"enqueued_at = {queued}, enqueue_tries = 0{since}{ended} WHERE id = %s AND version = %s AND lease_token = %s"
    )
    fence = [raw_id(run.run_id), run.version, run.lease]
    with connection.cursor() as cursor:
        cursor.execute(sql, [*columns.values(), *due_params, *lease_params, *fence])
        if cursor.rowcount != 1:
            raise Fenced(run.run_id)
    told.stood(run, outcome, seen, columns, version=run.version + 1, seq=position.seq)


def _columns(
    run: RunState, outcome: Outcome, to: Status, approval_id: str | None, position: events.Position, keep: bool
) -> dict[str, Any]:
    changed = folding.fields(run, outcome, to)
    columns = changed | {
        "status": to.value,
        "down_since": dbtime.param(changed["down_since"]),
        "resume_status": run.status.value if to is Status.WAITING_DEPENDENCY else None,
        "last_seq": position.seq,
        "chain_head": position.head,
        "approval_id": approval_id,
        "attempts": _tries(run, to, keep),
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
        columns["versions"] = canonical_text(_versions(run.run_id) | outcome.versions)
    return columns


def _tries(run: RunState, to: Status, keep: bool) -> int:
    """Each commit begins the count anew; but a write whose step kept killing its workers stays only looked up."""
    if run.status is to is Status.EXECUTING and run.attempts > env.read().MAX_STEP_ATTEMPTS:
        return run.attempts
    return 1 if keep else 0


def _versions(run_id: str) -> dict[str, Any]:
    stored: dict[str, Any] = Run.objects.values_list("versions", flat=True).get(id=run_id)
    return stored
