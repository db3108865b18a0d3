"""Door: who acts when a command of the shell asks or approves: two users without a password, made on demand."""

from __future__ import annotations

from django.contrib.auth.models import User

from runs.management import staff

APPROVER = "shell-approver"


def asker(tenant_id: str) -> User:
    """The service user that asks for the shell, `svc-TENANT-shell`; nobody can sign in as it."""
    return _nobody(f"svc-{tenant_id}-shell")


def approver(tenant_id: str) -> User:
    """The member of staff that decides for the shell, without a password and without large amounts."""
    user = _nobody(APPROVER)
    staff.put_approver(APPROVER, tenant_id=tenant_id, large=False, settle=False, password=None)
    return User.objects.get(pk=user.pk)


def _nobody(username: str) -> User:
    user, new = User.objects.get_or_create(username=username)
    if new:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    return user
