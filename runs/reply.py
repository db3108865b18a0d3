"""What a customer is told: facts rendered by code, the model's prose around them only where it claims nothing.

A paper: no Django, no clock. Every sentence about money is made here from `runs.story`, and is true in every status.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from agentsite.money import Money
from agentsite.text import visible
from runs import wordlists
from runs.story import Story, StoryApproval, StoryOrder, StoryPayment, StoryRefund, StoryWrite, story
from tools import rules

__all__ = [
    "ProseVerdict", "Reply", "Story", "StoryApproval", "StoryOrder", "StoryPayment", "StoryRefund", "StoryWrite",
    "check_prose", "compose", "confirmed", "customer_message", "facts_text", "story",
]  # fmt: skip

MAX_PROSE = 600
MAX_REASON = 500
MAX_LISTED = 10
LIVE = frozenset({
    "accepted", "gathering", "action_proposed", "awaiting_approval", "approved", "executing", "executed", "verified",
    "waiting_dependency", "waiting_reply", "approval_expired",
})  # fmt: skip
WRITING = frozenset({"executing", "executed", "verified"})
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

CHECKING = frozenset({"verification_failed", "verification_inconclusive", "outcome_unknown"})
"""Reasons under which a refund of ours may not be called confirmed."""

LEADS = {
    "accepted": "We have received your request and are looking into it.",
    "gathering": "We are looking into your request.",
    "action_proposed": "We are checking whether a refund can be made.",
    "approved": "A refund is being prepared.",
    "executing": "A refund is being worked on.",
    "executed": "We are waiting for a refund to be confirmed.",
    "verified": "We are finishing our answer to you.",
    "waiting_reply": "We have asked you a question and are waiting for your answer.",
    "cancelled": "Your request was cancelled.",
    "failed": "We could not finish your request because of a fault on our side. Please contact our team.",
}
RECORDS_AWAY = (
    "Our order and payment records are not available at the moment, so {what} be confirmed. "
    "We will go on when they can be read again."
)
MODEL_AWAY = "A system we need is not available at the moment. We will go on with your request when it is."
UNREAD = {
    "get_order": "We could not confirm the order itself.",
    "get_payments": "We could not confirm the payments on record.",
    "get_refund_status": "We could not confirm the refunds on record.",
}
PERSON = "A specialist has taken over your request."
ESCALATED = {
    "policy_stale": "We could not confirm which version of our policy applies, so a specialist is looking at your "
    "request.",
    "approval_invalid": "What was reviewed no longer matches, so a specialist is looking at your request.",
    "approval_expired": "Your request is still waiting for a review; a specialist is looking after it.",
    "outcome_unknown": "A specialist is checking it.",
    "verification_failed": "What we see of it does not match what was asked for; a specialist is checking it.",
    "verification_inconclusive": "We could not find it confirmed; a specialist is checking it.",
    "over_refunded": "A specialist is checking the refunds on this order.",
    "refund_failed": "A specialist is looking at it and will decide what happens next.",
    "payment_disputed": "A payment on this order is disputed with the bank, so a specialist is looking at it.",
    "dependency_unavailable": "A system we need was not available, so a specialist is looking at your request.",
    "approval_rejected": "A specialist is looking at your request.",
    "shadow_mode": "A member of our team is looking at your request.",
}
OPEN_WRITE = {
    "intent": "{What} is being made; it is not confirmed yet.",
    "sent": "{What} was asked for; we could not confirm yet whether it went through.",
    "pending": "{What} has been submitted{ref}; it is not confirmed yet.",
    "confirmed": "{What} has been made and confirmed; its reference is {id}.",
    "unchecked": "{What} has been submitted{ref}; we have not confirmed it yet.",
    "failed": "{What}{ref} did not go through.",
    "refused": "{What} could not be made.",
    "unknown": "We could not confirm whether {what} went through.",
}
LISTED = {
    "succeeded": "{What} was already made; its reference is {id}.",
    "pending": "{What} is already under way; its reference is {id}; it is not confirmed yet.",
    "failed": "An earlier {bare} did not go through; its reference is {id}.",
    "unclear": "{What} is on record with the reference {id}; we could not confirm its state.",
    "unnamed": "{What} was already asked for; it is not confirmed yet.",
}
OTHER_PAYMENTS = {
    "disputed": "A payment of {amount} on it is disputed with the bank.",
    "authorised": "A payment of {amount} on it was authorised but not captured.",
    "failed": "A payment of {amount} on it failed.",
    "unclear": "A payment of {amount} on it is in a state we could not confirm.",
}


@dataclass(frozen=True, kw_only=True)
class ProseVerdict:
    """`kept` is the prose as it may be sent, or empty; `dropped` is the slug of why it was dropped, or None."""

    kept: str
    dropped: str | None = None


@dataclass(frozen=True, kw_only=True)
class Reply:
    text: str
    dropped: str | None = None


def compose(story: Story, prose: str | None) -> Reply:
    """The final reply: the facts, the clauses of policy it quotes, then the model's prose where it holds no fact,
    promise or outcome (M74)."""
    verdict = check_prose(prose or "", story)
    return Reply(text=_paragraphs(facts_text(story), _quoted(story), verdict.kept), dropped=verdict.dropped)


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))


def check_prose(prose: str, story: Story) -> ProseVerdict:
    """Prose is kept whole or dropped whole, never repaired. A language without its word list gets the facts alone."""
    kept = prose.strip()
    if not kept:
        return ProseVerdict(kept="")
    if len(prose) > MAX_PROSE:
        return ProseVerdict(kept="", dropped="too_long")
    moved = story.has_confirmed_write or story.has_open_write
    fault = wordlists.fault(kept, story.language, moved=moved)
    return ProseVerdict(kept="" if fault else kept, dropped=fault)


def facts_text(story: Story) -> str:
    """What was found and what was, or was not, refunded: from typed fields alone, and never a settlement date."""
    return _join([*_found(story), *_money(story), *_nothing_left(story), *_policy(story)])


def customer_message(story: Story) -> str:
    """What the customer may be told at this moment; true in all fifteen statuses and for every reason (M75).

    Where a person finished the run by hand, his own words: record, reply and this agree (M108).
    """
    if story.outcome == "resolved_by_staff":
        return story.said or _join([*_found(story), *_money(story), _escalated(story)])
    if story.status == "completed":
        return _paragraphs(facts_text(story), _quoted(story))
    known = _found(story) if story.status in ("waiting_dependency", "escalated", "failed") else []
    if story.status == "escalated":
        return _join([*known, *_money(story), _escalated(story)])
    return _join([_lead(story), (story.question or "").strip(), *known, *_money(story), *_cancelling(story)])


def _join(sentences: Sequence[str]) -> str:
    return " ".join(dict.fromkeys(s for s in sentences if s))


# --- where the run stands ----------------------------------------------------------------------------------


def _lead(story: Story) -> str:
    refund = "A further refund" if story.has_confirmed_write else "A refund"
    if story.status == "awaiting_approval":
        return f"{refund} has been proposed and is waiting for a review by a member of our team."
    if story.status == "approval_expired":
        return f"{refund} has been proposed and is still waiting for a review by our team."
    if story.status == "approved" and story.waiting_for == "order":
        return f"{refund} is being prepared and is waiting for another one on the same order."
    if story.status == "approved" and story.waiting_for == "staff":
        return f"{refund} is being prepared and is waiting for our team."
    if story.status == "waiting_dependency":
        return _away(story)
    return LEADS.get(story.status, LEADS["gathering"])


def _away(story: Story) -> str:
    if (story.dependency or "").startswith(("model", "search_")):
        return MODEL_AWAY
    known = any(order.payments is not None for order in story.orders)
    return RECORDS_AWAY.format(what="not everything could" if known else "the payments on your order could not")


def _escalated(story: Story) -> str:
    if story.outcome == "resolved_by_staff":
        return "A specialist has dealt with your request."
    if story.reason in CHECKING and story.outcome == "refunded":
        return ""
    if story.reason == "outcome_unknown" and not story.has_open_write:
        return PERSON
    return ESCALATED.get(story.reason or "", PERSON)


def _cancelling(story: Story) -> list[str]:
    if not story.cancel_asked or story.status not in LIVE:
        return []
    if story.has_open_write:
        return ["You asked us to cancel; a refund that is under way is followed to its end first."]
    return ["You asked us to cancel your request."]


# --- money -------------------------------------------------------------------------------------------------


def _money(story: Story) -> list[str]:
    """Every sentence about refunds: those of others, ours, none; what was done is told in every later message."""
    return [*_listed(story), *_rejected(story), *_writes(story), *_none(story), *_after(story)]


def _writes(story: Story) -> list[str]:
    last = len(story.writes) - 1
    return [_write(w, _form(story, w, is_last=n == last)) for n, w in enumerate(story.writes) if w.state != "not_sent"]


def confirmed(story: Story) -> tuple[StoryWrite, ...]:
    """The refunds that the customer's text calls made and confirmed, in the order of their intents."""
    last = len(story.writes) - 1
    return tuple(w for n, w in enumerate(story.writes) if _form(story, w, is_last=n == last) == "confirmed")


