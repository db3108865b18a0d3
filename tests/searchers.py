"""Real processes that search one tenant's policies on one host, each when it is told to, and say what came of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from agentsite.private.processes import die_with_parent
from tests.system.site import clean_environment

TENANT = "t_acme_in"
CODE = """
import json, sys, time, django
django.setup()
from django.db import connection
from tools.errors import IndexBuilding
from tools.policy import index, ranking, shelf
from tools.policy.documents import load
from tools.policy.search import search

TENANT, built, build = "t_acme_in", [], ranking.build

def counted(path, entries):
    built.append(str(path))
    build(path, entries)

def stuck(path, entries):
    counted(path, entries)
    print(json.dumps({"said": "stuck"}), flush=True)
    time.sleep(600)

ranking.build = counted
print(json.dumps({"said": "ready"}), flush=True)
for line in sys.stdin:
    told, begun = json.loads(line), time.monotonic()
    try:
        if told["do"] == "search":
            found = search(TENANT, told["text"], pin="", limit=8)
            said = [[f"{p.doc}@v{p.version}", p.current, p.text] for p in found]
        elif told["do"] == "load":
            said = str(load(TENANT, told["text"]))
        elif told["do"] == "as a large one":
            index.SMALL = said = -1
        else:
            ranking.build = said = stuck
            said = "will be stuck"
    except IndexBuilding as error:
        said = error.slug
    took_ms = (time.monotonic() - begun) * 1000
    held = connection.connection is not None
    print(json.dumps({"said": said, "built": len(built), "took_ms": took_ms, "held": held}), flush=True)
"""
Heard = dict[str, Any]


class Searcher:
    """One such process."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=subprocess.DEVNULL, preexec_fn=die_with_parent(),
        )  # fmt: skip

    def tell(self, do: str, text: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, "text": text}) + "\n")
        self.process.stdin.flush()

    def heard(self) -> Heard:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the process has ended"
        found: Heard = json.loads(line)
        return found

    def ask(self, do: str, text: str = "") -> Any:
        self.tell(do, text)
        return self.heard()["said"]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)
        for end in (self.process.stdin, self.process.stdout):
            if end is not None:
                end.close()


class Host:
    """Several of them, on one store and one disk."""

    def __init__(self, database: str, folder: Path, processes: int) -> None:
        self.folder = folder / "policy-index" / TENANT
        self.environment = clean_environment(
            DATABASE_URL=database, VAR_DIR=str(folder), DJANGO_SETTINGS_MODULE="agentsite.settings"
        )
        self.processes, self.searchers = processes, list[Searcher]()

    def __enter__(self) -> Self:
        self.fill()
        return self

    def __exit__(self, *_: object) -> None:
        for searcher in self.searchers:
            searcher.kill()

    def fill(self) -> None:
        """Starts as many as are missing; they have opened nothing yet."""
        new = [Searcher(self.environment) for _ in range(self.processes - len(self.searchers))]
        self.searchers += new
        assert [searcher.heard()["said"] for searcher in new] == ["ready"] * len(new)

    def all_search(self, text: str, meanwhile: Callable[[], None] = lambda: None) -> list[Heard]:
        """What all heard that searched at once."""
        for searcher in self.searchers:
            searcher.tell("search", text)
        meanwhile()
        return [searcher.heard() for searcher in self.searchers]

    def indexes(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if path.name != "lock")
