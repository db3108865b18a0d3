"""Renews this process's leases while handlers run, never past a handler's own deadline; counts hung threads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from django.db import connection, connections

from agentsite import clock, env, telemetry
from runs import store
from runs.store.lease import handler_deadline_s

CROWD = 8
"""Leases at once from which on handlers may queue for a connection; fewer than a pool has."""

PAUSE_S = 0.5
"""Between a round that failed and the next wait, so that what fails at once is not tried in a tight loop."""


@dataclass(frozen=True, kw_only=True)
class Held:
    run_id: str
    token: str
    since: float


class _Keeper:
    """One renewing thread a process, started with its first lease (after any fork).

    With a crowd of leases it holds a connection of its own: their handlers' queue for one may outlast a lease.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.held: dict[str, Held] = {}
        self._crowded = threading.Event()
        threading.Thread(target=self._loop, name="lease-keeper", daemon=True).start()

    def keep(self, one: Held) -> None:
        with self.lock:
            self.held[one.token] = one
            if len(self.held) == CROWD:
                self._crowded.set()

    def drop(self, token: str) -> None:
        with self.lock:
            self.held.pop(token, None)

    def _loop(self) -> None:
        """For as long as the process lives: without this thread its runs would be taken from it."""
        while True:
            try:
                self._crowded.wait(env.read().LEASE_S / 3)
                self._crowded.clear()
                self._renew_all()
            except Exception as error:  # noqa: BLE001 - the next round tries again; a lapsed lease is fenced anyway
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        with suppress(Exception):  # a full disk under the log or a server in trouble: neither ends the thread
            telemetry.log("lease.renewal_failed", error=type(error).__name__)
        with suppress(Exception):
            connections.close_all()
        time.sleep(PAUSE_S)

    def _renew_all(self) -> None:
        held = self._held(env.read().LEASE_S / 4)
        if len(self.held) >= CROWD:
            connection.ensure_connection()
        lost = held.keys() - store.renew([(one.run_id, token) for token, one in held.items()])
        now = self._held(0.0)
        for token in lost & now.keys():  # the others were given back by their handlers meanwhile
            telemetry.log("lease.lost", run_id=now[token].run_id)
        if len(now) < CROWD:
            connections.close_all()

    def _held(self, least_s: float) -> dict[str, Held]:
        """By token, the leases held for so many seconds and not yet for longer than any handler may."""
        now, most_s = clock.monotonic(), handler_deadline_s()
        with self.lock:
            return {token: one for token, one in self.held.items() if least_s <= now - one.since < most_s}


_keeper: _Keeper | None = None
_start = threading.Lock()


def _current() -> _Keeper:
    global _keeper
    with _start:
        if _keeper is None or _keeper.pid != os.getpid():
            _keeper = _Keeper()
        return _keeper


@contextmanager
def kept(run_id: str, token: str) -> Iterator[None]:
    """Keep a claimed run's lease alive while the body works on it."""
    keeper = _current()
    keeper.keep(Held(run_id=run_id, token=token, since=clock.monotonic()))
    try:
        yield
    finally:
        keeper.drop(token)


def hung() -> int:
    """How many handlers of this process are past twice their deadline."""
    if _keeper is None or _keeper.pid != os.getpid():
        return 0
    limit = 2 * handler_deadline_s()
    with _keeper.lock:
        return sum(1 for h in _keeper.held.values() if clock.monotonic() - h.since > limit)
