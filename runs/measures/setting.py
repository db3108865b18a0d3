"""Control: sets a tenant's objective, with who did it and when. The only writer of objectives; imports no zone."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from django.db import transaction

from agentsite import dbtime, telemetry
from agentsite.tenants.models import Objective
from agentsite.text import storable


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is promised, as a person writes it: percentages of two decimals, whole milliseconds and days."""

    success_percent: Decimal
    latency_percent: Decimal
    latency_ms: int
    window_days: int


def put(tenant_id: str, wanted: Wanted, *, by: str) -> bool:
    """False: it is so already, and nothing changed. Raises IntegrityError for what can only be met, or only missed."""
    values = {name: getattr(wanted, name) for name in Wanted.__dataclass_fields__}
    with transaction.atomic():
        if Objective.objects.filter(pk=tenant_id, **values).exists():
            return False
        changed = {**values, "changed_by": storable(by)[:200], "changed_at": dbtime.now()}
        Objective.objects.update_or_create(tenant_id=tenant_id, defaults=changed)
    telemetry.log("objective.set", tenant=tenant_id, by=by, **{k: str(v) for k, v in values.items()})
    return True
