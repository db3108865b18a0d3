"""Control: whether the record of runs is the one that was written: chains, logs outside, exports. Writes nothing.

`docs/audit.md` says what is covered by what.
"""

from runs.audit.exported import BadExport, verify_export
from runs.audit.links import keys_of
from runs.audit.logs import Logs, Unreadable, logs_here
from runs.audit.values import Fault, Verdict
from runs.audit.verifying import Archives, Asked, BadArchived, verify

__all__ = [
    "Archives", "Asked", "BadArchived", "BadExport", "Fault", "Logs", "Unreadable", "Verdict", "keys_of", "logs_here",
    "verify", "verify_export",
]  # fmt: skip
