"""Door: the run a person means by an id. Reads rows, writes none."""

from __future__ import annotations

import uuid

from django.core.management.base import CommandError
from django.db import models

from agentsite.text import has_forbidden
from runs.models import Run

MAX_NAMED = 5


def find_run(text: str, tenant_id: str | None = None) -> Run:
    """The run with this run id, trace id or request id.

    Raises CommandError: exit code 1 where there is none, 2 where several tenants have that request.
    """
    rows = Run.objects.all() if tenant_id is None else Run.objects.filter(tenant_id=tenant_id)
    known = not has_forbidden(text)
    found = (_by_id(rows, text) or list(rows.filter(request_id=text)[: MAX_NAMED + 1])) if known else []
    if not found:
        where = f" of tenant {tenant_id}" if tenant_id else ""
        raise CommandError(f"no run{where} has the run id, trace id or request id {text!r}")
    if len(found) > 1:
        tenants = ", ".join(sorted(run.tenant_id for run in found)[:MAX_NAMED])
        raise CommandError(f"{text!r} is a request of {tenants}: name the tenant with --tenant", returncode=2)
    return found[0]


def _by_id(rows: models.QuerySet[Run], text: str) -> list[Run]:
    try:
        parsed = uuid.UUID(text)
    except ValueError:
        return []
    return list(rows.filter(id=parsed)) or list(rows.filter(trace_id=parsed.hex).order_by("created_at")[:1])
