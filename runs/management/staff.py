"""Door: groups, permissions, staff users and service users. Used by commands alone."""

from __future__ import annotations

import secrets

from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.db import transaction

from agentsite.tenants.models import ServiceToken, StaffTenant

APPROVERS, SENIOR, OPERATORS, AUDITORS = "approvers", "senior approvers", "operators", "auditors"
VIEWS = (
    "approvals.view_approval", "approvals.view_decision", "runs.view_run", "runs.view_event", "runs.view_write",
    "runs.view_observation", "runs.view_turn", "runs.view_webhook", "approvals.view_notice", "tenants.view_tenant",
    "tools.view_policydocument", "tools.view_policyincident", "runs.view_shadow",
)  # fmt: skip
READ_ONLY = (
    "runs.view_attempt", "runs.view_qualification", "tenants.view_agentprofile", "tools.view_breaker",
    "runs.view_evaluation",
)  # fmt: skip
CLOSES = "tools.change_policyincident"
GROUPS: dict[str, tuple[str, ...]] = {
    APPROVERS: (*VIEWS, "approvals.decide_approval"),
    SENIOR: (*VIEWS, "approvals.decide_approval", "approvals.decide_large_approval"),
    OPERATORS: (
        *VIEWS,
        "runs.operate_run",
        "runs.settle_write",
        "runs.pause_tenant",
        "tools.view_breaker",
        CLOSES,
        "runs.view_evaluation",
    ),
    AUDITORS: (*VIEWS, *READ_ONLY),
}
SETTLE = "runs.settle_write"


class MissingPermission(Exception):
    """A permission the database does not have: migrations are missing."""


def put_groups() -> list[str]:
    """The four groups exist and hold at least their permissions; the names of those made."""
    made = []
    for name, labels in GROUPS.items():
        group, new = Group.objects.get_or_create(name=name)
        group.permissions.add(*[permission(label) for label in labels])
        made += [name] if new else []
    return made


def permission(label: str) -> Permission:
    """The permission `app.codename`. Raises MissingPermission."""
    app, _, codename = label.partition(".")
    kinds = ContentType.objects.filter(app_label=app)
    found = Permission.objects.filter(content_type__in=kinds, codename=codename).first()
    if found is None:
        raise MissingPermission(label)
    return found


def put_approver(username: str, *, tenant_id: str, large: bool, settle: bool, password: str | None) -> str | None:
    """A staff user who sees the tenant and may decide; returns a password made here, None where none was made.

    Declarative: an existing user keeps the password unless one is given, and `large` and `settle` are set or taken.
    """
    put_groups()
    with transaction.atomic():
        user, new = User.objects.select_for_update().get_or_create(username=username)
        made = secrets.token_urlsafe(15) if new and not password else None
        user.is_staff = True
        if password or made:
            user.set_password(password or made)
        user.save()
        _groups_of(user, large=large, settle=settle)
        StaffTenant.objects.get_or_create(user=user, tenant_id=tenant_id)
    return made


def _groups_of(user: User, *, large: bool, settle: bool) -> None:
    user.groups.add(Group.objects.get(name=APPROVERS))
    senior = Group.objects.get(name=SENIOR)
    if large:
        user.groups.add(senior)
    else:
        user.groups.remove(senior)
    # One permission, not the operators' group: settling a write is no licence to pause a tenant.
    if settle:
        user.user_permissions.add(permission(SETTLE))
    else:
        user.user_permissions.remove(permission(SETTLE))


def make_token(*, tenant_id: str, name: str, scopes: list[str]) -> str:
    """A new token of the service user `svc-TENANT-NAME`; the only moment it is known. Older ones go on working."""
    with transaction.atomic():
        user, new = User.objects.get_or_create(username=f"svc-{tenant_id}-{name}")
        if new:
            user.set_unusable_password()
            user.save(update_fields=["password"])
        _, token = ServiceToken.objects.create(
            user=user, expiry=None, tenant_id=tenant_id, name=name, scopes=" ".join(scopes)
        )
    return str(token)
