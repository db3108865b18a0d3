"""What /metrics says: from rows, in pieces that fail alone, by indexes; and which alert fires on it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client

from agentsite import clock, dbtime, env, metrics, queues
from agentsite.metrics import families, machine, work
from agentsite.tenants.models import Objective, Site, Tenant
from approvals.models import Approval, Notice
from runs.models import Process, Qualification, Run, Shadow, Sweeper, Webhook, Write
from tests import approving, promql
from tests.house.test_operations import ALERTS, expressions
from tests.plans import WALKED, looks_at_all, statements_of
from tests.promql import Series, Vector
from tools.models import Breaker, PolicyIncident

pytestmark = pytest.mark.django_db
UP = 'up{job="agentsite"} 1\n'
FROM_PROMETHEUS = {"up"}


def scrape() -> str:
    answer = Client().get("/metrics")
    assert answer.status_code == 200
    return answer.content.decode()


def said(name: str) -> dict[tuple[str, ...], float]:
    """The samples of one of our gauges by the values of their labels, in the order of the labels' names."""
    found: Vector = promql.read(scrape()).get(f"agentsite_{name}", {})
    return {tuple(v for _, v in sorted(labels)): value for labels, value in found.items()}


def ended(request_id: str, *, minutes_ago: float = 5, **columns: Any) -> Run:
    row = approving.run(request_id=request_id)
    at = dbtime.now() - timedelta(minutes=minutes_ago)
    given = {"status": "completed", "outcome": "refunded", "waiting_for": None, "completed_at": at, **columns}
    Run.objects.filter(pk=row.pk).update(**given)
    return Run.objects.get(pk=row.pk)


def wrote(run: Run, key: str, **columns: Any) -> Write:
    return Write.objects.create(
        key=key, run=run, tenant_id=run.tenant_id, order_id=key, payment_id="pay_9002", tool="issue_refund", args={},
        action_hash="sha256:0", decision_id="d", body="{}", amount_minor=200_000, currency="INR", call_id="c3",
        customer_id="cust_5521", **{"intent_at": dbtime.now(), **columns},
    )  # fmt: skip


# --- what is said --------------------------------------------------------------------------------------------


def test_every_family_stands_in_an_empty_sites_scrape() -> None:
    text = scrape()
    for family in metrics.FAMILIES:
        assert f"# HELP agentsite_{family.name} {family.words}" in text
        assert f"# TYPE agentsite_{family.name} gauge" in text
    assert len({family.name for family in metrics.FAMILIES}) == len(metrics.FAMILIES)
    assert set(said("scrape_errors").values()) == {0.0}


def test_runs_that_ended_are_counted_by_window_and_how() -> None:
    ended("a", minutes_ago=5)
    ended("b", minutes_ago=5, status="escalated", outcome="handed_to_staff", reason="budget_exhausted")
    ended("c", minutes_ago=90, status="escalated", outcome="handed_to_staff", reason="budget_exhausted")
    ended("d", minutes_ago=25 * 60)
    approving.run(request_id="e")
    runs = said("runs")
    assert (runs["awaiting_approval",], runs["completed",], runs["escalated",], runs["failed",]) == (1, 1, 2, 0)
    assert said("runs_ended") == {
        ("refunded", "", "completed", "1h"): 1, ("refunded", "", "completed", "24h"): 1,
        ("handed_to_staff", "budget_exhausted", "escalated", "1h"): 1,
        ("handed_to_staff", "budget_exhausted", "escalated", "24h"): 2,
    }  # fmt: skip
    capped = said("runs_capped")
    assert (capped["budget_exhausted", "1h"], capped["budget_exhausted", "24h"]) == (1, 2)
    assert capped["deadline_exceeded", "24h"] == 0
    assert (said("runs_to_finish"), said("runs_live")) == ({(): 2}, {(): 1})


