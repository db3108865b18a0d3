"""Erasing an ended run, class by class: what goes, what stays, and every door that still reads it (M106)."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError

from agentsite import dbtime
from approvals import erasing as asked
from approvals.models import Approval, Decision
from runs import store
from runs.errors import RunEnded
from runs.models import Attachment, Event, Input, Observation, Run, Turn, Webhook, Write
from runs.store import erasing
from runs.store.erasing import CONVERSATION, EVIDENCE, KINDS, StillNeeded
from tests import chain, edge, planted
from tests.approving import signed_in
from tests.world import GOAL, TENANT, World, final, gather, refund

SAID, MODEL, STAFF, FOUND = "Quixote-words", "Zorblax-reason", "Wibble-said-the-lead", "Frobnitz-the-note"
WORDS, FACTS = (SAID, STAFF), (MODEL, FOUND)


def command(name: str, *args: str) -> str:
    out = io.StringIO()
    call_command(name, *args, stdout=out, stderr=io.StringIO(), skip_checks=True)
    return out.getvalue()


def fails(name: str, *args: str) -> str:
    with pytest.raises(CommandError) as caught:
        command(name, *args)
    assert caught.value.returncode == 1
    return str(caught.value)


def at_rest(run: Run) -> Run:
    """Nothing of it is watched any more: the thirty days are over."""
    Write.objects.filter(run=run).update(watch_at=None)
    return Run.objects.get(pk=run.pk)


def spoken(world: World, request_id: str = "req-8472") -> Run:
    """A refund after a person's yes, in which everybody wrote something that is nowhere else."""
    world.seed(note=f"a note: {FOUND}")
    draft = final(f"Thank you, {SAID}, for your patience.")
    run = world.start(
        request_id, [*gather(), refund(reason=MODEL), draft], goal=f"{GOAL} {SAID}",
        actor={"customer_id": "cust_5521", "session_id": "sess_91c", "channel": SAID},
    )  # fmt: skip
    world.decide(run, "approve", STAFF)
    run = world.resume(run, until="completed")
    store.feedback(str(run.pk), "down", SAID)
    Attachment.objects.create(
        run=run, tenant_id=TENANT, position=0, name=f"{SAID}.txt", media_type="text/plain", sha256="0" * 64, size=3,
        content=SAID.encode(), at=dbtime.now(),
    )  # fmt: skip
    return at_rest(run)


def erase(run: Run, *kinds: erasing.Kind) -> tuple[erasing.Kind, ...]:
    return erasing.erase(str(run.pk), kinds or KINDS, why="a test", by="tests")


# --- what goes, what stays ----------------------------------------------------------------------------------------


def test_everything_written_is_gone_and_what_was_done_stays(world: World) -> None:
    run = spoken(world)
    before = Approval.objects.get(run_id=run.pk), Write.objects.get(run=run), Decision.objects.get()
    assert {w for w in (*WORDS, *FACTS) if planted.in_database((w,))} == {*WORDS, *FACTS}
    assert erase(run) == KINDS
    assert planted.in_database((*WORDS, *FACTS, GOAL)) == []
    approval, write, decision = Approval.objects.get(), Write.objects.get(), Decision.objects.get()
    assert write.args == approval.args == {**before[1].args, "reason": "[erased]"}
    for name in ("action_hash", "status", "decided_by", "decided_at", "amount_minor", "expires_at", "policy", "rule"):
        assert getattr(approval, name) == getattr(before[0], name), name
    for name in ("key", "action_hash", "refund_id", "result", "amount_minor", "state", "approval_id", "intent_at"):
        assert getattr(write, name) == getattr(before[1], name), name
    for name in ("by", "at", "action_hash", "screen_hash", "decision", "user_id"):
        assert getattr(decision, name) == getattr(before[2], name), name
    after = Run.objects.get()
    assert after.contract["actor"] == {"customer_id": "cust_5521", "session_id": "sess_91c", "channel": "[erased]"}
    assert (after.contract["goal"], after.reply, after.outcome) == ("[erased]", None, "refunded")
    assert len(world.posts()) == len(world.refunds()) == 1


@pytest.mark.parametrize(("kind", "gone", "kept"), [(CONVERSATION, WORDS, FACTS), (EVIDENCE, FACTS, WORDS)])
def test_one_class_leaves_the_other_alone(
    world: World, kind: erasing.Kind, gone: tuple[str, ...], kept: tuple[str, ...]
) -> None:
    run = spoken(world)
    assert erase(run, kind) == (kind,)
    assert planted.in_database(gone) == []
    assert {w for w in kept if planted.in_database((w,))} == set(kept)
    assert erase(run, kind) == ()


