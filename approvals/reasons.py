"""Paper: why people decide as they do, as a fixed list of codes. Imports no Django, no clock, no rows.

A rejection's code has one sentence that the model and the customer learn, word for word; the free text beside it stays
with staff. With `other`, or with no code at all, the free text is the reason and is what they learn (M41).
"""

from __future__ import annotations

from dataclasses import dataclass

OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class Reason:
    """`label` is for staff; `told` for model and customer, "" where they learn the free text or nothing."""

    code: str
    label: str
    decision: str
    told: str = ""


LISTED: tuple[Reason, ...] = (
    Reason(code="duplicate_confirmed", decision="approve", label="Duplicate charge confirmed"),
    Reason(code="order_cancelled", decision="approve", label="Order cancelled, returned or repriced"),
    Reason(code="system_error", decision="approve", label="Our own system's mistake"),
    Reason(
        code="evidence_insufficient", decision="reject", label="Evidence insufficient",
        told="The records do not show enough to support this refund.",
    ),
    Reason(
        code="customer_error", decision="reject", label="Customer's mistake",
        told="The charges were found to be correct.",
    ),
    Reason(
        code="not_covered", decision="reject", label="Not covered by the policy",
        told="The refund policy does not cover this case.",
    ),
    Reason(code="wrong_amount", decision="reject", label="Wrong amount", told="The proposed amount was not correct."),
    Reason(
        code="wrong_payment", decision="reject", label="Wrong payment",
        told="The refund was proposed for a payment that it does not belong to.",
    ),
    Reason(
        code="already_settled", decision="reject", label="Already settled another way",
        told="This was already settled in another way.",
    ),
    Reason(
        code="suspected_fraud", decision="reject", label="Suspected fraud (not said to the customer)",
        told="The request could not be verified.",
    ),
    Reason(code=OTHER, decision="reject", label="Other: the customer is told the text below"),
)  # fmt: skip
KNOWN = {reason.code: reason for reason in LISTED}
CODES = tuple(KNOWN)


def fitting(decision: str) -> tuple[Reason, ...]:
    """The reasons for one decision, in the order in which they are offered."""
    return tuple(reason for reason in LISTED if reason.decision == decision)


def told(code: str, text: str) -> str:
    """What model and customer learn of a rejection, and what stands as the approval's reason."""
    known = KNOWN.get(code)
    return known.told if known is not None and known.told else text
