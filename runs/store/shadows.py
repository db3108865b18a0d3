"""Proposals of runs in shadow mode, kept with the end of their run, compared later with what staff did.

Part of the store; imports no zone. Ids and amounts are kept and no words: such a row holds nothing to erase.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, QuerySet

from agentsite import dbtime, env, money
from agentsite.money import Money
from runs import agreement
from runs.contracts import NewEvent, Outcome, RunState
from runs.measures import numbers
from runs.models import Run, Shadow
from runs.states import Status
from runs.story import RECORDS

PROPOSED = "shadow.proposed"
ARGS = ("order_id", "payment_id", "amount")
MAX_ORDERS = 20
NOT_HIS = ("not_found", "order_not_yours", "order_out_of_scope")
BATCH = 20
UNDER_WAY_S = 60.0
SOONEST_S, LATEST_S = 60.0, 3600.0
GIVEN_UP = timedelta(days=30)
MAX_OVER = 20_000
"""Overreaches whose amounts are summed: beyond that the sum would be one of the newest alone, and says so."""
STOOD = (Status.AWAITING_APPROVAL.value, Status.APPROVED.value)
DECISIVE = (agreement.AGREE, agreement.OVERREACH, agreement.MISS)


@dataclass(frozen=True, kw_only=True)
class Due:
    """A proposal to compare: everything that a look at the business system needs."""

    run_id: str
    tenant_id: str
    agent: str
    trace_id: str
    order_ids: tuple[str, ...]
    proposed: agreement.Proposed | None
    since: datetime
    """When the request came in: what staff made before is no answer to it."""
    ended_at: datetime
    until: datetime
    """Until then nobody else looks at it."""


# --- kept with the end of a run ----------------------------------------------------------------------------------


def keep(run: RunState, outcome: Outcome) -> None:
    """The row of a run that ends in shadow mode with a conclusion, in the transaction of its end."""
    told = next((e for e in outcome.events if e.type == PROPOSED), None)
    if told is None:
        return
    now, proposed = dbtime.now(), _action(told)
    Shadow.objects.create(
        run_id=run.run_id, tenant_id=run.tenant_id, order_ids=list(_orders(run, proposed)), proposed=proposed,
        decision=told.meta.get("decision", ""), rule=told.meta.get("rule", "")[:64], at=now,
        compare_at=now + timedelta(seconds=env.read().SHADOW_COMPARE_S),
    )  # fmt: skip


def _action(told: NewEvent) -> dict[str, Any] | None:
    if told.meta["tool"] is None:
        return None
    return {"tool": told.meta["tool"], "args": {name: told.meta[name] for name in ARGS}}


def _orders(run: RunState, proposed: dict[str, Any] | None) -> Iterable[str]:
    """The orders that the run was about: proposed to write on, admitted with, read; none that is not the customer's."""
    looks = [(str(o.args.get("order_id", "")), o) for o in run.observations if o.source in RECORDS]
    not_his = {order for order, o in looks if o.kind == "error" and o.content.get("error") in NOT_HIS}
    named = [proposed["args"]["order_id"]] if proposed else []
    known = (*named, *(run.contract.scope.order_ids or ()), *(order for order, o in looks if o.ok))
    return list(dict.fromkeys(order for order in known if order and order not in not_his))[:MAX_ORDERS]


def wake(tenant_id: str) -> int:
    """Runs that wait for a decision or a release are due now, so that they end at once in a tenant's new shadow mode.

    Only speed: what nobody woke ends when it is decided, or when its time is over.
    """
    rows = Run.objects.filter(tenant_id=tenant_id, status__in=STOOD, lease_token=None)
    return rows.update(due_at=dbtime.now(), enqueued_at=None, enqueue_tries=0)


# --- compared later ----------------------------------------------------------------------------------------------


def compare_now(run_id: str) -> None:
    """Staff have finished the run: what they did is there to be compared."""
    Shadow.objects.filter(run_id=run_id).update(compare_at=dbtime.now())


def compare_all(tenant_id: str) -> int:
    """Everything of a tenant that was not compared for good is due now. Returns how many."""
    return Shadow.objects.filter(tenant_id=tenant_id, compare_at__isnull=False).update(compare_at=dbtime.now())


def due() -> bool:
    """Whether a proposal could be compared now."""
    return Shadow.objects.filter(compare_at__lte=dbtime.now()).order_by().exists()


def claim(tenant_id: str | None = None) -> list[Due]:
    """Proposals whose time has come, at most 20, the oldest first, each for this process alone and for a minute."""
    now = dbtime.now()
    rows = Shadow.objects.filter(compare_at__lte=now).select_related("run").order_by("compare_at")
    if tenant_id is not None:
        rows = rows.filter(tenant_id=tenant_id)
    found = list(rows.only(
        "order_ids", "proposed", "tenant_id", "at", "compare_at", "run__agent", "run__trace_id", "run__created_at",
    )[:BATCH])  # fmt: skip
    later = now + timedelta(seconds=UNDER_WAY_S)
    mine = [r for r in found if Shadow.objects.filter(pk=r.pk, compare_at=r.compare_at).update(compare_at=later) == 1]
    return [_due(row, later) for row in mine]


