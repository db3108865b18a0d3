"""Door: what staff were told of an approval, as a part of its page. Reads rows; writes none."""

from __future__ import annotations

from typing import Any

from django import template

from approvals import showing
from approvals.models import Approval, Notice

MAX_SHOWN = 50
register = template.Library()


@register.inclusion_tag("admin/approvals/notice/of_approval.html")
def told_staff(approval: Approval) -> dict[str, Any]:
    """Each notice with its state; those that could not be sent stand out."""
    rows = list(Notice.objects.filter(approval=approval).order_by("id")[:MAX_SHOWN])
    failed = sum(row.state == "failed" for row in rows)
    return {"notices": [showing.of(row) for row in rows], "failed": failed, "nobody": not rows}
