"""The gate: decides every proposal from live facts it reads itself, and alone makes Releases.

Deterministic code between untrusted text and a side effect. It never imports the executor, credentials, runs
or approvals: qualifications, approvals and our own writes arrive as values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from agentsite import clock
from agentsite.money import CurrencyMismatch, Money
from agentsite.money import parse as parse_money
from tools import citations, entries, registry, rules
from tools import facts as live
from tools.contracts import (
    ApprovalTicket,
    Backend,
    Check,
    Decision,
    EvidenceItem,
    Json,
    OrderFacts,
    OwnWrite,
    Payment,
    PolicyState,
    Proposal,
    ReadFacts,
    Release,
    Scope,
    UsedSoFar,
    Withheld,
    action_hash,
)
from tools.errors import InvalidArguments, NotFound, UnknownTool
from tools.rules import customer_limit, tenant_limit

ESCALATES = {
    "policy_stale": "policy_stale",
    "payment_disputed": "needs_a_person",
    "route_not_qualified": "route_not_qualified",
    "tool_blocked": "needs_a_person",
}
OWN_AUTHORITY = "refund_within_own_authority"
"""The rule of an action that needs nobody."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One proposed write with everything the gate may look at besides the live facts, which it reads itself.

    `closed` are payments whose one write of this run is spent; `leave_out` is the key of a write being re-sent.
    `blocked` are tools that the site lets nobody use now; `sensitive` are the customer's words by which every write
    needs a person (M116).
    """

    scope: Scope
    backend: Backend
    tool: str
    args: Json
    hash: str
    key: str
    cited: tuple[str, ...]
    evidence: tuple[EvidenceItem, ...]
    policy: PolicyState
    own: tuple[OwnWrite, ...]
    epoch: int
    used: UsedSoFar
    closed: frozenset[str]
    qualified: bool
    leave_out: str = ""
    blocked: Collection[str] = ()
    sensitive: tuple[str, ...] = ()


def read_allowed(scope: Scope, proposal: Proposal, *, blocked: Collection[str] = ()) -> str | None:
    """Why a read may not run (a slug), or None. Ownership is checked on the order itself when it is read.

    `blocked`: tools that the site lets nobody use now.
    """
    refused = entries.read_refusal(scope, proposal, blocked)
    order_id = proposal.args.get("order_id")
    if refused is None and order_id is not None and scope.order_ids is not None and order_id not in scope.order_ids:
        return "order_out_of_scope"
    return refused


def read_live(backend: Backend, order_id: str, trace_id: str, own: tuple[OwnWrite, ...], epoch: int) -> OrderFacts:
    """The facts of this moment, from the business system itself."""
    return live.read_facts(backend, order_id, trace_id, own=own, epoch=epoch)


def evaluate(case: Case, read: ReadFacts = read_live) -> Decision:
    """Allow, deny or ask a person, with every check's inputs. Raises tools.errors.ReadFailed on an outage."""
    before = tuple(_static_checks(case))
    refused = _first_failed(before)
    if refused is not None:
        return _deny(refused, before)
    try:
        facts = read(case.backend, str(case.args["order_id"]), case.scope.trace_id, case.own, case.epoch)
    except NotFound:
        return _deny("order_not_found", (*before, Check(name="order_exists", ok=False)))
    return _with_facts(case, before, facts)


def _with_facts(case: Case, before: tuple[Check, ...], facts: OrderFacts) -> Decision:
    shown = describe(facts) | rules.unlisted(facts, case.scope)
    try:
        checks = (*before, *_fact_checks(case, facts))
    except CurrencyMismatch:
        checks = (*before, Check(name="currency_mismatch", ok=False, inputs=_currencies(case, facts)))
    refused = _first_failed(checks)
    if refused is not None:
        return _deny(refused, checks, shown)
    return _threshold(case, checks, shown)


def _first_failed(checks: Iterable[Check]) -> str | None:
    return next((c.name for c in checks if not c.ok), None)


def _deny(rule: str, checks: tuple[Check, ...], facts: Json | None = None) -> Decision:
    return Decision(kind="deny", rule=rule, checks=checks, escalate=ESCALATES.get(rule), facts=facts or {})


