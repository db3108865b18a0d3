"""One model turn: caps, prompt, call, parse. What comes back is untrusted text until the gate has seen it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentsite.text import storable, visible
from runs import budgets, loops, reply
from runs.contracts import (
    Final,
    Invalid,
    LLMTurnResult,
    NewEvent,
    NewObservation,
    NewTurn,
    Outcome,
    PendingAction,
    RunState,
    SeenTurn,
)
from runs.errors import ContextTooLong, ModelUnavailable
from runs.inference.parse import parse
from runs.orchestrator import asking, endings, people, resting, spoken
from runs.orchestrator.asking import Call
from runs.orchestrator.offered import offered
from runs.orchestrator.pauses import backoff_s, park, waited_too_long
from runs.orchestrator.ports import Ports
from runs.prompt import MAX_REPAIRS
from runs.states import On, Status
from runs.store import tell
from runs.wordlists import NO_LIST
from tools import registry
from tools.contracts import Effect, Proposal, action_hash, write_key
from tools.errors import InvalidArguments, UnknownTool

EXCERPT = 400
MAX_RETRY_AFTER_S = 3600.0
OF_AN_END = ("reply.sent", "reply.rejected", "notice", "loop.stopped", "shadow.proposed")


def model_turn(run: RunState, ports: Ports) -> Outcome:
    """Ask the model for the next step, or end where a cap says so."""
    if run.status is Status.VERIFIED and run.repairs > MAX_REPAIRS:
        return endings.complete(run, None)  # further proposals kept failing: what was done is told
    capped = budgets.over(run)
    if capped is not None:
        return _at_cap(run, capped)
    prompt = asking.build(run, offered(run, ports.settings()), ports)
    if not prompt.fits:
        return _at_cap(run, "context_too_long")
    called = asking.ask(run, prompt, ports)
    if called.result is None:
        return _no_answer(run, called, ports)
    return _read(run, called, called.result, ports)


def _at_cap(run: RunState, reason: str) -> Outcome:
    if run.status is Status.VERIFIED:
        return endings.complete(run, None)
    return endings.escalate(run, reason)


def _no_answer(run: RunState, called: Call, ports: Ports) -> Outcome:
    """What becomes of a turn that never came. What was used of the budgets is counted all the same."""
    more: dict[str, Any] = {
        "events": called.events, "requests": called.requests, "spent": called.spent,
        "window_tokens": called.window_tokens,
    }  # fmt: skip
    if called.interrupted:
        return Outcome(on=On.OUTPUT_REJECTED, active_ms=called.took_ms, **more)
    if run.status is Status.VERIFIED:
        return endings.complete(run, None, active_ms=called.took_ms, **more)
    if called.over is not None:
        return endings.escalate(run, called.over, **more)
    if called.starved:
        return endings.escalate(run, "deadline_exceeded", active_ms=called.took_ms, **more)
    if isinstance(called.error, ContextTooLong):
        return endings.escalate(run, "context_too_long", **more)
    retryable = isinstance(called.error, ModelUnavailable)
    spent = called.tried and run.turn_requests + called.requests >= ports.settings().MODEL_TRIES
    if not retryable or spent or waited_too_long(run, ports.settings()):
        return endings.escalate(run, "dependency_unavailable", **more)
    asked = called.error.retry_after_s if called.error else None
    wait = min(asked, MAX_RETRY_AFTER_S) if asked else backoff_s(run, ports.settings())
    # An outage is no active time: the run waits for its dependency instead of spending its deadline on it.
    return park(run, "model", wait, tried=called.tried, **more)


def _turn(run: RunState, called: Call, result: LLMTurnResult) -> NewTurn:
    return NewTurn(
        span=f"m{run.model_calls + 1}", route=called.route, prompt=called.prompt,
        raw=storable(result.raw or result.text), answered_model=storable(result.model)[:200],
        finish_reason=storable(result.finish_reason)[:32], input_tokens=result.input_tokens,
        output_tokens=result.output_tokens, cached_tokens=result.cached_tokens, estimate=called.prompt.estimate,
        registry_version=registry.tools_hash(tool.name for tool in called.prompt.tools),
        cost_micros=called.cost_micros, took_ms=called.took_ms,
    )  # fmt: skip


def _read(run: RunState, called: Call, result: LLMTurnResult, ports: Ports) -> Outcome:
    parsed = spoken.read(parse(result, first_call=1, turn_number=run.model_calls + 1, tools=called.prompt.tools))
    turn = _turn(run, called, result)
    if isinstance(parsed, Invalid):
        return invalid(run, turn, called, parsed)
    if isinstance(parsed, Final):
        return _draft(run, turn, called, parsed, ports)
    try:
        proposals = tuple(_normal(p) for p in parsed)
    except InvalidArguments as error:
        detail = {"field": error.field, "expected": error.expected}
        return invalid(run, turn, called, Invalid(slug="invalid_arguments", detail=detail))
    except UnknownTool:
        return invalid(run, turn, called, Invalid(slug="unknown_tool"))
    return _accepted(run, turn, called, proposals, ports)


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


def _versions(turn: NewTurn) -> dict[str, str]:
    return {"model": turn.answered_model, "prompt": turn.prompt.version, "tools": turn.prompt.tools_hash}


def _used(turn: NewTurn, called: Call) -> dict[str, Any]:
    """A turn as an outcome records it, with what the calls before it used."""
    return {
        "turn": turn, "active_ms": called.took_ms, "versions": _versions(turn), "spent": called.spent,
        "requests": called.requests, "window_tokens": called.window_tokens,
    }  # fmt: skip


def _accepted(run: RunState, turn: NewTurn, called: Call, proposals: tuple[Proposal, ...], ports: Ports) -> Outcome:
    wire = [{"tool": p.tool, "args": p.args, "evidence": list(p.evidence)} for p in proposals]
    events = _replied(turn, called, proposals=wire)
    turn = replace(turn, proposals=proposals)
    if registry.entry(proposals[0].tool).effect is not Effect.WRITE:
        return _reads(run, turn, called, events, ports)
    observations, folded = endings.fold(run)
    pending = pending_action(run, proposals[0], turn=run.model_calls + 1)
    return Outcome(
        on=On.WRITE_PROPOSED, pending=pending, events=events, observations=observations, folded=folded, retries=0,
        **_used(turn, called),
    )  # fmt: skip


def _reads(run: RunState, turn: NewTurn, called: Call, events: tuple[NewEvent, ...], ports: Ports) -> Outcome:
    """Reads as proposed; where they ask nothing new, with a reminder first, and in the end not at all (M20)."""
    settings, streak = ports.settings(), loops.new_streak(run, turn.proposals)
    verdict = loops.judge(streak, settings.LOOP_REMIND_AT, settings.LOOP_STOP_AT)
    observations, folded = endings.fold(run)
    if verdict != "fine":
        words = loops.words(run, turn.proposals, streak=streak, stop_at=settings.LOOP_STOP_AT)
        kind = "loop.stopped" if verdict == "stop" else "reminder"
        meta = {"error": words["error"], "turns": streak}
        events = (*events, NewEvent(type=kind, meta=meta, payload=words, span=turn.span))
        note = NewObservation(kind="notice", source="engine", content=words, span=turn.span)
        observations = (note, *observations)
    if verdict == "stop":
        return _looping(run, turn, called, events)
    return Outcome(
        on=On.READS_PROPOSED, events=events, observations=observations, folded=folded, retries=0, **_used(turn, called)
    )


def _looping(run: RunState, turn: NewTurn, called: Call, events: tuple[NewEvent, ...]) -> Outcome:
    if run.status is Status.VERIFIED:
        return endings.complete(run, None, events=events, **_used(turn, called))
    return endings.escalate(run, "loop_detected", events=events, **_used(turn, called))


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


def proposing(run: RunState) -> SeenTurn:
    """The turn that proposed the pending action: its route has to be qualified, by the model that really answered."""
    assert run.pending is not None, "only a pending action is qualified"
    return next(t for t in run.turns if t.number == run.pending.turn)


def invalid(run: RunState, turn: NewTurn, called: Call, fault: Invalid) -> Outcome:
    """A turn that is no proposal and no draft: recorded, fed back, bounded; at the bound a person gets it all."""
    error = {"error": fault.slug, **fault.detail}
    said = called.result.said if called.result else turn.raw
    content = {**error, "output": visible(said)[:EXCERPT]}
    meta = {"error": fault.slug, "repairs": run.repairs + 1}
    events = (*_replied(turn, called, error=error), NewEvent(type="model.invalid", meta=meta, span=turn.span))
    turn = replace(turn, error=error)
    note, reminder = people.feedback(run, fault, content, turn.span)
    events = (*events, *reminder)
    if run.repairs >= MAX_REPAIRS or people.same_mistake(run, fault):
        return _exhausted(run, turn, called, events, note, fault.slug)
    observations, folded = endings.fold(run)
    return Outcome(
        on=On.OUTPUT_REJECTED, events=events, observations=(note, *observations), folded=folded,
        repairs=run.repairs + 1, **_used(turn, called),
    )  # fmt: skip


def _exhausted(
    run: RunState, turn: NewTurn, called: Call, events: tuple[NewEvent, ...], note: NewObservation, slug: str
) -> Outcome:
    if run.status is Status.VERIFIED:
        return endings.complete(run, None, events=events, **_used(turn, called))
    reason = "no_usable_output" if slug == "no_usable_output" else "repair_exhausted"
    return endings.escalate(run, reason, observations=(note,), events=events, **_used(turn, called))


def overtaken(outcome: Outcome) -> Outcome | None:
    """Model calls whose end of the run a door's input overtook: recorded and counted, not acted on."""
    if outcome.turn is None and not outcome.requests:
        return None
    kept = tuple(e for e in outcome.events if e.type not in OF_AN_END)
    turn = outcome.turn
    if turn is not None:
        turn = replace(turn, error={"error": "overtaken_by_input"}, final=None, proposals=())
    return Outcome(
        on=On.OUTPUT_REJECTED, events=kept, turn=turn, active_ms=outcome.active_ms, versions=outcome.versions,
        requests=outcome.requests, spent=outcome.spent, window_tokens=outcome.window_tokens,
    )  # fmt: skip


def _draft(run: RunState, turn: NewTurn, called: Call, final: Final, ports: Ports) -> Outcome:
    """A draft of the reply: its prose goes out only if it holds nothing that facts must say; what it cites is quoted.

    Where the policy it rests on is not in effect any more there is no reply: a person gets the facts (M9).
    """
    turn = replace(turn, final=final)
    events, more = _replied(turn, called, final=final.text), _used(turn, called)
    rests = resting.of_draft(run, final, ports)
    if rests.stale and run.status is not Status.VERIFIED:
        return endings.escalate(run, "policy_stale", events=events, **more)
    verdict = reply.check_prose(final.text, tell.story_of(run, status=Status.COMPLETED, outcome=None))
    if verdict.dropped is None:
        return endings.complete(run, verdict.kept, quoted=rests.quoted, events=events, **more)
    if verdict.dropped == NO_LIST or (run.status is Status.VERIFIED and run.repairs > 0):
        return endings.complete(run, None, dropped=verdict.dropped, quoted=rests.quoted, events=events, **more)
    return invalid(run, turn, called, Invalid(slug="reply_rejected", detail={"because": verdict.dropped}))
