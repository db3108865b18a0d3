"""The columns of the console's list of runs. Part of a door: one row in, its words out."""

from __future__ import annotations

from django.contrib import admin
from django.utils.html import format_html

from agentsite.text import visible
from approvals import labels
from runs.admin import lists
from runs.models import Run


class RunColumns:
    """What a row of the list says."""

    @admin.display(description="request", ordering="request_id")
    def request(self, row: Run) -> str:
        return visible(row.request_id)

    @admin.display(description="status", ordering="status")
    def state(self, row: Run) -> str:
        text = labels.run_status(row.status)
        return format_html('<span class="badge badge-{}">{}</span>', labels.tone(row.status), text)

    @admin.display(description="order")
    def order(self, row: Run) -> str:
        return lists.orders_of(row)

    @admin.display(description="customer", ordering="customer_id")
    def customer(self, row: Run) -> str:
        return visible(row.customer_id)

    @admin.display(description="tenant", ordering="tenant_id")
    def tenant_name(self, row: Run) -> str:
        return visible(row.tenant_id)

    @admin.display(description="outcome")
    def ended_as(self, row: Run) -> str:
        why = f": {labels.spoken(row.reason).lower()}" if row.reason and row.status in ("escalated", "failed") else ""
        return f"{labels.spoken(row.outcome)}{why}" if row.outcome else "–"

    @admin.display(description="created", ordering="created_at")
    def created(self, row: Run) -> str:
        at = row.created_at
        return format_html('<time datetime="{}">{}</time>', at.isoformat(), labels.moment(at))
