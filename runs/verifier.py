"""The independent check after a write: what was asked against what the records show. A paper: no Django, no clock.

It compares and judges; it reads nothing, decides no status and issues nothing for a difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from agentsite.canonical import strict_loads
from agentsite.money import CurrencyMismatch, Money
from runs.contracts import Checked, SeenWrite
from tools import rules
from tools.contracts import Json, OrderFacts, OwnWrite, Refund

CHECK = "refund_matches_intent"
SUCCEEDED = "succeeded"
Verdict = Literal["passed", "pending", "not_shown", "failed", "mismatch", "over_refunded"]


def check(write: SeenWrite, *, refunds: Sequence[Refund], facts: OrderFacts, waited_s: float, at: str) -> Checked:
    """Compares a write with a fresh list read by the read credential (M53).

    `refunds` is that list, `facts` the order's facts of the same moment, `waited_s` seconds since the write was
    executed, `at` an RFC 3339 time. Different beats failed beats over-refunded beats pending: only a refund that
    succeeded, equals what was asked and leaves the order not over-refunded has passed.
    """
    own = _own(write)
    found = rules.match(own, refunds, claimed=rules.claimed_by_others(facts.own, write.key))
    if found.refund is None:
        return _checked("not_shown", write, None, waited_s, at, {"ambiguous": True} if found.ambiguous else {})
    differs = _differences(write, found.refund)
    left = _excess(own, found.refund, refunds, facts)
    verdict = _verdict(found.refund, differs, left)
    return _checked(verdict, write, found.refund, waited_s, at, _notes(verdict, differs, left, found.refund, refunds))


def _verdict(refund: Refund, differs: list[str], left: Money | None) -> Verdict:
    if differs:
        return "mismatch"
    if not rules.counted(refund.state):
        return "failed"
    if left is None or left.minor < 0:
        # Sums that mix currencies cannot show that the order is not over-refunded, so a person looks.
        return "over_refunded"
    return "passed" if refund.state == SUCCEEDED else "pending"


def _differences(write: SeenWrite, refund: Refund) -> list[str]:
    """Names of the fields in which the refund is not what was asked; what a list does not keep is no difference."""
    asked: dict[str, Any] = {
        "order_id": write.order_id, "payment_id": write.payment_id, "amount": write.amount,
        "refund_id": write.refund_id or refund.refund_id,
        "idempotency_key": write.key if refund.idempotency_key else refund.idempotency_key,
    }  # fmt: skip
    named = [name for name, value in asked.items() if getattr(refund, name) != value]
    listed = refund.metadata or {}
    sent = _metadata(write)
    return named + [f"metadata.{k}" for k in sorted(sent) if k in listed and listed[k] != sent[k]]


def _metadata(write: SeenWrite) -> Json:
    # The frozen body is what went on the wire; anything else would compare the refund with a reconstruction.
    body = strict_loads(write.body)
    metadata = body.get("metadata") if isinstance(body, dict) else None
    return metadata if isinstance(metadata, dict) else {}


def _own(write: SeenWrite) -> OwnWrite:
    sent = [a.sent_at for a in write.attempts if a.sent_at is not None]
    return OwnWrite(
        key=write.key, run_id="", payment_id=write.payment_id, amount=write.amount, state=write.state,
        refund_id=write.refund_id, intent_at=write.intent_at, first_sent_at=min(sent, default=None),
    )  # fmt: skip


def _excess(own: OwnWrite, refund: Refund, refunds: Sequence[Refund], facts: OrderFacts) -> Money | None:
    """captured - refunded - amount_due with everything counted, this refund too; None where currencies mix."""
    known = replace(own, refund_id=refund.refund_id)
    others = tuple(o for o in facts.own if o.key != own.key)
    whole = replace(facts, own=(*others, known), refunds=(*facts.refunds, *refunds))
    try:
        return rules.excess(whole, leave_out=None)
    except CurrencyMismatch:
        return None


def _notes(verdict: Verdict, differs: list[str], left: Money | None, refund: Refund, refunds: Sequence[Refund]) -> Json:
    notes: Json = {"differs": differs} if differs else {}
    if left is not None:
        notes["excess_after"] = left.wire()
    if verdict == "over_refunded":
        others = {r.refund_id for r in refunds if rules.counted(r.state)} - {refund.refund_id}
        notes["other_refunds"] = sorted(others)
    return notes


def _checked(
    verdict: Verdict, write: SeenWrite, refund: Refund | None, waited_s: float, at: str, notes: Json
) -> Checked:
    record: Json = {
        "check": CHECK, "passed": verdict == "passed", "at": at, "verdict": verdict,
        "refund_id": refund.refund_id if refund else write.refund_id,
        "expected": _expected(write), "found": _found(refund) if refund else None,
        "waited_ms": int(waited_s * 1000), **notes,
    }  # fmt: skip
    return Checked(verdict=verdict, record=record, refund=refund)


def _expected(write: SeenWrite) -> Json:
    return {
        "refund_id": write.refund_id, "order_id": write.order_id, "payment_id": write.payment_id,
        "amount": write.amount.wire(), "state": SUCCEEDED, "idempotency_key": write.key, "metadata": _metadata(write),
    }  # fmt: skip


def _found(refund: Refund) -> Json:
    return {
        "refund_id": refund.refund_id, "order_id": refund.order_id, "payment_id": refund.payment_id,
        "amount": refund.amount.wire(), "state": refund.state, "idempotency_key": refund.idempotency_key,
        "metadata": dict(refund.metadata) if refund.metadata is not None else None,
    }  # fmt: skip
