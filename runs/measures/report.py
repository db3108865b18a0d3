"""Control: the whole report of a site's service levels, as values and as JSON. Reads profiles beside ended runs.

Every list is bounded: groups and tenants with the most runs come first, and what is left out is counted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Any

from pydantic import ValidationError

from agentsite import clock
from agentsite.tenants.models import Tenant, current_profile
from agentsite.tenants.profiles import Profile
from runs.measures import caps, figures, numbers, objectives, reading
from runs.measures.objectives import Budget, Target

DIMENSIONS = ("release", "model", "tenant", "agent")
MOST_GROUPS, MOST_TENANTS = 50, 200
MICROS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Promise:
    """A tenant's objective and its two budgets: of failures, and of slowness among what did not fail."""

    tenant: str
    target: Target
    success: Budget
    latency: Budget


@dataclass(frozen=True, kw_only=True)
class AgentCaps:
    """The caps of one tenant's agent; `currency` is that of its cap on cost."""

    tenant: str
    agent: str
    currency: str
    table: tuple[caps.Cap, ...]


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Figures by the value of one dimension, the largest groups first; `left_out` of them are not here."""

    by: str
    rows: tuple[tuple[str, figures.Figures], ...]
    left_out: int


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything, as of `at`. `left_out` and `cut`: see `reading.Read`."""

    at: datetime
    days: int
    since: datetime
    left_out: bool
    cut: bool
    whole: figures.Figures
    groups: tuple[Groups, ...]
    trend: tuple[figures.Day, ...]
    caps: tuple[AgentCaps, ...]
    promises: tuple[Promise, ...]


def make(
    now: datetime, *, days: int = 30, tenants: Collection[str] | None = None, by: Sequence[str] = ("release", "model"),
    most: int = reading.MOST_RUNS,
) -> Report:  # fmt: skip
    """The report of these tenants (None: all) over the last `days`."""
    read = reading.read(now, days=days, tenants=tenants, most=most)
    rows = read.columns.all()
    return Report(
        at=now, days=days, since=read.since, left_out=read.left_out, cut=read.cut,
        whole=figures.of(read.columns, rows, read.free), groups=tuple(_groups(read, name) for name in by),
        trend=figures.days(read.columns, rows), caps=tuple(_caps(read)), promises=tuple(_promises(read, tenants)),
    )  # fmt: skip


def _groups(read: reading.Read, name: str) -> Groups:
    parts = sorted(read.columns.groups(name).items(), key=lambda item: (-len(item[1]), item[0]))
    rows = tuple((word, figures.of(read.columns, part, read.free)) for word, part in parts[:MOST_GROUPS])
    return Groups(by=name, rows=rows, left_out=max(0, len(parts) - MOST_GROUPS))


def _caps(read: reading.Read) -> list[AgentCaps]:
    found, tenants = list[AgentCaps](), read.columns.groups("tenant")
    for tenant, rows in sorted(tenants.items(), key=lambda item: (-len(item[1]), item[0]))[:MOST_GROUPS]:
        agents = dict[str, list[int]]()
        for row in rows:
            agents.setdefault(read.columns.word("agent", row), []).append(row)
        for agent, part in sorted(agents.items()):
            profile = _profile(tenant, agent)
            if profile is not None:
                table = figures.cap_table(read.columns, part, profile.limits, read.free)
                currency = profile.limits.max_cost.currency
                found.append(AgentCaps(tenant=tenant, agent=agent, currency=currency, table=table))
    return found


def _profile(tenant: str, agent: str) -> Profile | None:
    """What is granted today; None where there is nothing that this code can read."""
    try:
        return current_profile(tenant, agent)
    except ValidationError:
        return None


def _promises(read: reading.Read, tenants: Collection[str] | None) -> list[Promise]:
    """Of every tenant, those with runs first."""
    known = Tenant.objects.order_by("pk").values_list("pk", flat=True)
    listed = list(known[:MOST_TENANTS] if tenants is None else known.filter(pk__in=tenants)[:MOST_TENANTS])
    first = [pk for pk in listed if pk in read.windows]
    return [_promise(read, pk) for pk in (*first, *(pk for pk in listed if pk not in read.windows))]


def _promise(read: reading.Read, tenant: str) -> Promise:
    target = read.targets.get(tenant, Target())
    counted = read.windows.get(tenant) or reading.no_runs(target)
    return Promise(
        tenant=tenant, target=target, success=objectives.success(target, counted),
        latency=objectives.latency(target, counted),
    )  # fmt: skip


