"""Door: a lane's business system, a sandbox process that begins anew for each scenario. Reached by HTTP alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentsite.private.processes import wait_until
from runs.chaos import calls
from runs.chaos.business import BusinessSystem, Kind
from runs.evaluation.scenarios import Business

Json = dict[str, Any]
QUIET_S = 6.0
AS_IT_COMES = Kind(behaviour={}, promises={})


class Lane(BusinessSystem):
    """Scenarios of one lane come one after the other; `theirs` are ids of refunds that no run of ours made."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        super().__init__(folder, AS_IT_COMES)
        self.theirs: set[str] = set()

    def begin(self, business: Business) -> None:
        """The world of a scenario. Raises calls.Refused where the sandbox does not take it."""
        self.theirs = set()
        self.seed(
            {name: list(rows) for name in ("orders", "payments", "refunds") if (rows := getattr(business, name))},
            reset=True,
        )
        if business.kind:
            self.control("/_config", **business.kind)
        for fault in business.faults:
            self.control("/_faults", **fault)

    def seed(self, body: Json, *, reset: bool = False) -> None:
        self.control("/_seed", **body, **({"reset": True} if reset else {}))
        self.theirs |= {str(refund["refund_id"]) for refund in body.get("refunds", ())}

    def refund_beside(self, body: Json) -> None:
        made = calls.document(calls.call("POST", f"{self.url}/_refunds", body=body), 201)
        self.theirs.add(str(made["refund_id"]))

    def settle(self, state: str) -> int:
        """Every pending refund goes to that state; how many there were."""
        waiting = [refund for refund in self.refunds() if refund["state"] == "pending"]
        for refund in waiting:
            self.control(f"/_refunds/{refund['refund_id']}", state=state)
        return len(waiting)

    def posts(self) -> list[Json]:
        return self.calls("method=POST&path=/v1/refunds")

    def is_quiet(self) -> bool:
        """Whether no request for a refund is under way any more, after a while: one may be made late."""
        return wait_until(lambda: not self._open(), QUIET_S)

    def _open(self) -> bool:
        """A request that is answered late has no status yet; one that was dropped never has."""
        return any(call["status"] is None and str(call["fault"]).startswith("delay:") for call in self.posts())
