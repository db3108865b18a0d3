"""Door: circuit breakers to look at. Read-only; imports no runs and no approvals."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from agentsite.tenants.console import ReadOnly, staff
from agentsite.tenants.models import visible_tenants
from agentsite.text import visible
from tools import breaker
from tools.models import Breaker


@admin.register(Breaker)
class BreakerAdmin(ReadOnly):
    """What is left alone at this moment and for how long; an account begins with its tenant, if it has one."""

    list_display = ("of", "at", "state", "failures", "opened_at", "open_until", "probe_until")
    search_fields = ("^dependency", "^account")
    fields = ("of", "at", "state", "failures", "opened_at", "open_until", "probe_until", "updated_at")
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = Breaker.objects.annotate(now=breaker.Later(0)).order_by("dependency", "account")
        tenants = visible_tenants(staff(request))
        if tenants is None:
            return rows
        mine = Q(pk__in=[])
        for tenant_id in tenants:
            mine |= Q(account__startswith=f"{tenant_id}@")
        return rows.filter(mine)

    @admin.display(description="dependency", ordering="dependency")
    def of(self, row: Breaker) -> str:
        return visible(row.dependency)

    @admin.display(description="account", ordering="account")
    def at(self, row: Breaker) -> str:
        return visible(row.account)

    @admin.display(description="state")
    def state(self, row: Any) -> str:
        return breaker.state(row, row.now)
