"""Door: how long a run that was hit by a kill takes until its next committed step, seen from its row alone."""

from __future__ import annotations

from dataclasses import dataclass

from agentsite import clock
from runs.chaos.ground import COMMON
from runs.chaos.site import Site

LEASED = "SELECT request_id, version, lease_token FROM runs_run WHERE lease_token IS NOT NULL"
ALL = "SELECT request_id, version, lease_token FROM runs_run"
LEASE_S = float(COMMON["LEASE_S"])


@dataclass(frozen=True, kw_only=True)
class _Hit:
    """A run that somebody worked on as a process died; `token` is the lease of that somebody."""

    at: float
    version: int
    token: str


class Watch:
    """Notes the leases of the moment of a kill; one that is never given back was lost, and its run's time counts."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._open: dict[str, _Hit] = {}
        self._lost: set[str] = set()
        self.recovered_s: list[float] = []

    def hit(self) -> None:
        """Directly after a kill. Raises what the database raises while it is away."""
        for request_id, version, token in self._site.rows(LEASED):
            if request_id not in self._lost:
                self._open[request_id] = _Hit(at=clock.monotonic(), version=version, token=str(token))

    def look(self) -> None:
        """What became of those runs. Raises what the database raises while it is away."""
        if not self._open:
            return
        for request_id, version, token in self._site.rows(ALL):
            if request_id in self._open:
                self._judge(request_id, self._open[request_id], version, token)

    def _judge(self, request_id: str, hit: _Hit, version: int, token: str | None) -> None:
        took_s = clock.monotonic() - hit.at
        if version > hit.version:
            if request_id in self._lost or took_s >= LEASE_S:
                self.recovered_s.append(took_s)
            self._forget(request_id)
        elif token is None:
            self._forget(request_id)  # given back in order: its holder lived
        elif token != hit.token:
            self._lost.add(request_id)

    def _forget(self, request_id: str) -> None:
        self._open.pop(request_id, None)
        self._lost.discard(request_id)
