"""Hundreds of slow model calls under way at once: none is lost or times out, and few connections and little memory do.

Measured by `manage.py bench calls`, which starts everything itself; time is printed, not asserted.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from agentsite import env
from tests.conftest import Say
from tests.system.site import clean_environment

pytestmark = [pytest.mark.own_services, pytest.mark.long]
SECONDS = 5
MOST_SESSIONS = 40
MOST_MB_AT_400 = 600
STUCK_S = 900


def bench(*arguments: str) -> dict[str, Any]:
    """The figures; the command's exit code says that nothing was lost, timed out or was left unrecorded."""
    done = subprocess.run(
        [sys.executable, "manage.py", "bench", "calls", *arguments, "--json"], cwd=env.ROOT, env=clean_environment(),
        capture_output=True, text=True, timeout=STUCK_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.timeout(STUCK_S + 60)
@pytest.mark.parametrize(("calls", "workers"), [(400, 1), (1000, 2)])
def test_calls_in_flight_are_all_checkpointed(calls: int, workers: int, say: Say) -> None:
    seen = bench(f"--calls={calls}", f"--workers={workers}", f"--seconds={SECONDS}")
    say(
        f"{seen['most_in_flight']} calls of {SECONDS} s in flight on {workers} × {seen['threads']} threads "
        f"{seen['filled_s']} s after the first, all checkpointed {seen['after_fill_s']} s later; {seen['lost']} lost, "
        f"{seen['timed_out']} timed out, {seen['unrecorded']} not recorded; {seen['memory_mb']} MB, "
        f"{seen['cpu_s']} s of CPU, {seen['sessions']} database sessions; "
        f"load {seen['load'][0]:.1f} to {seen['load'][1]:.1f}"
    )
    assert seen["most_in_flight"] == calls
    assert (seen["lost"], seen["timed_out"], seen["unrecorded"]) == (0, 0, 0)
    assert seen["ended"] == {"completed": calls}
    assert seen["sessions"] <= MOST_SESSIONS
    assert calls > 400 or seen["memory_mb"] < MOST_MB_AT_400
