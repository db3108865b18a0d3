"""One model turn: caps, prompt, call, parse. What comes back is untrusted text until the gate has seen it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from agentsite.text import storable, visible
from runs import prompt as prompts
from runs import reply
from runs.contracts import (
    Final,
    Invalid,
    LLMTurnResult,
    ModelCall,
    NewEvent,
    NewObservation,
    NewTurn,
    Outcome,
    PendingAction,
    Prompt,
    RunState,
    ToolSchema,
)
from runs.errors import ModelError, ModelUnavailable
from runs.inference.parse import parse
from runs.orchestrator import calling, endings
from runs.orchestrator.pauses import backoff_s, park, waited_too_long
from runs.orchestrator.ports import Ports
from runs.states import On, Status
from runs.store import tell
from tools import registry
from tools.contracts import Effect, Proposal, action_hash, write_key
from tools.errors import InvalidArguments, UnknownTool

MAX_REPAIRS = 2
EXCERPT = 400
MIN_CALL_S = 1.0
MAX_RETRY_AFTER_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Call:
    """A model call that was made: by which route, what it answered or why not, how long it took.

    `error`: of the route that may answer first, where one may answer later. `tried`: breakers let a call through.
    """

    route: str
    result: LLMTurnResult | None
    error: ModelError | None
    tried: bool = True
    events: tuple[NewEvent, ...]
    took_ms: int


def over_cap(run: RunState) -> str | None:
    """The reason a run may make no further model call, or None. Active time counts no wait (M6)."""
    limits = run.contract.limits
    if run.active_ms >= limits.deadline_ms:
        return "deadline_exceeded"
    cost = limits.max_cost.minor * 10_000
    spent = (
        run.model_calls >= limits.max_model_calls
        or run.input_tokens >= limits.max_input_tokens
        or run.output_tokens >= limits.max_output_tokens
        or (run.cost_micros > 0 and run.cost_micros >= cost)
    )
    return "budget_exhausted" if spent else None


def tools_shown(run: RunState) -> tuple[ToolSchema, ...]:
    scope = run.contract.scope
    names = [*scope.read_tools, *scope.write_tools]
    return tuple(ToolSchema(**schema) for schema in registry.schemas(names))


def model_turn(run: RunState, ports: Ports) -> Outcome:
    """Ask the model for the next step, or end where a cap says so."""
    if run.status is Status.VERIFIED and run.repairs > MAX_REPAIRS:
        return endings.complete(run, None)  # further proposals kept failing: what was done is told
    capped = over_cap(run)
    if capped is not None:
        return _at_cap(run, capped)
    prompt = prompts.build_prompt(run, tools_shown(run))
    called = _call(run, prompt, ports)
    if called.result is None:
        return _no_answer(run, called, ports)
    return _read(run, prompt, called, called.result)


def _at_cap(run: RunState, reason: str) -> Outcome:
    if run.status is Status.VERIFIED:
        return endings.complete(run, None)
    return endings.escalate(run, reason)


def _call(run: RunState, prompt: Prompt, ports: Ports) -> Call:
    """Try the routes in order; the first that answers counts. No database connection is held meanwhile."""
    span = f"m{run.model_calls + 1}"
    built = {"hash": prompt.hash, "version": prompt.version, "tools": prompt.tools_hash}
    events = [NewEvent(type="prompt.built", meta=built, span=span)]
    started, errors, budget = ports.monotonic(), list[ModelError](), _time_left_s(run, ports)
    routes = ports.settings().AGENT_MODELS
    for number, route in enumerate(routes):
        left = budget - (ports.monotonic() - started)
        if number and (left < MIN_CALL_S or ports.held_s() is not None):
            break
        if number:
            events.append(NewEvent(type="route.switched", meta={"to": route}, span=span))
        events.append(NewEvent(type="model.called", meta={"route": route}, span=span))
        try:
            ports.leave_database()
            longest = ports.settings().MODEL_MAX_OUTPUT_TOKENS
            call = ModelCall(
                run_id=run.run_id, seen_input_seq=run.last_input_seq, route=route, prompt=prompt, timeout_s=left,
                max_output_tokens=longest,
            )  # fmt: skip
            result = ports.complete(call)
        except ModelError as failed:
            errors.append(failed)
            events.append(NewEvent(type="model.failed", meta={"route": route, "error": failed.slug}, span=span))
            continue
        return Call(route=route, result=result, error=None, events=tuple(events), took_ms=_since(started, ports))
    return Call(
        route=routes[-1], result=None, error=_soonest(errors), tried=any(e.slug != calling.OPEN for e in errors),
        events=tuple(events), took_ms=_since(started, ports),
    )  # fmt: skip


def _soonest(errors: list[ModelError]) -> ModelError | None:
    """The error to wait by: of a route that may answer later, the one that names the least time; else the last."""
    later = [e for e in errors if isinstance(e, ModelUnavailable)]
    return min(later, key=lambda e: e.retry_after_s or 0.0) if later else next(reversed(errors), None)


def _time_left_s(run: RunState, ports: Ports) -> float:
    """One budget for all routes of a turn: the call's timeout, and what the run has left of its active time."""
    left = (run.contract.limits.deadline_ms - run.active_ms) / 1000
    return min(ports.settings().MODEL_TIMEOUT_S, max(MIN_CALL_S, left))


