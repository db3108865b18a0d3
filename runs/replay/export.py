"""Writes a run's whole record as one JSON document: what explains it, and what replays it. Reads rows, writes none.

No secret is in it: settings are periods and limits alone, addresses lose their user names and passwords.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from agentsite import clock, env
from agentsite.canonical import canonical_text
from agentsite.money import Money
from approvals.models import Approval, Decision
from runs import reply
from runs.backends import backend_of
from runs.contracts import SeenObservation
from runs.models import Attempt, Event, Input, Observation, Run, Turn, Write
from runs.store import attached
from runs.store.load import listed_from
from tools.contracts import Json

FORMAT = 1
# What handlers ask of the settings. A record is replayed under those it was exported with: they are input, no code.
PERIODS = (
    "LEASE_S", "RETRY_S", "PENDING_POLL_S", "MODEL_TIMEOUT_S", "WRITE_TIMEOUT_S", "RESEND_FOR_S", "RECONCILE_FOR_S",
    "VERIFY_FOR_S", "DEPENDENCY_FOR_S", "REPLY_FOR_S", "ASK_AGAIN_FOR_S", "MAX_STEP_ATTEMPTS", "MODEL_TRIES",
    "MODEL_MAX_OUTPUT_TOKENS", "MODEL_WINDOW_TOKENS", "MODEL_TAIL_TOKENS", "LOOP_REMIND_AT", "LOOP_STOP_AT",
    "TOOLS_BLOCKED", "EVIDENCE_FRESH_S",
)  # fmt: skip


def export(run: Run) -> Json:
    """The record of a run at this moment. Times are RFC 3339 in UTC, money is its wire object."""
    from runs import explain  # which shows prompts by replaying what is exported here: whoever comes first, both load

    record = explain.read(run)
    return {
        "format": FORMAT, "schema": run.schema, "run": _run(run), "contract": run.contract, "settings": _settings(),
        "backend": _backend(run), "turns": [_turn(t) for t in record.turns],
        "observations": _observations(run, record.observations),
        "inputs": _inputs(run),
        "approvals": [_approval(a, record.decisions) for a in record.approvals],
        "gate": [_gate(e) for e in record.events if e.type == "gate.decided"],
        "writes": [_write(w, record.attempts) for w in record.writes], "events": [_event(e) for e in record.events],
        "transitions": [_transition(e) for e in record.events if e.type == "run.status"],
        "customer_message": reply.customer_message(record.story), "reply": run.reply, "outcome": run.outcome,
        **({"erased": erased} if (erased := explain.erased(run)) else {}),
        **({"archive": record.archive} if record.archive else {}),
    }  # fmt: skip


def text(document: Json) -> str:
    """The document as it is printed: ASCII, keys in order, canonical numbers, a line break at the end."""
    return json.dumps(json.loads(canonical_text(document)), indent=1, sort_keys=True) + "\n"


def _time(moment: datetime | None) -> str | None:
    return clock.rfc3339(moment) if moment is not None else None


def _settings() -> Json:
    settings = env.read()
    table = settings.MODEL_PRICES
    prices = {"MODEL_PRICES": table.model_dump(exclude_none=True) if table is not None else None}
    return {name: getattr(settings, name) for name in PERIODS} | prices


def _backend(run: Run) -> Json:
    backend = backend_of(run.tenant_id, run.agent)
    return {
        "url": _bare(backend.url), "honours_keys": backend.honours_keys, "key_life_s": backend.key_life_s,
        "settle_s": backend.settle_s,
    }  # fmt: skip


def _bare(url: str) -> str:
    """An address without the user name and password that one may hold."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _run(run: Run) -> Json:
    return {
        "run_id": str(run.id), "request_id": run.request_id, "trace_id": run.trace_id, "tenant_id": run.tenant_id,
        "agent": run.agent, "status": run.status, "reason": run.reason, "waiting_for": run.waiting_for,
        "version": run.version, "versions": run.versions, "release": run.release, "pending_action": run.pending_action,
        "verification": run.verification, "created_at": _time(run.created_at), "updated_at": _time(run.updated_at),
        "completed_at": _time(run.completed_at),
        "listed_from": _time(listed_from(run.restored_at, run.tenant_id, run.agent)),
        "usage": _usage(run), "last_seq": run.last_seq, "chain_head": run.chain_head,
    }  # fmt: skip


def _usage(run: Run) -> Json:
    names = (
        "model_calls", "write_attempts", "input_tokens", "output_tokens", "cost_micros", "active_ms", "repairs",
        "retries", "voids",
    )  # fmt: skip
    return {name: getattr(run, name) for name in names}


