"""Names what became of the first row of a chain that does not hold. Part of `runs.audit`; imports no rows, no Django.

A row that was moved still holds its seal, at its own place: that tells removed ones from inserted and changed ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from runs.audit.links import Keys, sealed
from runs.audit.values import Head, Kind, Link, Named

BEYOND = 1000
"""How far past the highest known place a row is still looked for: rows may be gone and all later ones renumbered."""
MOST = 20_000
"""How many places are tried: a number in a row may be anything, and whoever put it there may hold nobody up by it."""


class Broken:
    """A run's rows in the order of their numbers, the first `whole` of which hold."""

    def __init__(self, head: Head, links: Sequence[Link], keys: Keys, whole: int) -> None:
        self._head, self._links, self._keys, self._at = head, links, keys, whole
        self._place, self._link = whole + 1, links[whole]
        self._prev = links[whole - 1].mac if whole else ""

    def name(self) -> Named:
        """What happened at the first place that does not hold."""
        link = self._link
        if link.seq > self._place:
            return self._gap()
        if link.seq < self._place:
            return self._named("inserted" if self._home() is None else "reordered", "it stands outside of the order")
        if link.key_id not in self._keys:
            return self._named("unknown key", f"AUDIT_KEY holds no key {link.key_id!r}")
        return self._misplaced()

    def _misplaced(self) -> Named:
        home = self._home()
        if home == self._place:
            return self._named("changed", "it does not follow the row before it")
        if home is None:
            return self._foreign()
        if home < self._place:
            return self._named("inserted", f"it is the row of place {home} once more")
        if self._stands_elsewhere():
            return self._named("reordered", f"it is the row of place {home}")
        return self._gone("the rows after it were numbered anew")

    def _foreign(self) -> Named:
        """The row holds no seal, at no place."""
        other = self._holds_that_of()
        if other is not None:
            return self._named("reordered", f"it holds what was written at place {other}")
        if self._inserted():
            return self._named("inserted", "the chain goes on without it")
        return self._named("changed", "its MAC is another one")

    def _gap(self) -> Named:
        moved = self._stands_elsewhere()
        if moved is None:
            return self._gone("the numbers leave it out")
        why = f"it stands at place {moved.seq}"
        return Named(seq=self._place, type=moved.type, kind="reordered", why=why)

    def _named(self, kind: Kind, why: str) -> Named:
        return Named(seq=self._place, type=self._link.type, kind=kind, why=why)

    def _gone(self, why: str) -> Named:
        return Named(seq=self._place, type=None, kind="removed", why=why)

    def _is_at(self, link: Link, place: int) -> bool:
        return sealed(self._keys, self._head.run_id, link, seq=place, prev=link.prev, mac=link.mac) is not False

    def _home(self) -> int | None:
        """The place at which the row was written."""
        known = max(self._head.last_seq, len(self._links), *(link.seq for link in self._links))
        places = (self._place, *range(1, min(known + BEYOND, MOST)))
        return next((place for place in places if self._is_at(self._link, place)), None)

    def _stands_elsewhere(self) -> Link | None:
        """The row that was written at the place in question, where another number was put on it."""
        return next((link for link in self._links[self._at :] if self._is_at(link, self._place)), None)

    def _holds_that_of(self) -> int | None:
        """Whose contents the row got, where numbers and MACs stayed and contents changed places."""
        mine = self._link
        for it in self._links:
            held = sealed(self._keys, self._head.run_id, mine, seq=it.seq, prev=it.prev, mac=it.mac)
            if it is not mine and held is not False:
                return it.seq
        return None

    def _inserted(self) -> bool:
        if self._at + 1 < len(self._links):
            after = self._links[self._at + 1]
            return after.prev == self._prev or self._is_at(after, self._place)
        return self._head.last_seq == self._at
