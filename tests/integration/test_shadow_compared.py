"""Proposals of shadow mode beside what staff did: when they are compared, with what, and what it comes to (M110)."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from agentsite import dbtime
from agentsite.tenants import shadowing
from agentsite.tenants.models import AgentProfile, ShadowChange, Tenant
from runs import store, sweeper
from runs.management.tenancy import DEFAULT_PROFILE
from runs.models import Event, Run, Shadow, Write
from runs.orchestrator import compare_due
from runs.store import shadows
from tests.between import put_back
from tests.operating import OPERATES, operator
from tests.world import TENANT, World, final, gather, inr

Json = dict[str, Any]
PAGE = f"/admin/runs/shadow/of/{TENANT}/"
LIST = "/admin/runs/shadow/"


@pytest.fixture
def shadow(world: World) -> World:
    """The tenant of a world, in shadow mode."""
    assert shadowing.enter(TENANT, by="ops_3", reason="a new model")
    return world


def staff_refund(world: World, payment_id: str = "pay_9002", amount: str = "2000.00", **more: Any) -> None:
    """A refund that somebody makes in the business system's own console."""
    world.may_over_refund = True
    world.sandbox.control("/_refunds", payment_id=payment_id, amount=inr(amount), **more)


def browser(name: str = "ops_3", *more: str, tenants: tuple[str, ...] = (TENANT,)) -> Client:
    """A member of staff who may see proposals, and more."""
    return operator(name, may=(*OPERATES, "view_shadow", *more), tenants=tenants)


def compared(run: Run) -> Shadow:
    """The row after a comparison, which looked at this run alone."""
    Shadow.objects.filter(run=run).update(compare_at=dbtime.now())
    assert compare_due() == 1
    return Shadow.objects.get(run=run)


def came_to(run: Run) -> tuple[str, str]:
    row = compared(run)
    assert row.staff is not None and row.compared_at is not None
    return row.verdict, row.staff["why"]


# --- verdicts on what really stands in the business system -------------------------------------------------------


def test_same_refund_by_staff_agrees_for_good(shadow: World) -> None:
    run = shadow.start()
    staff_refund(shadow)
    row = compared(run)
    assert (row.verdict, row.compare_at) == ("agree", None)
    [listed] = shadow.refunds()
    assert row.staff == {
        "refunds": [{
            "refund_id": listed["refund_id"], "order_id": "8472", "payment_id": "pay_9002", "amount": inr("2000.00"),
        }], "why": "same_refund", "over": None,
    }  # fmt: skip
    assert shadow.posts() == []


@pytest.mark.parametrize(
    ("made", "verdict", "why", "over"),
    [
        ([], "overreach", "staff_refunded_nothing", "2000.00"),
        ([("pay_9002", "500.00")], "overreach", "staff_refunded_less", "1500.00"),
        ([("pay_9001", "2000.00")], "overreach", "staff_refunded_another_payment", "2000.00"),
        ([("pay_9002", "2000.00"), ("pay_9001", "100.00")], "miss", "staff_refunded_more", None),
    ],
)  # fmt: skip
def test_other_than_staff_did_is_named(
    shadow: World, made: list[tuple[str, str]], verdict: str, why: str, over: str | None
) -> None:
    run = shadow.start()
    for payment_id, amount in made:
        staff_refund(shadow, payment_id, amount)
    row = compared(run)
    assert row.staff is not None
    assert (row.verdict, row.staff["why"]) == (verdict, why)
    assert row.staff["over"] == (inr(over) if over else None)


def test_conclusion_without_a_write_agrees_or_misses(shadow: World) -> None:
    script = [*gather(), final()]
    first, second = shadow.start("req-1", script), shadow.start("req-2", script)
    assert came_to(first) == ("agree", "nothing_refunded")
    staff_refund(shadow)
    assert came_to(second) == ("miss", "staff_refunded")