# --- as JSON -----------------------------------------------------------------------------------------------------


def money(micros: int, currency: str) -> dict[str, str]:
    """Micro-units on the wire: at least four decimals of six, as wherever a run's cost is told."""
    whole, rest = divmod(micros, MICROS)
    digits = f"{rest:06d}"
    return {"amount": f"{whole}.{digits[:4]}{digits[4:].rstrip('0')}", "currency": currency}


def wire(report: Report) -> dict[str, Any]:
    """The report for programs: shares of 0 to 1 with their interval, milliseconds, money as decimal strings."""
    return {
        "at": clock.rfc3339(report.at), "days": report.days, "since": clock.rfc3339(report.since),
        "left_out": report.left_out, "objective_windows_cut": report.cut, "whole": _figures(report.whole),
        "by": {g.by: {name: _figures(f) for name, f in g.rows} for g in report.groups},
        "groups_left_out": {g.by: g.left_out for g in report.groups},
        "trend": [{"day": d.day, "runs": d.runs, "failed": d.failed, "capped": d.capped} for d in report.trend],
        "caps": [_agent(one) for one in report.caps], "objectives": [_promised(one) for one in report.promises],
    }  # fmt: skip


def _figures(f: figures.Figures) -> dict[str, Any]:
    return {
        "runs": f.runs, "success": share(f.success), "escalated": share(f.escalated), "failed": share(f.failed),
        "capped": share(f.capped),
        "reasons": [
            {"status": r.status, "reason": r.reason or None, "runs": r.runs, "failure": r.failure, "cap": r.cap,
             "why": r.why} for r in f.reasons
        ],
        "finished_by_hand": f.by_hand, "beside": dict(f.beside),
        **{name: spread(value) for name, value in f.used.items()}, "people_ms": spread(f.people_ms),
        "cost": {currency: _cost(value, currency) for currency, value in f.cost.items()}, "unpriced": f.unpriced,
        "cost_beside": [money(total, currency) for currency, total in f.cost_beside.items()],
    }  # fmt: skip


def share(s: numbers.Share) -> dict[str, Any]:
    return {"part": s.part, "whole": s.whole, "share": s.share, "low": s.low, "high": s.high}


def spread(s: numbers.Spread) -> dict[str, Any]:
    return {"n": s.n, "total": s.total, "p50": s.p50, "p95": s.p95, "p99": s.p99, "most": s.most}


def _cost(s: numbers.Spread, currency: str) -> dict[str, Any]:
    values = {"total": s.total, "p50": s.p50, "p95": s.p95, "p99": s.p99, "most": s.most}
    told = {name: None if value is None else money(value, currency)["amount"] for name, value in values.items()}
    return {"n": s.n, **told}


def _agent(one: AgentCaps) -> dict[str, Any]:
    return {
        "tenant_id": one.tenant, "agent": one.agent,
        "caps": {cap.name: _cap(cap, one.currency) for cap in one.table},
    }  # fmt: skip


def _cap(cap: caps.Cap, currency: str) -> dict[str, Any]:
    values = {"should_be": cap.should_be, "most": cap.most, "granted": cap.granted}
    if cap.name == caps.COST:
        costs = {name: None if value is None else money(value, currency) for name, value in values.items()}
        return {**costs, "successes": cap.successes, "enough": cap.enough, "near": share(cap.near)}
    return {**values, "successes": cap.successes, "enough": cap.enough, "near": share(cap.near)}


def _promised(one: Promise) -> dict[str, Any]:
    target = one.target
    return {
        "tenant_id": one.tenant, "set_by_a_person": target.own, "window_days": target.window_days,
        "success": {"target": float(target.success), **_budget(one.success)},
        "latency": {"target": float(target.latency), "latency_ms": target.latency_ms, **_budget(one.latency)},
    }  # fmt: skip


def _budget(budget: Budget) -> dict[str, Any]:
    return {
        "reached": share(budget.share), "bad": budget.bad, "runs": budget.runs, "allowed": _float(budget.allowed),
        "used": _float(budget.used), "left": _float(budget.left), "met": budget.met, "burning": list(budget.burning),
        "burn": {
            b.name: {"window_s": b.window_s, "bad": b.bad, "runs": b.runs, "rate": _float(b.rate),
                     "short_rate": _float(b.short_rate), "limit": _float(b.limit), "burning": b.burning}
            for b in budget.burns
        },
    }  # fmt: skip


def _float(value: Fraction | None) -> float | None:
    return None if value is None else float(value)
