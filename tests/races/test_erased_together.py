"""Two cases whose words one later run holds are erased at once: neither brings the other's words back (M73, M106)."""

from __future__ import annotations

import json
import time

from django.db import transaction

from runs.models import Observation, Recalled, Run
from runs.store import erasing
from tests.precedents import past
from tests.races.contest import Contest
from tests.world import TENANT, final

CASES = {"tool": "search_cases", "args": {"query": "parcel"}}
FOLLOWS_S, HOLDS_S = 0.2, 0.5


def test_cases_erased_at_once_are_both_gone_from_a_later_run(contest: Contest) -> None:
    holder, first, second = _holder(contest)

    def one() -> None:
        with transaction.atomic():
            _erase(first)
            time.sleep(HOLDS_S)  # the other one looks at the copies meanwhile

    def other() -> None:
        time.sleep(FOLLOWS_S)
        _erase(second)

    contest.race(one, other)
    _gone(holder, "quixote", "rosinante")


def test_a_case_erased_while_the_run_that_holds_it_is_erased_brings_nothing_back(contest: Contest) -> None:
    holder, first, _ = _holder(contest)

    def one() -> None:
        with transaction.atomic():
            _erase(holder)
            time.sleep(HOLDS_S)

    def other() -> None:
        time.sleep(FOLLOWS_S)
        _erase(first)

    contest.race(one, other)
    _gone(holder, "quixote", "rosinante")


def _holder(contest: Contest) -> tuple[Run, Run, Run]:
    """An ended run that was shown two earlier cases of its customer, and these."""
    world = contest.world
    world.profile(read_tools=["get_order", "search_policy", "search_cases"])
    first = past("parcel quixote", tenant=TENANT, outcome="answered", request_id="first")
    second = past("parcel rosinante", tenant=TENANT, outcome="answered", request_id="second")
    holder = world.admit("req-holder", [CASES, final()], goal="My parcel")
    world.step(holder)
    words = json.dumps(_seen(holder).content)
    assert "quixote" in words and "rosinante" in words
    assert Recalled.objects.filter(run=holder).count() == 2
    return world.fresh(holder), first, second


def _seen(run: Run) -> Observation:
    return Observation.objects.get(run=run, source="search_cases")


def _erase(run: Run) -> None:
    erasing.erase(str(run.pk), erasing.KINDS, why="a race", by="tests")


def _gone(holder: Run, *words: str) -> None:
    left = json.dumps(_seen(holder).content)
    assert [word for word in words if word in left] == []
