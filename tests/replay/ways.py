"""Further paths of the corpus: what doors, timers and dependencies do to a run in each of its statuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentsite.tenants import shadowing, switches
from runs import store
from runs.contracts import Outcome
from runs.models import Counter, Run
from runs.orchestrator.steps import Handled
from runs.states import On
from runs.store.tell import STAFF
from tests.between import after_look
from tests.to_people import ask
from tests.world import TENANT, World, final, gather, inr, reads, refund, s0, turn

Path = Callable[[World], Run]
End = tuple[str, str | None, str | None]
REFUNDED: End = ("completed", None, "refunded")
ANSWERED: End = ("completed", None, "answered")
CANCELLED: End = ("cancelled", "cancelled_by_client", "cancelled")
HALVES = (refund("pay_9001", "999.00"), refund("pay_9002", "999.00"))
"""Two refunds of one order: the agent may make the first by itself, the second needs a person."""


def handed_over(reason: str) -> End:
    return "escalated", reason, "handed_to_staff"


def between(world: World, act: Callable[[], Any], on: On, number: int = 1) -> None:
    """`act` happens after the number-th handler that returns `on`, before that is committed."""
    seen = [0]

    def when(handled: Handled) -> bool:
        seen[0] += isinstance(handled, Outcome) and handled.on is on
        return seen[0] == number

    after_look(world, act, when)


def both_due(world: World) -> None:
    """Nothing of order 8472 is owed any more: both payments may be given back."""
    world.seed(amount_due=inr("0.00"))


def answered_yes(world: World, run: Run) -> Run:
    world.approve(run)
    return world.resume(run)


# --- before anything is proposed -----------------------------------------------------------------------------------


def answered_at_once(world: World) -> Run:
    return world.start(script=[final()])


def cancelled_before_it_began(world: World) -> Run:
    run = world.admit()
    world.cancel(run)
    return world.resume(run)


def cancelled_by_staff_while_it_gathers(world: World) -> Run:
    run = world.admit()
    between(world, lambda: _cancelled_by_staff(run), On.READS_OBSERVED)
    return world.resume(run)


def _cancelled_by_staff(run: Run) -> None:
    store.append_input(str(run.pk), kind="cancel", message_id="cancel-1", text="", by=f"{STAFF}lead_17")


def threat_in_the_request(world: World) -> Run:
    return world.start(goal="Refund order 8472 or I will kill you.")


def unusable_from_the_first_turn_on(world: World) -> Run:
    """The model says nothing at all, three times."""
    return world.start(script=[turn(text="")])


def proposed_at_once_and_without_evidence(world: World) -> Run:
    """Cited is nothing, then what is not there, then policy alone, then what the customer said."""
    bare = refund(evidence=())
    about = [bare, refund(evidence=(), cited=("obs_99",)), reads("search_policy")]
    return world.start(script=[*about, refund(evidence=("search_policy",)), reads("get_order"), final()])


def written_to_at_every_step(world: World) -> Run:
    run = world.admit(script=[*gather(), refund(), refund(), refund(), final()])
    world.message(run, "One thing more.")
    for on, number in ((On.READS_OBSERVED, 1), (On.WRITE_PROPOSED, 1), (On.APPROVAL_GRANTED, 1)):
        between(world, lambda on=on: world.message(run, f"After {on}."), on, number)  # type: ignore[misc]
    run = answered_yes(world, world.resume(run, until="awaiting_approval"))
    between(world, lambda: world.message(run, "Thank you."), On.APPROVAL_GRANTED)
    return answered_yes(world, run)


def cancelled_when_it_proposed(world: World) -> Run:
    run = world.admit()
    between(world, lambda: world.cancel(run), On.WRITE_PROPOSED)
    return world.resume(run)


# --- while it waits --------------------------------------------------------------------------------------------------


def system_down_at_the_gate_and_at_the_release(world: World) -> Run:
    down = lambda: world.sandbox.fault("GET /v1/payments", "status:503", times=3)  # noqa: E731
    between(world, down, On.WRITE_PROPOSED)
    run = world.resume(world.admit(), until="awaiting_approval")
    between(world, down, On.APPROVAL_GRANTED)
    world.approve(run)
    return world.resume(run, until="completed")


def _parked(world: World) -> Run:
    world.settings(RETRY_S="60")
    world.sandbox.fault("GET /v1/payments", "status:503", times=0)
    return world.start()


def cancelled_while_a_system_is_down(world: World) -> Run:
    run = _parked(world)
    world.cancel(run)
    return world.resume(run)


def taken_over_while_a_system_is_down(world: World) -> Run:
    run = _parked(world)
    world.leave(run, "escalate")
    return world.resume(run)


def question_never_answered(world: World) -> Run:
    world.settings(REPLY_FOR_S="0.2")
    return world.resume(world.admit(script=[reads("get_order"), ask()]), until="escalated")


def cancelled_instead_of_an_answer(world: World) -> Run:
    run = world.start(script=[reads("get_order"), ask()])
    world.cancel(run)
    return world.resume(run)


def taken_over_while_it_waits_for_a_decision(world: World) -> Run:
    run = world.start()
    world.leave(run, "escalate")
    return world.resume(run)


# --- a question that expired -----------------------------------------------------------------------------------------


def _expired(world: World, *, until: str | None = "approval_expired", **start: Any) -> Run:
    world.profile(approval_ttl_s=1)
    return world.resume(world.start(**start), until=until)


def nobody_asked_again(world: World) -> Run:
    world.settings(ASK_AGAIN_FOR_S="0.2")
    return world.resume(_expired(world), until="escalated")


def cancelled_after_it_expired(world: World) -> Run:
    run = _expired(world)
    world.cancel(run)
    return world.resume(run)


def written_to_after_it_expired(world: World) -> Run:
    run = _expired(world)
    world.message(run, "I found the money.")
    return world.resume(run)


def asked_again_when_nothing_is_left(world: World) -> Run:
    run = _expired(world)
    world.seed(amount_due=inr("4000.00"))
    world.leave(run, "ask_again")
    return world.resume(run)


def asked_again_when_nobody_is_needed_any_more(world: World) -> Run:
    """The day's total was full; the day turned."""
    world.profile(aggregates={"INR": {"customer_day": {"count": 1, "amount": "5000.00"}}})
    both_due(world)
    world.start(script=s0(refund("pay_9001", "100.00")))
    run = _expired(world, request_id="req-2", script=s0(refund(amount="100.00")))
    Counter.objects.all().delete()
    world.leave(run, "ask_again")
    return world.resume(run)


