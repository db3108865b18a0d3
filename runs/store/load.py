"""Reads a run whole, as the frozen value its handlers see. Part of the store; writes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from agentsite import dbtime, env
from agentsite.money import Money
from agentsite.tenants.models import current_profile
from approvals import queue
from approvals.models import Approval
from runs.contracts import (
    OLDEST_SCHEMA,
    SCHEMA,
    Contract,
    Final,
    RunState,
    SeenApproval,
    SeenAttempt,
    SeenInput,
    SeenObservation,
    SeenTurn,
    SeenWrite,
    pending_from_wire,
)
from runs.errors import UnknownSchema
from runs.models import Attempt, Input, Observation, Run, Turn, Write
from runs.states import Status
from runs.store import attached
from tools.contracts import Proposal


def load(run_id: str, token: str) -> RunState:
    """The run as of now, fenced by `token`. Raises UnknownSchema where no code of ours can read it."""
    try:
        return _state(Run.objects.get(id=run_id), run_id, token)
    except (KeyError, TypeError, ValueError) as error:
        raise UnknownSchema(f"{type(error).__name__}: {error}") from None


def listed_from(restored_at: datetime | None, tenant_id: str, agent: str) -> datetime | None:
    """From when on a list shows whatever was made before a restore; None for a run that never came back from one.

    By what the tenant's business system promises now; where it promises nothing, as long as a verification waits.
    """
    if restored_at is None:
        return None
    settings, profile = env.read(), current_profile(tenant_id, agent)
    commerce = profile.commerce if profile is not None else None
    settle_s = commerce.settle_s if commerce is not None else settings.COMMERCE_SETTLE_S
    return restored_at + timedelta(seconds=settings.VERIFY_FOR_S if settle_s is None else settle_s)


def _state(row: Run, run_id: str, token: str) -> RunState:
    now = dbtime.now()
    pending = row.pending_action
    return RunState(
        run_id=run_id, tenant_id=row.tenant_id, request_id=row.request_id, trace_id=row.trace_id, agent=row.agent,
        contract=_contract(row), status=Status(row.status), reason=row.reason, waiting_for=row.waiting_for,
        resume_status=Status(row.resume_status) if row.resume_status else None, dependency=row.dependency,
        status_since=row.status_since, created_at=row.created_at, version=row.version,
        last_input_seq=row.last_input_seq, folded_input_seq=row.folded_input_seq,
        pending=pending_from_wire(pending) if pending else None, verification=row.verification,
        model_calls=row.model_calls, write_attempts=row.write_attempts, input_tokens=row.input_tokens,
        output_tokens=row.output_tokens, cost_micros=row.cost_micros, active_ms=row.active_ms, repairs=row.repairs,
        retries=row.retries, voids=row.voids, attempts=row.attempts, lease=token, now=now,
        down_since=row.down_since, window_tokens=row.window_tokens, turn_requests=row.turn_requests,
        listed_from=listed_from(row.restored_at, row.tenant_id, row.agent),
        observations=observations(run_id), turns=_turns(run_id), writes=writes(run_id),
        approval=_approval(row, now), inputs=_inputs(row),
    )  # fmt: skip


def _contract(row: Run) -> Contract:
    if not OLDEST_SCHEMA <= row.schema <= SCHEMA:
        raise UnknownSchema(f"schema {row.schema}")
    try:
        return Contract.model_validate(row.contract)
    except ValidationError as error:
        raise UnknownSchema(f"contract: {error.error_count()} faults") from None


def observations(run_id: str) -> tuple[SeenObservation, ...]:
    """What the run was told, in order."""
    return tuple(
        SeenObservation(
            obs_id=o.obs_id, position=o.position, call_id=o.call_id, span=o.span, kind=o.kind, source=o.source,
            args=o.args, content=o.content, content_hash=o.content_hash, meta=o.meta, fetched_at=o.fetched_at,
        )
        for o in Observation.objects.filter(run_id=run_id).order_by("position")
    )  # fmt: skip


def cancel_asked(run_id: str) -> bool:
    """Whether anybody asked to cancel the run, read by a handler yet or not."""
    return Input.objects.filter(run_id=run_id, kind="cancel").exists()


def proposals_from_wire(data: Iterable[dict[str, Any]]) -> tuple[Proposal, ...]:
    return tuple(
        Proposal(call_id=p["call_id"], tool=p["tool"], args=p["args"], evidence=tuple(p["evidence"])) for p in data
    )


def _turns(run_id: str) -> tuple[SeenTurn, ...]:
    return tuple(
        SeenTurn(
            number=t.number, route=t.route, answered_model=t.answered_model, prompt_version=t.prompt_version,
            proposals=proposals_from_wire(t.proposals), error=t.error,
            final=Final(text=t.final["text"], evidence=tuple(t.final["evidence"])) if t.final else None,
            input_tokens=t.input_tokens, estimate=t.estimate,
        )
        for t in Turn.objects.filter(run_id=run_id).defer("raw").order_by("number")
    )  # fmt: skip


def writes(run_id: str) -> tuple[SeenWrite, ...]:
    """The run's writes with their attempts, oldest first."""
    rows = list(Write.objects.filter(run_id=run_id).order_by("intent_at"))
    tries: dict[str, list[Attempt]] = defaultdict(list)
    if rows:
        for attempt in Attempt.objects.filter(write__run_id=run_id).order_by("number"):
            tries[attempt.write_id].append(attempt)
    return tuple(seen_write(row, tries[row.key]) for row in rows)


