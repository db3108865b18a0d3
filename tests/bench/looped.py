"""The same loop with no broker, no worker and no sweeper: each run from end to end by calls, in this one process."""

from __future__ import annotations

from typing import Any

from agentsite import queues
from runs.advance import advance
from tests.bench import ours


class Looped:
    """Whoever admits a run or decides about it takes it as far as it goes."""

    def __init__(self, engine: ours.Ours) -> None:
        self._engine = engine
        self.committed_at = 0.0
        self._due = list[str]()
        queues.nudge = self._noted

    def _noted(self, run_id: str, status: str, **_more: Any) -> bool:
        self._due.append(run_id)
        return True

    def admit(self, order: str) -> None:
        self._engine.admit(order)
        self._go()

    def approve(self, asked: Any) -> None:
        self._engine.approve(asked)
        self._go()

    def _go(self) -> None:
        while self._due:
            advance(self._due.pop())

    def asked(self) -> list[Any]:
        return self._engine.asked()

    def status(self, order: str) -> str:
        return self._engine.status(order)

    def ended(self) -> int:
        return self._engine.ended()

    def judge(self, orders: list[str]) -> None:
        self._engine.judge(orders)
