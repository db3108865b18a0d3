"""The page of a run: where its time went, what its model was sent, what it is doing now; and acts on many at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F

from agentsite import dbtime, redaction
from agentsite.tenants.models import Tenant
from runs import explain
from runs.models import Event, Run, Turn, Write
from tests import approving
from tests.operating import SEES, operator, run_page, seen
from tests.world import World, final, gather, refund, turn

LIST = "/admin/runs/run/"


def rows(world: World, run: Run) -> list[Any]:
    answer = operator().get(run_page(run))
    return list(answer.context["waterfall"].rows)


# --- where the time went -----------------------------------------------------------------------------------------


def test_page_tells_every_step_of_a_refund_in_order(world: World) -> None:
    run = world.start()
    world.approve(run)
    run = world.resume(run)
    drawn = rows(world, run)
    first, *drawn = drawn
    assert (first.label, first.note) == ("Evidence for the request", "3 policy passages")
    reads = sorted(r.label for r in drawn[1:3]), sorted(r.label for r in drawn[4:6])
    assert reads == (["get_order", "get_payments"], ["get_refund_status", "search_policy"])
    labels = [r.label for r in drawn]
    assert [labels[0], labels[3], *labels[6:]] == [
        "Model call 1", "Model call 2", "Model call 3", "Gate, on live facts", "Waiting for a person's decision",
        "Checked again, refund recorded", "Refund sent, attempt 1", "Verified by an independent read", "Model call 4",
    ]  # fmt: skip
    notes = {r.label: r.note for r in drawn}
    assert notes["Waiting for a person's decision"] == "Approved by lead_17"
    assert (notes["Refund sent, attempt 1"], notes["Model call 4"]) == ("Made", "reply sent")
    assert not [r.label for r in drawn if r.bad]


def test_change_of_status_says_how_long_its_handler_had_the_run(world: World) -> None:
    run = world.start()
    took = [e["took_ms"] for e in world.events(run, "run.status")]
    assert len(took) == 3
    assert all(0 <= ms < 60_000 for ms in took)


def with_a_bad_route(world: World, script: list[Any]) -> Run:
    """A run whose first route never answers, so that the second does."""
    run = world.admit(script=script)
    bad = world.route([turn(error="unavailable", delay_s=0.05)])
    world.scripts[str(run.pk)] = f"{bad},{world.scripts[str(run.pk)]}"
    return world.resume(run)


def test_calls_that_failed_are_told_with_their_length(world: World) -> None:
    run = with_a_bad_route(world, [final()])
    _, failed, answered = rows(world, run)
    assert (failed.label, failed.bad, failed.note.partition(" · ")[0]) == (
        "Model call, no answer", True, "Model unavailable")  # fmt: skip
    assert (answered.label, answered.note) == ("Model call 1", "reply sent")
    assert world.events(run, "model.failed")[0]["took_ms"] >= 50


def test_page_of_a_run_that_nobody_took_up_yet(world: World) -> None:
    run = world.admit()
    [row] = rows(world, run)
    assert (row.label, row.took.endswith("so far")) == ("Waiting for a worker", True)
    page = seen(operator(), run_page(run))
    assert "Nothing was done yet; a worker takes it up by itself." in page
    assert "reload it to see what happened since" in page


def test_tokens_and_cost_stand_with_each_call_and_in_all(world: World) -> None:
    run = world.start()
    Turn.objects.filter(run=run, number=1).update(cost_micros=1_500, cached_tokens=1_024)
    Run.objects.filter(pk=run.pk).update(cost_micros=2_000)
    page = operator().get(run_page(run))
    first = page.context["turns"][0]
    assert (first.cost, page.context["used"]["cost"], page.context["used"]["cached"]) == (
        "0.0015 USD", "0.0020 USD", 1_024)  # fmt: skip
    assert "1024 cached" in page.content.decode()


# --- what the model was sent -------------------------------------------------------------------------------------


def prompt_page(run: Run, number: int) -> str:
    return f"/admin/runs/run/{run.pk}/prompt/{number}/"


def test_every_prompt_is_shown_as_it_was_sent(world: World) -> None:
    run = world.start()
    world.approve(run)
    run = world.resume(run)
    desk = operator()
    for number in range(1, 5):
        page = seen(desk, prompt_page(run, number))
        assert "This is what was sent" in page
        assert page.count(Turn.objects.get(run=run, number=number).prompt_hash) == 2
    assert "Order 8472 was charged twice, and my refund has not arrived." in page
    assert 'open_write: null\nwrites: [{"amount": {"amount": "2000.00"' in page
    assert "refund_id" not in seen(desk, prompt_page(run, 1)).partition("How things stood")[2]


def test_prompt_of_a_run_that_lives_is_shown_too(world: World) -> None:
    run = world.start()
    assert "This is what was sent" in seen(operator(), prompt_page(run, 3))


def test_prompts_after_a_failed_and_an_unusable_answer_are_those_that_were_sent(world: World) -> None:
    run = with_a_bad_route(world, [turn(text="no json"), *gather(), refund(payment_id="pay_9009"), final()])
    made = [explain.rebuilt(run, t) for t in Turn.objects.filter(run=run).order_by("number")]
    assert len(made) == 5
    assert all(m.same for m in made), [m.why for m in made]


def test_prompt_that_differs_says_so_and_what_is_known(world: World) -> None:
    run = world.start()
    Turn.objects.filter(run=run, number=2).update(prompt_hash="sha256:0", prompt_version="refunds@1")
    page = seen(operator(), prompt_page(run, 2))
    assert "This is not known to be what was sent" in page
    assert "This is what was sent" not in page
    assert "Its version was refunds@1 and is now refunds@3." in page
    assert "[5] TASK STATE SNAPSHOT" in page


def test_prompt_after_a_step_that_today_s_code_would_not_take_is_not_invented(world: World) -> None:
    run = world.start()
    Turn.objects.filter(run=run, number=1).update(raw='{"final": "Hello.", "evidence": []}')
    page = seen(operator(), prompt_page(run, 2))
    assert "It cannot be shown" in page
    assert "go another way before this turn" in page
    assert "[5] TASK STATE SNAPSHOT" not in page


def test_prompt_of_an_erased_record_is_not_shown(world: World) -> None:
    run = world.start()
    Event.objects.filter(run=run, type="model.replied").update(payload=None, salt=None)
    page = seen(operator(), prompt_page(run, 1))
    assert "It cannot be shown" in page
    assert "was erased" in page


def test_secret_in_a_prompt_is_not_shown(world: World) -> None:
    secret = "sk-live-0123456789abcdef"
    run = world.start(goal=f"Order 8472. My key is {secret}.")
    assert secret in seen(operator(), prompt_page(run, 1))  # nobody knew it for one
    world.patch.setattr(redaction, "_kept", frozenset({secret}))
    page = seen(operator(), prompt_page(run, 1))
    assert secret not in page
    assert "A secret stood in it and is not shown." in page
    assert "This is what was sent" in page


def test_prompts_are_for_those_who_may_see_the_run(world: World) -> None:
    run = world.start()
    Tenant.objects.create(id="t_other")
    assert operator("other", tenants=("t_other",)).get(prompt_page(run, 1)).status_code == 404
    assert operator("nobody", may=()).get(prompt_page(run, 1)).status_code == 404
    assert operator().get(prompt_page(run, 99)).status_code == 404
    assert operator().post(prompt_page(run, 1)).status_code in (200, 403, 405)
    assert world.refunds() == []


# --- now -----------------------------------------------------------------------------------------------------------


def now_of(run: Run) -> str:
    return f"/admin/runs/run/{run.pk}/now/"


def test_page_is_followed_by_a_stamp_that_changes_with_the_run(world: World) -> None:
    run, desk = world.start(), operator()
    first = desk.get(now_of(run)).json()
    assert (first["rest"], "Waiting for a decision" in first["html"]) == (False, True)
    assert desk.get(now_of(run), {"seen": first["stamp"]}).status_code == 204
    world.approve(run)
    assert desk.get(now_of(run), {"seen": first["stamp"]}).status_code == 200
    world.resume(run)
    last = desk.get(now_of(run), {"seen": first["stamp"]}).json()
    assert (last["rest"], last["stamp"] == first["stamp"]) == (True, False)
    assert "Refunded" in last["html"]
    assert "<html" not in last["html"]


def test_what_goes_on_in_a_run_is_for_those_who_may_see_it(world: World) -> None:
    run = world.start()
    Tenant.objects.create(id="t_other")
    assert operator("other", tenants=("t_other",)).get(now_of(run)).status_code == 404
    assert operator("nobody", may=()).get(now_of(run)).status_code == 404


def planted(request_id: str, **columns: Any) -> Run:
    """A run as it would stand in the database, without the loop that leads there."""
    row = approving.run(request_id=request_id)
    Run.objects.filter(pk=row.pk).update(last_seq=4, **columns)
    return row


# --- views ---------------------------------------------------------------------------------------------------------


def tabs(client: Any, path: str = LIST) -> dict[str, str]:
    return {tab.name: tab.count for tab in client.get(path).context["tabs"]}


@pytest.mark.django_db
def test_saved_views_count_what_needs_somebody() -> None:
    past = dbtime.now() - timedelta(minutes=5)
    ended = {"completed_at": past, "due_at": None}
    for name, columns in (
        ("req-0", {"status": "escalated", "outcome": "handed_to_staff", "reason": "needs_a_person", **ended}),
        ("req-1", {"status": "failed", "outcome": "handed_to_staff", "reason": "schema_unknown", **ended}),
        ("req-2", {"status": "approval_expired"}), ("req-3", {"status": "gathering", "due_at": past}),
        ("req-4", {"status": "completed", "outcome": "refund_failed", **ended}),
        ("req-5", {"status": "escalated", "outcome": "resolved_by_staff", **ended}),
    ):  # fmt: skip
        planted(name, **columns)
    desk = operator()
    assert tabs(desk) == {
        "To finish by hand": "3", "Approval expired": "1", "Unknown writes": "0", "Stuck": "1", "Dead letters": "1",
        "All runs": "",
    }  # fmt: skip
    assert "req-1" in seen(desk, f"{LIST}?needs=dead")
    assert "req-0" not in seen(desk, f"{LIST}?needs=dead")
    Tenant.objects.create(id="t_other")
    assert set(tabs(operator("other", tenants=("t_other",))).values()) == {"0", ""}


@pytest.mark.django_db
def test_filters_stand_in_the_address() -> None:
    now = dbtime.now()
    planted("req-1", status="escalated", reason="loop_detected", outcome="handed_to_staff", completed_at=now)
    planted("req-2", status="completed", outcome="answered", completed_at=now - timedelta(days=8))
    desk = operator()
    for query, shown in (("outcome=answered", "req-2"), ("reason=loop_detected", "req-1"), ("ended=7", "req-1"),
                         ("status=completed&ended=30", "req-2")):  # fmt: skip
        page = seen(desk, f"{LIST}?{query}")
        assert [r for r in ("req-1", "req-2") if f">{r}<" in page] == [shown], query
    found = {q: [r for r in ("req-1", "req-2") if f">{r}<" in seen(desk, f"{LIST}?q={q}")]
             for q in ("req-1", "req-", "8472", "cust_55")}  # fmt: skip
    both = ["req-1", "req-2"]
    assert found == {"req-1": ["req-1"], "req-": both, "8472": both, "cust_55": both}
    assert seen(desk, f"{LIST}?thumb=up").count("Nothing here.") == 1


# --- many at once --------------------------------------------------------------------------------------------------


def stuck(world: World, *names: str) -> list[Run]:
    runs = [world.admit(name) for name in names]
    Run.objects.filter(pk__in=[r.pk for r in runs]).update(due_at=F("due_at") + timedelta(hours=1))
    return runs


def retry(client: Any, runs: list[Run], **form: str) -> Any:
    chosen = {"action": "retry_now", "_selected_action": [str(r.pk) for r in runs], **form}
    return client.post(LIST, chosen, follow=True)


def test_many_runs_are_retried_for_one_reason(world: World) -> None:
    runs, desk = stuck(world, "req-1", "req-2"), operator()
    asked = retry(desk, runs)
    assert "Retry now: 2 runs" in asked.content.decode()
    assert not Event.objects.filter(type="run.hurried").exists()
    done = retry(desk, runs, confirmed="1", reason="fault_fixed", note="broker was away")
    assert "2 due now; workers take them up." in done.content.decode()
    for run in runs:
        due = world.fresh(run).due_at
        assert due is not None
        assert due <= dbtime.now()
        [event] = world.events(run, "run.hurried")
        assert (event["by"], event["reason"], event["note"]) == ("ops_3", "fault_fixed", "broker was away")


@pytest.mark.parametrize("form", [{}, {"reason": "because"}, {"reason": "other"}])
def test_many_are_not_retried_without_one_of_the_reasons(world: World, form: dict[str, str]) -> None:
    runs = stuck(world, "req-1")
    answer = retry(operator(), runs, confirmed="1", **form)
    assert answer.status_code == 400
    assert not Event.objects.filter(type="run.hurried").exists()


@pytest.mark.django_db(transaction=True)
def test_what_a_worker_has_or_has_ended_is_left_as_it_is() -> None:
    now = dbtime.now()
    held = planted("req-1", status="gathering", lease_token="t", lease_until=now + timedelta(minutes=1))
    over = planted("req-2", status="cancelled", outcome="cancelled", completed_at=now)
    free = planted("req-3", status="gathering", due_at=now + timedelta(hours=1))
    page = retry(operator(), [held, over, free], confirmed="1", reason="fault_fixed").content.decode()
    assert "1 due now" in page
    assert page.count("left as they were") == 2
    assert list(Event.objects.filter(type="run.hurried").values_list("run_id", flat=True)) == [free.pk]


def test_retrying_many_needs_the_permission_and_the_tenant(world: World) -> None:
    runs = stuck(world, "req-1")
    Tenant.objects.create(id="t_other")
    for desk in (operator("viewer", may=SEES), operator("other", tenants=("t_other",))):
        retry(desk, runs, confirmed="1", reason="fault_fixed")
    assert not Event.objects.filter(type="run.hurried").exists()
    assert "Retry now" not in seen(operator("viewer"), LIST)


@pytest.mark.django_db(transaction=True)
def test_many_writes_are_looked_at_again() -> None:
    now = dbtime.now()
    run = planted("req-1", status="escalated", outcome="handed_to_staff", completed_at=now)
    write = Write.objects.create(
        key="k", run=run, tenant_id=run.tenant_id, order_id="1", payment_id="p", tool="issue_refund", args={},
        action_hash="h", decision_id="d", body="{}", origin="o", amount_minor=5, currency="INR", state="unknown",
        call_id="c", customer_id="c", intent_at=now, look_at=now + timedelta(hours=1),
    )  # fmt: skip
    chosen = {"action": "look_again", "_selected_action": [write.pk]}
    assert operator("viewer", may=SEES).post("/admin/runs/write/", chosen).status_code in (200, 302)
    write.refresh_from_db()
    assert write.look_at == now + timedelta(hours=1)
    page = operator().post("/admin/runs/write/", chosen, follow=True).content.decode()
    assert "1 being looked at now" in page
    write.refresh_from_db()
    assert write.look_at is not None
    assert write.look_at <= dbtime.now()
