"""Reads what hosts noted outside the database: heads of chains, writes and fences. Part of `runs.audit`.

Bounded memory: the lines lie in a temporary file, ordered by run. Imports no rows, no Django.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, Self

from agentsite import clock, env

MAX_LINE = 4096
BATCH = 5000
FENCE = "fence"
_TABLE = "CREATE TABLE line (run TEXT, seq INTEGER, mac TEXT, at TEXT, PRIMARY KEY (run, seq, mac)) WITHOUT ROWID"
# Of two lines on one row the later time counts: a fence forgives what is older than it.
_KEEP = "INSERT INTO line VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET at = max(at, excluded.at)"
_BETWEEN = "SELECT run, seq, mac, at FROM line WHERE run > ? AND run <= ? ORDER BY run, seq, at"


class Line(NamedTuple):
    """A row that a host committed: its run, place and MAC. `at` in RFC 3339."""

    run: str
    seq: int
    mac: str
    at: str


class Unreadable(Exception):
    """A log that is there, or was named, cannot be read; says which."""


def logs_here() -> list[Path]:
    """This host's own logs as far as they are there, each with the file before its rotation."""
    found = (env.read().heads_log, env.read().anchor_log)
    return [path for log in found for path in (log.with_name(log.name + ".1"), log) if path.exists()]


class Logs:
    """What stands in these files, of one host or several. Raises Unreadable."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._db = sqlite3.connect("")  # a file of its own, gone with the connection
        self._db.execute(_TABLE)
        self.lines = self.unread = 0
        self.fenced_at = ""
        self.paths = tuple(str(path) for path in paths)
        for path in paths:
            self._read(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def between(self, after: str, to: str) -> Iterator[tuple[str, list[Line]]]:
        """(run, its lines in the order of their places) of the runs after one and up to another, by id."""
        rows = (Line(*row) for row in self._db.execute(_BETWEEN, (after, to)))
        return ((run, list(lines)) for run, lines in groupby(rows, key=lambda line: line.run))

    def of(self, run_id: str) -> list[Line]:
        """One run's lines."""
        rows = self._db.execute("SELECT run, seq, mac, at FROM line WHERE run = ? ORDER BY seq, at", (run_id,))
        return [Line(*row) for row in rows]

    def _read(self, path: Path) -> None:
        try:
            with path.open("rb") as log:
                self._take(iter(lambda: log.readline(MAX_LINE), b""))
        except OSError as error:
            raise Unreadable(f"{path} cannot be read ({type(error).__name__})") from error

    def _take(self, lines: Iterable[bytes]) -> None:
        kept = list[Line]()
        for text in lines:
            line = _parsed(text)
            if line is None:
                self.unread += bool(text.strip())
                continue
            self.lines += 1
            if not line.run:
                self.fenced_at = max(self.fenced_at, line.at)
                continue
            kept.append(line)
            if len(kept) >= BATCH:
                self._db.executemany(_KEEP, kept)
                kept.clear()
        self._db.executemany(_KEEP, kept)


def _parsed(text: bytes) -> Line | None:
    """A line of either log, a fence without a run; None for what is torn or of another hand."""
    try:
        found = json.loads(text)
        at = clock.rfc3339(clock.parse_rfc3339(found["at"]))
        if found["kind"] == FENCE:
            return Line("", 0, "", at)
        run, seq, mac = str(uuid.UUID(found["run"])), found["seq"], found["mac"]
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return None
    ours = found["kind"] in ("head", "write") and type(seq) is int and 0 < seq < 2**31 and isinstance(mac, str)
    return Line(run, seq, mac, at) if ours else None