def test_error_budget_is_burnt_by_our_faults_and_by_its_objective() -> None:
    for n in range(10):
        bad: dict[str, Any] = {"status": "escalated", "reason": "outcome_unknown"} if n < 2 else {}
        ended(f"r{n}", **bad)
    ended("asked", status="escalated", reason="needs_a_person")
    ended("given up", status="cancelled", reason="cancelled_by_client")
    usual = said("error_budget_burn")
    assert round(usual["t_acme_in", "1h"], 6) == round(2 / 11 / 0.01, 6), "99 % unless a tenant has its own"
    Objective.objects.create(tenant_id="t_acme_in", success_percent="80.00")
    assert round(said("error_budget_burn")["t_acme_in", "24h"], 6) == round(2 / 11 / 0.2, 6)


def test_error_budget_of_a_handful_of_runs_is_not_told() -> None:
    for n in range(9):
        ended(f"r{n}", status="failed")
    assert said("error_budget_burn") == {}


def test_lateness_is_of_runs_that_nobody_holds() -> None:
    late, held, waits = (approving.run(request_id=name) for name in ("late", "held", "waits"))
    now = dbtime.now()
    Run.objects.filter(pk=late.pk).update(due_at=now - timedelta(seconds=90))
    Run.objects.filter(pk=held.pk).update(
        due_at=now - timedelta(seconds=900), lease_token="t", lease_until=now + timedelta(seconds=60)
    )
    Run.objects.filter(pk=waits.pk).update(due_at=now + timedelta(days=1))
    assert said("runs_due") == {(): 1}
    assert 90 <= said("runs_due_oldest_seconds")[()] < 150


def test_time_and_money_are_of_the_newest_runs_of_the_hour() -> None:
    for n in range(20):
        ended(f"r{n}", active_ms=(n + 1) * 1000, input_tokens=100, output_tokens=10, cost_micros=1_500_000,
              model_calls=3, versions={"model": "gpt-x"})  # fmt: skip
    ended("old", minutes_ago=61, active_ms=900_000, versions={"model": "gpt-old"})
    assert said("run_active_seconds") == {("0.5",): 10, ("0.95",): 19, ("0.99",): 20}
    assert said("run_tokens") == {("input", "gpt-x"): 2000, ("output", "gpt-x"): 200}
    assert said("run_cost") == {("", "gpt-x"): 30}
    assert (said("run_model_calls"), said("runs_measured")) == ({("gpt-x",): 60}, {(): 20})


def test_models_beyond_twenty_are_told_as_others() -> None:
    for n in range(25):
        ended(f"r{n}", model_calls=25 - n, versions={"model": f"m{n}"})
    calls = said("run_model_calls")
    assert (len(calls), calls["m0",], calls["other",]) == (21, 25, sum(25 - n for n in range(20, 25)))


def test_open_writes_tell_state_age_and_whom_they_wait_for() -> None:
    now, lives = dbtime.now(), approving.run(request_id="lives")
    over = ended("over", status="escalated", outcome="handed_to_staff", reason="outcome_unknown")
    wrote(lives, "k1", state="unknown", intent_at=now - timedelta(hours=2), unknown_since=now - timedelta(minutes=10))
    wrote(lives, "k2", state="confirmed")
    wrote(over, "k3", state="pending", intent_at=now - timedelta(hours=3))
    assert said("writes_open") == {("intent",): 0, ("pending",): 1, ("sent",): 0, ("unknown",): 1}
    assert 600 <= said("writes_unknown_oldest_seconds")[()] < 700
    assert said("writes_for_a_person") == {(): 1}
    assert 10_800 <= said("writes_for_a_person_oldest_seconds")[()] < 10_900


def test_denials_are_counted_by_rule() -> None:
    row = ended("a")
    for seq, rule in ((60, "order_out_of_scope"), (61, "order_out_of_scope"), (62, "amount_above_maximum")):
        approving.event(row, seq, "gate.decided", {"decision": "deny", "rule": rule})
    approving.event(row, 63, "gate.decided", {"decision": "allow", "rule": "refund_within_own_authority"})
    assert said("gate_denials") == {("order_out_of_scope",): 2, ("amount_above_maximum",): 1}
    assert said("gate_decisions") == {(): 5}, "the story's own question is among them"


