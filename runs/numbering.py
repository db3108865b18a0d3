"""The numbers of a run's tool spans, t1, t2, …: reads as they come, a write, the independent look at it. A paper.

Pure functions of the run's state, so that whoever takes the run over counts on. A model turn's span is `m` and its
number.
"""

from __future__ import annotations

from runs.contracts import RunState

LOOKED_AT = frozenset({"confirmed", "failed"})
"""States of a write that an independent look came after."""


def taken(run: RunState) -> int:
    """How many numbers are taken: by reads, by writes, and by the looks that verified them."""
    return _reads(run) + sum(_of(state) for _, state in _writes(run))


def of_write(run: RunState, key: str) -> str:
    """The span of a write, from its intent on: its attempts and the look-ups of what came of it are told under it."""
    others = sum(_of(state) for other, state in _writes(run) if other != key)
    return f"t{_reads(run) + others + 1}"


def of_verification(run: RunState, key: str) -> str:
    """The span of the independent look at a write: the next one."""
    return f"t{int(of_write(run, key)[1:]) + 1}"


def _reads(run: RunState) -> int:
    return sum(o.span.startswith("t") for o in run.observations)


def _writes(run: RunState) -> list[tuple[str, str]]:
    return [(w.key, w.state) for w in run.writes]


def _of(state: str) -> int:
    return 2 if state in LOOKED_AT else 1
