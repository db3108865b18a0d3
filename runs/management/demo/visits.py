"""Who comes by in the demo, over HTTP like anybody: the business system's clerk, the client program, the approver.

Part of `demo`. Imports no httpx and touches no row.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.core.management.base import CommandError

from agentsite import env
from runs.management.demo.ground import Login
from tools.adapters import http
from tools.adapters.http import Reply
from tools.contracts import Json

TIMEOUT_S = 10.0
ORDER_ID = "8472"
REQUEST_ID = "req-8472"
GOAL = "Order 8472 was charged twice, and my refund has not arrived."
REASON = "Two captures 41 seconds apart on one order: the second one goes back."
PRICE = {"amount": "2000.00", "currency": "INR"}
ORDER: Json = {
    "order_id": ORDER_ID, "customer_id": "cust_5521", "total": PRICE, "amount_due": PRICE, "status": "delivered",
}  # fmt: skip
PAYMENTS: list[Json] = [
    {"payment_id": name, "order_id": ORDER_ID, "state": "captured", "amount": PRICE, "captured_at": at}
    for name, at in (("pay_9001", "2026-11-20T09:30:00.000Z"), ("pay_9002", "2026-11-20T09:30:41.000Z"))
]
REQUEST: Json = {
    "request_id": REQUEST_ID, "goal": GOAL, "order_ids": [ORDER_ID], "agent": "refunds",
    "actor": {"customer_id": "cust_5521", "session_id": "sess_91c", "channel": "chat"},
    "limits": {"max_model_calls": 12, "deadline_ms": 30000, "max_write_attempts": 2},
}  # fmt: skip


def site_answers(url: str, *, token: str) -> bool:
    """Whether a site is up there on the store that knows this token."""
    headers = {"Authorization": f"Bearer {token}"}
    try:
        return http.shared().request("GET", f"{url}/api/v1/runs", headers=headers, timeout_s=TIMEOUT_S).status == 200
    except http.HttpError:
        return False


def seed(url: str) -> bool:
    """Order 8472, charged twice, where the business system does not know it yet; whether it was made now."""
    token = env.read().COMMERCE_READ_TOKEN.get_secret_value()
    headers = {"Authorization": f"Bearer {token}", "X-Trace-Id": uuid.uuid4().hex}
    if _call("GET", f"{url}/v1/orders/{ORDER_ID}", headers=headers).status == 200:
        return False
    made = _call("POST", f"{url}/_seed", body={"orders": [ORDER], "payments": PAYMENTS})
    _expect(made, 200, "the sandbox took no order")
    return True


def admit(url: str, token: str) -> Json:
    """The run of `req-8472`: made now, or the one that exists."""
    reply = _call("POST", f"{url}/api/v1/runs", headers={"Authorization": f"Bearer {token}"}, body=REQUEST)
    _expect(reply, (200, 202), "the request was not admitted")
    found: Json = json.loads(reply.body)
    return found


def decide(url: str, login: Login, approval_id: str) -> None:
    """Approve as a person does: sign in, read the question, answer exactly that. An answer that was given stands."""
    cookies = _sign_in(url, login)
    question = _call("GET", f"{url}/api/v1/approvals/{approval_id}", headers=_cookie(cookies))
    _expect(question, 200, "the question cannot be read")
    body = {"decision": "approve", "action_hash": json.loads(question.body)["action_hash"], "reason": REASON}
    headers = {**_cookie(cookies), "X-CSRFToken": cookies["csrftoken"]}
    answer = _call("POST", f"{url}/api/v1/approvals/{approval_id}/decision", headers=headers, body=body)
    _expect(answer, (200, 409), "the decision was not taken")


def _sign_in(url: str, login: Login) -> dict[str, str]:
    page = f"{url}/admin/login/"
    form = _cookies(_call("GET", page))
    fields = {"username": login.username, "password": login.password, "csrfmiddlewaretoken": form["csrftoken"]}
    reply = _send("POST", page, {**_cookie(form), "Content-Type": "application/x-www-form-urlencoded"},
                  urlencode({**fields, "next": "/admin/"}).encode())  # fmt: skip
    _expect(reply, 302, f"{login.username} could not sign in")
    return form | _cookies(reply)


def _cookies(reply: Reply) -> dict[str, str]:
    # Several of one header arrive joined by commas; these two values hold neither comma nor semicolon.
    return dict(re.findall(r"\b(csrftoken|sessionid)=([^;,\s]+)", reply.headers.get("set-cookie", "")))


def _cookie(cookies: Mapping[str, str]) -> dict[str, str]:
    return {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}


def _call(method: str, url: str, *, headers: Mapping[str, str] | None = None, body: Any = None) -> Reply:
    if body is None:
        return _send(method, url, headers or {}, None)
    return _send(method, url, {**(headers or {}), "Content-Type": "application/json"}, json.dumps(body).encode())


def _send(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
    try:
        return http.shared().request(method, url, headers=headers, timeout_s=TIMEOUT_S, body=body)
    except http.HttpError as error:
        raise CommandError(f"{method} {url} got no answer ({error})") from None


def _expect(reply: Reply, statuses: int | tuple[int, ...], otherwise: str) -> None:
    wanted = (statuses,) if isinstance(statuses, int) else statuses
    if reply.status not in wanted:
        raise CommandError(f"{otherwise}: HTTP {reply.status} {reply.body[:300].decode(errors='replace')}")
