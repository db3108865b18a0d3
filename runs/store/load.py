"""Reads a run whole, as the frozen value its handlers see. Part of the store; writes nothing."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from agentsite import env
from agentsite.money import Money
from agentsite.tenants.models import current_profile
from approvals import queue
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
from runs.models import Attempt, Input, Observation, Run, Write
from runs.states import Status
from runs.store import attached, prefixes, whole
from runs.store.whole import ATTEMPT, WRITE, Row
from tools.contracts import Proposal

SAME = (
    "tenant_id", "request_id", "trace_id", "agent", "reason", "waiting_for", "dependency", "status_since", "created_at",
    "version", "last_input_seq", "folded_input_seq", "verification", "model_calls", "write_attempts", "input_tokens",
    "output_tokens", "cost_micros", "active_ms", "repairs", "retries", "voids", "attempts", "down_since",
    "window_tokens", "turn_requests", "last_seq", "chain_head", "versions",
)  # fmt: skip
"""Columns that a handler sees as they are."""


def load(run_id: str, token: str, read: prefixes.Read | None = None) -> RunState:
    """The run as of now, or as its claim `read` it, fenced by `token`. Raises UnknownSchema where no code of ours can
    read it."""
    try:
        known, row = _of_claim(read) or _read(run_id)
        return _state(row, known, run_id, token)
    except (KeyError, TypeError, ValueError) as error:
        raise UnknownSchema(f"{type(error).__name__}: {error}") from None


def _of_claim(read: prefixes.Read | None) -> tuple[prefixes.Prefix, Row] | None:
    """What the claim found; None where it did not look, or what was known of the run has changed since."""
    found = read.taken() if read is not None else None
    if read is None or found is None:
        return None
    row = whole.made(found)
    return (read.known, row) if _goes_with(read.known, row) else None


def _goes_with(known: prefixes.Prefix, row: Row) -> bool:
    return known is prefixes.NOTHING or known.begins(row)


def _read(run_id: str) -> tuple[prefixes.Prefix, Row]:
    """What is known of the run already, and its row with everything else. Raises Run.DoesNotExist."""
    known = prefixes.of(run_id)
    row = whole.read(run_id, known.past)
    if row is not None and not _goes_with(known, row):
        known, row = prefixes.NOTHING, whole.read(run_id)
    if row is None:
        raise Run.DoesNotExist(run_id)
    return known, row


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


def _state(row: Row, known: prefixes.Prefix, run_id: str, token: str) -> RunState:
    now, pending, resume = row["now"], row["pending_action"], row["resume_status"]
    observations = (*known.observations, *(SeenObservation(**o) for o in row["observations"]))
    turns = (*known.turns, *(_turn(t) for t in row["turns"]))
    prefixes.keep(run_id, known, row, observations, turns)
    return RunState(
        **{name: row[name] for name in SAME}, run_id=run_id, lease=token, now=now,
        contract=_contract(row["schema"], row["contract"]), status=Status(row["status"]),
        resume_status=Status(resume) if resume else None,
        pending=pending_from_wire(pending) if pending else None,
        listed_from=listed_from(row["restored_at"], row["tenant_id"], row["agent"]),
        observations=observations, turns=turns, writes=_writes(row["writes"], row["tries"]),
        approval=_approval(row, now), inputs=_inputs(row, run_id),
    )  # fmt: skip


@lru_cache(maxsize=256)
def _contract(schema: int, text: str) -> Contract:
    """Never changed after admission, so a process reads each once."""
    if not OLDEST_SCHEMA <= schema <= SCHEMA:
        raise UnknownSchema(f"schema {schema}")
    try:
        return Contract.model_validate(json.loads(text))
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


def _turn(row: Row) -> SeenTurn:
    final = row["final"]
    return SeenTurn(
        **row | {
            "proposals": proposals_from_wire(row["proposals"]),
            "final": Final(text=final["text"], evidence=tuple(final["evidence"])) if final else None,
        }
    )  # fmt: skip


def writes(run_id: str) -> tuple[SeenWrite, ...]:
    """The run's writes with their attempts, oldest first."""
    rows = list(Write.objects.filter(run_id=run_id).order_by("intent_at").values(*WRITE))
    tries = Attempt.objects.filter(write__run_id=run_id).order_by("number").values(*ATTEMPT) if rows else ()
    return _writes(rows, tries)


def _writes(rows: Iterable[Row], tries: Iterable[Row]) -> tuple[SeenWrite, ...]:
    each: dict[str, list[SeenAttempt]] = defaultdict(list)
    for row in tries:
        each[row["write_id"]].append(SeenAttempt(**{name: row[name] for name in ATTEMPT[1:]}))
    return tuple(_write(row, each[row["key"]]) for row in rows)


def _write(row: Row, tries: Iterable[SeenAttempt]) -> SeenWrite:
    known = {name: row[name] for name in WRITE if name not in ("amount_minor", "currency")}
    return SeenWrite(**known, amount=Money(minor=row["amount_minor"], currency=row["currency"]), attempts=tuple(tries))


def seen_write(w: Write, tries: Iterable[Attempt]) -> SeenWrite:
    return _write(
        {name: getattr(w, name) for name in WRITE},
        [SeenAttempt(**{name: getattr(a, name) for name in ATTEMPT[1:]}) for a in tries],
    )


def _approval(row: Row, now: datetime) -> SeenApproval | None:
    if row["approval_id"] is None:
        return None
    [a] = row["approval"]
    approved, execute_by = a["status"] == "approved", a["execute_by"]
    return SeenApproval(
        approval_id=a["id"], status=a["status"], action_hash=a["action_hash"], required=a["required"],
        large=a["large"], expires_at=a["expires_at"], decided_at=a["decided_at"], decided_by=a["decided_by"],
        reason=a["reason"], execute_by=execute_by, expired=a["expires_at"] <= now,
        late=execute_by is not None and execute_by <= now,
        deciders_permitted=approved and queue.permitted(a["id"]), deciders=tuple(d["by"] for d in row["deciders"]),
        shown_changes=tuple((a["reread"] or {}).get("changes", ())),
    )  # fmt: skip


def _inputs(row: Row, run_id: str) -> tuple[SeenInput, ...]:
    unread = row["inputs"]
    files = attached.references(UUID(run_id), [i["seq"] for i in unread]) if unread else {}
    return tuple(SeenInput(**i, attachments=files.get(i["seq"], ())) for i in unread)
