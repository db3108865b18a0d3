"""Door: a run's events as lines people like to read, and a follower that waits for the next ones. Writes no row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentsite import money
from agentsite.text import visible
from approvals import labels
from runs import evidence, reply, store
from runs.contracts import SeenObservation
from runs.models import Event, Run

Data = Mapping[str, Any]
Told = tuple[str, str, str]
"""Who, what, and the tone: `plain`, `good`, `bad` or `wait`."""

MAX_QUOTE = 200
READS = {
    "get_order": "the order",
    "get_payments": "the payments",
    "get_refund_status": "earlier refunds",
    "search_policy": "the policy",
    "search_cases": "earlier cases",
}
TO_PEOPLE = {
    "message": "tell the customer something", "ask": "ask the customer", "plan": "set down a plan",
    "escalate": "hand it to a person",
}  # fmt: skip
POLICY = "search_policy"


@dataclass(frozen=True, kw_only=True)
class Line:
    """One thing that happened. `status` is the status it led to, where it led to another one."""

    offset: str
    span: str
    who: str
    what: str
    tone: str = "plain"
    status: str = ""


@dataclass(frozen=True, kw_only=True)
class News:
    """What is new since the last look; `message` is what the customer may be told now, where that changed."""

    run: Run
    lines: tuple[Line, ...]
    message: str | None


class Follower:
    """Reads a run's rows again and again; each event is told once."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._seq = 0
        self._message = ""

    def news(self) -> News:
        """Everything since the last call."""
        run = Run.objects.get(id=self._run_id)
        events = list(Event.objects.filter(run_id=self._run_id, seq__gt=self._seq).order_by("seq"))
        lines: tuple[Line, ...] = ()
        if events:
            self._seq = events[-1].seq
            lines = tuple(tell(events, store.observations(self._run_id), run))
        return News(run=run, lines=lines, message=self._new_message())

    def _new_message(self) -> str | None:
        words = reply.customer_message(store.story(self._run_id))
        changed = words != self._message
        self._message = words
        return words if changed else None


def tell(events: Iterable[Event], observations: Sequence[SeenObservation], run: Run) -> Iterator[Line]:
    """The events as lines; a change of status stands on the line that led to it."""
    by_call = {o.call_id: o for o in observations if o.call_id}
    waiting: Line | None = None
    for event in events:
        line = _line(event, by_call, run)
        if event.type == "run.status" and waiting is not None and not waiting.status:
            waiting = replace(waiting, status=line.status if line else "")
            continue
        if line is None:
            continue
        if waiting is not None:
            yield waiting
        waiting = line
    if waiting is not None:
        yield waiting


def _line(event: Event, by_call: Mapping[str, SeenObservation], run: Run) -> Line | None:
    data = {**event.meta, **(event.payload or {})}
    seen = by_call.get(str(data.get("call", "")))
    offset = labels.offset((event.at - run.created_at).total_seconds())
    if event.type == "run.status":
        words = f"because of {spoken(data['reason'])}" if data.get("reason") else ""
        return Line(offset=offset, span="", who="run", what=words, status=str(data.get("to", "")))
    if event.type == "tool.observed":
        told: Told | None = _observed(data, seen)
    else:
        told = TELLERS[event.type](data) if event.type in TELLERS else _anything(event.type, data)
    if told is None:
        return None
    who, what, tone = told
    return Line(offset=offset, span=seen.span if seen else event.span or "", who=who, what=what, tone=tone)


# --- one event in words ------------------------------------------------------------------------------------


def spoken(slug: object) -> str:
    """A slug in the middle of a sentence."""
    return visible(str(slug)).replace("_", " ").replace("-", " ")


def quoted(text: object) -> str:
    """Somebody's own words, on one line and not too long."""
    words = visible(" ".join(str(text or "").split()))
    return f"“{words}”" if len(words) <= MAX_QUOTE else f"“{words[:MAX_QUOTE]}…”"


def amount(wire: object) -> str:
    try:
        return str(money.parse(wire))
    except money.BadMoney:
        return "an unreadable amount"


