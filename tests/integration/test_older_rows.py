"""Runs that an older release parked go on under this one, in whatever status they wait (M87).

A row is made as its release made it: its contract without the fields that came later, its turns and passages without
what was not recorded then. No process dies here: `tests/crash/test_two_versions.py` has those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from runs import prompt, qualification
from runs.contracts import SCHEMA
from runs.models import Observation, Qualification, Run, Turn
from runs.states import On
from tests.integration.test_replay import deployed
from tests.replay.ways import between
from tests.to_people import ask, replayed
from tests.world import KEY, World, final, gather, inr, reads, refund, s0, worker_dies

Json = dict[str, Any]
LATER = {1: {"sensitive"}, 2: {"policy_first", "session_memory"}, 3: {"shadow"}}
"""By schema, the fields of a contract that came with the next one."""
ONE_REFUND = [("pay_9002", "2000.00", KEY)]


def older(run: Run, schema: int) -> Run:
    """The row as a release of that schema would have left it."""
    gone = set().union(*(fields for since, fields in LATER.items() if since >= schema))
    contract = {name: value for name, value in run.contract.items() if name not in gone}
    if schema == 1:
        contract["scope"] = {name: value for name, value in contract["scope"].items() if name != "people_tools"}
    Run.objects.filter(pk=run.pk).update(contract={**contract, "schema_version": schema}, schema=schema)
    Turn.objects.filter(run=run).update(
        prompt_version="refunds/older", template_hash="sha256:older", **({"estimate": 0} if schema == 1 else {})
    )
    if schema < 3:
        _without_hashes(run)
    run.refresh_from_db()
    return run


def _without_hashes(run: Run) -> None:
    for seen in Observation.objects.filter(run=run, source="search_policy"):
        rows = [{n: v for n, v in p.items() if n not in ("hash", "score", "id")} for p in seen.content["passages"]]
        Observation.objects.filter(pk=seen.pk).update(content={"passages": rows})


# --- where it was parked, and what lets it go on ---------------------------------------------------------------------


def awaiting_approval(world: World, run: Run) -> Run:
    return world.resume(run, until="awaiting_approval")


def approved(world: World, run: Run) -> Run:
    world.approve(awaiting_approval(world, run))
    worker_dies(run, after="approved")
    return run


def unknown_write(world: World, run: Run) -> Run:
    world.approve(awaiting_approval(world, run))
    worker_dies(run, after="post")
    return run


def marked_write(world: World, run: Run) -> Run:
    """Nobody knows whether its POST left; the business system has no such refund."""
    world.approve(awaiting_approval(world, run))
    worker_dies(run, after="sent")
    return run


def approval_expired(world: World, run: Run) -> Run:
    world.resume(run, until="awaiting_approval")
    return world.resume(run, until="approval_expired")


def waiting_dependency(world: World, run: Run) -> Run:
    world.settings(RETRY_S="60")
    between(world, lambda: world.sandbox.fault("GET /v1/payments", "status:503", times=0), On.WRITE_PROPOSED)
    return world.resume(run, until="waiting_dependency")


def waiting_reply(world: World, run: Run) -> Run:
    return world.resume(run, until="waiting_reply")


def nothing(world: World, run: Run) -> None:
    """It goes on by itself."""


def yes(world: World, run: Run) -> None:
    world.approve(run)


def asked_again(world: World, run: Run) -> None:
    world.leave(run, "ask_again")
    world.approve(world.resume(run, until="awaiting_approval"))


def system_back(world: World, run: Run) -> None:
    world.sandbox.control("/_faults", clear=True)
    world.later(run, 75)
    world.approve(world.resume(run, until="awaiting_approval"))


def reply(world: World, run: Run) -> None:
    world.message(run, "The second charge, please.")
    world.approve(world.resume(run, until="awaiting_approval"))


PARKED: dict[str, tuple[Callable[[World, Run], Run], Callable[[World, Run], None]]] = {
    "awaiting_approval": (awaiting_approval, yes), "approved": (approved, nothing),
    "executing, written": (unknown_write, nothing), "executing, marked": (marked_write, nothing),
    "approval_expired": (approval_expired, asked_again), "waiting_dependency": (waiting_dependency, system_back),
    "waiting_reply": (waiting_reply, reply),
}  # fmt: skip


@pytest.mark.parametrize("where", PARKED)
@pytest.mark.parametrize("schema", range(1, SCHEMA))
def test_run_parked_by_an_older_release_goes_on_to_one_refund(world: World, schema: int, where: str) -> None:
    if (schema, where) == (1, "waiting_reply"):
        pytest.skip("no release of schema 1 could ask a customer")
    if where == "approval_expired":
        world.profile(approval_ttl_s=1)
    park, let_go_on = PARKED[where]
    script = [reads("get_order"), ask(), *s0()] if where == "waiting_reply" else s0()
    run = older(world.admit(script=script), schema)
    run = older(park(world, run), schema)
    assert run.status == where.split(",")[0]
    let_go_on(world, run)
    run = world.resume(run, until="completed")
    assert (run.outcome, run.schema, len(world.refunds())) == ("refunded", schema, 1)
    assert {payment for payment, _, _ in world.posts()} == {"pay_9002"}
    assert len(world.posts()) == 1


def test_expired_question_of_an_older_release_is_denied_where_nothing_is_left(world: World) -> None:
    """Asked again, it is judged on the facts of now, and not on those its release saw."""
    world.profile(approval_ttl_s=1)
    run = older(approval_expired(world, older(world.admit(), 2)), 2)
    world.seed(amount_due=inr("4000.00"))
    world.leave(run, "ask_again")
    run = world.resume(run)
    assert (run.status, run.outcome, world.posts()) == ("completed", "answered", [])


def test_record_of_a_run_that_changed_releases_half_way_replays(world: World) -> None:
    run = older(awaiting_approval(world, older(world.admit(), 2)), 2)
    world.approve(run)
    run = world.resume(run)
    assert run.outcome == "refunded"
    assert [d for d in replayed(run) if d.what not in ("prompt hash", "prompt version", "prompt template")] == []


# --- another prompt, other tools under a question that waits ---------------------------------------------------------


def another_prompt(world: World) -> None:
    """As a deploy brings one: other words, and so another hash of them."""
    world.patch.setattr(prompt, "RULES", prompt.RULES + "\n- Be kind.")
    world.patch.setattr(prompt, "TEMPLATE_HASH", "sha256:newer")


def test_run_goes_on_with_what_was_asked_about_where_the_new_prompt_is_qualified(world: World) -> None:
    """The action is the one that the old prompt proposed and a person approved; the reply is the new prompt's."""
    run = world.start()
    asked = world.approval(run)
    another_prompt(world)
    qualification.qualify(world.scripts[str(run.pk)], agent="refunds", reason="a deploy", by="tests")
    world.approve(run)
    run = world.resume(run)
    assert (run.outcome, world.posts()) == ("refunded", ONE_REFUND)
    assert world.events(run, "write.intent")[0]["approval_id"] == asked.pk
    newer = [turn.template_hash == "sha256:newer" for turn in Turn.objects.filter(run=run).order_by("number")]
    assert newer == [False, False, False, True]


