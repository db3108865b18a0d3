"""Eight real processes and one breaker row: they fail fast together, and of all of them one probes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, Self

import pytest

from agentsite.private.processes import die_with_parent
from tests.loopback import Answer, Loopback, ok, slow
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
DOWN, SLOWLY_DOWN = ok({}, 503), slow(1.5, ok({}, 503))
SLOWLY_BACK: Answer = slow(1.5, ok(ORDER))
CODE = """
import json, sys, django
django.setup()
from django.db import connection
from tools import facts
from tools.contracts import Backend
from tools.errors import ReadFailed

backend = Backend(tenant_id="t_acme_in", url=sys.argv[1], read_token_env="COMMERCE_READ_TOKEN",
                  write_token_env="COMMERCE_WRITE_TOKEN", honours_keys=True, key_life_s=86400, settle_s=30)
print(json.dumps({"said": "ready"}), flush=True)
for line in sys.stdin:
    try:
        said = facts.read_order(backend, "8472", "trace-1", retries=0).order_id
    except ReadFailed as error:
        said = error.slug
    print(json.dumps({"said": said, "held": connection.connection is not None}), flush=True)
"""


class Asker:
    """A process that reads the order each time it is told to, and says what came of it."""

    def __init__(self, url: str, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE, url], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, preexec_fn=die_with_parent(),
        )  # fmt: skip

    def ask(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
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
    """Eight of them, on one store and one business system."""

    def __init__(self, server: Loopback, environment: dict[str, str]) -> None:
        self.server, self.environment = server, environment
        self.askers: list[Asker] = []

    def __enter__(self) -> Self:
        self.fill()
        return self

    def fill(self) -> None:
        """Starts as many as are missing."""
        new = [Asker(self.server.url, self.environment) for _ in range(PROCESSES - len(self.askers))]
        self.askers += new
        assert [asker.heard()["said"] for asker in new] == ["ready"] * len(new)

    def __exit__(self, *_: object) -> None:
        for asker in self.askers:
            asker.kill()

    def all_ask(self, answer: Answer) -> tuple[Counter[str], int]:
        """What all heard that asked at once, and how many requests the business system got meanwhile."""
        before = len(self.server.calls)
        self.server.on("/v1/orders/", answer)
        for asker in self.askers:
            asker.ask()
        heard = [asker.heard() for asker in self.askers]
        assert [h["held"] for h in heard] == [False] * len(heard), "no connection is held after a read"
        return Counter(h["said"] for h in heard), len(self.server.calls) - before


@pytest.fixture(scope="module", params=[SQLITE_REDIS, POSTGRES_REDIS])
def fleet(request: pytest.FixtureRequest, ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("breaker")
    environment = clean_environment(
        DATABASE_URL=ground.new_store(request.param, folder), VAR_DIR=str(folder),
        DJANGO_SETTINGS_MODULE="agentsite.settings", BREAKER_FAILURES="5", BREAKER_COOL_S=str(COOL_S),
        BREAKER_MAX_COOL_S="60", CALL_TIMEOUT_S=str(CALL_TIMEOUT_S),
    )  # fmt: skip
    with Loopback() as server, Fleet(server, environment) as running:
        yield running


def test_of_eight_processes_exactly_one_probes(fleet: Fleet) -> None:
    """M59: opened by all of them together, asked by none while open, by one when half-open, by all when closed."""
    heard, requests = fleet.all_ask(DOWN)
    opened_at = time.monotonic()
    assert requests == heard["upstream_unavailable"] == PROCESSES - heard["breaker_open"] >= 5
    assert fleet.all_ask(DOWN) == ({"breaker_open": 8}, 0)

    _sleep_until(opened_at + COOL_S)
    heard, requests = fleet.all_ask(SLOWLY_DOWN)
    failed_at = time.monotonic()
    assert (heard, requests) == ({"breaker_open": 7, "upstream_unavailable": 1}, 1)

    _sleep_until(failed_at + COOL_S + 0.3)  # the first cooling time would be over; the second is twice as long
    assert fleet.all_ask(DOWN) == ({"breaker_open": 8}, 0)

    _sleep_until(failed_at + 2 * COOL_S)
    assert fleet.all_ask(SLOWLY_BACK) == ({"breaker_open": 7, "8472": 1}, 1)
    assert fleet.all_ask(ok(ORDER)) == ({"8472": 8}, 8)


def test_lease_of_a_killed_prober_ends(fleet: Fleet) -> None:
    """A probe that dies with its process keeps nobody waiting for longer than its lease."""
    fleet.all_ask(DOWN)
    time.sleep(COOL_S + 0.1)
    calls = len(fleet.server.calls)
    fleet.server.on("/v1/orders/", slow(60, DOWN))
    prober = fleet.askers.pop()
    prober.ask()
    while len(fleet.server.calls) == calls:
        time.sleep(0.01)
    probed_at = time.monotonic()
    prober.kill()

    assert fleet.all_ask(ok(ORDER)) == ({"breaker_open": 7}, 0)
    _sleep_until(probed_at + LEASE_S)
    assert fleet.all_ask(SLOWLY_BACK) == ({"breaker_open": 6, "8472": 1}, 1)
    fleet.fill()
    assert fleet.all_ask(ok(ORDER)) == ({"8472": 8}, 8)


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()) + 0.1)
