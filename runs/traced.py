"""What log lines say as steps of a run's trace: model turns, tools, gate, approval, write, verification. Pure.

It is made of lines alone, so nothing is in a trace that is not in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from agentsite.clock import parse_rfc3339
from agentsite.tracing import Step
from runs.states import TERMINAL
from tools.contracts import Json

ENDED = frozenset(status.value for status in TERMINAL)
FOR_STAFF = frozenset({"escalated", "failed"})
_ROOT = ""


def steps(lines: Sequence[Json]) -> tuple[Step, ...]:
    """The steps that ended with one commit, by the lines of its events."""
    took = next((_ms(line) for line in lines if line["event"] == "run.status"), 0)
    rows = {name: found for line in lines for name, found in line.items() if name in ("run", "writes", "approvals")}
    return tuple(step for line in lines for step in _of(line, rows, took))


def _of(line: Json, rows: Json, took_ms: int) -> Iterator[Step]:
    tell = _TOLD.get(line["event"])
    step = tell(line, rows, took_ms) if tell is not None and line["trace_id"] else None
    if step is not None:
        yield step


def _step(line: Json, span: str, operation: str, what: str, start: datetime, **facts: Any) -> Step:
    data = line["data"]
    shared = {"seq": line["seq"], "tenant": line["tenant"], "request_id": line["request_id"]}
    return Step(
        run_id=line["run_id"], trace_id=line["trace_id"], span=span, operation=operation, what=what, start=start,
        end=_at(line), error=str(facts.pop("error", data.get("error")) or ""), facts={**shared, **facts},
    )  # fmt: skip


def _turn(line: Json, rows: Json, took_ms: int) -> Step:
    """A model turn; one that brought none stands beside it under its number in the record."""
    data = line["data"]
    provider, _, model = str(data.get("route", "")).partition(":")
    names = ("model", "finish_reason", "input_tokens", "output_tokens")
    more = {name: data[name] for name in names if name in data}
    span = line["span"] if line["event"] == "model.replied" else f"{line['span']}.{line['seq']}"
    return _step(line, span, "chat", model, _before(line, _ms(line)), provider=provider, requested=model, **more)


def _tool(line: Json, rows: Json, took_ms: int) -> Step:
    data = line["data"]
    span, tool = line["span"] or f"t.{line['seq']}", str(data.get("tool"))
    return _step(line, span, "execute_tool", tool, _before(line, _ms(line)), tool=tool, call=data.get("call"))


def _gate(line: Json, rows: Json, took_ms: int) -> Step:
    data = line["data"]
    return _step(
        line, f"gate.{line['seq']}", "gate", str(data.get("decision")), _before(line, took_ms), rule=data.get("rule"),
        decision_id=data.get("decision_id"), action_hash=data.get("action_hash"),
    )  # fmt: skip


def _approval(line: Json, rows: Json, took_ms: int) -> Step | None:
    """From the question to its answer, or to its end without one."""
    approval_id = line["data"].get("approval_id")
    asked = _row(rows, "approvals", "id", approval_id)
    if asked is None:
        return None
    start, decision = parse_rfc3339(asked["requested_at"]), line["data"].get("decision", "expired")
    return _step(line, f"approval.{approval_id}", "approval", str(decision), start, approval_id=approval_id)


def _write(line: Json, rows: Json, took_ms: int) -> Step | None:
    """From the first byte that may have left to what came of it; a look that told nothing stands beside it."""
    key = line["data"].get("key")
    wrote = _row(rows, "writes", "key", key)
    if wrote is None:
        return None
    sent = [t["sent_at"] for t in wrote["attempts"] if t["sent_at"]]
    lost = line["event"] == "write.unknown"
    start = parse_rfc3339(sent[-1 if lost else 0]) if sent else _before(line, took_ms)
    span = f"{line['span'] or 't'}.{line['seq']}" if lost or not line["span"] else line["span"]
    facts = {"key": key, "refund_id": line["data"].get("refund_id"), "state": line["data"].get("state")}
    return _step(line, span, "execute_tool", wrote["tool"], start, tool=wrote["tool"], **facts)


def _verification(line: Json, rows: Json, took_ms: int) -> Step:
    data, span = line["data"], line["span"] or f"verification.{line['seq']}"
    facts = {"key": data.get("key"), "verdict": data.get("verdict"), "refund_id": data.get("refund_id")}
    return _step(line, span, "verify", "get_refund_status", _before(line, took_ms), **facts)


def _end(line: Json, rows: Json, took_ms: int) -> Step | None:
    """The whole run, told when it ends."""
    data, run = line["data"], rows.get("run")
    if data.get("to") not in ENDED or run is None:
        return None
    error = (data.get("reason") or data["to"]) if data["to"] in FOR_STAFF else ""
    facts = {"agent": run["agent"], "release": run["release"], "outcome": run["outcome"], "status": data["to"]}
    start = parse_rfc3339(run["created_at"])
    return _step(line, _ROOT, "invoke_agent", run["agent"], start, error=error, reason=data.get("reason"), **facts)


_TOLD: dict[str, Callable[[Json, Json, int], Step | None]] = {
    "model.replied": _turn, "model.failed": _turn, "tool.observed": _tool, "tool.error": _tool, "gate.decided": _gate,
    "approval.decided": _approval, "approval.expired": _approval, "write.result": _write, "write.reconciled": _write,
    "write.unknown": _write, "write.verified": _verification, "write.mismatch": _verification, "run.status": _end,
}  # fmt: skip


def _row(rows: Mapping[str, Any], name: str, key: str, wanted: object) -> Json | None:
    return next((row for row in rows.get(name) or () if row[key] == wanted), None)


def _ms(line: Json) -> int:
    took = line["data"].get("took_ms")
    return int(took) if isinstance(took, int | float) else 0


def _at(line: Json) -> datetime:
    return parse_rfc3339(line["at"])


def _before(line: Json, took_ms: int) -> datetime:
    return _at(line) - timedelta(milliseconds=took_ms)
