"""Observations as evidence: what a proposal may cite, with one line of what each says. A paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agentsite import clock, money
from runs.contracts import SeenObservation
from runs.story import OUR_REFUNDS, PRECEDENTS, RECORDS
from tools import citations, registry
from tools.contracts import Effect, EvidenceItem, PassageRef


def items(observations: Sequence[SeenObservation]) -> tuple[EvidenceItem, ...]:
    """Every observation of a tool as a citable item; errors, denials and the model's own words are not `ok`."""
    return tuple(_item(o) for o in observations)


def cited(observations: Sequence[SeenObservation], ids: Sequence[str]) -> tuple[EvidenceItem, ...]:
    """What these ids name, in the order it was observed; one passage of an observation says what that one is."""
    known, seen = items(observations), {o.obs_id: o for o in observations}
    found = [(item, cited_id) for cited_id in dict.fromkeys(ids) if (item := citations.named(known, cited_id))]
    order = {item.obs_id: n for n, item in enumerate(known)}
    found.sort(key=lambda pair: order.get(pair[0].obs_id, order.get(citations.split(pair[1])[0], 0)))
    return tuple(_narrowed(item, seen, cited_id) for item, cited_id in found)


def _narrowed(item: EvidenceItem, seen: dict[str, SeenObservation], cited_id: str) -> EvidenceItem:
    obs_id, number = citations.split(cited_id)
    if number is None or cited_id in seen:
        return item
    one = seen[obs_id].content["passages"][number - 1]
    return replace(item, section=one.get("section"), fact=_policy({"passages": [one]}))


def passages(found: Sequence[EvidenceItem]) -> tuple[PassageRef, ...]:
    """Every passage in them, once."""
    return tuple(dict.fromkeys(ref for item in found for ref in item.passages))


def _item(o: SeenObservation) -> EvidenceItem:
    meta = o.meta
    version = meta.get("version")
    return EvidenceItem(
        obs_id=o.obs_id, tool=o.source, kind=o.kind, ok=o.ok and not _own_words(o), doc=meta.get("doc"),
        version=version if isinstance(version, int) else None, section=meta.get("section"),
        fetched_at=clock.rfc3339(o.fetched_at), fact=summary(o), passages=_passages(o),
        precedent=o.source in PRECEDENTS,
        order_id=str(o.args.get("order_id")) if o.source in RECORDS and o.ok else None,
    )  # fmt: skip


def _passages(o: SeenObservation) -> tuple[PassageRef, ...]:
    """Those of a policy search, each in its place; of one that an older release recorded, without hashes, none."""
    rows = o.content.get("passages") if o.source == "search_policy" and o.ok and isinstance(o.content, dict) else None
    if not isinstance(rows, list) or not all(isinstance(p, dict) and "hash" in p for p in rows):
        return ()
    return tuple(
        PassageRef(doc=p["doc"], version=p["version"], content_hash=p["hash"], current=p["current"] is True)
        for p in rows
    )


def _own_words(o: SeenObservation) -> bool:
    """Whether it is the result of something the model said itself, which proves nothing."""
    tool = registry.TOOLS.get(o.source)
    return tool is not None and tool.effect is Effect.PEOPLE


def _amount(wire: Any) -> str:
    try:
        return str(money.parse(wire))
    except money.BadMoney:
        return "?"


def summary(o: SeenObservation) -> str:
    """One line for people, from typed fields only: never a note, never free text."""
    content = o.content if isinstance(o.content, dict) else {}
    if not o.ok:
        return f"{o.kind}: {content.get('error') or content.get('decision') or 'recorded'}"
    writer = _SUMMARIES.get(o.source)
    return writer(content) if writer else "recorded"


def _order(c: dict[str, Any]) -> str:
    return f"order {c.get('order_id')}, {_amount(c.get('total'))} in all, {_amount(c.get('amount_due'))} due"


def _payments(c: dict[str, Any]) -> str:
    lines = [f"{p.get('payment_id')} {p.get('state')} {_amount(p.get('amount'))}" for p in c.get("payments", [])]
    return "; ".join(lines) or "no payments"


def _refunds(c: dict[str, Any]) -> str:
    lines = [f"{r.get('refund_id')} {r.get('state')} {_amount(r.get('amount'))}" for r in c.get("refunds", [])]
    return "; ".join(lines) or "no refund exists"


def _our_refunds(c: dict[str, Any]) -> str:
    lines = [
        f"{r.get('refund_id') or 'not named yet'} {'verified' if r.get('verified') else r.get('state')} "
        f"{_amount(r.get('amount'))}"
        for r in c.get("refunds", [])
    ]
    return "; ".join(lines)


def _policy(c: dict[str, Any]) -> str:
    lines = [f"{p.get('doc')}@v{p.get('version')} {p.get('section')}" for p in c.get("passages", [])]
    return "; ".join(lines) or "no passage"


def _cases(c: dict[str, Any]) -> str:
    """Each by how it ended; only the customer's own by its name."""
    lines = [_case(case) for case in c.get("cases", []) if isinstance(case, dict)]
    return f"precedents, no facts of this case: {'; '.join(lines)}" if lines else "no earlier case"


def _case(case: dict[str, Any]) -> str:
    whose = case.get("request_id") if case.get("same_customer") is True else "another customer's"
    return "erased" if case.get("erased") is True else f"{whose} {case.get('outcome') or case.get('status')}"


_SUMMARIES = {
    "get_order": _order,
    "get_payments": _payments,
    "get_refund_status": _refunds,
    OUR_REFUNDS: _our_refunds,
    "search_policy": _policy,
    **dict.fromkeys(PRECEDENTS, _cases),
}
