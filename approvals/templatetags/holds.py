"""Door: what the queue's and the review page's templates ask about holds and filters. Writes nothing."""

from __future__ import annotations

from typing import Any

from django import template
from django.contrib.admin.views.main import ChangeList
from django.contrib.auth.models import AbstractUser

from agentsite import dbtime
from approvals import holds
from approvals.admin import holding
from approvals.models import Approval

register = template.Library()


@register.simple_tag
def hold_of(approval: Approval, user: AbstractUser) -> dict[str, Any]:
    """Who is looking at an approval, for whom it is, and what this person may do about that."""
    now = dbtime.now()
    held = holding.context(approval, user, now)
    return {**held, "snoozed_until": holds.snoozed_until(approval.pk, user, now) if held["open"] else None}


@register.simple_tag
def filters_used(cl: ChangeList) -> int:
    """How many filters narrow the list, its view and search aside."""
    return sum(bool(spec.value()) for spec in cl.filter_specs if spec.parameter_name != "view")  # type: ignore[attr-defined]
