"""The pages on which operators act, in a real Chromium under the site's strict content security policy."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from playwright.sync_api import Browser
from pytest_django.live_server_helper import LiveServer

from agentsite import dbtime
from agentsite.tenants import switches
from agentsite.tenants.models import Site
from runs.models import Attempt, Run, Write
from runs.store import settled
from tests import approving
from tests.browser import test_review_page as review
from tests.operating import OPERATES

browser = review.browser
pytestmark = review.pytestmark
KEY = "t_acme_in/req-8472:issue_refund:pay_9002"


@pytest.fixture
def run(transactional_db: None) -> Run:
    """A run that ended because nobody can tell what became of its refund, and was looked up once since."""
    Site.objects.get_or_create(id=1)
    row = approving.run()
    approving.ask(row)
    now = dbtime.now()
    write = Write.objects.create(
        key=KEY, run=row, tenant_id=row.tenant_id, order_id="8472", payment_id="pay_9002", tool="issue_refund",
        args={"order_id": "8472"}, action_hash="sha256:0", decision_id="d", body='{"order_id":"8472"}',
        origin="https://commerce.example", amount_minor=200_000, currency="INR", state="unknown", call_id="c3",
        customer_id="cust_5521", intent_at=now, look_at=now + timedelta(hours=1),
    )  # fmt: skip
    before = now - timedelta(hours=1)
    Attempt.objects.create(write=write, number=1, prepared_at=before, sent_at=before, gives_up_at=before)
    ended = {"status": "escalated", "reason": "outcome_unknown", "outcome": "handed_to_staff", "waiting_for": None}
    Run.objects.filter(pk=row.pk).update(**ended, last_seq=4, completed_at=now, approval_id=None)
    found = settled.open_write(KEY)
    assert found is not None
    settled.put_off(found, "absent_once", listed=())
    return Run.objects.get(pk=row.pk)


def operator(name: str = "ops_3") -> User:
    return approving.person(name, may=OPERATES)


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_of_acts_fit_their_window_without_a_console_error(
    browser: Browser, live_server: LiveServer, run: Run, width: int, scheme: str
) -> None:
    switches.flip(run.tenant_id, stop=True, by="ops_3", reason="refunds look wrong")
    window = {"width": width, "height": 900}
    desk = review.Desk(browser, live_server, operator(), viewport=window, color_scheme=scheme)
    page = f"/admin/runs/run/{run.pk}"
    for path in (
        f"{page}/change/", f"{page}/act/finish/", f"{page}/act/cancel/", "/admin/runs/run/?needs=settle",
        "/admin/runs/write/?state=settle", f"/admin/runs/write/{quote(KEY)}/change/", "/admin/tenants/site/1/switch/",
        f"/admin/tenants/tenant/{quote(run.tenant_id)}/change/", f"/admin/tenants/tenant/{run.tenant_id}/switch/",
    ):  # fmt: skip
        desk.open(path)
        assert desk.overflow() <= 0, path
        assert "are stopped" in desk.page.locator(".stopped").inner_text()
    assert desk.errors == []


def test_write_is_settled_and_its_run_finished_with_a_browser(
    browser: Browser, live_server: LiveServer, run: Run
) -> None:
    desk = review.Desk(browser, live_server, operator())
    page = desk.open(f"/admin/runs/run/{run.pk}/change/")
    page.click("table a:has-text('2,000.00 INR')")
    page.check("input[value=not_made]")
    page.select_option("#settle-reason", "provider_said")
    page.fill("#seen", "Their support found no refund on pay_9002.")
    page.click("button:has-text('Settle by hand')")
    page.wait_for_selector(".messagelist .success")
    assert Write.objects.get(pk=KEY).state == "not_sent"
    page.click("dd a:has-text('req-8472')")
    page.click("a.act:has-text('Finish by hand')")
    page.select_option("#reason", "explained")
    page.fill("#text", "We wrote to you by e-mail.")
    page.click("button:has-text('Finish by hand')")
    page.wait_for_selector(".messagelist .success")
    after = Run.objects.get(pk=run.pk)
    assert (after.status, after.outcome, after.reply) == (
        "escalated",
        "resolved_by_staff",
        "We wrote to you by e-mail.",
    )
    assert desk.errors == []


def test_double_click_on_an_act_is_one_act(browser: Browser, live_server: LiveServer, run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(status="approval_expired", outcome=None, reason=None, completed_at=None)
    desk = review.Desk(browser, live_server, operator())
    page = desk.open(f"/admin/runs/run/{run.pk}/act/escalate/")
    page.select_option("#reason", "unusual_case")
    page.dblclick("button:has-text('Take over')")
    page.wait_for_selector(".messagelist .success")
    assert run.inputs.filter(kind="escalate").count() == 1
    assert desk.errors == []
