"""Leases are a crowd, whose renewal keeps a connection of its own, before their handlers can use up the pool."""

from __future__ import annotations

import pytest
from django.conf import settings

from runs import leases


def test_leases_are_a_crowd_before_their_handlers_take_every_connection() -> None:
    pool = settings.DATABASES["default"].get("OPTIONS", {}).get("pool")
    if not isinstance(pool, dict):
        pytest.skip("no pool: a thread has its own connection")
    # One is the listener's beside the model calls, one is for the renewal itself.
    assert pool["max_size"] - 2 >= leases.CROWD
