"""Shadow mode of a tenant: the switch, and who turned it, why and on which figures. Floor: imports no domain package.

The switch that counts is read under a lock in the transaction that would write or send; what is asked here only saves
work, and tells people. A change is a row that is only ever added (M110).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import transaction

from agentsite import dbtime, telemetry
from agentsite.refusals import Refusal
from agentsite.tenants import glance
from agentsite.tenants.models import ShadowChange, Tenant, visible_tenants
from agentsite.text import has_forbidden, storable

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractUser as User

MAX_REASON = 500
MAX_SHOWN = 50


def stands(tenant_id: str) -> bool:
    """Whether the tenant is in shadow mode at this moment; within a pass, a moment ago."""
    return glance.at(tenant_id).shadow


def enter(tenant_id: str, *, by: str, reason: str) -> bool:
    """From now on the tenant's agent proposes and writes nothing. False: it was so already, and nothing changed.

    Once this returns, no further write of it is marked as sent: whoever marks one holds the row shared until he has.
    Raises Refusal 400 without a reason in plain text.
    """
    return _turn(tenant_id, shadow=True, by=by, reason=reason, figures={})


def leave(tenant_id: str, *, by: str, reason: str, figures: dict[str, Any]) -> bool:
    """The agent may write again, in runs that are admitted from now on. False: it was not in shadow mode.

    `figures` are what its proposals had come to at that moment; they stay beside the decision. Raises Refusal 400
    without a reason in plain text.
    """
    return _turn(tenant_id, shadow=False, by=by, reason=reason, figures=figures)


def _turn(tenant_id: str, *, shadow: bool, by: str, reason: str, figures: dict[str, Any]) -> bool:
    said = storable(reason.strip())[:MAX_REASON]
    if not said or has_forbidden(reason):
        raise Refusal(400, "reason-missing", "A reason is needed, in plain text.")
    with transaction.atomic():
        if Tenant.objects.filter(pk=tenant_id, shadow=not shadow).update(shadow=shadow) != 1:
            return False
        ShadowChange.objects.create(
            tenant_id=tenant_id, shadow=shadow, by=storable(by)[:200], reason=said, figures=figures, at=dbtime.now()
        )
    telemetry.count("shadow_turned", to="shadow" if shadow else "live")
    telemetry.log("shadow.turned", tenant=tenant_id, shadow=shadow, by=by)
    return True


def history(tenant_id: str) -> list[ShadowChange]:
    """The newest changes of a tenant's mode first, at most 50."""
    return list(ShadowChange.objects.filter(tenant_id=tenant_id)[:MAX_SHOWN])


def shown(user: User) -> list[str]:
    """Ids of the tenants in shadow mode that this member of staff may know of, at most 50."""
    rows, mine = Tenant.objects.filter(shadow=True).order_by("pk"), visible_tenants(user)
    return list((rows if mine is None else rows.filter(pk__in=mine)).values_list("pk", flat=True)[:MAX_SHOWN])
