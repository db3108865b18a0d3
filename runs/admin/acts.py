"""What staff may do to a run, as a table: when it is offered, for which reasons, and the keeper that does it.

Part of a door: it leaves a row and nudges; it imports no control.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agentsite import queues
from agentsite.refusals import Refusal
from agentsite.text import has_forbidden
from runs import store
from runs.errors import RunEnded
from runs.models import LIVE_VALUES, OPEN_WRITES, Run, Write
from runs.store.by_hand import MAX_NOTE, MAX_TEXT, RESOLVED, may_finish
from runs.store.tell import STAFF

PERMISSION = "runs.operate_run"
UNDER_WAY = ("executing", "executed", "verified")
OTHER = {"other": "Another reason, written below"}


@dataclass(frozen=True, kw_only=True)
class Form:
    """What a person sent: a reason's slug, a note for colleagues, for a finish the customer's text."""

    reason: str
    note: str
    text: str
    seen_seq: int


@dataclass(frozen=True, kw_only=True)
class Act:
    """One button. `do` returns what to say afterwards and raises Refusal where it is no longer so."""

    slug: str
    button: str
    effect: str
    offered: Callable[[Run], bool]
    do: Callable[[Run, Form, str], str]
    reasons: Mapping[str, str] = field(default_factory=dict)
    grave: bool = False
    tells_customer: bool = False


def live(run: Run) -> bool:
    return run.status in LIVE_VALUES


def _finishable(run: Run) -> bool:
    return may_finish(run.status, run.outcome) and run.outcome != RESOLVED and not _has_open_write(run)


def _has_open_write(run: Run) -> bool:
    return Write.objects.filter(run=run, state__in=OPEN_WRITES).exists()


def _leave(run: Run, kind: str, message_id: str, form: Form, by: str) -> str:
    """Leave an input, once; a worker takes it up."""
    try:
        left = store.append_input(
            str(run.pk), kind=kind, message_id=message_id, text=form.note, by=f"{STAFF}{by}", reason=form.reason
        )
    except RunEnded:
        raise Refusal(409, "run-ended", "The run has ended meanwhile.", "Nothing was changed.") from None
    queues.nudge(str(run.pk), left.status)
    return "Saved; a worker takes it up." if left.new else "It was asked for already; nothing was done twice."


def _ask_again(run: Run, form: Form, by: str) -> str:
    return _leave(run, "ask_again", f"ask_again:{run.approval_id}", form, by)


def _escalate(run: Run, form: Form, by: str) -> str:
    return _leave(run, "escalate", "escalate", form, by)


def _cancel(run: Run, form: Form, by: str) -> str:
    return _leave(run, "cancel", "cancel", form, by)


def _hurry(run: Run, form: Form, by: str) -> str:
    if not store.hurry(str(run.pk), by=by, reason=form.reason, note=form.note):
        raise Refusal(409, "not-waiting", "A worker has this run, or it has ended.", "Nothing was changed.")
    queues.nudge(str(run.pk), run.status)
    return "The run is due now; a worker takes it up."


def _finish(run: Run, form: Form, by: str) -> str:
    given = store.Resolution(
        run_id=str(run.pk), by=by, reason=form.reason, note=form.note, text=form.text, seen_seq=form.seen_seq
    )
    store.finish(given)
    return "Finished by hand; the customer is told your words."


ACTS: dict[str, Act] = {
    act.slug: act
    for act in (
        Act(
            slug="ask-again", button="Ask again", do=_ask_again, offered=lambda run: run.status == "approval_expired",
            effect="The gate runs afresh on the facts of now. Where a person is still needed, a new approval waits in "
            "the queue; the expired one is not revived.",
            reasons={"nobody_was_there": "Nobody was there in time", "customer_still_waits": "The customer still waits",
                     **OTHER},
        ),
        Act(
            slug="hurry", button="Retry now", do=_hurry, offered=live,
            effect="The run is due at once instead of at its own time. Nothing else changes: every check and every "
            "wait that protects money is made again.",
            reasons={"dependency_is_back": "What it waits for is back", "fault_fixed": "A fault was fixed", **OTHER},
        ),
        Act(
            slug="escalate", button="Take over", do=_escalate, grave=True,
            offered=lambda run: live(run) and run.status not in UNDER_WAY,
            effect="The run ends as handed to a person, with all its evidence; an open approval becomes void. "
            "It does not start again: finish it by hand afterwards.",
            reasons={"customer_asked_for_a_person": "The customer asked for a person",
                     "unusual_case": "An unusual case", "suspected_fraud": "Suspected fraud", **OTHER},
        ),
        Act(
            slug="cancel", button="Cancel the run", do=_cancel, grave=True, offered=live,
            effect="The run ends as cancelled. A write that is under way is reconciled and verified first, and the "
            "customer is told the truth about it; nothing is undone.",
            reasons={"customer_asked": "The customer asked for it", "duplicate_request": "A duplicate request",
                     "opened_by_mistake": "Opened by mistake", **OTHER},
        ),
        Act(
            slug="finish", button="Finish by hand", do=_finish, offered=_finishable, tells_customer=True,
            effect="The outcome becomes “resolved by staff” and your text is the reply to the customer. The status "
            "never changes.",
            reasons={"settled_elsewhere": "Settled in another system", "explained": "Explained to the customer",
                     "not_eligible": "Nothing is due", "duplicate_request": "A duplicate request", **OTHER},
        ),
    )
}  # fmt: skip


def offered(run: Run) -> list[Act]:
    """The acts that a run allows as it stands."""
    return [act for act in ACTS.values() if act.offered(run)]


def check(act: Act, form: Form) -> None:
    """What a person sent, whatever run it is for. Raises Refusal."""
    if form.reason not in act.reasons:
        raise Refusal(400, "reason-missing", "Choose a reason.")
    if form.reason == "other" and not form.note.strip():
        raise Refusal(400, "note-missing", "Write the reason down.")
    if has_forbidden(form.note) or has_forbidden(form.text):
        raise Refusal(400, "forbidden-characters", "The text holds characters that cannot be stored.")
    if len(form.note) > MAX_NOTE or len(form.text) > MAX_TEXT:
        raise Refusal(400, "too-long", "The text is too long.", f"{MAX_NOTE} for the note, {MAX_TEXT} to say.")


def perform(act: Act, run: Run, form: Form, by: str) -> str:
    """Do it, once, with its reason on the record. Raises Refusal."""
    check(act, form)
    if not act.offered(run):
        raise Refusal(409, "not-offered", "This run no longer allows that.", f"It is {run.status}.")
    return act.do(run, form, by)
