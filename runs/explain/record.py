"""Collects a run's rows and tells its story from them. Asks nothing live, writes nothing.

`explain` is a pure function of the record: the same rows always tell the same story.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth import get_user_model

from agentsite import clock
from agentsite.money import Money
from agentsite.text import visible
from approvals.models import Approval, Decision
from runs import evidence, reply, store
from runs.contracts import SeenObservation
from runs.explain import answer
from runs.explain.values import Answered, Asked, Explanation, Gated, Proposed, Read, Tried, Wrote
from runs.models import Archive, Attempt, Event, Run, Turn, Write
from runs.story import Story
from tools.contracts import Json

LOOK_UPS = ("write.unknown", "write.reconciled", "write.released_again")


@dataclass(frozen=True, kw_only=True)
class Record:
    """Every row that the story of a run is told from."""

    run: Run
    asked_by: str
    turns: tuple[Turn, ...]
    observations: tuple[SeenObservation, ...]
    events: tuple[Event, ...]
    approvals: tuple[Approval, ...]
    decisions: tuple[Decision, ...]
    writes: tuple[Write, ...]
    attempts: tuple[Attempt, ...]
    story: Story
    archive: Json | None


def read(run: Run) -> Record:
    """All rows of a run's record, at this moment."""
    run_id, decisions = str(run.id), Decision.objects.filter(approval__run_id=run.id)
    return Record(
        run=run, asked_by=_asked_by(run.created_by), turns=tuple(Turn.objects.filter(run=run).order_by("number")),
        observations=store.observations(run_id), events=tuple(Event.objects.filter(run=run).order_by("seq")),
        approvals=tuple(Approval.objects.filter(run_id=run.id).order_by("requested_at")),
        decisions=tuple(decisions.order_by("id")), writes=tuple(Write.objects.filter(run=run).order_by("intent_at")),
        attempts=tuple(Attempt.objects.filter(write__run=run).order_by("number")), story=store.story(run_id),
        archive=_archive(run),
    )  # fmt: skip


def _archive(run: Run) -> Json | None:
    """Where the run's texts lie since when, as it was signed; None where they are in its rows."""
    row = Archive.objects.filter(run=run).first()
    if row is None:
        return None
    return {
        "file": row.file, "folder": row.folder, "sha256": row.sha256, "last_seq": row.last_seq,
        "at": clock.rfc3339(row.at), "key_id": row.key_id, "mac": row.mac,
    }  # fmt: skip


def _asked_by(created_by: str) -> str:
    """The service user's name behind `user:<pk>`; that itself where the user is gone."""
    kind, _, key = created_by.partition(":")
    if kind != "user" or not key.isdigit():
        return created_by
    found = get_user_model().objects.filter(pk=int(key)).first()
    return found.get_username() if found is not None else created_by


def explain(record: Record) -> Explanation:
    """The story of a record. Pure: no query, no clock."""
    run, contract = record.run, record.run.contract
    gate, writes = _gate(record), _writes(record)
    approvals = tuple(_asked(a, record.decisions) for a in record.approvals)
    return Explanation(
        run_id=str(run.id), request_id=run.request_id, trace_id=run.trace_id, tenant_id=run.tenant_id, agent=run.agent,
        status=run.status, outcome=run.outcome, reason=run.reason, waiting_for=run.waiting_for, versions=run.versions,
        created_at=clock.rfc3339(run.created_at), completed_at=_time(run.completed_at), asked_by=record.asked_by,
        actor=contract.get("actor", {}), goal=str(contract.get("goal", "")), reads=_reads(record),
        proposals=tuple(_proposed(t) for t in record.turns), gate=gate, approvals=approvals, writes=writes,
        verification=run.verification, reply=run.reply, customer_message=reply.customer_message(record.story),
        answer=answer.paragraph(run.status, run.outcome, run.reason, record.story, gate, approvals, writes),
        erased=erased(run), archived=archived(record),
    )  # fmt: skip


def erased(run: Run) -> dict[str, str]:
    """When a class of the run's data was erased, by class; what is still kept is not named."""
    known = {"conversation": run.conversation_erased_at, "evidence": run.evidence_erased_at}
    return {kind: clock.rfc3339(at) for kind, at in known.items() if at is not None}


def archived(record: Record) -> dict[str, str]:
    """Since when the run's texts lie in which file of which folder; empty where they are in its rows."""
    return {name: str(record.archive[name]) for name in ("at", "file", "folder")} if record.archive else {}


def _time(moment: datetime | None) -> str | None:
    return clock.rfc3339(moment) if moment is not None else None


def _reads(record: Record) -> tuple[Read, ...]:
    decided = [e.at for e in record.events if e.type == "gate.decided"]
    until = decided[-1] if decided else record.run.updated_at
    return tuple(_read(o, until) for o in record.observations)


