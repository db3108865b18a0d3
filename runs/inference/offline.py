"""The offline investigator: a small deterministic model that decides by its prompt alone. Imports no Django, no zone.

It reads the rendered observations like any model, answers in the same output contract and is trusted no more than one.
Nothing odd in a prompt makes it raise: what it cannot read it does not conclude from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from runs.contracts import ID_PATTERN, Prompt
from runs.inference.reading import Seen, Shown, read
from runs.inference.reckoning import NOT_MADE, Account, MixedCurrencies, Unreadable, account
from tools.contracts import Json

MODEL = "investigator"
MAX_REREADS = 2
MAX_ORDERS = 5
WRITE = "issue_refund"
READS = ("get_order", "get_payments", "search_policy", "get_refund_status")

# Prose stands around facts that code renders; it holds no figure, no promise and no word of outcome.
THANKS = "Thank you for your patience. Please write to us again if anything is unclear."
NOTHING_DUE = "We looked at everything we could find about this order. Please write to us again if anything is unclear."
WHICH_ORDER = "We could not tell which order this is about. Please tell us which order you mean."
NOT_FOUND = "We could not find this order for your account. Please check the order you gave us and write to us again."
UNCONFIRMED = "We could not read everything we need about this order, and we do not want to guess."
NO_RULE = "We could not find a current policy for this, so a person needs to look at it."
PERSON = "The records of this order need a look by a person."
STOPPED = "We could not go ahead with this. Please write to us if you have questions about it."
# The gravest comes first: where several orders end differently, it is what the customer hears.
GRAVITY = (PERSON, NO_RULE, UNCONFIRMED, NOTHING_DUE, NOT_FOUND)

# Each in time that grows with the text and not with its square: a customer writes it.
_NAMED = re.compile(
    r"\border\s*+(?:(?:number|no|id)\b\.?)?\s*+[:#]?\s*+#?([A-Za-z0-9_.:@/-]*[0-9][A-Za-z0-9_.:@/-]*)", re.I
)
_HASHED = re.compile(r"#([A-Za-z0-9_-]*[0-9][A-Za-z0-9_-]*)")
_CODED = re.compile(r"\b([A-Z]{1,4}[0-9]{4,})\b")
_LOOSE = re.compile(r"(?<![\w.,@/$€£₹-])(?=[A-Za-z0-9_-]*[0-9]{4})([A-Za-z0-9_-]++)(?![\w@/-]|[.,][0-9])")
_NOT_ORDERS = re.compile(r"^(pay|rf|cust|obs|credit_card|paypal|gift_card)_", re.I)
_NUMBERS = re.compile(r"\b(?:zip|post|phone|tel)\w*(?:\s+code)?(?:\s*+:)?\s*[0-9 -]+", re.I)
_FOREIGN = re.compile(r"order|not_found")
_ANSWERS = frozenset({"result", "error", "denial"})
_OVERTAKEN = re.compile(r"message|void")
_ID = re.compile(ID_PATTERN.strip("^$"))


@dataclass(frozen=True, kw_only=True)
class Look:
    """How one read stands: never made, good, to be made again, about something foreign, or given up."""

    state: Literal["missing", "good", "again", "foreign", "failed"]
    seen: Shown | None = None

    @property
    def wanted(self) -> bool:
        return self.state in ("missing", "again")

    @property
    def content(self) -> Any:
        return self.seen.content if self.seen else None

    @property
    def cited(self) -> list[str]:
        return [self.seen.obs_id] if self.seen else []


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Nothing is to be proposed for this order: the prose, and the observations it rests on."""

    prose: str
    evidence: list[str]


def answer(prompt: Prompt) -> str:
    """One turn in the output contract: reads, one write, or a final. A pure function of the prompt."""
    seen = read(prompt)
    return json.dumps(decide(seen, frozenset(t.name for t in prompt.tools)), ensure_ascii=False)


