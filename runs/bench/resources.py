"""What processes take together: memory with each shared page counted once (PSS), and CPU. Read from /proc: Linux."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from agentsite.private.processes import children

PSS = re.compile(r"^Pss: +([0-9]+) kB", re.M)


def family(pid: int) -> Sequence[int]:
    """A process and all its descendants."""
    found = [pid]
    for one in found:  # grows while it is walked
        found += children(one)
    return found


def pss_mb(pids: Iterable[int]) -> float:
    """MB of 1,000,000 bytes; those that ended count nothing."""
    return sum(map(_pss_kb, pids)) * 1024 / 1_000_000


def cpu_s(pids: Iterable[int]) -> float:
    """Seconds of CPU since they began, user and system."""
    return sum(map(_ticks, pids)) / os.sysconf("SC_CLK_TCK")


def spent_s(roots: Iterable[int]) -> float:
    """Seconds of CPU of these processes and all their descendants, those that ended and were waited for too."""
    ticks = sum(_ticks(pid, ended=True) for root in roots for pid in family(root))
    return ticks / os.sysconf("SC_CLK_TCK")


def _pss_kb(pid: int) -> int:
    found = PSS.search(_read(pid, "smaps_rollup"))
    return int(found.group(1)) if found else 0


def _ticks(pid: int, *, ended: bool = False) -> int:
    """Of a process; with `ended` of its children that ended, too."""
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11 : 15 if ended else 13])


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""
