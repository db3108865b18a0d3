"""Scripted turns that speak to people, and what is asserted of any such run."""

from __future__ import annotations

import json
from typing import Any

from runs import replay
from runs.models import Observation, Run, Turn

Json = dict[str, Any]
QUESTION = "Which order would you like us to look at?"
WORDS = "Thank you, we are looking into this."
ASKED = "We have asked you a question and are waiting for your answer."
NOT_YET = "No refund has been issued yet for this request."
NONE = "No refund has been issued for this request."
PERSON = "A specialist has taken over your request."
PEOPLE = ["message", "ask", "plan", "escalate"]
READS = ["get_order", "get_payments", "get_refund_status", "search_policy"]


def ask(question: str = QUESTION) -> Json:
    return {"tool": "ask", "args": {"question": question}}


def message(text: str = WORDS) -> Json:
    return {"tool": "message", "args": {"text": text}}


def plan(*steps: str) -> Json:
    return {"tool": "plan", "args": {"steps": list(steps or ("read the order", "read the payments"))}}


def escalate(reason: str = "two accounts share this order") -> Json:
    return {"tool": "escalate", "args": {"reason": reason}}


def results(run: Run) -> list[tuple[str, str, str]]:
    """(tool, kind, why) of every answered call, in the order of the calls."""
    seen = Observation.objects.filter(run=run).exclude(call_id="").order_by("position")
    named = sorted(seen, key=lambda o: [int(part) for part in o.call_id[1:].split(".")])
    return [(o.source, o.kind, o.content.get("rule") or o.content.get("error") or "") for o in named]


def each_call_has_one_result(run: Run) -> None:
    calls = [p["call_id"] for t in Turn.objects.filter(run=run) for p in t.proposals]
    answered = list(Observation.objects.filter(run=run).exclude(call_id="").values_list("call_id", flat=True))
    assert sorted(calls) == sorted(set(answered)) and len(answered) == len(set(answered))


def shown(run: Run) -> list[list[str]]:
    return list(Turn.objects.filter(run=run).order_by("number").values_list("tools_shown", flat=True))


def replayed(run: Run) -> list[Any]:
    """What today's code does otherwise than the record of the run says."""
    got = replay.play(json.loads(replay.text(replay.export(Run.objects.get(pk=run.pk)))))
    return [*got.differences, *got.information]
