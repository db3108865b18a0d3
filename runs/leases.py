"""Renews this process's leases while handlers run, never past a handler's own deadline; counts hung threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import connections

from agentsite import clock, env, telemetry
from runs import store
from runs.store.lease import handler_deadline_s


@dataclass(frozen=True, kw_only=True)
class Held:
    run_id: str
    token: str
    since: float


class _Keeper:
    """One renewing thread a process, started with its first lease (after any fork)."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.held: dict[str, Held] = {}
        threading.Thread(target=self._loop, name="lease-keeper", daemon=True).start()

    def _loop(self) -> None:
        while True:
            threading.Event().wait(env.read().LEASE_S / 3)
            self._renew_all()

    def _renew_all(self) -> None:
        with self.lock:
            held = [h for h in self.held.values() if clock.monotonic() - h.since > env.read().LEASE_S / 4]
        try:
            for one in held:
                if clock.monotonic() - one.since < handler_deadline_s() and not store.renew(one.run_id, one.token):
                    telemetry.log("lease.lost", run_id=one.run_id)
        except Exception as error:  # noqa: BLE001 - the next round tries again; a lapsed lease is fenced anyway
            telemetry.log("lease.renewal_failed", error=type(error).__name__)
        finally:
            if held:
                connections.close_all()


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
    with keeper.lock:
        keeper.held[token] = Held(run_id=run_id, token=token, since=clock.monotonic())
    try:
        yield
    finally:
        with keeper.lock:
            keeper.held.pop(token, None)


def hung() -> int:
    """How many handlers of this process are past twice their deadline."""
    if _keeper is None or _keeper.pid != os.getpid():
        return 0
    limit = 2 * handler_deadline_s()
    with _keeper.lock:
        return sum(1 for h in _keeper.held.values() if clock.monotonic() - h.since > limit)