def test_what_was_refunded_before_or_came_to_nothing_is_no_answer(shadow: World) -> None:
    before = {"refund_id": "rf_old", "payment_id": "pay_9001", "order_id": "8472", "amount": inr("5.00"),
              "state": "succeeded", "created_at": "2020-01-01T00:00:00Z"}  # fmt: skip
    shadow.seed(refunds=[before])
    shadow.may_over_refund = True
    run = shadow.start(script=[*gather(), final()])
    staff_refund(shadow, amount="7.00", state="failed")
    assert came_to(run) == ("agree", "nothing_refunded")


def test_write_of_ours_is_nothing_that_staff_did(world: World) -> None:
    world.limits(requires_approval_above="5000.00")
    assert shadowing.enter(TENANT, by="ops_3", reason="on trial")
    run = world.start("req-1")
    assert shadowing.leave(TENANT, by="ops_3", reason="earned", figures={})
    assert world.start("req-2").outcome == "refunded"
    assert came_to(run) == ("overreach", "staff_refunded_nothing")


def test_refund_that_may_be_ours_or_theirs_is_unclear(world: World) -> None:
    """A business system that keeps neither key nor metadata shows two alike: nobody can tell which of them was ours."""
    world.sandbox.control("/_config", lists_keys=False, lists_metadata=False)
    world.limits(requires_approval_above="5000.00")
    assert world.start("req-1").outcome == "refunded"
    Write.objects.update(refund_id=None)
    assert shadowing.enter(TENANT, by="ops_3", reason="on trial")
    run = world.start("req-2", [*gather(), final()])
    staff_refund(world)
    assert came_to(run) == ("unclear", "ours_or_theirs")


def test_refund_without_a_time_and_a_run_without_an_order_are_unclear(shadow: World) -> None:
    run = shadow.start()
    Shadow.objects.filter(run=run).update(order_ids=[])
    assert came_to(run) == ("unclear", "no_order")
    Shadow.objects.filter(run=run).update(order_ids=["8472"])
    listed = {"refund_id": "rf_9", "payment_id": "pay_9002", "order_id": "8472", "amount": inr("2000.00")}
    answer = {"refunds": [{**listed, "state": "succeeded", "idempotency_key": None, "metadata": None}]}
    shadow.sandbox.fault("GET /v1/refunds", "json:" + json.dumps(answer), times=1)
    assert came_to(run) == ("unclear", "no_time")
    shadow.sandbox.fault("GET /v1/refunds", "status:404", times=1)
    assert came_to(run) == ("unclear", "order_not_found")


# --- when --------------------------------------------------------------------------------------------------------


def test_sweeper_finds_what_is_due_and_nothing_before(shadow: World) -> None:
    run = shadow.start()
    assert (shadows.due(), shadows.claim(), compare_due()) == (False, [], 0)
    asked = list[str]()
    shadow.patch.setattr("agentsite.queues.nudge_compare", lambda: asked.append("compare"))
    sweeper.sweep()
    assert asked == []
    put_back(Shadow.objects.filter(run=run), compare_at=0.01)
    sweeper.sweep()
    assert (asked, shadows.due()) == (["compare"], True)


def test_finish_by_hand_is_compared_at_once_and_once_more_unless_it_agrees(shadow: World) -> None:
    run = shadow.start()
    done = store.Resolution(
        run_id=str(run.pk), by="ops_3", reason="other", note="", text="Done.", seen_seq=run.last_seq
    )
    store.finish(done)
    assert compare_due() == 1
    row = Shadow.objects.get(run=run)
    assert (row.verdict, row.compare_at) == ("overreach", row.at + timedelta(seconds=86_400))
    staff_refund(shadow)
    assert came_to(run) == ("agree", "same_refund")


def test_claimed_proposal_is_nobody_elses_for_a_minute(shadow: World) -> None:
    run = shadow.start()
    put_back(Shadow.objects.filter(run=run), compare_at=0.01)
    [mine] = shadows.claim()
    assert (mine.run_id, shadows.claim(), shadows.due()) == (str(run.pk), [], False)


