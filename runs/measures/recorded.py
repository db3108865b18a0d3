"""Control: the stages of a recorded run, and how often calls of this site are slow, for the tail calculator.

Reads the rows of model calls and of the business system's answers; writes none. Bounded in rows.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from django.db.models import Subquery

from runs.measures import numbers, tail
from runs.measures.tail import Call, Slow, Stage
from runs.models import Attempt, Observation, Run, Turn

SLOW_MS = 2_000
"""A call longer than this is slow, where nobody says another length."""
MOST_RUNS, MOST_CALLS, MOST_ROWS = 2_000, 20_000, 300
CALLS = ("result", "error")
_TURN = re.compile(r"m([0-9]{1,6})\.[0-9]{1,6}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Calls of the newest runs: `slow` took longer than `above_ms`. `cost_ms`: the median of these less the median of
    the others, None where there is none. `runs` were looked at."""

    runs: int
    above_ms: int
    slow: numbers.Share
    cost_ms: int | None

    @property
    def for_calculator(self) -> Slow:
        """The chance as measured, and what a slow call costs; where none was slow, the threshold itself."""
        part, whole = self.slow.part, self.slow.whole
        cost = self.cost_ms if self.cost_ms is not None else self.above_ms
        return Slow(chance=Fraction(part, whole) if whole else Fraction(0), cost_ms=cost)


def stages(run: Run) -> tuple[Stage, ...]:
    """Model calls and the reads that each led to, as they were recorded, then the refund's own calls; reads of one turn
    went in parallel. What active time holds beyond them, the gate's reads of live facts for one, is overhead.

    Look-ups and verifications are no active time and stand in none.
    """
    reads: dict[int, list[Call]] = defaultdict(list)
    rows = Observation.objects.filter(run=run, kind__in=CALLS).exclude(call_id="").order_by("position")
    for call_id, ms in rows.values_list("call_id", "took_ms")[:MOST_ROWS]:
        found = _TURN.fullmatch(call_id)
        reads[int(found[1]) if found else 0].append(Call(ms=ms))
    made = [Stage(kind="tools", calls=tuple(reads.pop(0)[: tail.MOST_TOGETHER]))] if 0 in reads else []
    turns = Turn.objects.filter(run=run).order_by("number")
    told = turns.values_list("number", "took_ms", "input_tokens", "output_tokens")[: tail.MOST_STAGES // 3]
    for number, ms, tokens_in, tokens_out in told:
        made.append(Stage(kind="model", calls=(Call(ms=ms, input_tokens=tokens_in, output_tokens=tokens_out),)))
        if number in reads:
            made.append(Stage(kind="tools", calls=tuple(reads[number][: tail.MOST_TOGETHER])))
    made += [Stage(kind="tools", calls=(Call(ms=ms),)) for ms in _sent(run)]
    rest = run.active_ms - sum(stage.ms for stage in made)
    return (*made, Stage(kind="overhead", calls=(Call(ms=rest),))) if rest > 0 else tuple(made)


def _sent(run: Run) -> list[int]:
    """Milliseconds from each try at a refund to its answer."""
    tries = Attempt.objects.filter(write__run=run, sent_at__isnull=False, answered_at__isnull=False)
    times = tries.order_by("sent_at").values_list("sent_at", "answered_at")[:MOST_ROWS]
    return [max(0, (over - at) // timedelta(milliseconds=1)) for at, over in times if at and over]


def measure(
    now: datetime, *, days: int = 30, tenants: Collection[str] | None = None, above_ms: int = SLOW_MS
) -> Measured:
    """How often calls were slow, of the newest runs that ended in the last `days`."""
    ended = Run.objects.filter(completed_at__gte=now - timedelta(days=days), completed_at__lte=now)
    if tenants is not None:
        ended = ended.filter(tenant_id__in=tenants)
    newest = ended.order_by("-completed_at").values("pk")[:MOST_RUNS]
    took = _took(newest)
    slow = sorted(ms for ms in took if ms > above_ms)
    usual = sorted(ms for ms in took if ms <= above_ms)
    typical = numbers.percentile(usual, 50)
    late = numbers.percentile(slow, 50)
    return Measured(
        runs=newest.count(), above_ms=above_ms, slow=numbers.share(len(slow), len(took)),
        cost_ms=late - (typical or 0) if late is not None else None,
    )  # fmt: skip


def _took(newest: object) -> Sequence[int]:
    """Milliseconds of each call of a model and of each read of these runs."""
    of = {"run_id__in": Subquery(newest)}  # type: ignore[arg-type]
    turns = Turn.objects.filter(**of).order_by().values_list("took_ms", flat=True)[:MOST_CALLS]
    reads = Observation.objects.filter(kind__in=CALLS, **of).exclude(call_id="").order_by()
    return [*turns, *reads.values_list("took_ms", flat=True)[:MOST_CALLS]]
