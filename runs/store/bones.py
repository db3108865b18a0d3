"""What stays of a result in its row while its whole text lies in an archive: the fields that facts are made of.

A pure function of source and text; imports no Django and no rows. `runs.story`, `runs.evidence` and citations read
nothing else, so that every sentence about money is the same before and after.
"""

from __future__ import annotations

import json
from typing import Any

from agentsite.canonical import canonical_text
from tools.contracts import Json

MARK = "archived"
"""In the content of such a result, true: more of it was read than stands here."""
_ORDER = ("order_id", "total", "amount_due")
_ROWS = {
    "get_payments": ("payments", ("payment_id", "order_id", "state", "amount")),
    "get_refund_status": ("refunds", ("refund_id", "payment_id", "order_id", "state", "amount")),
    "search_policy": ("passages", ("doc", "version", "section", "current", "hash")),
}
SOURCES = ("get_order", *_ROWS)


def of(source: str, text: str) -> Json | None:
    """The fields that stay; None where the text is no result as it is written, or where nothing would be saved."""
    try:
        content = json.loads(text)
    except ValueError:
        return None
    kept = _kept(source, content) if isinstance(content, dict) and MARK not in content else None
    return kept if kept is not None and len(canonical_text(kept)) < len(text) else None


def _kept(source: str, content: Json) -> Json | None:
    if source == "get_order":
        return {MARK: True, **_only(content, _ORDER)}
    name, fields = _ROWS[source]
    rows = content.get(name)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return None
    return {MARK: True, **_only(content, ("order_id",)), name: [_only(row, fields) for row in rows]}


def _only(row: Json, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: row[name] for name in names if name in row}
