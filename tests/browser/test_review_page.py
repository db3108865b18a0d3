"""The review page in a real Chromium, under the strict content security policy the site sends."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth.models import User
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright
from pytest_django.live_server_helper import LiveServer

from agentsite import env
from approvals import queue
from approvals.models import Approval, Decision
from runs.models import Observation, Run, Write
from tests import approving
from tests.approving import inr
from tests.system.business import Business

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: install the package chromium"),
]
MESSAGE = "Please hurry.\nI need the money \u202e\u200bback.\n" + "longwordwithoutanybreak" * 12
SCREENS: tuple[tuple[Literal["light", "dark"], int], ...] = (("light", 1440), ("dark", 390))
STATEMENT = "I compared both captures with the order."


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
        context = browser.new_context(**options)
        session = approving.signed_in(user).cookies["sessionid"].value
        context.add_cookies([{"name": "sessionid", "value": session, "url": server.url}])
        self.page: Page = context.new_page()
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.errors.append(f"{self.page.url}: {error}"))

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


@pytest.fixture(autouse=True)
def nobody_there(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No business system answers: what it would say now is the subject of one test alone."""
    monkeypatch.setenv("COMMERCE_URL", "http://127.0.0.1:9")
    env.read.cache_clear()
    yield
    env.read.cache_clear()


def asked(**question: Any) -> Approval:
    row = approving.run()
    approving.wrote(row, MESSAGE)
    Observation.objects.create(
        run=row, obs_id="obs_2", position=2, kind="result", source="get_payments", args={"order_id": "8472"},
        content={"payments": [{"payment_id": "pay_9001", "note": MESSAGE}]}, content_hash="sha256:0",
        fetched_at=row.created_at,
    )  # fmt: skip
    return Approval.objects.get(pk=approving.ask(row, **question))


@pytest.fixture
def approval(transactional_db: None) -> Approval:
    return asked()


def page_of(approval: Approval) -> str:
    return f"/admin/approvals/approval/{approval.pk}/change/"


def test_the_decision_is_on_the_first_screen(browser: Browser, live_server: LiveServer, approval: Approval) -> None:
    desk = Desk(browser, live_server, approving.person(), viewport={"width": 1280, "height": 720})
    page = desk.open(page_of(approval))
    for name in ("approve", "reject"):
        box = page.locator(f"button.{name}").bounding_box()
        assert box is not None and box["y"] + box["height"] < 720
    assert page.locator("h1").inner_text() == "2,000.00 INR"
    assert page.locator("button.approve").inner_text() == "Approve 2,000.00 INR"


def test_the_keyboard_alone_approves_within_five_tabs(browser: Browser, live_server: LiveServer) -> None:
    approval = asked(attestation=STATEMENT)
    desk = Desk(browser, live_server, approving.person())
    page = desk.open(page_of(approval))
    press = page.keyboard.press
    press("Tab")
    assert focused(page) == "#content-start"
    press("Enter")
    press("Tab")
    assert focused(page) == "#decide"
    press("Enter")
    press("Tab")
    assert focused(page) == "attestation"
    press("Tab")
    assert focused(page) == "approve", "the fourth Tab"
    press("Enter")
    assert page.evaluate("document.querySelector('#attestation').validationMessage") != ""
    assert Decision.objects.count() == 0
    page.locator("#attestation").focus()
    press("Space")
    press("Tab")
    press("Enter")
    page.wait_for_selector(".decided-approve")
    assert list(Decision.objects.values_list("by", "attested", "counted")) == [("lead_17", STATEMENT, True)]
    assert desk.errors == []


def focused(page: Page) -> str:
    found = "(e => e.getAttribute('href') || e.value && e.tagName === 'BUTTON' && e.value || e.id)"
    return str(page.evaluate(f"{found}(document.activeElement)"))


def test_reject_asks_for_a_reason_before_it_is_sent(
    browser: Browser, live_server: LiveServer, approval: Approval
) -> None:
    desk = Desk(browser, live_server, approving.person())
    page = desk.open(page_of(approval))
    page.click("button.reject")
    assert page.evaluate("document.querySelector('#reason').validationMessage") == "A rejection needs a reason."
    assert Decision.objects.count() == 0
    page.select_option("#reason_code", "duplicate_confirmed")
    page.click("button.reject")
    assert page.evaluate("document.querySelector('#reason_code').validationMessage") == "This is no reason to reject."
    page.select_option("#reason_code", "not_covered")
    assert page.locator("#told").inner_text() == (
        "Rejecting tells the customer: “The refund policy does not cover this case.” Your words stay with staff."
    )
    page.fill("#reason", "Goods were kept.")
    page.click("button.reject")
    page.wait_for_selector(".decided-reject")
    approval.refresh_from_db()
    assert (approval.status, approval.decided_by) == ("rejected", "lead_17")
    assert approval.reason == "The refund policy does not cover this case."
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


