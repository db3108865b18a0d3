"""Evidence that was read long ago is read again and compared by content hash before it supports a decision (M123)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from runs import qualification, replay
from runs.contracts import Outcome
from runs.models import Observation, Run
from runs.orchestrator.steps import Handled
from runs.states import On
from tests.between import after_look
from tests.world import KEY, World, final, gather, inr, reads, refund
from tools import gate

Json = dict[str, Any]
EVIDENCE = ("get_order", "get_payments", "get_refund_status", "search_policy")
OURS = ["obs_2", "obs_3", "obs_5"]
"""What S0 cites of the business system: order, payments, refunds; `obs_1` and `obs_4` are policy."""
ONE_REFUND = [("pay_9002", "2000.00", KEY)]


def cites(**more: Any) -> Json:
    return refund(evidence=EVIDENCE, **more)


def twice() -> list[Any]:
    """A model that proposes once more what was denied, on the newest of everything."""
    return [*gather(), cites(), cites(), final()]


def once_decided(on: On) -> Any:
    def when(handled: Handled) -> bool:
        return isinstance(handled, Outcome) and handled.on is on

    return when


def old_at_once(world: World) -> None:
    world.settings(EVIDENCE_FRESH_S="0.000001")


def gated(world: World, run: Run) -> list[Json]:
    return world.events(run, "gate.decided")


def fresh(decided: Json) -> Json | None:
    """The check of one decision; None where nothing was old."""
    return next((c for c in decided["checks"] if c["name"] == "evidence_fresh"), None)


def ruled(world: World, run: Run) -> list[str]:
    return [decided["rule"] for decided in gated(world, run)]


def compared(world: World, run: Run) -> list[Json]:
    return [{name: e[name] for name in e if name != "ages_s"} for e in world.events(run, "evidence.compared")]


def again(run: Run) -> list[tuple[str, str, str]]:
    """(kind, source, what it replaces) of what was read again and observed anew."""
    seen = Observation.objects.filter(run=run).order_by("position")
    return [(o.kind, o.source, o.meta["read_again"]) for o in seen if "read_again" in o.meta]


def replays(run: Run) -> None:
    played = replay.play(json.loads(replay.text(replay.export(run))))
    assert (played.differences, played.information, played.left) == ((), (), 0)


def gets(world: World) -> int:
    return len(world.sandbox.calls("method=GET&path=/v1"))


# --- before a person is asked ----------------------------------------------------------------------------------------


def test_young_evidence_is_not_read_again(world: World) -> None:
    run = world.start(script=[*gather(), cites(), final()])
    assert (run.status, [fresh(d) for d in gated(world, run)]) == ("awaiting_approval", [None])
    before = gets(world)
    world.approve(run)
    run = world.resume(run)
    assert (run.outcome, compared(world, run), world.posts()) == ("refunded", [], ONE_REFUND)
    assert gets(world) - before == 3 + 1 + 3  # facts of the release, the look-up, the verification
    replays(run)


def test_old_evidence_that_is_the_same_goes_on_and_staff_see_it(world: World) -> None:
    old_at_once(world)
    run = world.start(script=[*gather(), cites(), final()])
    [decided] = gated(world, run)
    check = fresh(decided)
    assert check is not None and (decided["decision"], check["ok"]) == ("needs_approval", True)
    assert (check["inputs"]["read_again"], check["inputs"]["ages_s"]) == (OURS, [0, 0, 0])
    approval = world.approval(run)
    page = world.browser().get(f"/admin/approvals/approval/{approval.pk}/change/").content.decode()
    assert re.search(r"Evidence read long ago was read again", page)
    world.approve(run)
    run = world.resume(run)
    assert (run.outcome, compared(world, run)) == ("refunded", [{"read_again": OURS}])
    assert (world.posts(), again(run)) == (ONE_REFUND, [])
    replays(run)


@pytest.mark.parametrize("change", [{"note": "called twice"}, {"status": "returned"}], ids=["words", "status"])
def test_evidence_that_changed_supports_no_proposal(world: World, change: Json) -> None:
    """Not a word of it: the model is given what is true now, and proposes on that; it costs it no repair."""
    old_at_once(world)
    after_look(world, lambda: world.seed(**change), once_decided(On.WRITE_PROPOSED))
    run = world.start(script=twice())
    assert [(d["decision"], d["rule"]) for d in gated(world, run)] == [
        ("deny", "evidence_changed"), ("needs_approval", "refund_above_1000_requires_approval"),
    ]  # fmt: skip
    denial = Observation.objects.get(run=run, kind="denial")
    assert denial.content["numbers"]["changed"] == ["obs_2"] and denial.content["retryable"] is True
    assert (again(run), run.repairs) == ([("result", "get_order", "obs_2")], 0)
    assert world.approval(run).evidence[-1]["obs_id"] == "obs_7"
    assert (run.status, world.posts()) == ("awaiting_approval", [])
    world.approve(run)
    run = world.resume(run)
    assert (run.outcome, world.posts()) == ("refunded", ONE_REFUND)
    replays(run)


def test_shipped_model_proposes_again_on_what_is_true_now(world: World) -> None:
    old_at_once(world)
    after_look(world, lambda: world.seed(note="called twice"), once_decided(On.WRITE_PROPOSED))
    run = world.admit()
    qualification.qualify("offline:investigator", agent="refunds", reason="a test", by="tests")
    world.scripts[str(run.pk)] = "offline:investigator"
    run = world.resume(run)
    assert ruled(world, run) == ["evidence_changed", "refund_above_1000_requires_approval"]
    assert (run.status, world.posts()) == ("awaiting_approval", [])


def test_order_that_is_gone_is_changed_evidence_of_the_other_reads(world: World) -> None:
    """The gate's own read says so first; where it goes between the two, the evidence says so."""
    old_at_once(world)
    real = gate.evaluate

    def then_gone(*args: Any) -> Any:
        decision = real(*args)
        world.sandbox.control("/_seed", clear_order="8472")
        return decision

    world.patch.setattr(gate, "evaluate", then_gone)
    run = world.start(script=[*gather(), cites(), final()])
    assert (ruled(world, run), world.posts()) == (["evidence_changed"], [])
    assert again(run) == [("error", source, obs) for source, obs in zip(EVIDENCE, OURS, strict=False)]
    replays(run)


