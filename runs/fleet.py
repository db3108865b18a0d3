"""Which processes of ours live: each says so in a row of its own. A keeper of `Process` rows only."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from datetime import timedelta

from agentsite import dbtime
from runs import leases
from runs.models import Process

ALIVE_S = 15.0
SAID = ["kind", "queues", "pid", "host", "url", "seen_at", "hung"]


def _name() -> str:
    return f"{socket.gethostname()}/{os.getpid()}"


@dataclass(frozen=True, kw_only=True)
class Me:
    """This process's row: `kind` is `up` or `worker`, `queues` what it consumes, `url` where its console is."""

    kind: str
    queues: str = ""
    url: str = ""
    name: str = field(default_factory=_name)

    def seen(self) -> None:
        """Say that this process lives; called with every sweep."""
        me = Process(
            name=self.name, kind=self.kind, queues=self.queues, pid=os.getpid(), host=socket.gethostname(),
            url=self.url, seen_at=dbtime.now(), hung=leases.hung(),
        )  # fmt: skip
        Process.objects.bulk_create([me], update_conflicts=True, unique_fields=["name"], update_fields=SAID)

    def gone(self) -> None:
        """An orderly end; a killed process's row ages out instead."""
        Process.objects.filter(name=self.name).delete()


def alive() -> list[Process]:
    """Processes seen within the last quarter of a minute."""
    return list(Process.objects.filter(seen_at__gte=dbtime.now() - timedelta(seconds=ALIVE_S)).order_by("name"))


def works() -> bool:
    """Whether any live process consumes passes."""
    return any("passes" in p.queues for p in alive())
