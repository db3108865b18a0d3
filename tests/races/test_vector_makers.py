"""Several processes that make one tenant's vectors at once, on both databases: one makes them, and one that is killed
is followed by another that goes on where it stopped (M89)."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentsite.private.processes import die_with_parent
from tests import embeddings as served
from tests.loopback import Loopback, slow
from tests.system.site import POSTGRES_REDIS, SQLITE_REDIS, Ground, clean_environment

pytestmark = [pytest.mark.own_services, pytest.mark.long]
PATH = "/v1/embeddings"
TEXTS, BATCH, PROCESSES, WITHIN_S = 200, 32, 4, 15
CODE = """
import json, sys, django
django.setup()
from dataclasses import asdict
from django.db import connection
from agentsite.tenants.models import Tenant
from tools.policy.documents import load
from tools.policy.embedding import coverage, embed_missing
from tools.policy.vectors import nearest

for line in sys.stdin:
    what, count = line.split()
    if what == "load":
        Tenant.objects.create(id="t_vectors")
        body = "".join(f"## Clause {n}\\n\\nText number {n} of shop{n}.\\n\\n" for n in range(int(count)))
        load("t_vectors", "---\\nid: POL-1\\nversion: 1\\ntitle: Rules\\nstatus: current\\n---\\n\\n" + body)
        said = "loaded"
    elif what == "make":
        said = asdict(embed_missing("t_vectors", within_s=float(count)))
    elif what == "ask":
        said = len(nearest("t_vectors", "text number of", int(count)) or [])
    print(json.dumps({"said": said, "held": connection.connection is not None}), flush=True)
"""


class Maker:
    """A process that does what it is told, and says what came of it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            preexec_fn=die_with_parent(),
        )  # fmt: skip

    def tell(self, what: str, count: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what} {count}\n")
        self.process.stdin.flush()

    def heard(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the process has ended"
        return json.loads(line)["said"]

    def does(self, what: str, count: int) -> Any:
        self.tell(what, count)
        return self.heard()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)
        for end in (self.process.stdin, self.process.stdout):
            if end is not None:
                end.close()


@pytest.fixture
def server() -> Iterator[Loopback]:
    with Loopback() as started:
        yield started


@pytest.fixture(params=[SQLITE_REDIS, POSTGRES_REDIS])
def makers(request: pytest.FixtureRequest, ground: Ground, tmp_path: Path, server: Loopback) -> Iterator[list[Maker]]:
    environment = clean_environment(
        DATABASE_URL=ground.new_store(request.param, tmp_path), VAR_DIR=str(tmp_path),
        DJANGO_SETTINGS_MODULE="agentsite.settings", EMBEDDINGS_URL=served.url(server),
        EMBEDDINGS_MODEL=served.MODEL, EMBEDDINGS_API_KEY=served.KEY,
    )  # fmt: skip
    started = [Maker(environment) for _ in range(PROCESSES)]
    yield started
    for one in started:
        one.kill()


def asked(server: Loopback) -> list[str]:
    return [text for call in server.calls for text in served.texts(call)]


def test_of_several_makers_one_makes_and_the_next_goes_on(makers: list[Maker], server: Loopback) -> None:
    assert makers[0].does("load", TEXTS) == "loaded"
    assert [maker.does("ask", 0) for maker in makers] == [0] * PROCESSES, "all are there"
    server.on(PATH, served.answer(), served.answer(), slow(60, served.answer()))
    for maker in makers:
        maker.tell("make", WITHIN_S)
    busy: list[Maker] = []
    while len(busy) < PROCESSES - 1 or len(server.calls) < 3:  # two batches are stored, the third is under way
        busy = [maker for maker in makers if _has_said(maker)]
    [working] = [maker for maker in makers if maker not in busy]
    working.kill()
    makers.remove(working)
    server.on(PATH, served.answer())

    assert {maker.heard()["stopped"] for maker in busy} == {"busy"}
    assert len(asked(server)) == len(set(asked(server))) == 3 * BATCH, "no text was asked for twice"
    last = makers[0].does("make", WITHIN_S)
    assert (last["stopped"], last["missing"]) == ("busy", TEXTS - 2 * BATCH), "what was made stays"

    while last["stopped"] == "busy":  # until the right of the dead is over
        time.sleep(0.2)
        last = makers[0].does("make", WITHIN_S)
    assert (last["missing"], last["made"]) == (0, TEXTS - 2 * BATCH)
    again = len(asked(server)) - len(set(asked(server)))
    assert again == BATCH + 1, "the batch that died, and the one text that tells the model"
    assert [maker.does("ask", 500) for maker in makers] == [TEXTS] * len(makers)


def _has_said(maker: Maker) -> bool:
    assert maker.process.stdout is not None
    return bool(select.select([maker.process.stdout], [], [], 0.02)[0])
