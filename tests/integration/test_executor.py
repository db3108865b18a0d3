"""The executor: what it refuses before a socket opens, and that it never sends twice."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from agentsite import clock, env
from agentsite.canonical import canonical_text
from agentsite.money import Money
from tests.loopback import Answer, Loopback, dripped, ok, raw, reset, slow
from tools import dispatcher, executor
from tools.contracts import (
    Backend,
    Json,
    Release,
    SentMark,
    WriteAnswer,
    action_hash,
)
from tools.errors import OutcomeUnknown, Refused, ToolError
from tools.executor import TamperedRelease

pytestmark = pytest.mark.django_db  # what went wrong is told to the breaker
REFUNDS = "/v1/refunds"
ARGS: Json = {
    "order_id": "8472",
    "payment_id": "pay_9002",
    "amount": {"amount": "2000.00", "currency": "INR"},
    "reason": "charged twice",
}
REFUND: Json = {
    "refund_id": "rf_3301",
    "payment_id": "pay_9002",
    "order_id": "8472",
    "state": "succeeded",
    "amount": ARGS["amount"],
    "idempotency_key": "k",
    "metadata": {"run_id": "run_1"},
    "created_at": "2026-11-29T12:00:00Z",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    settings = {"CALL_TIMEOUT_S": "2", "WRITE_TIMEOUT_S": "1", "T_READ": "r-1", "T_WRITE": "w-1"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    env.read.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    env.read.cache_clear()


@pytest.fixture
def server() -> Iterator[Loopback]:
    with Loopback() as running:
        yield running


@pytest.fixture
def backend(server: Loopback) -> Backend:
    return Backend(
        tenant_id="t_acme_in",
        url=server.url,
        read_token_env="T_READ",
        write_token_env="T_WRITE",
        honours_keys=True,
        key_life_s=86_400,
        settle_s=30,
    )


def release(**changes: Any) -> Release:
    hashed = action_hash(tenant_id="t_acme_in", run_id="run_1", tool="issue_refund", args=ARGS, policy="POL-REF-004@v4")
    ticket = Release(
        tenant_id="t_acme_in",
        run_id="run_1",
        request_id="req-8472",
        trace_id="trace-1",
        tool="issue_refund",
        args=ARGS,
        policy="POL-REF-004@v4",
        action_hash=hashed,
        key="t_acme_in/req-8472:issue_refund:pay_9002",
        approval_id="A-2291",
        decision_id="d_1",
        order_id="8472",
        payment_id="pay_9002",
        amount=Money(minor=200_000, currency="INR"),
        body=canonical_text({**ARGS, "approval_id": "A-2291", "metadata": {"run_id": "run_1"}}),
        epoch=1,
        customer_limit=None,
        tenant_limit=None,
        origin="",
    )
    return replace(ticket, **changes)


def sent(ticket: Release, mark: SentMark, backend: Backend) -> WriteAnswer:
    """Executes a release made for this very backend."""
    return executor.execute(replace(ticket, origin=backend.url), mark, backend)


def mark(window_s: float = 5, age_s: float = 0) -> SentMark:
    return SentMark(attempt=1, marked_at=clock.monotonic() - age_s, window_s=window_s)


def posts(server: Loopback) -> int:
    return sum(c.method == "POST" for c in server.calls)


def test_run_write_sends_the_frozen_body_once_with_the_write_credential(server: Loopback, backend: Backend) -> None:
    server.on(REFUNDS, ok(REFUND, 201))
    ticket = release(origin=backend.url)
    answer = dispatcher.run_write(ticket, mark(), backend)
    assert (answer.refund.refund_id, answer.replayed, posts(server)) == ("rf_3301", False, 1)
    sent = server.calls[0]
    assert sent.body == ticket.body.encode()
    assert sent.headers["authorization"] == "Bearer w-1"
    assert sent.headers["idempotency-key"] == "t_acme_in/req-8472:issue_refund:pay_9002"
    assert sent.headers["x-trace-id"] == "trace-1"


def changed(**changes: Any) -> Json:
    return {**ARGS, **changes}


FIFTY_THOUSAND = {"amount": "50000.00", "currency": "INR"}
TAMPERED: dict[str, Release] = {
    "arguments": release(args=changed(amount=FIFTY_THOUSAND)),
    "reason": release(args=changed(reason="charged once")),
    "hash": release(action_hash="sha256:" + "0" * 64),
    "run": release(run_id="run_2"),
    "policy": release(policy="POL-REF-004@v5"),
    "tool": release(tool="get_order"),
    "order": release(order_id="8473"),
    "payment": release(payment_id="pay_9001"),
    "amount": release(amount=Money(minor=5_000_000, currency="INR")),
    "currency": release(amount=Money(minor=200_000, currency="USD")),
    "key": release(key="t_acme_in/req-8472:issue_refund:pay_9002:2"),
    "body's amount": release(body=json.dumps(changed(amount=FIFTY_THOUSAND))),
    "body's spelling": release(body=json.dumps(changed(amount={"amount": "2000", "currency": "INR"}))),
    "body's payment": release(body=json.dumps(changed(payment_id="pay_9001"))),
    "body's order": release(body=json.dumps(changed(order_id="8473"))),
    "body's reason": release(body=json.dumps(changed(reason="else"))),
    "body that reads in two ways": release(body='{"order_id": "1", ' + json.dumps(ARGS)[1:]),
    "body of garbage": release(body="[]"),
    "tenant": release(tenant_id="t_other"),
}


@pytest.mark.parametrize("ticket", TAMPERED.values(), ids=TAMPERED)
def test_execute_refuses_a_tampered_release_before_a_socket_opens(
    server: Loopback, backend: Backend, ticket: Release
) -> None:
    server.on(REFUNDS, ok(REFUND, 201))
    with pytest.raises(TamperedRelease):
        sent(ticket, mark(), backend)
    assert server.calls == []


def test_execute_refuses_the_backend_of_another_tenant(server: Loopback, backend: Backend) -> None:
    with pytest.raises(TamperedRelease):
        sent(release(), mark(), replace(backend, tenant_id="t_other"))
    assert server.calls == []


@pytest.mark.parametrize(("window_s", "age_s"), [(0.9, 0), (5, 4.5), (5, 60), (5, float("inf"))])
def test_execute_sends_nothing_late(server: Loopback, backend: Backend, window_s: float, age_s: float) -> None:
    server.on(REFUNDS, ok(REFUND, 201))
    with pytest.raises(OutcomeUnknown) as raised:
        sent(release(), mark(window_s, age_s), backend)
    assert (raised.value.slug, server.calls) == ("not_sent_in_time", [])


def test_execute_sends_in_the_last_moment_that_leaves_its_whole_timeout(server: Loopback, backend: Backend) -> None:
    server.on(REFUNDS, ok(REFUND, 201))
    assert sent(release(), mark(5, 3.5), backend).refund.refund_id == "rf_3301"


def test_execute_without_the_write_credential_sends_nothing(
    server: Loopback, backend: Backend, environment: pytest.MonkeyPatch
) -> None:
    environment.delenv("T_WRITE")
    with pytest.raises(OutcomeUnknown) as raised:
        sent(release(), mark(), backend)
    assert (raised.value.slug, server.calls) == ("credential_missing", [])


@pytest.mark.parametrize(
    ("answer", "error", "slug"),
    [
        (ok({}, 503), OutcomeUnknown, "http_503"),
        (reset, OutcomeUnknown, "connection"),
        (raw(b"", 201), OutcomeUnknown, "bad_answer"),
        (slow(1.5, ok(REFUND, 201)), OutcomeUnknown, "timeout"),
        (dripped(REFUND, every_s=0.1), OutcomeUnknown, "timeout"),
        (ok({"error": "idempotency-key-reused"}, 409), OutcomeUnknown, "key_conflict"),
        (ok({"error": "facts-changed"}, 409), Refused, "facts_changed"),
        (ok({"error": "amount-exceeds-remaining"}, 422), Refused, "amount_exceeds_remaining"),
    ],
)
def test_execute_never_sends_twice_whatever_comes_back(
    server: Loopback, backend: Backend, answer: Answer, error: type[ToolError], slug: str
) -> None:
    server.on(REFUNDS, answer)
    started = time.monotonic()
    with pytest.raises(error) as raised:
        sent(release(), mark(), backend)
    assert time.monotonic() - started < 1.4
    time.sleep(0.05)
    assert (raised.value.slug, posts(server)) == (slug, 1)


def test_executes_side_by_side_send_one_request_each(server: Loopback, backend: Backend) -> None:
    server.on(REFUNDS, ok(REFUND, 201))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: sent(release(), mark(), backend), range(24)))
    assert (len(answers), posts(server)) == (24, 24)


def test_release_for_another_business_system_is_not_sent(server: Loopback, backend: Backend) -> None:
    elsewhere = replace(release(), origin="https://old.example")
    with pytest.raises(executor.TamperedRelease):
        executor.execute(elsewhere, mark(), backend)
    assert posts(server) == 0