def decide(seen: Seen, tools: frozenset[str]) -> Any:
    """The turn itself, where the prompt's text has been read already."""
    stopped = _turned_down(seen)
    if stopped:
        return _final(THANKS if _moved(seen) else STOPPED, [stopped.obs_id])
    orders, named = _orders(seen)
    verdicts: list[Verdict] = []
    for order_id in orders:
        step = _investigate(seen, order_id, tools)
        if not isinstance(step, Verdict):
            return step
        verdicts.append(step)
    return _conclude(seen, verdicts if named else [v for v in verdicts if v.prose != NOT_FOUND])


def _conclude(seen: Seen, verdicts: list[Verdict]) -> Json:
    gravest = min(verdicts, key=lambda v: GRAVITY.index(v.prose), default=Verdict(prose=WHICH_ORDER, evidence=[]))
    if _moved(seen):
        return _final(THANKS, _with_clauses(seen, [e for v in verdicts for e in v.evidence]))
    return _final(gravest.prose, _with_clauses(seen, gravest.evidence))


def _moved(seen: Seen) -> bool:
    """Whether money of this run moved or may have: then nothing that could deny it is said around the facts."""
    writes = seen.snapshot.get("writes")
    mine = [w for w in writes if isinstance(w, dict)] if isinstance(writes, list) else []
    return seen.snapshot.get("status") == "verified" or any(str(w.get("state")) not in NOT_MADE for w in mine)


def _turned_down(seen: Seen) -> Shown | None:
    """The gate's denial or a person's rejection of a write: it is not proposed again, here or on another payment."""
    for shown in seen.observations:
        denied = shown.kind == "denial" and shown.source == WRITE and shown.get("retryable") is not True
        # A proposal that a customer's message overtook was not judged: it is thought over again, not given up.
        if denied and shown.get("error") != "superseded" and not _OVERTAKEN.search(str(shown.get("rule"))):
            return shown
        if shown.kind == "decision" and shown.get("decision") == "rejected":
            return shown
    return None


# --- which order ------------------------------------------------------------------------------------------------


def _orders(seen: Seen) -> tuple[list[str], bool]:
    """Orders to look into: the run's scope, else those the customer names; False where they are a mere guess."""
    scope = seen.snapshot.get("orders_in_scope")
    if isinstance(scope, list):
        return [o for o in scope if isinstance(o, str)], True
    words = "\n".join([seen.goal, *(_words(o) for o in seen.observations if o.source == "customer")])
    named = _tokens(words, seen, _HASHED, _NAMED, _CODED)[:MAX_ORDERS]
    return (named, True) if named else (_tokens(_NUMBERS.sub(" ", words), seen, _LOOSE)[:MAX_ORDERS], False)


def _words(shown: Shown) -> str:
    text = shown.content if isinstance(shown.content, str) else shown.get("text")
    return text if isinstance(text, str) else ""


def _tokens(words: str, seen: Seen, *patterns: re.Pattern[str]) -> list[str]:
    found = [token.rstrip(".:-/@") for pattern in patterns for token in pattern.findall(words)]
    kept = [t for t in found if 3 <= len(t) <= 128 and t != seen.customer and not _NOT_ORDERS.match(t)]
    return list(dict.fromkeys(kept))


# --- gathering --------------------------------------------------------------------------------------------------


def _investigate(seen: Seen, order_id: str, tools: frozenset[str]) -> Any:
    """The next turn this order calls for, or its verdict."""
    since = max((o.position for o in seen.observations if o.source == "customer"), default=-1)
    order = _look(seen, "get_order", order_id, lambda shown: shown.get("order_id") == order_id)
    payments = _look(seen, "get_payments", order_id, _has("payments"), since=since)
    if "foreign" in (order.state, payments.state) or _somebody_elses(order, seen):
        return Verdict(prose=NOT_FOUND, evidence=[*order.cited, *payments.cited])
    refunds = _look(seen, "get_refund_status", order_id, _has("refunds"), since=since)
    policy = _look_for_rule(seen)
    looks = {"get_order": order, "get_payments": payments, "search_policy": policy, "get_refund_status": refunds}
    lost = [name for name, look in looks.items() if look.state not in ("good", "missing", "again")]
    if lost or not tools.issuperset(READS):
        rule_alone = lost == ["search_policy"] or (not lost and "search_policy" not in tools)
        return Verdict(prose=NO_RULE if rule_alone else UNCONFIRMED, evidence=_cited(looks))
    wanted = _wanted(looks, first_time=_never(seen, order_id))
    if wanted:
        return [_read(name, order_id, looks, seen) for name in wanted]
    return _settle(seen, looks, tools)


