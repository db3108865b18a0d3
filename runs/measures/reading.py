"""Control: reads ended runs, the newest first, into columns and into the windows of each tenant's objective.

Reads rows and writes none; bounded in rows, in memory and in what one query asks for. Times are the database's.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import Any

from django.db.models import F, QuerySet, TextField, Value
from django.db.models.functions import Cast, StrIndex, Substr

from agentsite import prices
from agentsite.tenants.models import Objective
from agentsite.text import visible
from approvals.models import Approval
from runs.measures import ends, objectives
from runs.measures.columns import Columns, Ended
from runs.measures.objectives import Counted, Target
from runs.models import Event, Input, Run, Turn

MOST_RUNS = 1_000_000
AT_ONCE = 800
"""Rows of one step: SQLite takes only so many parameters."""
DAY_S = 24 * objectives.HOUR_S
MS = timedelta(milliseconds=1)
CAP_ON_COST = '"max_cost":{'
_CURRENCY = re.compile(r'"currency":"([A-Z]{3})"')
COLUMNS = (
    "id", "tenant_id", "agent", "release", "status", "reason", "outcome", "model_calls", "write_attempts",
    "input_tokens", "output_tokens", "cost_micros", "active_ms", "created_at", "completed_at", "shadow__pk",
    "told_versions", "told_cost",
)  # fmt: skip


@dataclass(kw_only=True)
class Read:
    """What was read: `columns` of runs that ended since `since`, `windows` of each tenant's objective. `left_out`: more
    ended in the days asked for than were looked at, which are the newest; `cut`: the same of an objective's window."""

    now: datetime
    days: int
    since: datetime
    columns: Columns = field(default_factory=Columns)
    left_out: bool = False
    cut: bool = False
    free: frozenset[str] = frozenset()
    targets: dict[str, Target] = field(default_factory=dict)
    windows: dict[str, dict[int, Counted]] = field(default_factory=dict)


def read(now: datetime, *, days: int, tenants: Collection[str] | None = None, most: int = MOST_RUNS) -> Read:
    """Runs of these tenants (None: all) that ended in the last `days`, and as far back as their objectives look."""
    reader = _Reader(Read(now=now, days=days, since=now - timedelta(days=days), targets=targets_of(tenants)), most)
    furthest = max([days, *(t.window_days for t in reader.found.targets.values()), Target().window_days])
    rows = _rows(now - timedelta(days=furthest), now, tenants)[: most + 1].iterator(chunk_size=AT_ONCE)
    for chunk in _chunks(rows):
        reader.take(chunk)
    return reader.done()


def targets_of(tenants: Collection[str] | None) -> dict[str, Target]:
    """The objectives that somebody set; a tenant without one has the default."""
    rows = Objective.objects.all() if tenants is None else Objective.objects.filter(pk__in=tenants)
    return {row.pk: target(row) for row in rows}


def target(row: Objective) -> Target:
    return Target(
        success=Fraction(row.success_percent) / 100, latency=Fraction(row.latency_percent) / 100,
        latency_ms=row.latency_ms, window_days=row.window_days, own=True,
    )  # fmt: skip


def _rows(since: datetime, now: datetime, tenants: Collection[str] | None) -> QuerySet[Any, Any]:
    """The newest first. Of the contract comes no more than the few signs that name the currency of its cap."""
    ended = Run.objects.filter(completed_at__gte=since, completed_at__lte=now)
    if tenants is not None:
        ended = ended.filter(tenant_id__in=tenants)
    contract = Cast("contract", TextField())
    at = StrIndex(contract, Value(CAP_ON_COST))
    told = ended.annotate(told_versions=Cast("versions", TextField()), told_cost=Substr(contract, at, Value(80)))
    return told.order_by(F("completed_at").desc()).values_list(*COLUMNS)


def _chunks(rows: Iterable[Any]) -> Iterator[list[Any]]:
    rows = iter(rows)
    while chunk := list(islice(rows, AT_ONCE)):
        yield chunk


