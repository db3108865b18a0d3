"""What a customer's own words decide before any model is asked: a person takes over, or is asked anew (M116).

Of the run's record alone, so the same words decide the same each time. Calls nobody and writes nothing.
"""

from __future__ import annotations

from runs import precheck
from runs.contracts import NewEvent, Outcome, RunState
from runs.orchestrator import endings, proposals
from runs.states import Status

UNDER_WAY = (Status.EXECUTING, Status.EXECUTED)
ASKED = (Status.AWAITING_APPROVAL, Status.APPROVED)


def look(run: RunState) -> Outcome | None:
    """The outcome that the customer's words alone call for, or None. A write under way is reconciled first."""
    if run.status in UNDER_WAY:
        return None
    found = precheck.found((*precheck.told(run), *_unread(run)), run.contract.sensitive)
    if found.person:
        return _to_a_person(run, found.person)
    return _asked_anew(run, found.approval) if run.status in ASKED else None


def _unread(run: RunState) -> tuple[str, ...]:
    return tuple(i.text for i in run.inputs if i.kind == "message")


def _to_a_person(run: RunState, found: tuple[str, ...]) -> Outcome:
    """No model is asked any more; what was refunded is told by the facts alone, and staff see the words."""
    told = NewEvent(type="notice", meta={"to": "staff", "error": "sensitive_words"}, payload={"words": list(found)})
    if run.status is Status.VERIFIED:
        return endings.complete(run, None, events=(told,))
    return endings.escalate(run, "needs_a_person", events=(told,))


def _asked_anew(run: RunState, found: tuple[str, ...]) -> Outcome | None:
    """Words that whoever was asked may not have seen: the run gathers, and the next question shows them."""
    seen = precheck.for_approval(run)
    open_question = run.approval is not None and run.approval.status in ("pending", "approved")
    if run.pending is None or not open_question or endings.has(run, "cancel") or set(found) <= set(seen):
        return None
    return proposals.superseded(run, run.pending)
