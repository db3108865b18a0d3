"""Sees a run that asks nothing new, by its calls in canonical form. A paper: no Django, no clock, no store, no zone.

A turn asks nothing new when all it asks was asked before, since the last change of state, and is answered as it was
then: the same bytes of a result, or a refusal that trying again does not change. So A A A is a loop, and A B A B, and
A B C A B C; reading again after a customer's message, a decision or a write is none, nor is a poll that shows a change.
"""

from __future__ import annotations

import marshal
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from agentsite.canonical import canonical_text
from runs.contracts import RunState, SeenObservation, SeenTurn
from tools.contracts import Json, Proposal

Verdict = Literal["fine", "remind", "stop"]
Key = tuple[str, str]
PLAN = "plan"
TO_PEOPLE = ("message", "ask", PLAN, "escalate")
"""Tools that ask the world nothing: said twice in the same words they are a repetition, whatever came back."""
MAX_CALLS_SHOWN = 8
SHORT_ARGS = 1000
"""Bytes of arguments that are remembered."""
INSTEAD = (
    "Each of these calls was answered before, and nothing has changed since: the answer stands in the observation "
    "named here. Go on from it: propose what the observations allow, look up something else, draft the reply, or say "
    "what is missing."
)
STOPPED = "The same calls came again after the reminders, so the run was stopped for a person."


def new_streak(run: RunState, proposals: tuple[Proposal, ...]) -> int:
    """How many turns in a row asked nothing new, the one that proposes `proposals` included; 0: this one is new.

    Turns that asked nothing at all, being no proposals or a new plan alone, neither break a row nor lengthen it.
    """
    return _asked(run, proposals).streak


def judge(streak: int, remind_at: int, stop_at: int) -> Verdict:
    """What a row of so many turns calls for: a reminder each turn from `remind_at` on, and at `stop_at` the end."""
    if streak >= stop_at:
        return "stop"
    return "remind" if streak >= remind_at else "fine"


def words(run: RunState, proposals: tuple[Proposal, ...], *, streak: int, stop_at: int) -> Json:
    """The content of the reminder's observation, and of the stop's: which calls, how often, what to do instead."""
    stopped = streak >= stop_at
    return {
        "error": "loop_detected" if stopped else "nothing_new",
        "turns_in_a_row": streak,
        "stops_at": stop_at,
        "calls": _shown(_asked(run, proposals), proposals),
        "instead": STOPPED if stopped else INSTEAD,
    }


def _shown(asked: _Asked, proposals: tuple[Proposal, ...]) -> list[Json]:
    once = {_key(p): p for p in proposals}
    shown = []
    for key, proposal in list(once.items())[:MAX_CALLS_SHOWN]:
        answers = [a.obs_id for a in asked.answers.get(key, []) if a is not None]
        times = len(asked.answers.get(key, [])) + sum(_key(p) == key for p in proposals)
        call: Json = {"tool": proposal.tool, "args": proposal.args, "times": times}
        shown.append(call | ({"answered_by": answers[-1]} if answers else {}))
    return shown


# --- the walk over the record ------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Asked:
    """What was asked since the last change of state, with each answer; and how many turns brought nothing new."""

    answers: dict[Key, list[SeenObservation | None]] = field(default_factory=dict)
    streak: int = 0
    idle: bool = False
    """Whether the last turn was a plan alone: a second one in a row is talk without work."""

    def changed(self) -> None:
        self.answers, self.streak, self.idle = {}, 0, False

    def turn(self, calls: tuple[Proposal, ...], own: dict[str, SeenObservation], *, last: bool) -> None:
        """Count a turn. Of the `last` no answer is known: it counts by what it asks."""
        asks = {self._ask(call, own.get(call.call_id), last) for call in calls}
        alone = asks == {"plan"}
        if "new" in asks:
            self.streak = 0
        elif "old" in asks or (alone and self.idle):
            self.streak += 1
        self.idle = alone

    def _ask(self, call: Proposal, answer: SeenObservation | None, last: bool) -> Literal["new", "old", "plan"]:
        before = self.answers.get(_key(call), [])
        if call.tool in TO_PEOPLE:
            return "old" if before else ("plan" if call.tool == PLAN else "new")
        if not before or before[-1] is None:
            return "new"
        return "old" if last or (answer is not None and _alike(before[-1], answer)) else "new"

    def learn(self, calls: tuple[Proposal, ...], own: dict[str, SeenObservation]) -> None:
        """Remember a turn's calls; one that got no result is remembered only where it was no question."""
        for call in calls:
            answer = own.get(call.call_id)
            if call.tool in TO_PEOPLE or (answer is not None and not _retryable(answer)):
                self.answers.setdefault(_key(call), []).append(answer)


def _asked(run: RunState, proposals: tuple[Proposal, ...]) -> _Asked:
    """The record up to and including the turn that proposes `proposals`, walked in order."""
    asked, begun = _Asked(), 0
    changes = _changes(run)
    answers = {o.call_id: o for o in run.observations if o.call_id}
    for turn in run.turns:
        own = {p.call_id: answers[p.call_id] for p in turn.proposals if p.call_id in answers}
        if not own:
            continue
        before, begun = begun, min(o.position for o in own.values())
        if any(before <= at < begun for at in changes):
            asked.changed()
        _count(asked, turn, own)
    if any(at >= begun for at in changes) or any(i.kind == "message" for i in run.inputs):
        asked.changed()
    asked.turn(proposals, {}, last=True)
    return asked


def _count(asked: _Asked, turn: SeenTurn, own: dict[str, SeenObservation]) -> None:
    if turn.error is None:
        asked.turn(turn.proposals, own, last=False)
    asked.learn(turn.proposals, own)


def _changes(run: RunState) -> list[int]:
    """Where the state of the case became another one: a customer wrote, a person decided, a write came to something
    (done, denied, not made)."""
    writes = {*run.contract.scope.write_tools, *(w.tool for w in run.writes)}
    return [o.position for o in run.observations if o.kind in ("message", "decision") or o.source in writes]


def _alike(one: SeenObservation, other: SeenObservation) -> bool:
    return not _retryable(other) and (one.kind, one.content_hash) == (other.kind, other.content_hash)


def _retryable(seen: SeenObservation) -> bool:
    """An outage: no answer to what was asked, so asking again is right."""
    return seen.kind == "error" and isinstance(seen.content, dict) and seen.content.get("retryable") is True


def _key(call: Proposal) -> Key:
    with suppress(ValueError):  # of what is no JSON
        args = marshal.dumps(call.args, 2)
        if len(args) <= SHORT_ARGS:
            return call.tool, _asks(args)
    return call.tool, canonical_text(_squeezed(call.args))


@lru_cache(maxsize=4096)
def _asks(args: bytes) -> str:
    """A long run looks at each of its calls again in every turn."""
    return canonical_text(_squeezed(marshal.loads(args)))  # noqa: S302 - made by this process, a moment ago


def _squeezed(value: Any) -> Any:
    """Without differences of white space, which ask nothing else."""
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, list | tuple):
        return [_squeezed(item) for item in value]
    return {k: _squeezed(v) for k, v in value.items()} if isinstance(value, dict) else value
