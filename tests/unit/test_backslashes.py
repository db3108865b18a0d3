"""An answer of backslashes alone is read at once, and a key in escapes is found behind any number of them."""

from __future__ import annotations

import re
import time

import pytest

from runs.inference.transport import _cleaned, _unescaped

KEY = "sk-live/1234567890"
STUCK_S = 10
BEFORE = re.compile(r"\\+(?:u00(?!22|5c)([2-7][0-9a-f])|/)", re.IGNORECASE)
"""The same, said plainly."""


def plainly(text: str) -> str:
    return BEFORE.sub(lambda found: chr(int(found[1], 16)) if found[1] else "/", text)


@pytest.mark.parametrize("tail", ["", "n", "u0022", "u00", "/", "u0041"])
def test_million_backslashes_are_read_at_once(tail: str) -> None:
    started = time.monotonic()
    assert _unescaped("\\" * 1_000_000 + tail).startswith(("\\", "/", "A"))
    assert time.monotonic() - started < STUCK_S, "stuck: the time grows with the square of the backslashes"


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
@pytest.mark.parametrize("before", ["", "\\n", "\\u0022", "x", "/"])
def test_key_in_escapes_is_found_at_any_depth(depth: int, before: str) -> None:
    slash = "\\" * depth
    spelt = KEY.replace("s", f"{slash}u0073", 1).replace("/", f"{slash}/")
    assert _unescaped(f"{before} {spelt}") == plainly(f"{before} {spelt}")
    assert KEY not in _unescaped(_cleaned(f"{before} {spelt}", KEY))
