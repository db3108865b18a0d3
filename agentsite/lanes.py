"""How many calls to one place may be under way in this process, so that one that hangs holds up nobody else. Floor.

A place that was slow last time shares one lane with every other slow one, until it answers in time again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

MOST_SLOW = 1000
Item = TypeVar("Item")


class Lanes:
    """`most` calls in all, `each` to one place, `owner` for one owner, whose places may be new ones every time."""

    def __init__(self, *, most: int, each: int, owner: int | None = None) -> None:
        self._most, self._each, self._owner = most, each, owner or most
        self._lock, self._picking = threading.Lock(), threading.Lock()
        self._workers = 0
        self._busy: dict[str, int] = {}
        self._owned: dict[str, int] = {}
        self._slow: dict[str, None] = {}

    @contextmanager
    def worker(self) -> Iterator[bool]:
        """Whether this thread may work; False where `most` do."""
        with self._lock:
            may = self._workers < self._most
            self._workers += may
        try:
            yield may
        finally:
            with self._lock:
                self._workers -= may

    def shut(self) -> set[str]:
        """Places that may not be called now."""
        with self._lock:
            full = {place for place, calls in self._busy.items() if calls >= self._each}
            return full | (set(self._slow) if any(place in self._slow for place in self._busy) else set())

    def full(self) -> set[str]:
        """Owners for whom nothing more may be called now."""
        with self._lock:
            return {owner for owner, calls in self._owned.items() if calls >= self._owner}

    @contextmanager
    def call(
        self,
        pick: Callable[[set[str]], Item | None],
        place_of: Callable[[Item], str],
        owner_of: Callable[[Item], str] = lambda _: "",
    ) -> Iterator[Item | None]:
        """The next call, under way for as long as the block lasts: `pick` is given the places that are shut.

        One thread picks at a time: two that saw the same place open would both call it.
        """
        with self._picking:
            item = pick(self.shut())
            if item is not None:
                self._begins(place_of(item), owner_of(item))
        try:
            yield item
        finally:
            if item is not None:
                self._ends(place_of(item), owner_of(item))

    def _begins(self, place: str, owner: str) -> None:
        with self._lock:
            self._busy[place] = self._busy.get(place, 0) + 1
            self._owned[owner] = self._owned.get(owner, 0) + 1

    def _ends(self, place: str, owner: str) -> None:
        with self._lock:
            for calls, name in ((self._busy, place), (self._owned, owner)):
                calls[name] -= 1
                if not calls[name]:
                    del calls[name]

    def was(self, place: str, *, slow: bool) -> None:
        """How a call to a place ended."""
        with self._lock:
            self._slow.pop(place, None)
            if slow:
                self._slow[place] = None
                while len(self._slow) > MOST_SLOW:
                    del self._slow[next(iter(self._slow))]
