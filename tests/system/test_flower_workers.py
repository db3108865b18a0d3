"""Workers send no events of tasks until somebody listens; a Flower that starts asks for them, and then sees tasks."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.house.walls import ROOT
from tests.system.test_flower import RUN, Flower, host

__all__ = ["host"]
pytestmark = [pytest.mark.own_services, pytest.mark.long]
SEND = f"""
import django; django.setup()
from agentsite.celery import app
app.conf.task_send_sent_event = False
app.send_task("runs.sweep", args=["{RUN}"], queue="maintenance", ignore_result=True)
"""
"""With an argument too many, so that the worker needs no database to be done with it."""


def test_flower_sees_what_a_worker_does_from_its_start_on(host: Flower, tmp_path: Path) -> None:
    environment = host.environment | {"WORKER_QUEUES": "maintenance", "CELERY_SKIP_CHECKS": "1"}
    command = [sys.executable, "-m", "celery", "-A", "agentsite", "worker", "-Q", "maintenance", "-P", "threads",
               "-c", "1", "--without-gossip", "--without-mingle", "-l", "WARNING", "-n", "m@here"]  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            seen = heard(host)
        finally:
            worker.terminate()
            worker.wait(60)
    assert {one["name"] for one in seen.values()} == {"runs.sweep"}, (tmp_path / "log").read_text()
    assert {one["worker"] for one in seen.values()} == {"m@here"}


def heard(host: Flower) -> dict[str, dict[str, object]]:
    """Tasks of the worker as Flower shows them, sent again and again until it shows one, two minutes at most."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        subprocess.run([sys.executable, "-c", SEND], cwd=ROOT, env=host.environment, check=True, timeout=60)
        for _ in range(30):
            found = host.ask("GET", "/api/tasks?taskname=runs.sweep", ("ops", "a password of the tests alone")).json()
            if found:
                return dict(found)
            time.sleep(0.1)
    return {}
