"""Door: what a view needs to let a client wait: a stream of a run's events, or a long poll for its next state.

Under our own server the view only grants it (`runs.api.live` serves); under another one a stream is sent from here, by
the thread it holds, and a long poll answers at once. Reads rows; imports no zone and no store.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from rest_framework.request import Request

from agentsite import clock
from runs.api import auth, bodies, live, looks
from runs.api.hub import POLL_S
from runs.models import Run

EVENT_STREAM = "text/event-stream"
# Streams differ by Accept; a proxy in between neither keeps nor holds back what passes.
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no", "Vary": "Accept"}


def wants_stream(request: Request) -> bool:
    """Whether the Accept header names event streams, and no less than it names JSON."""
    named: dict[str, float] = {}
    for part in request.headers.get("Accept", "").split(","):
        kind, _, rest = part.partition(";")
        named.setdefault(kind.strip().lower(), _quality(rest))
    stream = named.get(EVENT_STREAM, 0.0)
    return stream > 0 and stream >= named.get("application/json", 0.0)


def _quality(parameters: str) -> float:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def stream(request: Request, run: Run, who: str, after: int) -> HttpResponseBase:
    """The events after `after`, or after `Last-Event-ID` where that is later; 204 where nothing more will come."""
    after = max(after, bodies.last_event_id(request.headers.get("Last-Event-ID")))
    over = run.status in looks.ENDED
    if over and run.last_seq <= after:
        # It is what keeps a browser's EventSource from asking again for ever.
        return HttpResponse(status=204, headers=HEADERS)
    slot = live.slot_of(request._request)
    if slot is not None:
        slot.sit(who)
        slot.wanted = live.Follow(run_id=str(run.id), after=after, head=run.last_seq, over=over)
    if slot is not None or request.method == "HEAD":
        return HttpResponse(content_type=EVENT_STREAM, headers=HEADERS)
    return StreamingHttpResponse(_held(str(run.id), after), content_type=EVENT_STREAM, headers=HEADERS)


def _held(run_id: str, after: int) -> Iterator[bytes]:
    yield live.RETRY
    ends, spoke = clock.monotonic() + live.STREAM_S, clock.monotonic()
    while clock.monotonic() < ends:
        now = looks.look([run_id]).get(run_id)
        frames, more = looks.replay(run_id, after)
        for frame in frames:
            after, spoke = frame.seq, clock.monotonic()
            yield frame.text
        if now is None or (now.ended and not more):
            return
        if clock.monotonic() - spoke > live.HEARTBEAT_S:
            spoke = clock.monotonic()
            yield live.BEAT
        threading.Event().wait(POLL_S)


class LongPoll:
    """One read of a run that may wait: made before the answer, so that no change between the two is missed."""

    def __init__(self, request: Request, caller: auth.Caller, run: Run, seconds: int) -> None:
        self.slot = live.slot_of(request._request) if seconds and request.method == "GET" else None
        self.parked = self.slot.parked if self.slot else None
        self.who, self.run = caller.by, run
        self.seconds: float = self.parked.seconds if self.parked else seconds
        self.mark = looks.look([str(run.id)])[str(run.id)].mark if self.slot else ""

    def wait(self, etag: str, *, known: bool | None) -> None:
        """Ask to be asked again where the client knows this state; `known` is what its If-None-Match says of it.

        Without that header it knows the state at its arrival, unless the run had ended: then it is told at once.
        """
        if self.slot is not None and self.seconds > 0 and self._again(etag, known):
            self.slot.sit(self.who)
            self.slot.wanted = live.Park(
                run_id=str(self.run.id), head=self.run.last_seq, mark=self.mark, etag=etag, seconds=self.seconds
            )

    def _again(self, etag: str, known: bool | None) -> bool:
        if self.parked is not None:
            return self.parked.etag == etag
        return self.run.status not in looks.ENDED if known is None else known