def _read(o: SeenObservation, until: datetime) -> Read:
    read_at = clock.rfc3339(o.fetched_at)
    age_s = (until - clock.parse_rfc3339(read_at)).total_seconds()  # as it is told: a log knows no finer time
    return Read(
        obs_id=o.obs_id, span=o.span, source=o.source, kind=o.kind, fact=fact(o), content_hash=o.content_hash,
        fetched_at=read_at, age_s=round(age_s, 1) if age_s >= 0 else None,
    )  # fmt: skip


def fact(o: SeenObservation) -> str:
    """What an observation says, in one sentence."""
    if o.erased:
        return "erased; the hash of it remains"
    content = o.content if isinstance(o.content, dict) else {}
    if o.kind == "message":
        return f"the customer wrote: {visible(str(content.get('text', '')))}"
    if o.kind == "denial" and content.get("rule"):
        return f"denied: {visible(str(content['rule']))}"
    if o.kind == "decision":
        return f"{visible(str(content.get('decision')))}: {visible(str(content.get('reason', '')))}"
    if o.source == "issue_refund" and o.ok:
        return answer.refund_words(content)
    return visible(evidence.summary(o))


def _proposed(turn: Turn) -> Proposed:
    calls = tuple({"tool": p["tool"], "args": p["args"], "evidence": p["evidence"]} for p in turn.proposals)
    return Proposed(
        span=turn.span, at=clock.rfc3339(turn.started_at), route=turn.route, model=turn.answered_model,
        prompt=turn.prompt_version, calls=calls, draft=turn.final["text"] if turn.final else None,
        error=str(turn.error["error"]) if turn.error else None,
    )  # fmt: skip


def _gate(record: Record) -> tuple[Gated, ...]:
    return tuple(_gated(e) for e in record.events if e.type == "gate.decided")


def _gated(event: Event) -> Gated:
    meta, payload = event.meta, event.payload or {}
    return Gated(
        at=clock.rfc3339(event.at), decision=meta["decision"], rule=meta["rule"], decision_id=meta["decision_id"],
        action_hash=meta["action_hash"], action=payload.get("action", {}), checks=tuple(payload.get("checks", ())),
        facts=payload.get("facts", {}), erased=event.payload is None,
    )  # fmt: skip


def _asked(a: Approval, decisions: Sequence[Decision]) -> Asked:
    mine = [d for d in decisions if d.approval_id == a.id]
    return Asked(
        approval_id=a.id, status=a.status, rule=a.rule, action_hash=a.action_hash, required=a.required,
        amount=Money(minor=a.amount_minor, currency=a.currency).wire(),
        requested_at=clock.rfc3339(a.requested_at), expires_at=clock.rfc3339(a.expires_at), void_reason=a.void_reason,
        decisions=tuple(_answered(d) for d in mine if d.counted),
        turned_down=tuple(_answered(d) for d in mine if not d.counted),
    )  # fmt: skip


def _answered(d: Decision) -> Answered:
    return Answered(by=d.by, decision=d.decision, at=clock.rfc3339(d.at), reason=d.reason, refusal=d.refusal)


def _writes(record: Record) -> tuple[Wrote, ...]:
    return tuple(_wrote(w, record) for w in record.writes)


def _wrote(w: Write, record: Record) -> Wrote:
    return Wrote(
        key=w.key, tool=w.tool, order_id=w.order_id, payment_id=w.payment_id,
        amount=Money(minor=w.amount_minor, currency=w.currency).wire(), state=w.state, refund_id=w.refund_id,
        refund_state=w.refund_state, action_hash=w.action_hash, approval_id=w.approval_id, decision_id=w.decision_id,
        intent_at=clock.rfc3339(w.intent_at), closed_at=_time(w.closed_at),
        attempts=tuple(_tried(a) for a in record.attempts if a.write_id == w.key),
        look_ups=tuple(_look_up(e) for e in _of(record, w.key, *LOOK_UPS)),
        verification=next((e.payload for e in reversed(_of(record, w.key, "write.verified", "write.mismatch"))), None),
    )  # fmt: skip


def _of(record: Record, key: str, *types: str) -> list[Event]:
    return [e for e in record.events if e.type in types and e.meta.get("key") == key]


def _look_up(event: Event) -> Json:
    found: dict[str, Any] = {k: v for k, v in event.meta.items() if k != "key"}
    return {"type": event.type, "at": clock.rfc3339(event.at), **found}


def _tried(a: Attempt) -> Tried:
    return Tried(
        number=a.number, prepared_at=clock.rfc3339(a.prepared_at), sent_at=_time(a.sent_at),
        answered_at=_time(a.answered_at), answer=a.answer,
    )  # fmt: skip
