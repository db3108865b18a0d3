"""Eight real processes and one breaker row: they fail fast together, and of all of them one probes. Once for the
business system and once for a model provider's account, whose calls are far longer."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self

import pytest

from agentsite.private.processes import die_with_parent
from tests.loopback import Loopback, ok, slow
from tests.models.server import Fault, ModelServer, scripted
from tests.models.speaking import OPENAI, Said
from tests.system.site import POSTGRES_REDIS, SQLITE_REDIS, Ground, clean_environment

pytestmark = pytest.mark.own_services
PROCESSES = 8
COOL_S = 2.0
CALL_TIMEOUT_S = 3.0
LEASE_S = CALL_TIMEOUT_S + 2.0
ORDER = {
    "order_id": "8472", "customer_id": "cust_5521", "total": {"amount": "2000.00", "currency": "INR"},
    "status": "delivered", "note": "",
}  # fmt: skip
DOWN, SLOWLY_DOWN, SLOWLY_BACK, UP = "down", "slowly down", "slowly back", "up"
SLOW_S = 1.5
CODE = """
import json, sys, django
django.setup()
from django.db import connection
from runs.contracts import ModelCall
from runs.errors import ModelError
from runs.orchestrator import calling
from tests.unit import states_8472
from tests.unit.states_8472 import TOOLS
from runs.prompt import build_prompt
from tools import facts
from tools.contracts import Backend
from tools.errors import ReadFailed

call = ModelCall(run_id="01930000-0000-7000-8000-000000008472", seen_input_seq=0, route="openai:m-2026",
                 prompt=build_prompt(states_8472.state(), TOOLS), timeout_s=3.0, max_output_tokens=400)
backend = Backend(tenant_id="t_acme_in", url=sys.argv[1], read_token_env="COMMERCE_READ_TOKEN",
                  write_token_env="COMMERCE_WRITE_TOKEN", honours_keys=True, key_life_s=86400, settle_s=30)
print(json.dumps({"said": "ready"}), flush=True)
for line in sys.stdin:
    try:
        if line == "model\\n":
            said = calling.complete(call).text
        else:
            said = facts.read_order(backend, "8472", "trace-1", retries=0).order_id
    except (ReadFailed, ModelError) as error:
        said = error.slug
    print(json.dumps({"said": said, "held": connection.connection is not None}), flush=True)
