"""Streams and long polls in front of Django, asked as a server asks: replay, resume, ends, refusals, limits."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth.models import User
from django.core.asgi import get_asgi_application
from django.core.cache import cache
from django.test import Client

from agentsite import env
from agentsite.tenants.models import ServiceToken
from runs import store
from runs.api import auth, live
from runs.api.hub import QUEUE_FRAMES, Hub, Stream
from runs.api.looks import Frame
from runs.models import Event, Run
from tests import edge
from tests.edge import RUNS, admitted

pytestmark = pytest.mark.django_db(transaction=True)
T = TypeVar("T")
Json = dict[str, Any]
STUCK_S = 20
QUIET_S = 0.6


@pytest.fixture(autouse=True)
def _no_counts_of_others() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()
    env.read.cache_clear()


@pytest.fixture
def bearer(transactional_db: None) -> str:
    edge.tenant()
    return edge.token()


@pytest.fixture
def run(bearer: str) -> Run:
    return Run.objects.get(pk=admitted(edge.client(bearer))["run_id"])


_asked = list["Asked"]()


class Asked:
    """One request to the application with a hub of its own or a shared one."""

    def __init__(self, path: str, hub: Hub | None = None, *, query: str = "", **headers: Any) -> None:
        self.hub = hub or Hub()
        named = [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()]
        scope = {
            "type": "http", "http_version": "1.1", "method": "GET", "path": path, "raw_path": path.encode(),
            "query_string": query.encode(), "root_path": "", "scheme": "http", "headers": named,
            "client": ("127.0.0.1", 1), "server": ("testserver", 80),
        }  # fmt: skip
        self.wire: Any = ApplicationCommunicator(  # type: ignore[no-untyped-call]
            live.following(get_asgi_application(), self.hub), scope
        )
        self.status, self.headers, self.over = 0, dict[str, str](), False
        _asked.append(self)

    async def head(self) -> int:
        await self.wire.send_input({"type": "http.request", "body": b"", "more_body": False})
        start = await self.wire.receive_output(STUCK_S)
        self.status = start["status"]
        self.headers = {name.decode().lower(): value.decode() for name, value in start["headers"]}
        return self.status

    async def piece(self) -> str:
        message = await self.wire.receive_output(STUCK_S)
        self.over = not message.get("more_body", False)
        return str(message.get("body", b"").decode())

    async def until_over(self) -> str:
        found = ""
        while not self.over:
            found += await self.piece()
        return found

    async def until(self, words: str) -> str:
        found = ""
        while words not in found:
            assert not self.over, found
            found += await self.piece()
        return found

    async def leave(self) -> None:
        await self.wire.send_input({"type": "http.disconnect"})
        await self.wire.wait(STUCK_S)


def play(work: Awaitable[T]) -> T:
    async def bounded() -> T:
        try:
            return await asyncio.wait_for(work, 3 * STUCK_S)
        finally:
            # As a server does: a request is over when Django has said so and given its connection back.
            while _asked:
                await _asked.pop().leave()

    return asyncio.run(bounded())


async def meanwhile(call: Callable[[], T]) -> T:
    def closing() -> T:
        from django.db import connections

        try:
            return call()
        finally:
            connections.close_all()

    return await asyncio.to_thread(closing)


def stream_of(run: Run, bearer: str, hub: Hub | None = None, *, query: str = "", **headers: Any) -> Asked:
    known: dict[str, Any] = {"Accept": "text/event-stream", "Authorization": f"Bearer {bearer}", **headers}
    return Asked(f"{RUNS}/{run.pk}/events", hub, query=query, **known)


def said(run: Run, text: str) -> Callable[[], object]:
    return lambda: store.append_input(str(run.pk), kind="message", message_id=text, text=text, by="user:1")


def ended(run: Run) -> Callable[[], object]:
    """As a checkpoint ends a run: its last event and its status are seen together."""

    def end() -> None:
        from tests import approving

        row = Run.objects.get(pk=run.pk)
        approving.event(row, row.last_seq + 1, "run.status", {"from": "gathering", "to": "completed", "reason": None})
        Run.objects.filter(pk=run.pk).update(status="completed", outcome="answered", last_seq=row.last_seq + 1)

    return end


def events(text: str) -> list[Json]:
    frames = [dict(line.split(": ", 1) for line in frame.split("\n") if ": " in line) for frame in text.split("\n\n")]
    return [{**json.loads(f["data"]), "id": f["id"], "event": f["event"]} for f in frames if "data" in f]


# --- streams --------------------------------------------------------------------------------------------------


def test_stream_replays_then_tells_what_comes_and_ends_with_the_run(run: Run, bearer: str) -> None:
    async def story() -> tuple[Asked, str]:
        asked = stream_of(run, bearer)
        assert await asked.head() == 200
        text = await asked.until("run.accepted")
        await meanwhile(said(run, "hello \u2028 there"))
        text += await asked.until("message.received")
        await meanwhile(ended(run))
        return asked, text + await asked.until_over()

    asked, text = play(story())
    assert asked.headers["content-type"] == "text/event-stream"
    assert (asked.headers["cache-control"], asked.headers["x-accel-buffering"]) == ("no-cache", "no")
    assert "Accept" in asked.headers["vary"] and "content-length" not in asked.headers
    assert text.startswith("retry: 2000\n\n")
    told = events(text)
    page = edge.client(bearer).get(f"{RUNS}/{run.pk}/events").json()["results"]
    assert [{k: v for k, v in e.items() if k not in ("id", "event")} for e in told] == page
    assert [(e["id"], e["event"]) for e in told] == [(str(e["seq"]), e["type"]) for e in page]
    assert told[-1]["data"]["to"] == "completed"


@pytest.mark.parametrize(
    ("query", "header", "first"), [("", None, 1), ("after=1", None, 2), ("", "2", 3), ("after=1", "2", 3)]
)
def test_stream_begins_after_what_the_client_knows(
    run: Run, bearer: str, query: str, header: str | None, first: int
) -> None:
    for word in ("one", "two", "three"):
        said(run, word)()
    ended(run)()
    known: dict[str, Any] = {} if header is None else {"Last_Event_ID": header}

    async def story() -> str:
        asked = stream_of(run, bearer, query=query, **known)
        await asked.head()
        return await asked.until_over()

    assert [e["seq"] for e in events(play(story()))] == list(range(first, 6))


def test_stream_of_an_ended_run_that_is_known_whole_is_204(run: Run, bearer: str) -> None:
    ended(run)()

    async def story() -> tuple[int, str]:
        asked = stream_of(run, bearer, Last_Event_ID="2")
        return await asked.head(), await asked.until_over()

    assert play(story()) == (204, "")


def test_what_happens_after_the_end_is_told_to_who_comes_back(run: Run, bearer: str) -> None:
    from tests import approving

    ended(run)()
    approving.event(run, 3, "run.corrected", {"outcome": "refund_failed"})
    Run.objects.filter(pk=run.pk).update(last_seq=3)

    async def story() -> str:
        asked = stream_of(run, bearer, Last_Event_ID="2")
        await asked.head()
        return await asked.until_over()

    assert [e["type"] for e in events(play(story()))] == ["run.corrected"]


def test_two_clients_of_one_run_get_every_event_once_and_one_leaves(run: Run, bearer: str) -> None:
    async def story() -> tuple[str, str, Hub]:
        hub = Hub()
        one, two = stream_of(run, bearer, hub), stream_of(run, bearer, hub)
        await one.head(), await two.head()
        first = await one.until("run.accepted"), await two.until("run.accepted")
        await meanwhile(said(run, "a"))
        second = await one.until("message.received"), await two.until("message.received")
        await two.leave()
        await meanwhile(ended(run))
        return first[0] + second[0] + await one.until_over(), first[1] + second[1], hub

    one, two, hub = play(story())
    assert [e["seq"] for e in events(one)] == [1, 2, 3]
    assert [e["seq"] for e in events(two)] == [1, 2]
    assert hub._runs == {}


def test_stream_beats_while_nothing_happens_and_ends_in_time_to_show_its_token_again(
    run: Run, bearer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(live, "STREAM_S", QUIET_S)

    async def story() -> str:
        asked = stream_of(run, bearer)
        await asked.head()
        return await asked.until_over()

    text = play(story())
    assert text.count(":\n\n") >= 2 and [e["seq"] for e in events(text)] == [1]


def test_stream_that_is_not_read_is_dropped_and_holds_up_nobody() -> None:
    async def story() -> tuple[bool, bool, int]:
        slow = Stream("r")
        slow.told([Frame(n, b"") for n in range(QUEUE_FRAMES - 1)])
        full = slow.ended.is_set()
        slow.told([Frame(QUEUE_FRAMES, b"")])
        slow.finish()
        return full, slow.ended.is_set(), slow.frames.qsize()

    assert play(story()) == (False, True, QUEUE_FRAMES - 1)


def test_streams_end_when_the_site_does_and_the_next_one_says_so_at_once(run: Run, bearer: str) -> None:
    async def story() -> list[int]:
        hub = Hub()
        asked = stream_of(run, bearer, hub)
        await asked.head()
        text = await asked.until("run.accepted")
        hub.close()
        text += await asked.until_over()
        late = stream_of(run, bearer, hub)
        await late.head()
        return [e["seq"] for e in events(text + await late.until_over())]

    assert play(story()) == [1, 1]


def test_staff_of_the_tenant_streams_with_a_session_and_others_are_told_404(run: Run) -> None:
    here, elsewhere = edge.staff_client("anna", "t_acme_in"), edge.staff_client("ben")
    ended(run)()

    async def story(who: Client) -> tuple[int, str, str]:
        cookie = f"sessionid={who.cookies['sessionid'].value}"
        asked = Asked(f"{RUNS}/{run.pk}/events", Accept="text/event-stream", Cookie=cookie)
        return await asked.head(), asked.headers["content-type"], await asked.until_over()

    status, kind, text = play(story(here))
    assert (status, kind, [e["seq"] for e in events(text)]) == (200, "text/event-stream", [1, 2])
    status, kind, text = play(story(elsewhere))
    assert (status, kind, json.loads(text)["type"]) == (404, "application/problem+json", "not-found")


def test_refusals_of_a_stream_are_problems_as_everywhere(run: Run, bearer: str) -> None:
    edge.tenant("t_other")
    stranger, writer = edge.token("t_other"), edge.token(scopes="runs:write", name="w")

    async def answered(path: str, **headers: Any) -> tuple[int, str, str]:
        asked = Asked(path, Accept="text/event-stream", **headers)
        await asked.head()
        return asked.status, asked.headers["content-type"], json.loads(await asked.until_over())["type"]

    path, kind = f"{RUNS}/{run.pk}/events", "application/problem+json"
    assert play(answered(path)) == (401, kind, "not-authenticated")
    assert play(answered(path, Authorization="Bearer no")) == (401, kind, "invalid-credentials")
    assert play(answered(path, Authorization=f"Bearer {writer}")) == (403, kind, "scope-missing")
    assert play(answered(path, Authorization=f"Bearer {stranger}")) == (404, kind, "not-found")
    unknown = f"{RUNS}/{uuid.uuid4()}/events"
    assert play(answered(unknown, Authorization=f"Bearer {bearer}")) == (404, kind, "not-found")
    malformed = answered(path, Authorization=f"Bearer {bearer}", Last_Event_ID="x")
    assert play(malformed) == (400, kind, "invalid-request")


def test_each_caller_has_so_many_streams_and_the_throttle_counts_them(
    run: Run, bearer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMS_PER_CALLER", "2")
    env.read.cache_clear()
    other = edge.token(name="other")

    async def story() -> list[Any]:
        hub = Hub()
        mine = [stream_of(run, bearer, hub) for _ in range(3)]
        statuses = [await one.head() for one in mine]
        refused = mine[2].headers["retry-after"], json.loads(await mine[2].until_over())["type"]
        theirs = stream_of(run, other, hub)
        statuses.append(await theirs.head())
        await mine[0].leave()
        again = stream_of(run, bearer, hub)
        statuses.append(await again.head())
        for one in (mine[1], theirs, again):
            await one.leave()
        return [statuses, *refused]

    assert play(story()) == [[200, 200, 429, 200, 200], "5", "throttled"]
    assert live.SEATS._taken == {}
    monkeypatch.setattr(auth.CallerThrottle, "THROTTLE_RATES", {"runs": "9/min", "reads": "4/min"})

    async def sixth() -> int:
        return await stream_of(run, bearer).head()

    assert play(sixth()) == 429  # this caller was counted four times above, the one without a seat too


def test_accept_chooses_between_page_and_stream(run: Run, bearer: str) -> None:
    ended(run)()

    async def kind(accept: str) -> str:
        asked = stream_of(run, bearer, Accept=accept)
        await asked.head()
        await asked.until_over()
        return asked.headers["content-type"]

    stream, page = "text/event-stream", "application/json"
    for accept, wanted in (
        ("text/event-stream", stream), ("Text/Event-Stream; q=0.9", stream), ("*/*", page), ("text/html", page),
        ("application/json, text/event-stream;q=0.5", page), ("text/event-stream;q=0", page),
        ("text/event-stream, application/json;q=0.2", stream), ("text/event-stream;q=x", page),
    ):  # fmt: skip
        assert play(kind(accept)) == wanted, accept


def test_stream_of_a_server_that_is_not_ours_goes_on_and_ends_too(run: Run, bearer: str) -> None:
    """Django's own development server, as the test client: one thread a stream, and the same words."""
    ended(run)()
    answer: Any = edge.client(bearer).get(f"{RUNS}/{run.pk}/events", headers={"Accept": "text/event-stream"})
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/event-stream")
    assert [e["seq"] for e in events(b"".join(answer.streaming_content).decode())] == [1, 2]
    whole = edge.client(bearer).head(f"{RUNS}/{run.pk}/events", headers={"Accept": "text/event-stream"})
    assert (whole.status_code, whole["Content-Type"], whole.content) == (200, "text/event-stream", b"")


