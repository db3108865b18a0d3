"""What of a run's past the model is shown: turns whole, or compacted, or left out, as its window has room.

A paper: pure, imports no Django, clock, store or zone. The unit is always a whole turn: each of its calls is shown with
exactly one result, or neither is. What is left out here stays in the run's rows, which the gate reads whole.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from runs import inert, sizes
from runs.contracts import RunState, SeenObservation, ShownTurn
from runs.shown import Answered, Told, Turn, beside, beside_in_short

COMPACT_AT, STEP = 0.75, 0.1
"""Share of the window from which on the oldest turns are compacted, and by what share a prompt may then grow before it
is done again: a provider's cache lives by a past that stays as it was."""
FOUND_FIRST = ("search_policy", "session_history")
FEW = 16
"""Up to so many turns are rendered anew for every prompt, and nothing of them stays in memory."""

_SPAN = re.compile(r"m([0-9]{1,10})")


@dataclass(frozen=True, kw_only=True)
class Room:
    """The room of one prompt, in tokens: its window, what is taken by its fixed parts, what the newest turns may take;
    `ratio`: tokens that its models count for one estimated."""

    fixed: int
    window_tokens: int
    tail_tokens: int
    ratio: float

    def holds(self, estimate: int) -> bool:
        return estimate * self.ratio <= self.window_tokens


def history(run: RunState, room: Room) -> tuple[tuple[ShownTurn, ...], int]:
    """The turns as they are shown, oldest first, within the room where that is possible; and the prompt's estimate.

    What was found for the goal stands before them in every prompt (M90), whole as long as the newest turn has room
    beside it.
    """
    first, told = _apart(grouped(run))
    if not first:
        fitted = _Fitted(run, told, room)
        return fitted.turns(), fitted.estimate
    for shown in (beside(first), beside_in_short(first)):
        fitted = _Fitted(run, told, replace(room, fixed=room.fixed + sizes.of_turn(shown)))
        turns = fitted.turns()
        if fitted.keeps_newest:
            break
    return (shown, *turns), fitted.estimate


def _apart(told: tuple[Told, ...]) -> tuple[tuple[SeenObservation, ...], tuple[Told, ...]]:
    """What the platform looked up before the first turn, by no call of a model; and everything else."""
    before = told[0] if told and told[0].number == 0 else None
    if before is None:
        return (), told
    found = tuple(o for o in before.beside if o.source in FOUND_FIRST and o.ok and not o.call_id)
    rest = replace(before, beside=tuple(o for o in before.beside if o not in found))
    return found, ((rest,) if rest.beside else ()) + told[1:]


# --- turns -------------------------------------------------------------------------------------------------------


def grouped(run: RunState) -> tuple[Told, ...]:
    """Each call with the first observation under its id; every other observation beside the turn it came after.

    So one more observation or turn changes nothing of what was shown before, where every turn got an answer.
    """
    owners: dict[str, tuple[int, int]] = {}
    for turn in run.turns:
        for index, call in enumerate(turn.proposals):
            owners.setdefault(call.call_id, (turn.number, index))
    answers, beside = _placed(run, owners)
    found = [Told(number=0, calls=(), beside=tuple(beside[0]))]
    for turn in sorted(run.turns, key=lambda t: t.number):
        calls = tuple(
            Answered(call=call, seen=answers.get((turn.number, index))) for index, call in enumerate(turn.proposals)
        )
        found.append(Told(number=turn.number, calls=calls, beside=tuple(beside[turn.number])))
    return tuple(told for told in found if told.calls or told.beside)


def _placed(
    run: RunState, owners: dict[str, tuple[int, int]]
) -> tuple[dict[tuple[int, int], SeenObservation], dict[int, list[SeenObservation]]]:
    numbers = {turn.number for turn in run.turns}
    answers: dict[tuple[int, int], SeenObservation] = {}
    beside: dict[int, list[SeenObservation]] = defaultdict(list)
    newest = 0
    for seen in sorted(run.observations, key=lambda o: (o.position, o.obs_id)):
        owner = owners.get(seen.call_id) if seen.call_id else None
        if owner is not None and owner not in answers:
            answers[owner] = seen
            newest = max(newest, owner[0])
        else:
            newest = max(newest, _turn_of(seen, numbers))
            beside[newest].append(seen)
    return answers, beside


def _turn_of(seen: SeenObservation, numbers: set[int]) -> int:
    """The turn that an observation names as its cause, 0 where it names none that there is."""
    named = _SPAN.fullmatch(seen.span)
    number = int(named.group(1)) if named else 0
    return number if number in numbers else 0


# --- the room -----------------------------------------------------------------------------------------------------