# --- approved -----------------------------------------------------------------------------------------------------


def cancelled_when_it_was_approved(world: World) -> Run:
    run = world.start()
    between(world, lambda: world.cancel(run), On.APPROVAL_GRANTED)
    return answered_yes(world, run)


def facts_moved_before_the_release(world: World) -> Run:
    run = world.start()
    world.seed(amount_due=inr("4000.00"))
    return answered_yes(world, run)


def tenant_stopped_at_the_release(world: World) -> Run:
    run = world.start()
    switches.flip(TENANT, stop=True, by="ops", reason="a look at it")
    run = answered_yes(world, run)
    switches.flip(TENANT, stop=False, by="ops", reason="fine")
    world.later(run, 10)
    return world.resume(run)


def stored_action_was_changed(world: World) -> Run:
    run = world.start()
    assert run.pending_action is not None
    args = {**run.pending_action["args"], "amount": inr("2001.00")}
    Run.objects.filter(pk=run.pk).update(pending_action={**run.pending_action, "args": args})
    return answered_yes(world, run)


# --- a further write, once one is confirmed ---------------------------------------------------------------------------


def second_write_refused_then_denied_then_thought_over(world: World) -> Run:
    """Rejected by a person; denied by the gate; reads, an unusable turn and a message while it is verified."""
    both_due(world)
    first, second = HALVES
    run = world.admit(script=[*gather(), first, second, first, reads("get_order"), turn(text="hm"), final()])
    run = world.resume(run, until="awaiting_approval")
    world.reject(run, "one is enough")
    between(world, lambda: world.message(run, "And now?"), On.READS_OBSERVED)
    return world.resume(run)


def second_write_never_decided(world: World) -> Run:
    both_due(world)
    return _expired(world, until="completed", script=[*gather(), *HALVES, final()])


def second_write_written_to(world: World) -> Run:
    """As it was proposed, as it was asked about, and as it was approved."""
    both_due(world)
    first, second = HALVES
    run = world.admit(script=[*gather(), first, second, second, final()])
    between(world, lambda: world.message(run, "Wait."), On.WRITE_PROPOSED, 2)
    run = world.resume(run, until="awaiting_approval")
    world.message(run, "I mean it.")
    return world.resume(run)