# A check's name, where it fails, is the denial's reason. They run in this order; the first failure decides.


def _static_checks(case: Case) -> Iterable[Check]:
    scope = case.scope
    yield from entries.write_checks(scope, case.tool, case.args, blocked=case.blocked, secrets=case.backend.secrets)
    yield Check(name="route_not_qualified", ok=case.qualified)
    order_id = str(case.args.get("order_id"))
    in_orders = scope.order_ids is None or order_id in scope.order_ids
    yield Check(name="order_out_of_scope", ok=in_orders, inputs={"order_id": order_id})
    target = str(case.args.get("payment_id"))
    yield Check(name="write_already_made", ok=target not in case.closed, inputs={"payment_id": target})
    yield from citations.checks(case.cited, case.evidence, case.policy, order_id)


def _fact_checks(case: Case, facts: OrderFacts) -> Iterable[Check]:
    order, amount = facts.order, parse_money(case.args["amount"])
    owner = {"order_customer": order.customer_id, "actor": case.scope.customer_id}
    yield Check(name="order_not_yours", ok=order.customer_id == case.scope.customer_id, inputs=owner)
    payment = next((p for p in facts.payments if p.payment_id == case.args["payment_id"]), None)
    belongs = payment is not None and payment.order_id == order.order_id
    yield Check(name="payment_not_of_order", ok=belongs, inputs={"payment_id": case.args["payment_id"]})
    if payment is None:
        return
    yield Check(name="payment_disputed", ok=payment.state != "disputed", inputs={"state": payment.state})
    captured = payment.state in ("captured", "refunded")
    yield Check(name="payment_not_captured", ok=captured, inputs={"state": payment.state})
    yield _currency_check(case, facts, payment, amount)
    yield from _amount_checks(case, facts, payment, amount)


def _currencies(case: Case, facts: OrderFacts) -> Json:
    return {
        "proposed": case.args["amount"]["currency"],
        "order": facts.order.total.currency,
        "payments": sorted({p.amount.currency for p in facts.payments}),
    }


def _currency_check(case: Case, facts: OrderFacts, payment: Payment, amount: Money) -> Check:
    order = facts.order
    one = {amount.currency, payment.amount.currency, order.total.currency, order.amount_due.currency}
    return Check(name="currency_mismatch", ok=len(one) == 1, inputs=_currencies(case, facts))


def _amount_checks(case: Case, facts: OrderFacts, payment: Payment, amount: Money) -> Iterable[Check]:
    if amount.currency != payment.amount.currency or amount.currency != facts.order.total.currency:
        return
    yield Check(name="amount_not_positive", ok=amount.minor > 0)
    excess, left = rules.excess(facts, leave_out=case.leave_out), _left(case, facts, payment)
    numbers = _numbers(case, facts) | {"max_excess": excess.wire(), "requested": amount.wire()}
    yield Check(name="nothing_refundable", ok=excess.minor > 0, inputs=numbers)
    yield Check(name="amount_exceeds_refundable", ok=amount <= excess, inputs=numbers)
    left_inputs = {"left": left.wire(), "requested": amount.wire(), "payment_id": payment.payment_id}
    yield Check(name="amount_exceeds_payment", ok=amount <= left, inputs=left_inputs)
    rule = case.scope.write_tools[case.tool].rule(amount.currency)
    yield Check(name="no_limit_for_currency", ok=rule is not None, inputs={"currency": amount.currency})
    if rule is None:
        return
    total = _on_order(case, amount)
    ceiling = {"limit": rule[0].wire(), "requested": amount.wire(), "with_earlier": total.wire()}
    yield Check(name="amount_exceeds_ceiling", ok=total <= rule[0], inputs=ceiling)


def _left(case: Case, facts: OrderFacts, payment: Payment) -> Money:
    return rules.left_on(facts, payment.payment_id, leave_out=case.leave_out)


def _numbers(case: Case, facts: OrderFacts) -> Json:
    refunded = rules.refunded(facts, leave_out=case.leave_out)
    return {
        "captured": rules.captured(facts).wire(),
        "refunded": refunded.wire(),
        "amount_due": facts.order.amount_due.wire(),
        "refunds": [{"refund_id": r.refund_id, "state": r.state, "amount": r.amount.wire()} for r in facts.refunds],
    }


