"""What processes and all they start take of the CPU, read from /proc. Imports no Django and nothing of the product."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentsite.private.processes import children, command_of

TICKS_A_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Share:
    """One process, or all of one name together: CPU seconds in the window, and that as a share of one core."""

    name: str
    cpu_s: float
    share: float


@dataclass(frozen=True, kw_only=True)
class CpuUse:
    """A window of `window_s` seconds; `shares` falls from the greediest, `share` is all of them together."""

    window_s: float
    shares: tuple[Share, ...]

    @property
    def share(self) -> float:
        return sum(one.share for one in self.shares)

    def table(self) -> str:
        rows = [f"{one.share:8.2%}  {one.cpu_s:6.2f} s  {one.name}" for one in self.shares]
        return "\n    ".join([*rows, f"{self.share:8.2%}  of one core in all, over {self.window_s:.0f} s"])


def measure(roots: Mapping[str, int], window_s: float) -> CpuUse:
    """CPU of these processes (by name) and of all their descendants, those included that come or end meanwhile."""
    before, started = _spent(roots), time.monotonic()
    time.sleep(window_s)
    after, took_s = _spent(roots), time.monotonic() - started
    used: dict[str, float] = {}
    for pid, (name, spent_s) in {**before, **after}.items():
        # What ended has moved, whole, into the waited-for time of its parent: what it had before is taken off again.
        until_s = spent_s if pid in after else 0.0
        used[name] = used.get(name, 0.0) + until_s - (before[pid][1] if pid in before else 0.0)
    ordered = sorted(used.items(), key=lambda one: -one[1])
    shares = tuple(Share(name=name, cpu_s=cpu_s, share=cpu_s / took_s) for name, cpu_s in ordered)
    return CpuUse(window_s=took_s, shares=shares)


def _spent(roots: Mapping[str, int]) -> dict[int, tuple[str, float]]:
    """CPU seconds so far by pid, waited-for children included."""
    found: dict[int, tuple[str, float]] = {}
    for root, first in roots.items():
        for pid in _family(first):
            spent_s = _cpu_s(pid)
            if spent_s is not None:
                found[pid] = (f"{root}: {_told(pid)}", spent_s)
    return found


def _family(pid: int) -> Sequence[int]:
    found = [pid]
    for one in found:  # grows while it is walked
        found += children(one)
    return found


def _cpu_s(pid: int) -> float | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return sum(int(ticks) for ticks in fields[11:15]) / TICKS_A_S


def _told(pid: int) -> str:
    """What of a command line tells one process from another."""
    words = command_of(pid).split()
    if "-Q" in words:
        return words[words.index("-Q") + 1] + f" ({words[words.index('-P') + 1]})"
    if words and words[0] == "postgres:":
        return " ".join(words[1:3])
    return " ".join(word for word in words[1:3] if not word.startswith("-")) or "itself"
