"""A sandbox business system as a child process, with a client of it. Imports neither pytest nor the sandbox itself."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import httpx

from agentsite.private.processes import die_with_parent

ROOT = Path(__file__).resolve().parents[1]
READ = {"Authorization": "Bearer sandbox-read"}
WRITE = {"Authorization": "Bearer sandbox-write"}
ORDER = "/v1/orders/8472"
PAYMENTS = "/v1/payments?order_id=8472"
REFUNDS = "/v1/refunds?order_id=8472"

Document = dict[str, Any]


def inr(amount: str) -> Document:
    return {"amount": amount, "currency": "INR"}


def payment(payment_id: str, **given: Any) -> Document:
    return {"payment_id": payment_id, "order_id": "8472", "amount": inr("2000.00"), "method": "upi", **given}


SEED = {
    "reset": True,
    "orders": [{"order_id": "8472", "customer_id": "cust_5521", "total": inr("2000"), "amount_due": inr("2000.00")}],
    "payments": [payment("pay_9001"), payment("pay_9002")],
}
"""Order 8472, charged twice."""


class Sandbox:
    """One process; start it from a thread that lives as long as it must (`die_with_parent`)."""

    def __init__(self, file: Path, port: int = 0, bind: str = "127.0.0.1", **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tools.sandbox", "--bind", bind, "--port", str(port), "--file", str(file)],
            cwd=ROOT,
            env={**_clean_environment(), **environment},
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent(),
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline().strip()
        limits = httpx.Limits(max_connections=100)
        self.http = httpx.Client(base_url=self.line.rpartition(" ")[2], timeout=10, limits=limits, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        self.end(signal.SIGKILL)

    def end(self, how: signal.Signals) -> int:
        """Sends the signal, unless the process has ended, and waits for the end; returns the exit code."""
        self.process.send_signal(how)
        code = self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def control(self, path: str, **body: Any) -> Any:
        """POSTs to one of the paths that begin with an underscore."""
        answer = self.http.post(path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def fault(self, match: str, mode: str, times: int = 1) -> None:
        self.control("/_faults", match=match, mode=mode, times=times)

    def get(self, path: str) -> httpx.Response:
        return self.http.get(path, headers=READ)

    def refund(self, key: str | None = "k1", timeout: float = 10, **given: Any) -> httpx.Response:
        """Asks for the whole of pay_9002, or for what is given instead."""
        asked = {"order_id": "8472", "payment_id": "pay_9002", "amount": inr("2000.00"), "reason": "charged twice"}
        body = {**asked, "approval_id": None, "metadata": {"run_id": "run_1"}, **given}
        headers = {**WRITE, "X-Trace-Id": "trace-1", **({"Idempotency-Key": key} if key else {})}
        return self.http.post("/v1/refunds", json=body, headers=headers, timeout=timeout)

    def listed(self) -> list[Document]:
        """The refunds of order 8472 as a reader sees them."""
        refunds: list[Document] = self.get(REFUNDS).json()["refunds"]
        return refunds

    def made(self) -> list[Document]:
        """The refunds as they are, hidden ones too."""
        refunds: list[Document] = self.http.get("/_state").json()["refunds"]
        return refunds

    def calls(self, query: str = "") -> list[Document]:
        calls: list[Document] = self.http.get(f"/_calls?{query}").json()["calls"]
        return calls


def _clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("SANDBOX_")}


def error_of(answer: httpx.Response) -> tuple[int, str]:
    """Status and slug of a refusal."""
    return answer.status_code, answer.json()["error"]


def at_once(count: int, call: Callable[[int], httpx.Response]) -> list[int]:
    """The sorted statuses of `count` calls that leave together."""
    gate = threading.Barrier(count)

    def one(number: int) -> int:
        gate.wait()
        return call(number).status_code

    with ThreadPoolExecutor(count) as pool:
        return sorted(pool.map(one, range(count)))
