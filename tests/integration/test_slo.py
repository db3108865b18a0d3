"""`slo` from rows: success, escalation, caps, cost, time and budgets exactly; its pages; objectives that are set."""

from __future__ import annotations

import io
import json
import math
import random
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from agentsite import dbtime, env
from agentsite.tenants.models import Objective
from approvals.models import Approval
from runs.management import tenancy
from runs.measures import reading, recorded, report, tail
from runs.models import Input, Observation, Run, Shadow
from tests import approving
from tests.approving import signed_in
from tests.measuring import LIMITS, ended, save, turn

pytestmark = pytest.mark.django_db
PAGE, TAIL = "/admin/runs/run/slo/", "/admin/runs/run/tail/"
ESCALATED: dict[str, Any] = {"status": "escalated", "outcome": "handed_to_staff"}
Json = dict[str, Any]


@pytest.fixture(autouse=True)
def fresh() -> Any:
    tenancy.put_profile(approving.tenant().pk, tenancy.DEFAULT_PROFILE)
    yield
    env.read.cache_clear()


def told(*options: str) -> Json:
    out = io.StringIO()
    call_command("slo", "--json", *options, stdout=out)
    found: Json = json.loads(out.getvalue())
    return found


def mixed() -> None:
    """Ten ends of every kind: six successes, two failures of which one at a cap, one handed over, one cancelled."""
    save([
        *(ended(active_ms=ms) for ms in (1_000, 2_000, 3_000, 4_000, 5_000, 40_000)),
        ended(**ESCALATED, reason="budget_exhausted", model_calls=12, release="1.1"),
        ended(status="escalated", outcome="resolved_by_staff", reason="outcome_unknown", release="1.1"),
        ended(**ESCALATED, reason="escalated_by_model", versions={"model": "small"}, cost_micros=0),
        ended(status="cancelled", outcome="cancelled", reason="cancelled_by_client", cost_micros=500),
    ])  # fmt: skip


def test_report_counts_every_end_once(db: None) -> None:
    mixed()
    whole = told()["whole"]
    shares = {
        name: (whole[name]["part"], whole[name]["whole"]) for name in ("success", "escalated", "failed", "capped")
    }
    assert shares == {"success": (6, 9), "escalated": (3, 9), "failed": (2, 9), "capped": (1, 9)}
    assert (whole["runs"], whole["beside"], whole["finished_by_hand"]) == (9, {"cancelled": 1}, 1)
    assert [(r["reason"], r["runs"], r["failure"], r["cap"]) for r in whole["reasons"]] == [
        ("budget_exhausted", 1, True, True), ("escalated_by_model", 1, False, False),
        ("outcome_unknown", 1, True, False),
    ]  # fmt: skip
    assert (whole["active_ms"]["p50"], whole["active_ms"]["p95"], whole["active_ms"]["most"]) == (5_000, 40_000, 40_000)
    assert (whole["model_calls"]["total"], whole["wall_ms"]["p50"]) == (4 * 8 + 12, 60_000)


def test_cost_is_told_by_currency_and_what_has_no_price_apart(db: None) -> None:
    mixed()
    euro = {"limits": {"max_cost": {"amount": "1.00", "currency": "EUR"}}}
    free = ended(versions={"model": "investigator"}, cost_micros=0)
    save([ended(contract=euro, cost_micros=20_000), free])
    turn(free, 1, route="offline:investigator")
    whole = told()["whole"]
    assert whole["cost"]["EUR"] == {
        "n": 1, "total": "0.0200", "p50": "0.0200", "p95": "0.0200", "p99": "0.0200", "most": "0.0200",
    }  # fmt: skip
    assert (whole["cost"]["USD"]["n"], whole["cost"]["USD"]["total"]) == (9, "0.0984")
    assert whole["unpriced"] == 1, "the small model has no price; the one of this process needs none"
    assert whole["cost_beside"] == [{"amount": "0.0005", "currency": "USD"}]