def test_of_two_browsers_one_decides_and_the_other_is_told(
    browser: Browser, live_server: LiveServer, approval: Approval
) -> None:
    first, second = (Desk(browser, live_server, approving.person(name)) for name in ("ann", "bob"))
    pages = [desk.open(page_of(approval)) for desk in (first, second)]
    for page in pages:
        page.evaluate("document.querySelector('button.approve').click()")  # both are on their way before one is read
    for page in pages:
        page.wait_for_selector(".messagelist")
    told = sorted(page.locator(".messagelist").inner_text().strip()[:6] for page in pages)
    assert told == ["Saved:", "This w"]
    assert Decision.objects.filter(counted=True).count() == 1
    assert list(Decision.objects.filter(counted=False).values_list("refusal", flat=True)) == ["already-decided"]
    assert (first.errors, second.errors) == ([], [])


def test_a_page_whose_facts_moved_shows_them_and_decides_anew(
    browser: Browser, live_server: LiveServer, approval: Approval, business: Business, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMMERCE_URL", business.url)
    env.read.cache_clear()
    desk = Desk(browser, live_server, approving.person(), viewport={"width": 390, "height": 900}, color_scheme="dark")
    page = desk.open(page_of(approval))
    page.click("button.again")
    page.wait_for_selector(".messagelist .success")
    business.control("/_seed", orders=[{"order_id": "8472", "amount_due": inr("1800.00"), "status": "returned"}])
    page.click("button.approve")
    page.wait_for_selector("#changed")
    assert "2,000.00 INR" in page.locator("#changed tr", has_text="order costs").inner_text()
    assert "1,800.00 INR" in page.locator("#changed tr", has_text="order costs").inner_text()
    assert (serious(page), desk.overflow()) == ([], 0)
    page.click("button.approve")
    page.wait_for_selector(".decided-approve")
    refused = Decision.objects.filter(counted=False).values_list("refusal", flat=True)
    assert (list(refused), business.posts()) == (["facts-changed"], [])
    assert desk.errors == []


def settle(page: Page) -> None:
    """Waits for the transitions that a change of the colour scheme begins: half way a link has any contrast."""
    page.evaluate(
        "() => Promise.allSettled(document.getAnimations()"
        ".filter(a => a instanceof CSSTransition).map(a => a.finished))"
    )


def serious(page: Page) -> list[str]:
    """What axe finds serious or critical, once no colour is on its way to another."""
    settle(page)
    found = Axe().run(page, options={"resultTypes": ["violations"], "preload": False}).response["violations"]
    return [f"{v['id']}: {v['nodes'][0]['html'][:120]}" for v in found if v["impact"] in ("serious", "critical")]


def test_axe_finds_nothing_serious_on_a_full_page_on_its_evidence_and_after_its_end(
    browser: Browser, live_server: LiveServer
) -> None:
    """Light and wide, dark and as wide as a phone."""
    approval = asked(attestation=STATEMENT, large=True, required=2)
    queue.show_message(approval.pk, MESSAGE, approval.requested_at)
    desk = Desk(browser, live_server, approving.person(may=(*approving.DECIDER, "decide_large_approval")))
    looks_well(desk, page_of(approval))
    looks_well(desk, page_of(approval).replace("change/", "evidence/obs_2/"))
    approving.shift(approval, expires_at=-1)
    looks_well(desk, page_of(approval))
    assert desk.page.locator("button[name=decision]").count() == 0
    assert "This is not a rejection." in desk.page.locator("#decide").inner_text()


def looks_well(desk: Desk, path: str) -> None:
    page = desk.open(path)
    for scheme, width in SCREENS:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        assert (desk.overflow(), desk.errors) == (0, []), (path, scheme)
        assert serious(page) == [], (path, scheme)
        desk.errors.clear()


def test_a_page_that_expired_while_it_was_read_decides_nothing(
    browser: Browser, live_server: LiveServer, approval: Approval
) -> None:
    desk = Desk(browser, live_server, approving.person())
    page = desk.open(page_of(approval))
    approving.shift(approval, expires_at=-1)
    page.click("button.approve")
    page.wait_for_selector(".messagelist .error")
    assert "This approval expired undecided." in page.locator(".messagelist").inner_text()
    assert list(Decision.objects.values_list("refusal", "counted")) == [("approval-expired", False)]
