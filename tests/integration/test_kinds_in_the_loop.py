"""Every kind of odd answer as the first answer of a whole run, each in one dialect and form: no worker falls over it,
what is kept of it can be kept, and nothing is refunded."""

from __future__ import annotations

import pytest

from approvals.models import Approval
from runs.models import Run, Turn
from tests.integration.test_dialect_runs import admit, nothing_moved, reached
from tests.models.kinds import Kind
from tests.models.kinds_of_answers import SENT
from tests.models.kinds_of_calls import SAID
from tests.models.server import Fault, ModelServer
from tests.models.speaking import PROVIDERS
from tests.world import ENDED, World

pytestmark = pytest.mark.any_database

Cell = tuple[Kind, str]
GONE = Fault(status=404, body={"error": {"type": "not_found_error"}})
# Their bytes are what is odd about them, and megabytes of it: once, in `tests/unit/test_kinds.py`, is enough.
LARGE = 500_000


def cells(provider: str) -> list[Cell]:
    """The kinds whose turn it is in this dialect, each in one form; over all dialects, each kind once."""
    found = list[Cell]()
    for number, kind in enumerate([*SAID, *SENT]):
        known = kind.cells()
        at, mode = known[number % len(known)]
        sent = kind.sends(at, mode)
        if at == provider and sent is not None and len(sent.body) < LARGE:
            found.append((kind, mode))
    return found


def through_the_loop(world: World, server: ModelServer, number: int, cell: Cell) -> Run:
    """A run whose first answer is of this kind, and whose provider knows the model no more after that."""
    kind, mode = cell
    sent = kind.sends(server.provider, mode)
    assert sent is not None
    world.settings(MODEL_STREAM=str(int(mode == "sse")))
    server.faults = [Fault(raw=sent.body, kind=sent.type, headers=dict(sent.headers), cut=sent.cut)]
    return world.resume(admit(world, request_id=f"req-{number}"))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_kind_goes_through_a_run_and_refunds_nothing(world: World, provider: str) -> None:
    with reached(world, provider, always=GONE, variables={"RETRY_S": "0.0001"}) as server:
        for number, cell in enumerate(cells(provider)):
            run = through_the_loop(world, server, number, cell)
            name = f"{cell[0].group}: {cell[0].name}, {cell[1]}"
            assert run.status in ENDED, (name, run.status)
            assert run.reason in (None, "dependency_unavailable", "needs_a_person", "repair_exhausted"), name
            verdict = cell[0].expected(provider, cell[1])
            turns = Turn.objects.filter(run=run).count()
            assert turns == int(not verdict.startswith(("later", "final"))), name
            told = [e["error"] for e in world.events(run, "model.invalid")]
            assert not verdict.startswith("told") or told[:1] == [verdict.split()[1]], (name, told)
    assert Approval.objects.count() == 0
    nothing_moved(world)
