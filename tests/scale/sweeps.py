"""How long the sweeper's pass takes over many runs that are over and many that wait, in a process of its own.

`python -m tests.scale.sweeps FINISHED PARKED ROUNDS` on a store that holds one run of each kind; prints JSON. Needs
Django; takes the environment as it is.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
import uuid
from dataclasses import asdict, dataclass

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentsite.settings")
django.setup()

from django.db import connection, transaction  # noqa: E402

from runs import sweeper  # noqa: E402
from runs.models import Run  # noqa: E402
from runs.store.hints import _due  # noqa: E402
from tests.scale import copies  # noqa: E402

WARM_UP = 3


@dataclass(frozen=True, kw_only=True)
class Passes:
    """Times of whole passes in milliseconds, commits included; `plan` is how the database looks for what is due."""

    finished: int
    parked: int
    rounds: int
    median_ms: float
    p95_ms: float
    found: int
    plan: str


def fill(finished: int, parked: int) -> None:
    """So many runs of each kind, made from one of each."""
    for status, wanted in (("completed", finished), ("awaiting_approval", parked)):
        there = Run.objects.filter(status=status)
        first = there.first()
        assert first is not None, f"no run is {status}"
        of_ours = first.pk if connection.vendor == "postgresql" else first.pk.hex
        with transaction.atomic(), connection.cursor() as cursor:
            copies.make(cursor, of_ours, wanted - there.count(), new_id=_id, record=False)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE" if connection.vendor == "postgresql" else "ANALYZE")


def _id(made: uuid.UUID) -> object:
    return made if connection.vendor == "postgresql" else made.hex


def measure(rounds: int) -> Passes:
    """Passes one after another, with nothing due."""
    took_ms, found = list[float](), 0
    for number in range(WARM_UP + rounds):
        started = time.perf_counter()
        done = sweeper.sweep()
        if number >= WARM_UP:
            took_ms.append((time.perf_counter() - started) * 1000)
        assert done is not None, "nobody else sweeps this store"
        found += done.found
    counted = {s: Run.objects.filter(status=s).count() for s in ("completed", "awaiting_approval")}
    return Passes(
        finished=counted["completed"], parked=counted["awaiting_approval"], rounds=rounds, found=found,
        median_ms=statistics.median(took_ms), p95_ms=sorted(took_ms)[int(rounds * 0.95)], plan=plan(),
    )  # fmt: skip


def plan() -> str:
    """How the database finds the runs that are due on the queue of model turns."""
    rows, params = _due("passes")
    postgres = connection.vendor == "postgresql"
    with connection.cursor() as cursor:
        cursor.execute(("EXPLAIN (ANALYZE, COSTS OFF) " if postgres else "EXPLAIN QUERY PLAN ") + rows, params)
        return "\n".join(str(row[-1]) for row in cursor.fetchall())


if __name__ == "__main__":
    fill(int(sys.argv[1]), int(sys.argv[2]))
    print(json.dumps(asdict(measure(int(sys.argv[3])))))