class _Reader:
    """Takes rows, the newest first, no more than `most`."""

    def __init__(self, found: Read, most: int) -> None:
        self.found, self._left, self._since = found, most, found.since
        self._tally, self._sample = _Windows(found.targets), dict[str, Any]()
        self._oldest = found.now

    def take(self, chunk: list[Any]) -> None:
        self.found.cut = len(chunk) > self._left
        rows = chunk[: self._left]
        self._left -= len(rows)
        waited = _waited([row[0] for row in rows])
        for row in rows:
            self._take(row, waited.get(row[0], 0))
        self._oldest = rows[-1][14] if rows else self._oldest
        if self.found.cut:
            self.found.since = max(self._since, self._oldest)
            self.found.left_out = self.found.since > self._since

    def _take(self, row: Any, people_ms: int) -> None:
        (pk, tenant, agent, release, status, reason, outcome, calls, tries, tokens_in, tokens_out, cost, active, began,
         over, shadow, versions, contract) = row  # fmt: skip
        end, model = ends.of(status, reason, outcome, shadow=shadow is not None), _model(versions)
        self._tally.add(tenant, (self.found.now - over).total_seconds(), end, active)
        if over < self._since:
            return
        if calls and not cost:
            self._sample.setdefault(model, pk)
        self.found.columns.add(Ended(
            tenant=tenant, agent=agent, release=release, model=model, status=status, reason=reason or "", end=end,
            by_hand=outcome == "resolved_by_staff", currency=_currency(contract),
            day=over.astimezone(UTC).date().isoformat(), model_calls=calls, write_attempts=tries,
            input_tokens=tokens_in, output_tokens=tokens_out, cost_micros=cost, active_ms=active,
            wall_ms=max(0, (over - began) // MS), people_ms=people_ms,
        ))  # fmt: skip

    def done(self) -> Read:
        self.found.free, self.found.windows = _free(self._sample), self._tally.counted()
        return self.found


@lru_cache(maxsize=4096)
def _model(versions: str | None) -> str:
    """The model that answered last; `none` where no model did."""
    try:
        stored = json.loads(versions or "{}")
    except ValueError:
        return "none"
    return visible(str(stored.get("model") or "none"))[:200] if isinstance(stored, dict) else "none"


@lru_cache(maxsize=4096)
def _currency(contract: str | None) -> str:
    """The currency of a run's cap, in which its cost is told; the same default as wherever a cost is shown."""
    found = _CURRENCY.search(contract or "") if (contract or "").startswith(CAP_ON_COST) else None
    return found[1] if found else "USD"


# --- waiting for people ------------------------------------------------------------------------------------------


def _waited(run_ids: list[Any]) -> dict[Any, int]:
    """Milliseconds that each of these runs waited for a person: for decisions, and for the customer's answers."""
    waited: dict[Any, int] = defaultdict(int)
    asked = Approval.objects.filter(run_id__in=run_ids).order_by()
    for run_id, at, decided, ended in asked.values_list("run_id", "requested_at", "decided_at", "ended_at"):
        if (until := decided or ended) is not None:
            waited[run_id] += max(0, (until - at) // MS)
    for run_id, ms in _answers(run_ids):
        waited[run_id] += ms
    return waited


def _answers(run_ids: list[Any]) -> Iterator[tuple[Any, int]]:
    """From each question to the customer's next message, in runs that he wrote to."""
    said: dict[Any, list[datetime]] = defaultdict(list)
    for run_id, at in Input.objects.filter(run_id__in=run_ids, kind="message").values_list("run_id", "at"):
        said[run_id].append(at)
    if said:
        asked = Event.objects.filter(run_id__in=list(said), type="customer.asked").order_by()
        for run_id, at in asked.values_list("run_id", "at"):
            answer = min((one for one in said[run_id] if one >= at), default=None)
            if answer is not None:
                yield run_id, (answer - at) // MS


# --- objectives --------------------------------------------------------------------------------------------------


class _Windows:
    """Counts of each tenant in each window that its budget looks at."""

    def __init__(self, targets: Mapping[str, Target]) -> None:
        self._targets, self._counts = targets, dict[str, dict[int, list[int]]]()

    def add(self, tenant: str, age_s: float, end: ends.End, active_ms: int) -> None:
        """A run that ended `age_s` ago."""
        if end.kind is ends.Kind.BESIDE:
            return
        goal = self._targets.get(tenant, Target())
        counts = self._counts.get(tenant) or self._counts.setdefault(tenant, _empty(goal))
        failed = end.kind is ends.Kind.FAILURE
        for window, (n, bad, slow) in counts.items():
            if age_s <= window:
                counts[window] = [n + 1, bad + failed, slow + (not failed and active_ms > goal.latency_ms)]

    def counted(self) -> dict[str, dict[int, Counted]]:
        return {
            tenant: {w: Counted(runs=n, failed=bad, slow=slow) for w, (n, bad, slow) in counts.items()}
            for tenant, counts in sorted(self._counts.items())
        }


def _empty(goal: Target) -> dict[int, list[int]]:
    return {w: [0, 0, 0] for w in sorted({*objectives.WINDOWS_S, objectives.window_s(goal)})}


def no_runs(goal: Target) -> dict[int, Counted]:
    """The windows of a tenant of whom no run ended."""
    return dict.fromkeys(_empty(goal), Counted())


# --- prices ------------------------------------------------------------------------------------------------------


def _free(sample: Mapping[str, Any]) -> frozenset[str]:
    """Those models that nobody is paid for, told by the route of one run that each of them answered."""
    free = set[str]()
    for model, run_id in islice(sample.items(), 200):
        route = Turn.objects.filter(run_id=run_id).order_by("-number").values_list("route", flat=True).first()
        if route is not None and prices.is_free(route):
            free.add(model)
    return frozenset(free)
