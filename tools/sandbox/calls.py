"""The log of every request under /v1, kept so that a test can say what really reached the business system."""

import json
import sqlite3

from tools.sandbox.moment import now_text
from tools.sandbox.refusals import Document, canonical

LIMIT = 100_000
"""Calls shown at most, the latest; a log that is longer has lost its use."""


def record_call(db: sqlite3.Connection, method: str, path: str, seen: Document) -> int:
    """Notes a request as it arrives, its answer still open; returns its number."""
    document = canonical({**seen, "at": now_text()})
    values = (method, path, document)
    row = db.execute("INSERT INTO calls (method, path, document) VALUES (?, ?, ?) RETURNING seq", values).fetchone()
    return int(row["seq"])


def record_answer(db: sqlite3.Connection, seq: int, status: int | None) -> None:
    """Notes the status sent; None where nothing was."""
    db.execute("UPDATE calls SET status = ? WHERE seq = ?", (status, seq))


def list_calls(db: sqlite3.Connection, method: str, path: str) -> list[Document]:
    """The calls in their order; an empty `method` means any, `path` is a prefix."""
    rows = db.execute(
        "SELECT * FROM (SELECT * FROM calls WHERE ? IN ('', method) AND substr(path, 1, length(?)) = ?"
        " ORDER BY seq DESC LIMIT ?) ORDER BY seq",
        (method, path, path, LIMIT),
    )
    return [_shown(row) for row in rows]


def clear_calls(db: sqlite3.Connection) -> None:
    """Forgets them all."""
    db.execute("DELETE FROM calls")


def _shown(row: sqlite3.Row) -> Document:
    head = {"seq": row["seq"], "method": row["method"], "path": row["path"], "status": row["status"]}
    return {**head, **json.loads(row["document"])}
