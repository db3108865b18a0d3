"""What tests of service levels share: ended runs, as many and as they are wanted, made in one statement."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from agentsite import dbtime
from runs.models import Run, Turn
from tests import approving

LIMITS = {"limits": {"max_cost": {"amount": "1.00", "currency": "USD"}}}
_numbers = count(1)


def ended(*, ago: timedelta = timedelta(hours=1), tenant_id: str = approving.TENANT, **columns: Any) -> Run:
    """One run that ended so long ago, completed and refunded unless it is said otherwise; not saved."""
    over: datetime = dbtime.now() - ago
    n = next(_numbers)
    given: dict[str, Any] = {
        "status": "completed", "outcome": "refunded", "release": "1.0", "versions": {"model": "gpt-x"},
        "agent": "refunds", "contract": LIMITS, "model_calls": 4, "active_ms": 5_000,
        "input_tokens": 12_550, "output_tokens": 710, "cost_micros": 12_300, "write_attempts": 1,
        "customer_id": "cust_5521", "created_by": "client:1", **columns,
    }  # fmt: skip
    return Run(
        tenant_id=approving.tenant(tenant_id).pk, request_id=f"req-{n}", body_hash="sha256:0", trace_id=f"{n:032x}",
        status_since=over, updated_at=over, created_at=given.pop("created_at", over - timedelta(seconds=60)),
        completed_at=over, **given,
    )  # fmt: skip


def save(runs: Iterable[Run]) -> list[Run]:
    return Run.objects.bulk_create(list(runs))


def turn(run: Run, number: int, **columns: Any) -> Turn:
    given = {"route": "openai:gpt-x", "answered_model": "gpt-x", **columns}
    return Turn.objects.create(
        run=run, number=number, span=f"m{number}", raw="", prompt_version="refunds@3", prompt_hash="sha256:0",
        tools_version="t", started_at=run.created_at, **given,
    )  # fmt: skip