def test_figures_are_told_by_release_and_model(db: None) -> None:
    mixed()
    by = told()["by"]
    assert {name: (f["runs"], f["failed"]["part"]) for name, f in by["release"].items()} == {
        "1.0": (7, 0),
        "1.1": (2, 2),
    }
    assert {name: f["runs"] for name, f in by["model"].items()} == {"gpt-x": 8, "small": 1}
    assert list(told("--by", "tenant")["by"]) == ["tenant"]


def test_caps_are_set_by_successful_runs_and_watched_by_all(db: None) -> None:
    mixed()
    (agent,) = told()["caps"]
    calls, active = agent["caps"]["max_model_calls"], agent["caps"]["deadline_ms"]
    assert (calls["should_be"], calls["granted"], calls["successes"], calls["enough"]) == (4, 12, 6, False)
    assert (calls["near"]["part"], calls["near"]["whole"]) == (1, 9)
    assert (active["should_be"], active["granted"], active["near"]["part"]) == (40_000, 30_000, 1)
    assert agent["caps"]["max_cost"]["granted"] == {"amount": "1.0000", "currency": "USD"}
    assert agent["caps"]["max_cost"]["near"]["whole"] == 8, "no run of unknown price"


def test_window_holds_what_ended_in_it_alone(db: None) -> None:
    save([ended(ago=timedelta(days=6)), ended(ago=timedelta(days=8)), ended(ago=timedelta(days=31))])
    assert [told("--days", str(days))["whole"]["runs"] for days in (1, 7, 30, 90)] == [0, 1, 2, 3]
    assert [(d["runs"], d["capped"]) for d in told()["trend"]] == [(1, 0), (1, 0)]


def test_live_runs_and_shadow_runs_count_nowhere(db: None) -> None:
    runs = save([ended(), ended(), ended(**ESCALATED, reason="outcome_unknown")])
    Shadow.objects.create(run=runs[2], tenant_id=runs[2].tenant_id, at=dbtime.now())
    approving.run(request_id="lives")
    whole = told()["whole"]
    assert (whole["runs"], whole["beside"], whole["failed"]["part"]) == (2, {"shadow": 1}, 0)
    assert told()["objectives"][0]["success"]["runs"] == 2


def test_erased_runs_count_as_ever(db: None) -> None:
    run = ended(contract={**LIMITS, "goal": "[erased]"})
    run.conversation_erased_at = run.evidence_erased_at = dbtime.now()
    save([run])
    assert told()["whole"]["cost"]["USD"]["n"] == 1


def test_waiting_for_people_stands_apart(db: None) -> None:
    run, silent = save([ended(created_at=dbtime.now() - timedelta(hours=3)), ended()])
    asked = Approval.objects.filter(pk=approving.ask(run))
    at = dbtime.now() - timedelta(hours=2)
    asked.update(requested_at=at, decided_at=at + timedelta(seconds=600), ended_at=at + timedelta(seconds=700))
    question = approving.event(run, 1, "customer.asked", {})
    Input.objects.create(run=run, seq=2, kind="message", message_id="1", text="", by="u",
                         at=question.at + timedelta(seconds=30))  # fmt: skip
    people = told()["whole"]["people_ms"]
    assert (people["n"], people["total"]) == (1, 630_000)
    assert told()["whole"]["wall_ms"]["n"] == 2 and silent.pk


