"""What `refund` measured, as medians of rounds and ratios to the floor. Pure; imports nothing of ours but papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import Any

from runs.bench.embedded import Embedded
from runs.bench.numbers import nearest

FLOOR = "floor"
Round = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Costs:
    """One engine in one round. `alone_s`: seconds of each run alone, without the person; `rate`: runs a second, many
    at once; the rest is a run's, memory the workers' at the end of the crowd (MB of 1,000,000 bytes)."""

    alone_s: tuple[float, ...]
    commits: float
    wal_kb: float
    messages: float
    rate: float
    cpu_ms: float
    cpu_workers_ms: float
    cpu_database_ms: float
    driver_cpu_ms: float
    memory_mb: float


Medians = dict[str, float]


def medians(rounds: Sequence[Costs]) -> Medians:
    """Of each figure over the rounds; the percentiles are those of each round."""
    p50, p95 = ([nearest(one.alone_s, share) * 1000 for one in rounds] for share in (0.5, 0.95))
    rest = {f.name: [getattr(one, f.name) for one in rounds] for f in fields(Costs) if f.name != "alone_s"}
    found = {"alone_p50_ms": p50, "alone_p95_ms": p95, **rest}
    return {name: round(median(values), 2) for name, values in found.items()}


def against(engine: Sequence[Costs], floor: Sequence[Costs]) -> dict[str, float]:
    """Medians of each round's own ratio: what else the machine did in a round was done to both."""
    pairs = list(zip(engine, floor, strict=True))
    alone = [nearest(one.alone_s, 0.5) / nearest(other.alone_s, 0.5) for one, other in pairs]
    rate = [one.rate / other.rate for one, other in pairs]
    cpu = [one.cpu_ms / other.cpu_ms for one, other in pairs]
    return {
        name: round(median(values), 3) for name, values in (("alone_p50", alone), ("rate", rate), ("cpu", cpu))
    }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Figures:
    """`rounds`: by the engines' names, of which the last is the floor. `size`: what was asked for. `load`: of the
    machine, averaged over a minute, before and after."""

    rounds: tuple[Mapping[str, Costs], ...]
    embedded: Embedded
    size: Mapping[str, int]
    load: tuple[float, float]

    @property
    def fault(self) -> str | None:
        return None  # a run that was lost or a refund made twice ends the measuring at once

    @property
    def engines(self) -> dict[str, list[Costs]]:
        return {name: [one[name] for one in self.rounds] for name in self.rounds[0]}

    @property
    def ratios(self) -> dict[str, dict[str, float]]:
        """To the floor, by the engines' names."""
        known = self.engines
        return {name: against(costs, known[FLOOR]) for name, costs in known.items() if name != FLOOR}

    def wire(self) -> dict[str, object]:
        return {
            "size": dict(self.size), "load": self.load, "embedded": self.embedded.wire(), "ratios": self.ratios,
            "engines": {name: medians(costs) for name, costs in self.engines.items()},
            "rounds": [{name: asdict(costs) for name, costs in one.items()} for one in self.rounds],
        }  # fmt: skip

    def lines(self) -> list[tuple[str, str]]:
        found = list[tuple[str, str]]()
        for name, costs in self.engines.items():
            found += [(f"{name}: {what}", said) for what, said in _said(medians(costs))]
        for name, ratios in self.ratios.items():
            found += [(f"{name}, against the floor: {what}", f"{ratio:g}") for what, ratio in ratios.items()]
        found += self.embedded.lines()
        load = f"{self.load[0]:.1f} before, {self.load[1]:.1f} after"
        return [*found, ("load of the machine", load)]


def _said(m: Medians) -> list[tuple[str, str]]:
    return [
        ("engine time of one run alone", f"p50 {m['alone_p50_ms']:.1f} ms, p95 {m['alone_p95_ms']:.1f} ms"),
        ("many at once", f"{m['rate']:.1f} runs/s"),
        ("CPU a run", f"{m['cpu_ms']:.1f} ms (workers {m['cpu_workers_ms']:.1f}, database {m['cpu_database_ms']:.1f})"),
        ("CPU a run of who admits and approves", f"{m['driver_cpu_ms']:.1f} ms"),
        ("durable commits, log, messages a run", f"{m['commits']:.1f}, {m['wal_kb']:.1f} KB, {m['messages']:.1f}"),
        ("memory (PSS) of the workers", f"{m['memory_mb']:.0f} MB"),
    ]  # fmt: skip