def _on_order(case: Case, amount: Money) -> Money:
    """The request with what the agent already refunded and holds open on this order in 30 days (M118)."""
    return Money(minor=amount.minor + case.used.agent_on_order_minor, currency=amount.currency)


def _threshold(case: Case, checks: tuple[Check, ...], facts: Json) -> Decision:
    amount = parse_money(case.args["amount"])
    rule = case.scope.write_tools[case.tool].rule(amount.currency)
    assert rule is not None, "a currency without an entry was denied above"
    _, threshold, two_people = rule
    total = _on_order(case, amount)
    large = two_people is not None and total > two_people
    asks = _asks(case, total, threshold)
    inputs = {"threshold": threshold.wire(), "with_earlier": total.wire(), "large": large, **_totals(case, amount)}
    checks = (*checks, *_words(case), Check(name="within_own_authority", ok=True, inputs=inputs))
    kind: Literal["allow", "needs_approval"] = "needs_approval" if asks else "allow"
    return Decision(
        kind=kind, rule=asks or OWN_AUTHORITY, checks=checks, action_hash=case.hash,
        required=(2 if large else 1) if asks else 0, large=large, facts=facts,
    )  # fmt: skip


def _words(case: Case) -> Iterable[Check]:
    """Shown to the approver; nothing is denied for what a customer says."""
    if case.sensitive:
        yield Check(name="sensitive_words", ok=True, inputs={"words": list(case.sensitive)})


def _asks(case: Case, total: Money, threshold: Money) -> str | None:
    if total > threshold:
        short = threshold.amount().removesuffix(".00")
        return f"refund_above_{short}_requires_approval"
    if case.sensitive:
        return "sensitive_words_require_approval"
    amount = parse_money(case.args["amount"])
    if _over(case.used.customer_day, customer_limit(case.scope, amount.currency), amount):
        return "customer_day_total_requires_approval"
    if _over(case.used.tenant_hour, tenant_limit(case.scope, amount.currency), amount):
        return "tenant_hour_total_requires_approval"
    return None


def _totals(case: Case, amount: Money) -> Json:
    return {
        "customer_day": {
            "used": list(case.used.customer_day),
            "limit": customer_limit(case.scope, amount.currency),
        },
        "tenant_hour": {"used": list(case.used.tenant_hour), "limit": tenant_limit(case.scope, amount.currency)},
    }


def _over(used: tuple[int, int], limit: tuple[int, int] | None, amount: Money) -> bool:
    return limit is not None and (used[0] + 1 > limit[0] or used[1] + amount.minor > limit[1])


def describe(facts: OrderFacts) -> Json:
    """The live facts as they are stored with a decision and shown to the approver."""
    order = facts.order
    return {
        "read_at": clock.rfc3339(facts.read_at),
        "order": {
            "order_id": order.order_id, "customer_id": order.customer_id, "status": order.status,
            "total": order.total.wire(), "amount_due": order.amount_due.wire(),
        },
        "payments": [
            {"payment_id": p.payment_id, "state": p.state, "amount": p.amount.wire(), "captured_at": p.captured_at}
            for p in facts.payments
        ],
        "refunds": [
            {"refund_id": r.refund_id, "payment_id": r.payment_id, "state": r.state, "amount": r.amount.wire()}
            for r in facts.refunds
        ],
    }  # fmt: skip


def release(
    case: Case, ticket: ApprovalTicket | None, *, decision_id: str, read: ReadFacts = read_live
) -> Release | Withheld:
    """Everything again, directly before the intent: approval, hash, live facts, policy, authority."""
    if not _hash_holds(case) or (ticket is not None and ticket.action_hash != case.hash):
        return Withheld(kind="escalate", rule="approval_invalid")
    if ticket is not None and ticket.status != "approved":
        return Withheld(kind="escalate", rule="approval_invalid")
    decision = evaluate(case, read)
    if decision.kind == "deny":
        kind: Literal["escalate", "denied"] = "escalate" if decision.escalate else "denied"
        rule = decision.escalate or decision.rule
        return Withheld(kind=kind, rule=rule, checks=decision.checks, decision=decision)
    if _needs_asking(decision, ticket):
        return Withheld(kind="ask_afresh", rule=decision.rule, checks=decision.checks, decision=decision)
    amount = parse_money(case.args["amount"])
    if _over(case.used.tenant_hour, tenant_limit(case.scope, amount.currency), amount):
        return Withheld(kind="hold", rule="tenant_hour_total", checks=decision.checks, decision=decision, hold_s=60)
    return _make(case, ticket.approval_id if ticket else None, decision_id, decision, body=None)