class _Fitted:
    """Which turns are left out, compacted and whole: the first `dropped`, those up to `tail`, the rest.

    Both bounds are found by going through the run's turns as they came, so that a prompt keeps those of the one before
    it as long as there is room.
    """

    def __init__(self, run: RunState, told: tuple[Told, ...], room: Room) -> None:
        self._told, self._room = told, room
        self._turns = [Turn(one, run.writes, remember=len(told) > FEW) for one in told]
        self._wholes = _sums([turn.size for turn in self._turns])
        self.dropped = self.tail = 0
        self._until = COMPACT_AT

    @property
    def keeps_newest(self) -> bool:
        """Whether the newest turn is shown whole, or what there is fits without any."""
        return self.tail < len(self._told) or (not self._told and self._fits(0))

    @property
    def estimate(self) -> int:
        """Tokens of the prompt that shows all this, once `turns` found the bounds."""
        return self._estimate(len(self._told))

    def turns(self) -> tuple[ShownTurn, ...]:
        if self._share(len(self._told)) <= COMPACT_AT:
            return tuple(turn.whole for turn in self._turns)
        for upto in range(1, len(self._told) + 1):
            self._make_room(upto)
        pairs = zip(self._turns[self.dropped : self.tail], self._shorts[self.dropped : self.tail], strict=True)
        short = (line or turn.whole for turn, (line, _) in pairs)
        return (*self._left_out(), *short, *(turn.whole for turn in self._turns[self.tail :]))

    @cached_property
    def _shorts(self) -> list[tuple[ShownTurn | None, int]]:
        """Every turn compacted, unless that would be no shorter, and its size."""
        return [turn.in_short() for turn in self._turns]

    @cached_property
    def _short_sums(self) -> list[int]:
        return _sums([size for _, size in self._shorts])

    def _make_room(self, upto: int) -> None:
        """The bounds of the prompt that showed the first `upto` turns."""
        if self._share(upto) <= self._until:
            return
        self.tail = max(self.tail, self._start_of_tail(upto))
        if not self._fits(upto):
            while self.dropped < self.tail and self._share(upto) > COMPACT_AT:
                self.dropped += 1
        while not self._fits(upto) and self.dropped < upto:
            # Not even the tail has room: its oldest turn is compacted, then left out, then the next one's.
            if self.dropped < self.tail:
                self.dropped += 1
            else:
                self.tail += 1
        self._until = min(1, max(COMPACT_AT, self._share(upto) + STEP))

    def _fits(self, upto: int) -> bool:
        return self._room.holds(self._estimate(upto))

    def _share(self, upto: int) -> float:
        """What share of the window is taken."""
        return self._estimate(upto) * self._room.ratio / self._room.window_tokens

    def _estimate(self, upto: int) -> int:
        """Tokens of a prompt that shows the first `upto` turns, between the bounds of now."""
        estimate = self._room.fixed + self._wholes[upto] - self._wholes[self.tail]
        if self.tail:
            estimate += self._short_sums[self.tail] - self._short_sums[self.dropped]
        if self.dropped:
            estimate += sizes.of_turn(self._omitted) + self._size_of_newest_message(upto)
        return estimate

    def _start_of_tail(self, upto: int) -> int:
        """Where the newest turns begin that the tail's budget has room for; the newest one is always among them."""
        least = self._wholes[upto] - self._room.tail_tokens / self._room.ratio
        return min(bisect_left(self._wholes, least), upto - 1)

    def _newest_message_in(self, upto: int) -> int:
        """The index of the turn in which the customer's newest message came; -1: he wrote none."""
        return self._newest_messages[upto]

    @cached_property
    def _newest_messages(self) -> list[int]:
        """Of the first 0, 1, 2 … turns."""
        written = (index if told.messages else -1 for index, told in enumerate(self._told))
        return [-1, *accumulate(written, max)]

    def _size_of_newest_message(self, upto: int) -> int:
        """Where the turn that it came in is left out: then it stands by itself."""
        index = self._newest_message_in(upto)
        return self._message_sizes[index] if 0 <= index < self.dropped else 0

    @cached_property
    def _message_sizes(self) -> list[int]:
        """Of the last message in each turn, 0 where there is none."""
        return [sizes.of_turn(beside(told.messages[-1:])) for told in self._told]

    @property
    def _omitted(self) -> ShownTurn:
        """In place of what was left out: how much it was."""
        turns, observations = self._counts[self.dropped]
        count = {"turns_left_out": turns, "observations_left_out": observations}
        return ShownTurn(number=0, notes=(inert.tag("omitted", [], count),))

    @cached_property
    def _counts(self) -> list[tuple[int, int]]:
        """How many turns of a model, and observations, the first 0, 1, 2 … turns are."""
        turns = _sums([int(told.number != 0) for told in self._told])
        return list(zip(turns, _sums([len(told.observations) for told in self._told]), strict=True))

    def _left_out(self) -> tuple[ShownTurn, ...]:
        """What stands for the turns left out, with the customer's newest message if it was among them."""
        if not self.dropped:
            return ()
        index = self._newest_message_in(len(self._told))
        apart = (beside(self._told[index].messages[-1:]),) if 0 <= index < self.dropped else ()
        return (self._omitted, *apart)


def _sums(values: list[int]) -> list[int]:
    """Sums of the first 0, 1, 2 … values."""
    return [0, *accumulate(values)]
