"""A dry run: every recorded decision of the gate judged anew by today's rules, under the grants of another profile.

Reads exported runs alone; no model, no tool, no row. Each decision is judged by itself, on the facts and totals that
are on record with it, and not by playing the run: a decision that differs hides none that came after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn

from agentsite import money, prices
from agentsite.tenants.profiles import Limits, Profile
from runs import evidence, precheck
from runs.contracts import Contract, SeenObservation
from runs.replay import facts
from runs.replay.record import Happened, Recorded, read, readable
from tools import gate
from tools.contracts import Backend, Decision, Json, OrderFacts, PolicyState, Scope
from tools.errors import NotFound

Kind = Literal[
    "newly_allowed", "newly_asked", "more_people", "fewer_people", "newly_denied", "no_longer_denied",
    "beyond_the_record", "newly_stopped", "newly_handed_over",
]  # fmt: skip
CHANGES: dict[str, str] = {
    "newly_allowed": "allowed without a person", "newly_asked": "asked about", "more_people": "asked of two people",
    "fewer_people": "asked of one person", "newly_denied": "denied", "no_longer_denied": "no longer denied",
    "beyond_the_record": "no longer denied at once: what would follow is not on record",
    "newly_stopped": "stopped at a cap", "newly_handed_over": "handed to a person for the customer's words",
}  # fmt: skip
COUNTS = ("write_tools", "blocked_tools", "aggregates", "sensitive", "limits", "policy_pin")
"""The fields of a profile that a dry run goes by. A pin counts where it names the document that the run was pinned to;
a limit, where the run used more than it; `person` words hand a run over that they did not."""
NOT_REPEATED = "evidence_changed"


@dataclass(frozen=True, kw_only=True)
class Change:
    """A decision that would differ. `was`, `now`: `{"decision", "rule", "people"}`; `numbers`: those that moved, as
    `{check: {name: [then, now]}}`. Without an action (a whole run): `tool` and `amount` are None."""

    kind: Kind
    tool: str | None
    amount: Json | None
    target: str
    was: Json
    now: Json
    numbers: Json

    def wire(self) -> Json:
        return {
            "kind": self.kind, "tool": self.tool, "amount": self.amount, "target": self.target, "was": self.was,
            "would_be": self.now, "numbers": self.numbers,
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One run: how many decisions were judged anew, how many of them by another rule to the same end, and what would
    differ, an action once."""

    run_id: str
    request_id: str
    agent: str
    tenant_id: str
    decisions: int
    other_rule: int
    changes: tuple[Change, ...]

    def wire(self) -> Json:
        return {
            "run_id": self.run_id, "request_id": self.request_id, "decisions": self.decisions,
            "other_rule": self.other_rule, "changes": [change.wire() for change in self.changes],
        }  # fmt: skip


class _NotOnRecord(Exception):
    """Today's rules go on to facts that nobody read then."""


def judge(document: Json, profile: Profile | None = None) -> Judged:
    """The decisions of an exported run by today's rules; with `profile`, under its grants. Raises BadRecord."""
    record = read(document)
    judging = _Judging(record, profile)
    found = list(judging.changes())
    with readable():
        return Judged(
            run_id=record.run_id, request_id=record.run["request_id"], agent=record.run["agent"],
            tenant_id=record.run["tenant_id"], decisions=judging.decisions, other_rule=judging.other_rule,
            changes=tuple(found),
        )  # fmt: skip


