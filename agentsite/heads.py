"""Floor: this host's log, outside the database, of how far each run's audit chain had come. Imports no domain package.

Append-only, one JSON object a line. Written after each commit and left to the system's cache: what a crash of the whole
machine takes from it was committed, so a log that is behind says nothing, and one that is ahead of the database does.
"""

from __future__ import annotations

from datetime import datetime

import orjson

from agentsite import clock, env, journal, telemetry


def append(run_id: str, seq: int, mac: str, at: datetime) -> bool:
    """Note a run's newest event, in about 175 bytes. False where that failed; never raises."""
    head = {"kind": "head", "run": run_id, "seq": seq, "mac": mac, "at": clock.rfc3339(at)}
    try:
        journal.add(env.read().heads_log, orjson.dumps(head), synced=False)
    except (OSError, ValueError) as error:
        telemetry.count("heads_failed")
        telemetry.log("heads.failed", error=type(error).__name__)
        return False
    return True
