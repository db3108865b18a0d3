"""The world of refund-8472 with no time in it: a business system and a model inside the process that asks them.

`install` puts both in place of the real ones, in this process and whatever it forks. Refunds are files of one folder,
made once each, so that all processes of a site see the same. Only the engine is left to be measured.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from agentsite import clock
from runs.contracts import Prompt
from runs.inference import gateway
from tools.adapters import http

Json = dict[str, Any]
ROUTE = "offline:instant"
URL = "http://instant.invalid"
PRICE: Json = {"amount": "2000.00", "currency": "INR"}
CAPTURED_AT = ("2026-11-20T09:30:00.000Z", "2026-11-20T09:30:41.000Z")
DECISIVE = ("get_payments", "get_refund_status", "search_policy")
_CUSTOMER = re.compile(r"<goal customer=\"cust_([A-Za-z0-9-]+)\"")
_SEEN = re.compile(r"<observation id=\"(obs_[0-9]+)\" source=\"([a-z_]+)\"")
_USED = re.compile(r"^model_calls_used: ([0-9]+)", re.MULTILINE)


class BusinessSystem(httpx.BaseTransport):
    """Every order was charged twice and is owed one refund; one that is asked for is made at once and listed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        path, order_id = request.url.path, request.url.params.get("order_id", "")
        if request.method == "POST":
            return self._refund(json.loads(request.content), request.headers["Idempotency-Key"])
        if path == "/v1/payments":
            return httpx.Response(200, json={"payments": _payments(order_id)})
        if path == "/v1/refunds":
            return httpx.Response(200, json={"refunds": self._made(order_id)})
        return httpx.Response(200, json=_order(path.removeprefix("/v1/orders/")))

    def _refund(self, asked: Json, key: str) -> httpx.Response:
        """A key is honoured; another key on the same order makes another refund, which whoever counts will find."""
        made = {
            "refund_id": f"ref_{asked['payment_id']}", "payment_id": asked["payment_id"],
            "order_id": asked["order_id"], "state": "succeeded", "amount": asked["amount"], "idempotency_key": key,
            "metadata": asked.get("metadata"), "created_at": clock.rfc3339(clock.now()),
        }  # fmt: skip
        place = self._folder / asked["order_id"]
        place.mkdir(exist_ok=True)
        target = place / re.sub(r"[^A-Za-z0-9_-]", "_", key)
        with suppress(FileExistsError):
            handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            os.write(handle, json.dumps(made).encode())
            os.close(handle)
            return httpx.Response(201, json=made)
        return httpx.Response(200, content=target.read_bytes())

    def _made(self, order_id: str) -> list[Json]:
        place = self._folder / order_id
        return [json.loads(one.read_bytes()) for one in place.iterdir()] if place.is_dir() else []


def made(folder: Path) -> dict[str, int]:
    """How many refunds were made on each order."""
    return {place.name: len(list(place.iterdir())) for place in folder.iterdir()}


def install(folder: Path) -> None:
    """From here on this process reaches no other business system, and knows the route ROUTE."""
    client = http.Client(BusinessSystem(folder))
    http.__dict__["_client_of"] = lambda _pid: client
    gateway.OFFLINE["instant"] = answer


def answer(prompt: Prompt) -> str:
    """Two turns of two reads each, the refund, a final: by the number of calls used so far."""
    text = "\n".join(message.content for message in prompt.messages if message.role == "user")
    used = _USED.findall(text)
    number = int(used[-1]) if used else 0
    asked = _CUSTOMER.search(text)
    order_id = asked[1] if asked else ""
    if number == 0:
        return json.dumps([_call(name, order_id=order_id) for name in ("get_order", "get_payments")])
    if number == 1:
        searched = _call("search_policy", query="duplicate capture refund")
        return json.dumps([searched, _call("get_refund_status", order_id=order_id)])
    if number == 2:
        newest = {source: obs_id for obs_id, source in _SEEN.findall(text)}
        return json.dumps(_refund(order_id, [newest[source] for source in DECISIVE if source in newest]))
    return json.dumps({"final": "Thank you for your patience.", "evidence": []})


def _call(tool: str, **args: str) -> Json:
    return {"tool": tool, "args": args}


def _refund(order_id: str, evidence: list[str]) -> Json:
    args = {"order_id": order_id, "payment_id": f"pay_{order_id}b", "amount": PRICE, "reason": "duplicate_capture"}
    return {"tool": "issue_refund", "args": args, "evidence": evidence}


def _order(order_id: str) -> Json:
    return {
        "order_id": order_id, "customer_id": f"cust_{order_id}", "total": PRICE, "amount_due": PRICE,
        "status": "delivered", "note": "",
    }  # fmt: skip


def _payments(order_id: str) -> list[Json]:
    return [
        {
            "payment_id": f"pay_{order_id}{name}", "order_id": order_id, "state": "captured", "amount": PRICE,
            "captured_at": at, "note": "",
        }
        for name, at in zip("ab", CAPTURED_AT, strict=True)
    ]  # fmt: skip