def test_budget_of_a_tenant_is_told_with_its_burn(db: None) -> None:
    Objective.objects.create(tenant=approving.tenant(), success_percent="90", latency_percent="50", latency_ms=3_500,
                             window_days=7)  # fmt: skip
    mixed()
    save([ended(**ESCALATED, reason="worker_crash_loop", ago=timedelta(days=8))])
    (promise,) = told()["objectives"]
    good, fast = promise["success"], promise["latency"]
    assert (promise["set_by_a_person"], promise["window_days"], good["target"]) == (True, 7, 0.9)
    assert (good["bad"], good["runs"], good["used"]) == (2, 9, pytest.approx(2 / 9 / 0.1))
    assert (good["left"], good["met"]) == (0.0, False)
    assert (fast["bad"], fast["runs"], fast["met"]) == (4, 7, False), (
        "slow are 4,000, 5,000 and 40,000 and a handed one"
    )
    assert good["burn"]["slow"]["rate"] == pytest.approx(2 / 9 / 0.1)
    assert (good["burn"]["fast"]["runs"], good["burn"]["slow"]["runs"]) == (0, 9)


def test_tenant_without_an_objective_has_the_default(db: None) -> None:
    mixed()
    approving.tenant("t_quiet")
    found = {one["tenant_id"]: one for one in told()["objectives"]}
    assert found["t_acme_in"]["success"]["target"] == 0.99 and found["t_acme_in"]["set_by_a_person"] is False
    assert (found["t_quiet"]["success"]["used"], found["t_quiet"]["success"]["left"]) == (None, 1.0)


def test_newest_runs_alone_are_looked_at_and_it_is_said(db: None) -> None:
    save(ended(ago=timedelta(hours=n)) for n in range(1, 6))
    now = dbtime.now()
    read = reading.read(now, days=30, most=3)
    assert (len(read.columns), read.left_out, read.cut) == (3, True, True)
    assert timedelta(hours=3) <= now - read.since < timedelta(hours=3, minutes=5)
    assert reading.read(now, days=30, most=5).left_out is False


def test_rows_that_no_code_can_read_do_not_stop_it(db: None) -> None:
    """A contract that is no JSON, versions that name no model, a name that no encoding can write."""
    runs = save([ended(versions=["x"]), ended(versions={"model": None}), ended()])
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_run SET contract = 'no json' WHERE request_id = %s", [runs[0].request_id])
        surrogate = ['{"model": "\\ud800"}', runs[2].request_id]
        cursor.execute("UPDATE runs_run SET versions = %s WHERE request_id = %s", surrogate)
    found = told()
    assert {*found["by"]["model"]} == {"none", "\\ud800"} and found["whole"]["cost"]["USD"]["n"] == 3
    assert found["whole"]["runs"] == 3
    assert "\\ud800" in approving.body(signed_in(approving.person()), PAGE)


def test_figures_are_those_of_a_count_by_hand(db: None) -> None:
    """Random ends of two tenants, counted again in the plainest way: nobody's runs are in another's figures."""
    chance = random.Random(7)
    runs = save([_any_end(chance, tenant) for tenant in ("t_acme_in", "t_other") for _ in range(300)])
    for tenant in ("t_acme_in", "t_other", None):
        made = told(*(("--tenant", tenant) if tenant else ()), "--days", "10", "--by", "model")
        since = dbtime.now() - timedelta(days=10)
        mine = [r for r in runs if tenant in (None, r.tenant_id) and r.completed_at and r.completed_at > since]
        assert made["whole"] | _by_hand(mine) == made["whole"]
        for model in ("small", "large"):
            row = made["by"]["model"][model]
            assert row | _by_hand([r for r in mine if r.versions["model"] == model]) == row


def _any_end(chance: random.Random, tenant: str) -> Run:
    status, reason, outcome = chance.choice((
        ("completed", None, "refunded"), ("completed", None, "no_refund_due"), ("completed", None, "refund_failed"),
        ("escalated", "budget_exhausted", "handed_to_staff"), ("escalated", "needs_a_person", "handed_to_staff"),
        ("escalated", "outcome_unknown", "resolved_by_staff"), ("failed", "worker_crash_loop", None),
        ("cancelled", "cancelled_by_client", "cancelled"),
    ))  # fmt: skip
    return ended(
        tenant_id=tenant, status=status, reason=reason, outcome=outcome, ago=timedelta(hours=chance.randrange(20 * 24)),
        active_ms=chance.randrange(60_000), input_tokens=chance.randrange(20_000), model_calls=chance.randrange(1, 14),
        versions={"model": chance.choice(("small", "large"))}, cost_micros=chance.randrange(1, 90_000),
    )  # fmt: skip


