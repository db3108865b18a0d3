"""Paper: the one table of what an ended run says about the service: success, handed over as it should, or a failure.

A failure spends the error budget. What the customer, a rule or a person decided is none, however it ended; an end
that the table does not know is one, until somebody has judged it here. Imports nothing but the statuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from runs.states import Status


class Kind(StrEnum):
    """What an end was: `beside` counts nowhere, since nobody asked the service for more, or it was not to act."""

    SUCCESS = "success"
    HANDED = "handed"
    FAILURE = "failure"
    BESIDE = "beside"


@dataclass(frozen=True, kw_only=True)
class End:
    """What an end is, why it is that, and whether a cap of the run's brought it about."""

    kind: Kind
    why: str
    cap: bool = False


def _failure(why: str) -> End:
    return End(kind=Kind.FAILURE, why=why)


def _cap(why: str) -> End:
    return End(kind=Kind.FAILURE, why=why, cap=True)


def _handed(why: str) -> End:
    return End(kind=Kind.HANDED, why=why)


REASONS: dict[str, End] = {
    "budget_exhausted": _cap("calls, tokens, money or tries at a refund were used up first"),
    "deadline_exceeded": _cap("active time was used up first"),
    "repair_exhausted": _cap("the model's answers stayed unusable after every repair"),
    "no_usable_output": _cap("the model said nothing usable after every repair"),
    "loop_detected": _cap("the model repeated itself until it was stopped"),
    "context_too_long": _cap("the prompt no longer fitted the model's window"),
    "dependency_unavailable": _failure("a system we call did not answer in time"),
    "policy_stale": _failure("the policy index was older than the policy in force"),
    "route_not_qualified": _failure("no qualified model was there to propose the refund"),
    "approval_invalid": _failure("an approval no longer fitted what it was given for"),
    "outcome_unknown": _failure("nobody knows whether the refund was made"),
    "refund_failed": _failure("the refund was sent and did not succeed"),
    "verification_failed": _failure("the refund that was found is not the one that was approved"),
    "verification_inconclusive": _failure("the refund could not be seen in time"),
    "worker_crash_loop": _failure("a step kept killing its worker"),
    "schema_unknown": _failure("no code could load the run"),
    "needs_a_person": _handed("a rule, a word or a dispute asks for a person, or the customer did not answer"),
    "escalated_by_model": _handed("the model asked for a person, as it is told to where it cannot decide"),
    "escalated_by_staff": _handed("a person took it over"),
    "approval_expired": _handed("a person was asked and did not decide"),
    "over_refunded": _handed("somebody else refunded beside us"),
    "shadow_mode": End(kind=Kind.BESIDE, why="it was in shadow mode: it was not to act"),
}  # fmt: skip
SHADOW = REASONS["shadow_mode"]
UNKNOWN = _failure("an end that this table does not know")
FAILED_AFTERWARDS = ("refund_failed", "partly_refunded", "resolved_by_staff")
"""Outcomes that a completed run has only once a refund of it failed later, or a person had to finish it for that."""
SUCCESS = End(kind=Kind.SUCCESS, why="it completed by itself, whatever the answer was")
CORRECTED = _failure("it completed, and a refund of it failed afterwards")
CANCELLED = End(kind=Kind.BESIDE, why="the client or staff cancelled it")


def of(status: str, reason: str | None, outcome: str | None, *, shadow: bool = False) -> End:
    """What an ended run is. One that a person finished by hand stays what made it a person's."""
    if shadow:
        return SHADOW
    if status == Status.COMPLETED:
        return CORRECTED if outcome in FAILED_AFTERWARDS else SUCCESS
    if status == Status.CANCELLED:
        return CANCELLED
    found = REASONS.get(reason or "", UNKNOWN)
    return UNKNOWN if status == Status.FAILED and found.kind is not Kind.FAILURE else found
