"""Roof: gauges of runs, of those that live and of those that ended within an hour and a day. Reads rows only.

No statement here looks at every run: those that live, those that ended in a window, the newest of them, all by an index
and all with a limit. What ended before the window is history, and the console's.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any, NamedTuple

from django.db import connection

from agentsite import dbtime, env
from agentsite.metrics.families import BOUNDED, MOST, Family, Part, Sample, age, among, quantiles
from agentsite.tenants.models import Objective
from runs.measures import ends, objectives
from runs.models import LIVE_VALUES
from runs.states import LIVE, TERMINAL

HOUR, DAY = "1h", "24h"
MOST_LIVE, MOST_LOOKED_AT, MOST_DUE = 50_000, 1_000, 500
MOST_ENDED, MOST_MEASURED, MOST_MODELS, MOST_TENANTS, LEAST_ENDED = 10_000, 1_000, 20, 10, 10
CAPS = tuple(sorted(reason for reason, end in ends.REASONS.items() if end.cap))
UNWATCHED = ("handed_to_staff", "partly_refunded", "refund_failed")
MICROS = 1_000_000
LIVES = f"completed_at IS NULL AND status IN ({among(LIVE_VALUES)})"

RUNS = Family(
    name="runs", labels=("status",),
    words="the thousand live runs due first, by status; of the terminal statuses, those of the newest 10,000 that "
    "ended within 24 hours",
)  # fmt: skip
LIVING = Family(name="runs_live", words="runs that have not ended, up to 50,000")
DUE = Family(name="runs_due", words="runs that are due and that no worker holds, up to five hundred")
LATE = Family(name="runs_due_oldest_seconds", words="how long the oldest of them has been due")
WAITING = Family(
    name="runs_waiting_dependency", labels=("dependency",), words="runs that wait until a dependency is back"
)
ENDED = Family(
    name="runs_ended", labels=("window", "status", "outcome", "reason"),
    words="runs that ended within the window, of the newest 10,000",
)  # fmt: skip
CAPPED = Family(name="runs_capped", labels=("window", "reason"), words="runs that ended at a cap within the window")
TO_FINISH = Family(name="runs_to_finish", words="runs handed to a person that nobody finished, up to a thousand")
BURN = Family(
    name="error_budget_burn", labels=("tenant", "window"),
    words="share of a tenant's runs that spent its error budget, 1 being the pace that uses it up just in time; "
    "the ten fastest of the tenants with ten runs in the window",
)  # fmt: skip
ACTIVE = Family(
    name="run_active_seconds", labels=("quantile",),
    words="active time, without any wait, of the newest thousand runs that ended within the hour",
)  # fmt: skip
TOKENS = Family(
    name="run_tokens", labels=("model", "kind"),
    words="tokens of the newest thousand runs that ended within the hour, by the model that answered last",
)  # fmt: skip
COST = Family(
    name="run_cost", labels=("model", "currency"),
    words="what these runs cost at MODEL_PRICES, in major units; 0 where no model has a price",
)  # fmt: skip
CALLS = Family(name="run_model_calls", labels=("model",), words="model calls of these runs")
MEASURED = Family(name="runs_measured", words="how many runs these last figures are of, a thousand at most")


class Ended(NamedTuple):
    """Runs that ended alike within the day; `hour` of them within the last hour."""

    tenant: str
    status: str
    outcome: str
    reason: str
    day: int
    hour: int

    def within(self, window: str) -> int:
        return self.hour if window == HOUR else self.day

    @property
    def end(self) -> ends.End:
        return ends.of(self.status, self.reason or None, self.outcome or None)


def _rows(statement: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return list(cursor.fetchall())


# --- runs that live ----------------------------------------------------------------------------------------------


def _live(now: datetime) -> Iterator[Sample]:
    """All are counted in the index, which holds no status; rows are looked up for as many as a scrape can afford."""
    lives = "SELECT 1 FROM runs_run WHERE completed_at IS NULL LIMIT %s"
    [(living,)] = _rows(f"SELECT COUNT(*) FROM ({lives}) live", MOST_LIVE)
    found = _rows(
        "SELECT status, dependency, COUNT(*) FROM (SELECT status, dependency FROM runs_run "
        f"WHERE {LIVES} ORDER BY due_at LIMIT %s) live GROUP BY status, dependency",
        MOST_LOOKED_AT,
    )
    counted = dict.fromkeys((status.value for status in LIVE), 0)
    waiting = dict.fromkeys(("business_system",), 0)
    for status, dependency, count in found:
        counted[status] += count
        if status == "waiting_dependency" and dependency:
            waiting[dependency] = waiting.get(dependency, 0) + count
    yield LIVING.at(living)
    yield from RUNS.each(counted)
    yield from WAITING.each(waiting)
    yield BOUNDED.at(living > MOST_LOOKED_AT, "live")


def _due(now: datetime) -> Iterator[Sample]:
    at = dbtime.param(now)
    [(count, oldest)] = _rows(
        "SELECT COUNT(*), MIN(due_at) FROM (SELECT due_at FROM runs_run "
        f"WHERE {LIVES} AND due_at <= %s AND (lease_until IS NULL OR lease_until < %s) "
        "ORDER BY due_at LIMIT %s) due",
        at, at, MOST_DUE,
    )  # fmt: skip
    yield DUE.at(count)
    yield LATE.at(age(dbtime.moment(oldest), now))


# --- runs that ended ---------------------------------------------------------------------------------------------


def _windows(now: datetime) -> list[Ended]:
    """What ended within the day, the newest ten thousand of it, by how it ended: one walk along one index."""
    found = _rows(
        "SELECT tenant_id, ended_as, COALESCE(outcome, ''), COALESCE(reason, ''), COUNT(*), "
        "SUM(CASE WHEN completed_at >= %s THEN 1 ELSE 0 END) FROM (SELECT tenant_id, ended_as, outcome, reason, "
        "completed_at FROM runs_run WHERE completed_at IS NOT NULL AND completed_at >= %s "
        "ORDER BY completed_at DESC LIMIT %s) ended GROUP BY 1, 2, 3, 4",
        dbtime.param(now - timedelta(hours=1)), dbtime.param(now - timedelta(days=1)), MOST_ENDED,
    )  # fmt: skip
    return [Ended(tenant, status, outcome, reason, day, hour) for tenant, status, outcome, reason, day, hour in found]


def _ended(now: datetime) -> Iterator[Sample]:
    found = _windows(now)
    of_day = dict.fromkeys((status.value for status in TERMINAL), 0)
    for one in found:
        of_day[one.status] += one.day
    yield from RUNS.each(of_day)
    for window in (HOUR, DAY):
        yield from _by_end(found, window)
    yield from _burns(found)
    yield BOUNDED.at(sum(of_day.values()) >= MOST_ENDED, "ended")


def _by_end(found: Iterable[Ended], window: str) -> Iterator[Sample]:
    counted = Counter[tuple[str, str, str]]()
    capped = Counter(dict.fromkeys(CAPS, 0))
    for one in found:
        counted[one.status, one.outcome, one.reason] += one.within(window)
        if one.end.cap:
            capped[one.reason] += one.within(window)
    for how, count in sorted(counted.items()):
        yield ENDED.at(count, window, *how)
    for reason, count in sorted(capped.items()):
        yield CAPPED.at(count, window, reason)


def _burns(found: Iterable[Ended]) -> Iterator[Sample]:
    """How fast tenants spend their error budgets; a handful of runs says nothing of a share."""
    allowed = dict(Objective.objects.values_list("tenant_id", "success_percent")[:MOST])
    usual = Objective._meta.get_field("success_percent").get_default()
    for window in (HOUR, DAY):
        totals, bad = Counter[str](), Counter[str]()
        for one in found:
            kind = one.end.kind
            totals[one.tenant] += one.within(window) if kind is not ends.Kind.BESIDE else 0
            bad[one.tenant] += one.within(window) if kind is ends.Kind.FAILURE else 0
        burns = {
            tenant: float(objectives.burn_rate(bad[tenant], total, Fraction(allowed.get(tenant, usual)) / 100) or 0)
            for tenant, total in totals.items() if total >= LEAST_ENDED
        }  # fmt: skip
        for tenant in sorted(burns, key=lambda name: (-burns[name], name))[:MOST_TENANTS]:
            yield BURN.at(burns[tenant], tenant, window)


def _finishing(now: datetime) -> Iterator[Sample]:
    """As the console's list of what is to be finished by hand, without those that nobody was handed."""
    [(count,)] = _rows(
        "SELECT COUNT(*) FROM (SELECT 1 FROM runs_run WHERE completed_at IS NOT NULL AND "
        f"ended_as IN ('escalated', 'failed') AND outcome IN ({among(UNWATCHED)}) LIMIT 1000) unfinished"
    )
    yield TO_FINISH.at(count)


