"""Door: the processes of a private site by their roles: started, killed in every way, children included.

They are children of the thread that starts them and die with it. Imports nothing but the floor.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from agentsite import env
from agentsite.private.processes import HOST, children, command_of, free_port, is_alive, spawn, wait_until

GONE_S, STOP_S = 10.0, 60.0
TAKEN = "address already in use"


class Processes:
    """Roles are `up`, `web` and `worker1`, `worker2` …; a role's log lies under its name in `folder`."""

    environment: dict[str, str]

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder, self.port = folder, free_port()
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def spawn(self, role: str) -> None:
        """Starts one process and waits for nothing."""
        kind = role.rstrip("0123456789")
        more = ["--port", str(self.port)] if kind in ("up", "web") else ["--name", role]
        command = [sys.executable, "manage.py", kind, *more]
        self._running[role] = spawn(command, self.environment, cwd=env.ROOT, log=self.folder / f"{role}.log")

    def move(self, role: str) -> bool:
        """Starts a process again that found its port taken, on another one. False: it ended for another reason."""
        if TAKEN not in (self.folder / f"{role}.log").read_text(errors="replace"):
            return False
        self._running.pop(role).wait(GONE_S)
        self.port = free_port()
        self.spawn(role)
        return True

    def kill(self, *roles: str) -> None:
        """SIGKILL to whole process groups, all of them by default: no farewell of anybody."""
        groups = {role: self._running.pop(role) for role in roles or list(self._running)}
        for process in groups.values():
            with suppress(ProcessLookupError):  # it ended by itself, and all its family with it
                os.killpg(process.pid, signal.SIGKILL)
        for process in groups.values():
            process.wait(GONE_S)

    def kill_parent(self, role: str) -> None:
        """SIGKILL to a worker command alone; its children are told by the kernel and end by themselves."""
        process = self._running.pop(role)
        process.kill()
        process.wait(GONE_S)

    def stop(self, *roles: str) -> None:
        """An orderly end, as a supervisor asks for it; what will not end is killed and fails the test."""
        for role in roles or list(self._running):
            self._running[role].send_signal(signal.SIGTERM)
        for role in roles or list(self._running):
            self._running.pop(role).wait(STOP_S)

    def pid(self, role: str) -> int:
        """The first process of a role that runs."""
        return self._running[role].pid

    def child(self, queue: str, role: str = "worker1") -> int | None:
        """The process of a worker that consumes one queue, or None while it has none."""
        process = self._running.get(role)
        found = [pid for pid in children(process.pid) if f"-Q {queue} " in command_of(pid)] if process else []
        return found[0] if found else None

    def kill_child(self, queue: str, role: str = "worker1") -> int:
        """SIGKILL to a worker's child process of one queue with its pool; the worker command starts another."""
        child = self.child(queue, role)
        assert child is not None, f"{role} has no child for {queue}"
        os.kill(child, signal.SIGSTOP)  # so that it replaces nobody meanwhile
        family = [child, *children(child)]
        for pid in family:
            os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: not any(map(is_alive, family)), GONE_S)
        return child

    def ended(self) -> list[str]:
        """Processes that ended without being asked."""
        return [role for role, process in self._running.items() if process.poll() is not None]
