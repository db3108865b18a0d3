"""Listens beside the model calls under way in this process: cuts those whose run a door left something for (M21), and
keeps what they have said so far for staff to watch (M97). A call itself holds no database connection; one thread asks
for all of them. Imports no zone but the dialects' paper."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections

from agentsite import clock, telemetry
from runs import store
from runs.contracts import ModelCall
from runs.inference.dialects.dialect import Fold
from runs.store.under_way import Spoken

EVERY_S = 1.0


class Watch:
    """One call under way. `should_stop` and `heard` are the call's own thread's, the rest is the listener's."""

    def __init__(self, call: ModelCall) -> None:
        self.call, self.since = call, clock.monotonic()
        self.cut, self.kept = False, False
        self._spoken: Spoken | None = None
        self._heard_at = self.since

    def should_stop(self) -> bool:
        return self.cut

    def heard(self, fold: Fold) -> None:
        """Now and then: putting together what has come costs as much as there is of it."""
        if (now := clock.monotonic()) - self._heard_at >= EVERY_S:
            self._heard_at = now
            thinking, text = fold.spoken()
            self._spoken = Spoken(run_id=self.call.run_id, route=self.call.route, thinking=thinking, text=text)

    def take_spoken(self) -> Spoken | None:
        """What is new since the last time."""
        spoken, self._spoken = self._spoken, None
        return spoken


class _Listener:
    """One thread a process, started with its first call (after any fork), asleep while there is none."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.calls: set[Watch] = set()
        self.ended: set[Watch] = set()
        self.lock, self.some = threading.Lock(), threading.Event()
        threading.Thread(target=self._loop, name="model-listener", daemon=True).start()

    def _loop(self) -> None:
        while True:
            self.some.wait()
            threading.Event().wait(EVERY_S)
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - the next round looks again; a call that is not cut only ends later
                telemetry.log("model.listening_failed", error=type(error).__name__)
            finally:
                connections.close_all()

    def _look(self) -> None:
        calls, ended = self._taken()
        if calls:
            inputs = store.last_inputs({w.call.run_id for w in calls})
            for watch in calls:
                watch.cut = watch.cut or inputs.get(watch.call.run_id, 0) > watch.call.seen_input_seq
        self._keep(calls)
        if gone := {w.call.run_id for w in ended if w.kept} - {w.call.run_id for w in calls}:
            store.drop_drafts(gone)

    def _taken(self) -> tuple[list[Watch], set[Watch]]:
        """Calls that have lasted a while, and those that ended since the last look."""
        with self.lock:
            ended, self.ended = self.ended, set()
            if not self.calls:
                self.some.clear()
            return [w for w in self.calls if clock.monotonic() - w.since >= EVERY_S], ended

    def _keep(self, calls: list[Watch]) -> None:
        new = [(watch, spoken) for watch in calls if (spoken := watch.take_spoken()) is not None]
        if new:
            store.keep_drafts(spoken for _, spoken in new)
        for watch, _ in new:
            watch.kept = True


_listener: _Listener | None = None
_start = threading.Lock()


def _current() -> _Listener:
    global _listener
    with _start:
        if _listener is None or _listener.pid != os.getpid():
            _listener = _Listener()
        return _listener


@contextmanager
def beside(call: ModelCall) -> Iterator[Watch]:
    """Listen while the body makes this call."""
    listener, watch = _current(), Watch(call)
    with listener.lock:
        listener.calls.add(watch)
        listener.some.set()
    try:
        yield watch
    finally:
        with listener.lock:
            listener.calls.discard(watch)
            listener.ended.add(watch)
            listener.some.set()
