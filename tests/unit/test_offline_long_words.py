"""What a customer writes costs the offline model no more than its length, and the orders it finds stay the same."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.inference import offline

STUCK_S = 20
MOST = 16 * 1024
BEFORE = {
    "_NAMED": re.compile(
        r"\border\s*(?:(?:number|no|id)\b\.?)?\s*[:#]?\s*#?([A-Za-z0-9_.:@/-]*[0-9][A-Za-z0-9_.:@/-]*)", re.I
    ),
    "_LOOSE": re.compile(r"(?<![\w.,@/$€£₹-])([A-Za-z0-9_-]*[0-9]{4}[A-Za-z0-9_-]*)(?![\w@/-]|[.,][0-9])"),
    "_NUMBERS": re.compile(r"\b(?:zip|post|phone|tel)\w*(?:\s+code)?\s*:?\s*[0-9 -]+", re.I),
}
"""The same, said plainly, at the price of a square or a cube."""
PIECES = st.sampled_from(
    ["order", "number", "no", "id", "zip", "tel", "code", "phone", " ", "\n", "  ", ":", "#", ".", ",", "-", "_", "/",
     "@", "8472", "1", "12", "a", "é", "$", "no."]
)  # fmt: skip


@pytest.mark.parametrize("goal", [
    "1" * (MOST - 1) + "@", "order" + " " * (MOST - 6) + "x", "order" + "\n" * (MOST - 6) + "x",
    "tel" + "\n" * (MOST - 4) + "x", "1234-" * (MOST // 5) + "@",
])  # fmt: skip
@pytest.mark.parametrize("name", BEFORE)
def test_longest_text_is_looked_through_at_once(name: str, goal: str) -> None:
    started = time.monotonic()
    for _ in range(20):
        list(getattr(offline, name).finditer(goal))
    assert time.monotonic() - started < STUCK_S, "stuck: the time grows faster than the text"


@given(st.lists(PIECES, max_size=14).map("".join))
def test_same_words_are_found_as_plainly(text: str) -> None:
    for name, plain in BEFORE.items():
        now: re.Pattern[str] = getattr(offline, name)
        assert [m.span() for m in now.finditer(text)] == [m.span() for m in plain.finditer(text)], name