def test_evidence_that_cannot_be_read_parks_the_run(world: World) -> None:
    old_at_once(world)
    world.settings(RETRY_S="60")
    real = gate.evaluate

    def then_down(*args: Any) -> Any:
        decision = real(*args)
        world.sandbox.fault("GET /v1/payments", "status:503", times=4)
        return decision

    world.patch.setattr(gate, "evaluate", then_down)
    run = world.start(script=[*gather(), cites(), final()])
    assert (run.status, run.resume_status, gated(world, run)) == ("waiting_dependency", "action_proposed", [])
    replays(run)
    world.patch.setattr(gate, "evaluate", real)
    world.sandbox.control("/_faults", clear=True)
    world.later(run, 75)
    run = world.resume(run)
    assert (run.status, ruled(world, run), world.posts()) == (
        "awaiting_approval", ["refund_above_1000_requires_approval"], [],
    )  # fmt: skip


def test_denial_of_the_gate_comes_before_changed_evidence(world: World) -> None:
    """A second run on a refunded order is told its refund, not that something moved."""
    old_at_once(world)
    world.start(script=[*gather(), cites(amount="2500.00"), final()])
    after_look(world, lambda: world.seed(amount_due=inr("4000.00")), once_decided(On.WRITE_PROPOSED))
    run = world.start("req-2", script=[*gather(), cites(), final()])
    assert (ruled(world, run), again(run), world.posts()) == (["nothing_refundable"], [], [])


def test_asking_again_compares_the_evidence_once_more(world: World) -> None:
    world.profile(approval_ttl_s=1)
    run = world.resume(world.start(script=twice()), until="approval_expired")
    old_at_once(world)
    world.seed(note="called twice")
    world.leave(run, "ask_again")
    run = world.resume(run)
    assert ruled(world, run)[1:] == ["evidence_changed", "refund_above_1000_requires_approval"]
    assert (run.status, again(run), world.posts()) == (
        "awaiting_approval", [("result", "get_order", "obs_2")], [],
    )  # fmt: skip
    replays(run)


# --- after a person said yes -----------------------------------------------------------------------------------------


def test_yes_stands_where_only_words_moved_since(world: World) -> None:
    run = world.start(script=[*gather(), cites(), final()])
    old_at_once(world)
    world.seed(note="gift")
    world.approve(run)
    run = world.resume(run)
    assert (run.outcome, world.posts(), again(run)) == ("refunded", ONE_REFUND, [])
    assert compared(world, run) == [{"read_again": OURS, "changed": ["obs_2"]}]
    replays(run)