def second_write_approved_in_vain(world: World) -> Run:
    """A message came first; then the facts said no; then the business system did."""
    both_due(world)
    first, second = HALVES
    run = world.admit(script=[*gather(), first, second, second, second, final()])
    run = world.resume(run, until="awaiting_approval")
    between(world, lambda: world.message(run, "Wait."), On.APPROVAL_GRANTED)
    run = answered_yes(world, run)
    world.seed(amount_due=inr("4000.00"))
    between(world, lambda: both_due(world), On.RELEASE_DENIED)
    run = answered_yes(world, run)
    world.sandbox.fault("POST /v1/refunds", "status:422")
    return answered_yes(world, run)


# --- writes that end in doubt ----------------------------------------------------------------------------------------


def outcome_never_known(world: World) -> Run:
    """The answer is lost, no list shows it, and the business system promises nothing about that."""
    world.profile(commerce={
        "url": world.sandbox.url, "read_token_env": "COMMERCE_READ_TOKEN", "write_token_env": "COMMERCE_WRITE_TOKEN",
        "honours_keys": False, "settle_s": None,
    })  # fmt: skip
    world.settings(RECONCILE_FOR_S="0.05")
    world.sandbox.fault("POST /v1/refunds", "hide:forever")
    world.sandbox.fault("POST /v1/refunds", "drop_after")
    run = world.start()
    world.approve(run)
    return world.resume(run, until="escalated")


def never_shown_on_the_list(world: World) -> Run:
    world.settings(VERIFY_FOR_S="0.05")
    world.sandbox.fault("POST /v1/refunds", "hide:forever")
    run = world.start()
    world.approve(run)
    return world.resume(run, until="escalated")


def step_that_keeps_dying(world: World) -> Run:
    run = world.admit()
    Run.objects.filter(pk=run.pk).update(attempts=50)
    return world.resume(run)


def thought_too_long(world: World) -> Run:
    world.profile(limits={"deadline_ms": 1})
    return world.start(script=[reads("get_order", "get_payments"), final()])


def prompt_too_long_for_any_model(world: World) -> Run:
    world.settings(MODEL_WINDOW_TOKENS="4000")
    return world.start(goal="Refund order 8472. " * 800)


def proposed_in_shadow_mode(world: World) -> Run:
    shadowing.enter(TENANT, by="ops", reason="to see what it would do")
    return world.start()


def finished_by_hand(world: World) -> Run:
    run = unusable_from_the_first_turn_on(world)
    store.finish(store.Resolution(
        run_id=str(run.pk), by="lead_17", reason="handled", note="", text="We called you.", seen_seq=run.last_seq,
    ))  # fmt: skip
    return world.fresh(run)


WAYS: dict[Path, End] = {
    answered_at_once: ANSWERED,
    cancelled_before_it_began: CANCELLED,
    cancelled_by_staff_while_it_gathers: ("cancelled", "cancelled_by_staff", "cancelled"),
    threat_in_the_request: handed_over("needs_a_person"),
    unusable_from_the_first_turn_on: handed_over("no_usable_output"),
    proposed_at_once_and_without_evidence: ANSWERED,
    written_to_at_every_step: REFUNDED,
    cancelled_when_it_proposed: CANCELLED,
    system_down_at_the_gate_and_at_the_release: REFUNDED,
    cancelled_while_a_system_is_down: CANCELLED,
    taken_over_while_a_system_is_down: handed_over("escalated_by_staff"),
    question_never_answered: handed_over("needs_a_person"),
    cancelled_instead_of_an_answer: CANCELLED,
    taken_over_while_it_waits_for_a_decision: handed_over("escalated_by_staff"),
    nobody_asked_again: handed_over("approval_expired"),
    cancelled_after_it_expired: CANCELLED,
    written_to_after_it_expired: ANSWERED,
    asked_again_when_nothing_is_left: ANSWERED,
    asked_again_when_nobody_is_needed_any_more: REFUNDED,
    cancelled_when_it_was_approved: CANCELLED,
    facts_moved_before_the_release: ANSWERED,
    tenant_stopped_at_the_release: REFUNDED,
    stored_action_was_changed: handed_over("approval_invalid"),
    second_write_refused_then_denied_then_thought_over: REFUNDED,
    second_write_never_decided: REFUNDED,
    second_write_written_to: REFUNDED,
    second_write_approved_in_vain: REFUNDED,
    outcome_never_known: handed_over("outcome_unknown"),
    never_shown_on_the_list: handed_over("verification_inconclusive"),
    step_that_keeps_dying: handed_over("worker_crash_loop"),
    thought_too_long: handed_over("deadline_exceeded"),
    prompt_too_long_for_any_model: handed_over("context_too_long"),
    proposed_in_shadow_mode: handed_over("shadow_mode"),
    finished_by_hand: ("escalated", "no_usable_output", "resolved_by_staff"),
}
