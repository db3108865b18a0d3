"""Further paths of the corpus: each verdict of the gate that a run can meet; evidence that is read again (M123)."""

from __future__ import annotations

from typing import Any

from runs.models import Run
from runs.states import On
from tests.replay.ways import ANSWERED, REFUNDED, End, Path, answered_yes, between, both_due, handed_over
from tests.system.business import captures, order
from tests.world import World, final, gather, inr, refund, s0

EVIDENCE = ("get_order", "get_payments", "get_refund_status", "search_policy")


def _searched(*denied: Any) -> list[Any]:
    """Each proposal after a look of its own: three denials in a row would end the run."""
    turns: list[Any] = []
    for number, proposal in enumerate(denied):
        turns += [[{"tool": "search_policy", "args": {"query": f"refund {number}", "limit": 1}}], proposal]
    return turns


def denied_for_what_it_asks_for(world: World) -> Run:
    """One proposal after the other, each with another fault, until a person is needed."""
    both_due(world)
    world.limits(max_amount="1800.00", requires_approval_above="1000.00", two_people_above="1700.00")
    world.profile(limits={"max_model_calls": 40, "max_input_tokens": 500_000})
    world.seed(payments=[
        {"payment_id": "pay_auth", "order_id": "8472", "state": "authorised", "amount": inr("10.00")},
        {"payment_id": "pay_lost", "order_id": "8472", "state": "disputed", "amount": inr("10.00")},
    ])  # fmt: skip
    between(world, lambda: world.seed(customer_id="cust_other"), On.WRITE_PROPOSED, 7)
    between(world, lambda: world.seed(customer_id="cust_5521"), On.GATE_DENIED, 7)
    return world.start(script=[*gather(), *_searched(
        refund(order_id="9999"), refund("pay_nowhere"), refund("pay_auth", "10.00"), refund(currency="USD"),
        refund(amount="2500.00"), refund(amount="2000.00"), refund(amount="1500.00"), refund("pay_lost", "10.00"),
    )])  # fmt: skip


def denied_in_a_currency_without_a_limit(world: World) -> Run:
    rule = {"max_amount": "100.00", "requires_approval_above": "10.00"}
    world.profile(write_tools={"issue_refund": {"by_currency": {"USD": rule}}})
    return world.start()


def denied_for_an_order_that_is_gone(world: World) -> Run:
    between(world, lambda: world.sandbox.control("/_seed", clear_order="8472"), On.WRITE_PROPOSED)
    return world.start()


def denied_on_another_case(world: World) -> Run:
    world.profile(memory={"session": True})
    actor = {"customer_id": "cust_5521", "session_id": "sess_91c"}
    world.start("req-1", script=[final()], actor=actor)
    cites = refund(evidence=(*EVIDENCE, "session_history"))
    return world.start(script=[*gather(), cites, final()], actor=actor)


def words_that_need_a_person_s_yes(world: World) -> Run:
    goal = "My lawyer will hear of it: order 8472 was charged twice."
    run = world.start(script=s0(refund(amount="500.00")), goal=goal)
    return answered_yes(world, run)


def total_of_the_hour_holds_a_yes(world: World) -> Run:
    """The hour is full: a person is asked, and his yes waits for the next hour."""
    world.profile(aggregates={"INR": {"tenant_hour": {"count": 1, "amount": "200000.00"}}})
    world.sandbox.control("/_seed", orders=[order("8500")], payments=captures("8500", "pay_8500"))
    world.seed(amount_due=inr("1000.00"))
    world.start("req-1", script=s0(refund("pay_9001", "100.00")))
    return answered_yes(world, world.start("req-2", script=s0(refund("pay_9002", "100.00"))))


# --- evidence that is old ------------------------------------------------------------------------------------------


def _old_at_once(world: World) -> None:
    world.settings(EVIDENCE_FRESH_S="0.000001")


def _cites() -> Any:
    return refund(evidence=EVIDENCE)


def evidence_read_again_is_the_same(world: World) -> Run:
    """At the gate it is; at the release its words moved, and the yes stands."""
    _old_at_once(world)
    run = world.start(script=[*gather(), _cites(), final()])
    world.seed(note="gift")
    return answered_yes(world, run)


def evidence_changed_before_and_after_the_yes(world: World) -> Run:
    _old_at_once(world)
    between(world, lambda: world.seed(note="called twice"), On.WRITE_PROPOSED)
    run = world.start(script=[*gather(), _cites(), _cites(), _cites(), final()])
    world.seed(status="returned")
    return answered_yes(world, answered_yes(world, run))


def evidence_changed_when_it_was_asked_again(world: World) -> Run:
    world.profile(approval_ttl_s=1)
    run = world.resume(world.start(script=[*gather(), _cites(), final()]), until="approval_expired")
    _old_at_once(world)
    world.seed(status="returned")
    world.leave(run, "ask_again")
    return world.resume(run)


RULINGS: dict[Path, End] = {
    denied_for_what_it_asks_for: handed_over("needs_a_person"),
    denied_in_a_currency_without_a_limit: ANSWERED,
    denied_for_an_order_that_is_gone: ANSWERED,
    denied_on_another_case: ANSWERED,
    words_that_need_a_person_s_yes: REFUNDED,
    total_of_the_hour_holds_a_yes: ("approved", None, None),
    evidence_read_again_is_the_same: REFUNDED,
    evidence_changed_before_and_after_the_yes: REFUNDED,
    evidence_changed_when_it_was_asked_again: ANSWERED,
}