def test_approvals_tell_age_expiry_and_how_they_ended() -> None:
    rows = [Approval.objects.get(pk=approving.ask(approving.run(request_id=f"r{n}"))) for n in range(5)]
    user = approving.person()
    approving.shift(rows[0], requested_at=-7200, expires_at=1800)
    approving.shift(rows[1], expires_at=1800)
    Approval.objects.filter(pk=rows[1].pk).update(claimed_by=user, claimed_until=dbtime.now() + timedelta(minutes=5))
    approving.shift(rows[2], requested_at=-400, decided_at=-100)
    Approval.objects.filter(pk=rows[2].pk).update(status="consumed")
    approving.shift(rows[3], expires_at=-60)
    Approval.objects.filter(pk=rows[3].pk).update(status="expired")
    assert said("approvals_pending") == {(): 3}
    assert 7200 <= said("approvals_oldest_pending_seconds")[()] < 7300
    assert (said("approvals_expiring"), said("approvals_expiring_unclaimed")) == ({(): 2}, {(): 1})
    assert said("approvals_ended") == {("decided",): 1, ("expired",): 1}
    assert {round(seconds) for seconds in said("approval_wait_seconds").values()} == {300}


def test_webhooks_and_notices_tell_what_is_late_and_what_was_given_up() -> None:
    run, now = approving.run(), dbtime.now()
    for n, state in enumerate(("due", "dead", "delivered")):
        Webhook.objects.create(
            id=f"wh_{n}", run=run, tenant_id=run.tenant_id, type="run.completed", seq=n, body="{}", state=state,
            url="https://shop.example/hook", created_at=now - timedelta(minutes=10),
        )  # fmt: skip
    for n, state in enumerate(("due", "failed", "sent", "moot")):
        Notice.objects.create(
            tenant_id=run.tenant_id, kind="digest", channel="email", address=f"a{n}@acme.example", period="p",
            state=state, created_at=now - timedelta(minutes=20),
        )  # fmt: skip
    assert (said("webhooks"), said("notices")) == ({("dead",): 1, ("due",): 1}, {("due",): 1, ("failed",): 1})
    assert 600 <= said("webhooks_oldest_due_seconds")[()] < 700
    assert 1200 <= said("notices_oldest_due_seconds")[()] < 1300


def qualified(model: str, ends_in_days: float | None, **columns: Any) -> None:
    now = dbtime.now()
    Qualification.objects.create(
        agent="refunds", provider="openai", requested_model=model, answered_model=model, prompt_hash="p",
        tools_hash="t", reason="r", by="root", created_at=now,
        ends_at=None if ends_in_days is None else now + timedelta(days=ends_in_days), **{"kind": "manual", **columns},
    )  # fmt: skip


def test_qualifications_by_hand_are_told_before_and_after_their_end() -> None:
    qualified("ending", 6)
    qualified("later", 20)
    qualified("ended", -2)
    qualified("long gone", -40)
    qualified("revoked", 3, revoked=True)
    qualified("followed", 3)
    qualified("followed", 33)
    qualified("earned since", -2)
    qualified("earned since", None, kind="evaluated")
    assert said("qualifications_manual") == {("ending",): 1, ("ended",): 1}


def test_shadow_mode_tells_what_is_open_and_how_it_compared() -> None:
    now = dbtime.now()
    Tenant.objects.filter(pk=approving.tenant().pk).update(shadow=True)
    for n, (verdict, compared) in enumerate([("agree", 1), ("agree", 30), ("overreach", 2), ("open", None)]):
        Shadow.objects.create(
            run=ended(f"r{n}"), tenant_id="t_acme_in", at=now - timedelta(hours=40), verdict=verdict,
            compare_at=now if verdict == "open" else None,
            compared_at=now - timedelta(hours=compared) if compared is not None else None,
        )  # fmt: skip
    verdicts = said("shadow_verdicts")
    assert (verdicts["agree",], verdicts["overreach",], verdicts["miss",]) == (1, 1, 0)
    assert (said("shadow_open"), said("tenants_shadow")) == ({(): 1}, {(): 1})


