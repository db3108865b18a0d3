"""What clients, receivers and customers can do to the doors they are let in by, and what it may not do to others."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ipaddress
import itertools
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpcore
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connections
from django.test import Client

from agentsite import addresses, env
from agentsite.lanes import Lanes
from runs import delivery, store
from runs.api import auth, live, looks
from runs.api.hub import Hub
from runs.customer import links
from runs.models import Attachment, Event, Input, Run, Webhook
from tests import edge
from tests.edge import RUNS, admitted, post
from tests.loopback import Loopback, ok, slow
from tests.world import World
from tools.adapters import http

Json = dict[str, Any]
STUCK_S = 20
PATH = "/api/v1/runs/0190/events"


def _scope() -> Json:
    return {
        "type": "http", "method": "GET", "path": PATH, "query_string": b"",
        "headers": [(b"accept", b"application/json, text/event-stream;q=0.1")],
    }  # fmt: skip


async def _large_answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x" * 1_000_000})


def _asked() -> Callable[[], Awaitable[Json]]:
    """A client that sent its request and stays."""
    messages = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Json:
        return messages.pop() if messages else await asyncio.Event().wait()  # type: ignore[return-value]

    return receive


@pytest.mark.any_database
def test_clients_that_do_not_read_their_answer_keep_nobody_else_from_one() -> None:
    async def never(message: Any) -> None:
        await asyncio.Event().wait()

    async def story() -> list[Any]:
        app, got = live.following(_large_answer, Hub()), list[Any]()

        async def keeps(message: Any) -> None:
            got.append(message)

        idle = [asyncio.ensure_future(app(_scope(), _asked(), never)) for _ in range(live.AT_ONCE)]
        await asyncio.sleep(0.05)
        try:
            await asyncio.wait_for(app(_scope(), _asked(), keeps), STUCK_S / 4)
        finally:
            for one in idle:
                one.cancel()
        return got

    assert [message["type"] for message in asyncio.run(story())] == ["http.response.start", "http.response.body"]


@pytest.mark.any_database
def test_request_that_was_given_up_takes_no_seat_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that left ends the request at once; the thread that answers it may be a moment behind."""
    seats = live.Seats()
    monkeypatch.setattr(live, "SEATS", seats)
    slot = live.Slot()
    slot.leave()
    late = threading.Thread(target=slot.sit, args=("user:1",))
    late.start()
    late.join(STUCK_S)
    assert not seats._taken


