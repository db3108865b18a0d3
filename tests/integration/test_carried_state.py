"""What a pass hands from handler to handler is what its rows would show: no field differs from a load."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from runs import store
from runs.contracts import RunState
from tests.world import World, final, gather, reads, refund, s0, turn

SCRIPTS: dict[str, list[Any]] = {
    "paid": s0(),
    "refused by the gate, then told": [*gather(), refund("pay_9001", "999999.00"), final()],
    "bad output, then paid": [turn(text="{"), *s0()],
    "an unknown order": [reads("get_order", order_id="no such order"), *s0()],
    "a plan and a message": [
        {"tool": "plan", "args": {"text": "First look, then pay. \U0001f600 \u2028"}},
        {"tool": "message", "args": {"text": "I am looking into it."}}, *s0(),
    ],
    "the same twice": [*gather(), *gather(), final()],
}  # fmt: skip
UNPAID = ("refused by the gate, then told", "the same twice")


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Every state that was handed on, compared at once: (status, what differs)."""
    seen, committed = list[tuple[str, str]](), store.checkpoint

    def compared(*args: object, **named: object) -> store.Moved:
        moved = committed(*args, **named)  # type: ignore[arg-type]
        if moved.state is not None:
            seen.append((moved.status.value, different(moved.state)))
        return moved

    monkeypatch.setattr(store, "checkpoint", compared)
    return seen


def different(state: RunState) -> str:
    """Names of fields that a load shows otherwise; `now` goes on by itself, and its instant is the commit's."""
    loaded = store.load(state.run_id, state.lease)
    return ", ".join(
        f"{field.name}: {getattr(state, field.name)!r} != {getattr(loaded, field.name)!r}"
        for field in fields(replace(loaded, now=state.now))
        if field.name not in ("now", "status_since") and getattr(state, field.name) != getattr(loaded, field.name)
    ) + ("" if abs((state.status_since - loaded.status_since).total_seconds()) < 1 else ", status_since")


@pytest.mark.parametrize("name", SCRIPTS)
def test_state_handed_on_is_what_its_rows_show(world: World, carried: list[tuple[str, str]], name: str) -> None:
    run = world.start(script=SCRIPTS[name])
    if run.status == "awaiting_approval":
        world.approve(run)
        run = world.resume(run)
    assert run.status in ("completed", "escalated")
    assert len(carried) >= 2
    assert [one for one in carried if one[1]] == []
    assert len(world.refunds()) == (0 if name in UNPAID else 1)


def test_what_a_door_left_meanwhile_is_loaded(world: World, carried: list[tuple[str, str]]) -> None:
    """A message that comes while the model is asked is seen by the very next handler."""
    run = world.admit(script=s0())
    world.message(run, "Please hurry.")
    run = world.resume(run)
    assert run.status == "awaiting_approval"
    assert run.folded_input_seq == run.last_input_seq > 0
    assert [one for one in carried if one[1]] == []
