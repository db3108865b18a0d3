"""Keeper: who may decide an approval, at the click and again at the release. Writes nothing; imports no runs.

On PostgreSQL the rows that grant a permission are held until the caller's transaction ends; SQLite's writing
transactions are one at a time anyway.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser, Group
from django.db import connection, models
from django.db.models import Q

from agentsite.refusals import Refusal
from agentsite.tenants.models import StaffTenant, visible_tenants
from approvals.models import Approval

DECIDE = "approvals.decide_approval"
DECIDE_LARGE = "approvals.decide_large_approval"


def objection(approval: Approval, user: AbstractUser) -> Refusal | None:
    """Why this user may not decide this approval whatever its status, or None. The page and `decide` both ask here."""
    if approval.created_by == f"user:{user.pk}":
        return Refusal(403, "own-run", "Nobody decides what they asked for.", "You started this run yourself.")
    if not user.is_active or not user.has_perm(DECIDE):
        return Refusal(403, "not-permitted", "You may not decide approvals.", "Your account lacks this permission.")
    if approval.large and not user.has_perm(DECIDE_LARGE):
        return Refusal(403, "not-permitted", "You may not decide approvals of this size.", "It is a large one.")
    return None


def still_hold(approval: Approval, user_ids: list[Any]) -> bool:
    """Whether each of these users may decide this approval now, read afresh and held where that is needed."""
    _hold_grants(user_ids, approval.tenant_id)
    people = get_user_model().objects.filter(pk__in=user_ids)
    return len(people) == len(set(user_ids)) and all(_still(approval, person) for person in people)


def _still(approval: Approval, person: AbstractUser) -> bool:
    tenants = visible_tenants(person)
    return objection(approval, person) is None and (tenants is None or approval.tenant_id in tenants)


def _hold_grants(user_ids: list[Any], tenant_id: str) -> None:
    user = get_user_model()
    memberships = user.groups.through.objects.filter(user_id__in=user_ids)
    wanted = Q(permission__codename__in=["decide_approval", "decide_large_approval"])
    grants: list[models.QuerySet[Any]] = [
        user.objects.filter(pk__in=user_ids),
        StaffTenant.objects.filter(user_id__in=user_ids, tenant_id=tenant_id),
        memberships,
        user.user_permissions.through.objects.filter(wanted, user_id__in=user_ids),
        Group.permissions.through.objects.filter(wanted, group__in=memberships.values("group_id")),
    ]
    if connection.vendor == "postgresql":
        for rows in grants:
            _for_share(rows)


def _for_share(rows: models.QuerySet[Any]) -> None:
    """Django knows FOR UPDATE alone, which would let one approver's intents wait for one another."""
    sql, params = rows.order_by("pk").values_list("pk").query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(f"{sql} FOR SHARE OF {rows.model._meta.db_table}", params)
