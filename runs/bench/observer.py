"""Looks at a site under load from beside it, several times a second: its rows, its database sessions, its memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import psycopg

from agentsite import clock
from runs.bench.resources import cpu_s, family, pss_mb
from runs.bench.stage import Stage
from runs.chaos import calls
from runs.chaos.verdict import ENDED

LOOK_S = 0.1
WEIGH_EVERY = 5
"""Looks from one weighing of the memory to the next: the kernel walks every mapping for it."""
SESSIONS = (
    "SELECT count(*), count(*) FILTER (WHERE state <> 'idle') FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
)
CHECKPOINTED = "SELECT count(*) FROM runs_turn WHERE number = 1"
ALL_ENDED = f"SELECT count(*) FROM runs_run WHERE status IN ({', '.join(repr(s) for s in ENDED)})"  # noqa: S608


@dataclass(kw_only=True)
class Seen:
    """The most of each, and the moment (monotonic) each was first seen to be whole; None until then.

    `sessions`: database sessions of the site. The `full_` ones were seen while every call was under way: the fewest
    sessions that did something then.
    """

    memory_mb: float = 0.0
    cpu_s: float = 0.0
    sessions: int = 0
    full_sessions: int = 0
    full_busy: int | None = None
    looks_when_full: int = 0
    checkpointed_at: float | None = None
    ended_at: float | None = None


@dataclass(kw_only=True)
class Observer:
    """Watches until all of `runs` ended. `roots`: processes whose memory, with all their descendants', counts."""

    stage: Stage
    runs: int
    roots: Sequence[int]
    seen: Seen = field(default_factory=Seen)

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="observer", daemon=True)

    def watch(self, limit_s: float) -> Seen:
        """Returns when every run ended, or after so many seconds."""
        self._thread.start()
        self._thread.join(limit_s)
        self._over.set()
        self._thread.join()
        return self.seen

    def _watch(self) -> None:
        looks = 0
        with psycopg.connect(self.stage.site.database, autocommit=True) as rows:
            while self.seen.ended_at is None and not self._over.wait(LOOK_S):
                self._sessions(rows)
                self._progress(rows)
                if looks % WEIGH_EVERY == 0:
                    self._weigh()
                looks += 1
            self._weigh()

    def _weigh(self) -> None:
        pids = [pid for root in self.roots for pid in family(root)]
        self.seen.memory_mb = max(self.seen.memory_mb, pss_mb(pids))
        self.seen.cpu_s = max(self.seen.cpu_s, cpu_s(pids))

    def _sessions(self, rows: psycopg.Connection) -> None:
        """Asked before and after: a look counts as one at full flight only if it was so throughout."""
        full = self._is_full()
        sessions, busy = _row(rows, SESSIONS)
        self.seen.sessions = max(self.seen.sessions, sessions)
        if full and self._is_full():
            self.seen.looks_when_full += 1
            self.seen.full_sessions = max(self.seen.full_sessions, sessions)
            self.seen.full_busy = busy if self.seen.full_busy is None else min(self.seen.full_busy, busy)

    def _is_full(self) -> bool:
        try:
            return bool(self.stage.counts()["now"] == self.runs)
        except calls.NoAnswer:
            return False

    def _progress(self, rows: psycopg.Connection) -> None:
        if self.seen.checkpointed_at is None and _row(rows, CHECKPOINTED)[0] >= self.runs:
            self.seen.checkpointed_at = clock.monotonic()
        if _row(rows, ALL_ENDED)[0] >= self.runs:
            self.seen.ended_at = clock.monotonic()


def _row(rows: psycopg.Connection, query: str) -> tuple[int, ...]:
    found = rows.execute(query.encode()).fetchone()
    assert found is not None
    return tuple(found)