class _Judging:
    """One run's decisions under a contract as the profile would have made it."""

    def __init__(self, record: Recorded, profile: Profile | None) -> None:
        self.record, self.profile = record, profile
        self.contract = granted(record.contract, profile) if profile is not None else record.contract
        self.decisions = self.other_rule = 0

    def changes(self) -> Iterator[Change]:
        if self.profile is not None:
            with readable():
                yield from self._of_the_run(self.profile)
        seen = set[tuple[str, str]]()
        for step in self.record.steps:
            for decided in (e for e in step.events if e.type == "gate.decided"):
                change = self._decision(decided)
                action = str(decided.meta["action_hash"])
                if change is not None and (change.kind, action) not in seen:
                    seen.add((change.kind, action))
                    yield change

    def _decision(self, decided: Happened) -> Change | None:
        if decided.meta["rule"] == NOT_REPEATED:
            return None  # what was read again decided it: no grant and no rule of the gate's own
        self.decisions += 1
        with readable():
            case = _case(self.record, self.contract, decided)
            was = _told(decided.meta["decision"], decided.meta["rule"], decided.meta["required"])
        try:
            now = gate.evaluate(case, _reader(decided))
        except _NotOnRecord:
            return _change("beyond_the_record", decided, was, _told("unknown", "facts_not_on_record", 0), {})
        would = _told(now.kind, now.rule, now.required)
        kind = _kind(was, would)
        if kind is None:
            self.other_rule += was["rule"] != would["rule"]
            return None
        with readable():
            return _change(kind, decided, was, would, _numbers(decided, now))

    def _of_the_run(self, profile: Profile) -> Iterator[Change]:
        """What would have ended the whole run before any decision, or within it."""
        over = _over(self.record.run["usage"], profile.limits)
        if over and self.record.run["reason"] not in ("budget_exhausted", "deadline_exceeded"):
            yield self._whole("newly_stopped", "a_cap", {"limits": over})
        said = _said(self.record)
        words = precheck.found(said, self.contract.sensitive).person
        if words and not precheck.found(said, self.record.contract.sensitive).person:
            yield self._whole("newly_handed_over", "sensitive_words", {"sensitive_words": {"words": [[], list(words)]}})

    def _whole(self, kind: Kind, rule: str, numbers: Json) -> Change:
        ended = _told(self.record.run["status"], self.record.run["reason"] or "", 0)
        return Change(
            kind=kind, tool=None, amount=None, target="the run", was=ended, now=_told("escalated", rule, 0),
            numbers=numbers,
        )  # fmt: skip


def granted(contract: Contract, profile: Profile) -> Contract:
    """The contract with this profile's grants in place of those that the run was admitted with."""
    writes = {name: grant for name, grant in profile.write_tools.items() if name not in profile.blocked_tools}
    scope = contract.scope.model_copy(update={"write_tools": writes})
    return contract.model_copy(
        update={
            "scope": scope, "aggregates": profile.aggregates, "sensitive": profile.sensitive,
            "policy_version_pin": profile.policy_pin,
        }
    )  # fmt: skip


# --- one decision -----------------------------------------------------------------------------------------------


def _case(record: Recorded, contract: Contract, decided: Happened) -> gate.Case:
    """The gate's case of then: its grants are the contract's, what the site and the registry said is the record's."""
    action = (decided.payload or {})["action"]
    call_id = str(decided.meta["decision_id"]).split(":")[1]
    seen = _seen(record, decided, call_id)
    target = str(action["args"].get("payment_id"))
    return gate.Case(
        scope=_scope(record, contract), backend=_backend(record), tool=action["tool"], args=action["args"],
        hash=decided.meta["action_hash"], key="", cited=_cited(record, call_id), evidence=evidence.items(seen),
        policy=_policy(decided, record.contract.policy_version_pin, contract.policy_version_pin), own=(), epoch=0,
        used=facts.used_of(decided), closed=frozenset({target} if _said_no(decided, "write_already_made") else ()),
        qualified=not _said_no(decided, "route_not_qualified"),
        blocked=(action["tool"],) if _said_no(decided, "tool_blocked") else (),
        sensitive=precheck.found(_said(record, seen), contract.sensitive).approval,
    )  # fmt: skip


def _said_no(decided: Happened, check: str) -> bool:
    return facts.ok(decided, check) is False


def _seen(record: Recorded, decided: Happened, call_id: str) -> tuple[SeenObservation, ...]:
    """What had been observed by then: nothing after the answer to the very call that was decided about."""
    answer = next((o.position for o in record.observations if o.call_id == call_id), None)
    return tuple(
        o for o in record.observations if o.fetched_at <= decided.at and (answer is None or o.position < answer)
    )


def _cited(record: Recorded, call_id: str) -> tuple[str, ...]:
    proposals = (p for turn in record.turns.values() for p in turn["proposals"] if p["call_id"] == call_id)
    return next((tuple(p["evidence"]) for p in proposals), ())


def _said(record: Recorded, seen: tuple[SeenObservation, ...] | None = None) -> tuple[str, ...]:
    """What the customer said, in all or by then."""
    told = record.observations if seen is None else seen
    messages = (o.content for o in told if o.kind == "message" and o.source == "customer")
    texts = (str(content.get("text", "")) for content in messages if isinstance(content, dict))
    return (record.contract.goal, *texts)


