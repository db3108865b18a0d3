"""Control: why a run did what it did, from its record alone. Reads rows, asks nothing live, writes nothing."""

from runs.explain.record import Record, explain, read
from runs.explain.values import Explanation

__all__ = ["Explanation", "Record", "explain", "read"]