def test_fleet_breakers_and_switches_are_told() -> None:
    now = dbtime.now()
    for name, kind, consumed, hung, ago_s in (
        ("a", "worker", "passes,writes", 1, 1), ("b", "worker", "passes", 0, 1), ("dead", "worker", "writes", 1, 60),
    ):  # fmt: skip
        Process.objects.create(
            name=name, kind=kind, queues=consumed, pid=1, host="h", hung=hung, seen_at=now - timedelta(seconds=ago_s)
        )
    assert said("processes") == {("up",): 0, ("worker",): 2}
    assert said("queue_consumers") == {("maintenance",): 0, ("passes",): 2, ("writes",): 1}
    assert said("processes_hung") == {(): 1}, "the dead one says nothing any more"
    Breaker.objects.create(
        dependency="openai", account="a", failures=5, updated_at=now, opened_at=now - timedelta(seconds=70),
        open_until=now + timedelta(seconds=10),
    )  # fmt: skip
    assert said("breakers_open") == {("business_system",): 0, ("openai",): 1}
    assert 70 <= said("breaker_open_seconds")["openai",] < 130
    Tenant.objects.create(id="t_x", paused=True, paused_at=now - timedelta(hours=2))
    Site.objects.update_or_create(id=1, defaults={"paused": False, "fence_demanded_at": now})
    assert 7200 <= said("switches_stopped_seconds")["tenant",] < 7300
    assert (said("switches_stopped"), said("fence_demanded")) == ({("site",): 0, ("tenant",): 1}, {(): 1})


def test_policy_incidents_count_while_open() -> None:
    now = dbtime.now()
    for closed in (None, now):
        PolicyIncident.objects.create(
            tenant=approving.tenant(), doc_id="POL-REF-004", pinned=4, last_run_id="r", first_seen_at=now,
            last_seen_at=now, closed_at=closed,
        )  # fmt: skip
    assert said("policy_incidents_open") == {(): 1}


def test_no_word_of_a_customer_is_told() -> None:
    ended("req-of-a-customer")
    text = scrape()
    assert [word for word in ("cust_5521", "req-of-a-customer", "pay_9002", approving.GOAL) if word in text] == []


# --- what is away --------------------------------------------------------------------------------------------


def test_a_part_that_fails_takes_no_other_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    approving.run()

    def breaks(*_: object) -> dict[str, int]:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(work, "quantiles", breaks)
    found = promql.read(scrape())
    errors = {dict(labels)["part"]: v for labels, v in found["agentsite_scrape_errors"].items()}
    assert {part for part, v in errors.items() if v} == {"measured"}
    assert set(errors) == {part.name for part in metrics.PARTS}
    assert promql.value('agentsite_runs{status="awaiting_approval"}', found) != {}
    assert "hunter2" not in scrape()


def test_a_row_that_cannot_be_written_out_spoils_no_scrape() -> None:
    """A lone surrogate is JSON and no UTF-8; a line break in a name is no line of its own."""
    ended("r1", outcome='"} 1\nevil 3')
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_run SET versions = %s", ['{"model": "\\ud800"}'])
    text = scrape()
    assert 'agentsite_run_model_calls{model="\\\\ud800"}' in text and "\nevil" not in text


