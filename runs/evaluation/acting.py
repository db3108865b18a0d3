"""Door: what people do in a scenario: staff decide and ask again, the client writes and cancels, the world changes.

Each act waits for its moment, and they go in their order; what was odd about an answer is noted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from runs.chaos import calls
from runs.evaluation import scoring
from runs.evaluation.lanes import Lane
from runs.evaluation.people import Client, Member
from runs.evaluation.scenarios import Act, Scenario
from tools.adapters.http import Reply

Json = dict[str, Any]
PASSING = ("executing", "executed", "waiting_dependency")
"""Statuses that may be over before anybody looks: an act follows them all the same."""
MOVES = ("approve", "reject", "message", "cancel", "ask_again")
"""What a run must answer to."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What all scenarios have in common: the site's address and its staff."""

    url: str
    lead: Member
    second: Member
    operator: Member


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Where one scenario is played: its tenant, its token, its lane."""

    scenario: Scenario
    round: int
    tenant: str
    token: str
    lane: Lane


class Acting:
    """The acts of one scenario; `left` have not come yet, `approved` are people by the approval they agreed to."""

    def __init__(self, stage: Stage, seat: Seat, client: Client) -> None:
        self._stage, self._seat, self._client = stage, seat, client
        self.left = list(seat.scenario.acts)
        self.notes = list[str]()
        self.approved: dict[str, tuple[str, ...]] = {}
        self._entered: Counter[str] = Counter()
        self._seq = 0

    def count(self, run_id: str) -> None:
        """How often each status was entered, those that are over included."""
        for event in self._client.events(run_id, self._seq):
            self._seq = event["seq"]
            if event["type"] == "run.status":
                self._entered[event["data"]["to"]] += 1

    def is_due(self, run: Json) -> bool:
        if not self.left:
            return False
        act = self.left[0]
        stands = run["status"] == act.when or act.when in PASSING or self._entered[act.when] > act.nth
        return self._entered[act.when] >= act.nth and stands

    def act(self, run: Json) -> bool:
        """Does what is due; whether the run must answer to it."""
        act = self.left.pop(0)
        try:
            answer = self._do(act, run)
        except calls.Refused as refused:
            answer = str(refused)
        if answer:
            self.notes.append(f"{act.do} at {act.when}: {answer}")
        return not answer and act.do in MOVES

    def _do(self, act: Act, run: Json) -> str:
        """Does it; what was odd about the answer, in words."""
        lane, client, stage, run_id = self._seat.lane, self._client, self._stage, str(run["run_id"])
        if act.do in ("approve", "reject"):
            return self._decide(act, run)
        if act.do == "message":
            sent = {"text": act.text, "message_id": f"{act.when}-{act.nth}-{len(self.left)}"}
            return _odd(client.say(run_id, "messages", **sent), 202)
        if act.do == "cancel":
            return _odd(client.say(run_id, "cancel", reason=act.text), 202, 200)
        if act.do == "ask_again":
            return _odd(stage.operator.ask_again(run_id), 302)
        if act.do == "withdraw_policy":
            return _odd(stage.operator.withdraw(self._seat.tenant, act.text), 302)
        if act.do == "settle":
            lane.settle(act.text or "succeeded")
        elif act.do == "refund_beside":
            lane.refund_beside(act.body)
        elif act.do == "seed":
            lane.seed(act.body)
        elif act.do == "faults":
            lane.control("/_faults", **act.body)
        return ""

    def _decide(self, act: Act, run: Json) -> str:
        approval = run["approval"]
        if approval is None or approval["status"] != "pending":
            return "there is no question that waits"
        decision, told = act.do, ""
        if decision == "approve" and not self._is_right(run):
            decision = "reject"
            self.notes.append("whoever was to approve saw that it is not what is owed, and rejected it")
        people = [self._stage.lead, self._stage.second] if act.large else [self._stage.lead]
        for member in people:
            reply = member.decide(approval, decision, act.text, self._seat.scenario.profile.get("attestation"))
            told = _odd(reply, 200)
            if not told and decision == "approve":
                agreed = self.approved.get(approval["approval_id"], ())
                self.approved[approval["approval_id"]] = (*agreed, member.name)
            if told or not calls.document(reply).get("remaining"):
                break
        return told

    def _is_right(self, run: Json) -> bool:
        """What a person sees who looks: whether the action is one that the scenario expects or allows."""
        expected, pending = self._seat.scenario.expected, run["pending_action"] or {}
        right = (*expected.refunds, *expected.allowed)
        return not right or any(scoring.is_same(one, pending.get("args", {})) for one in right)


def _odd(reply: Reply, *good: int) -> str:
    return "" if reply.status in good else f"{reply.status} {reply.body[:160].decode(errors='replace')}"
