"""What the gate is told by one statement is what each of its questions finds alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from runs import qualification
from runs.models import Run, Write
from runs.orchestrator import at_gate
from runs.orchestrator.at_gate import Asked, Told
from runs.store import order_standing
from tests.world import TENANT, World
from tools.contracts import PassageRef
from tools.models import PolicyPassage
from tools.policy import freshness

PIN = "POL-REF-004@v4"


def asked(run: Run, **other: Any) -> Asked:
    turn = run.turns.order_by("number").last()
    assert turn is not None
    given = Asked(
        tenant_id=TENANT, agent="refunds", customer_id="cust_5521", order_id="8472", currency="INR", leave_out="",
        pin=PIN, rests_on=passages(), route=turn.route, answered_model=turn.answered_model, manual_allowed=True,
    )  # fmt: skip
    return replace(given, **other)


def passages() -> tuple[PassageRef, ...]:
    rows = PolicyPassage.objects.filter(document__tenant_id=TENANT, document__doc_id="POL-REF-004").order_by("id")
    return tuple(
        PassageRef(doc="POL-REF-004", version=4, content_hash=row.content_hash, current=True) for row in rows[:2]
    )


def one_by_one(one: Asked) -> Told:
    return Told(
        books=order_standing(one.tenant_id, one.customer_id, one.order_id, one.currency, leave_out=one.leave_out),
        policy=freshness.policy_state(one.tenant_id, one.pin, one.rests_on),
        qualification=qualification.find(
            one.agent, one.route, one.answered_model, manual_allowed=one.manual_allowed
        ),
    )  # fmt: skip


def parked(world: World) -> Run:
    return world.start()


def refunded(world: World) -> Run:
    run = world.start()
    world.approve(run)
    return world.resume(run, until="completed")


def in_doubt(world: World) -> Run:
    run = refunded(world)
    Write.objects.update(state="unknown", refund_id="")
    return run


@pytest.mark.parametrize("walk", [parked, refunded, in_doubt])
def test_one_statement_tells_what_its_questions_find(world: World, walk: Callable[[World], Run]) -> None:
    run = walk(world)
    key = Write.objects.values_list("key", flat=True).first() or ""
    assert passages()
    for one in (
        asked(run), asked(run, leave_out=key), asked(run, rests_on=()), asked(run, order_id="nobody's"),
        asked(run, manual_allowed=False), asked(run, route="offline:nobody"), asked(run, currency="EUR"),
        asked(run, pin="POL-NONE@v1"), asked(run, tenant_id="t_other"),
        asked(run, rests_on=(replace(passages()[0], content_hash="sha256:gone"),)),
    ):  # fmt: skip
        assert at_gate.ask(one) == one_by_one(one), one
    assert at_gate.ask(asked(run)).qualification is not None
    assert at_gate.ask(asked(run)).policy.current == 4
