"""Plays one scenario of a suite in this process, against a real sandbox, and scores it as an evaluation would."""

from __future__ import annotations

import json
from typing import Any

from agentsite.tenants.profiles import WriteGrant
from runs import qualification
from runs.evaluation.scenarios import Act, Policy, Scenario
from runs.evaluation.scoring import Happened, Score, score
from runs.management import tenancy
from runs.models import Run
from tests.world import ENDED, TENANT, World
from tools.policy import documents

Json = dict[str, Any]
OBEDIENT = "offline:obedient"


def qualified(route: str) -> str:
    """The route, once it may propose writes here."""
    qualification.qualify(route, agent="refunds", reason="a test", by="tests")
    return route


def play(world: World, scenario: Scenario, route: str = OBEDIENT) -> tuple[Run, Score]:
    """The run at its end, or where it rests, and how it went."""
    _set_up(world, scenario)
    before = {r["refund_id"] for r in world.refunds()}
    run, approved = _admit(world, scenario, route), dict[str, tuple[str, ...]]()
    for act in scenario.acts:
        run = world.resume(run)
        assert run.status == act.when, f"{run.status} ({run.reason}), and {act.do} is to be done at {act.when}"
        _do(world, run, act, approved)
    run = world.resume(run)
    return run, score(scenario.expected, _happened(world, run, before, approved), _grants(scenario))


def _set_up(world: World, scenario: Scenario) -> None:
    business = scenario.business
    rows = {n: list(found) for n in ("orders", "payments", "refunds") if (found := getattr(business, n))}
    world.sandbox.control("/_seed", reset=True, **rows)
    for fault in business.faults:
        world.sandbox.control("/_faults", **fault)
    world.before = world.refunds()
    if scenario.profile:
        world.profile(**scenario.profile)
    for policy in scenario.policies:
        documents.load(TENANT, _document(policy), replace=True, force=True)


def _document(policy: Policy) -> str:
    front = {"id": policy.id, "version": policy.version, "title": policy.title, "status": policy.status}
    return "\n".join(["---", *(f"{n}: {json.dumps(v)}" for n, v in front.items()), "---", "", policy.text])


def _admit(world: World, scenario: Scenario, route: str) -> Run:
    asked = scenario.asked
    actor = {"customer_id": asked.customer_id, "session_id": asked.session_id}
    run = world.admit(
        scenario.id, [], goal=asked.goal, actor={n: v for n, v in actor.items() if v}, limits=asked.limits,
        order_ids=list(asked.order_ids) if asked.order_ids else None, attachments=list(asked.attachments) or None,
    )  # fmt: skip
    world.scripts[str(run.pk)] = qualified(route)
    return run


def _do(world: World, run: Run, act: Act, approved: dict[str, tuple[str, ...]]) -> None:
    if act.do == "approve":
        asked = world.approval(run)
        world.approve(run, large=act.large)
        approved[str(asked.id)] = ("lead_17",)
    elif act.do == "reject":
        world.reject(run, act.text)
    elif act.do == "message":
        world.message(run, act.text)
    else:
        assert act.do == "settle", f"{act.do} is not played here"
        for refund in (r for r in world.refunds() if r["state"] == "pending"):
            world.sandbox.control(f"/_refunds/{refund['refund_id']}", state=act.text or "succeeded")


def _happened(world: World, run: Run, before: set[str], approved: dict[str, tuple[str, ...]]) -> Happened:
    ledger = world.refunds()
    posts = [call for call in world.sandbox.posts() if call["body"] is not None]
    return Happened(
        over="ended" if run.status in ENDED else "rests", status=run.status, outcome=run.outcome, reason=run.reason,
        said=run.reply or world.said(run), refunds=tuple(r for r in ledger if r["refund_id"] not in before),
        others=tuple(r for r in ledger if r["refund_id"] in before), approved=approved,
        sent={str(c["idempotency_key"]): c["body"].get("approval_id") for c in posts},
    )  # fmt: skip


def _grants(scenario: Scenario) -> dict[str, WriteGrant]:
    document = {**tenancy.DEFAULT_PROFILE, **scenario.profile}
    return tenancy.read_profile(document).write_tools