def _scope(record: Recorded, contract: Contract) -> Scope:
    return Scope(
        tenant_id=contract.tenant_id, run_id=record.run_id, request_id=contract.request_id, trace_id=contract.trace_id,
        customer_id=contract.actor.customer_id, order_ids=contract.scope.order_ids,
        read_tools=contract.scope.read_tools, write_tools=contract.scope.write_tools,
        policy_pin=contract.policy_version_pin, aggregates=contract.aggregates, created_by=contract.created_by,
    )  # fmt: skip


def _backend(record: Recorded) -> Backend:
    known = record.backend
    return Backend(
        tenant_id=record.run["tenant_id"], url=known["url"], read_token_env="", write_token_env="",
        honours_keys=known["honours_keys"], key_life_s=known["key_life_s"], settle_s=known["settle_s"],
    )  # fmt: skip


def _policy(decided: Happened, was: str, pin: str) -> PolicyState:
    """The registry's word of then. A pin to another document is left as it was: nobody asked about that one."""
    then = facts.policy_of(decided, None, was, stale=False)
    doc, _, version = pin.rpartition("@v")
    return replace(then, pinned=int(version)) if doc == then.doc else then


def _reader(decided: Happened) -> Any:
    """The live facts of then, for a rule that asks for them."""

    def recorded(*_: Any) -> OrderFacts:
        with readable():
            known = (decided.payload or {})["facts"]
            if known:
                return facts.of_decision(decided, (), "")
        if decided.meta["rule"] == "order_not_found":
            raise NotFound
        _not_there()

    return recorded


def _not_there() -> NoReturn:
    raise _NotOnRecord


# --- what differs -----------------------------------------------------------------------------------------------


def _told(decision: str, rule: str, people: int) -> Json:
    return {"decision": decision, "rule": rule, "people": people}


def _kind(was: Json, now: Json) -> Kind | None:
    """What became of a decision; None: the same for the action and for people, whatever the rule is called."""
    then, would = was["decision"], now["decision"]
    if then == would:
        if was["people"] == now["people"]:
            return None
        return "more_people" if now["people"] > was["people"] else "fewer_people"
    if would == "deny":
        return "newly_denied"
    if then == "deny":
        return "no_longer_denied"
    return "newly_allowed" if would == "allow" else "newly_asked"


def _change(kind: Kind, decided: Happened, was: Json, now: Json, numbers: Json) -> Change:
    action = (decided.payload or {})["action"]
    args = action["args"]
    return Change(
        kind=kind, tool=action["tool"], amount=args.get("amount"), was=was, now=now, numbers=numbers,
        target=f"{args.get('order_id', '')} {args.get('payment_id', '')}".strip(),
    )  # fmt: skip


def _numbers(decided: Happened, now: Decision) -> Json:
    """The numbers that moved, and all of the check that now says no."""
    moved = dict[str, Json]()
    for check in now.checks:
        then, new = facts.inputs_of(decided, check.name), _plain(check.inputs)
        names = new if not check.ok else [name for name in new if name in then and then[name] != new[name]]
        pairs = {name: [then.get(name), new[name]] for name in names}
        if pairs:
            moved[check.name] = pairs
    return moved


def _plain(value: Any) -> Any:
    """As it reads after a journey through JSON: pairs are lists there."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _over(usage: Json, limits: Limits) -> Json:
    """Each cap that the run's own usage passes: `[used, cap]`."""
    caps = {
        "max_model_calls": (usage["model_calls"], limits.max_model_calls),
        "deadline_ms": (usage["active_ms"], limits.deadline_ms),
        "max_write_attempts": (usage["write_attempts"], limits.max_write_attempts),
        "max_input_tokens": (usage["input_tokens"], limits.max_input_tokens),
        "max_output_tokens": (usage["output_tokens"], limits.max_output_tokens),
        "max_cost_micros": (usage["cost_micros"], prices.micros(limits.max_cost)),
    }
    over: Json = {name: [used, cap] for name, (used, cap) in caps.items() if used > cap}
    return over


# --- totals -----------------------------------------------------------------------------------------------------


def totals(found: list[Judged]) -> Json:
    """By kind of change: how many, and how much money by currency, as decimal strings."""
    by_kind = dict[str, Json]()
    for change in (change for run in found for change in run.changes):
        row = by_kind.setdefault(change.kind, {"count": 0, "money": {}})
        row["count"] += 1
        if change.amount is not None:
            _add(row["money"], change.amount)
    return by_kind


def _add(sums: Json, wire: Json) -> None:
    amount = money.parse(wire)
    known = sums.get(amount.currency)
    before = money.parse({"amount": known, "currency": amount.currency}) if known is not None else None
    sums[amount.currency] = (amount if before is None else before + amount).amount()
