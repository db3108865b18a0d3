"""Roof: child processes that die with their parent, and free ports. Used by `demo` and `worker`."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from agentsite import env

PR_SET_PDEATHSIG = 1


def _dies_with(parent: int) -> Callable[[], None]:
    """For the child, before exec: ask Linux for SIGTERM when the parent dies, however it dies."""

    def bind() -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:  # it died before we asked
                os._exit(1)

    return bind


def start(
    command: Sequence[str], environment: Mapping[str, str], *, log: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """A child in this process's group; what it prints goes into `log`, else where ours goes."""
    return subprocess.Popen(
        list(command), env=dict(environment), cwd=env.ROOT, preexec_fn=_dies_with(os.getpid()), stdout=log, stderr=log,
    )  # fmt: skip


def manage(*arguments: str) -> list[str]:
    """The command line of one of our own management commands."""
    return [sys.executable, str(env.ROOT / "manage.py"), *arguments]


def stop(children: Sequence[subprocess.Popen[bytes]], *, patience_s: float = 25) -> None:
    """Ask every child to end, wait, and end those that would not."""
    for child in children:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
    until = time.monotonic() + patience_s
    for child in children:
        try:
            child.wait(timeout=max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def free_port(wanted: int, *, bind: str = "127.0.0.1", tries: int = 200) -> int:
    """`wanted`, or the next port that nobody listens on. Raises OSError where none is free."""
    for port in range(wanted, wanted + tries):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((bind, port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port from {wanted} on")


def wait_for(ready: Callable[[], bool], *, seconds: float, children: Sequence[subprocess.Popen[bytes]] = ()) -> bool:
    """Poll until ready; False where time ran out or a child ended first."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if ready():
            return True
        if any(child.poll() is not None for child in children):
            return False
        time.sleep(0.05)
    return False
