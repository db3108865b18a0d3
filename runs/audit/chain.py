"""Checks one run: its chain, what was erased of it, its row, and what logs outside knew of it. Part of `runs.audit`.

Imports no rows: what it looks at are values.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runs.audit.links import Keys, noted, sealed
from runs.audit.logs import Line
from runs.audit.naming import Broken
from runs.audit.values import Head, Link, Named
from runs.states import TERMINAL
from runs.store.archived import stays
from runs.store.erasing import CONVERSATION, EVIDENCE, NO_CONVERSATION, NO_EVIDENCE, TOMBSTONE

SPARED: dict[str, frozenset[str]] = {CONVERSATION: NO_CONVERSATION, EVIDENCE: NO_EVIDENCE}
"""Types whose payload an erasure of a class leaves."""
FIRST = "run.accepted"
NAMED = ("trace_id", "request_id", "agent")
CORRECTIONS = ("run.corrected", "run.resolved")
ENDED = frozenset(status.value for status in TERMINAL)


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What became of one run. `fault` is its first; `put_back` lines tell of what a restore lost before a fence."""

    fault: Named | None
    erased: int
    archived: int
    unspanned: int
    put_back: int


def check(head: Head, links: Sequence[Link], keys: Keys, lines: Sequence[Line], fenced_at: str) -> Checked:
    """Check a run's rows, in the order of their numbers, with what the logs knew. `fenced_at`: RFC 3339, or empty."""
    whole, unspanned = _whole(head, links, keys)
    broken = Broken(head, links, keys, whole).name() if whole < len(links) else None
    gone = _Gone(head, links, keys)
    unburied = gone.first(links[:whole])
    logged, put_back = _logged(links, lines, fenced_at)
    found = [fault for fault in (broken, unburied, _cut(head, links), logged) if fault is not None]
    first = min(found, key=lambda fault: fault.seq) if found else _row(head, links)
    return Checked(fault=first, erased=gone.erased, archived=gone.archived, unspanned=unspanned, put_back=put_back)


def _whole(head: Head, links: Sequence[Link], keys: Keys) -> tuple[int, int]:
    """(how many rows from the first on hold, how many of these are of the older form)."""
    prev, older = "", 0
    for place, link in enumerate(links, start=1):
        held = sealed(keys, head.run_id, link, seq=place, prev=prev, mac=link.mac)
        if held is False or (link.seq, link.prev) != (place, prev):
            return place - 1, older
        older += held is None
        prev = link.mac
    return len(links), older


# --- payloads ------------------------------------------------------------------------------------------------


class _Gone:
    """Payloads that are no longer in their rows: counts those that an erasure or an archive accounts for."""

    def __init__(self, head: Head, links: Sequence[Link], keys: Keys) -> None:
        self._head, self._links, self._keys = head, links, keys
        self.erased = self.archived = 0

    def first(self, whole: Sequence[Link]) -> Named | None:
        """The first payload that is gone, or another one, without either."""
        tombs, upto = None, 0
        for link in (one for one in whole if one.payload != "whole"):
            if tombs is None:
                tombs, upto = _tombs(self._links, self._head, self._keys), _archived_upto(self._head, self._keys)
            if link.payload == "changed":
                return Named(seq=link.seq, type=link.type, kind="changed", why="its payload is another one")
            if link.payload == "gone" and _buried(link, tombs):
                self.erased += 1
            elif link.payload == "gone" and link.seq <= upto and not stays(link.type):
                self.archived += 1
            else:
                why = "no erasure took it" + (", and no archive" * (self._head.archive is not None))
                return Named(seq=link.seq, type=link.type, kind="payload removed", why=why)
        return None


def _archived_upto(head: Head, keys: Keys) -> int:
    """Up to which place payloads may lie in an archive, by a note that holds its seal."""
    return head.archive.last_seq if head.archive is not None and noted(keys, head.run_id, head.archive) else 0


def _tombs(links: Sequence[Link], head: Head, keys: Keys) -> dict[str, int]:
    """The last tombstone of each class that holds its seal."""
    found = dict[str, int]()
    for link in links:
        if link.type != TOMBSTONE:
            continue
        if sealed(keys, head.run_id, link, seq=link.seq, prev=link.prev, mac=link.mac) is not False:
            found[str(_meta(link).get("class"))] = link.seq
    return found


