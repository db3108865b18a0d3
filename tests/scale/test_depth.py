"""The sweeper's measure of what still waits is true on a real broker: with a false zero it floods a slow site."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agentsite import env
from agentsite.private.servers import Redis
from tests.system.site import clean_environment

pytestmark = pytest.mark.own_services
COUNTS = """
import django; django.setup()
from agentsite import celery, queues
before = queues.depth("passes")
sent = [queues.nudge(str(number), status) for number, status in enumerate(["accepted", "gathering", "approved"])]
print(before, sent, queues.depth("passes"), queues.depth("writes"), queues.depth("maintenance"))
"""


def test_depth_tells_what_waits_in_each_queue_on_redis() -> None:
    with Redis() as broker:
        environment = clean_environment(
            BROKER_URL=broker.url, DATABASE_URL="sqlite:///:memory:", DJANGO_SETTINGS_MODULE="agentsite.settings"
        )
        done = subprocess.run(
            [sys.executable, "-c", COUNTS], cwd=env.ROOT, env=environment, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == ["0 [True, True, True] 2 1 0"], done.stderr
