"""Door: what a campaign came to, by the rows of the site and the ledger of the business system; numbers, no opinion.

Imports no zone and no keeper: rows are read as anybody beside the site reads them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from agentsite import money
from agentsite.money import Money
from runs.chaos.site import Site
from runs.chaos.workload import CURRENCY, Case, Json

ENDED = ("completed", "escalated", "cancelled", "failed")
UNCOUNTED = ("failed", "canceled")
CAPS = (
    "budget_exhausted", "deadline_exceeded", "repair_exhausted", "loop_detected", "no_usable_output",
    "worker_crash_loop",
)  # fmt: skip
MAX_CAPPED_SHARE = 0.02
PROOF = {
    "outcome_unknown": "write.unknown", "verification_failed": "write.mismatch",
    "verification_inconclusive": "write.unknown", "over_refunded": "write.mismatch", "refund_failed": "write.mismatch",
    "dependency_unavailable": "notice", "needs_a_person": "write.result",
}  # fmt: skip
"""Reasons that excuse a refund which was not made, with the event that their record must hold."""

RUNS = "SELECT request_id, status, reason, due_at, version, attempts FROM runs_run"
EVENTS = "SELECT DISTINCT r.request_id, e.type FROM runs_event e JOIN runs_run r ON r.id = e.run_id"
PUBLISHED = "SELECT published FROM runs_sweeper"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What only the campaign knows. Times in seconds; `doors`: answers that customers or staff may never get."""

    kills: dict[str, int]
    other_trouble: dict[str, int]
    faults_met: dict[str, int]
    recovery_s: dict[str, float]
    recovered: int
    took_s: float
    doors: list[str]


@dataclass(frozen=True, kw_only=True)
class Verdict(Measured):
    """Counts of runs and orders; `lost` names what is doubled, missing or stuck."""

    runs: int
    completed: int
    escalated: dict[str, int]
    capped: int
    refunds_owed: int
    refunds_made: int
    doubled: int
    missing: int
    stuck: int
    hints_swept: int
    lost: list[str]

    @property
    def passed(self) -> bool:
        return not (self.doubled or self.missing or self.stuck) and self.capped <= self.most_capped

    @property
    def most_capped(self) -> int:
        return max(1, int(self.runs * MAX_CAPPED_SHARE))

    def wire(self) -> Json:
        return {**asdict(self), "passed": self.passed, "kills_in_all": sum(self.kills.values())}


@dataclass(frozen=True, kw_only=True)
class _Row:
    status: str
    reason: str | None
    events: frozenset[str]

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def excused(self) -> bool:
        """Escalated for a reason that its own record supports."""
        return self.status == "escalated" and (
            self.reason in CAPS or PROOF.get(str(self.reason), "no such event") in self.events
        )


def judge(site: Site, cases: Sequence[Case], refunds: Sequence[Json], measured: Measured) -> Verdict:
    """Counts everything once; `refunds` is the business system's own ledger."""
    rows = _rows(site)
    lost = [f"{c.request_id} was never admitted" for c in cases if c.request_id not in rows]
    stuck = [c.request_id for c in cases if c.request_id in rows and not rows[c.request_id].ended]
    orders = {case.order_id: case for case in cases}
    given = _given(refunds)
    doubled = [o for o, case in orders.items() if given.get(o, _zero()).minor > _owed(case).minor]
    unmade = [o for o, case in orders.items() if given.get(o, _zero()).minor < _owed(case).minor]
    missing = [o for o in unmade if not _responsible([rows[c.request_id] for c in cases
                                                     if c.order_id == o and c.request_id in rows])]  # fmt: skip
    lost += [f"{r} is stuck in {rows[r].status}" for r in stuck]
    lost += [f"{o} was refunded {given[o]}, owed {_owed(orders[o])}" for o in doubled]
    lost += [f"{o} is owed {_owed(orders[o])} and nobody sees to it" for o in missing]
    ends = Counter(row.status for row in rows.values())
    reasons = Counter(str(row.reason) for row in rows.values() if row.status == "escalated")
    owing = [o for o, case in orders.items() if case.owed is not None]
    return Verdict(
        runs=len(cases), completed=ends["completed"], escalated=dict(reasons),
        capped=sum(reasons[cap] for cap in CAPS), refunds_owed=len(owing),
        refunds_made=len(owing) - len(unmade), doubled=len(doubled), missing=len(missing),
        stuck=len(stuck) + sum("never admitted" in words for words in lost),
        hints_swept=int(next(iter(site.rows(PUBLISHED)), (0,))[0]), lost=lost, **asdict(measured),
    )  # fmt: skip


def _responsible(rows: Sequence[_Row]) -> bool:
    """Whether some run about the order still lives, or handed it to a person for a reason of record."""
    return any(not row.ended or row.excused for row in rows)


def _rows(site: Site) -> dict[str, _Row]:
    events: dict[str, set[str]] = {}
    for request_id, kind in site.rows(EVENTS):
        events.setdefault(request_id, set()).add(kind)
    return {
        request_id: _Row(status=status, reason=reason, events=frozenset(events.get(request_id, ())))
        for request_id, status, reason, *_ in site.rows(RUNS)
    }


def _given(refunds: Sequence[Json]) -> dict[str, Money]:
    """What was refunded on each order; failed refunds gave nothing."""
    sums: dict[str, Money] = {}
    for refund in refunds:
        if refund["state"] not in UNCOUNTED:
            amount = money.parse(refund["amount"])
            sums[refund["order_id"]] = sums.get(refund["order_id"], _zero()) + amount
    return sums


def _owed(case: Case) -> Money:
    return _zero() if case.owed is None else money.from_parts(case.owed, CURRENCY)


def _zero() -> Money:
    return Money(minor=0, currency=CURRENCY)


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """p50, p95 and the greatest, by the nearest rank; empty where nothing was measured."""
    ordered = sorted(seconds)
    if not ordered:
        return {}
    ranks = {"p50": 0.5, "p95": 0.95, "max": 1.0}
    return {name: round(ordered[min(len(ordered) - 1, int(len(ordered) * at))], 1) for name, at in ranks.items()}
