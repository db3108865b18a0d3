"""What operators do to a run in the console: with a reason, under a permission, once, and on the record (M86, M108)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client

from agentsite import dbtime
from agentsite.tenants.models import Tenant
from runs import store
from runs.models import Input, Run
from tests.between import due_in_s, make_due, put_back
from tests.operating import SEES, act_page, acts, operator, run_page, seen
from tests.world import KEY, World, final, worker_dies

ALL = ("ask-again", "hurry", "escalate", "cancel", "finish")
WORDS = "We paid this back by bank transfer and wrote to you by e-mail."


def expired(world: World) -> Run:
    """A run whose approval nobody decided in time."""
    run = world.start()
    put_back(type(world.approval(run)).objects.filter(pk=world.approval(run).pk), expires_at=1)
    make_due(run)
    run = world.resume(run)
    assert (run.status, run.waiting_for) == ("approval_expired", "staff")
    return run


def escalated(world: World) -> Run:
    run = world.start()
    world.leave(run, "escalate")
    return world.resume(run, until="escalated")


def offered(client: Client, run: Run) -> set[str]:
    page = seen(client, run_page(run))
    return {act for act in ALL if f"/act/{act}/" in page}


# --- what is offered to whom -----------------------------------------------------------------------------------


def test_acts_offered_are_those_the_status_allows(world: World) -> None:
    desk = operator()
    run = world.start()
    assert offered(desk, run) == {"hurry", "escalate", "cancel"}
    world.approve(run)
    worker_dies(run, after="intent")
    assert offered(desk, run) == {"hurry", "cancel"}
    run = world.resume(run, until="completed")
    assert offered(desk, run) == set()
    other = world.start("req-2", script=[final()])
    assert (other.status, offered(desk, other)) == ("completed", set())


def test_expired_and_escalated_runs_offer_what_helps_them(world: World) -> None:
    desk = operator()
    run = expired(world)
    assert offered(desk, run) == {"ask-again", "hurry", "escalate", "cancel"}
    assert acts(desk, run, "escalate", reason="unusual_case") == 302
    run = world.resume(run, until="escalated")
    assert offered(desk, run) == {"finish"}


@pytest.mark.parametrize("act", ALL)
def test_viewer_is_offered_nothing_and_may_do_nothing(world: World, act: str) -> None:
    run = escalated(world) if act == "finish" else expired(world)
    before = (run.version, run.last_seq, run.outcome)
    viewer = operator("viewer", may=SEES)
    assert offered(viewer, run) == set()
    assert viewer.get(act_page(run, act)).status_code == 403
    assert viewer.post(act_page(run, act), {"reason": "other", "note": "n", "text": WORDS}).status_code == 403
    run = world.fresh(run)
    assert (run.version, run.last_seq, run.outcome) == before


@pytest.mark.parametrize("act", [*ALL, "nothing"])
def test_run_of_another_tenant_does_not_exist(world: World, act: str) -> None:
    run = world.start()
    Tenant.objects.get_or_create(id="t_other")
    stranger = operator("stranger", tenants=("t_other",))
    assert stranger.get(act_page(run, act)).status_code == 404
    assert stranger.post(act_page(run, act), {"reason": "other", "note": "n"}).status_code == 404
    assert world.fresh(run).last_seq == run.last_seq


def test_crafted_ids_and_acts_do_not_exist(world: World) -> None:
    run = world.start()
    desk = operator()
    for path in (act_page(run, "nothing"), "/admin/runs/run/1/act/cancel/", "/admin/runs/run/x%00/act/cancel/",
                 "/admin/runs/run/0190a000-0000-7000-8000-000000000000/act/cancel/"):  # fmt: skip
        assert (desk.get(path).status_code, desk.post(path, {"reason": "other"}).status_code) == (404, 404), path


def test_an_act_is_no_get_and_needs_the_csrf_token(world: World) -> None:
    run = world.start()
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = operator().cookies
    assert strict.get(act_page(run, "cancel")).status_code == 200
    assert strict.post(act_page(run, "cancel"), {"reason": "customer_asked"}).status_code == 403
    assert not Input.objects.exists()


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"reason": "", "note": ""}, "Choose a reason."),
        ({"reason": "because", "note": ""}, "Choose a reason."),
        ({"reason": "other", "note": " "}, "Write the reason down."),
        ({"reason": "customer_asked", "note": "a\x00b"}, "characters that cannot be stored"),
        ({"reason": "customer_asked", "note": "x" * 2001}, "too long"),
    ],
)
def test_an_act_needs_one_of_its_reasons(world: World, form: dict[str, str], said: str) -> None:
    run = world.start()
    answer = operator().post(act_page(run, "cancel"), form)
    assert (answer.status_code, said in answer.content.decode()) == (400, True)
    assert not Input.objects.exists()


# --- each act --------------------------------------------------------------------------------------------------


def test_asking_again_puts_a_new_question_and_revives_nothing(world: World) -> None:
    run = expired(world)
    old = world.approval(run)
    assert acts(operator(), run, "ask-again", reason="customer_still_waits", note="called us") == 302
    run = world.resume(run)
    new = world.approval(run)
    assert (run.status, new.pk == old.pk, new.status) == ("awaiting_approval", False, "pending")
    old.refresh_from_db()
    assert old.status == "expired"
    [asked] = [e for e in world.events(run, "notice") if e.get("kind") == "ask_again"]
    assert (asked["by"], asked["reason"], asked["text"]) == ("staff:ops_3", "customer_still_waits", "called us")
    world.approve(run)
    assert world.resume(run).outcome == "refunded"


def test_asking_twice_about_one_approval_is_one_question(world: World) -> None:
    run = expired(world)
    desk = operator()
    assert [acts(desk, run, "ask-again"), acts(desk, run, "ask-again")] == [302, 302]
    assert Input.objects.filter(run=run, kind="ask_again").count() == 1


def test_asking_again_works_after_every_expiry(world: World) -> None:
    run = expired(world)
    for _ in range(2):
        assert acts(operator(), run, "ask-again") == 302
        run = world.resume(run)
        assert run.status == "awaiting_approval"
        approval = world.approval(run)
        put_back(type(approval).objects.filter(pk=approval.pk), expires_at=1)
        make_due(run)
        run = world.resume(run)
        assert run.status == "approval_expired"


def test_taking_over_voids_the_approval_and_tells_who(world: World) -> None:
    run = world.start()
    assert acts(operator(), run, "escalate", reason="suspected_fraud", note="same card as last week") == 302
    run = world.resume(run, until="escalated")
    assert (run.reason, run.outcome, world.approval(run).status) == ("escalated_by_staff", "handed_to_staff", "void")
    [left] = [e for e in world.events(run, "notice") if e.get("kind") == "escalate"]
    assert (left["by"], left["reason"]) == ("staff:ops_3", "suspected_fraud")
    assert world.posts() == []


def test_cancel_by_staff_is_never_told_as_the_customers_wish(world: World) -> None:
    run = world.start()
    assert acts(operator(), run, "cancel", reason="opened_by_mistake") == 302
    assert "You asked us to cancel" not in world.said(run)
    run = world.resume(run, until="cancelled")
    assert (run.reason, run.outcome, world.posts()) == ("cancelled_by_staff", "cancelled", [])


def test_cancel_after_the_intent_hides_no_refund(world: World) -> None:
    run = world.start()
    world.approve(run)
    worker_dies(run, after="post")
    assert acts(operator(), run, "cancel", reason="customer_asked") == 302
    run = world.resume(run, until="completed")
    assert (run.outcome, world.writes(run), len(world.refunds())) == ("refunded", [(KEY, "confirmed")], 1)


def test_retry_now_makes_a_waiting_run_due_and_changes_nothing_else(world: World) -> None:
    world.settings(RETRY_S="300")
    world.sandbox.fault("GET /v1/orders/8472", "status:503", times=0)
    run = world.start()
    assert (run.status, due_in_s(run) > 60) == ("waiting_dependency", True)
    world.sandbox.control("/_faults", clear=True)
    assert acts(operator(), run, "hurry", reason="dependency_is_back") == 302
    after = world.fresh(run)
    assert (after.version, after.status, after.last_input_seq) == (run.version, run.status, run.last_input_seq)
    assert due_in_s(run) <= 0
    assert world.events(run, "run.hurried") == [{"by": "ops_3", "reason": "dependency_is_back", "note": "as agreed"}]
    world.settings(RETRY_S="0.02")
    assert world.resume(run).status == "awaiting_approval"


def test_run_that_a_worker_holds_or_that_ended_is_not_hurried(world: World) -> None:
    run = world.start()
    put_back(Run.objects.filter(pk=run.pk), due_at=-600)
    Run.objects.filter(pk=run.pk).update(lease_token="x", lease_until=dbtime.now() + timedelta(seconds=60))
    assert store.hurry(str(run.pk), by="ops_3", reason="other", note="") is False
    assert due_in_s(run) > 500
    Run.objects.filter(pk=run.pk).update(lease_until=dbtime.now() - timedelta(seconds=1))
    assert store.hurry(str(run.pk), by="ops_3", reason="other", note="") is True
    world.cancel(run)
    run = world.resume(run, until="cancelled")
    assert store.hurry(str(run.pk), by="ops_3", reason="other", note="") is False
    assert (world.fresh(run).due_at, len(world.events(run, "run.hurried"))) == (None, 1)


# --- finishing by hand -----------------------------------------------------------------------------------------


def test_finish_by_hand_lets_record_reply_and_audit_agree(world: World) -> None:
    run = escalated(world)
    assert acts(operator(), run, "finish", reason="settled_elsewhere", note="ticket 77", text=f" {WORDS} ") == 302
    done = world.fresh(run)
    assert (done.status, done.reason, done.outcome) == ("escalated", "escalated_by_staff", "resolved_by_staff")
    assert (done.reply, world.said(done), done.version) == (WORDS, WORDS, run.version)
    assert world.events(done, "run.resolved") == [
        {"from": "handed_to_staff", "to": "resolved_by_staff", "by": "ops_3", "reason": "settled_elsewhere",
         "note": "ticket 77", "text": WORDS}
    ]  # fmt: skip
    assert [e["text"] for e in world.events(done, "reply.sent")] == [WORDS]
    page = seen(operator(), run_page(done))
    assert WORDS in page and "ticket 77" in page


def test_finish_needs_words_that_can_be_stored(world: World) -> None:
    run = escalated(world)
    desk = operator()
    for text in ("", "  \n", "a\x00b", "x" * 4001):
        assert acts(desk, run, "finish", text=text) == 400
    assert (world.fresh(run).outcome, world.fresh(run).reply) == ("handed_to_staff", None)


def test_run_is_finished_once(world: World) -> None:
    run = escalated(world)
    assert acts(operator(), run, "finish", text=WORDS) == 302
    form = {"reason": "other", "note": "n", "text": "Something else.", "seen_seq": str(world.fresh(run).last_seq)}
    assert operator("ops_4").post(act_page(run, "finish"), form).status_code == 409
    assert (world.fresh(run).reply, len(world.events(run, "run.resolved"))) == (WORDS, 1)


def test_finish_is_refused_where_the_run_moved_while_one_looked(world: World) -> None:
    run = escalated(world)
    stale = {"reason": "other", "note": "n", "text": WORDS, "seen_seq": str(run.last_seq - 1)}
    answer = operator().post(act_page(run, "finish"), stale)
    assert (answer.status_code, "It changed while you looked." in answer.content.decode()) == (409, True)
    assert world.fresh(run).outcome == "handed_to_staff"


@pytest.mark.parametrize("kind", ["live", "completed", "cancelled"])
def test_only_a_run_that_is_a_persons_is_finished_by_hand(world: World, kind: str) -> None:
    run = world.start(script=[final()]) if kind == "completed" else world.start()
    if kind == "cancelled":
        world.cancel(run)
        run = world.resume(run, until="cancelled")
    form = {"reason": "other", "note": "n", "text": WORDS, "seen_seq": str(run.last_seq)}
    assert operator().post(act_page(run, "finish"), form).status_code == 409
    assert world.fresh(run).outcome == run.outcome


def test_the_days_list_holds_what_waits_for_staff(world: World) -> None:
    run = escalated(world)
    desk = operator()

    def listed(needs: str) -> bool:
        return "req-8472" in seen(desk, f"/admin/runs/run/?needs={needs}")

    assert (listed("finish"), listed("settle"), listed("ask"), listed("stuck")) == (True, False, False, False)
    acts(desk, run, "finish", text=WORDS)
    assert not listed("finish")


def test_due_run_that_nobody_works_on_is_listed_as_stuck(world: World) -> None:
    run = world.start()
    desk = operator()
    assert "req-8472" not in seen(desk, "/admin/runs/run/?needs=stuck")
    put_back(Run.objects.filter(pk=run.pk), due_at=90)
    assert "req-8472" in seen(desk, "/admin/runs/run/?needs=stuck")
    make_due(run)