def action(tool: str, args: Data) -> str:
    """A proposed write in words, from its arguments."""
    if tool != "issue_refund":
        return f"{spoken(tool)} {labels.value(dict(args))}"
    return f"refund {amount(args.get('amount'))} to payment {_word(args, 'payment_id')}"


def _word(data: Data, name: str) -> str:
    return visible(str(data.get(name)))


def _nothing(data: Data) -> None:
    return None


def _accepted(data: Data) -> Told:
    return "customer", quoted(data.get("goal")), "plain"


def _replied(data: Data) -> Told | None:
    if "final" in data:
        return "model", "drafts the reply", "plain"
    proposals = data.get("proposals")
    if not isinstance(proposals, list):
        return None  # what was wrong with it is told by the next event
    writes = [p for p in proposals if p.get("tool") not in READS and p.get("tool") not in TO_PEOPLE]
    if writes:
        cited = ", ".join(map(str, writes[0].get("evidence", []))) or "nothing"
        what = action(str(writes[0]["tool"]), writes[0]["args"])
        return "model", f"proposes to {what}, citing {visible(cited)}", "plain"
    return "model", " and ".join(_wishes([str(p["tool"]) for p in proposals])), "plain"


def _wishes(tools: list[str]) -> Iterator[str]:
    reads = [READS[tool] for tool in tools if tool in READS]
    if reads:
        yield "asks to read " + " and ".join(reads)
    yield from (f"wants to {TO_PEOPLE[tool]}" for tool in tools if tool in TO_PEOPLE)


def _model_failed(data: Data) -> Told:
    return "model", f"{_word(data, 'route')} gave no answer ({spoken(data.get('error'))})", "bad"


def _switched(data: Data) -> Told:
    return "model", f"the next route is asked: {_word(data, 'to')}", "wait"


def _invalid(data: Data) -> Told:
    return "model", f"gives nothing that can be used ({spoken(data.get('error'))}) and is told so", "bad"


def _observed(data: Data, seen: SeenObservation | None) -> Told:
    who = {POLICY: "policy", "search_cases": "memory"}.get(str(data.get("tool")), "records")
    if seen is None:
        return who, f"{spoken(data.get('tool'))} was read", "plain"
    first, *more = evidence.summary(seen).split("; ") if who == "policy" else [evidence.summary(seen)]
    return who, visible(first) + (f", and {len(more)} more passages" if more else ""), "plain"


def _found(data: Data) -> Told:
    return "policy", labels.found(data), "plain"


def _unread(data: Data) -> Told:
    what = READS.get(str(data.get("tool")), spoken(data.get("tool")))
    return "records", f"no answer about {what} ({spoken(data.get('error'))})", "bad"


def _gated(data: Data) -> Told:
    checks = data.get("checks") or []
    held = sum(1 for check in checks if check.get("ok") is True)
    args = (data.get("action") or {}).get("args", {})
    currency = str((args.get("amount") or {}).get("currency", ""))
    rule = labels.rule(str(data.get("rule")), currency)
    if data.get("decision") == "deny":
        return "gate", f"denies it: {rule[:1].lower()}{rule[1:]} ({held} of {len(checks)} checks hold)", "bad"
    return "gate", f"all {held} checks hold; {rule[:1].lower()}{rule[1:]}", "good"


def _asked(data: Data) -> Told:
    people = "two people decide" if data.get("required") == 2 else "a person decides"
    return "approval", f"{people} on exactly this action, {labels.short_hash(str(data.get('action_hash', '')))}", "wait"


def _decided(data: Data) -> Told:
    approved = data.get("decision") == "approved"
    people = (data.get("deciders") if approved else None) or [data.get("by")]
    why = f": {quoted(data['reason'])}" if data.get("reason") else ""
    who = " and ".join(visible(str(person)) for person in people)
    return "approval", f"{who} {_word(data, 'decision')} it{why}", "good" if approved else "bad"


def _expired(data: Data) -> Told:
    return "approval", "nobody decided in time", "bad"


