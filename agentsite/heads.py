"""Floor: this host's log, outside the database, of how far each run's audit chain had come. Imports no domain package.

Append-only, one JSON object a line. Written after each commit and left to the system's cache: what a crash of the whole
machine takes from it was committed, so a log that is behind says nothing, and one that is ahead of the database does.
"""

from __future__ import annotations

import json
import os
from datetime import datetime

from agentsite import clock, env, telemetry


def append(run_id: str, seq: int, mac: str, at: datetime) -> bool:
    """Note a run's newest event. False where that failed; never raises."""
    line = json.dumps({"kind": "head", "run": run_id, "seq": seq, "mac": mac, "at": clock.rfc3339(at)}).encode()
    try:
        path = env.read().heads_log
        path.parent.mkdir(parents=True, exist_ok=True)
        log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(log, line + b"\n")
        finally:
            os.close(log)
    except OSError as error:
        telemetry.count("heads_failed")
        telemetry.log("heads.failed", error=type(error).__name__)
        return False
    return True