def test_the_chain_holds_under_a_tombstone_and_not_without_one(world: World) -> None:
    run = spoken(world)
    assert chain.faults(run) == []
    erase(run, EVIDENCE)
    tombs = list(Event.objects.filter(run=run, type="data.erased").values_list("meta", flat=True))
    assert tombs == [{"class": "evidence", "why": "a test", "by": "tests"}]
    erase(run)
    run.refresh_from_db()
    assert chain.faults(run) == []
    assert not Event.objects.filter(run=run, payload__isnull=False).exists()
    assert not Event.objects.filter(run=run, salt__isnull=False).exists()
    Event.objects.filter(run=run, type="data.erased").delete()
    assert chain.faults(run) != []


def test_words_that_a_check_quotes_go_with_the_conversation(world: World) -> None:
    plain = world.start()
    world.profile(sensitive={"en": {"approval": [SAID]}})
    quoting = world.start("req-2", goal=f"{GOAL} {SAID}")
    for run in (plain, quoting):
        world.cancel(run)
        world.resume(run, until="cancelled")
    assert "approvals_approval.checks" in cells(SAID)
    assert "runs_event.payload" in cells(SAID)
    for run in (plain, quoting):
        erase(run, CONVERSATION)
    assert cells(SAID) == {"tenants_agentprofile.document", "runs_run.contract"}  # the tenant's own list of words
    kept = dict(Event.objects.filter(type="gate.decided").values_list("run_id", "payload"))
    assert kept[plain.pk] is not None and kept[quoting.pk] is None
    assert all(Approval.objects.values_list("facts", flat=True)) and world.posts() == []


def cells(word: str) -> set[str]:
    """`table.column` of every cell that holds a word."""
    return {cell.partition(":")[0] for cell in planted.in_database((word,))}


# --- when it may not be ------------------------------------------------------------------------------------------


def test_a_run_that_lives_or_whose_money_may_move_is_left_alone(world: World) -> None:
    live = world.start()
    with pytest.raises(StillNeeded, match="live"):
        erase(live)
    world.approve(live)
    done = world.resume(live, until="completed")
    with pytest.raises(StillNeeded, match="refund_watched"):
        erase(done)
    Write.objects.filter(run=done).update(state="unknown")
    with pytest.raises(StillNeeded, match="write_open"):
        erase(done)
    Write.objects.filter(run=done).update(state="confirmed", watch_at=None)
    webhook = Webhook.objects.create(
        id="msg_1", run=done, tenant_id=TENANT, type="run.completed", seq=9, url="https://client.example/", body="{}",
        due_at=dbtime.now(), created_at=dbtime.now(),
    )  # fmt: skip
    with pytest.raises(StillNeeded, match="webhook_due"):
        erase(done)
    assert not Event.objects.filter(type="data.erased").exists()
    webhook.delete()
    assert erase(done) == KINDS


def test_what_dies_half_way_changed_nothing_and_is_done_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = spoken(world)

    def dies(run_id: str) -> None:
        raise DatabaseError("the connection went away")

    with monkeypatch.context() as patch:
        patch.setattr(asked, "erase_facts", dies)
        with pytest.raises(DatabaseError):
            erase(run)
    assert {w for w in (*WORDS, *FACTS) if planted.in_database((w,))} == {*WORDS, *FACTS}
    assert erase(run) == KINDS
    assert planted.in_database((*WORDS, *FACTS)) == []


def test_a_contract_that_nobody_can_read_goes_whole(world: World) -> None:
    run = spoken(world)
    Run.objects.filter(pk=run.pk).update(contract=[SAID, {"goal": SAID}])
    erase(run, CONVERSATION)
    assert Run.objects.get().contract == {"erased": True}
    assert "A refund of 2,000.00 INR to payment pay_9002" in world.said(run)


# --- every door that reads it ------------------------------------------------------------------------------------


def test_an_erased_run_still_loads_and_tells_its_customer_the_truth(world: World) -> None:
    run = spoken(world)
    erase(run)
    state = store.load(str(run.pk), "")
    assert (state.contract.goal, state.contract.actor.customer_id) == ("[erased]", "cust_5521")
    assert world.said(run) == (
        "A refund of 2,000.00 INR to payment pay_9002 on order 8472 has been made and confirmed; its reference is "
        f"{world.refunds()[0]['refund_id']}."
    )


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"status": "completed", "outcome": "no_refund_due"}, "No refund has been issued for this request."),
        ({"status": "escalated", "outcome": "resolved_by_staff"}, "A specialist has dealt with your request."),
        ({"status": "failed", "outcome": "resolved_by_staff"}, "A specialist has dealt with your request."),
        ({"status": "completed", "outcome": "resolved_by_staff"}, "A specialist has dealt with your request."),
    ],
)
def test_erased_runs_without_a_refund_say_what_is_so(world: World, columns: dict[str, str], told: str) -> None:
    run = world.start(script=[*gather(), final("All is well.")])
    Run.objects.filter(pk=run.pk).update(**columns, reply="what a person wrote")
    erase(run)
    assert world.said(run) == told
    Run.objects.filter(pk=run.pk).update(status=run.status, outcome=run.outcome)  # as its events tell


