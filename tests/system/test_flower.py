"""Flower as the Procfile starts it: a password for every page and for the API, no control, and ids instead of words."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from agentsite.private.processes import HOST, free_port
from agentsite.private.servers import Redis
from tests.house.walls import ROOT
from tests.system.site import clean_environment

pytestmark = pytest.mark.own_services
RUN = "01930b7e-0000-7000-8000-000000008472"
USER = ("ops", "a password of the tests alone")
SEND = f"""
import django; django.setup()
from agentsite.celery import app
app.send_task("runs.advance", args=["{RUN}"], queue="passes", ignore_result=True)
"""


@dataclass(frozen=True, kw_only=True)
class Flower:
    url: str
    environment: dict[str, str]

    def ask(self, method: str, path: str, auth: tuple[str, str] | None) -> httpx.Response:
        with httpx.Client(base_url=self.url, trust_env=False, timeout=30) as client:
            return client.request(method, path, auth=auth)


def line(**given: str) -> tuple[str, dict[str, str]]:
    """The Procfile's own line for Flower, and the environment it is started in."""
    (found,) = re.findall(r"^flower: (.+)$", (ROOT / "Procfile").read_text(), re.M)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return found, clean_environment(DJANGO_SETTINGS_MODULE="agentsite.settings", PATH=path, **given)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flower]:
    """A private broker with one message in it, and Flower beside it."""
    folder, port = tmp_path_factory.mktemp("flower"), free_port()
    with Redis() as broker:
        command, environment = line(
            BROKER_URL=broker.url, VAR_DIR=str(folder), SECRET_KEY="x" * 50, AUDIT_KEY="k1:" + "y" * 50,
            FLOWER_BASIC_AUTH=":".join(USER), FLOWER_PORT=str(port), FLOWER_READ_ONLY="false",
        )  # fmt: skip
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(["sh", "-c", command], cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            yield started(Flower(url=f"http://{HOST}:{port}", environment=environment), process, folder / "log")
        finally:
            process.terminate()
            process.wait(30)


def started(flower: Flower, process: subprocess.Popen[bytes], log: Path) -> Flower:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            if flower.ask("GET", "/healthcheck", None).status_code == 200:
                return flower
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.mark.parametrize("path", ["/", "/tasks", "/broker", "/api/tasks", "/api/workers", f"/api/task/info/{RUN}"])
@pytest.mark.parametrize("auth", [None, ("ops", "guessed")])
def test_flower_answers_nobody_without_its_password(host: Flower, path: str, auth: tuple[str, str] | None) -> None:
    answer = host.ask("GET", path, auth)
    assert answer.status_code == 401
    assert RUN not in answer.text


def test_flower_controls_nothing(host: Flower) -> None:
    for path in (
        "/api/worker/shutdown/w1@host", "/api/worker/pool/restart/w1@host", "/api/task/revoke/1",
        "/api/task/send-task/runs.advance", "/api/task/async-apply/runs.sweep",
        "/api/worker/queue/cancel-consumer/w1@host",
    ):  # fmt: skip
        assert host.ask("POST", path, None).status_code == 401, path
        answer = host.ask("POST", path, USER)
        assert (answer.status_code, answer.text) == (403, "Read only mode is enabled"), path


def test_flower_shows_the_ids_of_tasks_and_no_words(host: Flower) -> None:
    assert host.ask("GET", "/", USER).status_code == 200
    deadline, found = time.monotonic() + 60, dict[str, dict[str, object]]()
    while not found and time.monotonic() < deadline:  # it hears only what is sent once it listens
        subprocess.run([sys.executable, "-c", SEND], cwd=ROOT, env=host.environment, check=True, timeout=60)
        for _ in range(20):
            found = host.ask("GET", "/api/tasks", USER).json()
            if found:
                break
            time.sleep(0.1)
    for task in found.values():
        assert (task["name"], task["args"], task["kwargs"]) == ("runs.advance", f"['{RUN}']", "{}")
        assert not task["result"] and not task["exception"] and not task["traceback"]
    assert found


@pytest.mark.parametrize(
    "more", [{"FLOWER_BASIC_AUTH": ""}, {"FLOWER_BASIC_AUTH": "ops:x", "FLOWER_UNAUTHENTICATED_API": "true"}]
)  # fmt: skip
def test_flower_starts_for_nobody_who_leaves_it_open(tmp_path: Path, more: dict[str, str]) -> None:
    command, environment = line(
        BROKER_URL="redis://127.0.0.1:1/0", VAR_DIR=str(tmp_path), SECRET_KEY="x" * 50, AUDIT_KEY="k1:" + "y" * 50,
        FLOWER_PORT=str(free_port()), **more,
    )  # fmt: skip
    done = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode != 0
    assert "FLOWER_" in done.stderr
