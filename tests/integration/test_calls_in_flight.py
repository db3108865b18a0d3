"""Many model calls under way at once hold no database connection, and their leases are renewed by a few statements."""

from __future__ import annotations

import gc
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test.utils import CaptureQueriesContext

from agentsite import dbtime
from agentsite.private.processes import wait_until
from runs import store
from runs.advance import advance
from runs.models import Run
from runs.states import Status
from tests.between import commit_hangs_on
from tests.integration.test_dialect_runs import ROUTES
from tests.models.server import ModelServer
from tests.models.speaking import OPENAI, Said
from tests.world import World

CALLS = 40
OURS = 2
"""Connections that no call holds: this thread's, and that of the thread which renews a crowd's leases."""
STUCK_S = 60.0


def held() -> int:
    """Connections that threads of this process have in their hands, of Django's own objects."""
    # By type alone: `isinstance` would ask lazy objects of other tests what they are, which makes them.
    wrappers = [one for one in gc.get_objects() if issubclass(type(one), BaseDatabaseWrapper)]
    return sum(1 for one in wrappers if one.connection is not None)


def in_thread(call: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any) -> Any:
        try:
            return call(*args)
        finally:
            connections.close_all()

    return called


def admitted(world: World, count: int) -> list[str]:
    return [str(world.admit(f"req-{number}").pk) for number in range(count)]


def ends() -> dict[str, datetime]:
    """When each lease ends, by its token."""
    leased = Run.objects.exclude(lease_token=None).values_list("lease_token", "lease_until")
    return {str(token): until for token, until in leased if until is not None}


def test_calls_in_flight_hold_no_database_connection(world: World) -> None:
    answered = threading.Event()

    def slow(_: object) -> Said:
        assert answered.wait(STUCK_S)
        return Said(text="Thank you for your patience.")

    with ModelServer(OPENAI, slow) as server, ThreadPoolExecutor(CALLS) as workers:
        world.settings(AGENT_MODELS=ROUTES[OPENAI], **server.variables())
        run_ids = admitted(world, CALLS)
        passes = [workers.submit(in_thread(advance), run_id) for run_id in run_ids]
        try:
            assert wait_until(lambda: len(server.requests) == CALLS, STUCK_S)
            assert wait_until(lambda: held() <= OURS, STUCK_S)
            assert set(Run.objects.values_list("status", flat=True)) == {"accepted"}
            assert Run.objects.filter(lease_token=None).count() == 0
        finally:
            answered.set()
        assert [one.result(STUCK_S) for one in passes] == [Status.COMPLETED] * CALLS
    assert (len(server.requests), server.wrong, world.posts()) == (CALLS, [], [])


def test_leases_are_renewed_together_and_only_those_that_still_hold(world: World) -> None:
    run_ids = admitted(world, 4)
    claimed = [store.claim(run_id) for run_id in run_ids]
    tokens = [one.token for one in claimed if one is not None]
    assert len(tokens) == 4
    before = ends()
    store.release(run_ids[2], tokens[2], None)
    asked = [*zip(run_ids[:3], tokens[:3], strict=True), (run_ids[3], secrets.token_hex(16))]
    with CaptureQueriesContext(connection) as made:
        assert store.renew(asked) == {tokens[0], tokens[1]}
    assert len(made) == 1
    after = ends()
    assert {token: after[token] > before[token] for token in after} == {
        tokens[0]: True, tokens[1]: True, tokens[3]: False,
    }  # fmt: skip
    assert world.posts() == []


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer and no row locks")
def test_commit_that_hangs_on_one_run_holds_up_no_other_lease(world: World) -> None:
    stuck, other = admitted(world, 2)
    asked = [(one.run_id, one.token) for one in (store.claim(stuck), store.claim(other)) if one is not None]
    before = ends()
    with commit_hangs_on(stuck):
        renewed = store.renew(asked)
    tokens = [token for _, token in asked]
    assert renewed == set(tokens)
    assert {token: at > before[token] for token, at in ends().items()} == {tokens[0]: False, tokens[1]: True}


def test_lease_past_its_deadline_is_not_renewed(world: World) -> None:
    run_id = admitted(world, 1)[0]
    claimed = store.claim(run_id)
    assert claimed is not None
    row = Run.objects.filter(pk=run_id)
    row.update(lease_deadline=dbtime.now() + timedelta(seconds=2))
    assert store.renew([(run_id, claimed.token)]) == {claimed.token}
    assert row.get().lease_until == row.get().lease_deadline
    row.update(lease_deadline=dbtime.now() - timedelta(seconds=1))
    assert store.renew([(run_id, claimed.token)]) == frozenset() == store.renew([])
    assert world.posts() == []
