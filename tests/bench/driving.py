"""Whoever admits and approves while an engine is measured: the very same for every engine, in a process of its own.

It reads orders for phases as lines of JSON and answers each with one line. An engine is what `Engine` says.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

import psycopg

Json = dict[str, Any]
ALONE_POLL_S, CROWD_POLL_S = 0.0005, 0.01
STUCK_S, STUCK_A_RUN_S = 120.0, 10.0
"""Generous: past it something is stuck."""


class Lost(AssertionError):
    """A run did not end as it must, or not exactly one refund was made."""


class Engine(Protocol):
    """Admits and decides by the engine's own means; reads its rows as anybody beside it does.

    `committed_at`: the moment (monotonic) at which what was last admitted or decided was durable.
    """

    committed_at: float

    def admit(self, order: str) -> None: ...
    def asked(self) -> list[Any]:
        """What waits for a person now."""

    def approve(self, asked: Any) -> None: ...
    def status(self, order: str) -> str:
        """Either `asked`, `ended`, or anything else."""

    def ended(self) -> int:
        """How many runs ended so far."""

    def judge(self, orders: list[str]) -> None:
        """Raises Lost unless each order's run ended well, by exactly one refund."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A store of either kind, read beside whoever works on it."""

    read: Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]

    def one(self, query: str, *given: Any) -> Any:
        found = self.read(query, given)
        return found[0][0] if found else None


def rows(database: str) -> Rows:
    """Queries have `%s` for what is given."""
    if database.startswith("sqlite"):
        file = database.removeprefix("sqlite:///")
        lite = sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=20, check_same_thread=False)
        lite.isolation_level = None
        return Rows(read=lambda query, given: lite.execute(query.replace("%s", "?"), given).fetchall())
    link = psycopg.connect(database, autocommit=True)
    return Rows(read=lambda query, given: link.execute(query.encode(), given).fetchall())


def alone(engine: Engine, orders: list[str], pause_s: float) -> list[float]:
    """Seconds of the engine, one run after the other: to the question, and from the answer to the end."""
    took = []
    for order in orders:
        engine.admit(order)
        began = engine.committed_at
        asked_at = _reached(engine, order, "asked")
        engine.approve(engine.asked()[0])
        decided = engine.committed_at
        ended_at = _reached(engine, order, "ended")
        took.append(asked_at - began + ended_at - decided)
        time.sleep(pause_s)
    engine.judge(orders)
    return took


def _reached(engine: Engine, order: str, wanted: str) -> float:
    stuck = time.monotonic() + STUCK_S
    while (status := engine.status(order)) != wanted:
        if status == "ended" or time.monotonic() > stuck:
            engine.judge([order])
            raise Lost(f"{order} is {status}, not {wanted}")
        time.sleep(ALONE_POLL_S)
    return time.monotonic()


def crowd(engine: Engine, orders: list[str]) -> float:
    """Seconds from the first admission to the last end, all admitted as fast as can be, approved as they ask."""
    before, failed = engine.ended(), list[Exception]()

    def admit_all() -> None:
        try:
            for order in orders:
                engine.admit(order)
        except Exception as error:  # noqa: BLE001 - whatever it was, the thread that waits must know
            failed.append(error)

    began, customers = time.monotonic(), threading.Thread(target=admit_all)
    customers.start()
    while engine.ended() - before < len(orders):
        for asked in engine.asked():
            engine.approve(asked)
        if failed or time.monotonic() - began > STUCK_S + STUCK_A_RUN_S * len(orders):
            raise Lost(f"{engine.ended() - before} of {len(orders)} ended: {failed}")
        time.sleep(CROWD_POLL_S)
    took = time.monotonic() - began
    customers.join()
    engine.judge(orders)
    return took


def own_stdout() -> TextIO:
    """Standard output, for answers alone: whatever else this process prints goes where its errors go."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return answers


def serve(engine: Engine, answers: TextIO) -> None:
    """One phase a line, until there are no more lines. Answers: what was measured, and this process's own CPU."""
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        asked = json.loads(line)
        began = time.process_time()
        try:
            found = _phase(engine, asked)
        except Lost as lost:
            found = {"lost": str(lost)}
        print(json.dumps({**found, "own_cpu_s": time.process_time() - began}), file=answers)


def _phase(engine: Engine, asked: Json) -> Json:
    if asked["do"] == "alone":
        return {"took_s": alone(engine, asked["orders"], asked["pause_s"])}
    return {"took_s": crowd(engine, asked["orders"])}
