"""Who knocks at a site's doors: a client program with a token, and staff signed in through the console.

Imports neither pytest nor Django.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from typing import Any

import httpx

from tests.system.site import APPROVER, PASSWORD, STUCK_S, Site

Json = dict[str, Any]
GOAL = "Order 8472 was charged twice, and my refund has not arrived."
ENDED = ("completed", "escalated", "cancelled", "failed")
POLL_S = 0.15


def request_8472(request_id: str = "req-8472", *, order_id: str = "8472", **changes: Any) -> Json:
    """The request of the mission's example."""
    return {
        "request_id": request_id, "goal": GOAL.replace("8472", order_id),
        "actor": {"customer_id": "cust_5521", "session_id": "sess_91c", "channel": "chat"}, "order_ids": [order_id],
        **changes,
    }  # fmt: skip


LIMITS = httpx.Limits(max_connections=100, keepalive_expiry=2)
"""A server closes a connection that is idle for five seconds: a client that waits as long may write to a closed one."""


class Client:
    """A client program of a tenant."""

    def __init__(self, site: Site, token: str | None = None) -> None:
        self.site = site
        self.http = httpx.Client(
            base_url=f"{site.url}/api/v1", timeout=30, trust_env=False,
            headers={"Authorization": f"Bearer {token or site.token}"}, limits=LIMITS,
        )  # fmt: skip

    def post_run(self, body: Json) -> httpx.Response:
        return self.http.post("/runs", json=body)

    def admit(self, body: Json) -> str:
        """The id of a run that is new."""
        answer = self.post_run(body)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["run_id"])

    def run(self, run_id: str) -> Json:
        answer = self.http.get(f"/runs/{run_id}")
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    def runs(self, **filters: str) -> list[Json]:
        """All runs, newest first, through every page."""
        page = self.http.get("/runs", params={"limit": "100", **filters})
        found: list[Json] = []
        while True:
            assert page.status_code == 200, page.text
            found += page.json()["results"]
            if page.json()["next"] is None:
                return found
            page = self.http.get(page.json()["next"])

    def events(self, run_id: str) -> list[Json]:
        """The whole record."""
        found: list[Json] = []
        while True:
            page = self.http.get(f"/runs/{run_id}/events", params={"after": found[-1]["seq"] if found else 0})
            assert page.status_code == 200, page.text
            if not page.json()["results"]:
                return found
            found += page.json()["results"]

    def wait_for(self, run_id: str, statuses: str | Collection[str], *, limit_s: float = STUCK_S) -> Json:
        """The run once it is in one of the statuses. The limit only tells a stuck run from a slow machine."""
        wanted = {statuses} if isinstance(statuses, str) else set(statuses)
        deadline = time.monotonic() + limit_s
        while True:
            run = self.run(run_id)
            if run["status"] in wanted:
                return run
            ended = run["status"] in ENDED
            assert not ended and time.monotonic() < deadline, self.told(run_id, f"waited for {sorted(wanted)}")
            time.sleep(POLL_S)

    def told(self, run_id: str, words: str) -> str:
        """What a failed test says of a run."""
        run = self.run(run_id)
        shown = {name: run[name] for name in ("status", "waiting_for", "reason", "outcome", "writes", "approval")}
        record = "\n".join(f"{e['seq']:4} {e['at']} {e['type']} {str(e['data'])[:200]}" for e in self.events(run_id))
        return f"{words}: {shown}\n{record}\n{self.site.tails()}"


class Staff:
    """A member of staff, signed in through the console's own page."""

    def __init__(self, site: Site, username: str = APPROVER, password: str = PASSWORD) -> None:
        self.http = httpx.Client(base_url=site.url, timeout=30, trust_env=False, limits=LIMITS)
        page = self.http.get("/admin/login/")
        form = {"username": username, "password": password, "next": "/admin/", **_hidden(page.text)}
        answer = self.http.post("/admin/login/", data=form)
        assert answer.status_code == 302, f"signing in failed: {answer.status_code} {answer.text[:500]}"

    def approvals(self, **filters: str) -> list[Json]:
        answer = self.http.get("/api/v1/approvals", params={"limit": "100", **filters})
        assert answer.status_code == 200, answer.text
        found: list[Json] = answer.json()["results"]
        return found

    def approval(self, approval_id: str) -> Json:
        answer = self.http.get(f"/api/v1/approvals/{approval_id}")
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    def decide(self, approval: Json, decision: str = "approve", reason: str = "") -> httpx.Response:
        """Posts a decision; `approval` is a run's or the queue's own, with id and hash."""
        body = {"decision": decision, "action_hash": approval["action_hash"], "reason": reason}
        path = f"/api/v1/approvals/{approval['approval_id']}/decision"
        return self.http.post(path, json=body, headers={"X-CSRFToken": self.http.cookies["csrftoken"]})

    def approve(self, approval: Json) -> Json:
        answer = self.decide(approval)
        assert answer.status_code == 200, answer.text
        decided: Json = answer.json()
        return decided

    def review_page(self, approval_id: str) -> str:
        """The HTML of the review page."""
        answer = self.http.get(f"/admin/approvals/approval/{approval_id}/change/")
        assert answer.status_code == 200, answer.text
        return answer.text

    def click(self, approval_id: str, *, decision: str = "approve", reason: str = "", page: str | None = None) -> str:
        """Presses a button of the review page, as it is now or as it was loaded earlier; the page that follows."""
        form = {"decision": decision, "reason": reason, **_hidden(page or self.review_page(approval_id))}
        answer = self.http.post(f"/admin/approvals/approval/{approval_id}/change/", data=form, follow_redirects=True)
        assert answer.status_code == 200, answer.text
        return answer.text


def _hidden(page: str) -> dict[str, str]:
    """The hidden fields of a page's forms, the last one of a name."""
    fields = {}
    for tag in re.findall(r"<input[^>]*type=\"hidden\"[^>]*>", page):
        found = dict(re.findall(r'(name|value)="([^"]*)"', tag))
        if "name" in found:
            fields[found["name"]] = found.get("value", "")
    return fields
