"""What becomes of proposals: reads run in parallel, a write goes to the gate; each call gets its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agentsite import clock
from agentsite.money import parse as parse_money
from runs import evidence, numbering, precheck
from runs.contracts import NewApproval, NewEvent, NewObservation, Outcome, PendingAction, RunState
from runs.orchestrator import endings, fresh, people, resting
from runs.orchestrator.at_gate import Asked
from runs.orchestrator.pauses import park, wait_s, waited_too_long
from runs.orchestrator.ports import Ports
from runs.orchestrator.turns import proposing
from runs.prompt import MAX_REPAIRS
from runs.states import On, Status
from runs.story import OUR_REFUNDS
from tools import gate, registry, rules
from tools.contracts import Decision, Json, PassageRef, Proposal, ReadCall, ReadResult, Searches
from tools.errors import InvalidArguments, ReadFailed, UnknownTool

REFUNDED_ALREADY = ("nothing_refundable", "amount_exceeds_refundable", "amount_exceeds_payment")


def reads(run: RunState, ports: Ports) -> Outcome:
    """Run the allowed reads of the last turn in parallel; an outage parks the run, and is never an empty list."""
    started = ports.monotonic()
    calls, refusals = _allowed(run, ports)
    said = people.answered(run, ports.settings())
    results = _run(run, calls, ports) if calls else ()
    took = round((ports.monotonic() - started) * 1000)
    down = [r for r in results if not r.ok and r.retryable]
    if down and run.status is not Status.VERIFIED:
        return _outage(run, results, refusals, said, down, ports)
    spans = numbering.taken(run)
    seen = tuple(_seen(r, f"t{spans + n}") for n, r in enumerate(results, start=1))
    found: dict[str, Any] = {
        "observations": (*seen, *refusals), "events": _read_events(results, seen), "active_ms": took,
    }  # fmt: skip
    if run.status is not Status.VERIFIED and resting.abstains(run, seen, ports):
        return endings.escalate(run, "policy_stale", **people.beside(said, **found))
    if said.rejected:
        return people.rejected(run, said, **found)
    observations, folded = endings.fold(run)
    more = people.beside(said, **found)
    more["observations"] = (*more["observations"], *observations)
    return Outcome(
        on=On.READS_OBSERVED, retries=0, repairs=0 if calls and not refusals else None, folded=folded, **more
    )


def investigated(run: RunState, ports: Ports) -> Outcome:
    """What becomes of the last turn's calls: one question or one wish for a person alone, else reads and the like."""
    return people.handed_on(run, ports.settings()) or reads(run, ports)


def _allowed(run: RunState, ports: Ports) -> tuple[tuple[ReadCall, ...], tuple[NewObservation, ...]]:
    """The reads of the last turn that may run, and the denials of those that may not."""
    blocked = ports.settings().TOOLS_BLOCKED
    scope, late = run.scope(), people.deferred(run.turns[-1].proposals)
    wanted = [p for p in run.unanswered if p.call_id not in late and not people.is_to_people(p)]
    no = {p.call_id: slug for p in wanted if (slug := gate.read_allowed(scope, p, blocked=blocked)) is not None}
    calls = tuple(ReadCall(call_id=p.call_id, tool=p.tool, args=p.args) for p in wanted if p.call_id not in no)
    refusals = (_denial(p, {"error": "denied", "rule": no[p.call_id]}) for p in wanted if p.call_id in no)
    return calls, tuple(refusals)


def _run(run: RunState, calls: tuple[ReadCall, ...], ports: Ports) -> tuple[ReadResult, ...]:
    backend = ports.backend_of(run.tenant_id, run.agent)
    ports.leave_database()
    return ports.run_reads(run.scope(), backend, calls, _searches(run, ports))


