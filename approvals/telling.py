"""The words of a notice to staff: amount, order, expiry and a link; never a customer's words, never a secret.

Reads no rows. The link leads to the review page behind the sign-in; no message can decide anything, whoever opens it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from agentsite.text import visible
from approvals import labels
from approvals.models import Approval

REVIEW = "/admin/approvals/approval/{}/change/"
LIST = "/admin/approvals/approval/"
LEADS = {
    "asked": "Needs a decision",
    "second_person": "Needs a second person",
    "reminder_50": "Still waits for a decision",
    "reminder_90": "About to expire",
    "expired": "Expired, undecided",
}
MAX_LISTED = 20
CLOSING = "Nothing can be decided from this message: the link asks you to sign in."


@dataclass(frozen=True, kw_only=True)
class Message:
    subject: str
    text: str


def of_approval(kind: str, row: Approval, *, site: str, now: datetime) -> Message:
    """The message of one approval; `site` is how the world reaches us."""
    what = _what(row)
    left_s = (row.expires_at - now).total_seconds()
    lines = [f"{LEADS.get(kind, labels.spoken(kind))}: {what}.", f"Tenant: {visible(row.tenant_id)}"]
    if kind == "expired":
        lines += [
            f"Its time ended at {labels.moment(row.expires_at)}. Nobody decided, so nothing runs; it is no rejection.",
            "Staff can ask again from its run.",
        ]
    else:
        lines.append(f"Expires {labels.moment(row.expires_at)}, in {labels.duration(left_s)}.")
    if row.required > 1 and kind != "expired":
        second = kind == "second_person"
        lines.append("One person approved it; a different one must agree." if second else "Two people must agree.")
    lines.append(f"Review it: {site}{REVIEW.format(row.pk)}")
    return Message(subject=f"{LEADS.get(kind, labels.spoken(kind))}: {what}", text=_closed(lines))


def of_digest(tenant_id: str, rows: Sequence[Approval], waiting: int, *, site: str, now: datetime) -> Message:
    """What waits for a decision, the soonest expiry first; `rows` are at most MAX_LISTED of `waiting`."""
    noun = "refund waits" if waiting == 1 else "refunds wait"
    head = f"{waiting} {noun} for a decision at {visible(tenant_id)}"
    lines = [f"{head}.", *(f"- {_what(row)}: {_left(row, now)} {site}{REVIEW.format(row.pk)}" for row in rows)]
    if waiting > len(rows):
        lines.append(f"and {waiting - len(rows)} more: {site}{LIST}")
    return Message(subject=head, text=_closed(lines))


def _what(row: Approval) -> str:
    tool = "refund" if row.tool == "issue_refund" else labels.spoken(row.tool).lower()
    return f"{tool} of {labels.amount(row.amount_minor, row.currency)}, order {visible(row.order_id)}"


def _left(row: Approval, now: datetime) -> str:
    left_s = (row.expires_at - now).total_seconds()
    return f"expires in {labels.duration(left_s)}" if left_s > 0 else "its time is over"


def _closed(lines: Sequence[str]) -> str:
    return "\n".join([*lines, "", CLOSING])
