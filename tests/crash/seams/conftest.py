"""Prints the table of seams after the tests that filled it."""

from __future__ import annotations

from collections import Counter

from _pytest.terminal import TerminalReporter

from tests.crash.seams.table import RESULTS


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    if not RESULTS:
        return
    terminalreporter.section("seams of a run, and what a kill there came to")
    for cell in RESULTS:
        took = "" if cell.took_s is None else f"{cell.took_s:5.1f} s"
        terminalreporter.write_line(f"{cell.setup}  {cell.seam:<42} {cell.provider:<9} {took:>8}  {cell.gave}")
    gave = Counter(cell.gave for cell in RESULTS)
    tried = [cell.took_s for cell in RESULTS if cell.took_s is not None]
    terminalreporter.write_line(f"{len(RESULTS)} cells, {len(tried)} tried, the slowest {max(tried, default=0):.1f} s")
    for words, count in gave.most_common():
        terminalreporter.write_line(f"{count:4}  {words}")
