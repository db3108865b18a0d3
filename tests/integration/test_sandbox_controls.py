"""The sandbox as a test's world: faults, kinds of provider, seeds and the log of calls, over real sockets."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentsite.private.processes import wait_until
from tests.sandbox_process import ORDER, PAYMENTS, READ, REFUNDS, SEED, Sandbox, at_once, error_of, inr, payment

pytestmark = pytest.mark.own_services


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("sandbox") / "ledger.sqlite3") as sandbox:
        yield sandbox


@pytest.fixture
def shop(running: Sandbox) -> Sandbox:
    running.control("/_seed", **SEED)
    return running


def test_calls_are_logged_in_order_with_body_and_trace(shop: Sandbox) -> None:
    shop.get(PAYMENTS)
    assert shop.refund().headers["X-Trace-Id"] == "trace-1"
    assert shop.http.get("/v1/nothing").status_code == 404
    calls = shop.calls()
    assert [(call["method"], call["path"], call["status"]) for call in calls] == [
        ("GET", "/v1/payments", 200),
        ("POST", "/v1/refunds", 201),
        ("GET", "/v1/nothing", 404),
    ]
    assert calls[0]["query"] == {"order_id": "8472"}
    assert [call["credential"] for call in calls] == ["read", "write", "none"]
    assert (calls[1]["idempotency_key"], calls[1]["trace_id"], calls[1]["fault"]) == ("k1", "trace-1", None)
    assert calls[1]["body"]["amount"] == inr("2000.00")
    assert shop.calls("method=POST&path=/v1/ref") == [calls[1]]
    assert shop.calls("method=POST&path=/v1/orders") == []
    assert shop.control("/_calls", clear=True) == {"calls": []} == {"calls": shop.calls()}


@pytest.mark.parametrize(
    ("mode", "made", "logged"), [("drop_before", 0, None), ("drop_after", 1, None), ("truncate", 1, 201)]
)
def test_a_broken_connection_leaves_the_outcome_open(shop: Sandbox, mode: str, made: int, logged: int | None) -> None:
    shop.fault("POST /v1/refunds", mode)
    with pytest.raises((httpx.NetworkError, httpx.RemoteProtocolError)):
        shop.refund()
    assert len(shop.made()) == made
    (call,) = shop.calls()
    assert (call["status"], call["fault"], call["body"] is None) == (logged, mode, mode == "drop_before")
    assert shop.refund().status_code == (200 if made else 201)


def test_drop_before_is_a_reset_and_drop_after_an_end(shop: Sandbox) -> None:
    def raw_answer() -> bytes:
        with socket.create_connection(("127.0.0.1", shop.http.base_url.port or 0), timeout=5) as client:
            client.sendall(b"GET /v1/orders/8472 HTTP/1.1\r\nHost: shop\r\n\r\n")
            return client.recv(100)

    shop.fault("GET /v1/orders", "drop_before")
    shop.fault("GET /v1/orders", "drop_after")
    with pytest.raises(ConnectionResetError):
        raw_answer()
    assert raw_answer() == b""


@pytest.mark.parametrize(
    ("mode", "status", "content", "made"),
    [
        ("status:503", 503, b'{"error": "fault-injected"}', 0),
        ("status:204", 204, b"", 0),
        ("status_after:502", 502, b'{"error": "fault-injected"}', 1),
        ("garbage", 201, b"<html>\xff\xfe not what was asked for", 1),
        ("empty", 201, b"", 1),
        ('json:{"refunds": [1.50]}', 200, b'{"refunds": [1.50]}', 0),
    ],
)
def test_a_wrong_answer_is_sent_as_asked(shop: Sandbox, mode: str, status: int, content: bytes, made: int) -> None:
    shop.fault("POST /v1/refunds", mode)
    answer = shop.refund()
    assert (answer.status_code, answer.content, len(shop.made())) == (status, content, made)
    assert shop.refund().json()["refund_id"] == shop.made()[0]["refund_id"]


@pytest.mark.parametrize("mode", ["delay:1", "delay_after:1"])
def test_a_late_answer_is_still_a_refund_though_the_client_has_left(shop: Sandbox, mode: str) -> None:
    shop.fault("POST /v1/refunds", mode)
    with pytest.raises(httpx.ReadTimeout):
        shop.refund(timeout=0.3)
    assert len(shop.made()) == (1 if mode.startswith("delay_after") else 0)
    assert wait_until(lambda: len(shop.made()) == 1, 5)


def test_a_dripping_body_trips_no_read_timeout(shop: Sandbox) -> None:
    shop.fault("POST /v1/refunds", "stall_body:0.8")
    started = time.monotonic()
    assert shop.refund(timeout=0.5).status_code == 201
    assert time.monotonic() - started >= 0.8


def test_the_refund_itself_can_be_bent_beside_a_fault_of_the_connection(shop: Sandbox) -> None:
    shop.fault("POST /v1/refunds", "status:503")
    for mode in ("state:pending", "hide:1", 'amount:{"amount": "1.00", "currency": "INR"}'):
        shop.fault("POST /v1/refunds", mode)
    assert shop.refund().status_code == 503
    bent = shop.refund().json()
    assert (bent["state"], bent["amount"], shop.listed()) == ("pending", inr("1.00"), [])
    assert wait_until(lambda: shop.listed() == [bent], 5)
    assert shop.refund("k2", amount=inr("1.00")).json()["state"] == "succeeded"


def test_a_refund_hidden_forever_counts_and_can_be_shown(shop: Sandbox) -> None:
    shop.fault("POST /v1/refunds", "hide:forever")
    refund = shop.refund().json()
    assert (shop.listed(), shop.made()[0]["hidden"]) == ([], True)
    assert shop.refund("k2").status_code == 422
    shop.control(f"/_refunds/{refund['refund_id']}", shown=True)
    assert shop.listed() == [refund]


def test_faults_match_by_method_and_prefix_and_are_counted_under_concurrency(shop: Sandbox) -> None:
    shop.fault("GET /v1/orders/84*", "status:418", times=7)
    shop.fault("* /v1/refunds?order_id=8472", "status:500", times=0)
    assert at_once(20, lambda _: shop.get("/v1/orders/8472")) == [200] * 13 + [418] * 7
    assert [shop.get(REFUNDS).status_code for _ in range(3)] == [500] * 3
    assert shop.get("/v1/refunds?payment_id=pay_9001").status_code == 200
    assert shop.control("/_faults", clear=True) == {"faults": []}
    assert shop.get(REFUNDS).status_code == 200


@pytest.mark.parametrize("mode", ["nothing", "status:42", "delay:soon", "drop_after:1", "json:{", "amount:1", "hide:"])
def test_an_unknown_fault_is_refused(shop: Sandbox, mode: str) -> None:
    body = {"match": "POST /v1/refunds", "mode": mode}
    assert error_of(shop.http.post("/_faults", json=body)) == (400, "invalid-request")


def test_a_backend_that_ignores_keys_refunds_again(shop: Sandbox) -> None:
    shop.control("/_config", honours_keys=False)
    assert [shop.refund(amount=inr("1000.00")).status_code for _ in range(3)] == [201, 201, 422]
    shop.control("/_config", check_remaining=False)
    assert shop.refund(None).status_code == 201
    assert len(shop.made()) == 3


def test_a_backend_may_list_neither_key_nor_metadata(shop: Sandbox) -> None:
    shop.control("/_config", lists_keys=False, lists_metadata=False)
    refund = shop.refund().json()
    assert (refund["idempotency_key"], refund["metadata"]) == (None, None)
    assert shop.listed() == [refund]
    assert error_of(shop.get("/v1/refunds?idempotency_key=k1")) == (400, "filter-not-supported")


def test_a_key_is_forgotten_after_its_life(shop: Sandbox) -> None:
    shop.control("/_config", key_life_s=1)
    statuses = [shop.refund(amount=inr("10.00")).status_code for _ in range(2)]
    time.sleep(1.1)
    assert [*statuses, shop.refund(amount=inr("20.00")).status_code] == [201, 200, 201]


def test_lists_lag_but_the_ledger_does_not(shop: Sandbox) -> None:
    shop.control("/_config", lag_s=60)
    assert shop.refund().status_code == 201
    assert (shop.listed(), shop.refund("k2").status_code) == ([], 422)
    shop.control("/_config", lag_s=0)
    assert len(shop.listed()) == 1


@pytest.mark.parametrize("body", [{"honours_keys": 1}, {"lag_s": -1}, {"lag_s": True}, {"key_life": 1}])
def test_a_wrong_configuration_is_refused(shop: Sandbox, body: dict[str, Any]) -> None:
    before = shop.http.get("/_config").json()
    assert shop.http.post("/_config", json=body).status_code == 400
    assert shop.http.get("/_config").json() == before


def test_a_refund_beside_us_has_no_key_and_no_limit(shop: Sandbox) -> None:
    beside = shop.control("/_refunds", payment_id="pay_9002", amount=inr("2500"), state="pending")
    assert (beside["order_id"], beside["idempotency_key"], beside["amount"]) == ("8472", None, inr("2500.00"))
    assert shop.listed() == [beside]
    assert shop.http.post("/_refunds/rf_0", json={"state": "failed"}).status_code == 404


def test_a_seed_changes_what_it_names_and_clears_by_order(shop: Sandbox) -> None:
    shop.refund()
    shop.control("/_seed", orders=[{"order_id": "8472", "amount_due": None, "note": "returned"}])
    order = shop.get(ORDER).json()
    assert (order["note"], order["total"], "amount_due" in order) == ("returned", inr("2000.00"), False)
    shop.control("/_seed", payments=[{"payment_id": "pay_9001", "state": "disputed"}])
    assert shop.get(PAYMENTS).json()["payments"][0] == payment("pay_9001", state="disputed", note="", captured_at=None)
    seeded = {"refund_id": "rf_old", "payment_id": "pay_9001", "amount": inr("5"), "created_at": "2026-01-02T03:04:05Z"}
    shop.control("/_seed", refunds=[seeded])
    assert shop.listed()[0]["created_at"] == "2026-01-02T03:04:05.000000Z"
    other = {"order_id": "1", "customer_id": "c", "total": inr("1")}
    shop.control("/_seed", clear_order="8472", orders=[other])
    state = shop.http.get("/_state").json()
    assert [state[name] for name in ("payments", "refunds", "keys")] == [[], [], []]
    assert [order["order_id"] for order in state["orders"]] == ["1"]


def test_a_seed_is_taken_whole_or_not_at_all(shop: Sandbox) -> None:
    body = {"reset": True, "orders": [{"order_id": "1", "customer_id": "c", "total": inr("1.005")}]}
    assert error_of(shop.http.post("/_seed", json=body)) == (400, "invalid-request")
    assert shop.get(ORDER).status_code == 200


def test_the_controls_answer_this_machine_only(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; the kernel names the address it would send from
        except OSError:
            pytest.skip("this machine has no address but loopback")
        host = probe.getsockname()[0]
    with Sandbox(tmp_path / "ledger", bind="0.0.0.0") as shop:
        outside = f"http://{host}:{shop.http.base_url.port}"
        assert error_of(shop.http.get(f"{outside}/_state")) == (403, "loopback-only")
        assert shop.http.get(outside + ORDER, headers=READ).status_code == 404
        assert shop.http.get("/_state").status_code == 200
