"""Reads a private cluster's own log of changes: how many transactions were made durable, in how many bytes.

Whole pages, which the first change of a page after a checkpoint adds, are left out: they depend on the checkpoint.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from dataclasses import dataclass

import psycopg

from agentsite.private.binaries import postgres_bindir
from agentsite.private.servers import Postgres

_RECORD = re.compile(r"^rmgr: (\S+)\s+len \(rec/tot\):\s*(\d+)/\s*\d+, tx:\s*\d+, lsn: \S+, prev \S+, desc: (\S+)(.*)$")
_RELATION = re.compile(r"rel \d+/\d+/(\d+)")


@dataclass(frozen=True, kw_only=True)
class Written:
    """Commits that left a record; bytes of all records; bytes and records by what they change."""

    commits: int
    bytes: int
    by_place: Counter[tuple[str, str]]
    """By (rmgr and act, file number of the relation)."""
    records: Counter[tuple[str, str]]


class Log:
    """The log of one cluster; a place in it is a text."""

    def __init__(self, cluster: Postgres) -> None:
        self._cluster = cluster
        self.pid = cluster.pid

    def mark(self) -> str:
        """Where the log ends now, as far as it is on the disk: every transaction that was committed before."""
        with psycopg.connect(self._cluster.url, autocommit=True) as link:
            row = link.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        assert row is not None
        return str(row[0])

    def since(self, mark: str) -> Written:
        """What was written from that place to now, by everybody."""
        tool = str(postgres_bindir() / "pg_waldump")
        folder = str(self._cluster.folder / "data" / "pg_wal")
        shown = subprocess.run(  # noqa: S603 - a found binary
            [tool, "-p", folder, "-s", mark, "-e", self.mark()], capture_output=True, text=True, check=True
        ).stdout
        return read(shown)


def read(shown: str) -> Written:
    """What the tool's lines say, one a record; other lines are skipped."""
    commits, size, by_place, records = 0, 0, Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for found in filter(None, map(_RECORD.match, shown.splitlines())):
        manager, length, act, rest = found.groups()
        size += int(length)
        commits += (manager, act) == ("Transaction", "COMMIT")
        relation = _RELATION.search(rest)
        place = (f"{manager} {act}", relation[1] if relation else "")
        by_place[place] += int(length)
        records[place] += 1
    return Written(commits=commits, bytes=size, by_place=by_place, records=records)
