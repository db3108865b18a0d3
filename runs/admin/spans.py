"""What a run did and waited for, as spans of time, from its rows alone. Pure: no query, no clock, no markup.

Time is told apart by what it was spent on: a worker's (model, tool, gate, write, check), and waiting (for a worker, for
a person, for something outside). What rows do not say is not made up: a step without a length is a point.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from agentsite.text import visible
from approvals import labels
from approvals.models import Approval
from runs.models import Attempt, Draft, Event, Input, Observation, Run, Turn

STEPS = frozenset({
    "run.status", "prompt.built", "model.called", "model.replied", "model.failed", "model.invalid", "route.switched",
    "tool.observed", "tool.error", "gate.decided", "approval.requested", "approval.decided", "approval.expired",
    "write.intent", "write.released_again", "write.result", "write.unknown", "write.reconciled", "write.verified",
    "write.mismatch", "reply.sent", "reply.rejected", "notice", "loop.stopped", "customer.asked", "reminder",
    "evidence.found",
})  # fmt: skip
LOOKS = ("write.result", "write.unknown", "write.reconciled")
CHECKS = ("write.verified", "write.mismatch")
ENDS = frozenset({"completed", "escalated", "cancelled", "failed"})
TO_SEE = frozenset({"executing", "executed"})
WAITS = {
    "awaiting_approval": "Waiting for a person's decision",
    "waiting_reply": "Waiting for the customer's answer",
    "approval_expired": "Approval expired: waiting for staff",
    "waiting_dependency": "Waiting for a system that is down",
}
BY_PEOPLE = frozenset({"awaiting_approval", "waiting_reply", "approval_expired"})
LEAST_WAIT = timedelta(milliseconds=1)


@dataclass(frozen=True, kw_only=True)
class Span:
    """One thing that took time. `ready`: since when a worker could have begun it; `ended` None: it goes on.

    `kind` is model, tool, gate, write, check or wait; `gap` is what the time from `ready` to `began` was: queue or
    look (it was due again later).
    """

    kind: str
    label: str
    began: datetime
    ended: datetime | None
    ready: datetime | None = None
    gap: str = "queue"
    note: str = ""
    bad: bool = False
    person: bool = False


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows of one run, each in its own order; `draft` where a model call is under way."""

    run: Run
    events: Sequence[Event]
    turns: Sequence[Turn]
    observations: Sequence[Observation]
    approvals: Sequence[Approval]
    attempts: Sequence[Attempt]
    inputs: Sequence[Input]
    draft: Draft | None = None


def of(rows: Rows) -> list[Span]:
    """The spans of a run from its admission to its end, by their beginning."""
    walk = _Walk(rows)
    for step in _steps(rows.events):
        walk.take(step)
    found = [*walk.spans, *_attempts(rows.attempts), *walk.now()]
    return sorted(found, key=lambda span: span.ready or span.began)


def after_the_end(events: Sequence[Event]) -> int:
    """How many events came after the one that ended the run."""
    ends = [number for number, e in enumerate(events) if e.type == "run.status" and e.meta.get("to") in ENDS]
    return len(events) - ends[0] - 1 if ends else 0


def _steps(events: Sequence[Event]) -> list[list[Event]]:
    """Events of one checkpoint together, up to the run's end."""
    ended = len(events) - after_the_end(events)
    steps: dict[int, list[Event]] = {}
    for event in events[:ended]:
        if event.type in STEPS:
            steps.setdefault(event.version, []).append(event)
    return [steps[version] for version in sorted(steps)]


def _first(step: Iterable[Event], *types: str) -> Event | None:
    return next((e for e in step if e.type in types), None)


def _ms(number: object) -> timedelta:
    return timedelta(milliseconds=number if isinstance(number, int) else 0)