def _measured(now: datetime) -> Iterator[Sample]:
    found = _rows(
        "SELECT active_ms, input_tokens, output_tokens, cost_micros, model_calls, versions FROM runs_run "
        "WHERE completed_at IS NOT NULL AND completed_at >= %s ORDER BY completed_at DESC LIMIT %s",
        dbtime.param(now - timedelta(hours=1)), MOST_MEASURED,
    )  # fmt: skip
    yield MEASURED.at(len(found))
    for share, active_ms in quantiles(row[0] for row in found).items():
        yield ACTIVE.at(active_ms / 1000, share)
    yield from _by_model(found)


def _by_model(found: Iterable[tuple[Any, ...]]) -> Iterator[Sample]:
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for _, *spent, versions in found:
        of_model = sums[_model(versions)]
        for place, value in enumerate(spent):
            of_model[place] += value
    prices = env.read().MODEL_PRICES
    currency = prices.currency if prices is not None else ""
    for model, (taken, given, cost_micros, calls) in sorted(_busiest(sums).items()):
        yield TOKENS.at(taken, model, "input")
        yield TOKENS.at(given, model, "output")
        yield COST.at(cost_micros / MICROS, model, currency)
        yield CALLS.at(calls, model)


def _busiest(sums: dict[str, list[int]]) -> dict[str, list[int]]:
    """The models asked most; the others together, so that a provider that names a new one each time makes no crowd."""
    ordered = sorted(sums, key=lambda model: (-sums[model][-1], model))
    kept = {model: sums[model] for model in ordered[:MOST_MODELS]}
    others = [sums[model] for model in ordered[MOST_MODELS:]]
    return kept | ({"other": [sum(column) for column in zip(*others, strict=True)]} if others else {})


def _model(versions: Any) -> str:
    found = json.loads(versions) if isinstance(versions, str) else versions
    return str(found.get("model") or "none") if isinstance(found, dict) else "none"


PARTS = (
    Part(name="live", families=(RUNS, LIVING, WAITING), read=_live),
    Part(name="due", families=(DUE, LATE), read=_due),
    Part(name="ended", families=(ENDED, CAPPED, BURN), read=_ended),
    Part(name="finishing", families=(TO_FINISH,), read=_finishing),
    Part(name="measured", families=(MEASURED, ACTIVE, TOKENS, COST, CALLS), read=_measured),
)