def _somebody_elses(order: Look, seen: Seen) -> bool:
    return order.state == "good" and order.seen is not None and order.seen.get("customer_id") != seen.customer


def _look_for_rule(seen: Seen) -> Look:
    """A current rule that a search of its own found is enough; one more names the pinned document if it is absent.

    What the platform found for the goal answers no call: this model goes by what it asked for itself.
    """
    searches = _searches(seen)
    rule = _current_rule(seen)
    if rule is not None:
        return Look(state="good", seen=rule)
    look = _look(seen, "search_policy", None, _has("passages"), among=searches)
    if look.state == "good" and len(searches) == 1 and _pinned(seen) not in _documents(searches[0]):
        return Look(state="again", seen=look.seen)
    return look


def _pinned(seen: Seen) -> str:
    return str(seen.snapshot.get("policy_pin")).partition("@")[0]


def _documents(shown: Shown) -> list[Any]:
    return [p.get("doc") for p in _passages(shown)]


def _passages(shown: Shown) -> list[Json]:
    passages = shown.get("passages")
    return [p for p in passages if isinstance(p, dict)] if isinstance(passages, list) else []


def _never(seen: Seen, order_id: str) -> bool:
    return _look(seen, "get_refund_status", order_id, _has("refunds")).state == "missing"


def _wanted(looks: dict[str, Look], *, first_time: bool) -> list[str]:
    """The reads of this turn: order and payments come before the rest, and whatever is read again goes together."""
    order_and_payments = [name for name in ("get_order", "get_payments") if looks[name].wanted]
    if order_and_payments and first_time:
        return order_and_payments
    return [name for name, look in looks.items() if look.wanted]


def _look(
    seen: Seen,
    tool: str,
    order_id: str | None,
    fits: Callable[[Shown], bool],
    *,
    since: int = -1,
    among: list[Shown] | None = None,
) -> Look:
    told = [o for o in (seen.observations if among is None else among) if o.kind in _ANSWERS and o.position > since]
    hits = [o for o in told if o.source == tool and (order_id is None or _about(o, order_id))]
    if not hits:
        return Look(state="missing")
    last = hits[-1]
    if last.ok:
        return Look(state="good" if fits(last) else "failed", seen=last)
    if last.get("retryable") is True:
        return Look(state="again" if _trailing_failures(hits) <= MAX_REREADS else "failed", seen=last)
    if order_id is not None and _FOREIGN.search(f"{last.get('error')} {last.get('rule')}"):
        return Look(state="foreign", seen=last)
    return Look(state="failed", seen=last)


def _about(shown: Shown, order_id: str) -> bool:
    return order_id in (shown.args.get("order_id"), shown.get("order_id"))


def _has(name: str) -> Callable[[Shown], bool]:
    return lambda shown: shown.get(name) is not None


def _trailing_failures(hits: list[Shown]) -> int:
    return len(hits) - max((i + 1 for i, shown in enumerate(hits) if shown.ok), default=0)


def _cited(looks: dict[str, Look]) -> list[str]:
    order = ("get_payments", "get_refund_status", "search_policy", "get_order")
    return [obs_id for name in order for obs_id in looks[name].cited]


def _read(name: str, order_id: str, looks: dict[str, Look], seen: Seen) -> Json:
    args = {"query": _query(looks, seen)} if name == "search_policy" else {"order_id": order_id}
    return {"tool": name, "args": args, "evidence": []}