def _turn(t: Turn) -> Json:
    return {
        "number": t.number, "span": t.span, "route": t.route, "model": t.answered_model, "raw": t.raw,
        "finish_reason": t.finish_reason, "prompt_version": t.prompt_version, "prompt_hash": t.prompt_hash,
        "template_hash": t.template_hash, "registry_version": t.registry_version, "policy_version": t.policy_version,
        "cached_tokens": t.cached_tokens, "tools_version": t.tools_version,
        "tools_shown": t.tools_shown, "proposals": t.proposals, "final": t.final,
        "error": t.error, "input_tokens": t.input_tokens, "output_tokens": t.output_tokens,
        "cost_micros": t.cost_micros, "started_at": _time(t.started_at), "took_ms": t.took_ms,
    }  # fmt: skip


def _observations(run: Run, seen: tuple[SeenObservation, ...]) -> list[Json]:
    took: dict[str, int] = dict(Observation.objects.filter(run=run).values_list("obs_id", "took_ms"))
    return [
        {
            "obs_id": o.obs_id, "position": o.position, "call_id": o.call_id, "span": o.span, "kind": o.kind,
            "source": o.source, "args": o.args, "content": o.content, "content_hash": o.content_hash, "meta": o.meta,
            "fetched_at": _time(o.fetched_at), "took_ms": took[o.obs_id],
        }
        for o in seen
    ]  # fmt: skip


def _inputs(run: Run) -> list[Json]:
    found = list(Input.objects.filter(run=run).order_by("seq"))
    files = attached.references(run.pk, [i.seq for i in found])
    return [
        _input(i) | ({"attachments": list(files[i.seq])} if i.seq in files else {})
        for i in found
    ]  # fmt: skip


def _input(i: Input) -> Json:
    return {
        "seq": i.seq, "kind": i.kind, "message_id": i.message_id, "text": i.text, "by": i.by, "at": _time(i.at),
    }  # fmt: skip


def _approval(a: Approval, decisions: tuple[Decision, ...]) -> Json:
    return {
        "approval_id": a.id, "status": a.status, "tool": a.tool, "args": a.args, "action_hash": a.action_hash,
        "policy": a.policy, "rule": a.rule, "required": a.required, "large": a.large, "checks": a.checks,
        "facts": a.facts, "evidence": a.evidence, "requested_at": _time(a.requested_at),
        "expires_at": _time(a.expires_at), "decided_at": _time(a.decided_at), "decided_by": a.decided_by,
        "reason": a.reason, "execute_by": _time(a.execute_by), "ended_at": _time(a.ended_at),
        "void_reason": a.void_reason, "messages_shown": a.messages_shown,
        **({"reread": a.reread} if a.reread else {}),
        "decisions": [_decision(d) for d in decisions if d.approval_id == a.id],
    }  # fmt: skip


def _decision(d: Decision) -> Json:
    return {
        "kind": d.decision, "by": d.by, "at": _time(d.at), "reason": d.reason, "counted": d.counted,
        "refusal": d.refusal, "action_hash": d.action_hash,
    }  # fmt: skip


def _gate(e: Event) -> Json:
    return {"seq": e.seq, "at": _time(e.at), **e.meta, **(e.payload or {"erased": True})}


def _write(w: Write, attempts: tuple[Attempt, ...]) -> Json:
    return {
        "key": w.key, "tool": w.tool, "args": w.args, "action_hash": w.action_hash, "approval_id": w.approval_id,
        "decision_id": w.decision_id, "order_id": w.order_id, "payment_id": w.payment_id, "body": w.body,
        "origin": _bare(w.origin), "amount": Money(minor=w.amount_minor, currency=w.currency).wire(),
        "state": w.state, "refund_id": w.refund_id, "refund_state": w.refund_state, "result": w.result,
        "call_id": w.call_id, "intent_at": _time(w.intent_at), "closed_at": _time(w.closed_at), "looks": w.looks,
        "attempts": [_attempt(a) for a in attempts if a.write_id == w.key],
    }  # fmt: skip


def _attempt(a: Attempt) -> Json:
    return {
        "number": a.number, "prepared_at": _time(a.prepared_at), "sent_at": _time(a.sent_at),
        "gives_up_at": _time(a.gives_up_at), "answered_at": _time(a.answered_at), "answer": a.answer,
    }  # fmt: skip


def _event(e: Event) -> Json:
    return {
        "seq": e.seq, "type": e.type, "at": _time(e.at), "version": e.version, "span": e.span, "meta": e.meta,
        "payload": e.payload, "salt": e.salt, "digest": e.digest, "prev": e.prev, "mac": e.mac, "key_id": e.key_id,
    }  # fmt: skip


def _transition(e: Event) -> list[Any]:
    return [e.meta["from"], e.meta.get("on"), e.meta["to"]]
