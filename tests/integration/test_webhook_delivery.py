"""Webhooks are delivered at least once, in a run's order, signed; a receiver that hangs or lies hurts itself alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.db import connections
from standardwebhooks.webhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from agentsite import env, queues
from agentsite.lanes import Lanes
from runs import delivery, signing, sweeper
from runs.models import Delivery, Run, Webhook
from runs.store import parcels
from tests import hints
from tests.between import ago, put_back
from tests.loopback import Answer, Call, Loopback, closed_port, cut, ok, raw, reset, slow
from tests.world import TENANT, World

GOOD = ok({"received": True})


@pytest.fixture
def receiver(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """A receiver on this host, which the site names as one that may be called."""
    world.settings(WEBHOOK_PRIVATE_HOSTS="127.0.0.1", WEBHOOK_TIMEOUT_S="2")
    monkeypatch.setattr(delivery, "_lanes", Lanes(most=delivery.WORKERS, each=delivery.EACH_HOST))
    with Loopback() as server:
        server.on("/", GOOD)
        yield server
    hints.thrown_away(queues.MAINTENANCE)


def waiting(world: World, url: str, request_id: str = "req-8472") -> Run:
    """A run with one webhook due: that it waits for an approval."""
    run = world.start(request_id, callback_url=url + "/hooks")
    assert run.status == "awaiting_approval"
    return run


def cancelled(world: World, url: str, request_id: str = "req-8472") -> Run:
    """A run with one webhook due: that it was cancelled, before anything else."""
    run = world.admit(request_id, callback_url=url + "/hooks")
    world.cancel(run)
    return world.resume(run, until="cancelled")


def hook(run: Run, number: int = 0) -> Webhook:
    return Webhook.objects.filter(run=run).order_by("seq")[number]


def due_now(run: Run) -> None:
    put_back(Webhook.objects.filter(run=run, state="due"), due_at=1)


def tries(row: Webhook) -> list[tuple[int, int | None, str]]:
    return list(Delivery.objects.filter(webhook=row).order_by("number").values_list("number", "status", "error"))


def verified(call: Call, key: str) -> Any:
    return Verifier(key).verify(call.body, call.headers)


# --- what arrives ----------------------------------------------------------------------------------------------


def test_webhook_arrives_signed_as_the_standard_says(world: World, receiver: Loopback) -> None:
    run = waiting(world, receiver.url)
    assert delivery.deliver() == 1
    [call], row = receiver.calls, hook(run)
    assert (call.method, call.target, call.headers["content-type"]) == ("POST", "/hooks", "application/json")
    assert (call.headers["webhook-id"], call.body.decode()) == (row.id, row.body)
    [key] = signing.keys(TENANT, "refunds")
    assert verified(call, key)["type"] == "run.awaiting_approval"
    with pytest.raises(WebhookVerificationError):
        Verifier(key).verify(call.body.replace(b"awaiting", b"xwaiting"), call.headers)
    assert (row.state, row.due_at, row.ended_at is not None, tries(row)) == ("delivered", None, True, [(1, 200, "")])
    assert (delivery.deliver(), len(receiver.calls)) == (0, 1)


def test_two_keys_make_two_signatures(world: World, receiver: Loopback) -> None:
    old, new = "whsec_" + "b2xk" * 8, "whsec_" + "bmV3" * 8
    world.settings(ACME_HOOK_KEY=f"{new}, {old}")
    world.profile(webhook_secret_env="ACME_HOOK_KEY")
    waiting(world, receiver.url)
    delivery.deliver()
    assert len(receiver.calls[0].headers["webhook-signature"].split()) == 2
    for key in (old, new):
        assert verified(receiver.calls[0], key)["data"]["tenant_id"] == TENANT
    with pytest.raises(WebhookVerificationError):
        verified(receiver.calls[0], "whsec_" + "b3RoZXI=" * 4)


@pytest.mark.parametrize(("value", "slug"), [("", "key_missing"), ("whsec_short", "key_malformed")])
def test_without_its_key_nothing_is_sent_under_another(world: World, receiver: Loopback, value: str, slug: str) -> None:
    world.settings(ACME_HOOK_KEY=value)
    world.profile(webhook_secret_env="ACME_HOOK_KEY")
    run = cancelled(world, receiver.url)
    delivery.deliver()
    assert (receiver.calls, tries(hook(run)), hook(run).state) == ([], [(1, None, slug)], "due")


def test_each_tenant_has_a_key_of_its_own_that_stays(world: World) -> None:
    first, other = signing.keys(TENANT, "refunds"), signing.keys("t_other", "refunds")
    assert first == signing.keys(TENANT, "refunds") != other
    assert first[0].startswith("whsec_") and len(first[0]) > 40


# --- what is tried again ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "status", "error"),
    [
        (ok({}, 500), 500, "refused"),
        (ok({}, 404), 404, "refused"),
        (ok({}, 302, (("Location", "https://elsewhere.example/"),)), 302, "redirected"),
        (reset, None, "cut_off"),
        (slow(1.5, GOOD), None, "too_slow"),
    ],
)
def test_what_is_not_taken_is_sent_again_under_the_same_id(
    world: World, receiver: Loopback, answer: Answer, status: int | None, error: str
) -> None:
    world.settings(WEBHOOK_TIMEOUT_S="1", WEBHOOK_FIRST_WAIT_S="30")
    receiver.on("/", answer, GOOD)
    run = cancelled(world, receiver.url)
    delivery.deliver()
    row = hook(run)
    assert (row.state, tries(row)) == ("due", [(1, status, error)])
    assert row.due_at is not None and ago(-20) < row.due_at < ago(-40)
    assert delivery.deliver() == 0
    due_now(run)
    delivery.deliver()
    ids = [call.headers["webhook-id"] for call in receiver.calls]
    assert ids == [row.id, row.id] and hook(run).state == "delivered"
    assert tries(row)[1] == (2, 200, "")


def test_nobody_there_is_tried_again(world: World, receiver: Loopback) -> None:
    run = cancelled(world, closed_port())
    delivery.deliver()
    assert (hook(run).state, tries(hook(run))) == ("due", [(1, None, "no_connection")])


def test_answer_that_is_too_long_or_cut_counts_by_its_head(world: World, receiver: Loopback) -> None:
    receiver.on("/", raw(b"x" * 3_000_000), cut({"much": "x" * 1000}))
    first, second = (cancelled(world, receiver.url, name) for name in ("req-1", "req-2"))
    delivery.deliver()
    assert (hook(first).state, hook(second).state) == ("delivered", "delivered")


def test_receiver_that_asks_for_time_gets_it(world: World, receiver: Loopback) -> None:
    world.settings(WEBHOOK_FIRST_WAIT_S="1")
    receiver.on("/", ok({}, 429, (("Retry-After", "600"),)))
    run = cancelled(world, receiver.url)
    delivery.deliver()
    due_at = hook(run).due_at
    assert due_at is not None and ago(-590) < due_at < ago(-610)


def test_gone_is_dead_at_once(world: World, receiver: Loopback) -> None:
    receiver.on("/", ok({}, 410))
    run = cancelled(world, receiver.url)
    delivery.deliver()
    assert (hook(run).state, hook(run).due_at, tries(hook(run))) == ("dead", None, [(1, 410, "refused")])


def test_waits_grow_to_hours_and_never_further(world: World) -> None:
    world.settings(WEBHOOK_FIRST_WAIT_S="5")
    for number, longest in ((1, 5), (2, 15), (5, 405), (9, 21_600), (100, 21_600)):
        waits = {delivery.wait_s(number) for _ in range(20)}
        assert len(waits) > 1 and all(0.8 * longest <= wait <= 1.2 * longest for wait in waits)


def test_last_try_leaves_a_dead_letter_and_the_next_of_the_run_goes_on(world: World, receiver: Loopback) -> None:
    world.settings(WEBHOOK_TRIES="2")
    receiver.on("/", ok({}, 500), ok({}, 500), GOOD)
    run = waiting(world, receiver.url)
    delivery.deliver()
    world.cancel(run)
    world.resume(run, until="cancelled")
    assert delivery.deliver() == 0  # the later one waits for the earlier one
    due_now(run)
    delivery.deliver()
    assert [hook(run, n).state for n in (0, 1)] == ["dead", "delivered"]
    assert [call.headers["webhook-id"] for call in receiver.calls] == [hook(run).id, hook(run).id, hook(run, 1).id]


def test_order_of_a_run_is_kept(world: World, receiver: Loopback) -> None:
    run = waiting(world, receiver.url)
    world.approve(run)
    world.resume(run, until="completed")
    assert delivery.deliver() == 2
    [key] = signing.keys(TENANT, "refunds")
    assert [verified(call, key)["type"] for call in receiver.calls] == ["run.awaiting_approval", "run.completed"]


# --- deaths and races ------------------------------------------------------------------------------------------


def test_worker_that_dies_after_the_answer_leaves_it_to_be_sent_again(
    world: World, receiver: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = cancelled(world, receiver.url)

    def dies(*args: object, **more: object) -> None:
        raise SystemExit("killed")

    with monkeypatch.context() as killed:
        killed.setattr(parcels, "delivered", dies)
        with pytest.raises(SystemExit):
            delivery.deliver()
    row = hook(run)
    assert (row.state, tries(row), delivery.deliver()) == ("due", [(1, None, "under_way")], 0)
    due_now(run)  # its lease is over
    assert delivery.deliver() == 1
    assert [call.headers["webhook-id"] for call in receiver.calls] == [row.id, row.id]
    assert (hook(run).state, tries(row)) == ("delivered", [(1, None, "under_way"), (2, 200, "")])


def test_two_workers_never_have_one_webhook(world: World, receiver: Loopback) -> None:
    runs = [cancelled(world, receiver.url, f"req-{n}") for n in range(6)]
    begin = threading.Barrier(3)
    with ThreadPoolExecutor(3) as pool:
        done = [pool.submit(_pump, begin) for _ in range(3)]
        made = sum(one.result(timeout=30) for one in done)
    made += delivery.deliver()
    assert (made, len(receiver.calls), {hook(run).state for run in runs}) == (6, 6, {"delivered"})


def test_late_failure_changes_nothing_for_who_has_it_now(world: World, receiver: Loopback) -> None:
    run = cancelled(world, receiver.url)
    first = parcels.claim(shut=(), lease_s=30)
    due_now(run)
    second = parcels.claim(shut=(), lease_s=30)
    assert first is not None and second is not None and (first.number, second.number) == (1, 2)
    assert not parcels.failed(first, status=500, error="refused", took_ms=1, wait_s=3600)
    due_at = hook(run).due_at
    assert due_at is not None and due_at < ago(-60)
    parcels.delivered(second, status=200, took_ms=1)
    assert (hook(run).state, tries(hook(run))) == ("delivered", [(1, 500, "refused"), (2, 200, "")])


def test_receiver_that_hangs_keeps_nobody_else_waiting(world: World, receiver: Loopback) -> None:
    """Many webhooks of one tenant hang; another tenant's arrive while they do."""
    world.settings(WEBHOOK_TIMEOUT_S="60")
    let_go = threading.Event()
    with Loopback() as hung:
        hung.on("/", lambda wire: (let_go.wait(60), GOOD(wire))[1])
        for n in range(6):
            cancelled(world, hung.url, f"req-hung-{n}")
        for n in range(3):
            cancelled(world, receiver.url, f"req-fine-{n}")
        with ThreadPoolExecutor(delivery.WORKERS) as pool:
            for _ in range(delivery.WORKERS):
                pool.submit(_pump)
            limit = time.monotonic() + 30
            while len(receiver.calls) < 3 and time.monotonic() < limit:
                time.sleep(0.02)
            arrived, meanwhile = len(receiver.calls), len(hung.calls)
            let_go.set()
    assert (arrived, set(Webhook.objects.values_list("state", flat=True))) == (3, {"delivered"})
    assert (meanwhile <= delivery.EACH_HOST, len(hung.calls)) == (True, 6)


