"""Control: why a run did what it did and what its model was sent, by the record. Asks nothing live, writes nothing."""

from runs.explain.prompts import Rebuilt, rebuilt
from runs.explain.record import Record, erased, explain, read
from runs.explain.values import Explanation

__all__ = ["Explanation", "Rebuilt", "Record", "erased", "explain", "read", "rebuilt"]