def _since(started: float, ports: Ports) -> int:
    return round((ports.monotonic() - started) * 1000)


def _no_answer(run: RunState, called: Call, ports: Ports) -> Outcome:
    if run.status is Status.VERIFIED:
        return endings.complete(run, None, events=called.events, active_ms=called.took_ms)
    retryable = isinstance(called.error, ModelUnavailable)
    spent = called.tried and run.retries + 1 >= ports.settings().MODEL_TRIES
    if not retryable or spent or waited_too_long(run, ports.settings()):
        return endings.escalate(run, "dependency_unavailable", events=called.events)
    asked = called.error.retry_after_s if called.error else None
    wait = min(asked, MAX_RETRY_AFTER_S) if asked else backoff_s(run, ports.settings())
    # An outage is no active time: the run waits for its dependency instead of spending its deadline on it.
    return park(run, "model", wait, tried=called.tried, events=called.events)


def _turn(run: RunState, prompt: Prompt, called: Call, result: LLMTurnResult) -> NewTurn:
    return NewTurn(
        span=f"m{run.model_calls + 1}", route=called.route, prompt=prompt, raw=storable(result.raw or result.text),
        answered_model=storable(result.model)[:200], finish_reason=storable(result.finish_reason)[:32],
        input_tokens=result.input_tokens,
        output_tokens=result.output_tokens, took_ms=called.took_ms,
    )  # fmt: skip


def _read(run: RunState, prompt: Prompt, called: Call, result: LLMTurnResult) -> Outcome:
    number = run.model_calls + 1
    parsed = parse(result, first_call=1, turn_number=number, tools=prompt.tools)
    turn = _turn(run, prompt, called, result)
    if isinstance(parsed, Invalid):
        return invalid(run, turn, called, parsed)
    if isinstance(parsed, Final):
        return _draft(run, turn, called, parsed)
    try:
        proposals = tuple(_normal(p) for p in parsed)
    except InvalidArguments as error:
        detail = {"field": error.field, "expected": error.expected}
        return invalid(run, turn, called, Invalid(slug="invalid_arguments", detail=detail))
    except UnknownTool:
        return invalid(run, turn, called, Invalid(slug="unknown_tool"))
    return _accepted(run, turn, called, proposals)


def _normal(proposal: Proposal) -> Proposal:
    """The proposal with normalised arguments: page, hash, intent and request body come from this one object."""
    return Proposal(
        call_id=proposal.call_id, tool=proposal.tool, args=registry.normalise(proposal.tool, proposal.args),
        evidence=proposal.evidence,
    )  # fmt: skip


def _replied(turn: NewTurn, called: Call, **what: object) -> tuple[NewEvent, ...]:
    meta = {
        "route": turn.route, "model": turn.answered_model, "input_tokens": turn.input_tokens,
        "output_tokens": turn.output_tokens, "took_ms": turn.took_ms, "finish_reason": turn.finish_reason,
    }  # fmt: skip
    return (*called.events, NewEvent(type="model.replied", meta=meta, payload=dict(what), span=turn.span))


def _with(turn: NewTurn, **changes: Any) -> NewTurn:
    return replace(turn, **changes)


def _versions(turn: NewTurn) -> dict[str, str]:
    return {"model": turn.answered_model, "prompt": turn.prompt.version, "tools": turn.prompt.tools_hash}


def _accepted(run: RunState, turn: NewTurn, called: Call, proposals: tuple[Proposal, ...]) -> Outcome:
    wire = [{"tool": p.tool, "args": p.args, "evidence": list(p.evidence)} for p in proposals]
    events = _replied(turn, called, proposals=wire)
    turn = _with(turn, proposals=proposals)
    observations, folded = endings.fold(run)
    common: dict[str, Any] = {
        "events": events, "turn": turn, "active_ms": called.took_ms, "versions": _versions(turn), "folded": folded,
        "observations": observations, "retries": 0,
    }  # fmt: skip
    first = proposals[0]
    if registry.entry(first.tool).effect is Effect.READ:
        return Outcome(on=On.READS_PROPOSED, **common)
    pending = pending_action(run, first, turn=run.model_calls + 1)
    return Outcome(on=On.WRITE_PROPOSED, pending=pending, **common)