def seen_write(w: Write, tries: list[Attempt]) -> SeenWrite:
    return SeenWrite(
        key=w.key, order_id=w.order_id, payment_id=w.payment_id, tool=w.tool, args=w.args, action_hash=w.action_hash,
        approval_id=w.approval_id, decision_id=w.decision_id, body=w.body,
        origin=w.origin,
        amount=Money(minor=w.amount_minor, currency=w.currency), state=w.state, refund_id=w.refund_id,
        refund_state=w.refund_state, call_id=w.call_id, intent_at=w.intent_at, unknown_since=w.unknown_since,
        absent_at=w.absent_at, executed_at=w.executed_at, seen_at=w.seen_at, looks=w.looks,
        attempts=tuple(
            SeenAttempt(
                number=a.number, prepared_at=a.prepared_at, sent_at=a.sent_at, gives_up_at=a.gives_up_at,
                answer=a.answer,
            )
            for a in tries
        ),
    )  # fmt: skip


def _approval(row: Run, now: datetime) -> SeenApproval | None:
    if row.approval_id is None:
        return None
    a = Approval.objects.get(id=row.approval_id)
    return SeenApproval(
        approval_id=a.id, status=a.status, action_hash=a.action_hash, required=a.required, large=a.large,
        expires_at=a.expires_at, decided_at=a.decided_at, decided_by=a.decided_by, reason=a.reason,
        execute_by=a.execute_by, expired=a.expires_at <= now, late=a.execute_by is not None and a.execute_by <= now,
        deciders_permitted=a.status == "approved" and queue.permitted(a.id), deciders=queue.deciders(a.id),
        shown_changes=tuple((a.reread or {}).get("changes", ())),
    )  # fmt: skip


def _inputs(row: Run) -> tuple[SeenInput, ...]:
    if row.last_input_seq == row.folded_input_seq:
        return ()
    unread = Input.objects.filter(run_id=row.id, seq__gt=row.folded_input_seq, seq__lte=row.last_input_seq)
    found = list(unread.order_by("seq"))
    files = attached.references(row.id, [i.seq for i in found])
    return tuple(
        SeenInput(seq=i.seq, kind=i.kind, text=i.text, by=i.by, at=i.at, attachments=files.get(i.seq, ()))
        for i in found
    )
