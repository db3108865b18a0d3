"""Door: the list of runs, newest first, in cursor pages over (created_at, id). Reads only; imports no store, no zone.

A cursor names a row and a direction, so pages neither skip nor repeat a run while new ones arrive.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q, QuerySet
from django.http import QueryDict

from agentsite import clock
from runs.api import bodies
from runs.models import Run
from runs.states import Status

FILTERS = frozenset(
    {"status", "request_id", "customer_id", "order_id", "created_after", "created_before", "cursor", "limit"}
)
DEFAULT_LIMIT, MAX_LIMIT = 20, 100
MAX_CURSOR_CHARS = 200


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """Where a page begins: just after (`older`) or just before (`newer`) one row."""

    newer: bool
    created_at: datetime
    run_id: uuid.UUID

    def text(self) -> str:
        raw = f"{'n' if self.newer else 'o'}|{self.created_at.isoformat()}|{self.run_id.hex}"
        return base64.urlsafe_b64encode(raw.encode()).decode().rstrip("=")


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page: rows newest first, and the cursors of its neighbours (None where there is none)."""

    rows: list[Run]
    next: str | None
    previous: str | None


def read_cursor(text: str) -> Cursor:
    """Raises Refusal 400 for a cursor that we did not make."""
    try:
        raw = base64.urlsafe_b64decode(text[:MAX_CURSOR_CHARS] + "=" * (-len(text) % 4)).decode("ascii")
        way, moment, run_id = raw.split("|")
        if way not in ("n", "o"):
            raise ValueError(way)
        return Cursor(newer=way == "n", created_at=clock.parse_rfc3339(moment), run_id=uuid.UUID(hex=run_id))
    except (ValueError, OverflowError, binascii.Error):
        raise bodies.invalid([_cursor_fault()]) from None


def _cursor_fault() -> bodies.Fault:
    return {"pointer": "/cursor", "code": "invalid_cursor", "detail": "follow the links of a page"}


def visible(tenants: frozenset[str] | None) -> QuerySet[Run]:
    """Runs of those tenants; None means of all."""
    return Run.objects.all() if tenants is None else Run.objects.filter(tenant_id__in=sorted(tenants))


def filtered(rows: QuerySet[Run], query: QueryDict) -> QuerySet[Run]:
    """The runs a query string asks for. Raises Refusal 400 for a value that cannot be one."""
    status = _statuses(query)
    if status:
        rows = rows.filter(status__in=status)
    for name, column in (
        ("request_id", "request_id"),
        ("customer_id", "customer_id"),
        ("order_id", "orders__order_id"),
    ):
        value = bodies.identifier(query, name)
        if value is not None:
            rows = rows.filter(**{column: value})
    after, before = bodies.moment(query, "created_after"), bodies.moment(query, "created_before")
    if after is not None:
        rows = rows.filter(created_at__gt=after)
    return rows.filter(created_at__lt=before) if before is not None else rows


def _statuses(query: QueryDict) -> list[str]:
    asked = [part.strip() for part in query.get("status", "").split(",") if part.strip()]
    known = {status.value for status in Status}
    if any(status not in known for status in asked):
        detail = "one or more of " + ", ".join(sorted(known))
        raise bodies.invalid([{"pointer": "/status", "code": "unknown_status", "detail": detail}])
    return asked


def page(rows: QuerySet[Run], query: QueryDict) -> Page:
    """The page a query string asks for. Raises Refusal 400."""
    limit = bodies.integer(query, "limit", default=DEFAULT_LIMIT, least=1, most=MAX_LIMIT)
    cursor = read_cursor(query.get("cursor", "")) if "cursor" in query else None
    if cursor is not None and cursor.newer:
        found = list(rows.filter(_beyond(cursor)).order_by("created_at", "id")[: limit + 1])
        if found:
            kept = found[:limit][::-1]
            return Page(
                rows=kept, next=_link(kept, newer=False), previous=_link(kept, newer=True, on=len(found) > limit)
            )
        cursor = None  # nothing is newer: that is the first page
    if cursor is not None:
        rows = rows.filter(_beyond(cursor))
    found = list(rows.order_by("-created_at", "-id")[: limit + 1])
    kept = found[:limit]
    more = _link(kept, newer=False, on=len(found) > limit)
    return Page(rows=kept, next=more, previous=_link(kept, newer=True, on=cursor is not None))


def _beyond(cursor: Cursor) -> Q:
    side = "gt" if cursor.newer else "lt"
    return Q(**{f"created_at__{side}": cursor.created_at}) | Q(
        **{"created_at": cursor.created_at, f"id__{side}": cursor.run_id}
    )


def _link(rows: list[Run], *, newer: bool, on: bool = True) -> str | None:
    if not rows or not on:
        return None
    edge = rows[0] if newer else rows[-1]
    return Cursor(newer=newer, created_at=edge.created_at, run_id=edge.id).text()
