"""Walks a run handler by handler in this process, so that a test may act between any two of them."""

from __future__ import annotations

from collections.abc import Callable

from runs import orchestrator, store
from runs.contracts import Outcome
from runs.models import Run
from tests.world import World

MOST = 40


def walk(world: World, run: Run, until: Callable[[Run], bool]) -> Run:
    """One handler and its checkpoint after the other, as a worker does, until the row is as wanted; then it is free."""
    for _ in range(MOST):
        row = world.fresh(run)
        if until(row):
            return row
        world.settings(AGENT_MODELS=world.scripts[str(run.pk)])
        claimed = store.claim(str(run.pk))
        assert claimed is not None, f"{row.status} is not due"
        state = store.load(str(run.pk), claimed.token)
        handled = orchestrator.step(state)
        assert isinstance(handled, Outcome), f"{row.status} waits or sends"
        store.checkpoint(state, handled, keep=False)
    raise AssertionError(f"still {world.fresh(run).status} after {MOST} handlers")


def walk_to(world: World, run: Run, status: str) -> Run:
    """Until the run stands in a status whose handler has not run yet."""
    return walk(world, run, lambda row: row.status == status)
