"""Control: why a run did what it did and what its model was sent, by the record. Asks nothing live, writes nothing."""

from runs.explain.from_lines import BROKEN, not_as_written
from runs.explain.from_lines import explain as explain_lines
from runs.explain.lines import Lines, NotTold
from runs.explain.lines import find as find_lines
from runs.explain.prompts import Rebuilt, rebuilt
from runs.explain.record import Record, erased, explain, read
from runs.explain.values import Explanation

__all__ = [
    "BROKEN", "Explanation", "Lines", "NotTold", "Rebuilt", "Record", "erased", "explain", "explain_lines",
    "find_lines", "not_as_written", "read", "rebuilt",
]  # fmt: skip
