"""Plays a recorded run through today's handlers: recorded answers in, today's transitions out, compared step by step.

Calls no model and no tool, reads and writes no row. The handlers are the real ones; only their ports are the record's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product, zip_longest

from runs import orchestrator
from runs.contracts import ModelCall, Outcome, RunState
from runs.errors import RunError
from runs.orchestrator import Later, Ports, Send
from runs.replay import diff, memory
from runs.replay.diff import Compared, Difference
from runs.replay.memory import Chance
from runs.replay.outside import NotRecorded, World
from runs.replay.record import Recorded, Step, read, readable
from runs.states import MODEL_TURN, TERMINAL, IllegalTransition, On, Status, next_status
from tools.contracts import Json, SentMark
from tools.errors import ToolError

CRASHES = (
    ArithmeticError, AssertionError, AttributeError, IllegalTransition, LookupError, RunError, ToolError, TypeError,
    ValueError,
)  # fmt: skip
CORRECTIONS = frozenset({"run.corrected", "run.resolved"})
RESTS = frozenset({Status.ACTION_PROPOSED, Status.APPROVED, Status.APPROVAL_EXPIRED})
LOST_HELD = frozenset({"epoch", "order_busy", "fenced", "paused", "restored", "tenant_hour"})


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What came of a replay. `left` is how many steps after the first difference were not played."""

    run_id: str
    turns: int
    decisions: int
    transitions: int
    steps: int
    left: int
    differences: tuple[Difference, ...]
    information: tuple[Difference, ...]

    @property
    def identical(self) -> bool:
        return not self.differences

    def wire(self) -> Json:
        return {
            "run_id": self.run_id, "identical": self.identical, "turns": self.turns, "decisions": self.decisions,
            "transitions": self.transitions, "steps": self.steps, "steps_left": self.left,
            "differences": [d.wire() for d in self.differences], "information": [d.wire() for d in self.information],
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Made:
    """What today's code made of one step: the run after it (None where it went no further) and how that compares.

    `asked` are the model calls it made on the way, the one that was answered last.
    """

    run: RunState | None
    resent: bool
    compared: Compared
    asked: tuple[ModelCall, ...] = ()


def play(document: Json) -> Replayed:
    """Replays an exported run. Raises BadRecord where the document is none, or cannot be read by today's code."""
    with readable():
        return _Play(read(document)).play()


def model_calls(document: Json) -> tuple[Mapping[int, ModelCall], Difference | None]:
    """Each turn's model call as today's code makes it, by the turn's number, and where that left the record's way.

    Turns after the first difference are not among them: today's run would not have come there. Raises BadRecord.
    """
    with readable():
        played = _Play(read(document))
        played.play()
    return played.asked, played.found[0] if played.found else None


class _Play:
    """One replay: the run as it stands, what it asked its model, and what was counted and found so far."""

    def __init__(self, record: Recorded) -> None:
        self.record = record
        self.run = memory.begin(record)
        self.resent = False
        self.played = list[Step]()
        self.found = list[Difference]()
        self.told = list[Difference]()
        self.asked = dict[int, ModelCall]()

    def play(self) -> Replayed:
        for step, following in zip_longest(self.record.steps, self.record.steps[1:]):
            if not step.by_the_table:
                self.told.append(_by_hand(step, self.run))
                break
            if not self._step(step, following):
                break
        else:
            self.found += _ends(self._rested(), self.record)
        return self._replayed()

    def _rested(self) -> RunState:
        """The run with what came after its last step."""
        rest = self.record.rest
        run = memory.arrived(self.run, self.record, rest)
        return memory.marked(run, self.record, rest.mark) if rest.mark is not None else run

    def _step(self, step: Step, following: Step | None) -> bool:
        """Whether the replay may go on after this step."""
        made = _best(memory.arrived(self.run, self.record, step), self.record, step, self.resent, following)
        self.played.append(step)
        if made.asked and step.first("model.replied") is not None:
            self.asked[self.run.model_calls + 1] = made.asked[-1]
        self.told += made.compared.information
        self.found += made.compared.differences
        if made.run is None or self.found:
            return False
        self.run, self.resent = made.run, made.resent
        return True

    def _replayed(self) -> Replayed:
        events = [e for s in self.played for e in s.events]
        return Replayed(
            run_id=self.record.run_id, turns=sum(e.type == "model.replied" for e in events),
            decisions=sum(e.type == "gate.decided" for e in events),
            transitions=sum(e.type == "run.status" for e in events), steps=len(self.played),
            left=len(self.record.steps) - len(self.played) if self.found else 0, differences=tuple(self.found),
            information=tuple(self.told),
        )  # fmt: skip


def _by_hand(step: Step, run: RunState) -> Difference:
    change = step.change
    assert change is not None, "only a change of status can be somebody's own"
    recorded = f"{change.meta['from']} → {change.meta['to']} ({change.meta['reason']})"
    return Difference(
        where=diff.where(step, run), what="no handler made this change", recorded=recorded, now="not replayed"
    )


def _ends(run: RunState, record: Recorded) -> Iterator[Difference]:
    """The run's own counters and its writes at the end, against the rows."""
    usage = record.run["usage"]
    ends = {"status": record.run["status"], "version": record.run["version"]}
    ends |= {name: usage[name] for name in ("model_calls", "write_attempts", "repairs", "retries", "voids")}
    for name, recorded in ends.items():
        if recorded != getattr(run, name):
            yield Difference(where="at the end", what=name, recorded=recorded, now=getattr(run, name))
    settled_late = {e.meta.get("key") for e in record.late}
    for write in run.writes:
        row = record.writes.get(write.key)
        recorded_state = row["state"] if row else None
        if recorded_state != write.state and write.key not in settled_late:
            yield Difference(where="at the end", what=write.key, recorded=recorded_state, now=write.state)
    if len(run.observations) != len(record.observations):
        counts = len(record.observations), len(run.observations)
        yield Difference(where="at the end", what="observations", recorded=counts[0], now=counts[1])


# --- one step -------------------------------------------------------------------------------------------------


def _best(run: RunState, record: Recorded, step: Step, resent: bool, following: Step | None = None) -> _Made:
    """The step under the first circumstances that explain the record; else as it would have gone most plainly.

    Whether an input was read by this step or by the `following` one, only the two together tell.
    """
    plain: _Made | None = None
    fitting: _Made | None = None
    for chance in _chances(run, step):
        made = _made(run, record, step, chance, resent)
        plain = plain or made
        if made.compared.differences:
            continue
        if not step.inputs or following is None or _goes_on(made, record, following):
            return made
        fitting = fitting or made
    assert plain is not None, "there is always one chance"
    return fitting or plain


def _goes_on(made: _Made, record: Recorded, step: Step) -> bool:
    assert made.run is not None, "a step without a difference leads on"
    if not step.by_the_table:
        return True
    return not _best(memory.arrived(made.run, record, step), record, step, made.resent).compared.differences


def _chances(run: RunState, step: Step) -> Iterator[Chance]:
    """Circumstances that rows do not keep, most likely first: inputs that came while the handler ran, tries before."""
    # What was found on the way into these was committed with what followed: an input may have come before both.
    open_to = run.inputs if run.status in (Status.ACCEPTED, Status.APPROVED) else step.inputs
    unseen = range(len(open_to) + 1)
    kinds = [Chance(), *_unusual(run, step)]
    for few, kind in product(unseen, kinds):
        yield replace(kind, unseen=few)


def _unusual(run: RunState, step: Step) -> Iterator[Chance]:
    if run.status in MODEL_TURN:
        yield Chance(late=True)
        yield Chance(final=True)
    if step.reason == "worker_crash_loop" or run.status in (Status.VERIFIED, Status.EXECUTING):
        yield Chance(attempts=1_000)
    if run.status is Status.EXECUTING:
        yield from (Chance(attempts=2), Chance(withheld=True), Chance(away=True))
    if run.status in RESTS:
        yield Chance(young=True)
    if run.status is Status.APPROVED:
        yield Chance(permitted=False)
        yield Chance(stored=True)
        if (lost := _lost(step)) is not None:
            yield Chance(lost=lost)


def _lost(step: Step) -> str | None:
    """The condition that did not hold when the intent was to be committed, by what followed from it."""
    held = step.first("notice")
    if held is not None and held.meta.get("held") in LOST_HELD:
        return str(held.meta["held"])
    if step.first("gate.decided", "write.intent") is not None or step.change is None:
        return None
    by_reason = {"route_not_qualified": "route", "budget_exhausted": "attempts"}
    denied = step.change.meta["on"] == On.RELEASE_DENIED.value
    return "key_used" if denied else by_reason.get(str(step.reason))


def _made(run: RunState, record: Recorded, step: Step, chance: Chance, resent: bool) -> _Made:
    seen = memory.view(run, record, step, chance)
    world = World(record=record, step=step, run=seen, chance=chance)
    try:
        seen, handled = _handled(seen, world, resent)
        made = _committed(run, seen, handled, world)
    except NotRecorded as missing:
        made = _otherwise(step, run, f"asks for what the record does not hold: {missing}")
    except CRASHES as error:
        made = _otherwise(step, run, f"raises {type(error).__name__}: {error}")
    return replace(made, asked=tuple(world.asked))


def _otherwise(step: Step, run: RunState, now: str) -> _Made:
    change = step.change
    recorded = f"{change.meta['from']} → {change.meta['to']} on {change.meta.get('on')}" if change else (
        ", ".join(e.type for e in step.events) or "a checkpoint without an event"
    )  # fmt: skip
    one = Difference(where=diff.where(step, run), what="transition", recorded=recorded, now=now)
    return _Made(run=None, resent=False, compared=Compared(differences=(one,)))


def _handled(seen: RunState, world: World, resent: bool) -> tuple[RunState, Outcome | Later | Send]:
    """What today's handler returns, and the run as it is when that is committed."""
    ports, record, mark = world.ports(), world.record, world.step.mark
    if mark is not None and world.sends:
        handled: Outcome | Later | Send = Send() if resent else orchestrator.step(seen, ports)
        if handled != Send():
            return seen, handled
        outcome = _sent(seen, ports, mark.attempt)
        return memory.marked(seen, record, mark), outcome
    if mark is not None:
        seen = memory.marked(seen, record, mark)
        ports = replace(world, run=seen).ports()
    return seen, orchestrator.step(seen, ports)


def _sent(seen: RunState, ports: Ports, attempt: int) -> Outcome:
    release = orchestrator.ticket(seen)
    assert orchestrator.can_send(seen, release, ports), "a record holds every credential"
    mark = SentMark(attempt=attempt, marked_at=0.0, window_s=ports.settings().WRITE_TIMEOUT_S)
    return orchestrator.send(seen, release, mark, ports)


def _committed(run: RunState, seen: RunState, handled: Outcome | Later | Send, world: World) -> _Made:
    """The outcome folded as the store folds it, its conditions included; then compared."""
    step, record = world.step, world.record
    if isinstance(handled, Outcome) and handled.intent is not None and world.chance.lost is not None:
        handled = orchestrator.resolve_intent(seen, world.chance.lost) or Later(due_in_s=0)
    if isinstance(handled, Send) and handled.resend is not None:
        handled = Outcome(on=On.WRITE_RESENT, resend=handled.resend)
    if isinstance(handled, Outcome):
        handled = _unless_overtaken(handled, seen, run)
    if not isinstance(handled, Outcome):
        now = "sends the write" if isinstance(handled, Send) else "waits, nothing is committed"
        return _otherwise(step, run, now)
    outcome = replace(handled, active_ms=_active_ms(step))
    before = replace(seen, inputs=run.inputs, last_input_seq=run.last_input_seq, active_ms=run.active_ms)
    if memory.void_unseen(step, world.chance):
        before = replace(before, approval=run.approval)
    after, events = memory.commit(before, outcome, _next(before, outcome), record, step)
    compared = diff.of_step(step, before, outcome, events, record)
    return _Made(run=after, resent=outcome.resend is not None, compared=_with_end(compared, step, outcome, record))


def _next(run: RunState, outcome: Outcome) -> Status:
    return next_status(run.status, outcome.on, confirmed_write=bool(run.confirmed), resume=outcome.resume)


def _unless_overtaken(outcome: Outcome, seen: RunState, run: RunState) -> Outcome | Later:
    """An input that came while the handler ran forbids the end, as the checkpoint does."""
    folded = outcome.folded if outcome.folded is not None else run.folded_input_seq
    if _next(seen, outcome) not in TERMINAL or run.last_input_seq <= folded:
        return outcome
    return orchestrator.overtaken(outcome) or Later(due_in_s=0)


def _active_ms(step: Step) -> int:
    """Active time as far as the record tells: the model's, and the longest of reads that ran side by side."""
    model: int = sum(e.meta["took_ms"] for e in step.events if e.type == "model.replied")
    reads = [e.meta.get("took_ms", 0) for e in step.events if e.type in ("tool.observed", "tool.error")]
    return model + max(reads, default=0)


def _with_end(compared: Compared, step: Step, outcome: Outcome, record: Recorded) -> Compared:
    if outcome.outcome is None:
        return compared
    ended = next((e.meta["from"] for e in record.late if e.type in CORRECTIONS), record.outcome)
    if ended == outcome.outcome:
        return compared
    place = f"version {step.version}, at the end"
    found = Difference(where=place, what="outcome", recorded=ended, now=outcome.outcome)
    return replace(compared, differences=(*compared.differences, found))