def _due(row: Shadow, until: datetime) -> Due:
    return Due(
        run_id=str(row.pk), tenant_id=row.tenant_id, agent=row.run.agent, trace_id=row.run.trace_id,
        order_ids=tuple(row.order_ids), proposed=proposal(row.proposed), since=row.run.created_at, ended_at=row.at,
        until=until,
    )  # fmt: skip


def proposal(stored: dict[str, Any] | None) -> agreement.Proposed | None:
    """The proposed refund as a value; None where no write was proposed."""
    if stored is None:
        return None
    args = stored["args"]
    return agreement.Proposed(
        order_id=args["order_id"], payment_id=args["payment_id"], amount=money.parse(args["amount"])
    )


def compared(due: Due, verdict: agreement.Verdict, made: Iterable[agreement.Made]) -> None:
    """What came of a comparison. An early one that does not agree is made once more when its time has come: staff may
    still be at it."""
    now, last = dbtime.now(), due.ended_at + timedelta(seconds=env.read().SHADOW_COMPARE_S)
    over = verdict.over.wire() if verdict.over is not None else None
    again = last if verdict.verdict != agreement.AGREE and now < last else None
    staff = {"refunds": [m.wire() for m in made], "why": verdict.why, "over": over}
    Shadow.objects.filter(run_id=due.run_id).update(verdict=verdict.verdict, staff=staff, compared_at=now)
    _next(due, again)


def _next(due: Due, at: datetime | None) -> None:
    """When it is looked at again, unless somebody asked for it meanwhile."""
    Shadow.objects.filter(run_id=due.run_id, compare_at=due.until).update(compare_at=at)


def put_off(due: Due, why: str) -> None:
    """The business system gave no answer: again after a quarter of the time since the end, a minute to an hour. After
    30 days it cannot be told any more."""
    now = dbtime.now()
    if now - due.ended_at > GIVEN_UP:
        compared(due, agreement.Verdict(verdict=agreement.UNCLEAR, why=why), ())
        return
    wait_s = max(SOONEST_S, min((now - due.ended_at).total_seconds() / 4, LATEST_S))
    _next(due, now + timedelta(seconds=wait_s))


# --- what it came to ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Verdicts by number since `since` (None: ever). `agreement` is a share of those that could be told; `over` is
    the money that would have gone out and that staff did not refund, in minor units by currency."""

    tenant_id: str
    since: datetime | None
    counts: dict[str, int]
    agreement: numbers.Share
    over: dict[str, int]
    over_whole: bool = True

    @property
    def told(self) -> int:
        """How many could be told."""
        return self.agreement.whole

    @property
    def money_over(self) -> list[Money]:
        return [Money(minor=minor, currency=currency) for currency, minor in sorted(self.over.items())]

    def wire(self) -> dict[str, Any]:
        """As a decision keeps them, and a program reads them."""
        shown = {"low": round(self.agreement.low, 4), "high": round(self.agreement.high, 4)}
        share = self.agreement.share
        return {
            "counts": self.counts, "compared": self.told, "interval_95": shown,
            "agreement": round(share, 4) if share is not None else None,
            "over": [amount.wire() for amount in self.money_over], "over_whole": self.over_whole,
            "since": self.since.isoformat() if self.since is not None else None,
        }  # fmt: skip


def figures(tenant_id: str, *, days: int | None = None) -> Figures:
    """What a tenant's proposals of the last `days` came to (None: all of them)."""
    since = dbtime.now() - timedelta(days=days) if days is not None else None
    rows = of_tenant(tenant_id, since=since)
    found: Counter[str] = Counter(dict(rows.order_by().values_list("verdict").annotate(n=Count("pk"))))
    counts = {verdict: found[verdict] for verdict in (*DECISIVE, agreement.UNCLEAR, agreement.OPEN)}
    over: Counter[str] = Counter()
    too_far = list(rows.filter(verdict=agreement.OVERREACH).values_list("staff", flat=True)[:MAX_OVER])
    for staff in too_far:
        amount = money.parse((staff or {})["over"])
        over[amount.currency] += amount.minor
    whole = sum(counts[verdict] for verdict in DECISIVE)
    return Figures(
        tenant_id=tenant_id, since=since, counts=counts, agreement=numbers.share(counts[agreement.AGREE], whole),
        over=dict(over), over_whole=len(too_far) == counts[agreement.OVERREACH],
    )  # fmt: skip


def of_tenant(tenant_id: str, *, since: datetime | None = None, verdict: str | None = None) -> QuerySet[Shadow]:
    """A tenant's proposals, the newest first."""
    rows = Shadow.objects.filter(tenant_id=tenant_id).order_by("-at", "pk")
    rows = rows if since is None else rows.filter(at__gte=since)
    return rows if verdict is None else rows.filter(verdict=verdict)