def _buried(link: Link, tombs: dict[str, int]) -> bool:
    return any(
        link.seq < seq and link.type not in SPARED.get(kind, frozenset({link.type})) for kind, seq in tombs.items()
    )


# --- the end of the chain, and the run's own row ---------------------------------------------------------------


def _cut(head: Head, links: Sequence[Link]) -> Named | None:
    if links and head.last_seq <= len(links):
        return None
    why = f"the run's row counts {head.last_seq} rows" if links else "no row is left"
    return Named(seq=len(links) + 1, type=None, kind="cut off at the tail", why=why)


def _row(head: Head, links: Sequence[Link]) -> Named | None:
    """What the run's row says otherwise than the rows of its record, whose chain is whole."""
    first, last = links[0], links[-1]
    if first.type != FIRST:
        return Named(seq=1, type=first.type, kind="changed", why=f"the first row is no {FIRST}")
    told = _meta(first)
    for name in (*NAMED, *(("tenant_id",) if "tenant_id" in told else ())):  # older releases did not name it
        if told.get(name) != getattr(head, name):
            return _differs(first, name)
    if (head.last_seq, head.chain_head) != (last.seq, last.mac):
        return _differs(last, "last_seq" if head.last_seq != last.seq else "chain_head")
    return _state(head, links)


def _differs(link: Link, name: str) -> Named:
    return Named(seq=link.seq, type=link.type, kind="run row differs", why=f"its {name} is not the recorded one")


def _state(head: Head, links: Sequence[Link]) -> Named | None:
    moved = [link for link in links if link.type == "run.status"]
    if not moved:
        told = (head.status, head.outcome) == ("accepted", None)
        return None if told else _differs(links[0], "status" if head.status != "accepted" else "outcome")
    last, meta = moved[-1], _meta(moved[-1])
    if head.status != meta.get("to"):
        return _differs(last, "status")
    if head.status not in ENDED:
        return _differs(last, "outcome") if head.outcome is not None else None
    return _ending(head, last, meta, [link for link in links if link.type in CORRECTIONS])


def _ending(head: Head, last: Link, meta: dict[str, Any], corrections: Sequence[Link]) -> Named | None:
    """Reason and outcome of an ended run; of one that an older release ended, as far as its events name them."""
    reason = meta.get("reason") or meta.get("kept_reason")
    if head.reason != reason and (reason is not None or "outcome" in meta):
        return _differs(last, "reason")
    if corrections and head.outcome != _meta(corrections[-1]).get("to"):
        return _differs(corrections[-1], "outcome")
    if not corrections and "outcome" in meta and head.outcome != meta["outcome"]:
        return _differs(last, "outcome")
    return None


def _meta(link: Link) -> dict[str, Any]:
    found: Any = json.loads(link.meta)
    return found if isinstance(found, dict) else {}


# --- what logs outside knew ------------------------------------------------------------------------------------


def _logged(links: Sequence[Link], lines: Sequence[Line], fenced_at: str) -> tuple[Named | None, int]:
    """(the first place at which a log knew another row, or one that is gone; lines forgiven by a fence)."""
    first, put_back, held = None, 0, 0
    at = {link.seq: link for link in links}
    for line in lines:  # in the order of their places
        link = at.get(line.seq)
        if link is not None and link.mac == line.mac:
            held = line.seq
        elif line.at < fenced_at and (link is None or link.at > line.at):
            put_back += 1
        elif first is None:
            first = _lost(links, line) if link is None else _another(link, line, held)
    return first, put_back


def _lost(links: Sequence[Link], line: Line) -> Named:
    place = len(links) + 1
    if line.seq < place:
        return Named(seq=line.seq, type=None, kind="removed", why=f"a log of {line.at} knows it")
    why = f"a log of {line.at} knows the row of place {line.seq}"
    return Named(seq=place, type=None, kind="cut off at the tail", why=why)


def _another(link: Link, line: Line, held: int) -> Named:
    since = f"; what was changed first stands after place {held}" if line.seq - held > 1 else ""
    why = f"a log of {line.at} knows another row{since}"
    return Named(seq=link.seq, type=link.type, kind="changed", why=why)
