"""Webhooks on their way: which is due, who has it, what came of it. Part of the store; sends nothing itself.

A claim is a compare-and-set on `due_at`, in database time: who dies with one leaves it due again when its lease is
over, under the same id. Of one run an earlier one that is still due goes first; a dead one holds nobody up.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, F, Max, OuterRef, QuerySet

from agentsite import dbtime, env, queues
from agentsite.refusals import Refusal
from runs.contracts import NewEvent
from runs.models import Delivery, Run, Webhook
from runs.store import events

CANDIDATES = 20
UNDER_WAY = "under_way"
"""The word of a try whose end was not recorded yet, or never: who made it died."""
NEEDED = ("status", "outcome", "version", "last_seq", "chain_head")


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """A webhook as one try takes it out: `number` counts all its tries, `tries` those since it was last asked for."""

    id: str
    run_id: str
    tenant_id: str
    agent: str
    trace_id: str
    url: str
    host: str
    body: str
    number: int
    tries: int


def due(*, shut: Collection[str] = ()) -> bool:
    """Whether a webhook could be sent now, to a host that is not `shut`."""
    return _due(dbtime.now(), shut, ()).exists()


def _due(now: datetime, shut: Collection[str], full: Collection[str]) -> QuerySet[Webhook]:
    earlier = Webhook.objects.filter(run=OuterRef("run"), state="due", seq__lt=OuterRef("seq"))
    rows = Webhook.objects.filter(state="due", due_at__lte=now).exclude(host__in=sorted(shut))
    rows = rows.exclude(tenant_id__in=sorted(full))
    return rows.filter(~Exists(earlier)).order_by("due_at", "id")


def claim(*, shut: Collection[str], lease_s: float, full: Collection[str] = ()) -> Parcel | None:
    """The oldest due webhook to a host that is not `shut`, of a tenant that is not `full`, for this process alone and
    for so many seconds."""
    now = dbtime.now()
    for webhook_id, at in list(_due(now, shut, full).values_list("id", "due_at")[:CANDIDATES]):
        with transaction.atomic():
            taken = Webhook.objects.filter(id=webhook_id, state="due", due_at=at)
            if taken.update(due_at=now + timedelta(seconds=lease_s), tries=F("tries") + 1) == 1:
                return _parcel(webhook_id, now)
    return None


def _parcel(webhook_id: str, now: datetime) -> Parcel:
    run = ("run__agent", "run__trace_id")
    row = Webhook.objects.select_related("run").only("tenant_id", "url", "host", "body", "tries", *run).get(
        id=webhook_id
    )  # fmt: skip
    number = (Delivery.objects.filter(webhook=row).aggregate(last=Max("number"))["last"] or 0) + 1
    Delivery.objects.create(webhook=row, number=number, at=now, error=UNDER_WAY)
    return Parcel(
        id=row.id, run_id=str(row.run_id), tenant_id=row.tenant_id, agent=row.run.agent, trace_id=row.run.trace_id,
        url=row.url, host=row.host, body=row.body, number=number, tries=row.tries,
    )  # fmt: skip


def delivered(parcel: Parcel, *, status: int, took_ms: int) -> None:
    """A receiver took it, whoever has it by now; the next one of its run is due."""
    now = dbtime.now()
    with transaction.atomic():
        _tell(parcel, status=status, error="", took_ms=took_ms)
        Webhook.objects.filter(id=parcel.id).update(state="delivered", due_at=None, ended_at=now)
        _next_of(parcel.run_id, now)


def failed(parcel: Parcel, *, status: int | None, error: str, took_ms: int, wait_s: float, gone: bool = False) -> bool:
    """It was not taken: again after so many seconds, or never (`gone`, or its tries are used). Returns whether it died.

    A try that was overtaken by a later one changes nothing but its own line.
    """
    now = dbtime.now()
    with transaction.atomic():
        row = Webhook.objects.select_for_update().only("state", "tries", "run_id", "seq").get(id=parcel.id)
        _tell(parcel, status=status, error=error, took_ms=took_ms)
        overtaken = Delivery.objects.filter(webhook=row, number__gt=parcel.number).exists()
        if overtaken or row.state != "due":
            return False
        if gone or row.tries >= env.read().WEBHOOK_TRIES:
            Webhook.objects.filter(id=row.id).update(state="dead", due_at=None, ended_at=now)
            _next_of(parcel.run_id, now)
            return True
        at = now + timedelta(seconds=wait_s)
        # What waits for it in the same run is not looked at before.
        waiting = Webhook.objects.filter(run_id=row.run_id, state="due", seq__gt=row.seq, due_at__lt=at)
        waiting.update(due_at=at)
        Webhook.objects.filter(id=row.id).update(due_at=at)
    return False


def _tell(parcel: Parcel, *, status: int | None, error: str, took_ms: int) -> None:
    Delivery.objects.filter(webhook_id=parcel.id, number=parcel.number).update(
        status=status, error=error[:80], took_ms=took_ms
    )


def _next_of(run_id: str, now: datetime) -> None:
    """The run's next webhook is due now: it had no failure of its own."""
    first = Webhook.objects.filter(run_id=run_id, state="due").order_by("seq").first()
    if first is not None and first.tries == 0:
        Webhook.objects.filter(id=first.id, tries=0).update(due_at=now)
        transaction.on_commit(queues.nudge_deliver, robust=True)


def again(webhook_id: str, *, by: str) -> None:
    """Send it again from its first try on, under its own id, on the record of its run. Raises Refusal."""
    with transaction.atomic():
        run = Run.objects.select_for_update(of=("self",)).only(*NEEDED).get(webhooks__id=webhook_id)
        row = Webhook.objects.select_for_update().get(id=webhook_id)
        if not row.body:
            raise Refusal(409, "erased", "What it said was erased.", "There is nothing left to send.")
        Webhook.objects.filter(id=row.id).update(state="due", due_at=dbtime.now(), tries=0, ended_at=None)
        meta = {"webhook_id": row.id, "type": row.type, "was": row.state, "by": by}
        events.note(run, [NewEvent(type="webhook.resent", meta=meta)])
        transaction.on_commit(queues.nudge_deliver, robust=True)
