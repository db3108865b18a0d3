"""Faults on request: which one a request meets, counted so that concurrent requests never share one."""

import json
import math
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tools.sandbox.money import parse_money
from tools.sandbox.refusals import Document, Refused, invalid, parse_object, refuse_unknown, text_of

LIMIT_S = 3600.0
"""No fault holds an answer longer than this."""

MAKING = frozenset({"state", "hide", "amount"})
"""Faults of the refund itself: met by a refund that is really made, beside any fault of the connection."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault that was taken; `argument` is what stood after the colon."""

    name: str
    argument: str = ""

    @property
    def seconds(self) -> float:
        """The argument of the modes that take seconds; `forever` is infinite."""
        return math.inf if self.argument == "forever" else float(self.argument)


NO_FAULT = Fault(name="none")


def _is_empty(argument: str) -> bool:
    return not argument


def _is_seconds(argument: str) -> bool:
    return re.fullmatch(r"[0-9]+(\.[0-9]+)?", argument) is not None and float(argument) <= LIMIT_S


def _is_seconds_or_forever(argument: str) -> bool:
    return argument == "forever" or _is_seconds(argument)


def _is_status(argument: str) -> bool:
    return re.fullmatch(r"[2-5][0-9][0-9]", argument) is not None


def _is_word(argument: str) -> bool:
    return re.fullmatch(r"[a-z_]{1,32}", argument) is not None


def _is_json(argument: str) -> bool:
    try:
        json.loads(argument)
    except ValueError:
        return False
    return True


def _is_money(argument: str) -> bool:
    try:
        return parse_money(parse_object(argument.encode()), "amount").minor > 0
    except Refused:
        return False


MODES: dict[str, Callable[[str], bool]] = {
    "drop_before": _is_empty,
    "drop_after": _is_empty,
    "delay": _is_seconds,
    "delay_after": _is_seconds,
    "stall_body": _is_seconds,
    "status": _is_status,
    "status_after": _is_status,
    "json": _is_json,
    "garbage": _is_empty,
    "empty": _is_empty,
    "truncate": _is_empty,
    "state": _is_word,
    "hide": _is_seconds_or_forever,
    "amount": _is_money,
}
"""Every mode with the test of its argument; docs of each stand in `README.md` beside this file."""


def parse_mode(text: str) -> Fault:
    """`NAME` or `NAME:ARGUMENT`; raises `Refused` 400."""
    name, _, argument = text.partition(":")
    if name not in MODES or not MODES[name](argument):
        raise invalid(f"mode: {text!r} is none of {', '.join(MODES)}, or its argument is wrong")
    return Fault(name=name, argument=argument)


def add_fault(db: sqlite3.Connection, body: Document) -> None:
    """Adds one fault, or removes all with `{"clear": true}`; raises `Refused` 400."""
    refuse_unknown(body, frozenset({"match", "mode", "times", "clear"}))
    if body.get("clear"):
        db.execute("DELETE FROM faults")
    if "mode" in body or "match" in body:
        values = (_match(body), _mode(body), _times(body))
        db.execute("INSERT INTO faults (match, mode, times_left) VALUES (?, ?, ?)", values)
    elif not body.get("clear"):
        raise invalid("match and mode are expected")


def take_fault(db: sqlite3.Connection, method: str, target: str) -> Fault:
    """The first fault of the connection that this request meets, one time used up, or `NO_FAULT`."""
    for seq, fault in _matching(db, method, target):
        if fault.name not in MAKING:
            _use_up(db, seq)
            return fault
    return NO_FAULT


def take_making_faults(db: sqlite3.Connection, method: str, target: str) -> dict[str, Fault]:
    """The faults for the refund that is being made, one of a name, each used up once."""
    taken: dict[str, Fault] = {}
    for seq, fault in _matching(db, method, target):
        if fault.name in MAKING and fault.name not in taken:
            _use_up(db, seq)
            taken[fault.name] = fault
    return taken


def list_faults(db: sqlite3.Connection) -> list[Document]:
    """What is still to come; `times` 0 means until cleared."""
    rows = db.execute("SELECT match, mode, times_left FROM faults ORDER BY seq")
    return [{"match": row["match"], "mode": row["mode"], "times": row["times_left"] or 0} for row in rows]


def _matching(db: sqlite3.Connection, method: str, target: str) -> Iterator[tuple[int, Fault]]:
    for row in db.execute("SELECT seq, match, mode FROM faults ORDER BY seq").fetchall():
        wanted, _, prefix = row["match"].partition(" ")
        if wanted in ("*", method) and target.startswith(prefix.removesuffix("*")):
            yield row["seq"], parse_mode(row["mode"])


def _use_up(db: sqlite3.Connection, seq: int) -> None:
    # times_left is NULL for a fault without end, and NULL - 1 is NULL.
    db.execute("UPDATE faults SET times_left = times_left - 1 WHERE seq = ?", (seq,))
    db.execute("DELETE FROM faults WHERE seq = ? AND times_left <= 0", (seq,))


def _match(body: Document) -> str:
    match = text_of(body, "match", limit=1000)
    if not re.fullmatch(r"(\*|[A-Z]+) /\S*", match):
        raise invalid('match: "METHOD /path-prefix" is expected, such as "POST /v1/refunds"')
    return match


def _mode(body: Document) -> str:
    mode = body.get("mode")
    if not isinstance(mode, str):
        raise invalid("mode: a text is expected")
    parse_mode(mode)
    return mode


def _times(body: Document) -> int | None:
    times = body.get("times", 1)
    if isinstance(times, bool) or not isinstance(times, int) or not 0 <= times <= 1_000_000:
        raise invalid("times: a whole number is expected, 0 for until cleared")
    return times or None
