"""A run read by one statement is what its rows say, in their order, whatever its observations hold."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from agentsite import clock
from runs import store
from runs.errors import UnknownSchema
from runs.models import Observation, Run
from runs.store import whole
from runs.store.lease import raw_id
from tests.world import World

CONTENTS: tuple[Any, ...] = (
    {"note": "a\x1fb\nc\x00\u2028\\ \"x\" 退 \U0001f600"}, [], "", "\x1f", 0, 1.5, True, {}, {"n": 2**53 - 1},
    [{"a": [1, "]", {"b": "\r"}]}],
)  # fmt: skip
BREAK = chr(whole.BREAK)
"""What stands between two observations on their way here."""


def told(world: World, *contents: Any, position: int | None = None) -> Run:
    """A run that was told these, all of them in one place where a `position` is given."""
    run = world.admit("req-whole", [])
    Observation.objects.filter(run=run).delete()
    for n, content in enumerate(contents, start=1):
        Observation.objects.create(
            run=run, obs_id=f"obs_{n}", position=position or n, call_id=f"m{n}.1", span=f"m{n}", kind="result",
            source="get_order", args={"n": n}, content=content, content_hash=f"h{n}", meta={"n": n},
            fetched_at=clock.now(),
        )  # fmt: skip
    return run


@pytest.mark.parametrize("position", [None, 7], ids=["in order", "all in one place"])
def test_each_observation_comes_with_its_own_content(world: World, position: int | None) -> None:
    run = told(world, *CONTENTS, position=position)
    seen = store.load(str(run.pk), "nobody").observations
    assert {o.obs_id: (o.content, o.args, o.meta, o.content_hash) for o in seen} == {
        f"obs_{n}": (content, {"n": n}, {"n": n}, f"h{n}") for n, content in enumerate(CONTENTS, start=1)
    }
    assert sorted(seen, key=lambda o: o.obs_id) == sorted(store.observations(str(run.pk)), key=lambda o: o.obs_id)


def test_run_that_was_told_nothing_is_read(world: World) -> None:
    assert store.load(str(told(world).pk), "nobody").observations == ()


@pytest.mark.parametrize("text", ['{"a":1', f"1{BREAK}2", "", "nothing"])
def test_content_that_is_no_json_makes_the_run_unreadable_and_no_other_content_moves_up(
    world: World, text: str
) -> None:
    run = told(world, 1, 2, 3)
    is_now(run, text)
    with pytest.raises(UnknownSchema):
        store.load(str(run.pk), "nobody")
    is_now(run, "2")
    assert [o.content for o in store.load(str(run.pk), "nobody").observations] == [1, 2, 3]


def is_now(run: Run, text: str) -> None:
    """As by hand: what the second observation says."""
    which = "obs_id = 'obs_2' AND run_id = %s"
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE runs_observation SET content = %s WHERE {which}", [text, raw_id(str(run.pk))])
