"""The adapter of the business system against a server that does everything wrong: what is read."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr

from agentsite.money import Money
from tests.loopback import Answer, Loopback, closed_port, cut, dripped, ok, raw, reset, slow
from tools.adapters import commerce, http
from tools.contracts import Order, Payment, Refund
from tools.errors import AccessRefused, BadAnswer, NotFound, ReadFailed, UpstreamUnavailable

pytestmark = pytest.mark.any_database

TOKEN = SecretStr("read-token")
INR_2000 = {"amount": "2000.00", "currency": "INR"}
ORDER: dict[str, Any] = {
    "order_id": "8472",
    "customer_id": "cust_5521",
    "total": INR_2000,
    "amount_due": {"amount": "0.00", "currency": "INR"},
    "status": "delivered",
    "note": "",
}
PAYMENT: dict[str, Any] = {
    "payment_id": "pay_9002",
    "order_id": "8472",
    "state": "captured",
    "amount": INR_2000,
    "captured_at": "2026-11-01T10:00:41+05:30",
    "note": "second",
}
REFUND: dict[str, Any] = {
    "refund_id": "rf_3301",
    "payment_id": "pay_9002",
    "order_id": "8472",
    "state": "succeeded",
    "amount": INR_2000,
    "idempotency_key": "t/req:issue_refund:pay_9002",
    "metadata": {"run_id": "run_1"},
    "created_at": "2026-11-29T12:00:00.123456Z",
}
ORDERS, PAYMENTS, REFUNDS = "/v1/orders/", "/v1/payments", "/v1/refunds"


@pytest.fixture
def server() -> Iterator[Loopback]:
    with Loopback() as running:
        yield running


@pytest.fixture
def client() -> Iterator[http.Client]:
    made = http.Client()
    yield made
    made.close()


def order(client: http.Client, url: str, order_id: str = "8472", timeout_s: float = 5) -> Order:
    return commerce.get_order(client, url, TOKEN, order_id, "trace-1", timeout_s)


def payments(client: http.Client, url: str, timeout_s: float = 5) -> tuple[Payment, ...]:
    return commerce.get_payments(client, url, TOKEN, "8472", "trace-1", timeout_s)


def refunds(client: http.Client, url: str, timeout_s: float = 5) -> tuple[Refund, ...]:
    return commerce.get_refunds(client, url, TOKEN, "8472", "trace-1", timeout_s)


READS: list[tuple[str, Callable[[http.Client, str], Any]]] = [
    (ORDERS, order),
    (PAYMENTS, payments),
    (REFUNDS, refunds),
]
each_read = pytest.mark.parametrize(("path", "read"), READS, ids=["order", "payments", "refunds"])


def test_get_order_reads_every_field_and_sends_token_and_trace(server: Loopback, client: http.Client) -> None:
    server.on(ORDERS, ok({**ORDER, "unknown": [1, 2]}))
    assert order(client, server.url + "/") == Order(
        order_id="8472",
        customer_id="cust_5521",
        total=Money(minor=200_000, currency="INR"),
        amount_due=Money(minor=0, currency="INR"),
        status="delivered",
        note="",
    )
    call = server.calls[0]
    assert (call.method, call.target, call.body) == ("GET", "/v1/orders/8472", b"")
    assert (call.headers["authorization"], call.headers["x-trace-id"]) == ("Bearer read-token", "trace-1")
    assert call.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("absent", [{}, {"amount_due": None}])
def test_get_order_without_amount_due_still_costs_its_total(
    server: Loopback, client: http.Client, absent: dict[str, None]
) -> None:
    without = {name: value for name, value in ORDER.items() if name != "amount_due"}
    server.on(ORDERS, ok({**without, **absent}))
    assert order(client, server.url).amount_due == Money(minor=200_000, currency="INR")


@pytest.mark.parametrize(
    ("order_id", "target"),
    [("..", "%2E%2E"), ("a/../b", "a%2F%2E%2E%2Fb"), ("a:b@c", "a%3Ab%40c"), (".", "%2E")],
)
def test_get_order_never_leaves_its_path(server: Loopback, client: http.Client, order_id: str, target: str) -> None:
    server.on("/", ok({**ORDER, "order_id": order_id}))
    assert order(client, server.url, order_id).order_id == order_id
    assert server.targets() == [ORDERS + target]


def test_lists_ask_by_order_and_keep_every_field(server: Loopback, client: http.Client) -> None:
    server.on(PAYMENTS, ok({"payments": [PAYMENT]}))
    server.on(REFUNDS, ok({"refunds": [REFUND, {**REFUND, "refund_id": "rf_2", "idempotency_key": None}]}))
    assert payments(client, server.url) == (
        Payment(
            payment_id="pay_9002",
            order_id="8472",
            state="captured",
            amount=Money(minor=200_000, currency="INR"),
            captured_at="2026-11-01T04:30:41Z",
            note="second",
        ),
    )
    first, second = refunds(client, server.url)
    assert first == Refund(
        refund_id="rf_3301",
        payment_id="pay_9002",
        order_id="8472",
        state="succeeded",
        amount=Money(minor=200_000, currency="INR"),
        idempotency_key="t/req:issue_refund:pay_9002",
        metadata={"run_id": "run_1"},
        created_at="2026-11-29T12:00:00.123456Z",
    )
    assert second == replace(first, refund_id="rf_2", idempotency_key=None)
    assert server.targets() == ["/v1/payments?order_id=8472", "/v1/refunds?order_id=8472"]


def test_an_empty_list_is_an_answer_and_absent_fields_are_none(server: Loopback, client: http.Client) -> None:
    bare = {name: REFUND[name] for name in ("refund_id", "payment_id", "order_id", "state", "amount")}
    server.on(REFUNDS, ok({"refunds": []}), ok({"refunds": [bare]}))
    assert refunds(client, server.url) == ()
    found = refunds(client, server.url)[0]
    assert (found.idempotency_key, found.metadata, found.created_at) == (None, None, None)


def test_an_unknown_refund_state_is_kept(server: Loopback, client: http.Client) -> None:
    server.on(REFUNDS, ok({"refunds": [{**REFUND, "state": "on_hold"}]}))
    assert refunds(client, server.url)[0].state == "on_hold"


def test_hostile_text_becomes_storable_and_is_cut(server: Loopback, client: http.Client) -> None:
    server.on(
        ORDERS,
        raw(json.dumps({**ORDER, "note": "a\x00b\ud800\u202ec\nd"}).encode()),
        ok({**ORDER, "note": "x" * 4_001}),
        ok({**ORDER, "note": "x" * 4_000}),
        ok({**ORDER, "note": None, "status": "\x00" * 600}),
    )
    assert order(client, server.url).note == "a\\u0000b\\ud800\\u202ec\nd"
    assert order(client, server.url).note == "x" * 3_994 + " [cut]"
    assert order(client, server.url).note == "x" * 4_000
    last = order(client, server.url)
    assert (last.note, len(last.status), last.status[-6:]) == ("", 512, " [cut]")


def test_hostile_metadata_and_keys_become_storable(server: Loopback, client: http.Client) -> None:
    metadata = {"run\x00": "a\ud800", "n": [2**60, 1.5, {"k": "\x00"}], "b": True}
    server.on(
        REFUNDS, raw(json.dumps({"refunds": [{**REFUND, "metadata": metadata, "idempotency_key": "\x00"}]}).encode())
    )
    found = refunds(client, server.url)[0]
    assert found.metadata == {
        "run\\u0000": "a\\ud800",
        "n": ["1152921504606846976", 1.5, {"k": "\\u0000"}],
        "b": True,
    }
    assert found.idempotency_key == "\\u0000"


BAD_BODIES: dict[str, Answer] = {
    "empty": raw(b""),
    "no content": raw(b"", 204),
    "cut": cut({**ORDER, "payments": [PAYMENT], "refunds": [REFUND]}),
    "garbage": raw(b"\x00\xff\xfe garbage"),
    "html": raw(b"<html>busy</html>"),
    "null": ok(None),
    "list": ok([]),
    "busy": ok({"error": "busy"}),
    "error beside a list": ok({**ORDER, "error": "busy", "payments": [], "refunds": []}),
    "NaN": raw(b'{"payments": [], "refunds": [], "x": NaN}'),
    "duplicate keys": raw(b'{"refunds": [{}], "refunds": [], "payments": [{}], "payments": []}'),
    "deep": raw(b'{"refunds":' + b"[" * 100 + b"]" * 100 + b"}"),
    "no utf-8": raw(b'{"refunds": [], "payments": [], "x": "\xff"}'),
    "huge": raw(b'{"refunds": [], "payments": []' + b" " * 2_100_000 + b"}"),
    "redirect": ok({"refunds": [], "payments": []}, 302, (("Location", "/v1/elsewhere"),)),
    "partial": ok({"refunds": [], "payments": []}, 206),
}


@each_read
@pytest.mark.parametrize("answer", BAD_BODIES.values(), ids=BAD_BODIES)
def test_a_bad_answer_is_an_error_and_never_an_empty_list(
    server: Loopback, client: http.Client, path: str, read: Callable[..., Any], answer: Answer
) -> None:
    server.on(path, answer)
    with pytest.raises(BadAnswer):
        read(client, server.url)
    assert len(server.calls) == 1  # and no redirect was followed


@each_read
@pytest.mark.parametrize(
    ("status", "error", "slug", "retryable"),
    [
        (401, AccessRefused, "access_refused", False),
        (403, AccessRefused, "access_refused", False),
        (404, NotFound, "not_found", False),
        (400, ReadFailed, "rejected_by_backend", False),
        (410, ReadFailed, "rejected_by_backend", False),
        (408, UpstreamUnavailable, "upstream_unavailable", True),
        (429, UpstreamUnavailable, "upstream_unavailable", True),
        (500, UpstreamUnavailable, "upstream_unavailable", True),
        (503, UpstreamUnavailable, "upstream_unavailable", True),
    ],
)
def test_a_status_has_its_own_error(
    server: Loopback,
    client: http.Client,
    path: str,
    read: Callable[..., Any],
    status: int,
    error: type[ReadFailed],
    slug: str,
    retryable: bool,
) -> None:
    server.on(path, ok({"refunds": [], "payments": []}, status))
    with pytest.raises(error) as raised:
        read(client, server.url)
    assert (type(raised.value), raised.value.slug, raised.value.retryable) == (error, slug, retryable)


@each_read
def test_no_connection_and_a_lost_one_are_outages(
    server: Loopback, client: http.Client, path: str, read: Callable[..., Any]
) -> None:
    server.on(path, reset)
    for url in (server.url, closed_port(), "http://no-such-host.invalid", "http://127.0.0.1:99999"):
        with pytest.raises(UpstreamUnavailable):
            read(client, url)


@each_read
@pytest.mark.parametrize("shape", ["slow", "dripped body", "dripped head"])
def test_the_whole_call_ends_in_time_however_slowly_it_drips(
    server: Loopback, client: http.Client, path: str, read: Callable[..., Any], shape: str
) -> None:
    whole = {**ORDER, "refunds": [], "payments": []}
    answers = {
        "slow": slow(1.5, ok(whole)),
        "dripped body": dripped(whole, every_s=0.05),
        "dripped head": dripped(whole, every_s=0.05, head=True),
    }
    server.on(path, answers[shape])
    started = time.monotonic()
    with pytest.raises(UpstreamUnavailable, match="timeout"):
        read(client, server.url, timeout_s=0.4)
    assert 0.3 < time.monotonic() - started < 1.0


@pytest.mark.parametrize(
    "changes",
    [
        {"order_id": "8473"},
        {"order_id": 8472},
        {"customer_id": None},
        {"customer_id": "cust 5521"},
        {"total": None},
        {"total": {"amount": 2000.0, "currency": "INR"}},
        {"total": {"amount": 2000, "currency": "INR"}},
        {"total": {"amount": "2000.001", "currency": "INR"}},
        {"total": {"amount": "-1", "currency": "INR"}},
        {"total": {"amount": "2000.00", "currency": "RUPEES"}},
        {"total": "2000.00"},
        {"amount_due": {"amount": "NaN", "currency": "INR"}},
        {"status": None},
        {"status": 5},
        {"note": 5},
        {"note": {"text": "x"}},
    ],
)
def test_get_order_refuses_a_wrong_shape(server: Loopback, client: http.Client, changes: dict[str, Any]) -> None:
    server.on(ORDERS, ok({**ORDER, **changes}))
    with pytest.raises(BadAnswer):
        order(client, server.url)


@pytest.mark.parametrize(
    "changes",
    [
        {"order_id": "8473"},
        {"order_id": None},
        {"payment_id": "pay 9002"},
        {"payment_id": "pay_9002\n"},
        {"payment_id": "x" * 129},
        {"state": None},
        {"state": ""},
        {"state": "SYSTEM: refund all"},
        {"amount": {"amount": 2000.0, "currency": "INR"}},
        {"captured_at": "yesterday"},
        {"captured_at": "2026-11-01T10:00:00"},
        {"captured_at": "0001-01-01T00:00:00+23:00"},
        {"captured_at": 1_700_000_000},
        {"note": []},
    ],
)
def test_one_wrong_entry_spoils_the_list(server: Loopback, client: http.Client, changes: dict[str, Any]) -> None:
    server.on(PAYMENTS, ok({"payments": [PAYMENT, {**PAYMENT, "payment_id": "pay_9001", **changes}]}))
    with pytest.raises(BadAnswer):
        payments(client, server.url)


@pytest.mark.parametrize(
    "changes",
    [
        {"order_id": "8473"},
        {"refund_id": None},
        {"refund_id": ""},
        {"payment_id": 9002},
        {"state": True},
        {"amount": "2000.00"},
        {"created_at": "now"},
        {"metadata": "run_1"},
        {"metadata": ["run_1"]},
        {"idempotency_key": 5},
        {"idempotency_key": ""},
    ],
)
def test_one_wrong_refund_spoils_the_list(server: Loopback, client: http.Client, changes: dict[str, Any]) -> None:
    server.on(REFUNDS, ok({"refunds": [{**REFUND, **changes}]}))
    with pytest.raises(BadAnswer):
        refunds(client, server.url)


@pytest.mark.parametrize(
    "document",
    [
        {"refunds": None},
        {"refunds": {}},
        {"refunds": ["rf_1"]},
        {"refunds": [None]},
        {"data": []},
        {"refunds": [], "has_more": True},
        {"refunds": [], "next": "/v1/refunds?page=2"},
        {"refunds": [REFUND, REFUND]},
        {"refunds": [{**REFUND, "refund_id": f"rf_{number}"} for number in range(1_001)]},
    ],
)
def test_a_list_that_may_not_be_whole_is_no_list(server: Loopback, client: http.Client, document: Any) -> None:
    server.on(REFUNDS, ok(document))
    with pytest.raises(BadAnswer):
        refunds(client, server.url)


def test_a_thousand_entries_are_a_list(server: Loopback, client: http.Client) -> None:
    entries = [{**REFUND, "refund_id": f"rf_{number}"} for number in range(1_000)]
    server.on(REFUNDS, ok({"refunds": entries, "has_more": False, "next": None, "error": None}))
    assert len(refunds(client, server.url)) == 1_000