def release_again(
    case: Case, *, approval_id: str | None, decision_id: str, body: str, read: ReadFacts = read_live
) -> Release | Withheld:
    """A write of ours once more: the frozen body, released only if the facts of this moment still allow it."""
    if not _hash_holds(case):
        return Withheld(kind="escalate", rule="approval_invalid")
    decision = evaluate(case, read)
    if decision.kind == "deny":
        return Withheld(kind="denied", rule=decision.rule, checks=decision.checks, decision=decision)
    if decision.kind == "needs_approval" and approval_id is None:
        return Withheld(kind="denied", rule=decision.rule, checks=decision.checks, decision=decision)
    return _make(case, approval_id, decision_id, decision, body=body)


def _hash_holds(case: Case) -> bool:
    try:
        normal = registry.normalise(case.tool, case.args)
    except (InvalidArguments, UnknownTool):
        return False  # stored by a version of ours whose schema was another (M87)
    policy = case.scope.policy_pin
    made = action_hash(
        tenant_id=case.scope.tenant_id, run_id=case.scope.run_id, tool=case.tool, args=normal, policy=policy
    )
    return normal == case.args and made == case.hash


def _needs_asking(decision: Decision, ticket: ApprovalTicket | None) -> bool:
    if ticket is None:
        return decision.kind == "needs_approval"
    if not ticket.in_time or not ticket.deciders_permitted:
        return True
    if decision.kind == "allow":
        return False
    return len(ticket.deciders) < decision.required or (decision.large and not ticket.large)


def _make(case: Case, approval_id: str | None, decision_id: str, decision: Decision, *, body: str | None) -> Release:
    scope, args, amount = case.scope, case.args, parse_money(case.args["amount"])
    numbers = next(c.inputs for c in decision.checks if c.name == "nothing_refundable")
    frozen = body or rules.post_body(
        order_id=args["order_id"], payment_id=args["payment_id"], amount=args["amount"], reason=args["reason"],
        approval_id=approval_id, decision_id=decision_id, run_id=scope.run_id, key=case.key,
        expected_refunded=numbers["refunded"],
    )  # fmt: skip
    return Release(
        tenant_id=scope.tenant_id, run_id=scope.run_id, request_id=scope.request_id, trace_id=scope.trace_id,
        tool=case.tool, args=args, policy=scope.policy_pin, action_hash=case.hash, key=case.key,
        approval_id=approval_id, decision_id=decision_id, order_id=args["order_id"], payment_id=args["payment_id"],
        amount=amount, body=frozen, epoch=case.epoch, customer_limit=customer_limit(scope, amount.currency),
        tenant_limit=tenant_limit(scope, amount.currency), origin=case.backend.url, settle_s=case.backend.settle_s,
    )  # fmt: skip


def ticket_of_intent(
    *, scope: Scope, tool: str, args: Json, hash_: str, key: str, approval_id: str | None, decision_id: str, body: str,
    origin: str,
) -> Release:  # fmt: skip
    """The ticket of a write whose intent is committed: the gate released it then, the stored row is its word."""
    made = action_hash(tenant_id=scope.tenant_id, run_id=scope.run_id, tool=tool, args=args, policy=scope.policy_pin)
    assert made == hash_, "a stored intent holds the action that was hashed"
    return Release(
        tenant_id=scope.tenant_id, run_id=scope.run_id, request_id=scope.request_id, trace_id=scope.trace_id,
        tool=tool, args=args, policy=scope.policy_pin, action_hash=hash_, key=key, approval_id=approval_id,
        decision_id=decision_id, order_id=args["order_id"], payment_id=args["payment_id"],
        amount=parse_money(args["amount"]), body=body, epoch=0, customer_limit=None, tenant_limit=None,
        origin=origin,
    )  # fmt: skip
