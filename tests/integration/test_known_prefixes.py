"""A long run is read from where this process knows it to, and whatever was changed before that is seen all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection

from agentsite import clock
from runs import store
from runs.contracts import RunState
from runs.models import Observation, Run, Turn
from runs.store import prefixes, whole
from tests.world import World

LONG = 40
BYTES = 2_000
POSTGRES = connection.vendor == "postgresql"


@pytest.fixture(autouse=True)
def _knows_nothing() -> Iterator[None]:
    prefixes.forget()
    yield
    prefixes.forget()


def add(run: Run, n: int) -> None:
    Observation.objects.create(
        run=run, obs_id=f"obs_{n}", position=n, call_id=f"m{n}.1", span=f"m{n}", kind="result", source="get_order",
        args={"n": n}, content={"note": f"{n}-" * (BYTES // 4)}, content_hash=f"h{n}", meta={"n": n},
        fetched_at=clock.now(),
    )  # fmt: skip
    Turn.objects.create(
        run=run, number=n, span=f"m{n}", route="offline:x", answered_model="x", prompt_version="1", prompt_hash="p",
        template_hash="t", tools_version="v", registry_version="r", policy_version="", tools_shown=[], raw="",
        proposals=[{"call_id": f"m{n}.1", "tool": "get_order", "args": {"n": n}, "evidence": []}], finish_reason="stop",
        input_tokens=1, output_tokens=1, cached_tokens=0, estimate=1, cost_micros=0, started_at=clock.now(), took_ms=1,
    )  # fmt: skip


def long(world: World, many: int = LONG) -> Run:
    run = world.admit("req-long", [])
    Observation.objects.filter(run=run).delete()
    for n in range(1, many + 1):
        add(run, n)
    return run


def look(run: Run) -> RunState:
    return replace(store.load(str(run.pk), "nobody"), now=run.created_at)


def anew(run: Run) -> RunState:
    """As another process reads it."""
    prefixes.forget()
    return look(run)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts of observations each load asked for."""
    counts, given = list[int](), whole.read

    def counted(run_id: str, past: whole.Past = whole.EVERYTHING) -> Any:
        row = given(run_id, past)
        counts.append(len(row["observations"]) if row else -1)
        return row

    monkeypatch.setattr(whole, "read", counted)
    return counts


@pytest.mark.skipif(not POSTGRES, reason="SQLite has no mark of a row; it reads everything")
def test_second_load_of_a_long_run_reads_what_came_since(world: World, read: list[int]) -> None:
    run = long(world)
    look(run)
    add(run, LONG + 1)
    look(run)
    look(run)
    assert read == [LONG, 1, 0]


def test_run_that_is_known_is_as_one_that_is_read_anew(world: World) -> None:
    run = long(world)
    look(run)
    add(run, LONG + 1)
    known = look(run)
    assert known == anew(run)
    assert (len(known.observations), len(known.turns)) == (LONG + 1, LONG + 1)


def test_short_run_is_read_whole_and_not_remembered(world: World, read: list[int]) -> None:
    run = long(world, 3)
    look(run), look(run)
    assert read == [3, 3]


def _erased(run: Run) -> None:
    Observation.objects.filter(run=run, position=2).update(content={"erased": True}, meta={"erased": True})


def _other_words_of_the_same_length(run: Run) -> None:
    said = Observation.objects.get(run=run, position=2).content["note"]
    Observation.objects.filter(run=run, position=2).update(content={"note": said.replace("2", "3")})


def _gone(run: Run) -> None:
    Observation.objects.filter(run=run, position=LONG).delete()


def _one_between(run: Run) -> None:
    Observation.objects.filter(run=run, position=LONG).update(position=LONG + 5)
    add(run, LONG + 1)
    Observation.objects.filter(run=run, position=LONG + 1).update(position=LONG - 1)


def _turn_changed(run: Run) -> None:
    Turn.objects.filter(run=run, number=3).update(proposals=[])


def _turn_gone(run: Run) -> None:
    Turn.objects.filter(run=run, number=1).delete()


@pytest.mark.parametrize(
    "change", [_erased, _other_words_of_the_same_length, _gone, _one_between, _turn_changed, _turn_gone]
)
def test_what_was_changed_before_the_end_is_seen_at_once(world: World, change: Callable[[Run], None]) -> None:
    run = long(world)
    before = look(run)
    change(run)
    after = look(run)
    assert after != before
    assert after == anew(run)


def test_run_that_was_deleted_is_not_there(world: World) -> None:
    run = long(world)
    look(run)
    run_id = str(run.pk)
    with connection.cursor() as cursor:
        key = run.pk if POSTGRES else run.pk.hex
        for table in ("runs_observation", "runs_turn", "runs_runorder", "runs_event"):
            cursor.execute(f"DELETE FROM {table} WHERE run_id = %s", [key])
        cursor.execute("DELETE FROM runs_run WHERE id = %s", [key])
    with pytest.raises(Run.DoesNotExist):
        store.load(run_id, "nobody")


def test_what_is_remembered_has_a_bound() -> None:
    size, row = prefixes.MOST_BYTES // 3, {"marks": ((), ()), "size": 0}
    for n in range(10):
        prefixes.keep(f"run-{n}", prefixes.NOTHING, row | {"size": size}, (), ())
    known = [n for n in range(10) if prefixes.of(f"run-{n}") is not prefixes.NOTHING]
    assert known == [8, 9]
