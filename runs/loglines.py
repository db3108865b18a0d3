"""What a log line may say of a run's events and rows: a whitelist by type of event and by name of field. A paper.

Ids, slugs, amounts, numbers of checks, hashes, keys, times, who decided, model, tokens and durations; never a
customer's words, model prose, notes or reasons that people typed. What is not named here is in no line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runs.contracts import NewTurn, SeenObservation
from tools.contracts import Json

STANDS, DECISION = "run.stands", "decision.recorded"
"""Lines beside those of events: how a commit left a run, and what a person said of an approval."""
OMITTED = "not in the log"
LONGEST, MOST = 400, 64
_ID = re.compile(rf"[^\s\x00-\x1f\x7f]{{1,{LONGEST}}}")
_SLUG = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MODEL = re.compile(r"[!-~]{1,200}")

# Of an event's meta. A type that is not listed says nothing: its line has its ids alone.
_META: dict[str, tuple[str, ...]] = {
    "run.accepted": ("agent", "release"),
    "run.status": ("from", "to", "reason", "on", "error", "took_ms"),
    "run.corrected": ("from", "to"),
    "run.resolved": ("from", "to", "by", "reason"),
    "run.hurried": ("by", "reason"),
    "evidence.found": ("passages", "cases", "observations", "took_ms"),
    "prompt.built": ("version", "hash", "tools"),
    "model.called": ("route",),
    "model.replied": ("route", "model", "input_tokens", "output_tokens", "took_ms", "finish_reason"),
    "model.failed": ("route", "error", "took_ms", "input_tokens", "output_tokens"),
    "model.invalid": ("error", "repairs"),
    "model.escalated": ("call",),
    "route.switched": ("to",),
    "route.passed_over": ("route", "error"),
    "tool.observed": ("tool", "call", "took_ms"),
    "tool.error": ("tool", "call", "took_ms", "error"),
    "gate.decided": ("decision", "rule", "decision_id", "action_hash", "required", "error"),
    "approval.requested": ("approval_id", "action_hash", "rule", "required"),
    "approval.decided": ("approval_id", "decision", "by", "deciders", "action_hash"),
    "approval.expired": ("approval_id",),
    "approval.void": ("approval_id", "reason", "by", "fenced_at"),
    "write.intent": (
        "key", "action_hash", "approval_id", "decision_id", "attempt", "order_id", "payment_id", "amount",
    ),
    "write.sent": ("key", "attempt"),
    "write.released_again": ("key", "attempt"),
    "write.result": ("key", "refund_id", "state", "error"),
    "write.unknown": ("key", "error"),
    "write.reconciled": ("key", "refund_id", "state", "late", "error"),
    "write.verified": ("key", "verdict", "refund_id"),
    "write.mismatch": ("key", "verdict", "refund_id", "error"),
    "write.looked": ("key", "found"),
    "write.look_asked": ("key", "by"),
    "write.doubted": ("key", "was", "attempts", "by", "fenced_at"),
    "write.settled_by_staff": ("key", "by", "reason", "state", "was", "refund_id", "amount"),
    "reply.rejected": ("error",),
    "reply.sent": ("by", "corrected"),
    "customer.told": ("call",),
    "customer.asked": ("call",),
    "message.received": ("kind", "message_id", "by"),
    "cancel.requested": ("kind", "message_id", "by", "reason"),
    "words.found": ("to", "error"),
    "reminder": ("error", "number", "of", "turns"),
    "loop.stopped": ("error", "turns"),
    "notice": (
        "to", "error", "why", "key", "kind", "message_id", "by", "reason", "dependency", "wait_s", "back", "held",
    ),
    "webhook.resent": ("webhook_id", "type", "was", "by"),
    "data.erased": ("class", "by"),
    "evidence.compared": ("read_again", "ages_s", "changed"),
    "shadow.proposed": (
        "tool", "order_id", "payment_id", "amount", "decision", "rule", "action_hash", "outcome",
    ),
}  # fmt: skip

# Arguments of a call. What a model searched for, asked or said is none of them.
_ARGS = ("order_id", "payment_id", "refund_id", "amount", "reason")
# Numbers a check was made with; whose order it is and which words were found stay out.
_NUMBERS = (
    "ages_s", "amount_due", "captured", "changed", "cited", "currency", "customer_day", "doc", "foreign", "large",
    "left", "limit", "max_excess", "order", "order_id", "payment_id", "payments", "pinned", "precedents", "proposed",
    "read_again", "refunded", "refunds", "registry_current", "requested", "stale_cited", "state", "superseded",
    "tenant_hour", "threshold", "tool", "unknown", "used", "with_earlier",
)  # fmt: skip
_REFUND = ("refund_id", "payment_id", "order_id", "state", "amount", "created_at", "idempotency_key", "verified")
_PAYMENT = ("payment_id", "order_id", "state", "amount", "captured_at")
_ORDER = ("order_id", "total", "amount_due", "status")
_VERIFIED = (
    "check", "passed", "at", "verdict", "refund_id", "waited_ms", "differs", "excess_after", "other_refunds",
    "ambiguous",
)  # fmt: skip


# --- values ----------------------------------------------------------------------------------------------------


def value(found: Any) -> Any:
    """An id, a slug, a number, an amount, or lists of those; whatever else it is, None."""
    if found is None or isinstance(found, bool | int | float):
        return found
    if isinstance(found, str):
        return found if _ID.fullmatch(found) else None
    if isinstance(found, Mapping):
        return {k: value(v) for k, v in found.items() if isinstance(k, str) and k in (*_REFUND, "currency", *_LIMIT)}
    return [value(one) for one in list(found)[:MOST]] if isinstance(found, list | tuple) else None


_LIMIT = ("limit", "used")


def picked(found: object, names: Sequence[str]) -> Json:
    """Of an object the fields with these names, as values."""
    return {name: value(found[name]) for name in names if name in found} if isinstance(found, Mapping) else {}


def spoken(found: Json) -> Json:
    """The versions a run was made with, and the like: every name, its value where it is no words."""
    return {name: model(inner) if name == "model" else value(inner) for name, inner in found.items()}


def args(found: object) -> Json:
    """A reason is a model's own word: it is told where it is a slug."""
    return _slug(picked(found, _ARGS), "reason")


