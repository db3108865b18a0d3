"""Roof: child processes bound to our life, watched from outside, on ports of their own. Imports nothing of ours."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

HOST = "127.0.0.1"
PORTS = range(20000, 32768)
"""Below the ports that systems give to clients: while a server is down, no client's own end can sit on its port."""

FIRST_PAUSE_S, MOST_PAUSE_S = 0.02, 0.25

_PR_SET_PDEATHSIG = 1


def die_with_parent(death_signal: signal.Signals = signal.SIGKILL) -> Callable[[], None] | None:
    """A `preexec_fn` for Popen: the child gets `death_signal` when *the thread that started it* ends, however it ends.

    So start such children from a thread that lives as long as they must. Linux alone knows this; elsewhere it is None.
    """
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)

    return bind


def spawn(command: Sequence[str], environment: Mapping[str, str], *, cwd: Path, log: Path) -> subprocess.Popen[bytes]:
    """A child that leads a process group of its own and is killed with us; what it prints is added to `log`."""
    with log.open("ab") as end:
        return subprocess.Popen(  # noqa: S603 - a command of our own making
            list(command), cwd=cwd, env=dict(environment), stdin=subprocess.DEVNULL, stdout=end,
            stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=die_with_parent(),
        )  # fmt: skip


def command_of(pid: int) -> str:
    """The command line of a process, its words parted by blanks; empty where there is none. Needs /proc."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def children(pid: int) -> list[int]:
    """The children of a process; none where /proc does not tell."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and that nobody has waited for yet does not. Needs /proc."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(holds: Callable[[], bool], limit_s: float) -> bool:
    """Whether `holds` became true within the limit. Looks ever less often: a look may cost a connection."""
    deadline, pause_s = time.monotonic() + limit_s, FIRST_PAUSE_S
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.25, MOST_PAUSE_S)
    return True


def free_port() -> int:
    """A loopback port that nobody listens on at this moment; whoever binds it must be ready to find it taken."""
    for port in random.SystemRandom().sample(PORTS, k=100):  # no seed of a test is shared with its neighbours
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise OSError(f"no free port among a hundred tried between {PORTS.start} and {PORTS.stop}")