def test_a_rejection_is_told_without_the_persons_words(world: World) -> None:
    run = world.start(script=[*gather(), refund(), final("We are sorry.")])
    world.reject(run, STAFF)
    run = world.resume(run, until="completed")
    assert STAFF in world.said(run)
    erase(run)
    assert "did not approve it." in world.said(run) and STAFF not in world.said(run)
    assert "No refund has been issued" in world.said(run) and world.posts() == []


def test_pages_and_answers_of_an_erased_run(world: World) -> None:
    run = spoken(world)
    erase(run)
    shop, lead = edge.client(edge.token()), signed_in(world.person("root", is_superuser=True))
    shown: dict[str, Any] = shop.get(f"/api/v1/runs/{run.pk}").json()
    assert (shown["contract"]["goal"], shown["reply"], shown["outcome"]) == ("[erased]", None, "refunded")
    assert shop.get(f"/api/v1/runs/{run.pk}/events").status_code == 200
    seen = shop.get(f"/api/v1/runs/{run.pk}/observations").json()["results"]
    assert {o["content"]["erased"] for o in seen} == {True} and all(o["content_hash"] for o in seen)
    for path in (
        f"/admin/runs/run/{run.pk}/change/", f"/admin/approvals/approval/{Approval.objects.get().pk}/change/",
        "/admin/runs/run/", "/admin/approvals/approval/", "/admin/runs/write/", "/admin/",
    ):  # fmt: skip
        assert lead.get(path).status_code == 200, path
    approval = lead.get(f"/api/v1/approvals/{Approval.objects.get().pk}").json()
    assert approval["action"]["args"]["reason"] == "[erased]"


def test_commands_tell_of_an_erased_run_and_replay_says_it_cannot(world: World) -> None:
    run = spoken(world)
    erase(run)
    told = command("why", "req-8472")
    assert "conversation on" in told and "no longer in the record" in told and "lead_17 approved" in told
    exported = json.loads(command("export_run", "req-8472"))
    assert set(exported["erased"]) == {"conversation", "evidence"}
    assert "erased: the run lost its conversation" in fails("replay", "req-8472")
    assert "cannot be replayed" in fails("replay", "req-8472")


def test_the_same_request_and_message_are_still_replays_and_no_new_run(world: World) -> None:
    world.settings(AGENT_MODELS=world.route([*gather(), final("All is well.")]))
    shop = edge.client(edge.token())
    sent = edge.body(request_id="req-8472", goal=f"{GOAL} {SAID}")
    run_id = edge.post(shop, edge.RUNS, sent).json()["run_id"]
    message = {"text": f"Hello {SAID}", "message_id": "m-1"}
    assert edge.post(shop, f"{edge.RUNS}/{run_id}/messages", message).status_code == 202
    run = world.adopt(run_id, [*gather(), final("All is well.")])
    erase(run)
    again = edge.post(shop, edge.RUNS, sent)
    assert (again.status_code, again["Idempotency-Replayed"], again.json()["run_id"]) == (200, "true", run_id)
    assert edge.post(shop, edge.RUNS, {**sent, "goal": "another"}).status_code == 422
    assert edge.post(shop, f"{edge.RUNS}/{run_id}/messages", message).status_code == 202
    with pytest.raises(RunEnded):
        store.append_input(run_id, kind="message", message_id="m-2", text="more", by="u")
    assert (Run.objects.count(), Input.objects.count()) == (1, 1)
    assert planted.in_database((SAID,)) == []


def test_words_that_come_after_an_erasure_go_by_their_own_time(world: World) -> None:
    run = world.start(script=[*gather(), final("All is well.")])
    erase(run)
    store.feedback(str(run.pk), "up", SAID)
    Run.objects.filter(pk=run.pk).update(completed_at=dbtime.now() - timedelta(days=400))
    assert list(erasing.erasable(CONVERSATION, before=dbtime.now(), tenant_id=None, agent=None)) == [run]
    assert erase(run) == (CONVERSATION,)
    assert planted.in_database((SAID,)) == []


def test_rows_keep_their_hashes_numbers_and_places(world: World) -> None:
    run = spoken(world)
    kept = Observation.objects.filter(run=run).values_list("obs_id", "position", "content_hash", "call_id", "source")
    turns = Turn.objects.filter(run=run).values_list("number", "prompt_hash", "input_tokens", "cost_micros", "route")
    before = list(kept), list(turns)
    erase(run)
    assert (list(kept.all()), list(turns.all())) == before
