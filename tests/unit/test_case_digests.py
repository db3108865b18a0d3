"""Cases of the past where they are not shown whole: still labelled, never a part that looks like all of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tools import digests
from tools.contracts import Json

pytestmark = pytest.mark.any_database
SOURCES = ("search_cases", "session_history")


def case(number: int = 1, **more: Any) -> Json:
    return {
        "precedent": True, "tenant": "t_acme_in", "same_customer": True, "run": f"run-{number}", "outcome": "refunded",
        "reason": None, "policy": "POL-REF-004@v4", "request": "word " * 60, "steps": ["get_order"] * 9, **more,
    }  # fmt: skip


def size(value: object) -> int:
    return len(json.dumps(value))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("limit", [200, 600, 1200, 4096])
@pytest.mark.parametrize("count", [0, 1, 5, 40])
def test_cases_are_told_whole_or_by_their_ends_within_the_room(source: str, limit: int, count: int) -> None:
    content = {"cases": [case(n) for n in range(count)]}
    essence, handles = digests.essence(source, content, limit), digests.handles(source, content, limit)
    assert essence["precedent"] is handles["precedent"] is True
    shown, rest = essence.get("cases", []), essence.get("cases_not_shown", [])
    assert shown == content["cases"][: len(shown)]
    assert len(shown) + (rest if isinstance(rest, int) else len(rest)) == count
    assert size(essence) <= limit + 60 and size(handles) <= limit + 60
    kept = handles["cases"]
    assert (kept if isinstance(kept, int) else len(kept)) == count


@pytest.mark.parametrize("source", SOURCES)
def test_the_handles_of_a_case_say_whose_it_was_and_how_it_ended(source: str) -> None:
    kept = digests.handles(source, {"cases": [case(7), {"precedent": True, "erased": True}]}, 600)
    mine = {"same_customer": True, "outcome": "refunded", "reason": None, "policy": "POL-REF-004@v4", "run": "run-7"}
    assert kept == {"precedent": True, "cases": [mine, {"erased": True}]}


@pytest.mark.parametrize("content", [{}, {"cases": None}, {"cases": "x"}, {"cases": [1]}, {"erased": True}, [], "x"])
def test_cases_of_another_shape_are_cut_like_anything_else(content: Any) -> None:
    for source in SOURCES:
        assert digests.essence(source, content, 600) == digests.brief(content, 600)
        assert digests.handles(source, content, 600) == digests.brief(content, 600)