def test_business_system_that_is_away_puts_it_off_ever_longer_and_then_for_good(shadow: World) -> None:
    run = shadow.start()
    rows = Shadow.objects.filter(run=run)
    shadow.sandbox.fault("GET /v1/refunds", "status:503", times=0)
    for since_s, wait_s in ((0, 60), (1200, 300), (86_400, 3600)):
        shadow.settings(BREAKER_FAILURES="1000")
        put_back(rows, at=since_s, compare_at=0.01)
        assert compare_due() == 1
        row = rows.get()
        assert row.compare_at is not None and row.verdict == "open"
        assert abs((row.compare_at - dbtime.now()).total_seconds() - wait_s) < 5
    put_back(rows, at=31 * 86_400, compare_at=0.01)
    assert compare_due() == 1
    assert (rows.get().verdict, rows.get().compare_at) == ("unclear", None)
    shadow.sandbox.control("/_faults", clear=True)
    assert came_to(run)[0] == "overreach"


def test_profile_that_nobody_can_read_holds_up_no_other_tenant(shadow: World) -> None:
    run = shadow.start()
    shadow.begin("t_other")
    assert shadowing.enter("t_other", by="ops_3", reason="a new model")
    other = shadow.start("req-2")
    AgentProfile.objects.filter(tenant_id=TENANT).update(document={"agent": "refunds"})
    put_back(Shadow.objects.filter(run=run), compare_at=2)
    put_back(Shadow.objects.filter(run=other), compare_at=1)
    assert compare_due() == 2
    assert [Shadow.objects.get(run=r).verdict for r in (run, other)] == ["open", "overreach"]


# --- figures and the command -------------------------------------------------------------------------------------


def measured(world: World) -> list[Run]:
    """Four proposals: one agrees, one overreaches by 2,000.00 INR, one is unclear, one is open."""
    script = [*gather(), final()]
    runs = [world.start(f"req-{n}", script if n == 0 else None) for n in range(4)]
    came_to(runs[0])
    came_to(runs[1])
    Shadow.objects.filter(run=runs[2]).update(order_ids=[])
    came_to(runs[2])
    return runs


def test_figures_count_verdicts_money_and_how_sure_they_are(shadow: World) -> None:
    measured(shadow)
    assert shadows.figures(TENANT).wire() == {
        "counts": {"agree": 1, "overreach": 1, "miss": 0, "unclear": 1, "open": 1}, "compared": 2, "agreement": 0.5,
        "interval_95": {"low": 0.0945, "high": 0.9055}, "over": [inr("2000.00")], "over_whole": True, "since": None,
    }  # fmt: skip
    put_back(Shadow.objects.all(), at=2 * 86_400)
    assert shadows.figures(TENANT, days=1).counts["overreach"] == 0
    assert shadows.figures("t_other").told == 0


def command(*args: str) -> str:
    out = io.StringIO()
    call_command("shadow", *args, stdout=out, stderr=io.StringIO(), skip_checks=True)
    return out.getvalue()


def test_command_enters_compares_shows_and_leaves_with_its_figures(world: World) -> None:
    entered = json.loads(command(TENANT, "--enter", "--reason", "a new model", "--json"))
    assert (entered["shadow"], entered["changed"]) == (True, True)
    run = world.start()
    staff_refund(world)
    shown = json.loads(command(TENANT, "--compare", "--json"))
    assert (shown["compared_now"], shown["figures"]["agreement"], shown["disagreements"]) == (1, 1.0, [])
    words = command(TENANT)
    assert "in shadow mode" in words and "a new model" in words and "agree" in words
    left = json.loads(command(TENANT, "--leave", "--reason", "one of one", "--json"))
    assert (left["shadow"], left["changed"]) == (False, True)
    change = ShadowChange.objects.filter(shadow=False).get()
    assert (change.by, change.reason, change.figures["counts"]["agree"]) == ("shell", "one of one", 1)
    assert Event.objects.filter(run=run, type="shadow.proposed").count() == 1


