"""Tells the world outside the database what was committed: the log, the heads of the chain, spans. Part of the store.

It may never fail a commit: it runs after it, and whatever goes wrong in it is counted and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from django.db import transaction

from agentsite import heads
from runs.models import Event


def once_committed(run_id: str, rows: Sequence[Event]) -> None:
    """Tell of these events of one run when the caller's transaction is on the disk; of none where it is rolled back."""
    if rows:
        transaction.on_commit(partial(_tell, run_id, tuple(rows)), robust=True)


def _tell(run_id: str, rows: tuple[Event, ...]) -> None:
    last = rows[-1]
    heads.append(run_id, last.seq, last.mac, last.at)
