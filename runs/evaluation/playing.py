"""Door: one scenario through a private site's own doors, from its request to where it ends or comes to rest.

What is said about it afterwards is seen from outside alone: the API's run, the ledger, the answers that people got.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentsite import clock
from runs.chaos import calls
from runs.evaluation import loading, scoring
from runs.evaluation.acting import Acting, Seat, Stage
from runs.evaluation.lanes import Lane
from runs.evaluation.people import WAIT_S, Client
from runs.evaluation.scoring import Happened

Json = dict[str, Any]
ENDED = ("completed", "escalated", "cancelled", "failed")
REST_S, PATIENCE_S = 1.0, 15.0
"""How long a run must stand still to be at rest; and how long where it may still be on its way: somebody did something
that it must answer to, or it is not yet as the scenario expects."""
PAUSE_S = 0.3
"""Between two looks: a look costs the site more than most of a run's own steps."""


@dataclass(frozen=True, kw_only=True)
class Played:
    """`run` is its last state, None where none was admitted; `wall_ms` from the request to the end."""

    seat: Seat
    happened: Happened
    run: Json | None
    wall_ms: int


class Play:
    """One scenario under way."""

    def __init__(self, stage: Stage, seat: Seat, deadline_s: float) -> None:
        self._seat, self._deadline_s = seat, deadline_s
        self._client = Client(stage.url, seat.token)
        self._acting = Acting(stage, seat, self._client)
        self._notes = self._acting.notes
        self._run: Json = {}
        self._acted_at: str | None = None

    def play(self) -> Played:
        """Raises calls.Refused where the sandbox or the site refuses what no scenario may ask, calls.NoAnswer."""
        self._seat.lane.begin(self._seat.scenario.business)
        started = clock.monotonic()
        self._until, self._moved_at = started + self._deadline_s, started
        reply = self._client.ask(loading.request(self._seat.scenario))
        if reply.status != 202:
            self._notes.append(f"the request was answered {reply.status} {reply.body[:200].decode(errors='replace')}")
            return self._told("ended", f"refused_{reply.status}", None, started)
        run_id = str(calls.document(reply, 202)["run_id"])
        over = self._follow(run_id)
        took = clock.monotonic()
        if over == "stuck":
            self._client.say(run_id, "cancel", reason="the evaluation's patience is over")
        if not self._seat.lane.is_quiet():
            self._notes.append("a request for a refund was still under way")
        if over != "rests":
            self._client.forget()
            self._run = self._client.run(run_id) or self._run
        return self._told(over, str(self._run["status"]), self._run, started, took)

    # --- what goes on ---

    def _follow(self, run_id: str) -> Any:
        """`ended`, `rests` or `stuck`."""
        while clock.monotonic() < self._until:
            if not self._look(run_id):
                continue
            if self._acting.is_due(self._run):
                self._act()
                continue
            if self._run["status"] in ENDED:
                return "ended"
            if self._rests():
                return "rests"
        return "stuck"

    def _look(self, run_id: str) -> bool:
        """Whether something is known; waits a moment for something new."""
        time.sleep(PAUSE_S)
        waiting = bool(self._run) and not self._may_rest()
        found = self._client.run(run_id, wait_s=WAIT_S if waiting else 0)
        if found is not None:
            self._moved_at = clock.monotonic()
            self._acted_at = self._acted_at if found["status"] == self._acted_at else None
            self._run = found
            if self._acting.left:
                self._acting.count(run_id)
        return bool(self._run)

    def _act(self) -> None:
        if self._acting.act(self._run):
            self._acted_at = self._run["status"]
        self._moved_at = clock.monotonic()

    def _may_rest(self) -> bool:
        expected, status = self._seat.scenario.expected, self._run["status"]
        if expected.rests_at and status in expected.status and not self._acting.left:
            return True
        pending = (self._run["approval"] or {}).get("status") == "pending"
        return status == "awaiting_approval" and pending and not self._acting.is_due(self._run) and not self._runs_out()

    def _runs_out(self) -> bool:
        """Whether the question that waits for staff expires while this scenario may last."""
        approval = self._run["approval"] or {}
        if not approval.get("expires_at"):
            return True
        left_s = (clock.parse_rfc3339(approval["expires_at"]) - clock.now()).total_seconds()
        return left_s < self._until - clock.monotonic()

    def _rests(self) -> bool:
        still_s = clock.monotonic() - self._moved_at
        if still_s < REST_S or not self._may_rest():
            return False
        return still_s > PATIENCE_S or (self._acted_at is None and self._is_as_expected())

    def _is_as_expected(self) -> bool:
        """Whether a run that may rest is in the end that is right; any other that waits for people is at rest too."""
        expected = self._seat.scenario.expected
        if not expected.rests_at:
            return True
        seen = self._seen("rests", str(self._run["status"]), self._run)
        return scoring.score(expected, seen, loading.read_profile(self._seat.scenario).write_tools).kind == "success"

    # --- what came of it ---

    def _told(self, over: Any, status: str, run: Json | None, started: float, took: float | None = None) -> Played:
        wall_ms = round(((took or clock.monotonic()) - started) * 1000)
        return Played(seat=self._seat, happened=self._seen(over, status, run), run=run, wall_ms=wall_ms)

    def _seen(self, over: Any, status: str, run: Json | None) -> Happened:
        lane, seen = self._seat.lane, run or {}
        notes = [*self._notes, *(f"never came to {act.do} at {act.when}" for act in self._acting.left)]
        ledger = lane.refunds()
        return Happened(
            over=over, status=status, outcome=seen.get("outcome"), reason=seen.get("reason"),
            said=seen.get("reply") or seen.get("customer_message") or "", sent=_sent(lane),
            approved=self._acting.approved,
            refunds=tuple(r for r in ledger if r["refund_id"] not in lane.theirs and not self._strange(r)),
            others=tuple(r for r in ledger if r["refund_id"] in lane.theirs), notes=tuple(notes),
        )  # fmt: skip

    def _strange(self, refund: Json) -> bool:
        """Whether a run of an earlier scenario made it, late: it is not this one's."""
        key = str(refund.get("idempotency_key") or "")
        return key.startswith("ev_") and not key.startswith(f"{self._seat.tenant}/")


def _sent(lane: Lane) -> Mapping[str, str | None]:
    return {str(call["idempotency_key"]): (call["body"] or {}).get("approval_id") for call in lane.posts()}
