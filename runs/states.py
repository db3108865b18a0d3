"""The one table of statuses and legal transitions. A paper: no Django, no clock.

`next_status` is the only way to a new status; a pair that is not in the table raises IllegalTransition (M10).
"""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    ACCEPTED = "accepted"
    GATHERING = "gathering"
    ACTION_PROPOSED = "action_proposed"
    AWAITING_APPROVAL = "awaiting_approval"
    APPROVED = "approved"
    EXECUTING = "executing"
    EXECUTED = "executed"
    VERIFIED = "verified"
    WAITING_DEPENDENCY = "waiting_dependency"
    WAITING_REPLY = "waiting_reply"
    APPROVAL_EXPIRED = "approval_expired"
    COMPLETED = "completed"
    ESCALATED = "escalated"
    CANCELLED = "cancelled"
    FAILED = "failed"


class On(StrEnum):
    """What happened to a run, in the past tense."""

    EVIDENCE_FOUND = "evidence_found"
    READS_PROPOSED = "reads_proposed"
    READS_OBSERVED = "reads_observed"
    OUTPUT_REJECTED = "output_rejected"
    MESSAGE_FOLDED = "message_folded"
    MESSAGE_SHOWN = "message_shown"
    WRITE_PROPOSED = "write_proposed"
    REPLY_SENT = "reply_sent"
    ASKED = "asked"
    ANSWERED = "answered"
    GATE_ALLOWED = "gate_allowed"
    GATE_NEEDS_APPROVAL = "gate_needs_approval"
    GATE_DENIED = "gate_denied"
    APPROVAL_GRANTED = "approval_granted"
    APPROVAL_REJECTED = "approval_rejected"
    APPROVAL_EXPIRED = "approval_expired"
    RELEASED = "released"
    RELEASE_HELD = "release_held"
    RELEASE_DENIED = "release_denied"
    RELEASE_ASKED_AFRESH = "release_asked_afresh"
    WRITE_DONE = "write_done"
    WRITE_RESENT = "write_resent"
    WRITE_UNDETERMINED = "write_undetermined"
    WRITE_NOT_MADE = "write_not_made"
    WRITE_VERIFIED = "write_verified"
    WRITE_NOT_SHOWN = "write_not_shown"
    DEPENDENCY_DOWN = "dependency_down"
    DEPENDENCY_BACK = "dependency_back"
    CANCELLED = "cancelled"
    ESCALATED = "escalated"
    FAILED = "failed"


class IllegalTransition(Exception):
    """A status and an event that do not go together: a bug of ours, never of the world."""


S = Status
TERMINAL = frozenset({S.COMPLETED, S.ESCALATED, S.CANCELLED, S.FAILED})
LIVE = frozenset(Status) - TERMINAL
WRITING = frozenset({S.EXECUTING, S.EXECUTED, S.VERIFIED})
CANCELLABLE = LIVE - WRITING
RESUMABLE = frozenset({S.ACCEPTED, S.GATHERING, S.ACTION_PROPOSED, S.APPROVED})
WAITING = frozenset({S.AWAITING_APPROVAL, S.WAITING_REPLY, S.WAITING_DEPENDENCY, S.APPROVAL_EXPIRED})
MODEL_TURN = frozenset({S.ACCEPTED, S.GATHERING, S.VERIFIED})
# A run that holds a confirmed write goes back here instead of to gathering: what was done stays told.
RETURNS_TO_VERIFIED = frozenset({S.ACTION_PROPOSED, S.AWAITING_APPROVAL, S.APPROVED, S.EXECUTING, S.APPROVAL_EXPIRED})

