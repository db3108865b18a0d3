"""The sandbox's file: one SQLite database, one connection, one transaction at a time."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EMPTY = (
    *("DELETE FROM orders", "DELETE FROM payments", "DELETE FROM refunds", "DELETE FROM keys"),
    *("DELETE FROM calls", "DELETE FROM faults", "DELETE FROM config"),
)
"""Forgets everything."""

EMPTY_ORDER = (
    "DELETE FROM keys WHERE refund_id IN (SELECT refund_id FROM refunds WHERE order_id = ?)",
    "DELETE FROM refunds WHERE order_id = ?",
    "DELETE FROM payments WHERE order_id = ?",
    "DELETE FROM orders WHERE order_id = ?",
)
"""Forgets one order; the keys first, while its refunds still say which they are."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (
    order_id TEXT PRIMARY KEY, document TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS payments (
    seq INTEGER PRIMARY KEY, payment_id TEXT NOT NULL UNIQUE, order_id TEXT NOT NULL, state TEXT NOT NULL,
    minor INTEGER NOT NULL CHECK (minor >= 0), currency TEXT NOT NULL, document TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS payments_of_order ON payments (order_id);
CREATE TABLE IF NOT EXISTS refunds (
    seq INTEGER PRIMARY KEY, refund_id TEXT NOT NULL UNIQUE, order_id TEXT NOT NULL, payment_id TEXT NOT NULL,
    state TEXT NOT NULL, minor INTEGER NOT NULL CHECK (minor > 0), currency TEXT NOT NULL, idempotency_key TEXT,
    metadata TEXT, reason TEXT, approval_id TEXT, created_at TEXT NOT NULL,
    made_at REAL NOT NULL, shown_from REAL NOT NULL);
CREATE INDEX IF NOT EXISTS refunds_of_order ON refunds (order_id);
CREATE INDEX IF NOT EXISTS refunds_of_payment ON refunds (payment_id);
CREATE INDEX IF NOT EXISTS refunds_of_key ON refunds (idempotency_key);
CREATE TABLE IF NOT EXISTS keys (
    key TEXT PRIMARY KEY, body TEXT NOT NULL, refund_id TEXT NOT NULL, made_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS calls (
    seq INTEGER PRIMARY KEY, method TEXT NOT NULL, path TEXT NOT NULL, status INTEGER, document TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS faults (
    seq INTEGER PRIMARY KEY, match TEXT NOT NULL, mode TEXT NOT NULL, times_left INTEGER);
CREATE TABLE IF NOT EXISTS config (
    name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


class Store:
    """Every read and write goes through `transaction`; what it committed survives a kill -9."""

    def __init__(self, file: str) -> None:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        # One connection behind one lock: threads never meet SQLITE_BUSY, and a rule that reads and then writes
        # is alone for as long as it takes.
        self._lock = threading.Lock()
        self._db = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=30)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode=WAL")
        # NORMAL loses commits only with the machine, not with the process, and costs no fsync a commit.
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(_SCHEMA)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, alone, committed when the block ends without an exception."""
        with self._lock:
            # IMMEDIATE: the write lock is taken before the first read, so what was read still holds at the commit.
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def close(self) -> None:
        """Waits for the transaction under way; afterwards the file may be opened by another process."""
        with self._lock:
            self._db.close()