def _searches(run: RunState, ports: Ports) -> Searches:
    pin, customer = run.contract.policy_version_pin, run.contract.actor.customer_id
    return {
        "search_policy": lambda query: ports.search(run.tenant_id, query, pin),
        "search_cases": lambda query: ports.cases(run.tenant_id, customer, run.run_id, query),
    }


def _outage(
    run: RunState,
    results: tuple[ReadResult, ...],
    refusals: tuple[NewObservation, ...],
    said: people.Said,
    down: list[ReadResult],
    ports: Ports,
) -> Outcome:
    """Keep what was read, remember what was not; those calls stay unanswered and are made again."""
    spans = numbering.taken(run)
    good = [r for r in results if r not in down]
    seen = [_seen(r, f"t{spans + n}") for n, r in enumerate(good, start=1)]
    told = _read_events(results, seen)
    if run.retries == 0:
        seen += [NewObservation(kind="error", source=r.tool, content=r.content, args=r.args) for r in down]
    more = people.beside(said, observations=(*seen, *refusals), events=told)
    if said.rejected:
        more["repairs"] = run.repairs + 1
    if waited_too_long(run, ports.settings()):
        return endings.escalate(run, "dependency_unavailable", **more)
    asked_s = max(r.retry_in_s or 0.0 for r in down)
    return park(run, down[0].tool, wait_s(run, ports.settings(), asked_s), **more)


def _seen(r: ReadResult, span: str) -> NewObservation:
    return NewObservation(
        kind="result" if r.ok else "error", source=r.tool, content=r.content, call_id=r.call_id, span=span,
        args=r.args, meta=r.meta, fetched_at=r.fetched_at, took_ms=r.took_ms,
    )  # fmt: skip


def _read_events(results: Sequence[ReadResult], seen: Sequence[NewObservation]) -> tuple[NewEvent, ...]:
    """An event a read; one that was not observed has no span yet, it is made again."""
    spans = {o.call_id: o.span for o in seen}
    return tuple(
        NewEvent(
            type="tool.observed" if r.ok else "tool.error",
            meta={"tool": r.tool, "call": r.call_id, "took_ms": r.took_ms} | ({} if r.ok else {"error": _slug(r)}),
            payload={"args": r.args},
            span=spans.get(r.call_id),
        )
        for r in results
    )


def _slug(r: ReadResult) -> str:
    return str(r.content.get("error", "read_failed")) if isinstance(r.content, dict) else "read_failed"


def _denial(proposal: Proposal, content: Json) -> NewObservation:
    return NewObservation(
        kind="denial", source=proposal.tool, content=content, call_id=proposal.call_id, args=proposal.args
    )


def fits(pending: PendingAction) -> bool:
    """Whether a stored action is one that today's registry would take as it is: a deploy may lie between (M87)."""
    try:
        return registry.normalise(pending.tool, pending.args) == pending.args
    except (InvalidArguments, UnknownTool):
        return False


def case_of(
    run: RunState, pending: PendingAction, ports: Ports, *, leave_out: str = ""
) -> tuple[gate.Case, int | None]:  # fmt: skip
    """Everything the gate may look at, and the qualification that the proposing route has at this moment.

    The order's epoch is read before any of its facts (`write-path.md` 2).
    """
    items = evidence.items(run.observations)
    told = ports.at_gate(_asked(run, pending, evidence.passages(items), leave_out))
    spent = [w for w in run.writes if w.sent or w.state not in rules.NEVER_MADE]
    closed = frozenset(w.payment_id for w in spent if w.key != leave_out)
    case = gate.Case(
        scope=run.scope(), backend=ports.backend_of(run.tenant_id, run.agent),
        tool=pending.tool, args=pending.args,
        hash=pending.action_hash, key=pending.key, cited=pending.evidence,
        evidence=items, policy=told.policy,
        own=told.books.own, epoch=told.books.epoch, used=told.books.used,
        closed=closed, qualified=told.qualification is not None, leave_out=leave_out,
        blocked=ports.settings().TOOLS_BLOCKED, sensitive=precheck.for_approval(run),
    )  # fmt: skip
    return case, told.qualification


