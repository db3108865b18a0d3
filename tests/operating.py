"""Staff at the console's pages of runs, writes and switches: signed in, and what they POST. In this process."""

from __future__ import annotations

import html
import re
from typing import Any

from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.test import Client

from agentsite.tenants.models import StaffTenant
from runs.models import Run, Write
from tests.world import TENANT

SEES = ("view_run", "view_write", "view_approval", "view_tenant")
OPERATES = (*SEES, "operate_run", "settle_write", "pause_tenant")


def operator(
    name: str = "ops_3", *, may: tuple[str, ...] = OPERATES, tenants: tuple[str, ...] = (TENANT,), **columns: Any
) -> Client:
    """A member of staff's signed-in browser, which checks the CSRF token as a real one is checked."""
    user, new = User.objects.get_or_create(username=name, defaults={"is_staff": True, **columns})
    if new:
        user.user_permissions.set(Permission.objects.filter(codename__in=may))
        for tenant_id in tenants:
            StaffTenant.objects.create(user=user, tenant_id=tenant_id)
    client = Client()
    client.force_login(user)
    return client


def act_page(run: Run, act: str) -> str:
    return f"/admin/runs/run/{run.pk}/act/{act}/"


def run_page(run: Run) -> str:
    return f"/admin/runs/run/{run.pk}/change/"


def write_page(write: Write) -> str:
    return f"/admin/runs/write/{quote(write.pk)}/change/"


def seen(client: Client, path: str) -> str:
    """A page as it is shown, for its words."""
    answer = client.get(path)
    assert answer.status_code == 200, (path, answer.status_code)
    return html.unescape(answer.content.decode())


def seq_shown(client: Client, path: str) -> str:
    """The sequence number that the page's form carries."""
    found = re.search(r'name="seen_seq" value="(\d+)"', seen(client, path))
    assert found is not None, f"{path} offers no form"
    return found[1]


def acts(client: Client, run: Run, act: str, *, reason: str = "other", note: str = "as agreed", **more: str) -> int:
    """Opens an act's page, sends its form; the status of the answer (302: done)."""
    path = act_page(run, act)
    form = {"reason": reason, "note": note, "seen_seq": seq_shown(client, path), **more}
    return client.post(path, form).status_code


def settles(client: Client, write: Write, **form: str) -> int:
    """Sends the settlement of the page as it is now; the status of the answer (302: done)."""
    path = write_page(write)
    sent = {
        "do": "settle", "reason": "seen_at_provider", "seen": "Looked at the provider's console.",
        "seen_seq": str(Run.objects.get(pk=write.run_id).last_seq), **form,
    }  # fmt: skip
    return client.post(path, sent).status_code