def test_run_is_handed_to_a_person_where_the_new_prompt_is_not_qualified(world: World) -> None:
    """Nobody measured what this prompt proposes: no write by the right of the old one."""
    run = world.start()
    another_prompt(world)
    world.approve(run)
    run = world.resume(run)
    assert (run.status, run.reason, world.posts()) == ("escalated", "route_not_qualified", [])
    assert Qualification.objects.filter(revoked=False).exists()


# --- a stored action that today's schema would not take ---------------------------------------------------------------


@pytest.mark.parametrize("where", ["awaiting_approval", "approved", "approval_expired", "waiting_dependency"])
def test_action_that_no_longer_fits_its_schema_escalates_by_name_from_each_status(world: World, where: str) -> None:
    if where == "approval_expired":
        world.profile(approval_ttl_s=1)
    park, _ = PARKED[where]
    run = park(world, world.admit())
    deployed(world)
    if where == "awaiting_approval":
        world.approve(run)
    elif where == "approval_expired":
        world.leave(run, "ask_again")
    elif where == "waiting_dependency":
        world.sandbox.control("/_faults", clear=True)
        world.later(run, 75)
    run = world.resume(run)
    assert (run.status, run.reason, run.outcome, world.posts()) == (
        "escalated", "approval_invalid", "handed_to_staff", [],
    )  # fmt: skip


def test_parked_release_of_an_action_that_no_longer_fits_escalates_by_name(world: World) -> None:
    """Approved, and the business system was down: it waits for that when the deploy comes."""
    run = world.resume(world.admit(), until="awaiting_approval")
    world.settings(RETRY_S="60")
    world.sandbox.fault("GET /v1/payments", "status:503", times=0)
    world.approve(run)
    run = world.resume(run)
    assert (run.status, run.resume_status) == ("waiting_dependency", "approved")
    deployed(world)
    world.sandbox.control("/_faults", clear=True)
    world.later(run, 75)
    run = world.resume(run)
    assert (run.status, run.reason, world.posts()) == ("escalated", "approval_invalid", [])
    assert world.approval(run).status == "void"


@pytest.mark.parametrize("after", ["sent", "post"])
def test_write_that_may_be_out_is_settled_whatever_its_schema_says_today(world: World, after: Any) -> None:
    """It is only looked up: what was made is verified and told, what was not is closed and never sent again."""
    run = world.resume(world.admit(script=[*gather(), refund(), final()]), until="awaiting_approval")
    world.approve(run)
    worker_dies(run, after=after)
    deployed(world)
    before = len(world.posts())
    for _ in range(3):  # two looks prove an absence, once nothing can be under way any more
        world.later(run, 15)
        run = world.resume(run)
    made = after == "post"
    assert (len(world.refunds()), len(world.posts()) - before) == (1 if made else 0, 0)
    assert run.status == ("completed" if made else "escalated"), (run.status, run.reason)
