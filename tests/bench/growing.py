"""The workers of a site in a world where a run asks its model as often as its name says, and reads 2 KB each time.

    python -m tests.bench.growing FOLDER worker --name w1     `manage.py worker`, its children started by this file too
    python -m tests.bench.growing FOLDER celery -A …          one such child

A run of the customer `cust_grow-64-a` makes 64 model calls that each read another order, and one that ends it. What an
order says is as long as NOTE_BYTES and does not compress. The environment is a site's.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import sys
from typing import Any

import httpx

from runs.contracts import Prompt
from runs.inference import gateway
from tests.bench import entry, instant
from tools.adapters import http

NOTE_BYTES = 1900
"""With the rest of an order about 2 KB."""
USED = "\nmodel_calls_used: "
_CUSTOMER = re.compile(r"<goal customer=\"cust_(grow-([0-9]+)-[a-z0-9]+)\"")


class BusinessSystem(httpx.BaseTransport):
    """Knows any order `NAME.NUMBER`, of the customer `cust_NAME`."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        order_id = request.url.path.removeprefix("/v1/orders/")
        return httpx.Response(200, json=order(order_id))


def order(order_id: str) -> dict[str, Any]:
    random = hashlib.shake_256(order_id.encode()).digest(NOTE_BYTES)
    return {
        "order_id": order_id, "customer_id": f"cust_{order_id.partition('.')[0]}", "total": instant.PRICE,
        "amount_due": instant.PRICE, "status": "delivered",
        "note": base64.urlsafe_b64encode(random).decode()[:NOTE_BYTES],
    }  # fmt: skip


def answer(prompt: Prompt) -> str:
    return said("\n".join(message.content for message in prompt.messages if message.role == "user"))


def said(text: str) -> str:
    """The next order, or the end: by the number of calls used so far, as the prompt's last layer has it."""
    at = text.rfind(USED) + len(USED)
    used = int(text[at : text.index("\n", at)])
    asked = _CUSTOMER.search(text)
    assert asked is not None, "a run of somebody else"
    if used >= int(asked[2]):
        return json.dumps({"final": "Thank you for your patience.", "evidence": []})
    return json.dumps({"tool": "get_order", "args": {"order_id": f"{asked[1]}.{used}"}})


def install() -> None:
    """From here on this process reaches no other business system, and knows the route `instant.ROUTE`."""
    client = http.Client(BusinessSystem())
    http.__dict__["_client_of"] = lambda _pid: client
    gateway.OFFLINE["instant"] = answer


def main() -> None:
    folder, what, *arguments = sys.argv[1:]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentsite.settings")
    install()
    if what == "celery":
        entry._celery(arguments)
        return
    entry._with_django()
    from runs.management.commands import worker

    command = worker._command

    def ours(queue: str, worker_name: str) -> list[str]:
        python, _, _, *rest = command(queue, worker_name)
        return [python, "-m", "tests.bench.growing", folder, "celery", *rest]

    worker._command = ours
    from django.core.management import call_command

    call_command(what, *arguments)


if __name__ == "__main__":
    main()
