"""A pass of the sweeper that finds nothing asks one question; whatever any of its looks would find, that one sees."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.test.utils import CaptureQueriesContext

from agentsite import dbtime, statements
from approvals import notices, queue
from approvals.models import Approval, Notice
from runs import store, sweeper
from runs.models import Run, Shadow, Sweeper, Webhook, Write
from runs.store import at_rest, parcels, shadows
from tests.between import put_back
from tests.world import World

Due = Callable[[World], Any]


def anything_due() -> bool:
    """How the one question is answered."""
    asked, params = at_rest.question(sweeper.HINTED)
    with statements.cursor() as cursor:
        cursor.execute(f"SELECT {asked}", params)
        return bool(cursor.fetchone()[0])


def quiet(world: World) -> Run:
    """A run that waits for a person, of which nothing is due."""
    run = world.start()
    assert not anything_due()
    return run


def ended(world: World) -> Run:
    run = world.start()
    world.approve(run)
    world.resume(run)
    put_back(Write.objects.all(), watch_at=-3600.0)
    assert not anything_due()
    return run


def _run_is_due(world: World) -> Any:
    run = quiet(world)
    put_back(Run.objects.filter(pk=run.pk), due_at=1.0, enqueued_at=60.0)
    return lambda: [one for name in sweeper.HINTED for one in store.due_unhinted(name, patient=False)]


def _approval_is_decided(world: World) -> Any:
    run = quiet(world)
    world.approve(run)
    put_back(Run.objects.filter(pk=run.pk), enqueued_at=60.0)
    return lambda: [one for name in sweeper.HINTED for one in store.due_unhinted(name, patient=False)]


def _lease_is_dead(world: World) -> Any:
    run = quiet(world)
    Run.objects.filter(pk=run.pk).update(lease_token="dead")
    put_back(Run.objects.filter(pk=run.pk), due_at=5.0, enqueued_at=60.0, lease_until=1.0)
    return lambda: [one for name in sweeper.HINTED for one in store.due_unhinted(name, patient=False)]


def _open_write_of_an_ended_run(world: World) -> Any:
    ended(world)
    Write.objects.update(state="unknown")
    put_back(Write.objects.all(), look_at=1.0)
    return store.due_writes


def _refund_is_watched(world: World) -> Any:
    ended(world)
    put_back(Write.objects.all(), watch_at=1.0)
    return store.due_watches


def _webhook(world: World) -> Any:
    run, now = quiet(world), dbtime.now()
    Webhook.objects.create(
        id="msg_1", run=run, tenant_id=run.tenant_id, type="run.completed", seq=1, url="https://x.example/", host="x",
        body="{}", due_at=now, created_at=now,
    )  # fmt: skip
    return parcels.due


def _notice(world: World) -> Any:
    run, now = quiet(world), dbtime.now()
    Notice.objects.create(
        tenant_id=run.tenant_id, kind="digest", channel="email", address="a@x.example", due_at=now, created_at=now
    )
    return notices.due


def _reminder(world: World) -> Any:
    quiet(world)
    Approval.objects.update(notices_until=dbtime.now() - timedelta(seconds=1))
    return lambda: queue.remind(10)


def _proposal_of_shadow_mode(world: World) -> Any:
    run, now = quiet(world), dbtime.now()
    Shadow.objects.create(run=run, tenant_id=run.tenant_id, at=now, compare_at=now)
    return shadows.due


@pytest.mark.parametrize(
    "due",
    [
        _run_is_due, _approval_is_decided, _lease_is_dead, _open_write_of_an_ended_run, _refund_is_watched, _webhook,
        _notice, _reminder, _proposal_of_shadow_mode,
    ],
)  # fmt: skip
def test_one_question_sees_what_a_look_finds(world: World, due: Due) -> None:
    look = due(world)
    assert anything_due()
    assert look(), "else this test says nothing"


def test_pass_that_finds_nothing_is_one_statement_and_leaves_the_lease_free(world: World) -> None:
    quiet(world)
    sweeper.sweep()  # the first one of a period looks for digests
    put_back(Sweeper.objects.all(), last_pass_at=60.0)
    with CaptureQueriesContext(connection) as asked:
        done = sweeper.sweep()
    seen_here = {"postgresql": 0}.get(connection.vendor, 1)  # what is prepared goes beside Django's own cursor
    assert (done, len(asked.captured_queries)) == (sweeper.Pass(found=0, published=0, broker=True), seen_here)
    row = Sweeper.objects.get()
    assert row.until is None and row.last_pass_at is not None
    assert (dbtime.now() - row.last_pass_at).total_seconds() < 30


def test_question_that_fails_takes_no_lease(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet(world)
    sweeper.sweep()
    put_back(Sweeper.objects.all(), last_pass_at=60.0)
    monkeypatch.setattr(at_rest, "question", lambda _queues: ("no_such_column", []))
    with pytest.raises(DatabaseError):
        sweeper.sweep()
    row = Sweeper.objects.get()
    assert row.until is None and row.last_pass_at is not None
    assert (dbtime.now() - row.last_pass_at).total_seconds() > 30, "nobody takes it for a pass"


def test_pass_with_work_holds_the_lease_until_it_has_looked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    _run_is_due(world)
    sweeper.sweep()
    put_back(Sweeper.objects.all(), last_pass_at=60.0)
    put_back(Run.objects.all(), due_at=1.0, enqueued_at=3600.0)
    held, look = list[bool](), sweeper._look

    def looked() -> Any:
        row = Sweeper.objects.get()
        held.append(row.until is not None and row.last_pass_at is not None and row.last_pass_at < dbtime.now())
        assert sweeper.sweep() is None, "two at once"
        return look()

    monkeypatch.setattr(sweeper, "_look", looked)
    done = sweeper.sweep()
    assert done is not None and held == [True]
    assert Sweeper.objects.get().until is None