def _query(looks: dict[str, Look], seen: Seen) -> str:
    """What to search the policy for: by what the order shows, else by what the customer says."""
    status = str(looks["get_order"].seen.get("status") if looks["get_order"].seen else "").lower()
    goal = seen.goal.lower()
    if looks["search_policy"].state == "again" and looks["search_policy"].seen and looks["search_policy"].seen.ok:
        return f"refund {_pinned(seen)}"
    if _twice(looks["get_payments"].content):
        return "duplicate capture refund"
    if status.startswith("cancel") or "cancel" in goal:
        return "cancelled order refund"
    if status == "returned" or "return" in goal or "exchange" in goal:
        return "returned items refund"
    return "refund to original payment method"


def _twice(content: Any) -> bool:
    payments = content.get("payments") if isinstance(content, dict) else None
    entries = payments if isinstance(payments, list) else []
    amounts = [json.dumps(p.get("amount")) for p in entries if isinstance(p, dict) and p.get("state") == "captured"]
    return len(set(amounts)) < len(amounts)


# --- deciding ---------------------------------------------------------------------------------------------------


def _settle(seen: Seen, looks: dict[str, Look], tools: frozenset[str]) -> Any:
    """A write where the facts call for one and a current policy covers it, else a verdict."""
    evidence = _cited(looks)
    writes = seen.snapshot.get("writes")
    contents = {name: look.content for name, look in looks.items()}
    try:
        reckoned = account(
            order=contents["get_order"],
            payments=contents["get_payments"],
            refunds=contents["get_refund_status"],
            writes=writes if isinstance(writes, list) else [],
        )
    except Unreadable:
        return Verdict(prose=UNCONFIRMED, evidence=evidence)
    except MixedCurrencies:
        return Verdict(prose=PERSON, evidence=evidence)
    if reckoned.owed.minor <= 0:
        return Verdict(prose=NOTHING_DUE, evidence=evidence)
    if _current_rule(seen) is None:
        return Verdict(prose=NO_RULE, evidence=evidence)
    return _refund(reckoned, evidence, tools)


def _refund(reckoned: Account, evidence: list[str], tools: frozenset[str]) -> Any:
    chosen = reckoned.choose()
    if chosen is None or WRITE not in tools:
        return Verdict(prose=PERSON, evidence=evidence)
    payment, amount = chosen
    args = {
        "order_id": reckoned.order_id,
        "payment_id": payment.payment_id,
        "amount": amount.wire(),
        "reason": reckoned.reason(),
    }
    return {"tool": WRITE, "args": args, "evidence": _ids(evidence)}


def _current_rule(seen: Seen) -> Shown | None:
    """The newest policy observation with a passage of the pinned document that the registry marks as current."""
    for shown in reversed(_searches(seen)):
        searched = _passages(shown) if shown.ok else []
        if any(p.get("current") is True and p.get("doc") == _pinned(seen) for p in searched):
            return shown
    return None


def _with_clauses(seen: Seen, evidence: list[str]) -> list[str]:
    """Instead of a whole search the one passage that answered it best, where it is a rule in force: code quotes it."""
    best = {shown.obs_id: passages[0] for shown in _searches(seen) if shown.ok and (passages := _passages(shown))}
    rules = {
        obs_id: str(p.get("id"))
        for obs_id, p in best.items()
        if p.get("current") is True and p.get("doc") == _pinned(seen)
    }
    return [rules.get(cited, cited) for cited in evidence]


def _searches(seen: Seen) -> list[Shown]:
    return [o for o in seen.observations if o.source == "search_policy" and o.call_id]


def _final(prose: str, evidence: list[str]) -> Json:
    return {"final": prose, "evidence": _ids(evidence)}


def _ids(evidence: list[str]) -> list[str]:
    return [e for e in dict.fromkeys(evidence) if _ID.fullmatch(e)][:20]