def test_without_a_database_the_rest_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(dbtime, "now", away)
    text = scrape()
    found = promql.read(text)
    assert found["agentsite_database_up"] == {promql.NONE: 0}
    assert found["agentsite_broker_up"] == {promql.NONE: 1}
    assert "# TYPE agentsite_runs gauge" in text and "agentsite_runs" not in found
    errors = {dict(labels)["part"]: v for labels, v in found["agentsite_scrape_errors"].items()}
    assert {part for part, v in errors.items() if not v} == {"broker", "heads"}


def test_depth_of_queues_is_the_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "depth", {"passes": 3, "writes": 0, "maintenance": 7}.__getitem__)
    assert said("queue_depth") == {("maintenance",): 7, ("passes",): 3, ("writes",): 0}
    assert said("broker_up") == {(): 1}


def test_a_broker_that_is_away_is_told_and_fails_no_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(queue: str) -> int:
        raise queues.BrokerAway("ConnectionError")

    monkeypatch.setattr(queues, "depth", away)
    assert (said("broker_up"), said("queue_depth")) == ({(): 0}, {})
    assert said("scrape_errors")["broker",] == 0


def test_a_broker_that_says_nothing_is_asked_once_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    answers = False

    def slow(queue: str) -> int:
        asked.append(queue)
        while not answers:
            time.sleep(0.01)
        return 0

    monkeypatch.setattr(queues, "depth", slow)
    try:
        assert [said("broker_up"), said("broker_up")] == [{(): 0}, {(): 0}]
        assert asked == ["passes"]
    finally:
        answers = True
        assert machine._Asked.still is not None
        machine._Asked.still.result(timeout=30)
    assert said("broker_up") == {(): 1}


def test_a_heads_log_that_takes_nothing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    assert said("heads_log_writable") == {(): 1}
    monkeypatch.setattr(env.read(), "HEADS_LOG", tmp_path)
    assert said("heads_log_writable") == {(): 0}
    assert said("heads_log_free_bytes")[()] > 0


# --- what it costs -------------------------------------------------------------------------------------------


@pytest.mark.any_database
@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL plans by size: tests/scale/test_scrape.py fills")
def test_no_part_of_a_scrape_walks_a_whole_table() -> None:
    Tenant.objects.filter(pk=approving.tenant().pk).update(shadow=True)
    ended("a")
    approving.ask(approving.run(request_id="b"))
    found = statements_of(scrape)
    assert len(found) > 20
    assert [one for one in found if looks_at_all(one, WALKED)] == []


def test_a_walk_of_a_whole_table_would_be_seen() -> None:
    walks = [
        lambda: list(Run.objects.filter(outcome="refunded").values_list("active_ms")),
        lambda: list(Write.objects.order_by("-intent_at").values_list("state")),
    ]  # fmt: skip
    for walk in walks:
        (one,) = statements_of(walk)
        assert looks_at_all(one, WALKED), one.plan


def test_counts_that_stop_short_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "MOST_LOOKED_AT", 2)
    for n in range(3):
        approving.run(request_id=f"r{n}")
    assert (said("runs")["awaiting_approval",], said("runs_live")) == (2, {(): 3})
    assert (said("scrape_bounded")["live",], said("scrape_bounded")["ended",]) == (1, 0)


def test_quantiles_are_values_that_were_measured() -> None:
    assert families.quantiles([]) == {}
    assert families.quantiles([5]) == {"0.5": 5, "0.95": 5, "0.99": 5}
    assert families.quantiles(range(1, 101)) == {"0.5": 50, "0.95": 95, "0.99": 99}


# --- alerts --------------------------------------------------------------------------------------------------