def model(found: object) -> str | None:
    """The name that a provider says it answers under: another's word, so it is told where it can be a name."""
    return found if isinstance(found, str) and _MODEL.fullmatch(found) else None


def _slug(said: Json, name: str) -> Json:
    """The same, without what stands under this name where it may be somebody's words."""
    return said if _SLUG.fullmatch(str(said.get(name, "x"))) else {**said, name: None}


def checks(found: object) -> list[Json]:
    """Checks by name and verdict with those of their numbers that are no personal data."""
    rows = found if isinstance(found, list | tuple) else ()
    return [_check(c) for c in rows if isinstance(c, Mapping)]


def _check(found: Mapping[str, Any]) -> Json:
    numbers = picked(found.get("inputs"), _NUMBERS)
    return picked(found, ("name", "ok")) | ({"inputs": numbers} if numbers else {})


def action(found: object) -> Json:
    if not isinstance(found, Mapping) or not found:
        return {}
    return {"tool": value(found.get("tool")), "args": args(found.get("args"))}


def verification(found: object) -> Json | None:
    """An independent look without what a provider keeps as metadata."""
    if not isinstance(found, Mapping):
        return None
    sides = {side: picked(found[side], _REFUND) or None for side in ("expected", "found") if side in found}
    return picked(found, _VERIFIED) | sides


def calls(found: object) -> list[Json]:
    rows = found if isinstance(found, list | tuple) else ()
    return [
        {"tool": value(c.get("tool")), "args": args(c.get("args")), "evidence": value(list(c.get("evidence", ())))}
        for c in rows if isinstance(c, Mapping)
    ]  # fmt: skip


# --- lines -----------------------------------------------------------------------------------------------------


def _gated(payload: Json) -> Json:
    return {"action": action(payload.get("action")), "checks": checks(payload.get("checks"))}


def _replied(payload: Json) -> Json:
    error = payload["error"].get("error") if isinstance(payload.get("error"), Mapping) else None
    said = {"calls": len(payload["proposals"])} if isinstance(payload.get("proposals"), list) else {}
    return said | ({"draft": True} if "final" in payload else {}) | ({"error": value(error)} if error else {})


def _verified(payload: Json) -> Json:
    return {"verification": verification(payload)}


def _read(payload: Json) -> Json:
    return {"args": args(payload.get("args"))}


_PAYLOAD: dict[str, Callable[[Json], Json]] = {
    "gate.decided": _gated, "model.replied": _replied, "write.verified": _verified, "write.mismatch": _verified,
    "write.reconciled": _verified, "tool.observed": _read, "tool.error": _read,
}  # fmt: skip


def said(type_: str, meta: Json, payload: Json | None) -> Json:
    """What an event's line says beside its ids; nothing for a type that is not known here."""
    told = _slug(picked(meta, _META.get(type_, ())), "finish_reason")
    if "model" in told:
        told["model"] = model(told["model"])
    tell = _PAYLOAD.get(type_)
    return told | (tell(payload) if tell is not None and payload is not None else {})


def turn(made: NewTurn, at: str) -> Json:
    """A model turn as its commit left it."""
    proposed = [{"tool": p.tool, "args": p.args, "evidence": list(p.evidence)} for p in made.proposals]
    return {
        "span": made.span, "at": at, "route": value(made.route), "model": model(made.answered_model),
        "prompt": made.prompt.version, "calls": calls(proposed), "draft": made.final is not None,
        "error": value(made.error.get("error")) if made.error else None,
    }  # fmt: skip


def observed(seen: SeenObservation, at: str) -> Json:
    """An observation by its ids and its hash, and of records what people are shown of them."""
    return {
        "obs_id": seen.obs_id, "span": seen.span, "source": seen.source, "kind": seen.kind, "call": seen.call_id,
        "at": at, "hash": seen.content_hash, "args": args(seen.args), "content": content(seen.kind, seen.content),
    }  # fmt: skip


def content(kind: str, found: object) -> Json:
    """The numbers of records and the slugs of errors; of a message, a decision or a passage nothing."""
    if not isinstance(found, Mapping) or kind in ("message", "decision", "notice"):
        return {}
    rows = {
        name: [picked(row, fields) for row in found[name]][:MOST] for name, fields in _ROWS if _are_rows(found, name)
    }
    return _slug(picked(found, (*_ORDER, *_REFUND, "error", "rule")), "status") | rows


_ROWS = (("payments", _PAYMENT), ("refunds", _REFUND))


def _are_rows(found: Mapping[str, Any], name: str) -> bool:
    return isinstance(found.get(name), list)


def has_fact(kind: str, source: str) -> bool:
    """Whether a line holds all that people are told of such an observation in one sentence."""
    return kind in ("error", "denial") or (kind == "result" and source in _TOLD)


_TOLD = ("get_order", "get_payments", "get_refund_status", "our_refunds", "issue_refund")
