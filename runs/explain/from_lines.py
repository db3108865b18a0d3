"""Tells a run's story from its lines in the log: the same one as from its rows, without anybody's words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from agentsite.clock import parse_rfc3339
from runs import loglines, story
from runs.contracts import SeenObservation
from runs.explain import answer
from runs.explain.lines import Lines, NotTold
from runs.explain.record import LOOK_UPS, fact
from runs.explain.values import Answered, Asked, Explanation, Gated, Proposed, Read, Tried, Wrote
from tools.contracts import Json

OMITTED = loglines.OMITTED
VERIFIED = ("write.verified", "write.mismatch")
BROKEN = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
STOOD = ("status", "reason", "waiting_for", "outcome")


def explain(lines: Lines) -> Explanation:
    """The story that these lines tell. Raises NotTold where they are not as we write them."""
    try:
        return _explained(lines)
    except BROKEN as error:
        raise not_as_written(error) from None


def not_as_written(error: Exception) -> NotTold:
    return NotTold(f"a line of this run is not as this release writes it ({type(error).__name__})")


def _explained(lines: Lines) -> Explanation:
    if not lines.events:
        raise NotTold("of this run there is no line of an event")
    ids, now = lines.events[0], _now(lines)
    gate, approvals = _gate(lines), _approvals(lines)
    writes, seen = _writes(lines), _observations(lines)
    told = _story(now, seen)
    return Explanation(
        run_id=ids["run_id"], request_id=ids["request_id"], trace_id=ids["trace_id"], tenant_id=ids["tenant"],
        agent=str(now.get("agent", "")), status=str(now.get("status", "")), outcome=now.get("outcome"),
        reason=now.get("reason"), waiting_for=now.get("waiting_for"), versions=_versions(lines),
        created_at=str(now.get("created_at") or ids["at"]), completed_at=now.get("completed_at"), asked_by=OMITTED,
        actor={}, goal=OMITTED, reads=_reads(seen, gate), proposals=_proposals(lines), gate=gate, approvals=approvals,
        writes=writes, verification=_verification(lines), reply=OMITTED if _of(lines, "reply.sent") else None,
        customer_message=OMITTED, erased={e["data"]["class"]: e["at"] for e in _of(lines, "data.erased")},
        answer=answer.paragraph(
            str(now.get("status", "")), now.get("outcome"), now.get("reason"), told, gate, approvals, writes
        ),
    )  # fmt: skip


def _of(lines: Lines, *types: str, key: str = "") -> list[Json]:
    return [e for e in lines.events if e["event"] in types and (not key or e["data"].get("key") == key)]


def _now(lines: Lines) -> Json:
    """How the run stands by its last line: each says what it changed."""
    now: Json = {}
    for line in sorted((*lines.events, *lines.stands), key=lambda one: (one["seq"], "mac" not in one)):
        if line["event"] == loglines.STANDS:
            now |= {name: line[name] for name in STOOD if name in line}
        now |= line.get("run") or {}
        if line["event"] in ("run.corrected", "run.resolved"):
            now["outcome"] = line["data"]["to"]
    return now


def _versions(lines: Lines) -> Json:
    accepted = _of(lines, "run.accepted")
    first = accepted[0].get("versions") or {} if accepted else {}
    return {
        name: found for one in (first, *(s.get("versions") or {} for s in lines.stands)) for name, found in one.items()
    }


# --- what was read and proposed --------------------------------------------------------------------------------


def _observations(lines: Lines) -> list[SeenObservation]:
    rows = [row for stands in lines.stands for row in stands.get("observed", ())]
    return [
        SeenObservation(
            obs_id=o["obs_id"], position=number, call_id=o["call"], span=o["span"], kind=o["kind"], source=o["source"],
            args=o["args"], content=o["content"], content_hash=o["hash"], meta={}, fetched_at=parse_rfc3339(o["at"]),
        )
        for number, o in enumerate(rows, start=1)
    ]  # fmt: skip


def _reads(seen: Sequence[SeenObservation], gate: Sequence[Gated]) -> tuple[Read, ...]:
    until = parse_rfc3339(gate[-1].at) if gate else None
    return tuple(_read(o, until) for o in seen)


def _read(o: SeenObservation, until: datetime | None) -> Read:
    age_s = (until - o.fetched_at).total_seconds() if until is not None else -1.0
    return Read(
        obs_id=o.obs_id, span=o.span, source=o.source, kind=o.kind, content_hash=o.content_hash,
        fact=fact(o) if loglines.has_fact(o.kind, o.source) else OMITTED,
        fetched_at=o.fetched_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        age_s=round(age_s, 1) if age_s >= 0 else None,
    )  # fmt: skip


def _proposals(lines: Lines) -> tuple[Proposed, ...]:
    turns = [s["turn"] for s in lines.stands if s.get("turn")]
    return tuple(
        Proposed(
            span=t["span"], at=t["at"], route=t["route"] or "", model=t["model"] or "", prompt=t["prompt"],
            calls=tuple(t["calls"]), draft=OMITTED if t["draft"] else None, error=t["error"],
        )
        for t in turns
    )  # fmt: skip


def _story(now: Json, seen: Sequence[SeenObservation]) -> story.Story:
    """What the records said of the orders; nothing else of it is asked for."""
    records = [o for o in seen if o.source in (*story.RECORDS, story.OUR_REFUNDS)]
    return story.story(
        status=str(now.get("status", "")), reason=now.get("reason"), outcome=now.get("outcome"),
        waiting_for=now.get("waiting_for"), observations=records, writes=(), approval=None, dependency=None,
    )  # fmt: skip


# --- what was decided and done ---------------------------------------------------------------------------------


def _gate(lines: Lines) -> tuple[Gated, ...]:
    return tuple(
        Gated(
            at=e["at"], decision=e["data"]["decision"], rule=e["data"]["rule"], decision_id=e["data"]["decision_id"],
            action_hash=e["data"]["action_hash"], action=e["data"].get("action", {}),
            checks=tuple(e["data"].get("checks", ())), facts={}, erased="checks" not in e["data"],
        )
        for e in _of(lines, "gate.decided")
    )  # fmt: skip


def _last(lines: Lines, name: str) -> list[Json]:
    """The rows of one kind as the last line that tells of them has them."""
    told = [line for line in (*lines.events, *lines.stands) if line.get(name) is not None]
    found: list[Json] = max(told, key=lambda line: (line["seq"], "mac" not in line))[name] if told else []
    return found


def _approvals(lines: Lines) -> tuple[Asked, ...]:
    return tuple(
        _asked(a, [d for d in lines.decisions if d["approval_id"] == a["id"]]) for a in _last(lines, "approvals")
    )


def _asked(a: Mapping[str, Any], decisions: Sequence[Json]) -> Asked:
    counted = tuple(_answered(d) for d in decisions if d["counted"])
    return Asked(
        approval_id=a["id"], status=_status(a, counted), rule=a["rule"], action_hash=a["action_hash"],
        required=a["required"], amount=a["amount"], requested_at=a["requested_at"], expires_at=a["expires_at"],
        void_reason=a["void_reason"] or "", decisions=counted,
        turned_down=tuple(_answered(d) for d in decisions if not d["counted"]),
    )  # fmt: skip


def _status(a: Mapping[str, Any], counted: Sequence[Answered]) -> str:
    """A decision is told when it is made, and its approval again when the run has taken it up."""
    if a["status"] != "pending":
        return str(a["status"])
    if any(d.decision == "reject" for d in counted):
        return "rejected"
    return "approved" if len(counted) >= a["required"] else "pending"


def _answered(d: Mapping[str, Any]) -> Answered:
    return Answered(by=d["by"], decision=d["decision"], at=d["at"], reason=OMITTED, refusal=d["refusal"])


def _writes(lines: Lines) -> tuple[Wrote, ...]:
    return tuple(_wrote(w, lines) for w in _last(lines, "writes"))


def _wrote(w: Mapping[str, Any], lines: Lines) -> Wrote:
    looks = _of(lines, *LOOK_UPS, key=w["key"])
    return Wrote(
        **{name: w[name] for name in _SAME}, attempts=tuple(_tried(t) for t in w["attempts"]),
        look_ups=tuple(_look_up(e) for e in looks),
        verification=next((_seen(e) for e in reversed(_of(lines, *VERIFIED, key=w["key"]))), None),
    )  # fmt: skip


_SAME = ("key", "tool", "order_id", "payment_id", "amount", "state", "refund_id", "refund_state", "action_hash",
         "approval_id", "decision_id", "intent_at", "closed_at")  # fmt: skip


def _tried(t: Json) -> Tried:
    return Tried(**{**t, "answer": t["answer"] or ""})


def _look_up(event: Json) -> Json:
    meta = {name: found for name, found in event["data"].items() if name not in ("key", "verification")}
    return {"type": event["event"], "at": event["at"], **meta}


def _verification(lines: Lines) -> Json | None:
    return next((_seen(e) for e in reversed(_of(lines, *VERIFIED))), None)


def _seen(event: Json) -> Json | None:
    found: Json | None = event["data"].get("verification")
    return found