def _pump(begin: threading.Barrier | None = None) -> int:
    try:
        if begin is not None:
            begin.wait()
        return delivery.deliver()
    finally:
        connections.close_all()


def calling(lanes: Lanes, place: str) -> AbstractContextManager[str | None]:
    return lanes.call(lambda shut: None if place in shut else place, str)


def test_slow_places_share_one_lane() -> None:
    lanes = Lanes(most=4, each=2)
    for place in ("a", "b"):
        lanes.was(place, slow=True)
    with calling(lanes, "a"):
        assert lanes.shut() == {"a", "b"}
    with calling(lanes, "c"), calling(lanes, "c"):
        assert lanes.shut() == {"c"}
    lanes.was("a", slow=False)
    with calling(lanes, "a"):
        assert lanes.shut() == set()
    with lanes.worker() as first, Lanes(most=0, each=1).worker() as none:
        assert (first, none) == (True, False)


def test_sweeper_asks_for_what_is_due_and_only_then(world: World, receiver: Loopback) -> None:
    run = cancelled(world, receiver.url)
    hints.thrown_away(queues.MAINTENANCE)  # its own hint was lost
    assert sweeper.sweep() is not None and queues.depth(queues.MAINTENANCE) == 1
    delivery.deliver()
    assert sweeper.sweep() is not None and queues.depth(queues.MAINTENANCE) == 1
    for _ in range(3 * sweeper.LATE_ROOM):  # nobody consumes: the queue does not grow for ever
        Webhook.objects.filter(run=run).update(state="due", due_at=ago(1))
        assert sweeper.sweep() is not None
    assert queues.depth(queues.MAINTENANCE) <= sweeper.LATE_ROOM + 1


# --- where it may go -------------------------------------------------------------------------------------------


def test_address_that_may_no_longer_be_called_is_not(world: World, receiver: Loopback) -> None:
    run = cancelled(world, receiver.url)
    world.settings(WEBHOOK_PRIVATE_HOSTS="")
    assert env.read().WEBHOOK_PRIVATE_HOSTS == []
    delivery.deliver()
    assert (receiver.calls, tries(hook(run))) == ([], [(1, None, "address_refused")])


def test_erased_webhook_is_dead_and_says_nothing(world: World, receiver: Loopback) -> None:
    run = cancelled(world, receiver.url)
    Webhook.objects.filter(run=run).update(body="")
    delivery.deliver()
    assert (receiver.calls, hook(run).state, tries(hook(run))) == ([], "dead", [(1, None, "erased")])
