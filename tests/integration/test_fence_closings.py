"""While a fence is demanded nothing closes a write as never made: the record of its attempts may lack some."""

from __future__ import annotations

from typing import Any

import pytest

from agentsite.tenants import switches
from runs import orchestrator, store
from runs.models import Attempt, Event, Run, Write
from runs.orchestrator import settle, settling
from tests.between import after_look, ago, due_in_s, make_due, put_back
from tests.operating import operator, settles
from tests.restoring import LONG_S, Backup, approved, differences, fence, made_of, sends, settles_in, shows
from tests.world import KEY, World, worker_dies
from tools import facts


def write() -> Write:
    return Write.objects.get(key=KEY)


def prepared(world: World) -> Run:
    """A run whose write is prepared and, by the record, was never sent."""
    settles_in(world, LONG_S)
    run = approved(world)
    worker_dies(run, after="intent")
    return run


def proven_absent(world: World, *, mode: str = "drop_before") -> Run:
    """A run whose write was sent, is not listed, and may not be sent again; one more look proves its absence."""
    settles_in(world, 10, COMMERCE_HONOURS_KEYS="0")
    world.profile(limits={"max_write_attempts": 1})
    run = approved(world)
    world.sandbox.fault("POST /v1/refunds", mode)
    worker_dies(run, after="post")
    looked_once()
    return run


def looked_once() -> None:
    put_back(Attempt.objects.all(), sent_at=100, gives_up_at=90)
    Write.objects.update(state="unknown", unknown_since=ago(90), absent_at=ago(30))


def outlives(world: World, run: Run) -> None:
    """The run ends because nobody answers; afterwards the lists are read again."""
    world.sandbox.fault("GET /v1/refunds", "status:503", times=0)
    put_back(Write.objects.all(), unknown_since=1801)
    assert world.resume(run, until="escalated").reason == "outcome_unknown"
    world.sandbox.control("/_faults", clear=True)
    looked_once()
    put_back(Write.objects.all(), look_at=1)


def is_held(world: World, run: Run, state: str, *, posts: int = 0) -> None:
    row = world.fresh(run)
    assert (row.status, world.writes(run), len(world.sandbox.posts())) == ("executing", [(KEY, state)], posts)
    assert not any("error" in event for event in world.events(run, "write.result"))
    assert 0 < due_in_s(row) <= 60.1


# --- within the run --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("why", ["late", "unreachable", "cancelled"])
def test_write_that_was_prepared_stays_open_until_the_fence(world: World, why: str) -> None:
    """The backup was taken after the intent; the refund was made after it, and is listed by nobody for a while."""
    run = prepared(world)
    backup = Backup()
    world.sandbox.fault("POST /v1/refunds", "hide:forever")
    sends(run)
    [made] = world.refunds()
    backup.put_back(world)
    store.look()
    if why == "cancelled":
        world.cancel(run)
    else:
        put_back(Write.objects.all(), intent_at=7200)
    if why == "unreachable":
        world.sandbox.fault("GET /v1/refunds", "status:503", times=0)
    for _ in range(2):
        make_due(run)
        world.step(run)
        is_held(world, run, "intent")
    world.sandbox.control("/_faults", clear=True)
    assert fence().writes == 1
    make_due(run)
    run = world.resume(run, patience_s=0)
    assert (run.status, world.writes(run)) == ("executing", [(KEY, "unknown")])
    shows(world)
    make_due(run)
    run = world.resume(run, limit_s=90)
    assert (run.outcome, world.writes(run)) == ("refunded", [(KEY, "confirmed")])
    assert (world.sandbox.posts(), made_of(world), differences(run)) == ([], [made["refund_id"]], [])


def test_absence_that_was_proven_on_an_older_record_closes_nothing(world: World) -> None:
    run = proven_absent(world)
    switches.demand_fence()
    world.step(run)
    is_held(world, run, "unknown", posts=1)
    assert fence().writes == 1
    assert (write().absent_at, write().state) == (None, "unknown")


