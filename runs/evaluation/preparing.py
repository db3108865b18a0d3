"""Door: fills a private site before its evaluation: tenants, policies, tokens, staff, the route's qualification.

One process makes all of it, from one file, and only in the database which that file names: never an installation's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from agentsite import env
from agentsite.tenants.models import StaffTenant
from runs import qualification
from runs.api.auth import SCOPES
from runs.management import staff, tenancy
from tools.policy import documents

Json = dict[str, Any]
LEAD, SECOND, OPERATOR = "ev_lead", "ev_second", "ev_operator"
"""Who decides (the second one where two must, both may large amounts), and who does everything else."""
BY = "evaluate"


class NotPrivate(Exception):
    """The file is for another database than this process has."""


def prepare(file: Path) -> Json:
    """What the file asks for, in one transaction; the tokens made, by tenant. Raises NotPrivate.

    The file: `{"database", "password", "agent", "routes": [[ROUTE, ANSWERS_AS]], "tenants": [{"id", "profile",
    "policies": [TEXT]}]}`.
    """
    order = json.loads(file.read_text())
    if not order["database"] or order["database"] != env.read().DATABASE_URL:
        raise NotPrivate("this is not the database that the evaluation made for itself")
    with transaction.atomic():
        for route, answers_as in order["routes"]:
            qualification.qualify(
                route, agent=order["agent"], reason="is what is being examined", by=BY, answers_as=answers_as,
                days=None, kind="evaluated",
            )  # fmt: skip
        tokens = {tenant["id"]: _tenant(tenant) for tenant in order["tenants"]}
        _people(order["password"], tokens)
    return {"tokens": tokens}


def _tenant(tenant: Json) -> str:
    tenancy.put_tenant(tenant["id"])
    tenancy.put_profile(tenant["id"], tenant["profile"])
    tenancy.put_policies(tenant["id"])
    for text in tenant["policies"]:
        documents.load(tenant["id"], text, replace=True, force=True)
    return staff.make_token(tenant_id=tenant["id"], name=BY, scopes=list(SCOPES))


def _people(password: str, tenants: Iterable[str]) -> None:
    """Nobody but these is at work in a private site, so one of them may do what needs no second person."""
    named = list(tenants)
    for name in (LEAD, SECOND) if named else ():
        new = not User.objects.filter(username=name).exists()  # a password that is set again ends every session
        staff.put_approver(name, tenant_id=named[0], large=True, settle=False, password=password if new else None)
        user = User.objects.get(username=name)
        StaffTenant.objects.bulk_create([StaffTenant(user=user, tenant_id=tenant) for tenant in named[1:]])
    if named and not User.objects.filter(username=OPERATOR).exists():
        User.objects.create_superuser(OPERATOR, password=password)
