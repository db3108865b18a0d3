"""The sandbox business system, as a real process over real sockets: its rules, and its ledger after kill -9."""

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from agentsite.private.processes import free_port, wait_until
from tests.sandbox_process import (
    ORDER,
    PAYMENTS,
    READ,
    REFUNDS,
    ROOT,
    SEED,
    WRITE,
    Sandbox,
    at_once,
    error_of,
    inr,
    payment,
)

pytestmark = pytest.mark.own_services


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("sandbox") / "ledger.sqlite3") as sandbox:
        yield sandbox


@pytest.fixture
def shop(running: Sandbox) -> Sandbox:
    running.control("/_seed", **SEED)
    return running


def test_order_and_payments_are_read_as_the_contract_shows_them(shop: Sandbox) -> None:
    order = {"order_id": "8472", "customer_id": "cust_5521", "total": inr("2000.00"), "amount_due": inr("2000.00")}
    assert shop.get(ORDER).json() == {**order, "status": "open", "note": ""}
    first = shop.get(PAYMENTS).json()["payments"][0]
    assert first == payment("pay_9001", state="captured", note="", captured_at=None)


def test_refund_is_made_and_listed_by_each_filter(shop: Sandbox) -> None:
    answer = shop.refund()
    assert answer.status_code == 201
    refund = answer.json()
    assert re.fullmatch(r"rf_[0-9a-f]{9,}", refund.pop("refund_id"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", refund.pop("created_at"))
    money = {"payment_id": "pay_9002", "order_id": "8472", "state": "succeeded", "amount": inr("2000.00")}
    assert refund == {**money, "idempotency_key": "k1", "metadata": {"run_id": "run_1"}}
    for query in ("order_id=8472", "payment_id=pay_9002", "idempotency_key=k1"):
        assert shop.get(f"/v1/refunds?{query}").json() == {"refunds": [answer.json()]}
    assert shop.get("/v1/refunds?payment_id=pay_9001").json() == {"refunds": []}
    assert shop.get(f"{REFUNDS}&payment_id=pay_9001").json() == {"refunds": []}
    assert shop.get("/v1/refunds?idempotency_key=k2").json() == {"refunds": []}
    assert shop.get(PAYMENTS).json()["payments"][1]["state"] == "captured"


@pytest.mark.parametrize("path", ["orders/1", "payments?order_id=1", "refunds?order_id=1", "refunds?payment_id=1", "x"])
def test_what_does_not_exist_is_404(shop: Sandbox, path: str) -> None:
    assert shop.get(f"/v1/{path}").status_code == 404


@pytest.mark.parametrize("query", ["", "?order_id=", "?other=1", "?order_id=8472&order_id=8472"])
def test_a_list_without_a_clear_filter_is_400(shop: Sandbox, query: str) -> None:
    assert error_of(shop.get(f"/v1/refunds{query}")) == (400, "invalid-request")


def test_credentials_are_two_and_never_exchanged(shop: Sandbox) -> None:
    for path in (ORDER, PAYMENTS, REFUNDS):
        assert shop.http.get(path, headers=WRITE).status_code == 403
        assert error_of(shop.http.get(path)) == (401, "unauthorised")
        assert shop.http.get(path, headers={"Authorization": "Bearer other"}).status_code == 401
    assert error_of(shop.http.post("/v1/refunds", json={}, headers=READ)) == (403, "wrong-credential")
    assert shop.http.post("/v1/refunds", json={}).status_code == 401
    assert shop.http.delete("/v1/refunds", headers=WRITE).status_code == 405
    assert shop.made() == []


def test_the_same_key_and_body_is_the_same_refund_and_another_body_409(shop: Sandbox) -> None:
    first = shop.refund(amount=inr("500.00"))
    again = shop.refund(amount={"currency": "INR", "amount": "500.00"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()
    assert error_of(shop.refund(amount=inr("499.00"))) == (409, "idempotency-key-reused")
    assert len(shop.made()) == 1


def test_a_refused_key_is_not_used_up(shop: Sandbox) -> None:
    assert shop.refund(amount=inr("2000.01")).status_code == 422
    assert shop.refund().status_code == 201


def test_more_than_is_left_on_the_payment_is_422(shop: Sandbox) -> None:
    assert shop.refund("k1", amount=inr("1500.00")).status_code == 201
    assert error_of(shop.refund("k2", amount=inr("500.01"))) == (422, "amount-exceeds-remaining")
    assert shop.refund("k3", amount=inr("500.00")).status_code == 201


@pytest.mark.parametrize(("state", "status"), [("pending", 422), ("other", 422), ("failed", 201), ("canceled", 201)])
def test_every_refund_counts_but_failed_and_canceled(shop: Sandbox, state: str, status: int) -> None:
    refund_id = shop.refund().json()["refund_id"]
    assert shop.control(f"/_refunds/{refund_id}", state=state)["state"] == state
    assert shop.refund("k2").status_code == status


def test_expected_refunded_is_compared_with_the_whole_order(shop: Sandbox) -> None:
    assert shop.refund("k1", payment_id="pay_9001", expected_refunded=inr("0.00")).status_code == 201
    assert error_of(shop.refund("k2", expected_refunded=inr("0.00"))) == (409, "facts-changed")
    assert shop.refund("k2", expected_refunded=inr("2000.00")).status_code == 201
    assert shop.refund("k2", expected_refunded=inr("2000.00")).status_code == 200
    shop.control("/_config", supports_expected_refunded=False, check_remaining=False)
    assert shop.refund("k3", expected_refunded=inr("7.00")).status_code == 201


@pytest.mark.parametrize(
    ("given", "status", "error"),
    [
        ({"payment_id": "pay_0"}, 404, "payment-not-found"),
        ({"order_id": "8473"}, 422, "payment-of-another-order"),
        ({"amount": {"amount": "20.00", "currency": "USD"}}, 422, "currency-mismatch"),
        ({"expected_refunded": {"amount": "0.00", "currency": "USD"}}, 422, "currency-mismatch"),
        ({"payment_id": "disputed"}, 422, "payment-not-refundable"),
        ({"payment_id": "failed"}, 422, "payment-not-refundable"),
        ({"payment_id": "authorised"}, 422, "payment-not-refundable"),
        ({"payment_id": "refunded"}, 422, "amount-exceeds-remaining"),
        ({"amount": inr("0.00")}, 400, "invalid-request"),
        ({"amount": inr("-1.00")}, 400, "invalid-request"),
        ({"amount": inr("1")}, 400, "invalid-request"),
        ({"amount": inr("1.000")}, 400, "invalid-request"),
        ({"amount": inr("1e3")}, 400, "invalid-request"),
        ({"amount": inr("\N{ARABIC-INDIC DIGIT TWO}.00")}, 400, "invalid-request"),
        ({"amount": {"amount": 2000.0, "currency": "INR"}}, 400, "invalid-request"),
        ({"amount": {"amount": "500.00", "currency": "JPY"}}, 400, "invalid-request"),
        ({"amount": {"amount": "1.50", "currency": "KWD"}}, 400, "invalid-request"),
        ({"amount": None}, 400, "invalid-request"),
        ({"order_id": 8472}, 400, "invalid-request"),
        ({"reason": None}, 400, "invalid-request"),
        ({"metadata": "run_1"}, 400, "invalid-request"),
        ({"approval": "apr_1"}, 400, "invalid-request"),
    ],
)
def test_a_refund_that_may_not_be_is_refused(shop: Sandbox, given: dict[str, Any], status: int, error: str) -> None:
    states = ("disputed", "failed", "authorised", "refunded")
    shop.control("/_seed", payments=[payment(state, state=state) for state in states])
    assert error_of(shop.refund(**given)) == (status, error)
    assert shop.made() == []


@pytest.mark.parametrize(("amount", "currency"), [("500", "JPY"), ("1.500", "KWD"), ("0.05", "USD")])
def test_money_has_the_decimals_of_its_currency(shop: Sandbox, amount: str, currency: str) -> None:
    money = {"amount": amount, "currency": currency}
    shop.control("/_seed", payments=[payment("p1", amount=money)])
    assert shop.refund(payment_id="p1", amount=money).json()["amount"] == money


def test_malformed_requests_are_json_errors(shop: Sandbox) -> None:
    def post(content: bytes, **headers: str) -> httpx.Response:
        return shop.http.post("/v1/refunds", content=content, headers={**WRITE, **headers})

    assert error_of(shop.refund(None)) == (400, "idempotency-key-required")
    for content in (b"", b"{", b"[]", b'{"a": NaN}', b'{"a": 1e999}', b'{"a": 1, "a": 2}', b"\xff"):
        assert error_of(post(content)) == (400, "invalid-json")
    assert error_of(post(b" " * 1_000_001)) == (413, "body-too-large")
    assert error_of(post(b"{}", **{"Transfer-Encoding": "chunked"})) == (411, "length-required")
    assert error_of(shop.http.get("/elsewhere")) == (404, "not-found")
    assert error_of(shop.http.post("/_elsewhere", json={})) == (404, "not-found")
    assert shop.http.put("/_seed", json={}).status_code == 405


def test_fifty_posts_of_one_key_at_once_make_one_refund(shop: Sandbox) -> None:
    assert at_once(50, lambda _: shop.refund(amount=inr("10.00"))) == [200] * 49 + [201]
    assert len(shop.made()) == 1


def test_fifty_keys_at_once_never_exceed_the_payment(shop: Sandbox) -> None:
    statuses = at_once(50, lambda number: shop.refund(f"k{number}", amount=inr("90.00")))
    assert statuses == [201] * 22 + [422] * 28
    assert len(shop.made()) == 22


def test_two_processes_on_one_file_keep_the_rules_together(tmp_path: Path) -> None:
    with Sandbox(tmp_path / "ledger") as one, Sandbox(tmp_path / "ledger") as two:
        one.control("/_seed", **SEED)
        shops = (one, two)
        statuses = at_once(40, lambda number: shops[number % 2].refund(f"k{number}", amount=inr("90.00")))
        assert statuses == [201] * 22 + [422] * 18
        assert one.made() == two.made()


def test_the_ledger_and_its_faults_outlive_kill_9(tmp_path: Path) -> None:
    file, port = tmp_path / "deep" / "ledger.sqlite3", free_port()
    with Sandbox(file, port) as shop:
        assert shop.line == f"sandbox listening on http://127.0.0.1:{port}"
        shop.control("/_seed", **SEED)
        before = shop.refund().json()
        shop.fault("GET /v1/orders", "status:503", times=2)
        shop.end(signal.SIGKILL)
    with Sandbox(file, port) as again:
        assert again.listed() == [before]
        assert (again.refund().status_code, again.refund().json()) == (200, before)
        assert [again.get(ORDER).status_code for _ in range(3)] == [503, 503, 200]


def test_every_refund_that_was_answered_outlives_a_kill_9_among_them(tmp_path: Path) -> None:
    answered: list[str] = []

    def refund_on(shop: Sandbox, worker: int) -> None:
        with contextlib.suppress(httpx.TransportError):
            for number in range(10_000):
                assert shop.refund(f"k{worker}-{number}", amount=inr("0.01")).status_code == 201
                answered.append(f"k{worker}-{number}")

    with Sandbox(tmp_path / "ledger") as shop, ThreadPoolExecutor(8) as pool:
        shop.control("/_seed", **SEED)
        done = [pool.submit(refund_on, shop, worker) for worker in range(8)]
        assert wait_until(lambda: len(answered) > 200, 10)
        shop.end(signal.SIGKILL)
        assert [each.result(10) for each in done] == [None] * 8
    with Sandbox(tmp_path / "ledger") as again:
        made = {refund["idempotency_key"] for refund in again.made()}
        assert set(answered) <= made
        assert len(made) - len(answered) <= 8


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_cleanly_though_a_call_is_held(tmp_path: Path, number: signal.Signals) -> None:
    with Sandbox(tmp_path / "ledger") as shop, ThreadPoolExecutor(1) as pool:
        shop.fault("GET /v1/orders", "delay:60")
        held = pool.submit(shop.get, ORDER)
        assert wait_until(lambda: len(shop.calls()) == 1, 5)
        assert shop.end(number) == 0
        assert isinstance(held.exception(5), httpx.TransportError)


def test_tokens_come_from_the_environment(tmp_path: Path) -> None:
    with Sandbox(tmp_path / "ledger", SANDBOX_READ_TOKEN="r2", SANDBOX_WRITE_TOKEN="w2") as shop:
        assert shop.http.get(ORDER, headers={"Authorization": "bearer r2"}).status_code == 404
        assert shop.http.get(ORDER, headers={"Authorization": "Bearer w2"}).status_code == 403
        assert shop.http.get(ORDER, headers=READ).status_code == 401


def test_a_taken_port_ends_the_start_with_one_line(tmp_path: Path, shop: Sandbox) -> None:
    port = str(shop.http.base_url.port)
    command = [sys.executable, "-m", "tools.sandbox", "--port", port, "--file", str(tmp_path / "other")]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("sandbox cannot start: ")
    assert ended.stderr.count("\n") == 1


def test_the_description_names_what_the_sandbox_answers(shop: Sandbox) -> None:
    description = yaml.safe_load((ROOT / "docs/commerce-openapi.yaml").read_text())
    assert set(description["paths"]) == {"/v1/orders/{order_id}", "/v1/payments", "/v1/refunds"}
    answers = {
        "Refund": shop.refund().json(),
        "Order": shop.get(ORDER).json(),
        "Payment": shop.get(PAYMENTS).json()["payments"][0],
        "RefundRequest": shop.calls("method=POST")[0]["body"],
    }
    for name, answer in answers.items():
        schema = description["components"]["schemas"][name]
        assert set(schema["required"]) <= set(answer)
        assert set(answer) - {"method"} <= set(schema["properties"])


def test_the_sandbox_imports_nothing_of_the_project() -> None:
    code = "import sys; import tools.sandbox.__main__; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    ours = {name for name in loaded.stdout.split() if name.startswith(("tools", "agentsite", "runs", "approvals"))}
    assert {name for name in ours if not name.startswith("tools.sandbox")} == {"tools"}
    outside = {name.partition(".")[0] for name in loaded.stdout.split()} & {"django", "httpx", "pydantic", "celery"}
    assert outside == set()