CAPPED = """runs_capped{{window="1h",reason="loop_detected"}} 6
agentsite_runs_capped{{window="24h",reason="loop_detected"}} {}
agentsite_runs_ended{{window="1h",status="completed",outcome="refunded",reason=""}} 60
agentsite_runs_ended{{window="24h",status="completed",outcome="refunded",reason=""}} 1000"""
# Of each alert, lines of a scrape with which it fires, and lines with which it does not quite.
SCENES: dict[str, tuple[str, str]] = {
    "UnknownWriteOld": ("writes_unknown_oldest_seconds 301", "writes_unknown_oldest_seconds 300"),
    "WriteWaitsForPerson": ("writes_for_a_person 1", "writes_for_a_person 0"),
    "RefundDiffers": (
        'runs_ended{window="1h",status="escalated",outcome="",reason="over_refunded"} 1',
        'runs_ended{window="24h",status="escalated",outcome="",reason="over_refunded"} 1',
    ),
    "FenceDemanded": ("fence_demanded 1", "fence_demanded 0"),
    "SiteNotScraped": ('up{job="agentsite"} 0', 'up{job="agentsite"} 1'),
    "DatabaseDown": ("database_up 0", "database_up 1"),
    "SweeperStale": ("sweeper_last_pass_seconds -1", "sweeper_last_pass_seconds 30"),
    "BacklogLate": ("runs_due_oldest_seconds 61", "runs_due_oldest_seconds 59"),
    "WorkerMissing": ('queue_consumers{queue="writes"} 0', 'queue_consumers{queue="writes"} 1'),
    "ThreadHung": ("processes_hung 1", "processes_hung 0"),
    "BrokerUnreachable": ("broker_up 0", "broker_up 1"),
    "QueueDeep": ('queue_depth{queue="passes"} 501', 'queue_depth{queue="passes"} 500'),
    "HeadsLogFailing": ("heads_failed_total 1", "heads_failed_total 0"),
    "ScrapeErrors": (
        'scrape_errors{part="live"} 1', 'scrape_errors{part="live"} 1\nagentsite_database_up 0',
    ),
    "CountsBounded": ('scrape_bounded{part="live"} 1', 'scrape_bounded{part="live"} 0'),
    "ApprovalOldestTooOld": ("approvals_oldest_pending_seconds 14401", "approvals_oldest_pending_seconds 14399"),
    "ApprovalsExpiringUnseen": ("approvals_expiring_unclaimed 1", "approvals_expiring 1"),
    "ApprovalExpiryRate": (
        'approvals_ended{how="expired"} 5\nagentsite_approvals_ended{how="decided"} 19',
        'approvals_ended{how="expired"} 4\nagentsite_approvals_ended{how="decided"} 0',
    ),
    "HandedOverUnfinished": ("runs_to_finish 51", "runs_to_finish 50"),
    "StopSwitchForgotten": (
        'switches_stopped_seconds{scope="tenant"} 3601', 'switches_stopped_seconds{scope="tenant"} 3599',
    ),
    "NoticesFailed": ('notices{state="failed"} 1', 'notices{state="due"} 1'),
    "WebhookBacklog": ("webhooks_oldest_due_seconds 1801", "webhooks_oldest_due_seconds 1800"),
    "WebhooksDead": ('webhooks{state="dead"} 1', 'webhooks{state="due"} 1'),
    "ErrorBudgetBurn": (
        'error_budget_burn{tenant="t",window="1h"} 15\nagentsite_error_budget_burn{tenant="t",window="24h"} 2',
        'error_budget_burn{tenant="t",window="1h"} 15\nagentsite_error_budget_burn{tenant="u",window="24h"} 2',
    ),
    "RunsFailed": (
        'runs_ended{window="1h",status="failed",outcome="handed_to_staff",reason="schema_unknown"} 1',
        'runs_ended{window="1h",status="escalated",outcome="handed_to_staff",reason="schema_unknown"} 1',
    ),
    "CapHitRateRising": (CAPPED.format(6), CAPPED.format(90)),
    "EscalationRateHigh": (
        'runs_ended{window="1h",status="escalated",outcome="",reason="policy_stale"} 5',
        'runs_ended{window="1h",status="escalated",outcome="",reason="policy_stale"} 5\n'
        'agentsite_runs_ended{window="1h",status="completed",outcome="refunded",reason=""} 12',
    ),
    "GateDenialsHigh": (
        'gate_denials{rule="order_out_of_scope"} 10\nagentsite_gate_decisions 19',
        'gate_denials{rule="order_out_of_scope"} 10\nagentsite_gate_decisions 20',
    ),
    "RunsSlow": ('run_active_seconds{quantile="0.95"} 31', 'run_active_seconds{quantile="0.99"} 31'),
    "BusinessSystemDown": (
        'breaker_open_seconds{dependency="business_system"} 61', 'breaker_open_seconds{dependency="openai"} 61',
    ),
    "ModelOutage": ('breaker_open_seconds{dependency="openai"} 61', 'breaker_open_seconds{dependency="embeddings"} 61'),
    "BreakerOpenLong": (
        'breaker_open_seconds{dependency="embeddings"} 901', 'breaker_open_seconds{dependency="embeddings"} 900',
    ),
    "PolicyIncidentOpen": ("policy_incidents_open 1", "policy_incidents_open 0"),
    "QualificationEnding": (
        'qualifications_manual{standing="ending"} 1', 'qualifications_manual{standing="ending"} 0',
    ),
}  # fmt: skip