def _asked(run: RunState, pending: PendingAction, rests_on: tuple[PassageRef, ...], leave_out: str) -> Asked:
    contract, proposed_in = run.contract, proposing(run)
    return Asked(
        tenant_id=run.tenant_id, agent=run.agent, customer_id=contract.actor.customer_id,
        order_id=pending.args["order_id"], currency=pending.args["amount"]["currency"], leave_out=leave_out,
        pin=contract.policy_version_pin, rests_on=rests_on, route=proposed_in.route,
        answered_model=proposed_in.answered_model, manual_allowed=contract.manual_qualification,
    )  # fmt: skip


def decided(decision: Decision, pending: PendingAction, decision_id: str) -> NewEvent:
    return NewEvent(
        type="gate.decided",
        meta={
            "decision": decision.kind, "rule": decision.rule, "decision_id": decision_id,
            "action_hash": pending.action_hash, "required": decision.required,
        } | ({"error": decision.rule} if decision.kind == "deny" else {}),
        payload={
            "action": {"tool": pending.tool, "args": pending.args}, "checks": [c.wire() for c in decision.checks],
            "facts": decision.facts,
        },
    )  # fmt: skip


def gate_write(run: RunState, ports: Ports) -> Outcome:
    """Put the pending write before the gate; its answer is the next status."""
    pending = run.pending
    assert pending is not None, "action_proposed holds a pending action"
    if endings.has(run, "message"):
        return superseded(run, pending)
    if not fits(pending):
        return endings.escalate(run, "approval_invalid")
    started = ports.monotonic()
    try:
        decision, found = judge(run, pending, ports)
    except ReadFailed as error:
        return unreachable(run, error, ports)
    took = round((ports.monotonic() - started) * 1000)
    return answered(run, pending, decision, found, took)


def judge(run: RunState, pending: PendingAction, ports: Ports) -> tuple[Decision, fresh.Found]:
    """The gate's decision on the facts of now; what it does not deny rests on evidence that was read again, where that
    was long ago (M123). Raises ReadFailed."""
    case, _ = case_of(run, pending, ports)
    ports.leave_database()
    decision = gate.evaluate(case, ports.read_facts)
    found = fresh.compare(run, pending, ports) if decision.kind != "deny" else ()
    return fresh.judged(decision, found), found


def unreachable(run: RunState, error: ReadFailed, ports: Ports) -> Outcome:
    """The gate could not read its facts: no decision is made of that."""
    events = (NewEvent(type="tool.error", meta={"tool": "gate", "error": error.slug}),)
    if waited_too_long(run, ports.settings()) or not error.retryable:
        return endings.escalate(run, "dependency_unavailable", events=events)
    return park(run, "business_system", wait_s(run, ports.settings(), error.retry_after_s), events=events)


def answered(run: RunState, pending: PendingAction, decision: Decision, found: fresh.Found, took: int) -> Outcome:
    """The gate's decision as an outcome; used for a first proposal and when staff ask again."""
    decision_id = f"{run.run_id}:{pending.call_id}:{run.version}"
    event = decided(decision, pending, decision_id)
    released = _ruled(pending, decision, decision_id)
    if decision.kind == "allow":
        return Outcome(on=On.GATE_ALLOWED, events=(event,), pending=released, active_ms=took, repairs=0, retries=0)
    if decision.kind == "needs_approval":
        return Outcome(
            on=On.GATE_NEEDS_APPROVAL, events=(event,), pending=released, active_ms=took, repairs=0, retries=0,
            approval=approval_for(run, released, decision), waiting_for="approval",
            due_in_s=float(run.contract.approval_ttl_s),
        )  # fmt: skip
    if decision.rule == fresh.CHANGED:  # no mistake of the model's, so it costs it no repair
        return Outcome(
            on=On.GATE_DENIED, events=(event,), observations=fresh.notes(pending, found), clear_pending=True,
            active_ms=took, retries=0,
        )  # fmt: skip
    return _denied(run, pending, decision, event, took)


