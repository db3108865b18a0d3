"""`export_run` and `replay` on stored runs (M79), and stored actions that a deploy no longer understands (M87)."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agentsite import env
from runs import replay
from runs.contracts import SCHEMA
from runs.models import Event, Run
from runs.store.lease import NEWER_FOR_S
from tests.between import put_back
from tests.world import KEY, World, final, gather, reads, refund, turn, worker_dies
from tools import registry
from tools.arguments import RefundArguments

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]
WRITES = ("INSERT", "UPDATE", "DELETE")


def command(name: str, *args: str) -> str:
    out = io.StringIO()
    call_command(name, *args, stdout=out, stderr=io.StringIO(), skip_checks=True)
    return out.getvalue()


def fails(code: int, name: str, *args: str) -> str:
    with pytest.raises(CommandError) as caught:
        command(name, *args)
    assert caught.value.returncode == code
    return str(caught.value)


def refunded(world: World) -> Run:
    run = world.start()
    world.approve(run)
    return world.resume(run, until="completed")


# --- export_run --------------------------------------------------------------------------------------------------


def test_export_holds_everything_and_is_the_same_twice(world: World) -> None:
    run = refunded(world)
    world.sandbox.control("/_faults", clear=True)
    first = command("export_run", "req-8472")
    assert command("export_run", str(run.pk)) == command("export_run", run.trace_id, "--tenant", "t_acme_in") == first
    assert first.endswith("}\n") and first.isascii()
    found: Json = json.loads(first)
    assert (found["format"], found["schema"], found["outcome"], found["reply"]) == (1, SCHEMA, "refunded", run.reply)
    assert found["contract"] == run.contract
    assert [t["raw"] for t in found["turns"]] == world.raw_turns(run)
    assert {"model", "input_tokens", "finish_reason", "proposals", "final", "error", "prompt_hash"} <= {
        *found["turns"][0]
    }
    assert len(found["observations"]) == run.observations.count()
    [approval], [gate], [write] = found["approvals"], found["gate"], found["writes"]
    [decision] = approval["decisions"]
    assert (decision["kind"], decision["by"], approval["status"]) == ("approve", "lead_17", "consumed")
    assert (gate["decision"], len(gate["checks"]), gate["facts"]["refunds"]) == ("needs_approval", 20, [])
    assert (write["key"], write["state"], [a["answer"] for a in write["attempts"]]) == (KEY, "confirmed", ["made"])
    assert [(t[0], t[2]) for t in found["transitions"]] == world.transitions(run)
    events = Event.objects.filter(run=run).order_by("seq")
    assert [(e["seq"], e["mac"]) for e in found["events"]] == [(e.seq, e.mac) for e in events]


def test_export_keeps_messages_cancels_and_refused_clicks(world: World) -> None:
    run = world.start()
    world.message(run, "Is anybody there?")
    world.cancel(run)
    run = world.resume(run)
    found = json.loads(command("export_run", "req-8472"))
    assert [(i["kind"], i["text"]) for i in found["inputs"]] == [("message", "Is anybody there?"), ("cancel", "")]
    assert (found["approvals"][0]["status"], found["run"]["reason"]) == ("void", "cancelled_by_client")


def test_export_holds_no_secret(world: World) -> None:
    url = world.sandbox.url
    world.profile(commerce={
        "url": url.replace("://", "://shop:pass-word@"), "read_token_env": "T_READ", "write_token_env": "T_WRITE",
        "honours_keys": True, "settle_s": 0.2,
    })  # fmt: skip
    world.settings(T_READ="sandbox-read", T_WRITE="sandbox-write")
    run = world.start()
    said = command("export_run", "req-8472")
    settings = env.read()
    secrets = [settings.SECRET_KEY, settings.AUDIT_KEY, settings.COMMERCE_READ_TOKEN, settings.COMMERCE_WRITE_TOKEN]
    assert not [s for s in secrets if s is not None and s.get_secret_value() in said]
    assert "pass-word" not in said
    assert json.loads(said)["backend"]["url"] == url
    assert replay.play(json.loads(said)).identical, run.status


def test_export_and_replay_of_what_is_not_there(world: World) -> None:
    assert "no run has" in fails(1, "export_run", "req-nowhere")
    assert "no run has" in fails(1, "replay", "req-nowhere")


def test_request_of_two_tenants_needs_the_tenant_named(world: World) -> None:
    world.start()
    world.begin("t_other")
    world.people.clear()
    world.start()
    for name in ("export_run", "replay"):
        assert "--tenant" in fails(2, name, "req-8472")
    assert json.loads(command("export_run", "req-8472", "--tenant", "t_other"))["run"]["tenant_id"] == "t_other"


# --- replay ------------------------------------------------------------------------------------------------------


def test_replay_of_a_run_and_of_its_file_are_the_same(world: World, tmp_path: Path) -> None:
    run = refunded(world)
    calls = len(world.sandbox.calls())
    with CaptureQueriesContext(
        connection,
    ) as queries:
        told = json.loads(command("replay", "req-8472", "--json"))
    assert not [q for q in queries.captured_queries if q["sql"].lstrip().upper().startswith(WRITES)]
    assert (told["identical"], told["turns"], told["decisions"], told["transitions"]) == (True, 4, 1, 8)
    file = tmp_path / "run.json"
    file.write_text(command("export_run", "req-8472"))
    Event.objects.filter(run=run, seq=1).update(meta={"changed": "since"})  # a file is what it was
    with CaptureQueriesContext(connection) as queries:
        assert json.loads(command("replay", str(file), "--json")) == told
    assert len(queries) == 0
    assert len(world.sandbox.calls()) == calls


def stopped(world: World) -> Run:
    return world.start(script=[*gather(), turn(text="x"), refund(amount="4000.00"), reads("get_order"), refund()])


def killed_after_the_mark(world: World) -> Run:
    run = world.start()
    world.approve(run)
    worker_dies(run, after="sent")
    return world.fresh(run)


def killed_after_the_intent(world: World) -> Run:
    run = world.start()
    world.approve(run)
    worker_dies(run, after="intent")
    return world.resume(run)


def decided_and_not_folded(world: World) -> Run:
    run = world.start()
    world.reject(run)
    world.message(run, "Hello?")
    return run


@pytest.mark.parametrize("lived", [stopped, killed_after_the_mark, killed_after_the_intent, decided_and_not_folded])
def test_replay_of_a_run_that_lives_or_died_half_way(world: World, lived: Callable[[World], Run]) -> None:
    run = lived(world)
    got = replay.play(json.loads(command("export_run", "req-8472")))
    assert (got.differences, got.steps) == ((), run.version - 1)


def test_replay_counts_what_earlier_runs_refunded_on_the_order(world: World) -> None:
    """A list that never shows the first refund: the gate counted our own write, and so does the replay."""
    world.sandbox.fault("POST /v1/refunds", "hide:600")
    first = world.start(script=[*gather(), refund(amount="900.00"), final()])
    assert first.status == "executed"
    second = world.start("req-2", script=[*gather(), refund("pay_9001", "1500.00"), final()])
    assert world.rules(second) == ["amount_exceeds_refundable"]
    got = replay.play(json.loads(command("export_run", "req-2")))
    assert (got.differences, got.information) == ((), ())
    world.settings(VERIFY_FOR_S="0.01")
    assert replay.play(json.loads(command("export_run", "req-8472"))).identical


def test_replay_of_a_run_that_no_code_can_load(world: World) -> None:
    run = world.start()
    Run.objects.filter(pk=run.pk).update(schema=99)
    put_back(Run.objects.filter(pk=run.pk), updated_at=NEWER_FOR_S + 60, due_at=NEWER_FOR_S + 60)
    assert world.step(world.fresh(run)) == "failed"
    assert "schema_unknown: schema 99, known: 1 to 4" in fails(1, "replay", "req-8472")
    Run.objects.filter(pk=run.pk).update(schema=1)
    told = json.loads(command("replay", "req-8472", "--json"))
    assert (told["identical"], told["information"][0]["what"]) == (True, "no handler made this change")


# --- a stored action that today's registry would not take (M87) ------------------------------------------------------


class WithMethod(RefundArguments):
    """A schema of another release: it asks for one thing more."""

    method: str


def deployed(world: World) -> None:
    newer = replace(registry.entry("issue_refund"), arguments=WithMethod, version=2)
    world.patch.setattr(registry, "TOOLS", {**registry.TOOLS, "issue_refund": newer})


def test_approved_action_of_another_schema_escalates_by_name(world: World) -> None:
    """It was approved as it was; today's code cannot say that it is the same action, so a person looks."""
    run = world.start()
    deployed(world)
    world.approve(run)
    run = world.resume(run)
    assert (run.status, run.reason, world.approval(run).status) == ("escalated", "approval_invalid", "void")
    assert world.posts() == []
    assert "What was reviewed no longer matches" in world.said(run)


def test_expired_question_of_another_schema_is_not_asked_again(world: World) -> None:
    world.profile(approval_ttl_s=1)
    run = world.resume(world.start(), until="approval_expired")
    deployed(world)
    world.leave(run, "ask_again")
    run = world.resume(run)
    assert (run.status, run.reason, world.posts()) == ("escalated", "approval_invalid", [])


def test_proposed_action_of_another_schema_escalates_before_the_gate(world: World) -> None:
    world.sandbox.fault("GET /v1/refunds", "status:503", times=0)
    world.settings(RETRY_S="60")
    run = world.start(script=[reads("get_order"), refund(evidence=("get_order",)), final()])
    assert (run.status, run.resume_status) == ("waiting_dependency", "action_proposed")
    deployed(world)
    world.later(run, 75)
    run = world.resume(run)
    assert (run.status, run.reason, world.posts()) == ("escalated", "approval_invalid", [])


def test_write_of_another_schema_that_never_went_out_is_closed(world: World) -> None:
    run = world.start()
    world.approve(run)
    worker_dies(run, after="intent")
    deployed(world)
    run = world.resume(run)
    assert (world.writes(run), world.posts()) == ([(KEY, "not_sent")], [])
    assert world.rules(run)[0] == "approval_invalid"
