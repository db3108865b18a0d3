"""Paper: how much care an approval needs, as one number that the queue sorts by. Imports no Django, no rows.

2  large, or two people must agree
1  the customer's words are sensitive, or he wrote again after a proposal, or an earlier approval of the run is void
0  anything else
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

ORDINARY, RAISED, HIGH = 0, 1, 2
NAMES = {ORDINARY: "ordinary", RAISED: "raised", HIGH: "high"}


def why(
    *, large: bool, required: int, checks: Iterable[Mapping[str, Any]], void_before: bool, written_since: bool
) -> tuple[tuple[int, str], ...]:
    """(level, words for staff) of everything that raises the risk; empty where nothing does."""
    named = any(c.get("name") == "sensitive_words" and (c.get("inputs") or {}).get("words") for c in checks)
    found = (
        (large, HIGH, "large amount"), (required > 1, HIGH, "two people must agree"),
        (named, RAISED, "sensitive words of the customer"),
        (void_before, RAISED, "an earlier approval of this run became void"),
        (written_since, RAISED, "the customer wrote after the proposal"),
    )  # fmt: skip
    return tuple((level, words) for holds, level, words in found if holds)


def level(reasons: Iterable[tuple[int, str]]) -> int:
    """The highest of them."""
    return max((at for at, _ in reasons), default=ORDINARY)
