"""Control: ended runs' texts into files and back. What a file holds of an erased class can be read by nobody.

`docs/archive.md` says what goes, what stays and what that is worth. Imports no zone, no door.
"""

from runs.archive.file import BadArchive
from runs.archive.moving import Busy, Moved, archive
from runs.archive.restoring import Restored, payloads, restore, restore_file
from runs.archive.tidying import tidy

__all__ = [
    "BadArchive", "Busy", "Moved", "Restored", "archive", "payloads", "restore", "restore_file", "tidy",
]  # fmt: skip