"""


class Dependency(Protocol):
    """Whom they ask: its name, what is heard of it where it is down and where it is up, the requests it saw."""

    name: str
    down: str
    up: str

    @property
    def requests(self) -> int: ...

    def answers(self, how: str) -> None: ...


@dataclass
class System:
    """The business system, asked for an order."""

    server: Loopback
    name: str = "system"
    down: str = "upstream_unavailable"
    up: str = "8472"

    @property
    def requests(self) -> int:
        return len(self.server.calls)

    def answers(self, how: str) -> None:
        answer = ok({}, 503) if how in (DOWN, SLOWLY_DOWN) else ok(ORDER)
        self.server.on("/v1/orders/", slow(SLOW_S, answer) if "slowly" in how else answer)


@dataclass
class Model:
    """An account at a model provider, asked for a turn."""

    server: ModelServer
    name: str = "model"
    down: str = "model_unavailable"
    up: str = "Hello."

    @property
    def requests(self) -> int:
        return len(self.server.requests)

    def answers(self, how: str) -> None:
        status = 503 if how in (DOWN, SLOWLY_DOWN) else 200
        self.server.always = Fault(status=status, pause_s=SLOW_S if "slowly" in how else 0)


class Asker:
    """A process that asks the one it is told to, each time it is told, and says what came of it."""

    def __init__(self, url: str, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE, url], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, preexec_fn=die_with_parent(),
        )  # fmt: skip

    def ask(self, whom: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{whom}\n")
        self.process.stdin.flush()

    def heard(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the process has ended"
        found: dict[str, Any] = json.loads(line)
        return found

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)
        for end in (self.process.stdin, self.process.stdout):
            if end is not None:
                end.close()


class Fleet:
    """Eight of them, on one store."""

    def __init__(self, system: System, model: Model, environment: dict[str, str]) -> None:
        self.system, self.model, self.environment = system, model, environment
        self.askers: list[Asker] = []

    def __enter__(self) -> Self:
        self.fill()
        return self

    def fill(self) -> None:
        """Starts as many as are missing."""
        new = [Asker(self.system.server.url, self.environment) for _ in range(PROCESSES - len(self.askers))]
        self.askers += new
        assert [asker.heard()["said"] for asker in new] == ["ready"] * len(new)

    def __exit__(self, *_: object) -> None:
        for asker in self.askers:
            asker.kill()

    def all_ask(self, whom: Dependency, how: str) -> tuple[Counter[str], int]:
        """What all heard that asked at once, and how many requests it got meanwhile."""
        before = whom.requests
        whom.answers(how)
        for asker in self.askers:
            asker.ask(whom.name)
        heard = [asker.heard() for asker in self.askers]
        assert [h["held"] for h in heard] == [False] * len(heard), "no connection is held after a call"
        return Counter(h["said"] for h in heard), whom.requests - before


@pytest.fixture(scope="module", params=[pytest.param(SQLITE_REDIS, marks=pytest.mark.long), POSTGRES_REDIS])
def fleet(request: pytest.FixtureRequest, ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("breaker")
    with Loopback() as server, ModelServer(OPENAI, scripted(OPENAI, [Said(text="Hello.")])) as provider:
        environment = _environment(ground.new_store(request.param, folder), str(folder), provider)
        with Fleet(System(server), Model(provider), environment) as running:
            yield running
        assert provider.wrong == []


def _environment(database: str, folder: str, provider: ModelServer) -> dict[str, str]:
    return clean_environment(
        DATABASE_URL=database, VAR_DIR=folder, **provider.variables(),
        DJANGO_SETTINGS_MODULE="agentsite.settings", BREAKER_FAILURES="5", BREAKER_COOL_S=str(COOL_S),
        BREAKER_MAX_COOL_S="60", CALL_TIMEOUT_S=str(CALL_TIMEOUT_S),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["system", "model"])
def test_of_eight_processes_exactly_one_probes(fleet: Fleet, name: str) -> None:
    """M59, M65: opened by all of them together, asked by none while open, by one when half-open, by all when closed."""
    whom: Dependency = fleet.model if name == "model" else fleet.system
    heard, requests = fleet.all_ask(whom, DOWN)
    opened_at = time.monotonic()
    assert requests == heard[whom.down] == PROCESSES - heard["breaker_open"] >= 5
    assert fleet.all_ask(whom, DOWN) == ({"breaker_open": 8}, 0)

    _sleep_until(opened_at + COOL_S)
    heard, requests = fleet.all_ask(whom, SLOWLY_DOWN)
    failed_at = time.monotonic()
    assert (heard, requests) == ({"breaker_open": 7, whom.down: 1}, 1)

    _sleep_until(failed_at + COOL_S + 0.3)  # the first cooling time would be over; the second is twice as long
    assert fleet.all_ask(whom, DOWN) == ({"breaker_open": 8}, 0)

    _sleep_until(failed_at + 2 * COOL_S)
    assert fleet.all_ask(whom, SLOWLY_BACK) == ({"breaker_open": 7, whom.up: 1}, 1)
    assert fleet.all_ask(whom, UP) == ({whom.up: 8}, 8)


def test_lease_of_a_killed_prober_ends(fleet: Fleet) -> None:
    """A probe that dies with its process keeps nobody waiting for longer than its lease."""
    system = fleet.system
    fleet.all_ask(system, DOWN)
    time.sleep(COOL_S + 0.1)
    calls = system.requests
    system.server.on("/v1/orders/", slow(60, ok({}, 503)))
    prober = fleet.askers.pop()
    prober.ask(system.name)
    while system.requests == calls:
        time.sleep(0.01)
    probed_at = time.monotonic()
    prober.kill()

    assert fleet.all_ask(system, UP) == ({"breaker_open": 7}, 0)
    _sleep_until(probed_at + LEASE_S)
    assert fleet.all_ask(system, SLOWLY_BACK) == ({"breaker_open": 6, "8472": 1}, 1)
    fleet.fill()
    assert fleet.all_ask(system, UP) == ({"8472": 8}, 8)


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()) + 0.1)
