"""The review page in a real Chromium, under the strict content security policy the site sends."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright
from pytest_django.live_server_helper import LiveServer

from approvals import queue
from approvals.models import Approval, Decision
from runs.models import Run, Write
from tests import approving

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: install the package chromium"),
]
MESSAGE = "Please hurry.\nI need the money \u202e\u200bback.\n" + "longwordwithoutanybreak" * 12
TABS_TO_DECIDE = 5


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Playwright's synchronous interface runs an event loop in this thread; Django refuses its ORM beside one.
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


class Desk:
    """A signed-in person at a browser, who notes every console error."""

    def __init__(self, browser: Browser, server: LiveServer, user: User, **options: Any) -> None:
        self.server, self.errors = server, list[str]()
        self.page: Page = browser.new_context(**options).new_page()
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.open("/admin/login/")
        self.page.fill("#id_username", user.username)
        self.page.fill("#id_password", approving.PASSWORD)
        self.page.click("input[type=submit]")

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def open(self, path: str) -> Page:
        answer = self.page.goto(self.server.url + path)
        assert answer is not None and answer.status == 200
        return self.page

    def overflow(self) -> int:
        """Pixels by which the page is wider than its window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


@pytest.fixture
def approval(transactional_db: None) -> Approval:
    row = approving.run()
    approving.wrote(row, MESSAGE)
    return Approval.objects.get(pk=approving.ask(row))


def page_of(approval: Approval) -> str:
    return f"/admin/approvals/approval/{approval.pk}/change/"


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_its_window_without_a_console_error(
    browser: Browser, live_server: LiveServer, approval: Approval, width: int, scheme: str
) -> None:
    lead = approving.person(is_superuser=True)
    desk = Desk(browser, live_server, lead, viewport={"width": width, "height": 900}, color_scheme=scheme)
    paths = [
        page_of(approval), f"/admin/runs/run/{approval.run_id}/change/", "/admin/", "/admin/approvals/approval/",
        "/admin/runs/run/", "/admin/tools/policydocument/", "/admin/tenants/servicetoken/", "/admin/tenants/tenant/",
        "/admin/tenants/agentprofile/", "/admin/tenants/stafftenant/", "/admin/tenants/stafftenant/add/",
    ]  # fmt: skip
    for path in paths:
        desk.open(path)
        assert desk.overflow() <= 0, path
    assert desk.errors == []


def test_the_decision_is_on_the_first_screen(browser: Browser, live_server: LiveServer, approval: Approval) -> None:
    desk = Desk(browser, live_server, approving.person(), viewport={"width": 1280, "height": 720})
    page = desk.open(page_of(approval))
    for name in ("approve", "reject"):
        box = page.locator(f"button.{name}").bounding_box()
        assert box is not None and box["y"] + box["height"] < 720
    assert page.locator("h1").inner_text() == "2,000.00 INR"
    assert page.locator("button.approve").inner_text() == "Approve 2,000.00 INR"


def test_approve_is_at_most_five_tabs_away(browser: Browser, live_server: LiveServer, approval: Approval) -> None:
    desk = Desk(browser, live_server, approving.person())
    page = desk.open(page_of(approval))
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    focused = []
    for _ in range(TABS_TO_DECIDE - 1):
        page.keyboard.press("Tab")
        focused.append(page.evaluate("document.activeElement.value || document.activeElement.id"))
    assert "approve" in focused
    assert "reject" in focused


def test_reject_asks_for_a_reason_before_it_is_sent(
    browser: Browser, live_server: LiveServer, approval: Approval
) -> None:
    desk = Desk(browser, live_server, approving.person())
    page = desk.open(page_of(approval))
    page.click("button.reject")
    assert page.evaluate("document.querySelector('#reason').validationMessage") == "A rejection needs a reason."
    assert Decision.objects.count() == 0
    page.fill("#reason", "The goods were kept.")
    page.click("button.reject")
    page.wait_for_selector(".decided-reject")
    approval.refresh_from_db()
    assert (approval.status, approval.decided_by) == ("rejected", "lead_17")
    assert page.locator("button[name=decision]").count() == 0
    assert desk.errors == []


def test_a_double_click_is_one_decision(browser: Browser, live_server: LiveServer, approval: Approval) -> None:
    desk = Desk(browser, live_server, approving.person())
    page = desk.open(page_of(approval))
    page.dblclick("button.approve")
    page.wait_for_selector(".decided-approve")
    assert list(Decision.objects.values_list("by", "decision", "counted")) == [("lead_17", "approve", True)]


def test_the_page_follows_the_run_until_it_rests(browser: Browser, live_server: LiveServer, approval: Approval) -> None:
    desk = Desk(browser, live_server, approving.person())
    page = desk.open(page_of(approval))
    page.click("button.approve")
    page.wait_for_selector("[data-progress]")
    assert page.locator("[data-headline]").inner_text() == "Decision saved; a worker picks it up"
    confirm(approval)
    page.locator("[data-headline]", has_text="Completed").wait_for(timeout=15_000)
    assert "rf_3301" in page.locator("[data-rows]").inner_text()
    assert "reply.sent" in page.locator("[data-timeline]").inner_text()
    page.wait_for_selector("[data-hint]", state="detached")
    assert desk.errors == []


def confirm(approval: Approval) -> None:
    """What the workers make of an approval: the refund, seen and told."""
    run = Run.objects.get(pk=approval.run_id)
    Write.objects.create(
        key="t_acme_in/req-8472:issue_refund:pay_9002", run=run, tenant_id=run.tenant_id, order_id="8472",
        payment_id="pay_9002", tool="issue_refund", args=approval.args, action_hash=approval.action_hash,
        approval_id=approval.pk, decision_id="d", body="{}", amount_minor=200_000, currency="INR", state="confirmed",
        refund_id="rf_3301", refund_state="succeeded", call_id="c3", customer_id="cust_5521", intent_at=run.updated_at,
    )  # fmt: skip
    approving.event(run, 5, "reply.sent", {"by": "facts"})
    Run.objects.filter(pk=run.pk).update(
        status="completed", outcome="refunded", waiting_for=None, reply="Refund rf_3301 of 2,000.00 INR was made."
    )


def test_the_page_works_without_scripts(browser: Browser, live_server: LiveServer, approval: Approval) -> None:
    desk = Desk(browser, live_server, approving.person(), java_script_enabled=False)
    page = desk.open(page_of(approval))
    assert page.locator("time[data-until]").inner_text() == "in 23 h 59 min"
    page.click("button.approve")
    assert "Saved: lead_17 approved this" in page.locator(".messagelist").inner_text()
    assert page.locator("button[name=decision]").count() == 0


def test_a_stale_tab_shows_the_decision_that_stands(
    browser: Browser, live_server: LiveServer, approval: Approval
) -> None:
    lead, other = approving.person(), approving.person("lead_18")
    desk = Desk(browser, live_server, lead)
    page = desk.open(page_of(approval))
    queue.decide(approval.pk, other, "reject", approval.action_hash, "Seen elsewhere")
    page.click("button.approve")
    page.wait_for_selector(".messagelist .error")
    assert "lead_18 rejected it at" in page.locator(".messagelist").inner_text()
    approval.refresh_from_db()
    assert approval.status == "rejected"