_GATHERING_ON = (On.READS_PROPOSED, On.READS_OBSERVED, On.OUTPUT_REJECTED, On.MESSAGE_FOLDED)
TRANSITIONS: dict[tuple[Status, On], frozenset[Status]] = {
    (S.ACCEPTED, On.EVIDENCE_FOUND): frozenset({S.ACCEPTED}),
    **{(s, on): frozenset({S.GATHERING}) for s in (S.ACCEPTED, S.GATHERING) for on in _GATHERING_ON},
    **{(S.VERIFIED, on): frozenset({S.VERIFIED}) for on in _GATHERING_ON},
    **{(s, On.WRITE_PROPOSED): frozenset({S.ACTION_PROPOSED}) for s in MODEL_TURN},
    **{(s, On.REPLY_SENT): frozenset({S.COMPLETED}) for s in MODEL_TURN},
    (S.GATHERING, On.ASKED): frozenset({S.WAITING_REPLY}),
    (S.WAITING_REPLY, On.ANSWERED): frozenset({S.GATHERING}),
    (S.ACTION_PROPOSED, On.GATE_ALLOWED): frozenset({S.APPROVED}),
    (S.ACTION_PROPOSED, On.GATE_NEEDS_APPROVAL): frozenset({S.AWAITING_APPROVAL}),
    (S.ACTION_PROPOSED, On.GATE_DENIED): frozenset({S.GATHERING}),
    (S.ACTION_PROPOSED, On.MESSAGE_FOLDED): frozenset({S.GATHERING}),
    (S.AWAITING_APPROVAL, On.APPROVAL_GRANTED): frozenset({S.APPROVED}),
    (S.AWAITING_APPROVAL, On.APPROVAL_REJECTED): frozenset({S.GATHERING}),
    (S.AWAITING_APPROVAL, On.APPROVAL_EXPIRED): frozenset({S.APPROVAL_EXPIRED}),
    (S.AWAITING_APPROVAL, On.MESSAGE_FOLDED): frozenset({S.GATHERING}),
    (S.AWAITING_APPROVAL, On.MESSAGE_SHOWN): frozenset({S.AWAITING_APPROVAL}),
    (S.APPROVAL_EXPIRED, On.GATE_NEEDS_APPROVAL): frozenset({S.AWAITING_APPROVAL}),
    (S.APPROVAL_EXPIRED, On.GATE_ALLOWED): frozenset({S.APPROVED}),
    (S.APPROVAL_EXPIRED, On.GATE_DENIED): frozenset({S.GATHERING}),
    (S.APPROVAL_EXPIRED, On.MESSAGE_FOLDED): frozenset({S.GATHERING}),
    (S.APPROVED, On.RELEASED): frozenset({S.EXECUTING}),
    (S.APPROVED, On.RELEASE_HELD): frozenset({S.APPROVED}),
    (S.APPROVED, On.RELEASE_DENIED): frozenset({S.GATHERING}),
    (S.APPROVED, On.RELEASE_ASKED_AFRESH): frozenset({S.AWAITING_APPROVAL}),
    (S.APPROVED, On.MESSAGE_FOLDED): frozenset({S.GATHERING}),
    (S.APPROVED, On.MESSAGE_SHOWN): frozenset({S.APPROVED}),
    (S.EXECUTING, On.WRITE_DONE): frozenset({S.EXECUTED}),
    (S.EXECUTING, On.WRITE_RESENT): frozenset({S.EXECUTING}),
    (S.EXECUTING, On.WRITE_UNDETERMINED): frozenset({S.EXECUTING}),
    (S.EXECUTING, On.WRITE_NOT_MADE): frozenset({S.GATHERING}),
    (S.EXECUTED, On.WRITE_VERIFIED): frozenset({S.VERIFIED}),
    (S.EXECUTED, On.WRITE_NOT_SHOWN): frozenset({S.EXECUTED}),
    **{(s, On.DEPENDENCY_DOWN): frozenset({S.WAITING_DEPENDENCY}) for s in RESUMABLE},
    (S.WAITING_DEPENDENCY, On.DEPENDENCY_BACK): RESUMABLE,
    **{(s, On.CANCELLED): frozenset({S.CANCELLED}) for s in CANCELLABLE},
    **{(s, On.ESCALATED): frozenset({S.ESCALATED}) for s in LIVE - {S.VERIFIED}},
    **{(s, On.FAILED): frozenset({S.FAILED}) for s in LIVE},
}


def next_status(status: Status, on: On, *, confirmed_write: bool = False, resume: Status | None = None) -> Status:
    """The status after an event. `resume` names where a dependency's return leads. Raises IllegalTransition."""
    targets = TRANSITIONS.get((status, on))
    if targets is None:
        raise IllegalTransition(f"{status.value} does not take {on.value}")
    if on is On.DEPENDENCY_BACK:
        if resume not in targets:
            raise IllegalTransition(f"{status.value} cannot resume to {resume}")
        return resume
    (target,) = targets
    returns = target is S.GATHERING or on is On.APPROVAL_EXPIRED
    if returns and confirmed_write and status in RETURNS_TO_VERIFIED:
        return S.VERIFIED
    return target


def as_markdown() -> str:
    """The table for people, a line a status, as the README prints it."""
    lines = ["| from | on → to |", "|---|---|"]
    for status in Status:
        pairs = [(on, to) for (s, on), to in TRANSITIONS.items() if s is status]
        cells = [f"{on.value} → {_targets(status, on, to)}" for on, to in sorted(pairs, key=lambda p: p[0].value)]
        lines.append(f"| `{status.value}` | {'; '.join(cells) or 'terminal'} |")
    return "\n".join(lines)


def _targets(status: Status, on: On, to: frozenset[Status]) -> str:
    if on is On.DEPENDENCY_BACK:
        return "where it was"
    (target,) = to
    further = next_status(status, on, confirmed_write=True)
    return target.value if further is target else f"{target.value} ({further.value} once a refund is confirmed)"
