"""Further machines made of Linux namespaces, on networks that lose every packet on demand. Knows nothing of ours.

A network a service: a bridge that holds the service's address here, on the first machine, and a port for each further
machine. A port taken out of its bridge loses what both sides send, and tells neither: the carrier stays, and the
neighbours' addresses are given, so nobody is told that a host cannot be reached. Needs root, iproute2 and util-linux.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from agentsite.private.processes import is_alive, spawn, wait_until

TOOLS = ("ip", "ss", "nsenter", "unshare", "taskset")
OURS = re.compile(r"^\d+: (ag(\d+)\w+)[:@]", re.M)
START_S = 10.0


def unavailable() -> str | None:
    """Why no further machines can be made here; None where they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"network namespaces need {', '.join(missing)}"
    probe = f"ag{os.getpid()}probe"
    try:
        _run("ip", "link", "add", probe, "type", "bridge")
        _run("ip", "link", "del", probe)
        _run("unshare", "--net", "--uts", "true")
    except (OSError, subprocess.SubprocessError) as error:
        return f"this kernel makes no network namespaces for us: {error}"
    return None


class Network:
    """Bridges of this machine, one a service, which lead nowhere else; `close` removes them."""

    def __init__(self, *services: str) -> None:
        _remove_those_of_the_dead()
        self._prefix, self._net = f"10.{_free_net()}", f"ag{os.getpid()}"
        self.services = services
        for service in services:
            number, bridge = self.number(service), self.bridge(self.number(service))
            _run("ip", "link", "add", bridge, "address", _hardware(1, number), "type", "bridge")
            _run("ip", "addr", "add", f"{self.address(service)}/24", "dev", bridge)
            _run("ip", "link", "set", bridge, "up")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for service in self.services:
            with suppress(subprocess.CalledProcessError):
                _run("ip", "link", "del", self.bridge(self.number(service)))

    def address(self, service: str, machine: int = 1) -> str:
        """A machine's in this network; that of the first one is where the service is."""
        return f"{self._prefix}.{self.number(service)}.{machine}"

    def number(self, service: str) -> int:
        return self.services.index(service) + 1

    def bridge(self, number: int) -> str:
        return f"{self._net}b{number}"

    def join(self, holder: int, machine: int, service: str) -> str:
        """Gives the machine a port of one bridge; its name on this side. The two know each other's addresses."""
        number, address = self.number(service), self.address(service, machine)
        bridge, port, inside = self.bridge(number), f"{self._net}h{machine}s{number}", f"eth{number}"
        ours, theirs = _hardware(1, number), _hardware(machine, number)
        _run("ip", "link", "add", port, "type", "veth", "peer", "name", inside, "address", theirs, "netns", str(holder))
        _run("ip", "link", "set", port, "master", bridge, "up")
        within = ("nsenter", "--target", str(holder), "--net", "ip")
        _run(*within, "addr", "add", f"{address}/24", "dev", inside)
        _run(*within, "link", "set", inside, "up")
        _run(*within, "neigh", "add", self.address(service), "lladdr", ours, "dev", inside, "nud", "permanent")
        _run("ip", "neigh", "add", address, "lladdr", theirs, "dev", bridge, "nud", "permanent")
        return port


class Machine:
    """A host with a name, a loopback and an address on each network. It ends with whoever made it, by a kill too."""

    def __init__(self, network: Network, name: str, number: int, folder: Path) -> None:
        assert number > 1, "the first machine is this one"
        self.name, self._network = name, network
        self._holder = spawn(["unshare", "--net", "--uts", "sleep", "infinity"], {}, cwd=folder, log=folder / name)
        assert wait_until(self._is_apart, START_S), (folder / name).read_text()
        _run(*self.enter(), "sh", "-c", f"echo {name} > /proc/sys/kernel/hostname")
        _run(*self.enter(), "ip", "link", "set", "lo", "up")
        self._ports = {service: network.join(self._holder.pid, number, service) for service in network.services}
        self._addresses = {service: network.address(service, number) for service in network.services}

    def address(self, service: str) -> str:
        """Where this machine comes from, for whoever serves that network."""
        return self._addresses[service]

    def enter(self) -> list[str]:
        """What a command begins with that runs on this machine; it keeps the process id it was started with."""
        return ["nsenter", "--target", str(self._holder.pid), "--net", "--uts", "--"]

    def cut(self, services: Sequence[str]) -> None:
        """From now on nothing of these networks reaches this machine, and nothing it sends arrives."""
        for service in services:
            _run("ip", "link", "set", self._ports[service], "nomaster")

    def heal(self) -> None:
        """Every network as it was."""
        for service, port in self._ports.items():
            _run("ip", "link", "set", port, "master", self._network.bridge(self._network.number(service)))

    def connections(self, place: str) -> int:
        """TCP connections to HOST:PORT that this machine takes for whole."""
        return len(_run(*self.enter(), "ss", "-tnH", "state", "established", "dst", place).splitlines())

    def close(self) -> None:
        """Once its processes have ended; connections that nobody closed would keep its interfaces for minutes."""
        self._holder.kill()
        self._holder.wait(START_S)
        for port in self._ports.values():
            with suppress(subprocess.CalledProcessError):
                _run("ip", "link", "del", port)

    def _is_apart(self) -> bool:
        ours, theirs = Path("/proc/self/ns"), Path(f"/proc/{self._holder.pid}/ns")
        return all((ours / kind).readlink() != (theirs / kind).readlink() for kind in ("net", "uts"))


def _hardware(machine: int, network: int) -> str:
    return f"02:00:00:00:{machine:02x}:{network:02x}"


def _free_net() -> int:
    """The second number of networks that no interface of this machine is in."""
    taken = {int(found) for found in re.findall(r"inet 10\.(\d+)\.", _run("ip", "-4", "addr"))}
    return random.choice(sorted(set(range(64, 128)) - taken))


def _remove_those_of_the_dead() -> None:
    """Bridges outlive a process that was killed; machines do not."""
    for name, pid in OURS.findall(_run("ip", "link")):
        if not is_alive(int(pid)):
            with suppress(subprocess.CalledProcessError):
                _run("ip", "link", "del", name)


def _run(*command: str) -> str:
    """What it printed. Raises CalledProcessError."""
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=START_S).stdout
