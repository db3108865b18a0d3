"""What of a tool's result must not get lost when it is not shown whole: the tool's own summary (M120).

A paper: pure, imports no Django, HTTP or clock. Content comes from outside: of any shape, and nothing here raises. A
list is given whole or not at all: where it is too long, its counts and sums stand under names of their own, so that
nobody takes a part of it for all of it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agentsite import money
from tools.contracts import Json

MAX_TEXT, MAX_NAME, MAX_FIELDS, MAX_STATES = 600, 64, 24, 8
ORDER = ("order_id", "customer_id", "total", "amount_due", "status")
PAYMENT = ("payment_id", "order_id", "state", "amount", "captured_at")
REFUND = ("refund_id", "payment_id", "order_id", "state", "amount", "created_at")
PASSAGE = ("id", "doc", "version", "section", "current")
CASE = ("same_customer", "outcome", "reason", "policy", "run", "erased")
MAX_PLAN_BYTES = 2_500


@dataclass(frozen=True, kw_only=True)
class Digest:
    """A tool's two summaries. `essence`: what stands in place of a result too large to show, within so many bytes.
    `handles`: what is kept of a result in a turn long ago. Either may be None: not of the shape the tool promises."""

    essence: Callable[[Json, int], Json | None]
    handles: Callable[[Json, int], Json | None]


def essence(tool: str, content: Any, max_bytes: int) -> Json:
    """The fields that matter of a result too large to show, in about `max_bytes` of JSON."""
    known = DIGESTS.get(tool)
    found = known.essence(content, max_bytes) if known and isinstance(content, dict) else None
    return found if found is not None else brief(content, max_bytes)


def handles(tool: str, content: Any, max_bytes: int) -> Json:
    """What is kept of a result in a compacted turn: ids, states, amounts, document and version."""
    known = DIGESTS.get(tool)
    found = known.handles(content, max_bytes) if known and isinstance(content, dict) else None
    return found if found is not None else brief(content, max_bytes)


def brief(content: Any, max_bytes: int) -> Json:
    """Of anything: its short fields as they are, of lists their length, of the rest its name."""
    if not isinstance(content, dict):
        return _alone(content)
    kept: Json = {}
    for name, value in list(content.items())[:MAX_FIELDS]:
        if len(name) <= MAX_NAME and _is_short(value) and _size({**kept, name: value}) <= max_bytes:
            kept[name] = value
    lists = {n: len(v) for n, v in content.items() if n not in kept and isinstance(v, list) and len(n) <= MAX_NAME}
    more: Json = {"in_all": dict(list(lists.items())[:MAX_STATES])} if lists else {}
    left_out = len(content) - len(kept) - len(lists)
    return {**kept, **more, **({"fields_left_out": left_out} if left_out else {})}


def _alone(content: Any) -> Json:
    if isinstance(content, list):
        return {"in_all": len(content)}
    if isinstance(content, str):
        return {"text": content} if len(content) <= MAX_TEXT else {"characters": len(content)}
    return {"value": content}


def _is_short(value: Any) -> bool:
    if isinstance(value, dict):
        return len(value) <= MAX_FIELDS and all(
            not isinstance(inner, (dict, list)) and _is_short(inner) and len(name) <= MAX_NAME
            for name, inner in value.items()
        )
    return not isinstance(value, list) and (not isinstance(value, str) or len(value) <= MAX_TEXT)


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=True))


def _picked(row: Json, names: Iterable[str]) -> Json:
    return {name: row[name] for name in names if name in row}


def _rows(content: Json, name: str) -> list[Json] | None:
    rows = content.get(name)
    return rows if isinstance(rows, list) and all(isinstance(row, dict) for row in rows) else None


# --- orders, payments, refunds -------------------------------------------------------------------------------------


def _order(content: Json, max_bytes: int) -> Json | None:
    """Without its note and whatever else a system adds."""
    kept = _picked(content, ORDER)
    return kept if "order_id" in kept and _size(kept) <= max_bytes else None


def _listed(name: str, fields: tuple[str, ...]) -> Callable[[Json, int], Json | None]:
    """Every entry by its fields; else how many there are and what they come to, by state."""

    def digest(content: Json, max_bytes: int) -> Json | None:
        rows = _rows(content, name)
        if rows is None:
            return None
        about = _picked(content, ("order_id",)) if _is_short(content.get("order_id")) else {}
        whole = {**about, name: [_picked(row, fields) for row in rows]}
        return whole if _size(whole) <= max_bytes else {**about, f"{name}_too_many_to_show": _summed(rows)}

    return digest


def _summed(rows: list[Json]) -> Json:
    by_state: dict[str, list[Json]] = defaultdict(list)
    for row in rows:
        state = row.get("state")
        word = state if isinstance(state, str) and len(state) <= 32 else "other"
        by_state[word if word in by_state or len(by_state) < MAX_STATES else "other"].append(row)
    return {"count": len(rows), "by_state": {s: {"count": len(r), "sums": _sums(r)} for s, r in by_state.items()}}


def _sums(rows: list[Json]) -> Json:
    """Sums by currency; an amount that cannot be read is counted, never guessed."""
    amounts: dict[str, list[money.Money]] = defaultdict(list)
    unreadable = 0
    for row in rows:
        try:
            amount = money.parse(row.get("amount"))
            amounts[amount.currency].append(amount)
        except money.BadMoney:
            unreadable += 1
    sums: Json = {c: money.total(found, c).wire()["amount"] for c, found in sorted(amounts.items())[:MAX_STATES]}
    return {**sums, **({"unreadable": unreadable} if unreadable else {})}


# --- passages of policies ------------------------------------------------------------------------------------------


def _passages(content: Json, max_bytes: int) -> Json | None:
    """The best passages, each whole: a clause is never cut from its condition; of the others where they stand."""
    rows = _rows(content, "passages")
    if rows is None:
        return None
    shown = _whole(rows, max_bytes * 3 // 4)
    rest = _where(rows[len(shown) :], max_bytes // 4)
    # None of them shown is not the same as none found.
    found: Json = {"passages": shown} if shown or not rest else {}
    return {**found, **({"passages_not_shown": rest} if rest else {})}


def _whole(rows: list[Json], max_bytes: int) -> list[Json]:
    """The first rows, as many as have room together."""
    shown: list[Json] = []
    for row in rows:
        if _size([*shown, row]) > max_bytes:
            break
        shown.append(row)
    return shown


def _where(rows: list[Json], max_bytes: int) -> list[Json] | int:
    """Document, version and section of each; how many there are, where even that is too long."""
    found = [_picked(row, PASSAGE) for row in rows]
    return found if _size(found) <= max_bytes else len(found)


def _places(content: Json, max_bytes: int) -> Json | None:
    rows = _rows(content, "passages")
    return None if rows is None else {"passages": _where(rows, max_bytes)}


# --- cases of the past ---------------------------------------------------------------------------------------------


def _cases(content: Json, max_bytes: int) -> Json | None:
    """The best cases, each whole, and how the others ended: precedents, in whatever length they are told."""
    rows = _rows(content, "cases")
    if rows is None:
        return None
    shown = _whole(rows, max_bytes * 3 // 4)
    rest = _endings(rows[len(shown) :], max_bytes // 4)
    found: Json = {"cases": shown} if shown or not rest else {}
    return {"precedent": True, **found, **({"cases_not_shown": rest} if rest else {})}


def _ended(content: Json, max_bytes: int) -> Json | None:
    rows = _rows(content, "cases")
    return None if rows is None else {"precedent": True, "cases": _endings(rows, max_bytes)}


def _endings(rows: list[Json], max_bytes: int) -> list[Json] | int:
    """Whose case it was and how it ended; how many there are, where even that is too long."""
    found = [_picked(row, CASE) for row in rows]
    return found if _size(found) <= max_bytes else len(found)


# --- what the model itself set down --------------------------------------------------------------------------------


def _plan(content: Json, max_bytes: int) -> Json | None:
    """Whole, as long as a plan may be: it is what the model goes by."""
    steps = content.get("plan")
    short = isinstance(steps, list) and len(steps) <= MAX_FIELDS and all(isinstance(s, str) for s in steps)
    return {"plan": steps} if short and _size(steps) <= max(max_bytes, MAX_PLAN_BYTES) else None


_PAYMENTS, _REFUNDS = _listed("payments", PAYMENT), _listed("refunds", REFUND)
DIGESTS: Mapping[str, Digest] = {
    "get_order": Digest(essence=_order, handles=_order),
    "get_payments": Digest(essence=_PAYMENTS, handles=_PAYMENTS),
    "get_refund_status": Digest(essence=_REFUNDS, handles=_REFUNDS),
    "our_refunds": Digest(essence=_REFUNDS, handles=_REFUNDS),
    "search_policy": Digest(essence=_passages, handles=_places),
    "search_cases": Digest(essence=_cases, handles=_ended),
    "session_history": Digest(essence=_cases, handles=_ended),
    "plan": Digest(essence=_plan, handles=_plan),
}
"""By tool, or by the name under which results of our own stand; another tool's are cut by `brief`."""
