"""The durability mechanism: due runs nobody works on are found and hinted for once, in step with what is missing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from celery import current_app
from django.db import connection

from agentsite import dbtime, queues
from agentsite.tenants.models import Site
from runs import store, sweeper
from runs.models import Run, Sweeper, Write
from runs.orchestrator.releasing import MAX_HOLD_S
from runs.store import hints
from tests.between import ago, commit_hangs_on, due_in_s, make_due, put_back
from tests.world import KEY, World, in_new_process, worker_dies


def empty_the_broker() -> None:
    with current_app.connection_for_write() as link:
        channel: Any = link.default_channel
        for name in queues.ALL:
            channel.queue_declare(name)
            channel.queue_purge(name)


@pytest.fixture(autouse=True)
def _no_messages(world: World) -> Iterator[None]:
    empty_the_broker()
    yield
    empty_the_broker()


def waiting() -> dict[str, int]:
    return {name: queues.depth(name) for name in (queues.PASSES, queues.WRITES)}


def swept() -> tuple[int, int]:
    """(found, published) of a pass that is ours."""
    done = sweeper.sweep()
    assert done is not None and done.broker
    return done.found, done.published


def hinted(run: Run, seconds: float, tries: int = 0) -> None:
    """The run was hinted for so many seconds ago, so many times."""
    put_back(Run.objects.filter(pk=run.pk), enqueued_at=seconds)
    Run.objects.filter(pk=run.pk).update(enqueue_tries=tries)


def unheard(world: World) -> Run:
    """A new run whose own hint was lost."""
    run = world.admit()
    empty_the_broker()
    return run


def many(world: World, count: int, status: str) -> list[Run]:
    """Runs in a status that are due, never hinted for; only the sweeper may look at them."""
    made = [world.admit(f"req-{status}-{n}") for n in range(count)]
    Run.objects.filter(pk__in=[r.pk for r in made]).update(status=status, enqueued_at=None, due_at=ago(1))
    empty_the_broker()
    return made


def back_to_accepted(*runs: Run) -> None:
    """What is checked after every case follows the record, in which these runs never moved."""
    Run.objects.filter(pk__in=[r.pk for r in runs]).update(status="accepted")


# --- what is found ---------------------------------------------------------------------------------------------


def test_sweep_finds_a_run_whose_hint_was_lost_after_the_grace(world: World) -> None:
    run = unheard(world)
    assert swept() == (0, 0)  # its own hint may still be on its way
    hinted(run, hints.GRACE_S - 0.5)
    assert swept() == (0, 0)
    hinted(run, hints.GRACE_S + 0.1)
    assert (swept(), waiting()) == ((1, 1), {"passes": 1, "writes": 0})
    run = world.fresh(run)
    assert run.enqueue_tries == 1 and run.enqueued_at is not None and run.enqueued_at > ago(1)
    assert (swept(), waiting()) == ((0, 0), {"passes": 1, "writes": 0})


def test_sweep_leaves_leased_rows_alone_until_the_lease_is_dead(world: World) -> None:
    run = unheard(world)
    hinted(run, 60)
    claimed = store.claim(str(run.pk))
    assert claimed is not None
    assert (swept(), waiting()) == ((0, 0), {"passes": 0, "writes": 0})
    put_back(Run.objects.all(), lease_until=0.1)
    assert swept() == (1, 1)


def test_sweep_leaves_alone_what_is_not_due_or_has_ended(world: World) -> None:
    run = world.start()
    hinted(run, 60)
    assert (run.status, swept()) == ("awaiting_approval", (0, 0))
    world.cancel(run)
    run = world.resume(run)
    assert (run.status, swept()) == ("cancelled", (0, 0))


def test_sweep_finds_a_decided_approval_whose_nudge_was_lost(world: World) -> None:
    run = world.start()
    world.approve(run)
    empty_the_broker()
    assert due_in_s(run) > 80_000
    assert (swept(), waiting()) == ((1, 1), {"passes": 1, "writes": 0})
    assert world.resume(run).outcome == "refunded"


def test_sweep_hints_money_work_on_its_own_queue(world: World) -> None:
    run = world.start()
    world.approve(run)
    worker_dies(run, after="intent")
    empty_the_broker()
    hinted(run, 60)
    assert (swept(), waiting()) == ((1, 1), {"passes": 0, "writes": 1})


def test_sweep_hints_for_a_late_look_at_an_open_write_once(world: World) -> None:
    run = world.start()
    world.approve(run)
    worker_dies(run, after="post")
    world.sandbox.fault("GET /v1/refunds", "status:503", times=0)
    put_back(Write.objects.all(), intent_at=1801)
    run = world.resume(run, until="escalated")
    empty_the_broker()
    assert (swept(), waiting()) == ((0, 0), {"passes": 0, "writes": 0})
    put_back(Write.objects.all(), look_at=1)
    assert (swept(), waiting()) == ((0, 0), {"passes": 0, "writes": 1})
    assert (swept(), waiting()) == ((0, 0), {"passes": 0, "writes": 1})
    assert Write.objects.get(key=KEY).state == "unknown"


# --- never more hints than messages are missing ----------------------------------------------------------------


def test_sweep_hints_only_for_what_no_waiting_message_is_there_for(world: World) -> None:
    runs = many(world, 3, "accepted")
    for run in runs[:2]:
        queues.nudge(str(run.pk), "accepted")
    assert (swept(), waiting()) == ((3, 1), {"passes": 3, "writes": 0})


def test_sweep_takes_a_batch_a_queue_so_that_neither_starves_the_other(world: World) -> None:
    world.patch.setattr(hints, "BATCH", 3)
    writes = many(world, 5, "executing")
    passes = many(world, 2, "gathering")
    put_back(Run.objects.filter(pk__in=[r.pk for r in writes]), due_at=600)  # older than every pass
    assert (swept(), waiting()) == ((5, 5), {"passes": 2, "writes": 3})
    back_to_accepted(*writes, *passes)


def test_back_off_is_only_the_grace_while_the_queue_is_empty(world: World) -> None:
    run = unheard(world)
    hinted(run, hints.GRACE_S + 0.5, tries=6)
    assert (swept(), world.fresh(run).enqueue_tries) == ((1, 1), 7)


def test_back_off_doubles_with_each_hint_while_messages_wait(world: World) -> None:
    run = unheard(world)
    queues.nudge(str(run.pk), "accepted")
    for tries, wait_s in ((1, 6), (2, 12), (3, 15), (8, 15), (60, 15)):  # never more than a lease
        hinted(run, wait_s - 1, tries=tries)
        assert swept() == (0, 0), tries
        hinted(run, wait_s + 1, tries=tries)
        assert swept() == (1, 0), tries


def test_lost_hint_is_sent_again_though_messages_of_other_runs_wait(world: World) -> None:
    """Consumers took the hint of one run and died before they claimed it; the others still wait for their turn."""
    lost, *others = many(world, 4, "accepted")
    for run in others:
        queues.nudge(str(run.pk), "accepted")
        hinted(run, 1, tries=0)
    hinted(lost, 16, tries=5)
    assert (swept(), waiting()) == ((1, 1), {"passes": 4, "writes": 0})
    assert (world.fresh(lost).enqueue_tries, world.fresh(others[0]).enqueue_tries) == (6, 0)
    hinted(lost, 16, tries=6)  # its message waits now: there are as many as runs
    assert (swept(), waiting()) == ((1, 0), {"passes": 4, "writes": 0})


# --- passes side by side, and without a broker -----------------------------------------------------------------


def test_two_passes_at_once_hint_once(world: World) -> None:
    many(world, 4, "accepted")
    gate, done = threading.Barrier(2), list[sweeper.Pass | None]()

    def one() -> None:
        try:
            gate.wait(5)
            done.append(sweeper.sweep())
        finally:
            connection.close()

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sum(p.published for p in done if p) == 4
    assert waiting() == {"passes": 4, "writes": 0}
    assert set(Run.objects.values_list("enqueue_tries", flat=True)) == {1}


def test_pass_of_another_process_is_not_ours(world: World) -> None:
    many(world, 1, "accepted")
    Sweeper.objects.create(id=1, token="another", until=dbtime.now() + timedelta(seconds=5))
    assert sweeper.sweep() is None
    put_back(Sweeper.objects.all(), until=0.1)  # it died
    assert swept() == (1, 1)
    row = Sweeper.objects.get()
    assert (row.until, row.last_found, row.published) == (None, 1, 1)
    assert row.last_pass_at is not None and row.last_pass_at > ago(2)


def test_row_is_marked_by_one_of_two_that_found_it(world: World) -> None:
    run = unheard(world)
    hinted(run, 60)
    [found] = store.due_unhinted(queues.PASSES, patient=False)
    assert [store.mark_hinted(found), store.mark_hinted(found)] == [True, False]


SWEEP_ELSEWHERE = """
import time
from runs import sweeper
began = time.monotonic()
done = sweeper.sweep()
print(done.found, done.published, done.broker, time.monotonic() - began < 8)
"""


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer and no row locks")
def test_commit_that_hangs_on_one_run_holds_up_no_hint_for_another(world: World) -> None:
    stuck, other = unheard(world), world.admit("req-2")
    empty_the_broker()
    for run in (stuck, other):
        hinted(run, 10)
    put_back(Run.objects.filter(pk=stuck.pk), due_at=60)  # it comes first
    with commit_hangs_on(str(stuck.pk)):
        assert swept() == (2, 1)
    tries = dict(Run.objects.values_list("request_id", "enqueue_tries"))
    assert tries == {stuck.request_id: 0, other.request_id: 1}
    assert swept() == (1, 1)


def test_sweep_without_a_broker_ends_quickly_and_marks_nothing(world: World) -> None:
    runs = many(world, 30, "accepted")
    hinted(runs[0], 60, tries=2)
    before = list(Run.objects.order_by("pk").values_list("enqueue_tries", "enqueued_at"))
    told = in_new_process(SWEEP_ELSEWHERE, BROKER_URL="redis://127.0.0.1:1/0").splitlines()[-1]
    assert told == "30 0 False True"
    assert list(Run.objects.order_by("pk").values_list("enqueue_tries", "enqueued_at")) == before
    assert swept() == (30, 30)


# --- a hold is not asked after every second for hours ------------------------------------------------------------


@pytest.mark.parametrize(("held_s", "next_s"), [(4.0, 5.0), (40.0, 10.0), (7200.0, MAX_HOLD_S)])
def test_hold_grows_to_at_most_a_minute(world: World, held_s: float, next_s: float) -> None:
    run = world.start()
    world.approve(run)
    Site.objects.update_or_create(id=1, defaults={"paused": True})
    run = world.resume(run)
    assert (run.status, run.waiting_for) == ("approved", "staff")
    put_back(Run.objects.all(), status_since=held_s)
    make_due(run)
    assert world.step(run) is None
    assert next_s - 2 < due_in_s(run) <= next_s + 1
    assert (world.fresh(run).status, world.approval(run).status, world.posts()) == ("approved", "approved", [])
    Site.objects.update(paused=False)
    make_due(run)
    assert world.resume(run).outcome == "refunded"