def _form(story: Story, write: StoryWrite, *, is_last: bool) -> str:
    if is_last and _failed_later(story):
        return "failed"
    if write.state == "confirmed":
        return "unchecked" if is_last and _unchecked(story) else "confirmed"
    if write.state == "intent" and story.status not in LIVE:
        return "unknown"
    return write.state if write.state in OPEN_WRITE else "unknown"


def _failed_later(story: Story) -> bool:
    """Whether the run ended on a failed refund that no write's own state shows: what was last done is not claimed."""
    ended = story.reason == "refund_failed" and story.outcome not in ("refunded", "partly_refunded")
    return ended and all(w.state != "failed" for w in story.writes)


def _unchecked(story: Story) -> bool:
    """Whether the last refund was answered but not independently verified."""
    if story.status == "escalated":
        # An earlier refund makes an outcome partly refunded; of the one in doubt it says nothing.
        settled = ("refunded", "partly_refunded") if story.reason == "outcome_unknown" else ("refunded",)
        return story.reason in CHECKING and story.outcome not in settled
    if story.status == "failed":
        return story.outcome != "partly_refunded"
    return story.status == "executed"


def _write(write: StoryWrite, form: str) -> str:
    bare = f"refund of {write.amount} to payment {write.payment_id} on order {write.order_id}"
    ref = f" with the reference {write.refund_id}" if write.refund_id else ""
    if form == "confirmed" and not write.refund_id:
        return f"A {bare} has been made and confirmed."
    return OPEN_WRITE[form].format(What=f"A {bare}", what=f"the {bare}", ref=ref, id=write.refund_id)


