"""The embedded default beside the same loop in one process with no broker: CPU a run, each on an SQLite file.

The one process of either admits and approves by itself. Imports no zone and no keeper.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from agentsite.private.processes import free_port
from runs.bench import engines, resources
from runs.bench.driver import Driver
from runs.chaos.ground import EMBEDDED, Ground

WARM = 3


@dataclass(frozen=True, kw_only=True)
class Embedded:
    """CPU in ms a run, a round each: of the embedded process, of the loop."""

    default_ms: tuple[float, ...]
    loop_ms: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median of the rounds' own ratios."""
        return round(median(one / other for one, other in zip(self.default_ms, self.loop_ms, strict=True)), 3)

    def wire(self) -> dict[str, object]:
        return {
            "default_cpu_ms": round(median(self.default_ms), 2), "loop_cpu_ms": round(median(self.loop_ms), 2),
            "ratio": self.ratio, "rounds": {"default_ms": self.default_ms, "loop_ms": self.loop_ms},
        }  # fmt: skip

    def lines(self) -> list[tuple[str, str]]:
        return [
            ("embedded default: CPU a run", f"{median(self.default_ms):.1f} ms"),
            ("the same loop with no broker: CPU a run", f"{median(self.loop_ms):.1f} ms"),
            ("embedded default, against that loop: cpu", f"{self.ratio:g}"),
        ]


def measure(runs: int, rounds: int) -> Embedded:
    """Raises SiteFailed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentsite-bench-")))
        ground = stack.enter_context(Ground())
        default = _Measured(_driver(stack, ground, folder / "default", "up", "--port", str(free_port())))
        loop = _Measured(_driver(stack, ground, folder / "loop", "loop"))
        found = [(default.crowd(runs), loop.in_turn(runs)) for _ in range(rounds)]
    return Embedded(default_ms=tuple(one for one, _ in found), loop_ms=tuple(other for _, other in found))


def _driver(stack: ExitStack, ground: Ground, folder: Path, what: str, *arguments: str) -> Driver:
    site = engines.InstantSite(EMBEDDED, ground, folder, passes=1)
    driver = site.driver(what, *arguments)
    stack.callback(driver.close)
    return driver


class _Measured:
    """A process that does everything itself, warm."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self._made = driver, 0
        self.in_turn(WARM)

    def crowd(self, runs: int) -> float:
        return self._cpu_ms(runs, lambda orders: self._driver.ask(do="crowd", orders=orders))

    def in_turn(self, runs: int) -> float:
        return self._cpu_ms(runs, lambda orders: self._driver.ask(do="alone", orders=orders, pause_s=0))

    def _cpu_ms(self, runs: int, phase: Callable[[list[str]], object]) -> float:
        orders = [f"e{self._made + number}" for number in range(runs)]
        self._made += runs
        before = resources.spent_s([self._driver.pid])
        phase(orders)
        return (resources.spent_s([self._driver.pid]) - before) / runs * 1000
