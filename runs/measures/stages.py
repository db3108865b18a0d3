"""Paper: a run's stages as a line of text, and the other numbers that the tail calculator is asked with, read strictly.

`o40 m1100:1910:120 t240|120`: overhead of 40 ms, a model call of 1,100 ms with 1,910 input and 120 output tokens, two
reads in parallel. Imports nothing but the papers beside it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from runs.measures import tail
from runs.measures.tail import Call, Slow, Stage

KINDS = {"m": "model", "t": "tools", "o": "overhead"}
LETTERS = {kind: letter for letter, kind in KINDS.items()}
MOST_MS, MOST_TEXT = 10_000_000, 10_000
_STAGE = re.compile(r"([mto])([0-9:|]{1,600})", re.ASCII)
_CALL = re.compile(r"([0-9]{1,8})(?::([0-9]{1,8})(?::([0-9]{1,8}))?)?", re.ASCII)
_PERCENT = re.compile(r"([0-9]{1,3})(\.[0-9]{1,6})?\s?%?", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,8}", re.ASCII)


class BadNumbers(ValueError):
    """What was asked cannot be calculated; `field` is the one at fault: stages, calls, run, slow, cost …"""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def parse(text: str) -> tuple[Stage, ...]:
    """The stages of a line. Raises BadNumbers that names the stage at fault."""
    if len(text) > MOST_TEXT:
        raise BadNumbers("stages", f"at most {MOST_TEXT:,} characters")
    stages = tuple(_stage(word) for word in text.replace(",", " ").split())
    if not stages or len(stages) > tail.MOST_STAGES:
        raise BadNumbers("stages", f"between 1 and {tail.MOST_STAGES} stages")
    if not 1 <= tail.count(stages) <= tail.MOST_CALLS:
        raise BadNumbers("stages", f"between 1 and {tail.MOST_CALLS:,} calls")
    return stages


def _stage(word: str) -> Stage:
    found = _STAGE.fullmatch(word)
    calls = [_CALL.fullmatch(part) for part in found[2].split("|")] if found else []
    read = tuple(_call(call) for call in calls if call is not None)
    if found is None or len(read) != len(calls) or len(read) > tail.MOST_TOGETHER:
        raise BadNumbers("stages", f"{word[:40]!r} is no stage such as m1100, t240|120 or o40")
    return Stage(kind=KINDS[found[1]], calls=read)


def _call(found: re.Match[str]) -> Call:
    ms = int(found[1])
    if ms > MOST_MS:
        raise BadNumbers("stages", f"a call takes at most {MOST_MS:,} ms")
    return Call(ms=ms, input_tokens=int(found[2] or 0), output_tokens=int(found[3] or 0))


def text(stages: Sequence[Stage]) -> str:
    """The line that `parse` reads back."""
    return " ".join(LETTERS[s.kind] + "|".join(_word(c) for c in s.calls) for s in stages)


def _word(call: Call) -> str:
    tokens = f":{call.input_tokens}:{call.output_tokens}" if call.input_tokens or call.output_tokens else ""
    return f"{call.ms}{tokens}"


def calls(given: str) -> int:
    """A number of calls. Raises BadNumbers."""
    number = int(given) if _WHOLE.fullmatch(given) else 0
    if not 1 <= number <= tail.MOST_CALLS:
        raise BadNumbers("calls", f"a whole number from 1 to {tail.MOST_CALLS:,}")
    return number


def slow(percent: str, cost: str) -> Slow:
    """The chance of a slow call in percent and what one costs in milliseconds. Raises BadNumbers."""
    found = _PERCENT.fullmatch(percent)
    chance = Fraction(Decimal(found[1] + (found[2] or ""))) / 100 if found else Fraction(-1)
    if not (chance == 0 or tail.LEAST_CHANCE <= chance <= 1):
        least = tail.shown(100 * tail.LEAST_CHANCE, 3)
        raise BadNumbers("slow", f"a percentage: 0, or from {least} to 100")
    return Slow(chance=chance, cost_ms=milliseconds("cost", cost))


def milliseconds(field: str, given: str) -> int:
    """Whole milliseconds. Raises BadNumbers that names this field."""
    if not _WHOLE.fullmatch(given) or int(given) > MOST_MS:
        raise BadNumbers(field, f"whole milliseconds, at most {MOST_MS:,}")
    return int(given)
