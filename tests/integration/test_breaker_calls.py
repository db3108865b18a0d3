"""Reads, look-ups and the write behind the circuit breaker: what opens it, and that nothing is asked while open."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from agentsite import clock
from agentsite.canonical import canonical_text
from agentsite.money import Money
from tests.breakers import COOL_S, N, allowed, fail, shortened, state, time_goes_by
from tests.loopback import Answer, Loopback, closed_port, ok, raw, reset, slow
from tools import breaker, dispatcher, facts
from tools.contracts import Backend, Json, ReadCall, Release, Scope, SentMark, action_hash
from tools.errors import NobodyThere, ReadFailed, UpstreamUnavailable

ORDERS, PAYMENTS, REFUNDS = "/v1/orders/", "/v1/payments", "/v1/refunds"
INR_2000 = {"amount": "2000.00", "currency": "INR"}
ORDER: Json = {"order_id": "8472", "customer_id": "cust_5521", "total": INR_2000, "status": "delivered", "note": ""}
ARGS: Json = {"order_id": "8472", "payment_id": "pay_9002", "amount": INR_2000, "reason": "charged twice"}
DOWN = ok({}, 503)
SCOPE = Scope(
    tenant_id="t_acme_in", run_id="run_1", request_id="req-8472", trace_id="trace-1", customer_id="cust_5521",
    order_ids=("8472",), read_tools=("get_order", "get_payments", "search_policy"), write_tools={},
    policy_pin="POL-REF-004@v4", aggregates={}, created_by="client",
)  # fmt: skip


@pytest.fixture
def periods() -> Iterator[pytest.MonkeyPatch]:
    with shortened() as patch:
        yield patch


@pytest.fixture
def server(db: None, periods: pytest.MonkeyPatch) -> Iterator[Loopback]:
    with Loopback() as running:
        running.on(ORDERS, ok(ORDER))
        running.on(PAYMENTS, ok({"payments": []}))
        running.on(REFUNDS, ok({"refunds": []}))
        yield running


@pytest.fixture
def backend(server: Loopback) -> Backend:
    return Backend(
        tenant_id="t_acme_in", url=server.url, read_token_env="T_READ", write_token_env="T_WRITE", honours_keys=True,
        key_life_s=86_400, settle_s=30,
    )  # fmt: skip


def read(backend: Backend) -> str:
    """What one read of the order came to."""
    try:
        return facts.read_order(backend, "8472", "trace-1", retries=0).order_id
    except ReadFailed as error:
        return error.slug


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_of_a_read_is_carried_and_the_read_not_repeated(
    server: Loopback, backend: Backend, status: int
) -> None:
    server.on(ORDERS, ok({}, status, more=(("Retry-After", "7"),)))
    with pytest.raises(UpstreamUnavailable) as raised:
        facts.read_order(backend, "8472", "trace-1")
    assert (raised.value.slug, raised.value.retry_after_s, len(server.calls)) == ("upstream_unavailable", 7.0, 1)
    with pytest.raises(UpstreamUnavailable) as raised:
        facts.read_order(backend, "8472", "trace-1")
    left_s = raised.value.retry_after_s
    assert raised.value.slug == "breaker_open" and left_s is not None and 5 < left_s <= 7
    assert len(server.calls) == 1


def test_every_call_fails_fast_while_open_and_nothing_is_asked(server: Loopback, backend: Backend) -> None:
    server.on(ORDERS, DOWN)
    assert [read(backend) for _ in range(N)] == ["upstream_unavailable"] * N
    before, started = len(server.calls), time.monotonic()
    for call in (
        lambda: facts.read_order(backend, "8472", "trace-1"),
        lambda: facts.read_payments(backend, "8472", "trace-1"),
        lambda: facts.read_refunds(backend, "8472", "trace-1"),
        lambda: facts.read_facts(backend, "8472", "trace-1", own=(), epoch=0),
        lambda: dispatcher.look_up(backend, "8472", "trace-1"),
    ):
        with pytest.raises(UpstreamUnavailable) as raised:
            call()
        assert raised.value.slug == "breaker_open" and 3 < (raised.value.retry_after_s or 0) <= COOL_S
    assert not dispatcher.can_write(release(backend), backend)
    assert (len(server.calls), time.monotonic() - started < 1) == (before, True)


def test_reads_of_a_turn_are_typed_results_while_open_and_policy_is_found_all_the_same(
    server: Loopback, backend: Backend
) -> None:
    server.on(ORDERS, DOWN)
    for _ in range(N):
        read(backend)
    calls = (
        ReadCall(call_id="a", tool="get_order", args={"order_id": "8472"}),
        ReadCall(call_id="b", tool="search_policy", args={"query": "duplicate"}),
        ReadCall(call_id="c", tool="get_payments", args={"order_id": "9999"}),
    )
    before = len(server.calls)
    order, policy, other = dispatcher.run_reads(SCOPE, backend, calls, {"search_policy": lambda query: []})
    assert order.content == {"error": "breaker_open", "retryable": True, "tool": "get_order"}
    assert (order.ok, order.retryable) == (False, True) and 3 < (order.retry_in_s or 0) <= COOL_S
    assert (policy.ok, policy.content) == (True, {"passages": []})
    assert (other.content["error"], other.retryable) == ("order_out_of_scope", False)
    assert len(server.calls) == before


OUTAGES: dict[str, Answer] = {
    "503": DOWN, "500": ok({}, 500), "429": ok({}, 429), "408": ok({}, 408), "reset": reset, "timeout": slow(1, DOWN),
}  # fmt: skip
ANSWERS: dict[str, Answer] = {
    "404": ok({}, 404), "401": ok({}, 401), "403": ok({}, 403), "400": ok({}, 400), "garbage": raw(b"<html>"),
    "empty": raw(b""), "busy": ok({"error": "busy"}),
}  # fmt: skip


@pytest.mark.parametrize("answer", OUTAGES.values(), ids=OUTAGES)
def test_outages_open(server: Loopback, backend: Backend, answer: Answer) -> None:
    server.on(ORDERS, answer)
    assert [read(backend) for _ in range(N + 1)] == [*["upstream_unavailable"] * N, "breaker_open"]


def test_nobody_listening_opens(backend: Backend) -> None:
    nobody = replace(backend, url=closed_port())
    assert [read(nobody) for _ in range(N + 1)] == [*["upstream_unavailable"] * N, "breaker_open"]


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_answers_of_any_other_kind_do_not_open_and_begin_the_count_anew(
    server: Loopback, backend: Backend, answer: Answer
) -> None:
    server.on(ORDERS, answer)
    assert "breaker_open" not in [read(backend) for _ in range(N + 2)]
    server.on(ORDERS, *[DOWN] * (N - 1), answer, *[DOWN] * (N - 1), answer)
    assert "breaker_open" not in [read(backend) for _ in range(2 * N + 1)]


def test_a_missing_credential_is_nobodys_failure_and_keeps_no_probe(
    server: Loopback, backend: Backend, periods: pytest.MonkeyPatch
) -> None:
    account = breaker.account_of(backend.tenant_id, backend.url)
    fail(account=account)
    time_goes_by(COOL_S)
    periods.delenv("T_READ")
    assert read(backend) == "credential_missing"
    with pytest.raises(ReadFailed):
        facts.read_facts(backend, "8472", "trace-1", own=(), epoch=0)
    assert (state(account), server.calls) == (("half_open", N), [])
    assert allowed(account).probe


def test_a_step_of_several_reads_is_one_report_and_one_answer_among_them_is_an_answer(
    server: Loopback, backend: Backend
) -> None:
    account = breaker.account_of(backend.tenant_id, backend.url)
    for path in (ORDERS, PAYMENTS, REFUNDS):
        server.on(path, DOWN)
    with pytest.raises(UpstreamUnavailable):
        facts.read_facts(backend, "8472", "trace-1", own=(), epoch=0, retries=0)
    assert state(account) == ("closed", 1)
    server.on(ORDERS, ok(ORDER))
    for _ in range(N):
        with pytest.raises(UpstreamUnavailable):
            facts.read_facts(backend, "8472", "trace-1", own=(), epoch=0, retries=0)
    assert state(account) == ("closed", 0)


def test_a_step_of_a_turn_probes_once_for_all_its_reads(server: Loopback, backend: Backend) -> None:
    account = breaker.account_of(backend.tenant_id, backend.url)
    fail(account=account)
    time_goes_by(COOL_S)
    tools = ("get_order", "get_payments")
    calls = tuple(ReadCall(call_id=tool, tool=tool, args={"order_id": "8472"}) for tool in tools)
    results = dispatcher.run_reads(SCOPE, backend, calls, {"search_policy": lambda query: []})
    assert [r.ok for r in results] == [True, True]
    assert (state(account), len(server.calls)) == (("closed", 0), 2)


def release(backend: Backend) -> Release:
    key = "t_acme_in/req-8472:issue_refund:pay_9002"
    hashed = action_hash(tenant_id="t_acme_in", run_id="run_1", tool="issue_refund", args=ARGS, policy="POL-REF-004@v4")
    return Release(
        tenant_id="t_acme_in", run_id="run_1", request_id="req-8472", trace_id="trace-1", tool="issue_refund",
        args=ARGS, policy="POL-REF-004@v4", action_hash=hashed, key=key, approval_id="A-2291", decision_id="d_1",
        order_id="8472", payment_id="pay_9002", amount=Money(minor=200_000, currency="INR"),
        body=canonical_text({**ARGS, "approval_id": "A-2291", "metadata": {"run_id": "run_1"}}), epoch=1,
        customer_limit=None, tenant_limit=None, origin=backend.url,
    )  # fmt: skip


def test_a_write_is_never_the_probe(server: Loopback, backend: Backend) -> None:
    account = breaker.account_of(backend.tenant_id, backend.url)
    assert dispatcher.can_write(release(backend), backend)
    fail(account=account)
    time_goes_by(COOL_S)
    assert state(account) == ("half_open", N)
    assert not dispatcher.can_write(release(backend), backend)
    assert dispatcher.look_up(backend, "8472", "trace-1") == ()
    assert dispatcher.can_write(release(backend), backend)


@pytest.mark.parametrize(
    ("answer", "slug"),
    [(DOWN, "http_503"), (ok({}, 429), "http_429"), (reset, "connection"), (slow(1, DOWN), "timeout")],
)
def test_a_write_that_reached_nobody_counts_as_an_outage(
    server: Loopback, backend: Backend, answer: Answer, slug: str
) -> None:
    server.on(REFUNDS, answer)
    with pytest.raises(NobodyThere) as raised:
        mark = SentMark(attempt=1, marked_at=clock.monotonic(), window_s=5)
        dispatcher.run_write(release(backend), mark, backend)
    assert raised.value.slug == slug
    assert state(breaker.account_of(backend.tenant_id, backend.url)) == ("closed", 1)


def test_a_write_told_to_come_later_keeps_reads_and_writes_back(server: Loopback, backend: Backend) -> None:
    server.on(REFUNDS, ok({}, 429, more=(("Retry-After", "30"),)))
    with pytest.raises(NobodyThere):
        mark = SentMark(attempt=1, marked_at=clock.monotonic(), window_s=5)
        dispatcher.run_write(release(backend), mark, backend)
    assert read(backend) == "breaker_open" and not dispatcher.can_write(release(backend), backend)
    server.on(REFUNDS, ok({"refunds": []}))
    time_goes_by(COOL_S)
    assert dispatcher.look_up(backend, "8472", "trace-1") == ()
    assert read(backend) == "breaker_open" and not dispatcher.can_write(release(backend), backend)
