"""Ways to hold the world still at a seam, each from outside: the provider, the wire to a server, a lock, a model."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Protocol

from agentsite.private.processes import wait_until
from tests.crash.seams.stage import Stage
from tests.proxy import Proxy, Rule

FOR_EVER = 300
PASSES = "delay_after:0"
"""A fault that changes nothing: the first calls use it up, the next one meets what is meant for it."""
HELD_S = 25.0


class Hold(Protocol):
    """Armed before the run comes to the seam, asked whether it is there, released after the kill."""

    def arm(self, stage: Stage) -> None: ...

    def held(self, stage: Stage, request_ids: list[str]) -> int: ...

    def release(self, stage: Stage) -> None: ...


@dataclass(kw_only=True)
class Answer:
    """The provider keeps a request waiting: before it does anything (`delay`) or after (`delay_after`)."""

    method: str
    path: str
    mode: str = "delay"
    skip: int = 0

    def arm(self, stage: Stage) -> None:
        match = f"{self.method} {self.path}"
        for business in stage.businesses.values():
            for _ in range(self.skip):
                business.fault(match, PASSES)
            business.fault(match, f"{self.mode}:{FOR_EVER}")

    def held(self, stage: Stage, request_ids: list[str]) -> int:
        if self.mode == "delay_after" and self.method == "POST":
            orders = [one.removeprefix("req-") for one in request_ids]
            return sum(1 for b in stage.businesses.values() for order in orders if b.made_on(order))
        return sum(1 for b in stage.businesses.values() if b.open_calls(self.method, self.path))

    def release(self, stage: Stage) -> None:
        stage.each(lambda business: business.control("/_faults", clear=True))


@dataclass(kw_only=True)
class Courier:
    """The request leaves its sender and reaches the provider late, after the sender's death, or never."""

    late_s: float | None

    def arm(self, stage: Stage) -> None:
        rule = {"at": b"POST /v1/refunds", "most": 1, "late_s": self.late_s}
        self._rules = [proxy.hold(Rule(**rule)) for proxy in stage.couriers.values()]  # type: ignore[arg-type]

    def held(self, stage: Stage, request_ids: list[str]) -> int:
        return sum(len(rule.held) for rule in self._rules)

    def release(self, stage: Stage) -> None:
        for proxy in stage.couriers.values():
            proxy.let_go()


@dataclass(kw_only=True)
class Wire:
    """The connection to PostgreSQL or Redis, at the bytes `at` of a transaction that held `mark`."""

    to: str
    at: bytes
    mark: bytes = b""
    after: bool = False
    most: int = 4
    skip: int = 0

    def arm(self, stage: Stage) -> None:
        rule = Rule(at=self.at, mark=self.mark, after=self.after, most=self.most, skip=self.skip)
        self._rule = self._proxy(stage).hold(rule)

    def held(self, stage: Stage, request_ids: list[str]) -> int:
        return len(self._rule.held)

    def release(self, stage: Stage) -> None:
        self._proxy(stage).let_go()

    def _proxy(self, stage: Stage) -> Proxy:
        proxy = stage.database if self.to == "database" else stage.broker
        assert proxy is not None
        return proxy


def commit(mark: str, *, after: bool = False, most: int = 4) -> Wire:
    """A transaction that wrote an event of this type, held at its COMMIT."""
    return Wire(to="database", at=b"COMMIT", mark=mark.encode(), after=after, most=most)


def hint(queue: str, *, after: bool = False, skip: int = 0) -> Wire:
    """A message being published into a queue."""
    name = f"agentsite:{queue}"
    return Wire(to="broker", at=f"LPUSH\r\n${len(name)}\r\n{name}".encode(), after=after, skip=skip)


@dataclass(kw_only=True)
class Model:
    """The model takes its time by itself."""

    def arm(self, stage: Stage) -> None:
        pass

    def held(self, stage: Stage, request_ids: list[str]) -> int:
        accepted = [one for one, status in stage.statuses(request_ids).items() if status == "accepted"]
        return stage.leased(accepted) if accepted else 0

    def release(self, stage: Stage) -> None:
        pass


@dataclass(kw_only=True)
class Lock:
    """The provider answers after a while, and whoever got the answer finds SQLite's write lock taken by the test."""

    method: str
    path: str
    skip: int = 0
    answer_s: float = 2.0

    def arm(self, stage: Stage) -> None:
        match = f"{self.method} {self.path}"
        for business in stage.businesses.values():
            for _ in range(self.skip):
                business.fault(match, PASSES)
            business.fault(match, f"delay_after:{self.answer_s}")
        self._stage, self._done, self._free, self._held = stage, threading.Event(), threading.Event(), 0

    def held(self, stage: Stage, request_ids: list[str]) -> int:
        if self._held:
            return self._held
        asked = [b for b in stage.businesses.values() if b.open_calls(self.method, self.path)]
        if len(asked) < len(stage.businesses):
            return 0
        threading.Thread(target=self._keep, daemon=True).start()
        assert wait_until(lambda: not any(b.open_calls(self.method, self.path) for b in asked), HELD_S)
        self._done.wait(0.5)  # the answer is read, the checkpoint asks for the lock
        self._held = len(asked)
        return self._held

    def _keep(self) -> None:
        with self._stage.locked():
            self._free.wait(60)

    def release(self, stage: Stage) -> None:
        self._free.set()
        stage.each(lambda business: business.control("/_faults", clear=True))
