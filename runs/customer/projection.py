"""Door: what a customer may see of his request, as one frozen value made here alone. Reads rows, writes none (M109).

Every sentence about money is the run's `customer_message`; an amount and a reference stand beside it only where that
refund is confirmed. What staff wrote, decided or noted has no field here; why they said no is in the message (M41).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from agentsite import canonical, clock, dbtime, env
from approvals.models import Approval
from runs import reply, store
from runs.models import Attachment, Event, Input, Run, Write
from runs.states import TERMINAL
from runs.store.tell import STAFF
from runs.story import Story

MAX_SAID = 30
TOLD = {"customer.told": "text", "customer.asked": "question"}
ENDED = frozenset(s.value for s in TERMINAL)
DECIDED = ("approved", "rejected", "consumed")
RECEIVED, CHECKING, PERSON, REFUND, RESULT = range(5)
STEPS = ("Request received", "Checking your order and payments", "Review by a person", "Refund", "Result")
IF_NEEDED = {PERSON: "if one is needed", REFUND: "if one is due"}
AT = {
    "accepted": RECEIVED, "gathering": CHECKING, "action_proposed": CHECKING, "waiting_reply": CHECKING,
    "waiting_dependency": CHECKING, "awaiting_approval": PERSON, "approval_expired": PERSON, "approved": REFUND,
    "executing": REFUND, "executed": REFUND, "verified": RESULT,
}  # fmt: skip
NOW = {
    "accepted": "Request received",
    "waiting_reply": "Waiting for your answer",
    "awaiting_approval": "Waiting for a review by a person",
    "approval_expired": "Still waiting for a person to look at it",
    "approved": "Refund being prepared",
    "executing": "Refund being sent",
    "executed": "Refund sent, waiting for its confirmation",
    "verified": "Writing our answer",
}
HEADLINES = {
    "accepted": "We have your request",
    "waiting_reply": "We need an answer from you",
    "awaiting_approval": "Your request waits for a review by a person",
    "approval_expired": "Your request is still waiting for a person",
    "approved": "A refund is being prepared",
    "executing": "A refund is being worked on",
    "executed": "A refund is waiting to be confirmed",
    "verified": "We are finishing our answer",
    "cancelled": "Your request was cancelled",
    "failed": "We could not finish your request",
}
CHECKS, CONFIRMED = "We are checking your request", "Your refund is confirmed"
DUE_BY_ROW = frozenset({"waiting_dependency", "executing", "executed"})


@dataclass(frozen=True, kw_only=True)
class Step:
    """One line of the way: `state` is done, current or later."""

    name: str
    state: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Said:
    """Something the customer wrote, with the names of his files, or something that he was told."""

    ours: bool
    text: str
    at: datetime
    files: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MadeRefund:
    """A refund that is confirmed."""

    amount: str
    reference: str


@dataclass(frozen=True, kw_only=True)
class Thumb:
    """The customer's own rating: `up` or `down`, and his words."""

    rating: str
    text: str


@dataclass(frozen=True, kw_only=True)
class CustomerView:
    """A request as its customer sees it. `until` is a time that a row holds, with what happens then; `over` means that
    nothing more is to come; `open` that he may write."""

    reference: str
    language: str
    headline: str
    message: str
    steps: tuple[Step, ...]
    until: datetime | None
    until_words: str
    refunds: tuple[MadeRefund, ...]
    said: tuple[Said, ...]
    asked: bool
    open: bool
    over: bool
    thumb: Thumb | None

    @property
    def mark(self) -> str:
        """Changes whenever anything here does."""
        return canonical.sha256(_plain(asdict(self)))[7:31]


def of(run: Run) -> CustomerView:
    """What the customer sees of a run now."""
    story = store.story(str(run.id))
    refunds = tuple(
        MadeRefund(amount=str(w.amount), reference=w.refund_id) for w in reply.confirmed(story) if w.refund_id
    )
    over = _over(run)
    headline, (until, words) = _headline(run, story, bool(refunds)), _until(run)
    return CustomerView(
        reference=run.request_id, language=story.language if len(story.language) == 2 else "", headline=headline,
        message=reply.customer_message(story), steps=_steps(run, bool(refunds), over, headline), until=until,
        until_words=words, refunds=refunds, said=_said(run), asked=run.status == "waiting_reply",
        open=run.status not in ENDED, over=over, thumb=_thumb(run),
    )  # fmt: skip


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return clock.rfc3339(value) if isinstance(value, datetime) else value


def _over(run: Run) -> bool:
    """An escalated run has ended for the program; for its customer a person is looking, until he has dealt with it."""
    if run.status == "escalated":
        return run.outcome in ("resolved_by_staff", "refunded")
    return run.status in ENDED


