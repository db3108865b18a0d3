"""Rows that no code of ours can load: the run fails by name, its approval is void, an open write is kept."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from agentsite import queues
from agentsite.canonical import canonical_text
from agentsite.refusals import Refusal
from runs import store
from runs.models import Attempt, Run, Turn
from runs.store.lease import NEWER_FOR_S
from tests.between import due_in_s, make_due, put_back
from tests.world import KEY, World, worker_dies


def store_raw(run: Run, column: str, text: str) -> None:
    """Writes a column past the field that would refuse it."""
    with connection.cursor() as cursor:
        key = run.pk if connection.vendor == "postgresql" else run.pk.hex
        cursor.execute(f"UPDATE runs_run SET {column} = %s WHERE id = %s", [text, key])


def broken_contract(run: Run) -> str:
    return canonical_text({**run.contract, "scope": {"order_ids": "all"}})


BROKEN: dict[str, tuple[str, str]] = {
    "pending without a hash": ("pending_action", '{"args":{},"call_id":"m3.1"}'),
    "pending is a text": ("pending_action", '"issue_refund"'),
    "pending is a list": ("pending_action", "[1]"),
    "pending without evidence": (
        "pending_action",
        '{"action_hash":"h","args":{},"call_id":"m3.1","decision_id":"d","evidence":null,"idempotency_key":"k",'
        '"rule":"r","tool":"issue_refund","turn":3}',
    ),
    "contract is empty": ("contract", "{}"),
    "contract is a list": ("contract", "[]"),
}  # fmt: skip


def fails_by_name(world: World, run: Run) -> None:
    put_back(Run.objects.filter(pk=run.pk), due_at=NEWER_FOR_S + 60)
    assert world.step(run) == "failed"
    run = world.fresh(run)
    assert (run.status, run.reason, run.outcome, run.due_at, run.lease_token) == (
        "failed", "schema_unknown", "handed_to_staff", None, None,
    )  # fmt: skip
    approval = world.approval(run)
    assert (approval.status, approval.void_reason, world.posts()) == ("void", "run_failed", [])
    last = world.events(run, "run.status")[-1]
    assert (last["from"], last["to"], last["reason"]) == ("awaiting_approval", "failed", "schema_unknown")
    with pytest.raises(Refusal) as late:
        world.approve(run)
    assert late.value.slug == "approval-void"
    assert world.step(run) is None


@pytest.mark.parametrize(("column", "text"), BROKEN.values(), ids=BROKEN)
def test_run_with_a_broken_row_fails_and_voids_its_approval(world: World, column: str, text: str) -> None:
    run = world.start()
    store_raw(run, column, text)
    fails_by_name(world, run)


def test_run_whose_contract_lost_a_field_fails(world: World) -> None:
    run = world.start()
    store_raw(run, "contract", broken_contract(run))
    fails_by_name(world, run)


def test_run_of_a_newer_schema_waits_for_newer_code_and_fails_after_a_day(world: World) -> None:
    run = world.start()
    Run.objects.update(schema=99)
    make_due(run)
    put_back(Run.objects.all(), updated_at=NEWER_FOR_S + 60)
    assert (world.step(run), store.due_unhinted(queues.PASSES, patient=False)) == (None, [])
    assert (world.fresh(run).status, world.approval(run).status) == ("awaiting_approval", "pending")
    put_back(Run.objects.all(), updated_at=NEWER_FOR_S + 60)
    fails_by_name(world, run)


@pytest.mark.parametrize("proposals", [[{"tool": "get_order"}], ["get_order"], {"call_id": 1}])
def test_run_with_a_broken_turn_fails(world: World, proposals: Any) -> None:
    run = world.start()
    Turn.objects.filter(run=run, number=1).update(proposals=proposals)
    fails_by_name(world, run)


def test_column_that_is_no_json_fails_the_run_as_well(world: World) -> None:
    """Not even the row can be read whole: what is needed to end the run is read alone."""
    run = world.start()
    whole = canonical_text(run.contract)
    store_raw(run, "contract", '{"request_id": "req-84')
    make_due(run)
    assert world.step(run) == "failed"
    store_raw(run, "contract", whole)  # for what is checked after every case
    run = world.fresh(run)
    assert (run.status, run.reason, world.approval(run).status) == ("failed", "schema_unknown", "void")


@pytest.mark.parametrize("after", ["intent", "post"])
def test_broken_run_with_an_open_write_is_kept(world: World, after: Any) -> None:
    run = world.start()
    world.approve(run)
    worker_dies(run, after=after)
    state = {"intent": "intent", "post": "sent"}[after]
    whole = canonical_text(run.contract)
    store_raw(run, "contract", "{}")
    assert world.step(run) is None
    run = world.fresh(run)
    assert (run.status, run.lease_token, world.writes(run)) == ("executing", None, [(KEY, state)])
    assert 50 < due_in_s(run) <= 60
    assert Attempt.objects.count() == 1
    store_raw(run, "contract", whole)  # a release that can read it again goes on where it was
    make_due(run)
    assert (world.resume(run, until="completed").outcome, len(world.refunds())) == ("refunded", 1)