def pending_action(run: RunState, proposal: Proposal, *, turn: int) -> PendingAction:
    """The proposed write with its hash and its one key, made here and stored; never made again."""
    args, policy = proposal.args, run.contract.policy_version_pin
    made = action_hash(tenant_id=run.tenant_id, run_id=run.run_id, tool=proposal.tool, args=args, policy=policy)
    key = write_key(
        tenant_id=run.tenant_id, request_id=run.contract.idempotency_root, tool=proposal.tool, target=args["payment_id"]
    )
    return PendingAction(
        call_id=proposal.call_id, tool=proposal.tool, args=args, evidence=proposal.evidence, action_hash=made,
        key=key, turn=turn,
    )  # fmt: skip


def qualified(run: RunState, ports: Ports) -> int | None:
    """The qualification of the route that proposed the pending action, by the model that really answered."""
    assert run.pending is not None, "only a pending action is qualified"
    turn = next(t for t in run.turns if t.number == run.pending.turn)
    return ports.qualification(run.agent, turn.route, turn.answered_model, run.contract.manual_qualification)


def invalid(run: RunState, turn: NewTurn, called: Call, fault: Invalid) -> Outcome:
    """A turn that is no proposal and no draft: recorded, fed back, bounded; at the bound a person gets it all."""
    error = {"error": fault.slug, **fault.detail}
    said = called.result.said if called.result else turn.raw
    content = {**error, "output": visible(said)[:EXCERPT]}
    meta = {"error": fault.slug, "repairs": run.repairs + 1}
    events = (*_replied(turn, called, error=error), NewEvent(type="model.invalid", meta=meta, span=turn.span))
    turn = _with(turn, error=error)
    note = NewObservation(kind="error", source="parser", content=content, span=turn.span)
    if run.repairs >= MAX_REPAIRS:
        return _exhausted(run, turn, called, events, note, fault.slug)
    observations, folded = endings.fold(run)
    return Outcome(
        on=On.OUTPUT_REJECTED, events=events, turn=turn, observations=(note, *observations), folded=folded,
        active_ms=called.took_ms, repairs=run.repairs + 1, versions=_versions(turn),
    )  # fmt: skip


def _exhausted(
    run: RunState, turn: NewTurn, called: Call, events: tuple[NewEvent, ...], note: NewObservation, slug: str
) -> Outcome:
    more: dict[str, Any] = {
        "events": events, "turn": turn, "active_ms": called.took_ms, "versions": _versions(turn),
    }  # fmt: skip
    if run.status is Status.VERIFIED:
        return endings.complete(run, None, **more)
    reason = "no_usable_output" if slug == "no_usable_output" else "repair_exhausted"
    return endings.escalate(run, reason, observations=(note,), **more)


def overtaken(outcome: Outcome) -> Outcome | None:
    """A turn that a door's input overtook before it could end the run: recorded and counted, not acted on."""
    if outcome.turn is None:
        return None
    kept = tuple(e for e in outcome.events if e.type not in ("reply.sent", "reply.rejected", "notice"))
    turn = _with(outcome.turn, error={"error": "overtaken_by_input"}, final=None)
    return Outcome(
        on=On.OUTPUT_REJECTED, events=kept, turn=turn, active_ms=outcome.active_ms, versions=outcome.versions
    )


def _draft(run: RunState, turn: NewTurn, called: Call, final: Final) -> Outcome:
    """A draft of the reply: its prose goes out only if it holds nothing that facts must say."""
    turn = _with(turn, final=final)
    story = tell.story_of(run, status=Status.COMPLETED, outcome=None)
    verdict = reply.check_prose(final.text, story)
    events = _replied(turn, called, final=final.text)
    more: dict[str, Any] = {"turn": turn, "active_ms": called.took_ms, "versions": _versions(turn)}
    if verdict.dropped is None:
        return endings.complete(run, verdict.kept, events=events, **more)
    if run.status is Status.VERIFIED and run.repairs > 0:
        return endings.complete(run, None, dropped=verdict.dropped, events=events, **more)
    return invalid(run, turn, called, Invalid(slug="reply_rejected", detail={"because": verdict.dropped}))