@pytest.fixture
def healthy(db: None) -> Iterator[Series]:
    """A scrape of a site on which everything works."""
    now = clock.now()
    Sweeper.objects.update_or_create(id=1, defaults={"last_pass_at": now, "last_pass_ms": 4})
    Process.objects.create(name="a", kind="up", queues=",".join(queues.ALL), pid=1, host="h", seen_at=now)
    ended("a")
    yield promql.read(UP + scrape())


def overlaid(series: Series, lines: str) -> dict[str, Vector]:
    first = lines if lines.startswith("up") else f"agentsite_{lines}"
    changed = promql.read(first + "\n")
    return {name: {**series.get(name, {}), **changed.get(name, {})} for name in {*series, *changed}}


def test_no_alert_fires_on_a_site_that_works(healthy: Series) -> None:
    assert [rule["alert"] for rule in ALERTS if promql.value(rule["expr"], healthy)] == []


def test_every_alert_fires_on_its_scene_and_not_a_step_before_it(healthy: Series) -> None:
    rules = {rule["alert"]: rule["expr"] for rule in ALERTS}
    assert set(SCENES) == set(rules)
    for name, (fires, quiet) in SCENES.items():
        assert promql.value(rules[name], overlaid(healthy, fires), healthy), f"{name} is silent"
        assert not promql.value(rules[name], overlaid(healthy, quiet), healthy), f"{name} fires too early"


def test_a_site_that_is_not_scraped_at_all_is_found(healthy: Series) -> None:
    rules = {rule["alert"]: rule["expr"] for rule in ALERTS}
    assert promql.value(rules["SiteNotScraped"], {k: v for k, v in healthy.items() if k != "up"})


def test_expressions_name_metrics_and_labels_that_a_scrape_has(healthy: Series) -> None:
    declared = {f"agentsite_{family.name}": set(family.labels) for family in metrics.FAMILIES}
    counters = {
        name: {key for labels in samples for key, _ in labels}
        for name, samples in healthy.items() if name.endswith("_total")
    }  # fmt: skip
    known = declared | counters | {name: {"job"} for name in FROM_PROMETHEUS}
    for expression in expressions():
        for name, matched, _ in promql.selectors(expression):
            assert name in known, expression
            assert matched <= known[name], expression
        grouped = {label for _, _, labels in promql.selectors(expression) for label in labels}
        labels_there = {label for name, _, _ in promql.selectors(expression) for label in known[name]}
        assert grouped <= labels_there, expression


def test_alerts_name_only_labels_that_their_expressions_keep() -> None:
    for rule in ALERTS:
        told = " ".join(rule["annotations"].values())
        kept = {label for _, _, grouped in promql.selectors(rule["expr"]) for label in grouped}
        named = {part.split("}")[0].strip() for part in told.split("$labels.")[1:]}
        assert named <= kept, rule["alert"]