# --- long polls -----------------------------------------------------------------------------------------------


def poll_of(run: Run, bearer: str, seconds: int = 20, **headers: Any) -> Asked:
    return Asked(f"{RUNS}/{run.pk}", query=f"wait={seconds}", Authorization=f"Bearer {bearer}", **headers)


def etag_of(run: Run, bearer: str) -> str:
    return str(edge.client(bearer).get(f"{RUNS}/{run.pk}")["ETag"])


@pytest.mark.parametrize("told", [True, False])
def test_long_poll_answers_as_soon_as_the_run_changes(run: Run, bearer: str, told: bool) -> None:
    known: dict[str, Any] = {"If_None_Match": etag_of(run, bearer)} if told else {}

    async def story() -> tuple[int, Json, str]:
        asked = poll_of(run, bearer, **known)
        head = asyncio.ensure_future(asked.head())
        await asyncio.sleep(QUIET_S)
        assert not head.done()
        await meanwhile(said(run, "hello"))
        return await head, json.loads(await asked.until_over()), asked.headers["etag"]

    status, body, etag = play(story())
    assert (status, etag) == (200, etag_of(run, bearer))
    assert body == edge.client(bearer).get(f"{RUNS}/{run.pk}").json()


def test_long_poll_answers_when_its_time_is_over(run: Run, bearer: str) -> None:
    async def story(**headers: Any) -> tuple[int, str]:
        asked = poll_of(run, bearer, 1, **headers)
        return await asked.head(), await asked.until_over()

    assert play(story(If_None_Match=etag_of(run, bearer))) == (304, "")
    status, text = play(story())
    assert (status, json.loads(text)["run_id"]) == (200, str(run.pk))