def test_yes_to_what_is_not_true_any_more_is_void(world: World) -> None:
    run = world.start(script=twice())
    first = world.approval(run)
    old_at_once(world)
    world.approve(run)
    world.seed(status="returned")
    run = world.resume(run)
    first.refresh_from_db()
    assert (first.status, first.void_reason) == ("void", "evidence_changed")
    assert (run.status, ruled(world, run)[1:], world.posts()) == (
        "awaiting_approval", ["evidence_changed", "refund_above_1000_requires_approval"], [],
    )  # fmt: skip
    world.approve(run, by="lead_18")
    run = world.resume(run)
    assert (run.outcome, world.posts(), len(world.refunds())) == ("refunded", ONE_REFUND, 1)
    replays(run)


def test_yes_stands_where_its_page_showed_what_moved(world: World) -> None:
    """He was told that the order is shipped by now, and said yes to that."""
    run = world.start(script=twice())
    old_at_once(world)
    world.seed(status="shipped")
    page, browser = f"/admin/approvals/approval/{world.approval(run).pk}/change/", world.browser()
    browser.post(page.replace("/change/", "/reread/"))
    form = dict(
        re.findall(r'name="(action_hash|screen_hash)" value="([^"]+)"', browser.get(page).content.decode())
    )  # fmt: skip
    browser.post(page, {"decision": "approve", **form})
    assert world.approval(run).status == "approved"
    run = world.resume(run)
    assert (run.outcome, world.posts()) == ("refunded", ONE_REFUND)
    assert compared(world, run) == [{"read_again": OURS, "changed": ["obs_2"]}]
    replays(run)


def test_what_moved_once_more_after_the_page_was_shown_is_void(world: World) -> None:
    run = world.start(script=twice())
    old_at_once(world)
    world.seed(status="shipped")
    world.browser().post(f"/admin/approvals/approval/{world.approval(run).pk}/reread/")
    world.approve(run)
    world.seed(status="lost")
    run = world.resume(run)
    assert (run.status, ruled(world, run)[1], world.posts()) == ("awaiting_approval", "evidence_changed", [])
    replays(run)


def test_write_that_needs_nobody_rests_on_every_word(world: World) -> None:
    old_at_once(world)
    after_look(world, lambda: world.seed(note="gift"), once_decided(On.GATE_ALLOWED))
    run = world.start(script=[*gather(), *[cites(amount="500.00")] * 2, final()])
    assert (ruled(world, run), run.outcome) == (
        ["refund_within_own_authority", "evidence_changed", "refund_within_own_authority"], "refunded",
    )  # fmt: skip
    assert world.posts() == [("pay_9002", "500.00", KEY)]
    replays(run)


def test_question_that_is_asked_afresh_rests_on_fresh_evidence(world: World) -> None:
    run = world.start(script=twice())
    world.approve(run)
    world.person().user_permissions.clear()
    old_at_once(world)
    run = world.resume(run)
    assert fresh(gated(world, run)[-1]) is not None
    assert (run.status, world.approval(run).status, world.posts()) == ("awaiting_approval", "pending", [])
    replays(run)


# --- races with a message --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", [On.RELEASED, On.RELEASE_DENIED])
def test_message_that_comes_while_evidence_is_read_again_is_heard_first(world: World, on: On) -> None:
    """Committed between the look and the intent: nothing is sent before the model has read it."""
    run = world.start(script=[*gather(), cites(), final()])
    old_at_once(world)
    world.approve(run)
    if on is On.RELEASE_DENIED:
        world.seed(status="returned")
    after_look(world, lambda: world.message(run, "Stop, I found the money."), once_decided(on))
    run = world.resume(run)
    assert (run.status, world.posts(), world.refunds()) == ("completed", [], [])
    assert Observation.objects.filter(run=run, kind="message").count() == 1
    assert world.approval(run).status == "void"
    assert run.folded_input_seq == run.last_input_seq
    replays(run)


def test_message_that_comes_with_a_denied_proposal_is_heard(world: World) -> None:
    old_at_once(world)
    after_look(world, lambda: world.seed(note="gift"), once_decided(On.WRITE_PROPOSED))
    run = world.admit(script=[*gather(), cites(), [*reads("get_order")], final()])
    after_look(world, lambda: world.message(run, "Stop, I found the money."), once_decided(On.GATE_DENIED))
    run = world.resume(run)
    assert (run.status, ruled(world, run), world.posts()) == ("completed", ["evidence_changed"], [])
    assert Observation.objects.filter(run=run, kind="message").count() == 1
    replays(run)