def _listed(story: Story) -> list[str]:
    return [_listed_one(r) for r in story.others_refunds[:MAX_LISTED]]


def _listed_one(refund: StoryRefund) -> str:
    form = {"requires_action": "pending", "canceled": "failed"}.get(refund.state, refund.state)
    bare = f"refund of {refund.amount} to payment {refund.payment_id}"
    text = LISTED.get(form, LISTED["unclear"]) if refund.refund_id else LISTED["unnamed"]
    return text.format(What=f"A {bare}", bare=bare, id=refund.refund_id)


def _none(story: Story) -> list[str]:
    """The sentence that no refund was issued: only where no write of ours may have moved or be moving money."""
    elsewhere = story.outcome in ("resolved_by_staff", "refunded", "partly_refunded", "refund_failed")
    if elsewhere or story.status in WRITING or any(w.state not in ("not_sent", "refused") for w in story.writes):
        return []
    further = "further " if any(rules.counted(r.state) for r in story.others_refunds) else ""
    if story.forgotten:
        return [f"We could not confirm whether a {further}refund has been issued for this request."]
    yet = " yet" if story.status in LIVE else ""
    return [f"No {further}refund has been issued{yet} for this request."]


def _rejected(story: Story) -> list[str]:
    if story.approval is None or story.approval.status != "rejected":
        return []
    refund = "a further refund" if story.has_confirmed_write else "the proposed refund"
    reason = visible(story.approval.reason).strip()[:MAX_REASON]
    said = f" The reason given: “{reason}”" if reason else ""
    return [f"A member of our team reviewed {refund} and did not approve it.{said}"]


def _after(story: Story) -> list[str]:
    if story.status == "completed" and story.outcome == "refund_failed":
        return ["A specialist is looking at it and will decide what happens next."]
    if story.outcome == "partly_refunded" and story.has_confirmed_write:
        return ["Your request has been settled in part."]
    return []


# --- what was found ----------------------------------------------------------------------------------------


def _found(story: Story) -> list[str]:
    sentences = [s for order in story.orders[:MAX_LISTED] for s in _order(order)]
    return [*sentences, *(UNREAD[source] for source in story.unread)]


def _order(order: StoryOrder) -> list[str]:
    if order.payments is None:
        return [f"Order {order.order_id}{_cost(order, ' costs', ' had')}."] if order.total else []
    taken = [p.amount for p in order.payments if p.state in rules.TAKEN]
    first = f"We found {_taken(taken)} on order {order.order_id}{_cost(order, ', which costs', ', which had')}."
    others = [p for p in order.payments if p.state not in rules.TAKEN][:MAX_LISTED]
    return [first, *(OTHER_PAYMENTS.get(p.state, OTHER_PAYMENTS["unclear"]).format(amount=p.amount) for p in others)]


def _taken(amounts: list[Money]) -> str:
    number = NUMBERS[len(amounts)] if len(amounts) < len(NUMBERS) else str(len(amounts))
    noun = f"{number} captured payment{'' if len(amounts) == 1 else 's'}"
    if not amounts or len(amounts) > MAX_LISTED:
        return noun
    alike = Counter(amounts)
    if len(alike) == 1:
        return f"{noun} of {amounts[0]}{' each' if len(amounts) > 1 else ''}"
    return f"{noun} of {', '.join(map(str, amounts[:-1]))} and {amounts[-1]}"


def _cost(order: StoryOrder, costs: str, had: str) -> str:
    if order.total is None or order.amount_due is None:
        return ""
    if order.total == order.amount_due:
        return f"{costs} {order.total}"
    return f"{had} a total of {order.total} and now costs {order.amount_due}"


def _nothing_left(story: Story) -> list[str]:
    """Said only where nothing of ours moved money and everything it takes to know was read."""
    if any(w.state not in ("not_sent", "refused") for w in story.writes):
        return []
    done = [o.order_id for o in story.orders if (left := o.left()) is not None and left.minor <= 0]
    return [f"By these records nothing is left to refund on order {order_id}." for order_id in done[:MAX_LISTED]]


def _policy(story: Story) -> list[str]:
    named = "; ".join(f"{doc}, version {version}" for doc, version in story.policies[:3])
    return [f"Policy consulted: {named}."] if named else []


def _quoted(story: Story) -> str:
    """The clauses, one a paragraph: the only place where a text of ours names a period, a condition or a right."""
    return _paragraphs(*(clause.sentence() for clause in story.clauses))
