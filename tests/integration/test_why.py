"""`why` tells the causal story of a run from its record alone (M77): numbers, names, hash, key, verification."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command

from runs import explain
from tests.world import KEY, final, inr, refund, s0

if TYPE_CHECKING:
    from pytest_django import DjangoAssertNumQueries

    from runs.models import Run
    from tests.world import World

Json = dict[str, Any]


def printed(*args: str) -> str:
    out = io.StringIO()
    call_command("why", *args, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def told(*args: str) -> Json:
    found: Json = json.loads(printed(*args, "--json"))
    return found


def fails(code: int, *args: str) -> str:
    with pytest.raises(CommandError) as caught:
        printed(*args)
    assert caught.value.returncode == code
    return str(caught.value)


def refunded(world: World) -> Run:
    run = world.start()
    world.approve(run)
    return world.resume(run, until="completed")


def test_why_tells_evidence_rule_approver_hash_key_and_verification(world: World) -> None:
    run = refunded(world)
    found = told("req-8472")
    (write,), (gated,), (asked,) = found["writes"], found["gate"], found["approvals"]
    assert (found["run_id"], found["status"], found["outcome"]) == (str(run.pk), "completed", "refunded")
    assert (write["key"], write["amount"], write["state"]) == (KEY, inr("2000.00"), "confirmed")
    assert write["action_hash"] == asked["action_hash"] == gated["action_hash"]
    assert [(d["by"], d["decision"]) for d in asked["decisions"]] == [("lead_17", "approve")]
    assert asked["rule"] == "refund_above_1000_requires_approval"
    assert [(a["number"], a["answer"]) for a in write["attempts"]] == [(1, "made")]
    assert write["attempts"][0]["prepared_at"] <= write["attempts"][0]["sent_at"] <= write["attempts"][0]["answered_at"]
    verified = write["verification"]
    assert (verified["check"], verified["passed"]) == ("refund_matches_intent", True)
    assert verified["found"]["refund_id"] == write["refund_id"] == world.refunds()[0]["refund_id"]
    assert (found["reply"], found["goal"]) == (run.reply, run.contract["goal"])


def test_why_shows_every_check_with_its_numbers(world: World) -> None:
    refunded(world)
    (gated,) = told("req-8472")["gate"]
    numbers = {check["name"]: check.get("inputs") for check in gated["checks"]}
    assert all(check["ok"] for check in gated["checks"]) and len(numbers) == 20
    left = numbers["nothing_refundable"]
    assert (left["captured"], left["refunded"], left["amount_due"]) == (inr("4000.00"), inr("0.00"), inr("2000.00"))
    assert left["max_excess"] == inr("2000.00")
    assert numbers["within_own_authority"]["threshold"] == inr("1000.00")


def test_why_shows_what_was_observed_and_how_old_it_was(world: World) -> None:
    refunded(world)
    reads = {one["source"]: one for one in told("req-8472")["reads"]}
    assert reads["get_payments"]["fact"] == "pay_9001 captured 2,000.00 INR; pay_9002 captured 2,000.00 INR"
    assert reads["get_refund_status"]["fact"] == "no refund exists"
    assert 0 <= reads["get_payments"]["age_s"] < 60
    assert reads["issue_refund"]["age_s"] is None
    assert reads["get_payments"]["content_hash"].startswith("sha256:")


def test_why_answers_in_one_paragraph(world: World) -> None:
    refunded(world)
    refund_id = world.refunds()[0]["refund_id"]
    last = printed("req-8472").rstrip("\n").split("\n")[-1]
    assert last == told("req-8472")["answer"]
    for words in (
        f"Refund {refund_id} of 2,000.00 INR to payment pay_9002 on order 8472 was made because",
        "4,000.00 INR captured, 0.00 INR refunded and 2,000.00 INR due, which leaves 2,000.00 INR to give back",
        "policy POL-REF-004@v4, the current version",
        "The gate's 20 checks held on facts it read itself; refund above 1,000 INR needs approval, and ",
        "and lead_17 approved exactly this action (sha256:",
        f"It was sent once under the idempotency key {KEY}, and was answered after ",
        f"An independent read then found {refund_id}: 2,000.00 INR on pay_9002, succeeded",
    ):
        assert words in last


def test_why_finds_a_run_by_any_of_its_ids(world: World) -> None:
    run = refunded(world)
    assert {told(text)["run_id"] for text in (str(run.pk), run.trace_id, "req-8472")} == {str(run.pk)}


def test_why_asks_nothing_live(world: World) -> None:
    refunded(world)
    before = len(world.sandbox.calls())
    printed("req-8472")
    assert len(world.sandbox.calls()) == before


def test_explaining_a_record_is_pure(world: World, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    record = explain.read(refunded(world))
    with django_assert_num_queries(0):
        first, again = explain.explain(record), explain.explain(record)
    assert first == again


def test_why_not_after_a_rejection(world: World) -> None:
    run = world.start()
    world.reject(run, "the goods were kept")
    world.resume(run, until="completed")
    assert told("req-8472")["answer"].startswith("No refund was made: lead_17 rejected it on ")
    assert "saying “the goods were kept”" in told("req-8472")["answer"]
    assert world.refunds() == []


def test_why_not_while_a_person_must_decide(world: World) -> None:
    world.start()
    answer = told("req-8472")["answer"]
    rule = "refund above 1,000 INR needs approval"
    assert answer.startswith(f"No refund has been made so far: {rule}, and a person has until ")
    assert " to decide on 2,000.00 INR (sha256:" in answer


def test_why_not_where_the_gate_denied(world: World) -> None:
    world.start(script=s0(refund(amount="2500.00")))
    answer = told("req-8472")["answer"]
    assert answer.startswith("No refund was made: the gate denied 2,500.00 INR to pay_9002, because of “")
    assert "refundable 2,000.00 INR" in answer and "requested 2,500.00 INR" in answer
    assert world.refunds() == []


def test_why_not_where_nothing_was_proposed(world: World) -> None:
    world.start(script=[final()])
    assert told("req-8472")["answer"] == "No refund was made: the model proposed none."


def test_why_tells_an_unverified_refund_as_such(world: World) -> None:
    run = world.start()
    world.approve(run)
    world.sandbox.fault("POST /v1/refunds", 'amount:{"amount": "1.00", "currency": "INR"}')
    world.may_over_refund = True
    world.resume(run, until="escalated")
    found = told("req-8472")
    assert "The independent read did not confirm it (amount), and nothing was issued" in found["answer"]
    assert found["answer"].endswith("The run was handed to a person (verification failed).")
    assert found["verification"]["found"]["amount"] == inr("1.00")


def test_why_of_an_unknown_run_is_one_line_and_exit_1(world: World) -> None:
    assert fails(1, "req-none") == "no run has the run id, trace id or request id 'req-none'"
    assert fails(1, "req-none", "--tenant", "t_x").startswith("no run of tenant t_x has")


def test_why_asks_for_the_tenant_where_two_have_the_request(world: World) -> None:
    first = world.admit(script=[final()])
    world.begin("t_other")
    second = world.admit(script=[final()])
    assert fails(2, "req-8472") == "'req-8472' is a request of t_acme_in, t_other: name the tenant with --tenant"
    shown = [told("req-8472", "--tenant", name)["run_id"] for name in ("t_acme_in", "t_other")]
    assert shown == [str(first.pk), str(second.pk)]


def test_why_writes_out_what_would_move_the_cursor(world: World) -> None:
    world.start(script=[final()], goal="\x1b[2J I was [bold]charged[/bold] twice")
    words = printed("req-8472")
    assert "\x1b" not in words
    assert "“\\u001b[2J I was [bold]charged[/bold] twice”" in words