def test_demand_between_the_look_and_the_closing_wins(world: World) -> None:
    run = proven_absent(world)
    after_look(world, demand, lambda handled: True)
    world.step(run)
    is_held(world, run, "unknown", posts=1)


def demand() -> None:
    switches.demand_fence()


def test_live_worker_notices_the_older_database_before_it_closes(world: World) -> None:
    """Nobody started anew and nobody looked: this host's own log is asked."""
    run = prepared(world)
    backup = Backup()
    sends(run)
    backup.put_back(world)
    put_back(Write.objects.all(), intent_at=7200)
    world.sandbox.fault("GET /v1/refunds", "status:503", times=0)
    make_due(run)
    world.step(run)
    is_held(world, run, "intent")
    assert switches.fence()[1] is not None


def test_answer_that_nothing_was_made_still_closes(world: World) -> None:
    """Of our own call, just now: no record is needed to believe it."""
    run = approved(world)
    world.sandbox.fault("POST /v1/refunds", "status:422")
    after_post(world)
    run = world.resume(run, patience_s=0)
    assert (world.writes(run)[0], switches.fence()[1] is not None) == ((KEY, "refused"), True)
    assert world.refunds() == []


def after_post(world: World) -> None:
    """The demand comes between the answer of the business system and its record."""
    real = orchestrator.send

    def send(*given: Any) -> Any:
        outcome = real(*given)
        demand()
        return outcome

    world.patch.setattr(orchestrator, "send", send)


# --- after its end ---------------------------------------------------------------------------------------------


def test_late_look_puts_off_what_it_would_have_closed(world: World) -> None:
    run = proven_absent(world)
    outlives(world, run)
    switches.demand_fence()
    assert (settle(KEY), write().state) == ("put_off", "unknown")
    assert world.events(run, "write.looked")[-1]["found"] == "restored"
    assert store.due_writes() == []
    assert fence().writes == 1
    assert store.due_writes() == [KEY]  # at once, and its first look proves nothing
    assert (settle(KEY), write().state, write().absent_at) == ("put_off", "unknown", None)


def test_fence_during_a_late_look_voids_what_it_saw(world: World) -> None:
    """Read before the fence, committed after it: its attempts are doubted by then."""
    run = proven_absent(world)
    outlives(world, run)
    real = facts.read_facts

    def read(*given: Any, **more: Any) -> Any:
        seen = real(*given, **more)
        fence()
        return seen

    world.patch.setattr(settling, "read_facts", read)
    assert (settle(KEY), write().state, write().absent_at) == ("put_off", "unknown", None)
    assert Event.objects.filter(run=run, type="write.doubted").count() == 1


def test_write_whose_timer_ran_out_is_looked_at_once_more_after_the_fence(world: World) -> None:
    run = proven_absent(world)
    outlives(world, run)
    Write.objects.update(look_at=None)
    fence()
    assert store.due_writes() == [KEY]


# --- by hand ---------------------------------------------------------------------------------------------------


def test_person_may_not_say_that_nothing_was_made_before_the_fence(world: World) -> None:
    run = proven_absent(world)
    outlives(world, run)
    desk = operator()
    switches.demand_fence()
    assert settles(desk, write(), found="not_made") == 409
    assert (write().state, world.events(run, "write.settled_by_staff")) == ("unknown", [])
    fence()
    put_back(Attempt.objects.all(), gives_up_at=90)
    assert settles(desk, write(), found="not_made") == 302
    assert (write().state, len(world.sandbox.posts()), world.refunds()) == ("not_sent", 1, [])


def test_person_may_name_the_refund_that_was_made_before_the_fence(world: World) -> None:
    run = proven_absent(world, mode="hide:forever")
    outlives(world, run)
    switches.demand_fence()
    [made] = made_of(world)
    assert settles(operator(), write(), found="made", refund_id=made, amount="2000.00") == 302
    assert (write().state, write().refund_id) == ("confirmed", made)