def _headline(run: Run, story: Story, refunded: bool) -> str:
    if run.outcome == "resolved_by_staff":
        return "Your request has been dealt with"
    if run.status in ("completed", "escalated") and run.outcome == "refunded" and refunded:
        return CONFIRMED
    if run.status == "escalated":
        return "Your request was handed to a person"
    if run.status == "completed":
        failed = run.outcome == "refund_failed"
        return "A refund did not go through" if failed else "Your request has been answered"
    if run.status == "waiting_dependency" and story.has_open_write:
        return HEADLINES["executing"]
    return HEADLINES.get(run.status, CHECKS)


# --- the way ---------------------------------------------------------------------------------------------------


def _steps(run: Run, refunded: bool, over: bool, headline: str) -> tuple[Step, ...]:
    if over:
        done = [Step(name=name, state="done") for name in _happened(run, refunded)]
        return (*done, Step(name="Refund confirmed" if headline == CONFIRMED else headline, state="current"))
    status = _where(run)
    here = AT.get(status, CHECKING)
    done = [Step(name=STEPS[n], state="done") for n in range(here) if n != PERSON or _reviewed(run)]
    note = "waiting for a system we need" if run.status == "waiting_dependency" else ""
    current = Step(name=NOW.get(status, STEPS[CHECKING]), state="current", note=note)
    later = [Step(name=STEPS[n], state="later", note=IF_NEEDED.get(n, "")) for n in range(here + 1, RESULT + 1)]
    return (*done, current, *later)


def _where(run: Run) -> str:
    """The status that the way is drawn by: a run that waits for a system stands where it will go on."""
    if run.status == "escalated":
        return "awaiting_approval"
    return (run.resume_status or run.status) if run.status == "waiting_dependency" else run.status


def _happened(run: Run, refunded: bool) -> Iterable[str]:
    yield STEPS[RECEIVED]
    if run.model_calls:
        yield STEPS[CHECKING]
    if _reviewed(run) or run.status == "escalated":
        yield STEPS[PERSON]
    if refunded and run.outcome != "refunded":
        yield "Refund confirmed"


def _reviewed(run: Run) -> bool:
    """Whether a person decided; a question that expired or was overtaken was decided by nobody."""
    return Approval.objects.filter(run_id=run.id, status__in=DECIDED).exists()


def _until(run: Run) -> tuple[datetime | None, str]:
    """The next moment at which something is sure to be done, where a row holds one; and what that is."""
    at, words = _next(run)
    if at is None or at <= dbtime.now():
        return None, ""
    # A minute's grain: rounded up, so that the promise is kept.
    return at.replace(second=0, microsecond=0) + timedelta(minutes=1), words


def _next(run: Run) -> tuple[datetime | None, str]:
    settings, again = env.read(), "We will look at it again by"
    if run.status == "awaiting_approval":
        pending = Approval.objects.filter(id=run.approval_id, status="pending").first()
        return (pending.expires_at, again) if pending else (None, "")
    if run.status == "approval_expired":
        return run.status_since + timedelta(seconds=settings.ASK_AGAIN_FOR_S), again
    if run.status == "waiting_reply":
        ends_at = run.status_since + timedelta(seconds=settings.REPLY_FOR_S)
        return ends_at, "If we do not hear from you, a person takes over on"
    if run.status == "escalated":
        looked = Write.objects.filter(run=run, look_at__isnull=False).order_by("look_at").first()
        return (looked.look_at, again) if looked else (None, "")
    return (run.due_at, again) if run.status in DUE_BY_ROW else (None, "")


# --- what was said ---------------------------------------------------------------------------------------------


def _said(run: Run) -> tuple[Said, ...]:
    """The request, then what the customer wrote and what he was told since, in order; the newest MAX_SAID."""
    files = _files(run)
    mine = Input.objects.filter(run=run, kind="message").exclude(by__startswith=STAFF).order_by("-seq")[:MAX_SAID]
    told = Event.objects.filter(run=run, type__in=TOLD).order_by("-seq")[:MAX_SAID]
    found = [(i.seq, Said(ours=False, text=i.text, at=i.at, files=files.get(i.seq, ()))) for i in mine]
    found += [(e.seq, Said(ours=True, text=_told(e), at=e.at)) for e in told]
    goal: object = run.contract.get("goal") if isinstance(run.contract, dict) else ""
    first = Said(ours=False, text=str(goal or ""), at=run.created_at, files=files.get(None, ()))
    newest = [said for _, said in sorted(found, key=lambda pair: pair[0])[-MAX_SAID:]]
    return tuple(said for said in (first, *newest) if said.text)  # what was erased leaves no line


def _told(event: Event) -> str:
    return str((event.payload or {}).get(TOLD[event.type], ""))


def _files(run: Run) -> dict[int | None, tuple[str, ...]]:
    """Names of the customer's files, under the message they came with."""
    found: dict[int | None, tuple[str, ...]] = {}
    for seq, name in Attachment.objects.filter(run=run).order_by("position").values_list("input_seq", "name"):
        found[seq] = (*found.get(seq, ()), name)
    return found


def _thumb(run: Run) -> Thumb | None:
    given = getattr(run, "feedback", None)
    return Thumb(rating=given.rating, text=given.text) if given is not None else None