def _void(data: Data) -> Told:
    return "approval", f"the question is void ({spoken(data.get('reason'))})", "wait"


def _intent(data: Data) -> Told:
    return "record", f"intent saved before anything is sent, under the key {_word(data, 'key')}", "plain"


def _sent(data: Data) -> Told:
    return "executor", f"asks the business system for the refund (attempt {data.get('attempt')})", "plain"


def _again(data: Data) -> Told:
    return "gate", f"lets the same refund go once more, under the same key (attempt {data.get('attempt')})", "wait"


def _result(data: Data) -> Told:
    if data.get("refund_id"):
        return "executor", f"is answered: refund {_word(data, 'refund_id')} {spoken(data.get('state'))}", "good"
    return "executor", f"nothing was made: {spoken(data.get('error') or data.get('state'))}", "bad"


def _unknown(data: Data) -> Told:
    return "executor", f"nobody knows yet what came of it ({spoken(data.get('error'))}): it is looked up", "bad"


def _reconciled(data: Data) -> Told:
    return "executor", f"found by looking it up: refund {_word(data, 'refund_id')} {spoken(data.get('state'))}", "good"


def _verified(data: Data) -> Told:
    found = data.get("found") or {}
    what = f"{amount(found.get('amount'))} on {visible(str(found.get('payment_id')))}"
    return "verifier", f"an independent read shows {_word(data, 'refund_id')}, {what}: as it was asked", "good"


def _mismatch(data: Data) -> Told:
    return "verifier", f"what is on record is not what was asked ({spoken(data.get('verdict'))}): a person looks", "bad"


def _sent_reply(data: Data) -> Told:
    return "reply", "facts from the records, checked before they go out", "good"


def _dropped(data: Data) -> Told:
    return "reply", f"the model's own words are left out ({spoken(data.get('error'))})", "wait"


def _message(data: Data) -> Told:
    return "customer", quoted(data.get("text")), "plain"


def _told(data: Data) -> Told:
    return "reply", f"the customer is told {quoted(data.get('text'))}", "plain"


def _questioned(data: Data) -> Told:
    return "reply", f"the customer is asked {quoted(data.get('question'))}", "wait"


def _gave_up(data: Data) -> Told:
    return "model", f"asks for a person, to whom it says {quoted(data.get('reason'))}", "wait"


def _reminded(data: Data) -> Told:
    return "run", f"the model is reminded ({spoken(data.get('error'))})", "wait"


def _cancel(data: Data) -> Told:
    return "client", f"asks to cancel {quoted(data['text']) if data.get('text') else ''}".strip(), "wait"


def _notice(data: Data) -> Told:
    if data.get("held"):
        return "gate", f"holds it for a moment ({spoken(data['held'])})", "wait"
    if data.get("to"):
        return "staff", f"told: {spoken(data.get('error'))}", "wait"
    return "staff", labels.event("notice", data), "plain"


def _anything(kind: str, data: Data) -> Told:
    return "run", f"{visible(kind)} {labels.event(kind, data)}".strip(), "plain"


TELLERS: dict[str, Callable[[Data], Told | None]] = {
    "run.accepted": _accepted, "prompt.built": _nothing, "model.called": _nothing, "model.replied": _replied,
    "model.failed": _model_failed, "model.invalid": _invalid, "route.switched": _switched, "tool.error": _unread,
    "gate.decided": _gated, "approval.requested": _asked, "approval.decided": _decided, "approval.expired": _expired,
    "approval.void": _void, "write.intent": _intent, "write.sent": _sent, "write.released_again": _again,
    "write.result": _result, "write.unknown": _unknown, "write.reconciled": _reconciled, "write.verified": _verified,
    "write.mismatch": _mismatch, "reply.sent": _sent_reply, "reply.rejected": _dropped, "message.received": _message,
    "cancel.requested": _cancel, "notice": _notice, "customer.told": _told, "customer.asked": _questioned,
    "model.escalated": _gave_up, "reminder": _reminded, "evidence.found": _found,
}  # fmt: skip