def test_command_lists_what_disagreed(shadow: World) -> None:
    runs = measured(shadow)
    [row] = json.loads(command(TENANT, "--json", "--days", "7"))["disagreements"]
    assert (row["request_id"], row["run_id"], row["verdict"]) == ("req-1", str(runs[1].pk), "overreach")
    assert (row["proposed"]["args"]["amount"], row["staff"]["why"]) == (inr("2000.00"), "staff_refunded_nothing")
    assert "req-1" in command(TENANT)


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("t_nobody",), 2),
        ((TENANT, "--days", "0"), 2),
        ((TENANT, "--leave"), 2),
        ((TENANT, "--leave", "--reason", "x"), 1),
        ((TENANT, "--enter", "--reason", "x", "--by", "nobody"), 2),
    ],
)
def test_command_says_what_is_wrong(world: World, args: tuple[str, ...], code: int) -> None:
    with pytest.raises(CommandError) as caught:
        command(*args)
    assert caught.value.returncode == code
    assert ShadowChange.objects.count() == 0


def test_tenant_may_be_made_in_shadow_mode(world: World, tmp_path: Any) -> None:
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(DEFAULT_PROFILE))
    made = io.StringIO()
    call_command("create_tenant", "t_new", "--profile", str(file), "--shadow", "--json", stdout=made, skip_checks=True)
    assert json.loads(made.getvalue())["shadow"] is True
    assert Tenant.objects.get(pk="t_new").shadow and ShadowChange.objects.get().tenant_id == "t_new"
    with pytest.raises(CommandError, match="exists"):
        call_command("create_tenant", TENANT, "--profile", str(file), "--shadow", stdout=made, skip_checks=True)
    assert not Tenant.objects.get(pk=TENANT).shadow


# --- the console -------------------------------------------------------------------------------------------------


def test_page_shows_figures_and_each_proposal_beside_what_staff_did(shadow: World) -> None:
    measured(shadow)
    client = browser()
    page = client.get(PAGE).content.decode()
    for words in ("In shadow mode", "a new model", "50 %", "2,000.00 INR", "req-0", "req-1", "req-2", "req-3"):
        assert words in page, words
    only = client.get(PAGE, {"verdict": "overreach"}).content.decode()
    assert "req-1" in only and "req-0" not in only
    assert client.get(PAGE, {"verdict": "nonsense"}).status_code == 200
    assert client.get(LIST).status_code == 200
    assert f'href="{PAGE}"' in client.get("/admin/").content.decode()


def test_page_of_a_run_says_that_nothing_was_written(shadow: World) -> None:
    run = shadow.start()
    page = browser().get(f"/admin/runs/run/{run.pk}/change/").content.decode()
    assert "shadow mode" in page and "Proposed in shadow mode" in page
    compared(run)
    assert "overreach" in browser().get(f"/admin/runs/run/{run.pk}/change/").content.decode().lower()


def test_leaving_needs_the_permission_a_reason_and_a_post(shadow: World) -> None:
    measured(shadow)
    plain, boss = browser("ops_9"), browser("boss", "leave_shadow")
    leaves = {"to": "live", "reason": "it has earned it", "sure": "1"}
    assert plain.post(PAGE, leaves).status_code == 403
    assert boss.get(PAGE, leaves).status_code == 200
    assert boss.post(PAGE, {**leaves, "reason": " "}).status_code == 400
    assert boss.post(PAGE, {**leaves, "sure": ""}).status_code == 400
    assert boss.post(PAGE, {"to": "elsewhere", "reason": "x"}).status_code == 400
    assert shadowing.stands(TENANT)
    assert boss.post(PAGE, leaves).status_code == 302
    assert not shadowing.stands(TENANT)
    change = ShadowChange.objects.filter(shadow=False).get()
    assert (change.by, change.figures["counts"]["overreach"]) == ("boss", 1)


def test_who_may_stop_a_tenant_may_put_it_into_shadow_mode(world: World) -> None:
    run = world.start()
    client = browser()
    assert client.post(PAGE, {"to": "shadow", "reason": "odd proposals"}).status_code == 302
    assert shadowing.stands(TENANT)
    assert world.resume(run).reason == "shadow_mode"


def test_tenant_of_others_is_not_there(shadow: World) -> None:
    client = browser("ops_7", tenants=())
    assert client.get(PAGE).status_code == 404
    assert client.post(PAGE, {"to": "live", "reason": "x"}).status_code == 404
    assert "shadowed" not in client.get("/admin/").content.decode()
    assert "shadowed" in browser().get("/admin/").content.decode()
