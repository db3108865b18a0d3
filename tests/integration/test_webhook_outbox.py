"""A webhook is left with the very transition it tells of, by every path, and holds nothing of staff."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection, transaction

from agentsite.canonical import canonical_text
from runs.contracts import NewEvent
from runs.models import Event, Run, Webhook, Write
from runs.orchestrator import settle
from runs.store import events
from tests.between import make_due, put_back
from tests.operating import acts, operator
from tests.to_people import QUESTION, ask
from tests.world import TENANT, World, final, gather, refund, s0

HOOK = "https://shop.example/hooks"
EXPECTED = {
    "run_id", "request_id", "trace_id", "tenant_id", "agent", "seq", "version", "status", "waiting_for", "outcome",
    "reason", "customer_message", "reply",
}  # fmt: skip


def left(run: Run) -> list[Webhook]:
    return list(Webhook.objects.filter(run=run).order_by("seq"))


def types(run: Run) -> list[str]:
    return [row.type for row in left(run)]


def told(row: Webhook) -> dict[str, Any]:
    """Its data, checked against the event it stands for."""
    document = json.loads(row.body)
    event = Event.objects.get(run=row.run_id, seq=row.seq)
    assert (document["type"], document["data"]["seq"]) == (row.type, event.seq)
    assert set(document) == {"type", "timestamp", "data"} and set(document["data"]) >= EXPECTED
    data: dict[str, Any] = document["data"]
    return data


def start(world: World, **more: Any) -> Run:
    return world.start(callback_url=HOOK, **more)


def test_approved_run_tells_that_it_waits_and_that_it_is_done(world: World) -> None:
    run = start(world)
    [asked] = left(run)
    approval, data = world.approval(run), told(asked)
    assert (asked.type, asked.tenant_id, asked.url, asked.host) == ("run.awaiting_approval", TENANT, HOOK,
                                                                    "shop.example:443")  # fmt: skip
    assert (asked.state, asked.tries, asked.id.startswith("msg_")) == ("due", 0, True)
    assert (data["status"], data["waiting_for"], data["outcome"]) == ("awaiting_approval", "approval", None)
    assert data["customer_message"] == world.said(run)
    assert data["approval"] == {
        "approval_id": approval.id, "status": "pending", "action_hash": approval.action_hash,
        "expires_at": data["approval"]["expires_at"],
    }  # fmt: skip
    world.approve(run)
    run = world.resume(run, until="completed")
    assert types(run) == ["run.awaiting_approval", "run.completed"]
    data = told(left(run)[1])
    assert (data["status"], data["outcome"], data["reply"], data["version"]) == (
        "completed", "refunded", run.reply, run.version,
    )  # fmt: skip
    assert data["customer_message"] == world.said(run)
    assert not [row for row in left(run) if "lead_17" in row.body]


def test_run_without_an_address_leaves_nothing(world: World) -> None:
    run = world.start()
    world.cancel(run)
    assert (world.resume(run).status, Webhook.objects.count()) == ("cancelled", 0)


def test_transition_that_is_rolled_back_leaves_nothing(world: World) -> None:
    run = world.admit(callback_url=HOOK)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        world.resume(run)
        assert Webhook.objects.count() == 1
        raise ZeroDivisionError
    assert Webhook.objects.count() == 0


def test_expiry_is_told_as_an_expiry(world: World) -> None:
    world.profile(approval_ttl_s=1)
    run = world.resume(start(world), until="approval_expired")
    assert types(run) == ["run.awaiting_approval", "run.approval_expired"]
    data = told(left(run)[1])
    assert (data["status"], data["waiting_for"], data["approval"]["status"]) == ("approval_expired", "staff", "expired")
    assert data["customer_message"] == world.said(run) and "reject" not in left(run)[1].body
    assert world.posts() == []


def test_expiry_beside_a_confirmed_refund_is_told_too(world: World) -> None:
    """Its run goes back to `verified` and to its end, and never is in `approval_expired`."""
    world.limits(requires_approval_above="500.00")
    world.profile(approval_ttl_s=1)
    script = [*gather(), refund(amount="400.00"), refund("pay_9001", "600.00"), final()]
    run = world.resume(start(world, script=script), until="completed")
    assert "run.approval_expired" in types(run) and types(run)[-1] == "run.completed"
    expired = next(row for row in left(run) if row.type == "run.approval_expired")
    assert (told(expired)["status"], told(expired)["approval"]["status"]) == ("verified", "expired")


def test_question_to_the_customer_is_told_with_its_words(world: World) -> None:
    run = start(world, script=[ask(), *s0()])
    assert types(run) == ["run.waiting_reply"]
    assert QUESTION in told(left(run)[0])["customer_message"]


@pytest.mark.parametrize(("kind", "status"), [("cancel", "cancelled"), ("escalate", "escalated")])
def test_cancelled_and_escalated_are_told(world: World, kind: str, status: str) -> None:
    run = start(world)
    world.leave(run, kind)
    run = world.resume(run, until=status)
    assert types(run) == ["run.awaiting_approval", f"run.{status}"]
    data = told(left(run)[1])
    assert (data["outcome"], data["reason"]) == (run.outcome, run.reason)


@pytest.mark.parametrize("column", ["contract", "pending_action"])
def test_run_that_no_code_can_load_still_tells_that_it_failed(world: World, column: str) -> None:
    run = start(world)
    with connection.cursor() as cursor:  # past the field that would refuse it
        key = run.pk if connection.vendor == "postgresql" else run.pk.hex
        cursor.execute(f"UPDATE runs_run SET {column} = %s WHERE id = %s", [canonical_text([1]), key])
    make_due(run)
    assert world.step(run) == "failed"
    assert types(run) == ["run.awaiting_approval", "run.failed"]
    data = told(left(run)[1])
    assert (data["status"], data["reason"], data["outcome"]) == ("failed", "schema_unknown", "handed_to_staff")
    assert data["customer_message"].startswith("We could not finish your request")


def test_correction_is_told_with_the_corrected_words(world: World) -> None:
    run = start(world)
    world.approve(run)
    run = world.resume(run, until="completed")
    world.heard.clear()  # what was said until now was true until now
    for made in world.refunds("pay_9002"):
        world.sandbox.control(f"/_refunds/{made['refund_id']}", state="failed")
    put_back(Write.objects.filter(run=run), closed_at=90_000, watch_at=1, seen_at=90_000)
    assert settle(Write.objects.get(run=run).key) == "failed"
    run = world.fresh(run)
    assert types(run)[-1] == "run.corrected"
    data = told(left(run)[-1])
    assert (data["previous_outcome"], data["outcome"], data["reply"]) == ("refunded", "refund_failed", run.reply)
    assert data["customer_message"] == world.said(run)


def test_finish_by_hand_is_told_without_who_did_it_or_why(world: World) -> None:
    run = start(world)
    world.leave(run, "escalate")
    run = world.resume(run, until="escalated")
    words = "We have refunded you by bank transfer."
    assert acts(operator(), run, "finish", reason="settled_elsewhere", note="ticket 77", text=words) == 302
    run = world.fresh(run)
    row = left(run)[-1]
    data = told(row)
    assert (row.type, data["outcome"], data["reply"]) == ("run.resolved", "resolved_by_staff", words)
    assert not {"ops_3", "ticket 77", "settled_elsewhere"} & set(row.body.split('"'))


def test_second_question_about_one_run_is_told_again(world: World) -> None:
    world.profile(approval_ttl_s=1)
    run = world.resume(start(world), until="approval_expired")
    world.leave(run, "ask_again")
    run = world.resume(run, until="awaiting_approval")
    assert types(run) == ["run.awaiting_approval", "run.approval_expired", "run.awaiting_approval"]
    assert told(left(run)[2])["approval"]["approval_id"] == world.approval(run).id


def test_event_that_a_client_is_told_of_cannot_be_left_alone(world: World) -> None:
    run = world.admit(callback_url=HOOK)
    here = events.Position(seq=run.last_seq, head=run.chain_head)
    ended = NewEvent(type="run.status", meta={"from": "accepted", "to": "completed", "reason": None})
    with pytest.raises(AssertionError), transaction.atomic():
        events.append(str(run.pk), here, run.version, [ended])
    assert Event.objects.filter(run=run).count() == 1
