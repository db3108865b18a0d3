"""Control: a run's whole record as one document, and that document played through today's code.

Calls no model, no tool and no write; `play` reads no row either: all that the handlers ask for is in the document.
"""

from runs.replay.diff import Difference
from runs.replay.export import export, text
from runs.replay.player import Replayed, play
from runs.replay.record import BadRecord

__all__ = ["BadRecord", "Difference", "Replayed", "export", "play", "text"]
