"""The adapter's one write against a server that does everything wrong: refused, unknown, never sent twice."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from agentsite.money import Money
from tests.loopback import Answer, Loopback, closed_port, cut, dripped, ok, raw, reset, slow
from tools.adapters import commerce, http
from tools.contracts import WriteAnswer
from tools.errors import OutcomeUnknown, Refused

pytestmark = pytest.mark.any_database

REFUNDS = "/v1/refunds"
INR_2000 = {"amount": "2000.00", "currency": "INR"}
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
BODY = '{"amount":{"amount":"2000.00","currency":"INR"},"order_id":"8472","payment_id":"pay_9002"}'


@pytest.fixture
def server() -> Iterator[Loopback]:
    with Loopback() as running:
        yield running


@pytest.fixture
def client() -> Iterator[http.Client]:
    made = http.Client()
    yield made
    made.close()


def post(
    client: http.Client, url: str, timeout_s: float = 5, before_send: Callable[[], None] | None = None
) -> WriteAnswer:
    return commerce.post_refund(
        client, url, SecretStr("w"), key="k1", body=BODY, trace_id="t1", timeout_s=timeout_s, before_send=before_send
    )


def test_post_refund_sends_exactly_these_bytes_under_the_key(server: Loopback, client: http.Client) -> None:
    server.on(REFUNDS, ok(REFUND, 201), ok(REFUND, 200))
    first, second = post(client, server.url), post(client, server.url)
    assert (first.replayed, second.replayed) == (False, True)
    assert first.refund == second.refund
    assert (first.refund.refund_id, first.refund.amount) == ("rf_3301", Money(minor=200_000, currency="INR"))
    assert 0 <= first.took_ms < 5_000
    call = server.calls[0]
    assert (call.method, call.target, call.body) == ("POST", "/v1/refunds", BODY.encode())
    assert call.headers["idempotency-key"] == "k1" and call.headers["x-trace-id"] == "t1"
    assert (call.headers["authorization"], call.headers["content-type"]) == ("Bearer w", "application/json")


def test_post_refund_returns_what_was_made_even_where_it_differs(server: Loopback, client: http.Client) -> None:
    made = {**REFUND, "order_id": "1", "payment_id": "p", "amount": {"amount": "5", "currency": "JPY"}}
    server.on(REFUNDS, ok({**made, "state": "pending"}, 201))
    refund = post(client, server.url).refund
    assert (refund.order_id, refund.payment_id, refund.state) == ("1", "p", "pending")
    assert refund.amount == Money(minor=5, currency="JPY")


@pytest.mark.parametrize(
    ("status", "document", "slug"),
    [
        (400, {"error": "invalid-request"}, "rejected_by_backend"),
        (401, {}, "access_refused"),
        (403, {"error": "wrong-credential"}, "access_refused"),
        (404, {"error": "payment-not-found"}, "rejected_by_backend"),
        (405, {}, "rejected_by_backend"),
        (409, {"error": "facts-changed"}, "facts_changed"),
        (409, {"type": "https://shop.example/problems/facts-changed"}, "facts_changed"),
        (422, {"error": "amount-exceeds-remaining"}, "amount_exceeds_remaining"),
    ],
)
def test_post_refund_is_refused_where_the_answer_proves_nothing_was_made(
    server: Loopback, client: http.Client, status: int, document: Any, slug: str
) -> None:
    server.on(REFUNDS, ok(document, status))
    with pytest.raises(Refused) as raised:
        post(client, server.url)
    assert (raised.value.slug, len(server.calls)) == (slug, 1)


UNCERTAIN: dict[str, tuple[Answer, str]] = {
    "key conflict": (ok({"error": "idempotency-key-reused"}, 409), "key_conflict"),
    "409 of a list": (ok(["facts-changed"], 409), "key_conflict"),
    "409 of garbage": (raw(b"facts-changed", 409), "key_conflict"),
    "429": (ok({}, 429), "http_429"),
    "500": (ok({}, 500), "http_500"),
    "503 with a refund": (ok(REFUND, 503), "http_503"),
    "413": (ok({}, 413), "http_413"),
    "redirect": (ok({}, 307, (("Location", "/v1/refunds"),)), "http_307"),
    "202": (ok(REFUND, 202), "http_202"),
    "204": (raw(b"", 204), "http_204"),
    "empty": (raw(b"", 201), "bad_answer"),
    "garbage": (raw(b"made", 201), "bad_answer"),
    "error": (ok({**REFUND, "error": "busy"}, 200), "bad_answer"),
    "cut": (cut(REFUND, 201), "bad_answer"),
    "float": (ok({**REFUND, "amount": {"amount": 2000.0, "currency": "INR"}}, 201), "bad_answer"),
    "no id": (ok({**REFUND, "refund_id": None}, 201), "bad_answer"),
    "huge": (raw(b" " * 2_100_000, 201), "bad_answer"),
    "reset": (reset, "connection"),
    "slow": (slow(1.5, ok(REFUND, 201)), "timeout"),
    "dripped": (dripped(REFUND, every_s=0.05), "timeout"),
    "dripped head": (dripped(REFUND, every_s=0.05, head=True), "timeout"),
}


@pytest.mark.parametrize(("answer", "slug"), UNCERTAIN.values(), ids=UNCERTAIN)
def test_post_refund_is_unknown_after_every_doubt_and_never_sent_twice(
    server: Loopback, client: http.Client, answer: Answer, slug: str
) -> None:
    server.on(REFUNDS, answer)
    with pytest.raises(OutcomeUnknown) as raised:
        post(client, server.url, timeout_s=0.5)
    time.sleep(0.05)
    assert (raised.value.slug, len(server.calls)) == (slug, 1)


def test_post_refund_without_a_connection_is_unknown_too(client: http.Client) -> None:
    with pytest.raises(OutcomeUnknown) as raised:
        post(client, closed_port())
    assert raised.value.slug == "connection"


def test_post_refund_sends_nothing_where_the_last_check_objects(server: Loopback, client: http.Client) -> None:
    def object_() -> None:
        raise OutcomeUnknown(slug="not_sent_in_time")

    server.on(REFUNDS, ok(REFUND, 201))
    with pytest.raises(OutcomeUnknown) as raised:
        post(client, server.url, before_send=object_)
    assert (raised.value.slug, server.calls) == ("not_sent_in_time", [])


def test_post_refund_sends_no_byte_once_its_time_is_over(server: Loopback, client: http.Client) -> None:
    """The process was frozen between the last check and the socket, on a kept connection and on a new one."""
    server.on("/", ok({}, 404))
    server.on(REFUNDS, ok(REFUND, 201))
    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            post(client, server.url, timeout_s=0.2, before_send=lambda: time.sleep(0.3))
        client.request("GET", server.url + "/kept", headers={}, timeout_s=5)
    assert {call.method for call in server.calls} == {"GET"}
