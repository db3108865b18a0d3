"""Asks once whether anything at all is due, as most passes of a sweeper find nothing. Part of the store; only reads.

It may say yes where a closer look finds nothing (a place that is shut, a row that is locked); it never says no where
that look would find something, which a test holds against each of those looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runs.models import OPEN_WRITES
from runs.store import hints
from runs.store.settled import ENDED

_OPEN = ", ".join(f"'{state}'" for state in OPEN_WRITES)
_ENDED = ", ".join(f"'{status}'" for status in sorted(ENDED))
# Each walks a partial index of what has a time at all; {now} is a value that is known before the rows are.
_LOOKS = (
    "SELECT 1 FROM runs_write w JOIN runs_run r ON r.id = w.run_id "
    f"WHERE w.state IN ({_OPEN}) AND w.look_at IS NOT NULL AND w.look_at <= {{now}} AND r.status IN ({_ENDED})",
    "SELECT 1 FROM runs_write WHERE watch_at IS NOT NULL AND watch_at <= {now}",
    "SELECT 1 FROM runs_webhook WHERE due_at IS NOT NULL AND due_at <= {now} AND state = 'due'",
    "SELECT 1 FROM runs_shadow WHERE compare_at IS NOT NULL AND compare_at <= {now}",
    "SELECT 1 FROM approvals_notice WHERE due_at IS NOT NULL AND due_at <= {now}",
    "SELECT 1 FROM approvals_approval WHERE notices_until IS NOT NULL AND notices_until <= {now}",
)


def question(queues: Sequence[str]) -> tuple[str, list[Any]]:
    """An SQL condition, with its parameters: a run of these queues wants a hint, or a late look, a webhook, a notice, a
    reminder or a comparison is due now."""
    runs = [hints.unhinted(queue, patient=False) for queue in queues]
    looks = [*(sql for sql, _ in runs), *(look.format(now=hints.instant()) for look in _LOOKS)]
    return " OR ".join(f"EXISTS ({look})" for look in looks), [one for _, given in runs for one in given]
