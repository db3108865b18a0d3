"""Writes whose end nobody can tell, settled by a person who looked: once, recorded, and the order is free again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from agentsite import dbtime, queues
from agentsite.tenants.models import Tenant
from runs import store
from runs.errors import Fenced
from runs.models import Attempt, Run, Write
from runs.orchestrator import settle
from runs.store import settled
from tests.between import due_in_s, put_back
from tests.operating import SEES, operator, seen, settles, write_page
from tests.world import KEY, World, inr, refund, s0, worker_dies


def lost(world: World, mode: str = "drop_before", **start: Any) -> Run:
    """A run that ended because nobody could tell what became of its refund; nothing sent is still on its way."""
    run = world.start(**start)
    if run.status == "awaiting_approval":
        world.approve(run)
    world.sandbox.fault("POST /v1/refunds", mode)
    worker_dies(run, after="post")
    world.sandbox.fault("GET /v1/refunds", "status:503", times=0)
    put_back(Write.objects.filter(run=run, state="sent"), intent_at=1801)
    run = world.resume(run, until="escalated")
    assert run.reason == "outcome_unknown"
    quiet()
    return run


def in_doubt(world: World, mode: str = "drop_before") -> Run:
    """A live run whose refund nobody can tell for the moment; the look-up is away."""
    world.settings(RETRY_S="300", COMMERCE_HONOURS_KEYS="0")
    run = world.start()
    world.approve(run)
    world.sandbox.fault("POST /v1/refunds", mode)
    worker_dies(run, after="post")
    world.sandbox.fault("GET /v1/refunds", "status:503", times=0)
    run = world.resume(run, patience_s=0)
    assert (run.status, write().state) == ("executing", "unknown")
    quiet()
    return run


def quiet() -> None:
    put_back(Attempt.objects.filter(sent_at__isnull=False), sent_at=100, gives_up_at=90)


def write() -> Write:
    return Write.objects.get(key=KEY)


# --- what is shown ---------------------------------------------------------------------------------------------


def test_page_shows_key_question_attempts_and_the_last_look(world: World) -> None:
    run = lost(world, "hide:forever")
    desk = operator()
    page = seen(desk, write_page(write()))
    for words in (KEY, "8472", "pay_9002", "2,000.00 INR", "no answer", "Look again now", run.request_id):
        assert words in page, words
    world.sandbox.control("/_faults", clear=True)
    world.seed(refunds=[{"refund_id": "rf_9", "payment_id": "pay_9001", "order_id": "8472", "state": "failed",
                         "amount": inr("5.00")}])  # fmt: skip
    assert settle(KEY) == "put_off"
    page = seen(desk, write_page(write()))
    assert "rf_9" in page and "5.00 INR" in page and "absent_once" in page


def test_look_that_is_not_answered_says_so(world: World) -> None:
    run = lost(world)
    assert settle(KEY) == "put_off"
    [looked] = world.events(run, "write.looked")
    assert (looked["key"], looked["refunds"]) == (KEY, None)
    assert looked["found"] in seen(operator(), write_page(write()))


def test_write_of_another_tenant_does_not_exist(world: World) -> None:
    lost(world)
    Tenant.objects.get_or_create(id="t_other")
    stranger = operator("stranger", tenants=("t_other",))
    assert stranger.get(write_page(write())).status_code == 404
    assert stranger.post(write_page(write()), {"do": "look"}).status_code == 404
    assert settles(stranger, write(), found="not_made") == 404
    assert write().state == "unknown"


def test_viewer_sees_a_write_and_settles_none(world: World) -> None:
    run = lost(world)
    viewer = operator("viewer", may=SEES)
    page = seen(viewer, write_page(write()))
    assert "Settle by hand" not in page and "Look again now" not in page
    assert [viewer.post(write_page(write()), {"do": do}).status_code for do in ("look", "settle")] == [403, 403]
    assert (write().state, world.fresh(run).last_seq) == ("unknown", run.last_seq)


def test_open_writes_are_listed_for_a_person(world: World) -> None:
    lost(world)
    desk = operator()
    assert "pay_9002" in seen(desk, "/admin/runs/write/?state=settle")
    assert settles(desk, write(), found="not_made") == 302
    assert "pay_9002" not in seen(desk, "/admin/runs/write/?state=settle")
    assert "pay_9002" in seen(desk, "/admin/runs/write/?state=not_sent")


# --- look again now --------------------------------------------------------------------------------------------


def test_look_again_now_is_due_at_once_and_says_who_asked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = lost(world, "drop_after")
    world.sandbox.control("/_faults", clear=True)
    told = list[str]()
    monkeypatch.setattr(queues, "nudge_settle", told.append)
    assert store.due_writes() == []
    assert operator().post(write_page(write()), {"do": "look"}).status_code == 302
    assert (told, store.due_writes()) == ([KEY], [KEY])  # the sweeper finds it where the message was lost
    assert world.events(run, "write.look_asked") == [{"key": KEY, "by": "ops_3"}]
    assert (settle(KEY), world.fresh(run).outcome) == ("settled", "refunded")
    assert operator().post(write_page(write()), {"do": "look"}).status_code == 409


def test_look_again_hurries_a_run_that_lives(world: World) -> None:
    run = in_doubt(world)
    assert due_in_s(run) > 30
    assert operator().post(write_page(write()), {"do": "look"}).status_code == 302
    assert due_in_s(run) <= 0
    world.settings(RETRY_S="0.02")
    world.sandbox.control("/_faults", clear=True)
    assert world.resume(run, until="completed").outcome == "refunded"


# --- settled after the end -------------------------------------------------------------------------------------


def test_settled_as_made_corrects_the_outcome_and_tells_the_customer(world: World) -> None:
    run = lost(world, "drop_after")
    [made] = world.refunds()
    assert settles(operator(), write(), found="made", refund_id=made["refund_id"], amount="2000.00") == 302
    after = world.fresh(run)
    assert (after.status, after.reason, after.outcome) == ("escalated", "outcome_unknown", "refunded")
    assert (write().state, write().refund_id, write().closed_at is None) == ("confirmed", made["refund_id"], False)
    assert world.events(run, "write.settled_by_staff") == [
        {"key": KEY, "by": "ops_3", "reason": "seen_at_provider", "state": "confirmed", "was": "unknown",
         "refund_id": made["refund_id"], "amount": inr("2000.00"), "seen": "Looked at the provider's console."}
    ]  # fmt: skip
    assert world.events(run, "run.corrected") == [{"from": "handed_to_staff", "to": "refunded"}]
    assert f"has been made and confirmed; its reference is {made['refund_id']}." in world.said(run)
    assert len(world.sandbox.posts()) == 1


def test_settled_as_not_made_frees_the_order_and_sends_nothing(world: World) -> None:
    run = lost(world)
    world.sandbox.control("/_faults", clear=True)
    before = world.start("req-2")
    assert (before.status, set(world.rules(before))) == ("completed", {"nothing_refundable"})
    assert settles(operator(), write(), found="not_made") == 302
    assert (write().state, world.fresh(run).outcome) == ("not_sent", "handed_to_staff")
    assert "No refund has been issued for this request." in world.said(run)
    assert (world.events(run, "run.corrected"), len(world.sandbox.posts())) == ([], 1)
    after = world.start("req-3")
    world.approve(after, by="lead_18")
    assert world.resume(after, until="completed").outcome == "refunded"
    assert len(world.refunds()) == 1


def test_less_than_asked_is_told_as_it_was(world: World) -> None:
    run = lost(world, 'amount:{"amount": "1500.00", "currency": "INR"}')
    [made] = world.refunds()
    assert settles(operator(), write(), found="made", refund_id=made["refund_id"], amount="1500.00") == 302
    assert (write().state, world.fresh(run).outcome) == ("confirmed", "partly_refunded")
    assert "A refund of 1,500.00 INR to payment pay_9002 on order 8472 has been made and confirmed" in world.said(run)
    assert "2,000.00 INR to payment" not in world.said(run)


def test_second_settlement_changes_nothing(world: World) -> None:
    run = lost(world)
    assert settles(operator(), write(), found="not_made") == 302
    answer = operator("ops_4").post(
        write_page(write()),
        {"do": "settle", "found": "made", "refund_id": "rf_1", "amount": "2000.00", "reason": "provider_said",
         "seen": "they said so", "seen_seq": str(world.fresh(run).last_seq)},
    )  # fmt: skip
    assert (answer.status_code, "settled already" in answer.content.decode()) == (409, True)
    assert (write().state, len(world.events(run, "write.settled_by_staff"))) == ("not_sent", 1)


def test_late_look_after_a_settlement_changes_nothing(world: World) -> None:
    run = lost(world, "drop_after")
    found = settled.open_write(KEY)
    assert found is not None
    [made] = world.refunds()
    assert settles(operator(), write(), found="made", refund_id=made["refund_id"], amount="2000.00") == 302
    world.sandbox.control("/_faults", clear=True)
    assert settle(KEY) == "closed"
    assert len(world.events(run, "run.corrected")) == 1


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({"found": ""}, 400),
        ({"found": "perhaps"}, 400),
        ({"found": "not_made", "seen": "  "}, 400),
        ({"found": "not_made", "seen": "a\x00b"}, 400),
        ({"found": "not_made", "seen": "x" * 2001}, 400),
        ({"found": "not_made", "reason": ""}, 400),
        ({"found": "made", "refund_id": "", "amount": "2000.00"}, 400),
        ({"found": "made", "refund_id": "two words", "amount": "2000.00"}, 400),
        ({"found": "made", "refund_id": "rf_1", "amount": "2000,-"}, 400),
        ({"found": "made", "refund_id": "rf_1", "amount": "-1.00"}, 400),
        ({"found": "made", "refund_id": "rf_1", "amount": "0.00"}, 400),
        ({"found": "not_made", "seen_seq": "1"}, 409),
        ({"found": "not_made", "seen_seq": "x"}, 409),
    ],
)  # fmt: skip
def test_settlement_that_says_too_little_or_was_overtaken_is_refused(
    world: World, form: dict[str, str], status: int
) -> None:
    run = lost(world)
    assert settles(operator(), write(), **form) == status
    assert (write().state, world.fresh(run).last_seq) == ("unknown", run.last_seq)


def test_refund_of_another_write_is_not_claimed_twice(world: World) -> None:
    world.seed(amount_due=inr("0.00"))
    first = world.start("req-1", script=s0(refund("pay_9001", "900.00")))
    assert first.outcome == "refunded"
    [made] = world.refunds()
    lost(world, script=s0(refund("pay_9002", "900.00")))
    assert settles(operator(), write(), found="made", refund_id=made["refund_id"], amount="900.00") == 409
    assert write().state == "unknown"


def test_what_may_still_arrive_is_not_settled_as_never_made(world: World) -> None:
    lost(world)
    put_back(Attempt.objects.all(), gives_up_at=-30)
    assert settles(operator(), write(), found="not_made") == 409
    world.settings(COMMERCE_SETTLE_S="60")
    put_back(Attempt.objects.all(), gives_up_at=30)
    assert settles(operator(), write(), found="not_made") == 409
    put_back(Attempt.objects.all(), gives_up_at=61)
    assert settles(operator(), write(), found="not_made") == 302


def test_run_is_not_finished_while_its_write_is_open(world: World) -> None:
    run = lost(world)
    given = store.Resolution(
        run_id=str(run.pk), by="ops_3", reason="other", note="n", text="Done.", seen_seq=run.last_seq
    )
    with pytest.raises(Exception, match="write-open"):
        store.finish(given)
    assert world.fresh(run).outcome == "handed_to_staff"


# --- settled while its run lives -------------------------------------------------------------------------------


def test_live_run_verifies_what_a_person_settled_as_made(world: World) -> None:
    run = in_doubt(world, "drop_after")
    [made] = world.refunds()
    assert settles(operator(), write(), found="made", refund_id=made["refund_id"], amount="2000.00") == 302
    assert (world.fresh(run).status, write().state) == ("executing", "confirmed")
    world.settings(RETRY_S="0.02")
    world.sandbox.control("/_faults", clear=True)
    run = world.resume(run, until="completed")
    assert (run.outcome, len(world.posts()), run.verification and run.verification["passed"]) == ("refunded", 1, True)


def test_live_run_goes_on_where_a_person_settled_it_as_not_made(world: World) -> None:
    run = in_doubt(world)
    assert settles(operator(), write(), found="not_made") == 302
    world.sandbox.control("/_faults", clear=True)
    run = world.resume(run, until="escalated")
    assert (world.writes(run), run.reason, len(world.sandbox.posts())) == ([(KEY, "not_sent")], "needs_a_person", 1)
    assert "settled_by_staff" in world.rules(run)


def test_worker_about_to_send_again_is_fenced_out_by_a_settlement(world: World) -> None:
    run = in_doubt(world)
    Run.objects.filter(pk=run.pk).update(due_at=dbtime.now() - timedelta(seconds=1))
    claimed = store.claim(str(run.pk))
    assert claimed is not None
    state = store.load(str(run.pk), claimed.token)
    Attempt.objects.create(write_id=KEY, number=2, prepared_at=dbtime.now())
    assert settles(operator(), write(), found="not_made") == 302
    assert state.open_write is not None
    with pytest.raises(Fenced):
        store.mark_sent(state, state.open_write)
    assert len(world.sandbox.posts()) == 1
    world.sandbox.control("/_faults", clear=True)
    assert world.resume(run, until="escalated").reason == "needs_a_person"


def test_write_that_its_run_still_works_on_is_not_settled(world: World) -> None:
    run = world.start()
    world.approve(run)
    worker_dies(run, after="sent")
    assert write().state == "sent"
    quiet()
    assert settles(operator(), write(), found="not_made") == 409
    assert write().state == "sent"
    assert world.resume(run, until="completed").outcome == "refunded"
