"""What a model says to people: a message, a question, a plan, the wish for a person; and calls that must wait.

Returns results for the reads handler to commit, one a call; sends nothing and writes nothing. A customer hears only
what passes the check of a reply, staff alone hear why a model gave up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from agentsite.env import Environment
from runs import reply
from runs.contracts import Invalid, NewEvent, NewObservation, Outcome, RunState
from runs.orchestrator import endings
from runs.orchestrator.offered import QUESTIONS, TO_OTHERS, asked
from runs.prompt import MAX_REPAIRS
from runs.states import On, Status
from runs.store import tell
from tools import registry
from tools.contracts import Effect, Json, Proposal

MAX_READS = 8
MESSAGES = 3
REMINDERS = 2


@dataclass(frozen=True, kw_only=True)
class Said:
    """Results of the calls to people and of those that must wait, each answered once; `rejected`: prose among them."""

    observations: tuple[NewObservation, ...] = ()
    events: tuple[NewEvent, ...] = ()
    rejected: bool = False


def deferred(turn: tuple[Proposal, ...]) -> dict[str, str]:
    """The calls of a turn that policy lets wait, by call id, with the rule (M122).

    Of the turn alone, so that whoever answers a part of it later finds the same.
    """
    kinds = {p.call_id: _kind(p) for p in turn}
    alone = all(kind == "alone" for kind in kinds.values())
    room = {"read": MAX_READS, "plan": 1, "alone": 1 if alone else 0, "message": len(turn)}
    rules = {"read": "too_many_reads", "plan": "one_plan_a_turn", "alone": "stands_alone"}
    late: dict[str, str] = {}
    for call_id, kind in kinds.items():
        if room[kind] == 0:
            late[call_id] = rules[kind]
        room[kind] = max(0, room[kind] - 1)
    return late


def _kind(proposal: Proposal) -> str:
    if proposal.tool in TO_OTHERS:
        return "alone"
    return proposal.tool if is_to_people(proposal) else "read"


def is_to_people(proposal: Proposal) -> bool:
    tool = registry.TOOLS.get(proposal.tool)
    return tool is not None and tool.effect is Effect.PEOPLE


def answered(run: RunState, settings: Environment) -> Said:
    """Results of the messages and plans of the last turn, and of every call that has to wait."""
    late, said = deferred(run.turns[-1].proposals), Said()
    told = sum(o.source == "message" and o.ok for o in run.observations)
    for call in run.unanswered:
        if call.call_id in late:
            said = _more(said, _denial(call, {"error": "deferred", "rule": late[call.call_id]}))
        elif is_to_people(call) and (no := _denied(run, settings, call, told)) is not None:
            said = _more(said, _denial(call, {"error": "denied", "rule": no}))
        elif call.tool == "message":
            said, told = _message(run, call, said), told + 1
        elif call.tool == "plan":
            said = _more(said, _result(call, {"plan": call.args["steps"]}))
    return said


def _denied(run: RunState, settings: Environment, call: Proposal, told: int) -> str | None:
    """Why a call to people comes to nothing, though it was shown: what it needs may be gone since."""
    if call.tool not in run.contract.scope.people_tools:
        return "tool_not_in_scope"
    if call.tool in settings.TOOLS_BLOCKED:
        return "tool_blocked"
    if call.tool in TO_OTHERS and (run.status is Status.VERIFIED or run.confirmed):
        return "refund_confirmed"
    spent = told >= MESSAGES if call.tool == "message" else call.tool == "ask" and asked(run) >= QUESTIONS
    return f"at_most_{MESSAGES if call.tool == 'message' else QUESTIONS}" if spent else None


def _message(run: RunState, call: Proposal, said: Said) -> Said:
    text = call.args["text"]
    if (why := _unfit(run, text)) is not None:
        return replace(_more(said, _error(call, why)), rejected=True)
    event = NewEvent(type="customer.told", meta={"call": call.call_id}, payload={"text": text})
    return _more(said, _result(call, {"told": True}), event)


def handed_on(run: RunState, settings: Environment) -> Outcome | None:
    """What becomes of a turn that is one question or one wish for a person; None where it is neither."""
    late = deferred(run.turns[-1].proposals)
    call = next((p for p in run.unanswered if p.tool in TO_OTHERS and p.call_id not in late), None)
    if call is None or _denied(run, settings, call, 0) is not None:
        return None
    others = answered(run, settings)
    return _escalated(run, call, others) if call.tool == "escalate" else _asked(run, call, others, settings)


def _escalated(run: RunState, call: Proposal, others: Said) -> Outcome:
    event = NewEvent(type="model.escalated", meta={"call": call.call_id}, payload={"reason": call.args["reason"]})
    notes = (_result(call, {"handed_to_staff": True}), *others.observations)
    return endings.escalate(run, "escalated_by_model", observations=notes, events=(event, *others.events))


def _asked(run: RunState, call: Proposal, others: Said, settings: Environment) -> Outcome:
    question = call.args["question"]
    if endings.has(run, "message"):
        return _overtaken(run, call, others)
    if (why := _unfit(run, question)) is not None:
        return rejected(run, replace(_more(others, _error(call, why)), rejected=True))
    event = NewEvent(type="customer.asked", meta={"call": call.call_id}, payload={"question": question})
    return Outcome(
        on=On.ASKED, waiting_for="reply", due_in_s=settings.REPLY_FOR_S, events=(event, *others.events),
        observations=(_result(call, {"question": question}), *others.observations), retries=0,
    )  # fmt: skip


def _overtaken(run: RunState, call: Proposal, others: Said) -> Outcome:
    """The customer wrote while the question was made: he may have answered it."""
    because = {"error": "superseded", "because": "the customer wrote before this was asked"}
    messages, folded = endings.fold(run)
    return Outcome(
        on=On.READS_OBSERVED, observations=(_denial(call, because), *others.observations, *messages), folded=folded,
        events=others.events,
    )  # fmt: skip


def beside(said: Said, **found: Any) -> dict[str, Any]:
    """The fields of an outcome of reads with what was said in the same turn."""
    found["observations"] = (*found["observations"], *said.observations)
    found["events"] = (*found["events"], *said.events)
    return found


def rejected(run: RunState, said: Said, **found: Any) -> Outcome:
    """Prose that no customer may get is a bad answer like any other: fed back twice, then a person has it (M18)."""
    more = beside(said, **{"observations": (), "events": (), **found})
    if run.repairs >= MAX_REPAIRS and run.status is not Status.VERIFIED:
        return endings.escalate(run, "repair_exhausted", **more)
    messages, folded = endings.fold(run)
    more["observations"] = (*more["observations"], *messages)
    return Outcome(on=On.READS_OBSERVED, folded=folded, repairs=run.repairs + 1, retries=0, **more)


def _unfit(run: RunState, prose: str) -> str | None:
    """Why the customer may not be told this, as a slug; the same check as for the prose of a reply (M74)."""
    return reply.check_prose(prose, tell.story_of(run, status=run.status, outcome=None)).dropped


def _more(said: Said, result: NewObservation, *events: NewEvent) -> Said:
    return replace(said, observations=(*said.observations, result), events=(*said.events, *events))


def _result(call: Proposal, content: Json) -> NewObservation:
    return NewObservation(kind="result", source=call.tool, content=content, call_id=call.call_id, args=call.args)


def _denial(call: Proposal, content: Json) -> NewObservation:
    return NewObservation(kind="denial", source=call.tool, content=content, call_id=call.call_id, args=call.args)


def _error(call: Proposal, why: str) -> NewObservation:
    content = {"error": "reply_rejected", "because": why}
    return NewObservation(kind="error", source=call.tool, content=content, call_id=call.call_id, args=call.args)


# --- turns that are no call and no draft -----------------------------------------------------------------------


def feedback(run: RunState, fault: Invalid, content: Json, span: str) -> tuple[NewObservation, tuple[NewEvent, ...]]:
    """What the model is told of an unusable turn: a reminder where it said nothing at all, twice at most (M19)."""
    if fault.slug != "no_usable_output" or run.repairs >= REMINDERS:
        return NewObservation(kind="error", source="parser", content=content, span=span), ()
    number = run.repairs + 1
    meta = {"error": fault.slug, "number": number, "of": REMINDERS}
    content = {**content, "reminder": number, "expected": "a call of a tool that is shown, or the draft of the reply"}
    note = NewObservation(kind="notice", source="engine", content=content, span=span)
    return note, (NewEvent(type="reminder", meta=meta, span=span),)


def same_mistake(run: RunState, fault: Invalid) -> bool:
    """Whether the turn before named the very same tool that does not exist, and was told so."""
    last = (run.turns[-1].error if run.turns else None) or {}
    return fault.slug == last.get("error") == "unknown_tool" and fault.detail.get("tool") == last.get("tool")
