"""Door: the business system of a campaign, a sandbox process that plays one kind of provider. Reached by HTTP alone."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentsite import env
from agentsite.private.processes import HOST, free_port, spawn, wait_until
from runs.chaos import calls
from runs.chaos.ground import SiteFailed, clean_environment

START_S = 30.0
Document = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How a provider behaves, and what the site is told of it; what it is told is true."""

    behaviour: Document
    promises: dict[str, str]


# Nothing of the provider's own may hide a second refund: it neither minds what is left nor what we expected.
_BLIND = {"check_remaining": False, "supports_expected_refunded": False}
KINDS = {
    "honours": Kind(
        behaviour={**_BLIND, "honours_keys": True},
        promises={"COMMERCE_HONOURS_KEYS": "1", "COMMERCE_SETTLE_S": "2"},
    ),
    "ignores": Kind(
        behaviour={**_BLIND, "honours_keys": False, "lists_keys": False, "lag_s": 1.0},
        promises={"COMMERCE_HONOURS_KEYS": "0", "COMMERCE_SETTLE_S": "3"},
    ),
    "forgets": Kind(
        behaviour={**_BLIND, "honours_keys": True, "key_life_s": 2.0},
        promises={"COMMERCE_HONOURS_KEYS": "1", "COMMERCE_KEY_LIFE_S": "2", "COMMERCE_SETTLE_S": "2"},
    ),
}
LATE_S = 1.5
"""The longest a refund of a campaign comes late or stays out of the lists; each kind's `settle_s` covers it."""


class BusinessSystem:
    """One process with a ledger of its own; call it from any thread, start it from one that lives as long."""

    def __init__(self, folder: Path, kind: Kind) -> None:
        port, log = free_port(), folder / "business.log"
        self.url = f"http://{HOST}:{port}"
        command = [sys.executable, "-m", "tools.sandbox", "--bind", HOST, "--port", str(port)]
        command += ["--file", str(folder / "business.sqlite3")]
        self.process = spawn(command, clean_environment(), cwd=env.ROOT, log=log)
        if not wait_until(lambda: "listening" in log.read_text(), START_S):
            raise SiteFailed(f"the sandbox did not start: {log.read_text()[-500:]}")
        self.control("/_config", **kind.behaviour)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def control(self, path: str, **body: Any) -> Any:
        """POSTs to one of the paths that begin with an underscore. Raises calls.NoAnswer, calls.Refused."""
        return calls.document(calls.call("POST", self.url + path, body=body))

    def fault(self, match: str, mode: str) -> None:
        """The next request that matches meets this once."""
        self.control("/_faults", match=match, mode=mode, times=1)

    def refunds(self) -> list[Document]:
        """Every refund that exists, hidden ones too."""
        found: list[Document] = calls.document(calls.call("GET", f"{self.url}/_state"))["refunds"]
        return found

    def faults_met(self) -> Counter[str]:
        """Requests that met a fault of the connection, by its name."""
        return Counter(str(one["fault"]).partition(":")[0] for one in self.calls() if one["fault"] is not None)

    def calls(self, query: str = "") -> list[Document]:
        found: list[Document] = calls.document(calls.call("GET", f"{self.url}/_calls?{query}"))["calls"]
        return found

    def settle_pending(self) -> int:
        """Every pending refund succeeds now; how many there were."""
        waiting = [refund for refund in self.refunds() if refund["state"] == "pending"]
        for refund in waiting:
            self.control(f"/_refunds/{refund['refund_id']}", state="succeeded")
        return len(waiting)
