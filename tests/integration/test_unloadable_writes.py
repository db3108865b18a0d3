"""A run that no code can load, with a write under way: the write's own timer settles it, then the run fails."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from agentsite import dbtime
from agentsite.canonical import canonical_text
from runs import store
from runs.models import Run, Write
from runs.orchestrator import settle
from tests.between import due_in_s, make_due, put_back
from tests.integration.test_broken_rows import store_raw
from tests.world import KEY, World, worker_dies


def unloadable(world: World, after: Any, text: str = "{}") -> Run:
    """A run whose worker died at its write, and whose contract nobody can read since."""
    run = world.start()
    world.approve(run)
    worker_dies(run, after=after)
    store_raw(run, "contract", text)
    return run


def look(world: World, run: Run) -> str | None:
    """The write's timer has come, and the run comes back."""
    put_back(Write.objects.filter(run=run), look_at=0)
    make_due(run)
    return world.step(run)


def write() -> Write:
    return Write.objects.get(key=KEY)


def ended(run: Run) -> tuple[str, str | None, str | None]:
    row = Run.objects.defer("contract").get(pk=run.pk)
    return row.status, row.reason, row.outcome


@pytest.mark.parametrize("text", ["{}", '{"request_id": "req-84'], ids=["another shape", "no json"])
def test_refund_that_was_made_is_found_and_the_run_fails_saying_so(world: World, text: str) -> None:
    whole = canonical_text(world.start("req-other").contract)
    run = unloadable(world, "post", text)
    assert look(world, run) == "failed"
    assert ended(run) == ("failed", "schema_unknown", "partly_refunded")
    store_raw(run, "contract", whole)  # for what is checked after every case
    [made] = world.refunds()
    assert (write().state, write().refund_id, len(world.posts())) == ("confirmed", made["refund_id"], 1)
    assert write().watch_at is not None and store.due_writes() == []
    assert world.events(run, "write.reconciled")[-1]["refund_id"] == made["refund_id"]
    assert f"has been made and confirmed; its reference is {made['refund_id']}" in world.said(run)
    assert "Please contact our team." in world.said(run)


def test_refund_that_was_never_sent_is_closed_and_the_run_fails(world: World) -> None:
    run = unloadable(world, "intent")
    assert look(world, run) == "failed"
    assert (ended(run), write().state) == (("failed", "schema_unknown", "handed_to_staff"), "not_sent")
    assert (world.posts(), world.refunds()) == ([], [])
    assert "No refund has been issued for this request." in world.said(run)


def test_refund_that_was_marked_sent_is_closed_by_two_late_looks_alone(world: World) -> None:
    world.settings(COMMERCE_SETTLE_S="30")
    run = unloadable(world, "sent")
    assert look(world, run) is None  # it may still arrive
    assert (ended(run)[0], write().state, write().absent_at) == ("executing", "unknown", None)
    world.later(run, 60)
    assert look(world, run) is None
    assert write().absent_at is not None
    world.later(run, 60)
    assert look(world, run) == "failed"
    assert (ended(run)[2], write().state, world.refunds()) == ("handed_to_staff", "not_sent", [])
    assert [e["found"] for e in world.events(run, "write.looked")] == ["absent_once", "absent_once"]


def test_refund_that_failed_is_told_as_failed(world: World) -> None:
    run = unloadable(world, "post")
    [made] = world.refunds()
    world.sandbox.control(f"/_refunds/{made['refund_id']}", state="failed")
    assert look(world, run) == "failed"
    assert (ended(run)[2], write().state, len(world.posts())) == ("refund_failed", "failed", 1)


def test_business_system_that_does_not_answer_settles_nothing(world: World) -> None:
    run = unloadable(world, "post")
    world.sandbox.fault("GET /v1/refunds", "status:503", times=0)
    assert look(world, run) is None
    assert (ended(run)[0], write().state, len(world.posts())) == ("executing", "unknown", 1)
    at = write().look_at
    assert at is not None and 3500 < (at - write().intent_at).total_seconds() <= 3600
    world.sandbox.control("/_faults", clear=True)
    make_due(run)
    assert world.step(run) is None  # not before its time
    assert 50 < due_in_s(run) <= 60
    assert look(world, run) == "failed"
    assert write().state == "confirmed"


def test_timer_leaves_the_write_of_a_run_that_another_worker_holds(world: World) -> None:
    """A release that can load it took the run over meanwhile: it settles the write itself."""
    run = unloadable(world, "post")
    ahead = dbtime.now() + timedelta(seconds=30)
    Run.objects.filter(pk=run.pk).update(lease_token="another", lease_until=ahead, lease_deadline=ahead)
    assert settle(KEY, lease="mine, which has run out") in ("settled", "put_off")
    assert (write().state, ended(run)[0], len(world.posts())) == ("sent", "executing", 1)
    assert world.events(run, "write.reconciled") == []
    assert settle(KEY) == "closed"
    assert write().state == "sent"


def test_refund_that_nobody_has_verified_is_not_called_confirmed_and_is_watched(world: World) -> None:
    """Answered, and the independent read still due when the run became unreadable."""
    world.sandbox.fault("POST /v1/refunds", "hide:60")
    run = world.start()
    world.approve(run)
    run = world.resume(run, patience_s=0)
    assert (run.status, write().state) == ("executed", "confirmed")
    whole = canonical_text(run.contract)
    store_raw(run, "contract", "{}")
    assert look(world, run) == "failed"
    assert ended(run) == ("failed", "schema_unknown", "handed_to_staff")
    store_raw(run, "contract", whole)
    assert write().watch_at is not None
    assert "has been made and confirmed" not in world.said(run)
    assert "we have not confirmed it yet" in world.said(run)


def test_write_whose_own_row_cannot_be_read_is_left_to_a_person_and_stops_nobody(world: World) -> None:
    run = unloadable(world, "sent")
    Write.objects.update(currency="???")
    assert look(world, run) is None
    Write.objects.update(currency="INR")
    assert (write().state, world.posts()) == ("unknown", [])
    look_at = write().look_at
    assert look_at is not None and look_at > dbtime.now() + timedelta(minutes=50)