def _by_hand(runs: list[Run]) -> Json:
    """Some of the figures, from their definitions alone."""
    count = [r for r in runs if r.status != "cancelled"]
    failed = [r for r in count if r.outcome == "refund_failed" or (r.reason or "needs_a_person") != "needs_a_person"]
    active = sorted(r.active_ms for r in count)
    at = {f"p{n}": active[-(-n * len(active) // 100) - 1] for n in (50, 95, 99)}
    return {
        "runs": len(count), "beside": {"cancelled": len(runs) - len(count)},
        "failed": _share(len(failed), len(count)),
        "capped": _share(sum(r.reason == "budget_exhausted" for r in count), len(count)),
        "escalated": _share(sum(r.status != "completed" for r in count), len(count)),
        "active_ms": {"n": len(active), "total": sum(active), "most": active[-1], **at},
    }  # fmt: skip


def _share(part: int, whole: int) -> Json:
    z = 1.959963984540054
    middle, reach = part + z * z / 2, z * math.sqrt(part * (whole - part) / whole + z * z / 4)
    bounds = {"low": (middle - reach) / (whole + z * z), "high": (middle + reach) / (whole + z * z)}
    return {"part": part, "whole": whole, "share": part / whole, **{n: pytest.approx(v) for n, v in bounds.items()}}


def test_command_speaks_and_refuses(db: None) -> None:
    mixed()
    out = io.StringIO()
    call_command("slo", "--tenant", "t_acme_in", stdout=out)
    words = out.getvalue()
    assert "66.7 % (6 of 9, 35.4 to 87.9 %)" in words and "Of 9 runs no 99th percentile can be told" in words
    assert "missed: the budget is spent" in words
    with pytest.raises(CommandError, match="no tenant"):
        call_command("slo", "--tenant", "t_none")
    for days in ("0", "91", "x", "٣"):
        with pytest.raises((CommandError, SystemExit)):
            call_command("slo", "--days", days)


# --- pages -------------------------------------------------------------------------------------------------------


def test_page_shows_the_tenants_of_this_person_alone(db: None) -> None:
    mixed()
    save([ended(tenant_id="t_other", release="theirs")])
    lead = signed_in(approving.person())
    page = approving.body(lead, PAGE)
    assert "How 9 runs ended" in page and "t_acme_in" in page
    assert "t_other" not in page and "theirs" not in page and "Set…" not in page
    assert lead.get(f"{PAGE}?tenant=t_other").status_code == 404
    chief = signed_in(approving.person("chief", is_superuser=True))
    assert "How 10 runs ended" in approving.body(chief, PAGE)
    assert "How 1 run ended" in approving.body(chief, f"{PAGE}?tenant=t_other")


@pytest.mark.parametrize("path", [PAGE, TAIL, f"{PAGE}t_acme_in/objective/"])
def test_pages_need_the_permission_to_view_runs(db: None, path: str) -> None:
    assert signed_in(approving.person(may=("view_approval",))).get(path).status_code == 403
    assert Client().get(path).status_code == 302


def test_page_tells_prices_and_what_a_median_run_costs(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    save([ended()])
    table = {"currency": "USD", "models": {"gpt-x": {"input": "2.5", "output": "10"}}}
    monkeypatch.setenv("MODEL_PRICES", json.dumps(table))
    env.read.cache_clear()
    page = approving.body(signed_in(approving.person()), PAGE)
    assert "0.038475 USD" in page, "12,550 at 2.5 and 710 at 10 micro-units"


def test_page_says_that_it_looked_at_the_newest_alone(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    save(ended(ago=timedelta(hours=n)) for n in range(1, 5))
    monkeypatch.setattr("runs.admin.slo.MOST_RUNS", 3)
    page = approving.body(signed_in(approving.person()), PAGE)
    assert "More ended than were looked at" in page and "How 3 runs ended" in page


SET = {"success_percent": "99.5", "latency_percent": "90", "latency_ms": "20000", "window_days": "28"}
OBJECTIVE = f"{PAGE}t_acme_in/objective/"


def test_objective_is_set_with_who_and_when(db: None) -> None:
    chief = signed_in(approving.person("chief", is_superuser=True))
    assert 'value="99"' in approving.body(chief, OBJECTIVE)
    assert chief.post(OBJECTIVE, SET).status_code == 302
    row = Objective.objects.get()
    assert (str(row.success_percent), str(row.latency_percent), row.latency_ms, row.window_days) == (
        "99.50", "90.00", 20_000, 28,
    )  # fmt: skip
    assert row.changed_by == "chief" and row.changed_at is not None
    assert [(e.user.get_username(), "99.5 % do not fail" in e.change_message) for e in LogEntry.objects.all()] == [
        ("chief", True)
    ]
    assert chief.post(OBJECTIVE, SET).status_code == 302
    assert LogEntry.objects.count() == 1, "what is so already is no change"
    assert "Set by chief" in approving.body(chief, OBJECTIVE)


@pytest.mark.parametrize(
    ("name", "value"),
    [("success_percent", "100"), ("success_percent", "0"), ("success_percent", "99.999"), ("success_percent", "x"),
     ("success_percent", "NaN"), ("latency_percent", "-1"), ("latency_ms", "0"), ("latency_ms", "99999999999"),
     ("window_days", "91"), ("window_days", ""), ("latency_ms", "1.5")],
)  # fmt: skip
def test_objective_that_cannot_be_names_its_field(db: None, name: str, value: str) -> None:
    chief = signed_in(approving.person("chief", is_superuser=True))
    answer = chief.post(OBJECTIVE, {**SET, name: value})
    assert answer.status_code == 400
    assert f'id="{name}-fault"' in answer.content.decode()
    assert Objective.objects.count() == 0 and LogEntry.objects.count() == 0


def test_objective_is_set_by_those_who_may_for_tenants_they_see(db: None) -> None:
    approving.tenant("t_other")
    lead = signed_in(approving.person())
    assert lead.post(OBJECTIVE, SET).status_code == 403
    setter = signed_in(approving.person("setter", may=(*approving.DECIDER, "change_objective")))
    assert setter.post(f"{PAGE}t_other/objective/", SET).status_code == 404
    assert setter.get(f"{PAGE}t_none/objective/").status_code == 404
    assert Objective.objects.count() == 0
    assert setter.post(OBJECTIVE, SET).status_code == 302
    assert Objective.objects.get().pk == "t_acme_in"


# --- the tail calculator -----------------------------------------------------------------------------------------


def recorded_run() -> Run:
    """A run of two turns: two reads in parallel after the first, and 100 ms that no span names."""
    run = save([ended(active_ms=2_940)])[0]
    turn(run, 1, took_ms=1_100, input_tokens=1_910, output_tokens=120)
    turn(run, 2, took_ms=1_000, input_tokens=2_670, output_tokens=110)
    for position, (call_id, ms, kind) in enumerate(
        [("m1.1", 240, "result"), ("m1.2", 120, "error"), ("m2.1", 500, "result"), ("m2.2", 9_000, "denial")], start=1
    ):
        Observation.objects.create(
            run=run, obs_id=f"obs_{position}", position=position, call_id=call_id, kind=kind, source="get_order",
            content={}, content_hash="x", fetched_at=run.created_at, took_ms=ms,
        )  # fmt: skip
    return run


def test_recorded_run_is_calculated_by_its_own_spans(db: None) -> None:
    run = recorded_run()
    out = io.StringIO()
    call_command("tail", "--run", str(run.pk), "--above", "1000", "--json", stdout=out)
    found = json.loads(out.getvalue())
    assert found["stages"] == "m1100:1910:120 t240|120 m1000:2670:110 t500 o100"
    assert (found["path_ms"], found["sequential_ms"], found["calls"]) == (2_940, 3_060, 5)
    assert found["measured"] == {
        "runs": 1, "above_ms": 1000, "calls": 5, "slow": 1, "low": pytest.approx(0.0362, abs=1e-4),
        "high": pytest.approx(0.6245, abs=1e-4), "cost_ms": 860,
    }  # fmt: skip
    assert (found["slow_percent"], found["cost_ms"], found["chance_percent"]) == (20.0, 860, "67.2")


def test_measured_chance_is_of_the_site(db: None) -> None:
    recorded_run()
    found = recorded.measure(dbtime.now(), tenants=["t_acme_in"], above_ms=400)
    assert (found.slow.part, found.slow.whole, found.cost_ms) == (3, 5, 1_000 - 120)
    nobody = recorded.measure(dbtime.now(), tenants=["t_other"])
    assert (nobody.slow.whole, nobody.for_calculator.cost_ms, nobody.for_calculator.chance) == (0, 2_000, Fraction(0))


def test_commands_of_the_calculator(db: None) -> None:
    out = io.StringIO()
    call_command("tail", stdout=out)
    for words in ("5,625 ms", "5,925 ms", "18.3 %", "7,625 ms", "12,550", "710", "5.1 times", "6.6 times"):
        assert words in out.getvalue()
    for options in (["--calls", "0"], ["--stages", "x"], ["--slow", "101"], ["--cost", "-1"]):
        with pytest.raises(CommandError, match=options[0]):
            call_command("tail", *([] if options[0] in ("--calls", "--stages") else ["--example"]), *options)
    for given, named in (
        (["--slow", ""], "--slow"), (["--cost", ""], "--cost"), (["--run", "x", "--above", "soon"], "--above"),
        (["--calls", "5", "--above", "10"], "--above"), (["--tenant", "t_acme_in"], "--tenant"),
        (["--run", save([ended()])[0].request_id], "--run"),
    ):  # fmt: skip
        with pytest.raises(CommandError, match=named) as refused:
            call_command("tail", *given)
        assert refused.value.returncode == 2
    with pytest.raises(CommandError, match="no run"):
        call_command("tail", "--run", "nothing")


def test_page_of_the_calculator_has_the_example_and_takes_a_run_that_is_seen(db: None) -> None:
    run, theirs = recorded_run(), save([ended(tenant_id="t_other")])[0]
    lead = signed_in(approving.person())
    page = approving.body(lead, TAIL)
    for words in ("5,625 ms", "5,925 ms", "18.3 %", "7,625 ms", "12,550", "5.1 times", "6.6 times", "<polyline"):
        assert words in page
    assert "2,940 ms" in approving.body(lead, f"{TAIL}?run={run.request_id}")
    refused = lead.get(f"{TAIL}?run={theirs.pk}")
    assert refused.status_code == 400 and "that you can see" in refused.content.decode()
    for query in ("calls=0", "slow=x", "cost=1.5", "stages=zz", "run=%00"):
        answer = lead.get(f"{TAIL}?{query}")
        assert answer.status_code == 400 and "5,625 ms" not in answer.content.decode(), query


def test_report_of_nothing_is_a_report(db: None) -> None:
    made = report.make(dbtime.now())
    assert (made.whole.runs, made.trend, made.caps) == (0, (), ())
    assert report.wire(made)["whole"]["success"] == {"part": 0, "whole": 0, "share": None, "low": 0.0, "high": 1.0}
    assert tail.at_least_one(0, Fraction(1, 2)) == 0
    assert "No run ended in these days" in approving.body(signed_in(approving.person()), PAGE)
