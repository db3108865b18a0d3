"""What is true after every case, whatever it did: I1 to I5 of the regression cases, by the rows and by the sandbox."""

from __future__ import annotations

import re
from typing import Any

from agentsite.canonical import canonical
from agentsite.money import Money
from agentsite.money import parse as parse_money
from approvals.models import Approval, Decision
from runs import reply, store
from runs.models import Event, Observation, Run, Write
from runs.states import On, Status, next_status
from tests.world import ENDED, World

Json = dict[str, Any]
UNCOUNTED = ("failed", "canceled")
NAMED = re.compile(r"\b(?:rf|pay)_[A-Za-z0-9_]+")
AMOUNT = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)? [A-Z]{3}\b")


def check_all(world: World) -> None:
    """Raises AssertionError naming what does not hold."""
    if not world.may_over_refund:
        never_over_refunded(world)
    every_post_was_released(world)
    for run in Run.objects.all():
        never_silently_stuck(run)
        nothing_said_without_an_observation(world, run)
        legal_transitions(run)


def never_over_refunded(world: World) -> None:
    """I1: what was refunded on an order never exceeds what was captured too much."""
    state = world.sandbox.http.get("/_state").json()
    for order in state["orders"]:
        mine = [p for p in state["payments"] if p["order_id"] == order["order_id"] and p["state"] != "disputed"]
        taken = [p["amount"] for p in mine if p["state"] in ("captured", "refunded")]
        ids = {p["payment_id"] for p in mine}
        given = [r["amount"] for r in state["refunds"] if r["payment_id"] in ids and r["state"] not in UNCOUNTED]
        if given:
            left = _sum(taken) - _sum(given) - parse_money(order.get("amount_due") or order["total"])
            assert left.minor >= 0, f"order {order['order_id']} was over-refunded by {left}"


def _sum(amounts: list[Json]) -> Money:
    total = parse_money(amounts[0])
    for amount in amounts[1:]:
        total = total + parse_money(amount)
    return total


def every_post_was_released(world: World) -> None:
    """I2: no POST without a person's persisted approval of exactly this action, or the gate's own allow."""
    for call in world.sandbox.posts():
        write, body = Write.objects.get(key=call["idempotency_key"]), call["body"]
        if body is None:
            continue  # the connection was cut before the business system read it
        if write.run.evidence_erased_at is not None:
            continue  # its words are gone; that the hash of the rest is not is a test of its own
        if "{{secret:" not in write.body:  # a placeholder is resolved on the wire alone
            assert write.body == canonical(body).decode(), "what was POSTed is the intent's frozen body"
            assert {name: body[name] for name in write.args} == write.args
        if write.approval_id is None:
            allowed = Event.objects.filter(run=write.run_id, type="gate.decided")
            kinds = [e.meta["decision"] for e in allowed if e.meta["action_hash"] == write.action_hash]
            assert "allow" in kinds and body["approval_id"] is None
            continue
        approval = Approval.objects.get(id=write.approval_id)
        yes = Decision.objects.filter(approval=approval, counted=True, decision="approve")
        assert (approval.status, approval.args, approval.action_hash) == ("consumed", write.args, write.action_hash)
        assert yes.count() >= approval.required and body["approval_id"] == approval.id


def never_silently_stuck(run: Run) -> None:
    """I3: a run has ended, or a timer or a person is responsible for it."""
    if run.status in ENDED:
        assert run.outcome is not None and run.due_at is None
        return
    assert run.due_at is not None, f"{run.request_id} is {run.status} and nobody will look"


def nothing_said_without_an_observation(world: World, run: Run) -> None:
    """I4: every id and amount in the customer's texts was observed, and no outcome is claimed that is not so."""
    last = [reply.customer_message(store.story(str(run.pk))), run.reply or ""]
    results = Observation.objects.filter(run=run, kind="result")
    known = canonical([o.content for o in results]).decode() + " ".join(_of_writes(run))
    amounts = {str(a) for o in results for a in _amounts(o.content)} | set(_of_writes(run))
    mine = [r for r in (*world.before, *world.refunds()) if (r["metadata"] or {}).get("run_id") == str(run.pk)]
    heard = world.heard.get(str(run.pk), set()) if run.evidence_erased_at is None else set()
    for text in {*last, *heard}:
        # A person's own words, and clauses of policy, follow their leads.
        facts = re.split("The reason given:|From our policy", text)[0]
        assert not [i for i in NAMED.findall(facts) if i.rstrip("_") not in known], text
        assert not [a for a in AMOUNT.findall(facts) if a not in amounts], text
        if "has been made and confirmed" in text:
            assert [r for r in mine if r["state"] == "succeeded"], text
        if text in last and "No refund has been issued" in text:
            assert not [r for r in mine if r["state"] not in UNCOUNTED], text


def _of_writes(run: Run) -> list[str]:
    rows = Write.objects.filter(run=run)
    found = [a for w in rows for a in _amounts(w.result)]  # a person who settled a write may have found another amount
    asked = [x for w in rows for x in (Money(minor=w.amount_minor, currency=w.currency), w.refund_id, w.payment_id)]
    return [str(x) for x in (*found, *asked)]


def _amounts(value: Any) -> list[Money]:
    if isinstance(value, dict):
        own = [parse_money(value)] if set(value) == {"amount", "currency"} else []
        return [*own, *(a for inner in value.values() for a in _amounts(inner))]
    return [a for inner in value for a in _amounts(inner)] if isinstance(value, list) else []


def legal_transitions(run: Run) -> None:
    """I5: statuses follow the table from `accepted` on, each with a version of its own, the last one is the run's."""
    status, version = "accepted", 1
    for event in Event.objects.filter(run=run).order_by("seq"):
        assert event.version >= version
        if event.type != "run.status":
            continue
        assert event.meta["from"] == status and event.version > version
        if "on" in event.meta:
            to = Status(event.meta["to"])
            pair = Status(status), On(event.meta["on"])
            assert to in {next_status(*pair, confirmed_write=held, resume=to) for held in (False, True)}
        status, version = event.meta["to"], event.version
    assert (run.status, run.version >= version) == (status, True)
