"""The one HTTP client, and the credentials it carries: limits, threads, forks, and what an error says was sent."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from agentsite import env
from tests.loopback import Loopback, closed_port, ok, raw, slow
from tools import credentials
from tools.adapters import commerce, http
from tools.contracts import Backend, Order
from tools.errors import AccessRefused, UpstreamUnavailable

pytestmark = pytest.mark.any_database

TOKEN = SecretStr("read-token")
ORDERS = "/v1/orders/"
INR_2000 = {"amount": "2000.00", "currency": "INR"}
ORDER: dict[str, Any] = {
    "order_id": "8472",
    "customer_id": "cust_5521",
    "total": INR_2000,
    "amount_due": {"amount": "0.00", "currency": "INR"},
    "status": "delivered",
    "note": "",
}


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


def test_client_keeps_connections_and_no_cookies(server: Loopback, client: http.Client) -> None:
    server.on(ORDERS, ok(ORDER, 200, (("Set-Cookie", "tenant=other; Path=/"),)))
    for _ in range(3):
        order(client, server.url)
    assert all("cookie" not in call.headers for call in server.calls)


def test_client_ignores_proxies_of_the_environment(
    server: Loopback, monkeypatch: pytest.MonkeyPatch, client: http.Client
) -> None:
    monkeypatch.setenv("HTTP_PROXY", closed_port())
    monkeypatch.setenv("ALL_PROXY", closed_port())
    server.on(ORDERS, ok(ORDER))
    fresh = http.Client()
    assert order(fresh, server.url).order_id == "8472"
    fresh.close()


def test_client_takes_a_transport_of_the_test() -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(418, content=request.url.raw_path))
    reply = http.Client(transport).request("GET", "http://x/a", headers={}, params={"b": "c/d"}, timeout_s=1)
    assert (reply.status, reply.body) == (418, b"/a?b=c%2Fd")


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (httpx.ConnectError, http.ConnectFailed),
        (httpx.ConnectTimeout, http.ConnectFailed),
        (httpx.PoolTimeout, http.ConnectFailed),
        (httpx.ReadTimeout, http.TooSlow),
        (httpx.WriteTimeout, http.TooSlow),
        (httpx.ReadError, http.TransportFailed),
        (httpx.WriteError, http.TransportFailed),
        (httpx.RemoteProtocolError, http.TransportFailed),
        (httpx.LocalProtocolError, http.TransportFailed),
    ],
)
def test_client_says_whether_anything_may_have_been_sent(
    raised: type[httpx.TransportError], expected: type[http.HttpError]
) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise raised("secret in a message")

    with pytest.raises(http.HttpError) as caught:
        http.Client(httpx.MockTransport(fail)).request("GET", "http://x/", headers={}, timeout_s=1)
    assert type(caught.value) is expected and "secret" not in str(caught.value)


@pytest.mark.parametrize("headers", [{"A": "ü"}, {"Authorization": "Bearer ₹"}])
def test_client_calls_an_impossible_request_not_sent(headers: dict[str, str]) -> None:
    with pytest.raises(http.ConnectFailed):
        http.Client().request("GET", "http://127.0.0.1:9/", headers=headers, timeout_s=1)


def test_client_stops_reading_at_its_limit(server: Loopback, client: http.Client) -> None:
    server.on("/", raw(b"x" * 1_000))
    assert len(client.request("GET", server.url, headers={}, timeout_s=5, max_bytes=1_000).body) == 1_000
    with pytest.raises(http.TooLarge):
        client.request("GET", server.url, headers={}, timeout_s=5, max_bytes=999)


def test_client_serves_many_threads_with_a_deadline_each(server: Loopback, client: http.Client) -> None:
    server.on(ORDERS, ok(ORDER))
    server.on(ORDERS + "slow", slow(1.0, ok({**ORDER, "order_id": "slow"})))
    gate = threading.Barrier(16)

    def one(number: int) -> str:
        gate.wait()
        try:
            return order(
                client, server.url, "slow" if number % 4 == 0 else "8472", 0.5 if number % 4 == 0 else 5
            ).order_id
        except UpstreamUnavailable:
            return "late"

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(one, range(16)))
    assert found == ["late", "8472", "8472", "8472"] * 4


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_shared_client_is_one_a_process_and_a_new_one_after_a_fork() -> None:
    mine = http.shared()
    assert http.shared() is mine
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(theirs, b"same" if http.shared() is mine else b"new")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(ours, 10) == b"new"
    os.close(ours)
    os.close(theirs)


BACKEND = Backend(
    tenant_id="t_acme_in",
    url="http://127.0.0.1:9",
    read_token_env="COMMERCE_READ_TOKEN",
    write_token_env="COMMERCE_WRITE_TOKEN",
    honours_keys=True,
    key_life_s=86_400,
    settle_s=30,
)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    for name in ("COMMERCE_READ_TOKEN", "COMMERCE_WRITE_TOKEN", "ACME_READ", "ACME_WRITE"):
        monkeypatch.delenv(name, raising=False)
    env.read.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    env.read.cache_clear()


def test_credentials_of_the_default_tenant(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("COMMERCE_WRITE_TOKEN", "w-1")
    env.read.cache_clear()
    assert credentials.read_token(BACKEND).get_secret_value() == "sandbox-read"
    assert credentials.write_token(BACKEND).get_secret_value() == "w-1"
    assert "w-1" not in repr(credentials.write_token(BACKEND))


def test_credentials_hold_no_write_token_where_no_writes_are_consumed(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("COMMERCE_WRITE_TOKEN", "w-1")
    environment.setenv("WORKER_QUEUES", "passes")
    env.read.cache_clear()
    with pytest.raises(AccessRefused) as raised:
        credentials.write_token(BACKEND)
    assert (raised.value.slug, raised.value.retryable) == ("credential_missing", False)


def test_credentials_of_another_tenant_are_read_where_its_profile_says(environment: pytest.MonkeyPatch) -> None:
    acme = replace(BACKEND, read_token_env="ACME_READ", write_token_env="ACME_WRITE")
    environment.setenv("ACME_READ", "r-2")
    assert credentials.read_token(acme).get_secret_value() == "r-2"
    with pytest.raises(AccessRefused):
        credentials.write_token(acme)


@pytest.mark.parametrize("value", ["two words", "line\nbreak", "tab\t", "é", "x" * 4097])
def test_credentials_that_no_header_carries_are_named(environment: pytest.MonkeyPatch, value: str) -> None:
    environment.setenv("ACME_READ", value)
    with pytest.raises(AccessRefused) as raised:
        credentials.read_token(replace(BACKEND, read_token_env="ACME_READ"))
    assert raised.value.slug == "credential_malformed" and value not in str(raised.value)
