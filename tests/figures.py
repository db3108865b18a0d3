"""What tests measured, carried to the end of the session and printed there, wherever the test itself ran.

A test leaves its words in its own report (pytest's user properties), so that they also come from a parallel worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter

SAID, SEAM = "said", "seam"
Cell = dict[str, Any]
"""One seam on one provider: `setup`, `seam`, `provider`, `gave` (words), `took_s` (seconds, None where not tried)."""


def say(item: pytest.Item) -> Callable[[str], None]:
    """Prints a measured number at the end of the session."""
    return lambda words: item.user_properties.append((SAID, words))


def show(terminal: TerminalReporter) -> None:
    told = [(report.nodeid, words) for report, words in _left(terminal, SAID)]
    if told:
        terminal.section("figures")
    for nodeid, words in told:
        terminal.write_line(f"{nodeid.partition('::')[2]}: {words}")
    cells = [cell for _, cell in _left(terminal, SEAM)]
    if cells:
        _show_seams(terminal, cells)


def _left(terminal: TerminalReporter, name: str) -> Iterator[tuple[Any, Any]]:
    for outcome in ("passed", "failed", "skipped"):
        for report in terminal.stats.get(outcome, []):
            if report.when == "call":  # the teardown's report holds them once more
                yield from ((report, value) for key, value in report.user_properties if key == name)


def _show_seams(terminal: TerminalReporter, cells: list[Cell]) -> None:
    terminal.section("seams of a run, and what a kill there came to")
    for cell in cells:
        took = "" if cell["took_s"] is None else f"{cell['took_s']:5.1f} s"
        terminal.write_line(f"{cell['setup']}  {cell['seam']:<42} {cell['provider']:<9} {took:>8}  {cell['gave']}")
    tried = [cell["took_s"] for cell in cells if cell["took_s"] is not None]
    slowest = max(tried, default=0.0)
    terminal.write_line(f"{len(cells)} cells, {len(tried)} tried, {sum(tried):.0f} s, the slowest {slowest:.1f} s")
    for words, count in Counter(cell["gave"] for cell in cells).most_common():
        terminal.write_line(f"{count:4}  {words}")
