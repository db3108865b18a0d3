"""Leases are a crowd before their handlers can use up the pool, and nothing that fails ends the thread that renews."""

from __future__ import annotations

import threading

import pytest
from django.conf import settings

from agentsite import env, telemetry
from agentsite.private.processes import wait_until
from runs import leases, store


def test_leases_are_a_crowd_before_their_handlers_take_every_connection() -> None:
    pool = settings.DATABASES["default"].get("OPTIONS", {}).get("pool")
    if not isinstance(pool, dict):
        pytest.skip("no pool: a thread has its own connection")
    # One is the listener's beside the model calls, one is for the renewal itself.
    assert pool["max_size"] - 2 >= leases.CROWD


@pytest.mark.django_db(transaction=True)
def test_nothing_that_fails_ends_the_thread_that_renews(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that became unreadable, a log that takes no line, a store in trouble: all at once, twice."""
    failures = list[str]()

    def failing(*_: object, **__: object) -> set[str]:
        failures.append(threading.current_thread().name)
        raise OSError("in trouble")

    monkeypatch.setattr(env, "read", lambda: type("Short", (), {"LEASE_S": 0.03})())
    monkeypatch.setattr(leases, "PAUSE_S", 0.01)
    monkeypatch.setattr(store, "renew", failing)
    monkeypatch.setattr(telemetry, "log", failing)
    keeper = leases._Keeper()
    assert wait_until(lambda: len(failures) >= 4, 20)
    monkeypatch.setattr(env, "read", failing)
    seen = len(failures)
    assert wait_until(lambda: len(failures) >= seen + 4, 20)
    renewed = threading.Event()
    monkeypatch.undo()
    monkeypatch.setattr(leases, "PAUSE_S", 0.01)
    monkeypatch.setattr(env, "read", lambda: type("Short", (), {"LEASE_S": 0.03})())
    monkeypatch.setattr(keeper, "_renew_all", renewed.set)
    assert renewed.wait(20)
    assert set(failures) == {"lease-keeper"}
