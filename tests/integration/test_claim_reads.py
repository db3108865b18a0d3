"""A claim brings the run that it took (PostgreSQL), and never an older one than its row."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from django.db import connection, connections, transaction

from agentsite import clock
from agentsite.private.processes import wait_until
from runs import store
from runs.contracts import RunState
from runs.errors import UnknownSchema
from runs.models import Observation, Run
from runs.store import prefixes
from runs.store.lease import raw_id
from tests.world import World, final, gather, refund, s0

POSTGRES = connection.vendor == "postgresql"
on_postgres = pytest.mark.skipif(not POSTGRES, reason="SQLite reads a run by a statement of its own")
STUCK_S = 60


@pytest.fixture
def compared(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Of each load of a pass: whether the claim had read the run. What it read is what the run's rows say."""
    found, load = list[bool](), store.load

    def looked(run_id: str, token: str, read: prefixes.Read | None = None) -> RunState:
        brought = read is not None and read.found is not None
        state = load(run_id, token, read)
        if brought:
            now = load(run_id, token)
            assert replace(state, now=now.now) == now
        found.append(brought)
        return state

    monkeypatch.setattr(store, "load", looked)
    yield found


def claimed(run: Run) -> store.Claimed:
    taken = store.claim(str(run.pk))
    assert taken is not None
    return taken


def observe(run: Run) -> None:
    """As a transition of another process leaves it: an observation, and the row's version."""
    Observation.objects.create(
        run=run, obs_id="obs_99", position=99, call_id="m9.1", span="m9", kind="result", source="get_order", args={},
        content={}, content_hash="h", meta={}, fetched_at=clock.now(),
    )  # fmt: skip
    Run.objects.filter(pk=run.pk).update(version=run.version + 1)


def test_claims_of_a_refund_read_what_its_rows_say(world: World, compared: list[bool]) -> None:
    world.settings(AGENT_PASSES_PER_TASK="6")
    run = world.start()
    world.approve(run)
    assert world.resume(run, until="completed").outcome == "refunded"
    assert any(compared) is POSTGRES


def test_claims_of_a_run_that_is_told_more_read_what_its_rows_say(world: World, compared: list[bool]) -> None:
    run = world.start(script=[*gather(), refund(), refund(amount="1500.00"), final(), final()])
    world.message(run, "Is it done?")
    run = world.resume(run)
    world.reject(run, "too much")
    world.resume(run)
    assert any(compared) is POSTGRES


def test_claims_of_two_refunds_read_what_their_rows_say(world: World, compared: list[bool]) -> None:
    both = (refund(amount="500.00"), refund(payment_id="pay_9001", amount="400.00"))
    run = world.start(script=s0(*both))
    for _ in both:
        if world.fresh(run).status == "awaiting_approval":
            world.approve(run)
            run = world.resume(run)
    assert any(compared) is POSTGRES


@on_postgres
def test_claim_that_waited_for_a_commit_reads_nothing_older_than_its_row(world: World) -> None:
    run = world.admit()
    locked, go_on = threading.Event(), threading.Event()

    def other() -> None:
        try:
            with transaction.atomic():
                Run.objects.select_for_update().get(pk=run.pk)
                locked.set()
                assert go_on.wait(STUCK_S)
                observe(run)
        finally:
            connections.close_all()

    def here() -> tuple[store.Claimed, RunState]:
        try:
            taken = claimed(run)
            return taken, store.load(str(run.pk), taken.token, taken.read)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        holding = pool.submit(other)
        assert locked.wait(STUCK_S)
        waiting = pool.submit(here)
        waits = wait_until(waits_for_a_row, STUCK_S)
        go_on.set()
        assert waits
        holding.result(STUCK_S)
        taken, state = waiting.result(STUCK_S)
    assert (taken.version, state.version, taken.read) == (run.version + 1, run.version + 1, None)
    assert state.observations[-1].obs_id == "obs_99"


def waits_for_a_row() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'WITH r AS%'")
        return cursor.fetchone() is not None


@on_postgres
def test_claim_of_a_long_run_whose_words_were_changed_is_not_what_is_loaded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = world.start()
    monkeypatch.setattr(prefixes, "LEAST_BYTES", 0)
    store.load(str(run.pk), "nobody")
    Observation.objects.filter(run=run, position=1).update(content={"erased": True})
    world.approve(run)
    taken = claimed(run)
    state = store.load(str(run.pk), taken.token, taken.read)
    assert state.observations[0].content == {"erased": True}
    assert len(state.observations) == Observation.objects.filter(run=run).count()


def test_rows_that_nobody_can_read_fail_the_load_and_not_the_claim(world: World) -> None:
    run = world.start()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_turn SET proposals = '[1' WHERE run_id = %s", [raw_id(str(run.pk))])
    world.approve(run)
    taken = claimed(run)
    with pytest.raises(UnknownSchema):
        store.load(str(run.pk), taken.token, taken.read)
