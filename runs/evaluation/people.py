"""Door: who acts in a scenario: a client program with its tenant's token, staff at the console. Knows no row."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

from runs.chaos import calls
from runs.chaos.people import Staff
from tools.adapters.http import Reply

Json = dict[str, Any]
REASON = "as the scenario says"
WAIT_S = 2


class Client:
    """A client program. Answers are returned as they are; calls.NoAnswer where there is none."""

    def __init__(self, url: str, token: str) -> None:
        self._url = f"{url}/api/v1/runs"
        self._headers = {"Authorization": f"Bearer {token}"}
        self._etag = ""

    def ask(self, body: Json) -> Reply:
        return calls.call("POST", self._url, headers=self._headers, body=body)

    def run(self, run_id: str, *, wait_s: int = 0) -> Json | None:
        """The run, waited for while it is as this client saw it last; None where it still is."""
        known = {"If-None-Match": self._etag} if self._etag else {}
        url = f"{self._url}/{run_id}" + (f"?wait={wait_s}" if wait_s and known else "")
        reply = calls.call("GET", url, headers={**self._headers, **known})
        if reply.status == 304:
            return None
        found: Json = calls.document(reply)
        self._etag = reply.headers.get("etag", "")
        return found

    def forget(self) -> None:
        """The next read answers whatever it is."""
        self._etag = ""

    def events(self, run_id: str, after: int) -> list[Json]:
        reply = calls.call("GET", f"{self._url}/{run_id}/events?after={after}", headers=self._headers)
        found: list[Json] = calls.document(reply)["results"]
        return found

    def say(self, run_id: str, path: str, **body: Any) -> Reply:
        """A message or a cancel."""
        return calls.call("POST", f"{self._url}/{run_id}/{path}", headers=self._headers, body=body)


class Member(Staff):
    """One member of staff, signed in once; several threads may act as the same one."""

    def sign_in(self) -> Member:
        self._sign_in()
        return self

    @property
    def name(self) -> str:
        return self._username

    def decide(self, approval: Json, decision: str, reason: str, attestation: str | None = None) -> Reply:
        body = {"decision": decision, "action_hash": approval["action_hash"], "reason": reason or REASON}
        body |= {"attestation": attestation} if attestation and decision == "approve" else {}
        url = f"{self._url}/api/v1/approvals/{approval['approval_id']}/decision"
        return calls.call("POST", url, headers={**self._cookie(), "X-CSRFToken": self._cookies["csrftoken"]}, body=body)

    def ask_again(self, run_id: str) -> Reply:
        """The run's page, then its button."""
        return self._press(f"/admin/runs/run/{run_id}/act/ask-again/", reason="customer_still_waits", note=REASON)

    def withdraw(self, tenant_id: str, pin: str) -> Reply:
        """A policy's version, by the list of the documents and the page of this one."""
        doc, _, version = pin.rpartition("@v")
        listed = self._page(f"/admin/tools/policydocument/?{urlencode({'tenant': tenant_id, 'q': doc})}")
        for number in dict.fromkeys(re.findall(r"/admin/tools/policydocument/(\d+)/change/", listed)):
            place = f"/admin/tools/policydocument/{number}/status/?to=superseded"
            if f"{doc}@v{version}" in self._page(place):
                return self._press(place, reason=REASON)
        raise calls.Refused(f"{tenant_id} has no policy {pin}")

    def _press(self, path: str, **given: str) -> Reply:
        """A page's form with its hidden fields; 302 where it was done."""
        form = {**_hidden(self._page(path)), **given, "csrfmiddlewaretoken": self._cookies["csrftoken"]}
        headers = {**self._cookie(), "Content-Type": "application/x-www-form-urlencoded"}
        return calls.send("POST", self._url + path, headers, urlencode(form).encode())

    def _page(self, path: str) -> str:
        reply = calls.call("GET", self._url + path, headers=self._cookie())
        if reply.status != 200:
            raise calls.Refused(f"{reply.status} on {path}")
        return reply.body.decode()


def _hidden(page: str) -> dict[str, str]:
    fields = {}
    for tag in re.findall(r'<input[^>]*type="hidden"[^>]*>', page):
        found = dict(re.findall(r'(name|value)="([^"]*)"', tag))
        if "name" in found:
            fields[found["name"]] = found.get("value", "")
    return fields
