"""Finds approvals by an order's, a payment's, a customer's, a run's or a request's id, or their own. Writes nothing.

By index, whatever else narrows the list: what is equal, and only where nothing is, what begins so.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

from django.db import connection
from django.db.models import Q, QuerySet

from approvals.models import Approval

IDS = ("order_id", "payment_id", "customer_id", "request_id", "id")
HEX = re.compile(r"[0-9a-f]{4,32}")
MOST_EACH = 500
LAST = "\U0010ffff"


def matching(scope: Q, text: str) -> list[str]:
    """Ids of what is equal to `text` in some id, else of what begins with it; at most 500 by each id."""
    text = text.strip()
    exact = _ids(scope, [Q(**{column: text}) for column in IDS])
    return exact or _ids(scope, [*_beginning(text), *_run(text)])


def _ids(scope: Q, wanted: list[Q]) -> list[str]:
    found: dict[str, None] = {}
    for one in wanted:
        found |= dict.fromkeys(_query(scope, one))
    return list(found)


def _query(scope: Q, one: Q) -> QuerySet[Approval, str]:
    return Approval.objects.filter(scope, one).order_by().values_list("id", flat=True)[:MOST_EACH]


def _beginning(text: str) -> Iterator[Q]:
    for column in IDS:
        if connection.vendor == "postgresql":
            yield Q(**{f"{column}__startswith": text})
        else:  # SQLite takes no index for LIKE; its order is that of code points, so a range says the same
            yield Q(**{f"{column}__gte": text, f"{column}__lt": text + LAST})


def _run(text: str) -> Iterator[Q]:
    """A run's id with or without dashes, whole or its beginning."""
    digits = text.replace("-", "").lower()
    if HEX.fullmatch(digits):
        low, high = uuid.UUID(digits.ljust(32, "0")), uuid.UUID(digits.ljust(32, "f"))
        yield Q(run_id__gte=low, run_id__lte=high)