@pytest.mark.any_database
def test_body_of_very_many_parts_is_refused_before_it_is_read(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Megabytes of brackets would be read for many seconds, in which this process answers nobody."""
    edge.tenant()
    shop = edge.client(edge.token())
    for part in ("[]", "1", '"a"', '{"a":1}'):
        parts = ",".join([part] * (auth.MAX_PIECES + 1))
        answer = post(shop, RUNS, f'{{"request_id":"req-1","goal":"hi","actor":[{parts}]}}')
        assert (answer.status_code, answer.json()["type"]) == (400, "malformed-body"), answer.json()
        assert "too many parts" in answer.json()["detail"]
    assert not Run.objects.exists()


def test_run_takes_only_so_many_files_over_all_its_messages(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer names every file of a run, and nobody may fill the database with one link."""
    monkeypatch.setattr("runs.store.admit.MAX_RUN_FILES", 3)
    edge.tenant()
    shop = edge.client(edge.token())
    run = Run.objects.get(pk=admitted(shop, attachments=[_file(), _file()])["run_id"])
    path = f"{RUNS}/{run.pk}/messages"
    two = {"text": "Here.", "message_id": "m1", "attachments": [_file(), _file()]}
    answer = post(shop, path, two)
    assert (answer.status_code, answer.json()["type"]) == (409, "too-many-files")
    assert post(shop, path, {**two, "attachments": [_file()]}).status_code == 202
    assert post(shop, path, {**two, "attachments": [_file()]}).status_code == 202, "the same message again"
    page = Client()
    here = links.url(run.pk, run.created_at).removeprefix(env.read().public_url)
    sent = {"text": "And this.", "form": links.form(run.pk, "m2"), "files": [SimpleUploadedFile("a.txt", b"a")]}
    refused = page.post(f"{here}message/", sent)
    assert (refused.status_code, "No more files" in refused.text, "And this." in refused.text) == (409, True, True)
    assert page.post(f"{here}message/", {**sent, "files": []}).status_code == 303
    assert (Attachment.objects.count(), Input.objects.count()) == (3, 2)


def _file() -> Json:
    return {
        "name": "a.txt", "media_type": "text/plain", "content_base64": base64.b64encode(b"a").decode(),
        "sha256": hashlib.sha256(b"a").hexdigest(),
    }  # fmt: skip


@pytest.mark.parametrize("address", ["fec0::1", "feff::7"])
@pytest.mark.any_database
def test_address_of_one_site_is_not_public(address: str) -> None:
    assert not addresses.public(ipaddress.ip_address(address))
    assert addresses.fault(f"https://[{address}]/") == "names a private host"


def test_receiver_that_takes_its_time_and_takes_it_is_slow_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else two hosts that answer just in time hold every lane, and everybody else's webhooks wait."""
    monkeypatch.setattr(delivery, "_lanes", lanes := Lanes(most=4, each=2))
    monkeypatch.setattr(delivery, "SLOW_S", 0.2)
    world.settings(WEBHOOK_PRIVATE_HOSTS="127.0.0.1")
    with Loopback() as server:
        server.on("/", slow(0.4, ok({})))
        world.start(callback_url=server.url + "/hooks")
        assert delivery.deliver() == 1
        place = addresses.place(server.url)
        with lanes.call(lambda shut: place, str):
            assert place in lanes.shut()
        assert Webhook.objects.get().state == "delivered"
        server.on("/", ok({}))
        world.start("req-2", callback_url=server.url + "/hooks")
        assert delivery.deliver() == 1
        with lanes.call(lambda shut: place, str):
            assert place not in lanes.shut()


def test_who_may_only_look_at_a_run_gets_no_link_to_speak_as_its_customer(db: None) -> None:
    edge.tenant()
    run_id = admitted(edge.client(edge.token()))["run_id"]
    auditor = edge.staff_client("ann", "t_acme_in")
    operator = edge.staff_client("oli", "t_acme_in", permissions=("operate_run",), csrf=False)
    reader = edge.client(edge.token(name="reader", scopes="runs:read"))
    for one in (auditor, operator, reader):
        assert one.get(f"{RUNS}/{run_id}").json()["customer_url"] is None
        assert [run["customer_url"] for run in one.get(RUNS).json()["results"]] == [None]
    assert post(operator, f"{RUNS}/{run_id}/cancel").json()["customer_url"] is None
    writer = edge.client(edge.token(name="writer", scopes="runs:read,runs:write"))
    link = writer.get(f"{RUNS}/{run_id}").json()["customer_url"]
    assert "/c/" in link and [run["customer_url"] for run in writer.get(RUNS).json()["results"]] == [link]


@pytest.mark.any_database
def test_replay_holds_little_at_once_and_leaves_nothing_out(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that asks for a stream and does not read it holds a page of it; a thousand of them hold a thousand."""
    edge.tenant()
    shop = edge.client(edge.token())
    run_id = admitted(shop)["run_id"]
    for number in range(30):
        store.append_input(run_id, kind="message", message_id=f"m{number}", text="\u0939" * 5_000, by="user:1")
    seen, more, pages = list[int](), True, 0
    while more:
        page, more = looks.replay(run_id, seen[-1] if seen else 0)
        assert sum(len(frame.text) for frame in page) <= looks.PAGE_BYTES
        seen, pages = [*seen, *(frame.seq for frame in page)], pages + 1
    assert seen == list(Event.objects.filter(run=run_id).order_by("seq").values_list("seq", flat=True))
    assert pages > 3
    monkeypatch.setattr(looks, "PAGE_BYTES", 10)
    assert [len(looks.replay(run_id, after)[0]) for after in (0, seen[-2], seen[-1])] == [1, 1, 0]
    streamed: Any = shop.get(f"{RUNS}/{run_id}/events", headers={"Accept": "text/event-stream"})
    told = b""
    while told.count(b"\nid: ") < len(seen):
        told += b"".join(itertools.islice(streamed.streaming_content, 1))
    assert f"id: {seen[-1]}\n".encode() in told


def test_tenant_with_a_new_host_each_time_leaves_the_others_a_way(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No host of his was ever slow before, so that lanes by host alone would give him every worker."""
    monkeypatch.setattr(delivery, "_lanes", copied(delivery._lanes))
    world.settings(WEBHOOK_PRIVATE_HOSTS="127.0.0.1", WEBHOOK_TIMEOUT_S="60")
    let_go = threading.Event()
    with ExitStack() as servers:
        hung = [servers.enter_context(Loopback()) for _ in range(delivery.WORKERS)]
        for number, server in enumerate(hung):
            server.on("/", lambda wire: (let_go.wait(60), ok({})(wire))[1])
            world.start(f"req-hung-{number}", callback_url=server.url + "/hooks")
        fine = servers.enter_context(Loopback())
        fine.on("/", ok({}))
        other = world.start("req-fine", callback_url=fine.url + "/hooks")
        Webhook.objects.filter(run=other).update(tenant_id="t_other")
        with ThreadPoolExecutor(delivery.WORKERS) as pool:
            for _ in range(delivery.WORKERS):
                pool.submit(_pump)
            limit = time.monotonic() + STUCK_S
            while not fine.calls and time.monotonic() < limit:
                time.sleep(0.02)
            arrived = len(fine.calls)
            let_go.set()
    assert (arrived, set(Webhook.objects.values_list("state", flat=True))) == (1, {"delivered"})


def copied(lanes: Lanes) -> Lanes:
    return Lanes(most=delivery.WORKERS, each=delivery.EACH_HOST, owner=lanes._owner)


def _pump() -> int:
    try:
        return delivery.deliver()
    finally:
        connections.close_all()


@pytest.mark.parametrize("charset", ["rot13", "hex", "idna", "no-such"])
def test_form_in_a_charset_that_is_no_text_is_refused_as_any_other_that_cannot_be_read(db: None, charset: str) -> None:
    edge.tenant()
    run = Run.objects.get(pk=admitted(edge.client(edge.token()))["run_id"])
    form = b'--b\r\nContent-Disposition: form-data; name="text"\r\n\r\nhello\r\n--b--\r\n'
    here = links.url(run.pk, run.created_at).removeprefix(env.read().public_url)
    for what in ("message", "feedback"):
        kind = f"multipart/form-data; charset={charset}; boundary=b"
        answer = Client(raise_request_exception=False).generic("POST", f"{here}{what}/", form, content_type=kind)
        assert answer.status_code == 400
    assert not Input.objects.exists()


@pytest.mark.any_database
def test_zone_whose_servers_never_answer_keeps_no_other_name_from_being_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    let_go, really = threading.Event(), socket.getaddrinfo

    def lame(host: str, *more: Any, **named: Any) -> Any:
        return let_go.wait(STUCK_S) if host.endswith(".lame") else really(host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", lame)
    try:
        for number in range(20):
            with pytest.raises(httpcore.ConnectTimeout):
                http._looked_up(f"n{number}.lame", 443, 0.01)
        assert http._looked_up("127.0.0.1", 443, STUCK_S / 4) == ["127.0.0.1"]
    finally:
        let_go.set()
