"""Door: who knocks while everything falls: client programs that ask again until answered, staff who approve."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from runs.chaos import calls
from runs.chaos.ground import APPROVER, PASSWORD
from tools.adapters.http import Reply

Json = dict[str, Any]
ASK_AGAIN_S = 0.3
DECIDED = (200, 409)


class Shop:
    """A client program: it repeats its request under the same `request_id` until somebody answers."""

    def __init__(self, url: str, token: str, stop: threading.Event) -> None:
        self._url, self._stop = url, stop
        self._headers = {"Authorization": f"Bearer {token}"}

    def admit(self, body: Json) -> None:
        """Returns when the site has taken the request, or the campaign is over. Raises calls.Refused."""
        while not self._stop.is_set():
            try:
                reply = calls.call("POST", f"{self._url}/api/v1/runs", headers=self._headers, body=body)
            except calls.NoAnswer:
                self._stop.wait(ASK_AGAIN_S)
                continue
            if reply.status < 500:
                calls.document(reply, 200, 202)
                return
            self._stop.wait(ASK_AGAIN_S)


class Staff:
    """The approver, signed in through the console's own page; answers whatever is asked with yes."""

    def __init__(self, url: str, username: str = APPROVER) -> None:
        self._url, self._username = url, username
        self._cookies: dict[str, str] = {}

    def approve_all(self) -> int:
        """Approves what is pending now; how many decisions were taken. Raises calls.NoAnswer, calls.Refused."""
        if not self._cookies:
            self._sign_in()
        listed = self._get("/api/v1/approvals?status=pending&limit=100")
        return sum(self._approve(approval) for approval in listed["results"])

    def _approve(self, approval: Json) -> bool:
        body = {"decision": "approve", "action_hash": approval["action_hash"], "reason": "charged twice"}
        url = f"{self._url}/api/v1/approvals/{approval['approval_id']}/decision"
        headers = {**self._cookie(), "X-CSRFToken": self._cookies["csrftoken"]}
        reply = calls.call("POST", url, headers=headers, body=body)
        if reply.status >= 500:
            raise calls.NoAnswer(f"{reply.status} on a decision")
        calls.document(reply, *DECIDED)
        return reply.status == 200

    def _get(self, path: str) -> Json:
        reply = calls.call("GET", self._url + path, headers=self._cookie())
        if reply.status >= 500:
            raise calls.NoAnswer(f"{reply.status} on {path}")
        found: Json = calls.document(reply)
        return found

    def _sign_in(self) -> None:
        page = f"{self._url}/admin/login/"
        form = _cookies(calls.call("GET", page))
        if "csrftoken" not in form:
            raise calls.NoAnswer("the sign-in page came without its form")
        fields = {"username": self._username, "password": PASSWORD, "csrfmiddlewaretoken": form["csrftoken"]}
        headers = {"Cookie": _cookie(form), "Content-Type": "application/x-www-form-urlencoded"}
        reply = calls.send("POST", page, headers, urlencode({**fields, "next": "/admin/"}).encode())
        if reply.status != 302:
            raise calls.NoAnswer(f"{reply.status} on signing in")
        self._cookies = form | _cookies(reply)

    def _cookie(self) -> dict[str, str]:
        return {"Cookie": _cookie(self._cookies)}


def _cookies(reply: Reply) -> dict[str, str]:
    # Several of one header arrive joined by commas; these two values hold neither comma nor semicolon.
    return dict(re.findall(r"\b(csrftoken|sessionid)=([^;,\s]+)", reply.headers.get("set-cookie", "")))


def _cookie(cookies: Mapping[str, str]) -> str:
    return "; ".join(f"{name}={value}" for name, value in cookies.items())
