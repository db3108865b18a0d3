"""The runs of refund-8472 as this product's rows: admitted, approved by a person, judged. Needs Django set up."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User

from agentsite import queues
from approvals import queue
from runs import admission, qualification
from runs.contracts import RunRequest
from runs.management import tenancy
from runs.models import Run
from tests.bench import instant
from tests.bench.driving import Lost, Rows

Json = dict[str, Any]
TENANT, APPROVER = "t_acme_in", "lead_17"
PROFILE: Json = {
    **tenancy.DEFAULT_PROFILE,
    "aggregates": {
        "INR": {
            "customer_day": {"count": 3, "amount": "5000.00"},
            "tenant_hour": {"count": 1_000_000, "amount": "9000000000.00"},
        }
    },
}
"""The shipped one, totals counted; an hour of the bench holds more refunds than a shop's."""
ENDED = "('completed', 'escalated', 'cancelled', 'failed')"
STATUS = "SELECT status FROM runs_run WHERE tenant_id = %s AND request_id = %s"
COUNT = f"SELECT count(*) FROM runs_run WHERE status IN {ENDED}"
PENDING = "SELECT id, action_hash FROM approvals_approval WHERE status = 'pending'"


def prepare() -> User:
    """The tenant's profile and the qualified route; returns the approver, who exists."""
    tenancy.put_profile(TENANT, PROFILE)
    if qualification.find("refunds", instant.ROUTE, "instant") is None:
        qualification.qualify(instant.ROUTE, agent="refunds", reason="bench", by="bench")
    return User.objects.get(username=APPROVER)


class Ours:
    """This product, admitted and decided by the functions behind its doors."""

    def __init__(self, rows: Rows, refunds: Path, person: User) -> None:
        self._rows, self._refunds, self._person = rows, refunds, person
        self.committed_at = 0.0
        self._note_commits()

    def _note_commits(self) -> None:
        """Both doors hint directly after their commit."""
        nudge = queues.nudge

        def noted(run_id: str, status: str, **more: Any) -> bool:
            self.committed_at = time.monotonic()
            return nudge(run_id, status, **more)

        queues.nudge = noted

    def admit(self, order: str) -> None:
        admit(order)

    def asked(self) -> list[Any]:
        return self._rows.read(PENDING, ())

    def approve(self, asked: Any) -> None:
        approve(asked[0], asked[1], self._person)

    def status(self, order: str) -> str:
        found = str(self._rows.one(STATUS, TENANT, f"req-{order}"))
        return {"awaiting_approval": "asked"}.get(found, "ended" if f"'{found}'" in ENDED else found)

    def ended(self) -> int:
        return int(self._rows.one(COUNT))

    def judge(self, orders: list[str]) -> None:
        judge(self._refunds, orders)


def admit(order_id: str) -> str:
    """The id of a new run about this order, committed."""
    body = {
        "request_id": f"req-{order_id}", "order_ids": [order_id], "actor": {"customer_id": f"cust_{order_id}"},
        "goal": f"Order {order_id} was charged twice, and my refund has not arrived.",
    }  # fmt: skip
    request = RunRequest.model_validate(body)
    return admission.admit(tenant_id=TENANT, created_by="user:0", request=request, raw_body=body).run_id


def approve(approval_id: str, action_hash: str, person: User) -> None:
    """The person's yes, committed."""
    queue.decide(approval_id, person, "approve", action_hash, "charged twice")


def approve_run(run_id: str, person: User) -> None:
    found = queue.latest(run_id)
    if found is None:
        row = Run.objects.get(id=run_id)
        raise Lost(f"{row.request_id} is {row.status} ({row.reason}) and nobody was asked")
    approve(found.id, found.action_hash, person)


def judge(refunds: Path, orders: list[str]) -> None:
    """Raises Lost unless each order's run completed as refunded, by exactly one refund."""
    made = instant.made(refunds)
    wanted = {f"req-{order}": order for order in orders}
    ends = Run.objects.filter(request_id__in=wanted).values_list("request_id", "status", "outcome", "reason")
    bad = [f"{rid} ended {status} {outcome} ({reason})" for rid, status, outcome, reason in ends
           if (status, outcome) != ("completed", "refunded")]  # fmt: skip
    bad += [f"{order}: {made.get(order, 0)} refunds" for order in orders if made.get(order, 0) != 1]
    if bad or len(ends) != len(orders):
        raise Lost("; ".join([f"{len(ends)} of {len(orders)} runs", *bad][:5]))
