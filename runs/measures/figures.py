"""Paper: what a set of ended runs comes to: how they ended, what they used, how long they took. Imports no Django.

Runs that count are those that ended as success, handed over or failure; cancelled ones and those in shadow mode stand
beside. Everything but their number and their cost is of runs that count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agentsite.tenants.profiles import Limits
from runs.measures import caps, numbers
from runs.measures.columns import Columns, Outcome
from runs.measures.ends import SHADOW, End, Kind

COUNT = (Kind.SUCCESS, Kind.HANDED, Kind.FAILURE)
USED = ("model_calls", "input_tokens", "output_tokens", "active_ms", "wall_ms")
CAPPED = {
    "max_model_calls": "model_calls", "deadline_ms": "active_ms", "max_write_attempts": "write_attempts",
    "max_input_tokens": "input_tokens", "max_output_tokens": "output_tokens", caps.COST: "cost_micros",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Reason:
    """One way not to end by oneself: how many runs, whether each is a failure, and why it is or is not."""

    status: str
    reason: str
    runs: int
    failure: bool
    cap: bool
    why: str


@dataclass(frozen=True, kw_only=True)
class Figures:
    """`runs` count; `success`, `handed`, `failed` and `capped` are shares of them, `escalated` those that went to a
    person for whatever reason. `cost` by currency is of runs whose price is known; `unpriced` are the others;
    `cost_beside` is what runs that do not count cost. `people_ms` is of runs that waited for a person at all."""

    runs: int
    success: numbers.Share
    escalated: numbers.Share
    failed: numbers.Share
    capped: numbers.Share
    reasons: tuple[Reason, ...]
    by_hand: int
    beside: Mapping[str, int]
    used: Mapping[str, numbers.Spread]
    people_ms: numbers.Spread
    cost: Mapping[str, numbers.Spread]
    unpriced: int
    cost_beside: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Day:
    """Runs that ended on one day in UTC, those of them that failed, and those that hit a cap."""

    day: str
    runs: int
    failed: int
    capped: int


def of(columns: Columns, rows: Iterable[int], free: frozenset[str]) -> Figures:
    """The figures of these rows; `free` are models that nobody is paid for."""
    every = list(rows)
    counted, beside = columns.where(every, *COUNT), columns.where(every, Kind.BESIDE)
    whole, ends = len(counted), columns.ends(counted)
    kinds = Counter[Kind]()
    for (_, _, end, _), n in ends.items():
        kinds[end.kind] += n
    unpriced = _unpriced(columns, counted, free)
    people = columns.number["people_ms"]
    return Figures(
        runs=whole, success=numbers.share(kinds[Kind.SUCCESS], whole),
        escalated=numbers.share(sum(n for (status, *_), n in ends.items() if status != "completed"), whole),
        failed=numbers.share(kinds[Kind.FAILURE], whole),
        capped=numbers.share(sum(n for (_, _, end, _), n in ends.items() if end.cap), whole),
        reasons=tuple(_reasons(ends)), by_hand=sum(n for (*_, by_hand), n in ends.items() if by_hand),
        beside=_beside(columns.ends(beside)), used={name: _spread(columns, name, counted) for name in USED},
        people_ms=numbers.spread(people[r] for r in counted if people[r]),
        cost=_cost(columns, [row for row in counted if row not in unpriced]), unpriced=len(unpriced),
        cost_beside=_cost_beside(columns, beside),
    )  # fmt: skip


def _unpriced(columns: Columns, rows: Iterable[int], free: frozenset[str]) -> set[int]:
    """Runs that asked a model that wants money and has no price: their cost is not nothing, it is not known."""
    paid = {word for word in columns.words("model") if word not in free}
    asked, cost = columns.number["model_calls"], columns.number["cost_micros"]
    return set(columns.spoken("model", (row for row in rows if asked[row] and not cost[row]), paid))


def _spread(columns: Columns, name: str, rows: Sequence[int]) -> numbers.Spread:
    column = columns.number[name]
    return numbers.spread(column[row] for row in rows)


def _reasons(ends: Counter[Outcome]) -> Iterable[Reason]:
    """The commonest first; what a person finished by hand stands under what made it his."""
    found: dict[tuple[str, str, End], int] = defaultdict(int)
    for (status, reason, end, _), n in ends.items():
        found[status, reason, end] += n
    for (status, reason, end), n in sorted(found.items(), key=lambda item: (-item[1], item[0][:2])):
        if end.kind is not Kind.SUCCESS:
            yield Reason(status=status, reason=reason, runs=n, failure=end.kind is Kind.FAILURE, cap=end.cap,
                         why=end.why)  # fmt: skip


def _beside(ends: Counter[Outcome]) -> dict[str, int]:
    found = Counter[str]()
    for (status, _, end, _), n in ends.items():
        found["shadow" if end is SHADOW else status] += n
    return dict(sorted(found.items()))


def _cost(columns: Columns, rows: Sequence[int]) -> dict[str, numbers.Spread]:
    micros = columns.number["cost_micros"]
    return {currency: numbers.spread(micros[r] for r in part) for currency, part in _by_currency(columns, rows)}


def _cost_beside(columns: Columns, beside: Sequence[int]) -> dict[str, int]:
    micros = columns.number["cost_micros"]
    sums = {currency: sum(micros[r] for r in part) for currency, part in _by_currency(columns, beside)}
    return {currency: total for currency, total in sums.items() if total}


def _by_currency(columns: Columns, rows: Sequence[int]) -> list[tuple[str, list[int]]]:
    parts = [(currency, columns.spoken("currency", rows, [currency])) for currency in sorted(columns.words("currency"))]
    return [(currency, part) for currency, part in parts if part]


def days(columns: Columns, rows: Iterable[int]) -> tuple[Day, ...]:
    """The trend, a day at a time, the oldest first."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in rows:
        end = columns.outcome(row)[2]
        if end.kind is not Kind.BESIDE:
            counts = found[columns.word("day", row)]
            counts[0] += 1
            counts[1] += end.kind is Kind.FAILURE
            counts[2] += end.cap
    return tuple(Day(day=day, runs=n, failed=failed, capped=cap) for day, (n, failed, cap) in sorted(found.items()))


def cap_table(columns: Columns, rows: Iterable[int], limits: Limits, free: frozenset[str]) -> tuple[caps.Cap, ...]:
    """The caps of one agent of one tenant. Cost is of runs in the currency of the cap whose price is known."""
    counted = columns.where(rows, *COUNT)
    granted, currency = caps.granted(limits), limits.max_cost.currency
    unpriced = _unpriced(columns, counted, free)
    succeeded, near, runs = dict[str, list[int]](), dict[str, int](), dict[str, int]()
    for name, column in CAPPED.items():
        part = counted
        if name == caps.COST:
            part = [row for row in columns.spoken("currency", counted, [currency]) if row not in unpriced]
        values = columns.number[column]
        succeeded[name] = [values[row] for row in columns.where(part, Kind.SUCCESS)]
        near[name] = sum(caps.is_near(values[row], granted[name]) for row in part)
        runs[name] = len(part)
    return caps.table(limits, succeeded, near, runs)