class _Walk:
    """A run's steps one after another: `ready` is since when the next could begin."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.ready, self.status = rows, rows.run.created_at, "accepted"
        self.spans = list[Span]()
        self.looked = False
        self._turns = {t.span: t for t in rows.turns}
        self._read = {o.call_id: o for o in rows.observations if o.call_id}
        self._asked: Mapping[str, Approval] = {a.pk: a for a in rows.approvals}
        self._sent = {e.version for e in rows.events if e.type == "write.sent"}

    def take(self, step: list[Event]) -> None:
        ended = max(e.at for e in step)
        made = sorted(self._made(step, ended), key=lambda span: span.began)
        began = min([s.began for s in made], default=ended)
        began = max(began, self.ready)
        self._close_wait(began)
        if made:
            made[0] = self._waited(made[0], began)
        self.spans += made
        self._move(step, ended)

    def _waited(self, span: Span, began: datetime) -> Span:
        if began - self.ready < LEAST_WAIT:
            return span
        gap = "look" if self.looked and self.status in TO_SEE else "queue"
        return replace(span, ready=self.ready, gap=gap)

    def _move(self, step: list[Event], ended: datetime) -> None:
        """Where the run stands after a step, and what it waits for then."""
        change = _first(step, "run.status")
        self.ready, self.looked = ended, _first(step, *LOOKS, *CHECKS) is not None
        if change is None:
            return
        self.status = str(change.meta.get("to", ""))
        if self.status in WAITS:
            self._wait(step, ended)

    # --- waiting ---

    def _wait(self, step: list[Event], since: datetime) -> None:
        until, note = self._until(step, since)
        kind = WAITS[self.status]
        self.spans.append(
            Span(kind="wait", label=kind, began=since, ended=until, note=note, person=self.status in BY_PEOPLE,
                 bad=self.status == "approval_expired")
        )  # fmt: skip
        self.ready = until or since

    def _until(self, step: list[Event], since: datetime) -> tuple[datetime | None, str]:
        """When the wait ended by somebody outside, and what he did; None: by the next step, or not yet."""
        asked = _first(step, "approval.requested")
        approval = self._asked.get(str(asked.meta.get("approval_id"))) if asked else None
        if self.status == "awaiting_approval" and approval is not None:
            return approval.decided_at or approval.ended_at, _decided(approval)
        came = next((i for i in self.rows.inputs if i.at >= since), None)
        if self.status == "waiting_dependency" or came is None:
            return None, ""
        return came.at, labels.spoken(came.kind)

    def _close_wait(self, began: datetime) -> None:
        """A wait that nobody outside ended was over when the next step began."""
        if self.spans and self.spans[-1].kind == "wait" and self.spans[-1].ended is None:
            self.spans[-1] = replace(self.spans[-1], ended=began)
            self.ready = began

    # --- one step ---

    def _made(self, step: list[Event], ended: datetime) -> Iterator[Span]:
        began = self._began(step, ended)
        yield from self._model(step, began, ended)
        yield from self._reads(step)
        decided, intent = _first(step, "gate.decided"), _first(step, "write.intent", "write.released_again")
        if decided is not None:
            yield _gate(decided, began, ended)
        if intent is not None:
            yield Span(
                kind="gate", label="Checked again, refund recorded", began=began, ended=ended, note="intent saved"
            )
        yield from self._seen(step, began, ended)

    def _began(self, step: list[Event], ended: datetime) -> datetime:
        """When the handler took the run up, as the change of status tells; elsewhere only its end is known."""
        change = _first(step, "run.status")
        return max(self.ready, ended - _ms(change.meta.get("took_ms"))) if change is not None else ended

    def _model(self, step: list[Event], began: datetime, ended: datetime) -> Iterator[Span]:
        """Each call of a model by itself: those that failed, then the one that answered."""
        replied = _first(step, "model.replied")
        turn = self._turns.get(replied.span or "") if replied is not None else None
        failed = [e for e in step if e.type == "model.failed"]
        if turn is None:
            yield from _failures(failed, ended - sum((_ms(e.meta.get("took_ms")) for e in failed), timedelta()))
            return
        at = max(turn.started_at, self.ready)
        over = at + _ms(turn.took_ms)
        failures = list(_failures(failed, at))
        yield from failures
        spoke = failures[-1].ended if failures else at
        yield Span(
            kind="model", label=f"Model call {turn.number}", began=min(spoke or at, over), ended=over,
            note=_turned(turn, step), bad=turn.error is not None,
        )  # fmt: skip

    def _reads(self, step: list[Event]) -> Iterator[Span]:
        yield from (_evidence(e) for e in step if e.type == "evidence.found")
        yield from (self._one_read(e) for e in step if e.type in ("tool.observed", "tool.error"))

    def _one_read(self, event: Event) -> Span:
        seen, failed = self._read.get(str(event.meta.get("call"))), event.type == "tool.error"
        over = min(seen.fetched_at, event.at) if seen is not None and not failed else event.at
        note = labels.spoken(str(event.meta.get("error"))) if failed else seen.obs_id if seen is not None else ""
        return Span(
            kind="tool", label=visible(str(event.meta.get("tool", "tool"))),
            began=over - _ms(event.meta.get("took_ms")), ended=over, note=note, bad=failed,
        )  # fmt: skip

    def _seen(self, step: list[Event], began: datetime, ended: datetime) -> Iterator[Span]:
        """Look-ups and verifications; the answer to a call of our own stands with its attempt."""
        checked, looked = _first(step, *CHECKS), _first(step, *LOOKS)
        if checked is not None:
            passed = checked.type == "write.verified"
            note = "passed" if passed else labels.spoken(str(checked.meta.get("error") or checked.meta.get("verdict")))
            yield Span(kind="check", label="Verified by an independent read", began=began, ended=ended, note=note,
                       bad=not passed)  # fmt: skip
        elif looked is not None and (looked.version - 1 not in self._sent or looked.type == "write.reconciled"):
            found = looked.meta.get("error") or looked.meta.get("state") or "found"
            yield Span(kind="check", label="Looked up at the business system", began=began, ended=ended,
                       note=labels.spoken(str(found)), bad=looked.type == "write.unknown")  # fmt: skip
        sent = _first(step, "reply.sent")
        if sent is not None and _first(step, "model.replied") is None:
            yield Span(kind="check", label="Reply sent", began=ended, ended=ended, note="facts alone")

    # --- now ---

    def now(self) -> Iterator[Span]:
        """What goes on at this moment in a run that lives and waits for nobody."""
        run, draft = self.rows.run, self.rows.draft
        if run.status in ENDS or run.status in WAITS:
            return
        if draft is not None:
            yield Span(kind="model", label=f"Model call {run.model_calls + 1}, under way", began=self.ready, ended=None)
        elif run.lease_token is None:
            words = "Waiting to look again" if run.status in TO_SEE else "Waiting for a worker"
            yield Span(kind="wait", label=words, began=self.ready, ended=None)
        else:
            yield Span(kind="check", label="A worker has it", began=self.ready, ended=None)


def _decided(approval: Approval) -> str:
    by = f" by {visible(approval.decided_by)}" if approval.decided_by else ""
    said = "Approved" if approval.status == "consumed" else labels.status(approval.status)
    return f"{said}{by}" if approval.status != "pending" else ""


def _failures(failed: Sequence[Event], at: datetime) -> Iterator[Span]:
    for event in failed:
        over = at + _ms(event.meta.get("took_ms"))
        route = visible(str(event.meta.get("route", "")))
        yield Span(
            kind="model", label="Model call, no answer", began=at, ended=over, bad=True,
            note=f"{labels.spoken(str(event.meta.get('error')))} · {route}",
        )  # fmt: skip
        at = over


def _turned(turn: Turn, step: list[Event]) -> str:
    """What a turn came to, in a word or two."""
    if turn.error is not None:
        return f"{labels.spoken(str(turn.error.get('error')))}: asked again" if turn.error.get("error") else "invalid"
    if _first(step, "reply.sent") is not None:
        return "reply sent"
    tools = [visible(str(p.get("tool"))) for p in turn.proposals]
    return f"proposed {', '.join(tools)}" if tools else "a draft of the reply" if turn.final else ""


def _evidence(found: Event) -> Span:
    began, note = found.at - _ms(found.meta.get("took_ms")), labels.found(found.meta)
    return Span(kind="tool", label="Evidence for the request", began=began, ended=found.at, note=note)


def _gate(decided: Event, began: datetime, ended: datetime) -> Span:
    said = str(decided.meta.get("decision", ""))
    words = {"allow": "allowed", "needs_approval": "a person must decide", "deny": "denied"}
    return Span(
        kind="gate", label="Gate, on live facts", began=began, ended=ended, bad=said == "deny",
        note=f"{words.get(said, labels.spoken(said))}: {labels.rule(str(decided.meta.get('rule', '')))}",
    )  # fmt: skip


def _attempts(attempts: Sequence[Attempt]) -> Iterator[Span]:
    """Each try at sending a write, from the mark to its answer; without one, until it was given up."""
    for tried in attempts:
        label = f"Refund sent, attempt {tried.number}"
        if tried.sent_at is None:
            yield Span(kind="write", label=f"Attempt {tried.number}, never sent", began=tried.prepared_at,
                       ended=tried.prepared_at)  # fmt: skip
            continue
        over = tried.answered_at or tried.gives_up_at
        answer = labels.spoken(tried.answer) if tried.answer else "no answer"
        yield Span(kind="write", label=label, began=tried.sent_at, ended=over, note=answer,
                   bad=tried.answered_at is None)  # fmt: skip
