"""Keeper: what an answer must be to count: on this action, in time, with its reason and its statement. Writes nothing.

Knows no runs, no gate, no model; imports none of them. `approvals.queue` asks here, holding the row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from agentsite import clock
from agentsite.refusals import Refusal
from agentsite.text import storable
from approvals import permits, reasons
from approvals.models import Approval
from approvals.states import Approved

MAX_REASON = 2000
MAX_ATTESTATION = 500
SPOKEN = {"approve": "approved", "reject": "rejected"}

Shown = Callable[[Approval], str]
"""The hash over what a page of this row shows now; a door that has no page gives none."""


@dataclass(frozen=True, kw_only=True)
class Decided:
    """A decision that stands. `same-again` changed nothing; `remaining` people must still agree."""

    kind: Literal["recorded", "same-again"]
    approval_id: str
    status: str
    decision: str
    by: str
    at: datetime
    remaining: int


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One person's try at deciding, as it arrived; `reason` is his free text, `attestation` what he states."""

    user: permits.Person
    decision: str
    action_hash: str
    reason: str
    address: str
    screen_hash: str
    now: datetime
    reason_code: str = ""
    attestation: str = ""

    @property
    def told(self) -> str:
        """What stands as the approval's reason: of a rejection, what model and customer learn (M41)."""
        return reasons.told(self.reason_code, self.reason) if self.decision == "reject" else self.reason


def statement(text: str) -> str:
    """A statement as it is stored, shown and compared: one line, nothing invisible, at most MAX_ATTESTATION."""
    return storable(" ".join(text.split()))[:MAX_ATTESTATION]


def barred(row: Approval, attempt: Attempt) -> Refusal | None:
    """Why this person's answer cannot be taken whatever he says: who he is, another action, void, too late."""
    return permits.objection(row, attempt.user) or _closed(row, attempt)


def unfit(row: Approval, attempt: Attempt, shown: Shown | None) -> Refusal | None:
    """Why an answer to a pending approval is not taken as it is: stale page, no reason, nothing stated."""
    if attempt.decision == "approve" and shown is not None and attempt.screen_hash != shown(row):
        return Refusal(409, "screen-changed", "The page changed while you looked.", "Read it again, then decide.")
    return _unreasoned(attempt) or _unattested(row, attempt)


def _closed(row: Approval, attempt: Attempt) -> Refusal | None:
    if attempt.action_hash != row.action_hash:
        return Refusal(409, "action-changed", "This is not the action you looked at.", "Read it again before deciding.")
    if row.status == Approved.VOID:
        return Refusal(409, "approval-void", "This approval is void.", "The run went on without it; nothing was sent.")
    if row.status == Approved.EXPIRED or (row.status == Approved.PENDING and row.expires_at <= attempt.now):
        return Refusal(
            409, "approval-expired", "This approval expired undecided.", f"Its time ended at {when(row.expires_at)}."
        )
    return None


def _unreasoned(attempt: Attempt) -> Refusal | None:
    known = reasons.KNOWN.get(attempt.reason_code)
    if attempt.reason_code and (known is None or known.decision != attempt.decision):
        fits = ", ".join(r.code for r in reasons.fitting(attempt.decision))
        return _asks("reason_code", "unknown-reason", "This is no reason for this decision.", f"One of: {fits}.")
    if len(attempt.reason) > MAX_REASON:
        return _asks("reason", "reason-too-long", "The reason is too long.", f"At most {MAX_REASON} characters.")
    if attempt.decision == "reject" and not attempt.told:
        return _asks("reason", "reason-required", "A rejection needs a reason.", "The customer is told of it.")
    return None


def _unattested(row: Approval, attempt: Attempt) -> Refusal | None:
    if attempt.decision != "approve" or not row.attestation or statement(attempt.attestation) == row.attestation:
        return None
    said = f"To approve, state exactly: “{row.attestation}”"
    return _asks("attestation", "attestation-required", "An approval of this needs your statement.", said)


CODES = {"reason-required": "required", "attestation-required": "required", "reason-too-long": "too_long"}


def _asks(field: str, slug: str, title: str, detail: str) -> Refusal:
    where = [{"pointer": f"/{field}", "code": CODES.get(slug, "unknown"), "detail": detail}]
    return Refusal(422, slug, title, detail, where)


def already(row: Approval) -> Refusal:
    """409 with who decided what, and when."""
    last = row.decisions.filter(counted=True).last()
    said = f"{last.by} {SPOKEN[last.decision]} it at {when(last.at)}." if last else f"It is {row.status}."
    return Refusal(409, "already-decided", "This was already decided.", said)


def when(moment: datetime) -> str:
    return clock.rfc3339(moment)