def _ruled(pending: PendingAction, decision: Decision, decision_id: str) -> PendingAction:
    return replace(pending, rule=decision.rule, decision_id=decision_id)


def approval_for(run: RunState, pending: PendingAction, decision: Decision) -> NewApproval:
    args = pending.args
    return NewApproval(
        pending=pending, decision=decision, order_id=args["order_id"], payment_id=args["payment_id"],
        amount=parse_money(args["amount"]), policy=run.contract.policy_version_pin,
        evidence=evidence.cited(run.observations, pending.evidence),
    )  # fmt: skip


def _denied(run: RunState, pending: PendingAction, decision: Decision, event: NewEvent, took: int) -> Outcome:
    notes = refusal(pending, decision)
    if decision.escalate is not None:
        return endings.escalate(run, decision.escalate, observations=notes, events=(event,), active_ms=took)
    if run.repairs >= MAX_REPAIRS and run.status is Status.ACTION_PROPOSED and not run.confirmed:
        return endings.escalate(run, "repair_exhausted", observations=notes, events=(event,), active_ms=took)
    return Outcome(
        on=On.GATE_DENIED, events=(event,), observations=notes, clear_pending=True, active_ms=took,
        repairs=run.repairs + 1,
    )  # fmt: skip


def refusal(pending: PendingAction, decision: Decision) -> tuple[NewObservation, ...]:
    """The denial as the model sees it: the rule and the numbers of the check that failed, then what was read for it."""
    failed = next((c for c in decision.checks if not c.ok), None)
    content = {"error": "denied", "rule": decision.rule, "numbers": failed.inputs if failed else {}}
    note = NewObservation(
        kind="denial", source=pending.tool, content=content, call_id=pending.call_id, args=pending.args
    )
    return (note, *_refunds_read(pending, decision))


def _refunds_read(pending: PendingAction, decision: Decision) -> tuple[NewObservation, ...]:
    """The order's refunds where they are why the gate said no: a customer is told their references (M54).

    Those that the list shows, and his own ones that only we know of: a list may lag, or never show one.
    """
    if decision.rule not in REFUNDED_ALREADY:
        return ()
    listed = _refunds_of("get_refund_status", decision.facts["refunds"], pending, decision)
    ours = decision.facts.get("ours")
    return (listed, _refunds_of(OUR_REFUNDS, ours, pending, decision)) if ours else (listed,)


def _refunds_of(source: str, refunds: list[Json], pending: PendingAction, decision: Decision) -> NewObservation:
    order_id = pending.args["order_id"]
    rows = [{**refund, "order_id": order_id} for refund in refunds]
    return NewObservation(
        kind="result", source=source, args={"order_id": order_id}, content={"order_id": order_id, "refunds": rows},
        fetched_at=clock.parse_rfc3339(decision.facts["read_at"]),
    )  # fmt: skip


def superseded(run: RunState, pending: PendingAction) -> Outcome:
    """A customer's message came before the intent: the run gathers again with it (M105)."""
    observations, folded = endings.fold(run)
    wrote = endings.has(run, "message")
    because = "the customer wrote before this was done" if wrote else "its approval was voided"
    content = {"error": "superseded", "because": because}
    note = NewObservation(
        kind="denial", source=pending.tool, content=content, call_id=pending.call_id, args=pending.args
    )
    return Outcome(
        on=On.MESSAGE_FOLDED, observations=(note, *observations), folded=folded, clear_pending=True,
        void_approval="customer_message" if wrote else "void",
        voids=1 if wrote and run.status in (Status.AWAITING_APPROVAL, Status.APPROVED) else 0,
    )  # fmt: skip