def test_long_poll_answers_at_once_where_the_client_knows_another_state_or_the_end(run: Run, bearer: str) -> None:
    async def story(**headers: Any) -> int:
        return await poll_of(run, bearer, 20, **headers).head()

    assert play(story(If_None_Match='"other"')) == 200
    ended(run)()
    assert play(story()) == 200


def test_long_poll_sees_a_decision_before_the_run_does(bearer: str) -> None:
    from approvals.models import Approval
    from tests import approving

    row = approving.run(request_id="req-decided")
    approval = Approval.objects.get(pk=approving.ask(row))
    Run.objects.filter(pk=row.pk).update(contract=Run.objects.get(pk=admitted(edge.client(bearer))["run_id"]).contract)
    lead = approving.person()

    async def story() -> Json:
        asked = poll_of(row, bearer)
        head = asyncio.ensure_future(asked.head())
        await asyncio.sleep(QUIET_S)
        await meanwhile(lambda: approving.decide(approval, lead))
        assert await head == 200
        found: Json = json.loads(await asked.until_over())
        return found

    assert play(story())["approval"]["status"] == "approved"


def test_long_poll_is_counted_once_and_stops_for_a_token_that_was_taken_back(
    run: Run, bearer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth.CallerThrottle, "THROTTLE_RATES", {"runs": "1/min", "reads": "1/min"})

    async def story() -> tuple[int, str]:
        asked = poll_of(run, bearer)
        head = asyncio.ensure_future(asked.head())
        await asyncio.sleep(QUIET_S)
        await meanwhile(lambda: Event.objects.filter(run=run).count())
        await meanwhile(lambda: ServiceToken.objects.all().delete() and User.objects.filter(is_staff=False).delete())
        await meanwhile(said(run, "hello"))
        return await head, json.loads(await asked.until_over())["type"]

    assert play(story()) == (401, "invalid-credentials")


def test_long_poll_whose_client_left_leaves_nothing_behind(run: Run, bearer: str) -> None:
    async def story() -> Hub:
        asked = poll_of(run, bearer)
        head = asyncio.ensure_future(asked.head())
        await asyncio.sleep(QUIET_S)
        head.cancel()
        await asked.leave()
        return asked.hub

    assert play(story())._runs == {} and live.SEATS._taken == {}


@pytest.mark.parametrize("wait", ["21", "-1", "x", "1.5", ""])
def test_wait_that_is_none_is_400(run: Run, bearer: str, wait: str) -> None:
    answer = edge.client(bearer).get(f"{RUNS}/{run.pk}", {"wait": wait})
    assert (answer.status_code, edge.pointers(answer)) == (400, ["/wait"])
