"""Answers "why was this refunded?", or why not, in one paragraph of plain words. Part of `explain`; a paper.

Every number and name in it is taken from the record; nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from agentsite import clock, money
from agentsite.text import visible
from approvals import labels
from runs.explain.values import Answered, Asked, Gated, Wrote, saying
from runs.states import TERMINAL
from runs.story import Story, StoryOrder

ENDED = frozenset(status.value for status in TERMINAL)
MADE_NOTHING = frozenset({"not_sent", "refused"})
ANSWERS = {
    "made": "was answered",
    "replayed": "was answered with the refund of an earlier try",
    "found": "was found by looking it up",
}


def paragraph(
    status: str, outcome: str | None, reason: str | None, story: Story, gate: Sequence[Gated],
    approvals: Sequence[Asked], writes: Sequence[Wrote],
) -> str:  # fmt: skip
    """The answer for the whole run: each refund it made or may have made, else why there is none."""
    made = [w for w in writes if w.state not in MADE_NOTHING]
    if made:
        told = [_refund(w, gate, approvals) for w in made]
        return " ".join(told + ([_handed_over(reason)] if status == "escalated" else []))
    return _why_not(status, outcome, reason, story, gate, approvals, writes)


def refund_words(content: Mapping[str, Any]) -> str:
    """A refund as the business system recorded it."""
    amount, payment = _amount(content.get("amount")), _word(content, "payment_id")
    return f"refund {_word(content, 'refund_id')} {_word(content, 'state')}: {amount} to {payment}"


# --- a refund that was made, or may have been ----------------------------------------------------------------


def _refund(w: Wrote, gate: Sequence[Gated], approvals: Sequence[Asked]) -> str:
    rested = next((g for g in reversed(gate) if g.decision_id == w.decision_id and g.decision != "deny"), None)
    asked = next((a for a in approvals if a.approval_id == w.approval_id), None)
    return " ".join([_because(w, rested), _allowed(w, rested, asked), _sending(w), _verified(w)])


def _because(w: Wrote, rested: Gated | None) -> str:
    what = f"{_amount(w.amount)} to payment {visible(w.payment_id)} on order {visible(w.order_id)}"
    name = f"Refund {visible(w.refund_id)} of {what}" if w.refund_id else f"A refund of {what}"
    verb = {"confirmed": "was made", "failed": "was made and failed"}.get(w.state, "was released")
    if rested is None or rested.erased:
        return f"{name} {verb}; the numbers it rested on are no longer in the record."
    numbers = _inputs(rested, "nothing_refundable")
    cited = ", ".join(visible(str(o)) for o in _inputs(rested, "evidence_missing").get("cited", ()))
    return (
        f"{name} {verb} because the order's records showed {_amount(numbers.get('captured'))} captured, "
        f"{_amount(numbers.get('refunded'))} refunded and {_amount(numbers.get('amount_due'))} due, which leaves "
        f"{_amount(numbers.get('max_excess'))} to give back (evidence: {cited or 'none'}; {_policy(rested)})."
    )


def _policy(gated: Gated) -> str:
    found = _inputs(gated, "policy_stale")
    return f"policy {_word(found, 'doc')}@v{_word(found, 'pinned')}, the current version"


def _inputs(gated: Gated, name: str) -> Mapping[str, Any]:
    found = next((c for c in gated.checks if c.get("name") == name), None)
    return (found or {}).get("inputs") or {}


def _allowed(w: Wrote, rested: Gated | None, asked: Asked | None) -> str:
    held = f"The gate's {len(rested.checks)} checks held on facts it read itself" if rested and rested.checks else ""
    if asked is None:
        own = "no person was needed: it was within the agent's own authority"
        return f"{held}; {own}." if held else f"{own[:1].upper()}{own[1:]}."
    rule = _lower(labels.rule(asked.rule, str(w.amount.get("currency", ""))))
    yes = [d for d in asked.decisions if d.decision == "approve"]
    by = " and ".join(_approved_by(d, w.action_hash if d is yes[0] else "") for d in yes) or "nobody on record approved"
    return f"{held}; {rule}, and {by}." if held else f"{rule[:1].upper()}{rule[1:]}, and {by}."


def _approved_by(d: Answered, action_hash: str) -> str:
    what = f"exactly this action ({labels.short_hash(action_hash)})" if action_hash else "it"
    return f"{visible(d.by)} approved {what} on {_moment(d.at)}{saying(d.reason)}"


def _sending(w: Wrote) -> str:
    sent = [a for a in w.attempts if a.sent_at is not None]
    if not sent:
        return f"It has not been sent yet; its key is {visible(w.key)}."
    times = "once" if len(sent) == 1 else f"{len(sent)} times"
    last = sent[-1]
    answer = "no answer has come yet"
    if last.answered_at is not None:
        how = ANSWERS.get(last.answer, visible(last.answer))
        answer = f"and {how} after {_between(str(last.sent_at), last.answered_at)}"
    return f"It was sent {times} under the idempotency key {visible(w.key)}, {answer}."


def _verified(w: Wrote) -> str:
    seen = w.verification
    if seen is None:
        state = labels.WRITE.get(w.state, w.state)
        return f"It is not verified; its state is: {state[:1].lower()}{state[1:]}."
    found = seen.get("found")
    if seen.get("passed") and found:
        what = f"{_word(found, 'refund_id')}: {_amount(found.get('amount'))} on {_word(found, 'payment_id')}"
        same = f"equal to what was asked for ({_word(seen, 'check')})"
        return f"An independent read then found {what}, {_word(found, 'state')}, {same}."
    differs = ", ".join(map(str, seen.get("differs", ()))) or str(seen.get("verdict"))
    return f"The independent read did not confirm it ({visible(differs)}), and nothing was issued for the difference."


# --- no refund -----------------------------------------------------------------------------------------------


def _why_not(
    status: str, outcome: str | None, reason: str | None, story: Story, gate: Sequence[Gated],
    approvals: Sequence[Asked], writes: Sequence[Wrote],
) -> str:  # fmt: skip
    opening = "No refund was made" if status in ENDED else "No refund has been made so far"
    last = approvals[-1] if approvals else None
    if last is not None and last.status in ("rejected", "pending", "expired"):
        why = _by_people(last)
    elif gate and gate[-1].decision == "deny":
        why = _denied(gate[-1])
    elif writes:
        why = _nothing_made(writes[-1])
    else:
        why = _nothing_proposed(status, outcome, story)
    ending = {"escalated": _handed_over(reason), "cancelled": "The run was cancelled."}.get(status, "")
    return f"{opening}: {why} {ending}".strip()


def _by_people(asked: Asked) -> str:
    action, until = labels.short_hash(asked.action_hash), _moment(asked.expires_at)
    if asked.status == "rejected":
        said = [_rejected_by(d) for d in asked.decisions if d.decision == "reject"] or ["a person rejected it"]
        return f"{said[-1]} ({action})."
    rule = _lower(labels.rule(asked.rule, str(asked.amount["currency"])))
    if asked.status == "expired":
        return f"{rule}, and nobody decided before {until}."
    return f"{rule}, and a person has until {until} to decide on {_amount(asked.amount)} ({action})."


def _rejected_by(d: Answered) -> str:
    return f"{visible(d.by)} rejected it on {_moment(d.at)}{saying(d.reason)}"


def _denied(gated: Gated) -> str:
    args = gated.action.get("args", {})
    what = f"{_amount(args.get('amount'))} to {_word(args, 'payment_id')}" if args else "what was proposed"
    failed = next((c for c in gated.checks if c.get("ok") is not True), None)
    currency = str((args.get("amount") or {}).get("currency", ""))
    numbers = ", ".join(f"{n} {v}" for n, v in labels.numbers((failed or {}).get("inputs") or {}, currency))
    rule = _lower(labels.rule(gated.rule, currency))
    return f"the gate denied {what}, because of “{rule}”{f' ({numbers})' if numbers else ''}."


def _nothing_made(w: Wrote) -> str:
    answers = ", ".join(visible(a.answer) for a in w.attempts if a.answer)
    how = f", answered with {answers}" if answers else ""
    return f"the write {visible(w.key)} ended as “{labels.WRITE.get(w.state, w.state).lower()}”{how}."


def _nothing_proposed(status: str, outcome: str | None, story: Story) -> str:
    left = [words for order in story.orders if (words := _left(order))]
    if outcome == "no_refund_due" and left:
        return "; ".join(left) + "."
    if status not in ENDED:
        return f"the run is at “{_lower(labels.run_status(status))}”."
    return "the model proposed none." + (f" By the records {'; '.join(left)}." if left else "")


def _left(order: StoryOrder) -> str:
    """What an order's records leave to give back, or nothing where they were not read whole."""
    left = order.left()
    if left is None:
        return ""
    what = "nothing" if left.minor <= 0 else str(left)
    return f"{what} is left to give back on order {visible(order.order_id)}, which costs {order.amount_due}"


def _handed_over(reason: str | None) -> str:
    return f"The run was handed to a person ({_lower(labels.spoken(reason or 'no reason on record'))})."


# --- words ---------------------------------------------------------------------------------------------------


def _word(data: Mapping[str, Any], name: str) -> str:
    return visible(str(data.get(name)))


def _amount(wire: object) -> str:
    try:
        return str(money.parse(wire))
    except money.BadMoney:
        return "an unknown amount"


def _lower(words: str) -> str:
    return words[:1].lower() + words[1:]


def _moment(text: str) -> str:
    return labels.moment(clock.parse_rfc3339(text))


def _between(earlier: str, later: str) -> str:
    seconds = (_at(later) - _at(earlier)).total_seconds()
    return f"{seconds:.1f} s" if seconds < 100 else labels.duration(seconds)


def _at(text: str) -> datetime:
    return clock.parse_rfc3339(text)
