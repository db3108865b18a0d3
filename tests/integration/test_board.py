"""The console's first page: its numbers, for whom they are, and where each of them leads."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from agentsite import dbtime
from approvals.models import Approval
from runs.admin import board
from runs.models import Feedback, Process, Run, Sweeper, Webhook, Write
from tests import approving
from tests.operating import OPERATES, operator, seen
from tools.models import PolicyIncident

pytestmark = pytest.mark.django_db
SEES_ALL = (*OPERATES, "view_webhook", "view_policyincident")


@pytest.fixture(autouse=True)
def now() -> datetime:
    approving.tenant()
    return dbtime.now()


def planted(request_id: str, *, tenant_id: str = approving.TENANT, **columns: Any) -> Run:
    """A run as it would stand in the database, without the loop that leads there."""
    row = approving.run(request_id=request_id, tenant_id=tenant_id)
    Run.objects.filter(pk=row.pk).update(**columns)
    return Run.objects.get(pk=row.pk)


def ended(request_id: str, ago: timedelta, outcome: str, **columns: Any) -> Run:
    fields = {"status": "completed", "outcome": outcome, "completed_at": dbtime.now() - ago, "waiting_for": None}
    return planted(request_id, **{**fields, **columns})


def asked(
    request_id: str, minor: int, currency: str = "INR", *, tenant_id: str = approving.TENANT, **columns: Any
) -> None:
    row = planted(request_id, tenant_id=tenant_id)
    approval_id = approving.ask(row)
    Approval.objects.filter(pk=approval_id).update(amount_minor=minor, currency=currency, **columns)


def viewer(
    name: str = "chief", *, may: tuple[str, ...] = SEES_ALL, tenants: tuple[str, ...] = (approving.TENANT,)
) -> User:
    operator(name, may=may, tenants=tenants)
    return User.objects.get(username=name)


def numbers(found: tuple[board.Number, ...]) -> dict[str, str]:
    return {n.name: n.value for n in found}


def test_what_waits_is_counted_and_currencies_are_never_summed(now: datetime) -> None:
    asked("req-1", 200_000, requested_at=now - timedelta(hours=3, minutes=1))
    asked("req-2", 50_050)
    asked("req-3", 2_000, "JPY", expires_at=now + timedelta(hours=1))
    asked("req-4", 9_999_999, status="rejected")
    found = board.read(viewer())
    assert numbers(found.queue) == {
        "Waiting for a decision": "3", "Oldest has waited": "3 h 1 min", "Expire within 4 hours": "1",
        "Value waiting, INR": "2,500.50 INR", "Value waiting, JPY": "2,000 JPY",
    }  # fmt: skip
    assert [n.detail for n in found.queue[3:]] == ["2 refunds", "1 refund"]


def test_outcomes_are_counted_in_their_windows() -> None:
    day = timedelta(days=1)
    for number in range(3):
        ended(f"req-{number}", day, "refunded")
    ended("req-3", 8 * day, "refunded")
    ended("req-4", 29 * day, "no_refund_due")
    ended("req-5", 31 * day, "refunded")
    planted("req-6")
    chart = board.read(viewer()).outcomes
    assert chart is not None
    assert [(r.name, r.month, r.week, r.month_width, r.week_width) for r in chart.rows] == [
        ("Refunded", 4, 3, "100.00%", "75.00%"), ("No refund due", 1, 0, "25.00%", "0%"),
    ]  # fmt: skip
    assert (chart.total, chart.week) == (5, 3)


def test_escalations_are_counted_by_reason_the_commonest_first() -> None:
    hour, gone = timedelta(hours=1), {"status": "escalated"}
    for number, reason in enumerate(("loop_detected", "outcome_unknown", "loop_detected")):
        ended(f"req-{number}", hour, "handed_to_staff", reason=reason, **gone)
    ended("req-9", timedelta(days=31), "handed_to_staff", reason="approval_expired", **gone)
    chart = board.read(viewer()).reasons
    assert chart is not None
    assert [(r.name, r.month) for r in chart.rows] == [("Loop detected", 2), ("Outcome unknown", 1)]
    assert seen(operator("chief"), chart.rows[0].link).count("badge-bad") == 2


def test_expired_is_no_rejection(now: datetime) -> None:
    for number, (status, minutes) in enumerate(
        [("consumed", 5), ("approved", 1), ("consumed", 30), ("rejected", 2), ("expired", None), ("void", None)]
    ):
        decided = now - timedelta(hours=1) + timedelta(minutes=minutes) if minutes else None
        asked(f"req-{number}", 100, status=status, requested_at=now - timedelta(hours=1), decided_at=decided)
    asked("req-9", 100, status="expired", requested_at=now - timedelta(days=31))
    found = board.read(viewer())
    assert numbers(found.decided) == {
        "Approved, of those decided": "75 %", "Expired undecided, of all ended": "20 %",
        "Time to decide, median": "2 min", "Time to decide, nine of ten within": "30 min",
    }  # fmt: skip
    assert [n.detail for n in found.decided[:2]] == ["3 of 4", "1 of 5"]
    assert found.shares is not None
    assert [(s.name, s.count) for s in found.shares.slices] == [
        ("Approved", 3), ("Rejected", 1), ("Expired undecided", 1), ("Void", 1)]  # fmt: skip


def test_thumbs_are_told_by_release_and_model(now: datetime) -> None:
    for number, (model, release, rating) in enumerate(
        [("gpt-x", "1.0", "up"), ("gpt-x", "1.0", "down"), ("gpt-x", "1.1", "up"), ("claude-y", "1.0", "up")]
    ):
        run = ended(f"req-{number}", timedelta(hours=1), "refunded", release=release, versions={"model": model})
        Feedback.objects.create(run=run, rating=rating, at=now)
    old = ended("req-9", timedelta(hours=1), "refunded", release="0.9")
    Feedback.objects.create(run=old, rating="down", at=now - timedelta(days=31))
    found = [(t.release, t.model, t.up, t.down) for t in board.read(viewer()).thumbs]
    assert found == [("1.0", "gpt-x", 1, 1), ("1.0", "claude-y", 1, 0), ("1.1", "gpt-x", 1, 0)]


def trouble(now: datetime) -> None:
    """One of everything that needs somebody, and two stuck ones."""
    unknown = ended("req-1", timedelta(hours=1), "handed_to_staff", status="escalated", reason="outcome_unknown")
    Write.objects.create(
        key="k", run=unknown, tenant_id=unknown.tenant_id, order_id="1", payment_id="p", tool="issue_refund", args={},
        action_hash="h", decision_id="d", body="{}", origin="o", amount_minor=5, currency="INR", state="unknown",
        call_id="c", customer_id="c", intent_at=now,
    )  # fmt: skip
    ended("req-2", timedelta(hours=1), "handed_to_staff", status="failed", reason="schema_unknown")
    planted("req-3", status="approval_expired")
    for name in ("req-4", "req-5"):
        planted(name, status="gathering", due_at=now - timedelta(minutes=2))
    for number, state in enumerate(("dead", "delivered")):
        Webhook.objects.create(
            id=f"msg_{number}", run=unknown, tenant_id=unknown.tenant_id, type="run.escalated", seq=number,
            url="https://example.com", body="{}", state=state, created_at=now,
        )  # fmt: skip
    PolicyIncident.objects.create(
        tenant_id=unknown.tenant_id, doc_id="POL-REF-004", pinned=4, current=5, last_run_id=str(unknown.pk),
        first_seen_at=now, last_seen_at=now,
    )  # fmt: skip


def test_what_needs_somebody_is_counted(now: datetime) -> None:
    trouble(now)
    assert numbers(board.read(viewer()).trouble) == {
        "Unknown writes": "1", "To finish by hand": "2", "Approval expired": "1", "Stuck": "2", "Dead letters": "1",
        "Webhooks given up": "1", "Policy incidents": "1",
    }  # fmt: skip


def test_each_number_leads_to_its_list(now: datetime) -> None:
    trouble(now)
    asked("req-7", 100)
    viewer(may=(*SEES_ALL, "decide_approval"))
    desk = operator("chief")
    links = set(re.findall(r'href="(/admin/[a-z]+/[a-z]+/\?[^"]+)"', seen(desk, "/admin/")))
    assert len(links) > 10
    for link in links:
        answer = desk.get(link)
        assert answer.status_code == 200, link
    assert seen(desk, "/admin/runs/run/?needs=stuck").count('class="field-request') == 2
    assert seen(desk, "/admin/runs/write/?state=settle").count('class="field-amount') == 1


def test_staff_see_the_numbers_of_their_tenants(now: datetime) -> None:
    asked("req-7", 100)
    asked("req-1", 70_000, tenant_id="t_other")
    asked("req-2", 70_000, tenant_id="t_other")
    trouble(now)
    planted("req-8", tenant_id="t_other", status="failed", outcome="handed_to_staff", completed_at=now)
    other = board.read(viewer("other", tenants=("t_other",)))
    assert numbers(other.queue)["Value waiting, INR"] == "1,400.00 INR"
    assert numbers(other.trouble) == {
        "Unknown writes": "0", "To finish by hand": "1", "Approval expired": "0", "Stuck": "0", "Dead letters": "1",
        "Webhooks given up": "0", "Policy incidents": "0",
    }  # fmt: skip
    root = User.objects.create(username="root", is_superuser=True, is_staff=True)
    assert numbers(board.read(root).queue)["Waiting for a decision"] == "3"
    assert numbers(board.read(viewer("lost", tenants=())).queue)["Waiting for a decision"] == "0"


def test_what_may_not_be_seen_is_not_told(now: datetime) -> None:
    trouble(now)
    asked("req-7", 100)
    found = board.read(viewer("clerk", may=("view_approval",)))
    assert (found.trouble, found.outcomes, found.reasons, found.thumbs) == ((), None, None, ())
    assert numbers(found.queue)["Waiting for a decision"] == "1"
    page = seen(operator("nobody", may=()), "/admin/")
    assert not any(words in page for words in ("Waiting for a decision", "Unknown writes", "How runs ended"))


def test_machine_says_when_it_last_recovered_and_who_works(now: datetime) -> None:
    page = seen(operator(), "/admin/")
    assert "no pass yet" in page
    assert "No process that works on runs was seen in the last 15 seconds" in page
    Sweeper.objects.create(id=1, last_pass_at=now, last_pass_ms=7, last_found=3)
    columns = {"pid": 1, "host": "h", "seen_at": now}
    Process.objects.create(name="h/1", kind="worker", queues="writes", **columns)
    Process.objects.create(name="h/2", kind="worker", queues="passes", hung=1, **columns)
    page = seen(operator(), "/admin/")
    assert "took 7 ms, found 3" in page
    assert ("takes writes" in page, "1 thread hangs" in page, "nothing moves until" in page) == (True, True, False)


def test_first_page_of_a_new_site_reads_well() -> None:
    page = seen(operator(), "/admin/")
    assert "No run yet" in page
    assert "No run ended in the last 30 days." in page
    assert "No person was asked in the last 30 days." in page
    assert "None" not in page
