"""Several processes of one host and one index: one builds, nobody is told what is no longer current (B57).

A builder that is killed, and a folder that is removed under everybody, cost a moment and no answer.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from functools import partial

import pytest

from tests.searchers import Heard, Host
from tests.system.site import POSTGRES_REDIS, SQLITE_REDIS, STUCK_S, Ground

pytestmark = pytest.mark.own_services
PROCESSES = 4
BUILDING = "index_building"


def text(version: int, days: int, doc: str = "POL-RET-001") -> str:
    front = f"id: {doc}\nversion: {version}\ntitle: Returns\nstatus: current\neffective_from: null\n"
    return f"---\n{front}---\n\n## Zeppelins\n\nZeppelins are taken back within {days} days.\n"


def answer(version: int, days: int) -> list[list[object]]:
    return [[f"POL-RET-001@v{version}", True, f"Zeppelins are taken back within {days} days."]]


def told(heard: list[Heard]) -> list[object]:
    """The answers that were answers."""
    return [one["said"] for one in heard if one["said"] != BUILDING]


@pytest.fixture(scope="module", params=[pytest.param(SQLITE_REDIS, marks=pytest.mark.long), POSTGRES_REDIS])
def host(request: pytest.FixtureRequest, ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("searchers")
    with Host(ground.new_store(request.param, folder), folder, PROCESSES) as running:
        yield running


def test_of_processes_that_find_no_index_one_builds(host: Host) -> None:
    assert host.searchers[0].ask("load", text(1, 10)) == "POL-RET-001@v1"
    first = host.all_search("zeppelins")
    assert told(first) == [answer(1, 10)] * len(told(first)) != []
    again = host.all_search("zeppelins")
    assert [one["said"] for one in again] == [answer(1, 10)] * PROCESSES
    assert sum(one["built"] for one in again) == 1
    assert len(host.indexes()) == 1


def test_after_a_change_every_process_tells_the_new_text_or_none(host: Host) -> None:
    for version in range(2, 12):
        assert host.searchers[version % PROCESSES].ask("load", text(version, version * 10)) == f"POL-RET-001@v{version}"
        heard = host.all_search("zeppelins")
        assert told(heard) == [answer(version, version * 10)] * len(told(heard)) != []
    assert len(host.indexes()) == 1


def test_change_in_the_midst_of_searches_gives_one_of_two_whole_answers(host: Host) -> None:
    loader, host.searchers = host.searchers[0], host.searchers[1:]
    try:
        for version in range(12, 18):
            heard = host.all_search("zeppelins", partial(loader.tell, "load", text(version, version)))
            assert loader.heard()["said"] == f"POL-RET-001@v{version}"
            before = 110 if version == 12 else version - 1
            assert all(said in (answer(version - 1, before), answer(version, version)) for said in told(heard))
            after = host.all_search("zeppelins")
            assert told(after) == [answer(version, version)] * len(told(after)) != []
    finally:
        host.searchers.insert(0, loader)


@pytest.mark.parametrize("corpus", ["small", "large"])
def test_killed_builder_leaves_the_next_one_the_work(host: Host, corpus: str) -> None:
    builder = host.searchers.pop()
    version = 20 if corpus == "small" else 30
    if corpus == "large":
        for searcher in (builder, *host.searchers):
            searcher.ask("as a large one")
    assert builder.ask("be stuck") == "will be stuck"
    host.searchers[0].ask("load", text(version, version))
    builder.tell("search", "zeppelins")
    while builder.heard()["said"] != "stuck":
        pass  # a large one's thread builds; its searcher meanwhile waits, and says so
    assert host.searchers[0].ask("search", "zeppelins") == answer(version, version), "rows are there before the index"
    assert host.searchers[1].ask("search", "dirigibles") == BUILDING, "only the next index can know"
    left = [name for name in host.indexes() if name.startswith(".build-")]
    assert len(left) == 1
    builder.kill()
    heard = host.all_search("zeppelins")
    assert told(heard) == [answer(version, version)] * len(told(heard)) != []
    host.fill()
    until = time.monotonic() + STUCK_S
    while [name for name in host.indexes() if name.startswith(".")]:  # it tidies up after its index serves
        assert time.monotonic() < until
        time.sleep(0.02)


def test_folder_removed_under_everybody_is_rebuilt_from_rows(host: Host) -> None:
    shutil.rmtree(host.folder.parent)
    assert told(host.all_search("zeppelins")) == [answer(30, 30)] * PROCESSES
    host.searchers[0].ask("load", text(31, 31))
    shutil.rmtree(host.folder.parent, ignore_errors=True)
    heard = host.all_search("zeppelins")
    assert told(heard) == [answer(31, 31)] * len(told(heard)) != []
    host.searchers.pop().kill()
    host.fill()
    shutil.rmtree(host.folder.parent)
    assert host.searchers[-1].ask("search", "zeppelins") == answer(31, 31), "a new process finds nothing, and builds"
