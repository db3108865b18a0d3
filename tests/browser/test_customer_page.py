"""The customer's page in a real Chromium under its own strict policy: with and without scripts, wide and narrow."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect
from pytest_django.live_server_helper import LiveServer

from agentsite import dbtime
from runs.customer import links
from runs.models import Attachment, Feedback, Input, Run, Write
from tests import approving
from tests.browser import test_review_page as review

browser = review.browser
pytestmark = review.pytestmark
HOSTILE = "</p><script>alert(1)</script>\u202e<img src=x onerror=alert(2)> " + "longwordwithoutanybreak" * 12
TURNS_MS = 15_000


class Visit:
    """One customer's browser, which notes every console error."""

    def __init__(self, browser: Browser, server: LiveServer, run: Run, **options: Any) -> None:
        self.path = f"{server.url}/c/{links.token(run.id, run.created_at)}/"
        self.errors = list[str]()
        self.context: BrowserContext = browser.new_context(**options)
        self.page: Page = self.context.new_page()
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.open()

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def open(self) -> Page:
        answer = self.page.goto(self.path)
        assert answer is not None and answer.status == 200
        return self.page

    def overflow(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))

    def serious(self) -> list[str]:
        """What axe finds that keeps people out."""
        review.settle(self.page)
        found = Axe().run(self.page).response["violations"]
        return [f"{v['id']}: {v['nodes'][0]['html'][:200]}" for v in found if v["impact"] in ("serious", "critical")]


@pytest.fixture
def run(transactional_db: None) -> Run:
    row = approving.run()
    approving.ask(row)
    Run.objects.filter(pk=row.pk).update(last_seq=row.events.count())
    return Run.objects.get(pk=row.pk)


def refunded(run: Run) -> None:
    """The run as it ends with its refund confirmed."""
    now = dbtime.now()
    Write.objects.create(
        key="t_acme_in/req-8472:issue_refund:pay_9002", run=run, tenant_id=run.tenant_id, order_id="8472",
        payment_id="pay_9002", tool="issue_refund", args={}, action_hash="h", decision_id="d", body="{}", origin="o",
        amount_minor=200_000, currency="INR", state="confirmed", call_id="c", customer_id="cust_5521", intent_at=now,
        refund_id="re_123", refund_state="succeeded",
        result={"refund_id": "re_123", "amount": {"amount": "2000.00", "currency": "INR"}, "state": "succeeded"},
    )  # fmt: skip
    ended(run, "completed", "refunded")


def ended(run: Run, status: str, outcome: str) -> None:
    Run.objects.filter(pk=run.pk).update(
        status=status, outcome=outcome, waiting_for=None, completed_at=dbtime.now(), updated_at=dbtime.now()
    )


@pytest.mark.parametrize(
    ("width", "scheme"), [(390, "light"), (390, "dark"), (1280, "dark")], ids=["narrow", "narrow-dark", "wide-dark"]
)
def test_page_fits_its_window_and_keeps_nobody_out(
    browser: Browser, live_server: LiveServer, run: Run, width: int, scheme: str
) -> None:
    approving.wrote(run, HOSTILE)
    Attachment.objects.create(run=run, tenant_id=run.tenant_id, input_seq=50, position=0, name=HOSTILE[:120],
                              media_type="a/b", sha256="0" * 64, size=1, content=b"x", at=dbtime.now())  # fmt: skip
    visit = Visit(browser, live_server, run, viewport={"width": width, "height": 844}, color_scheme=scheme)
    assert (visit.overflow(), visit.serious()) == (0, [])
    refunded(run)
    visit.open()
    assert (visit.overflow(), visit.serious()) == (0, [])
    gone = visit.page.goto(visit.path[:-3] + "/")
    assert gone is not None and gone.status == 404
    assert (visit.overflow(), visit.serious()) == (0, [])
    assert [e for e in visit.errors if "404" not in e] == []
    assert visit.context.cookies() == []


def test_page_follows_by_itself_says_so_and_leaves_a_text_alone(
    browser: Browser, live_server: LiveServer, run: Run
) -> None:
    visit = Visit(browser, live_server, run)
    page = visit.page
    expect(page.locator("[aria-current=step]")).to_contain_text("Waiting for a review by a person")
    assert page.locator("#announce").inner_text() == ""
    page.fill("#text", "Half a sentence")
    Run.objects.filter(pk=run.pk).update(status="executed", waiting_for="refund")
    expect(page.locator("[aria-current=step]")).to_contain_text("waiting for its confirmation", timeout=TURNS_MS)
    expect(page.locator("#announce")).to_contain_text("A refund is waiting to be confirmed.")
    assert page.locator("#text").input_value() == "Half a sentence"
    page.fill("#text", "")
    page.locator("#text").blur()
    refunded(run)
    expect(page.locator("h1")).to_have_text("Your refund is confirmed", timeout=TURNS_MS)
    expect(page.locator("#announce")).to_contain_text("its reference is re_123")
    expect(page.locator("#thumb")).to_be_visible()
    expect(page.locator("#reply")).to_have_count(0)
    assert visit.errors == []


def test_reply_with_a_file_and_a_double_click_is_one_message(
    browser: Browser, live_server: LiveServer, run: Run
) -> None:
    visit = Visit(browser, live_server, run)
    page = visit.page
    page.fill("#text", "Here is my receipt.")
    page.set_input_files("#files", {"name": "big.bin", "mimeType": "a/b", "buffer": b"x" * (5 * 1024 * 1024 + 1)})
    page.click("#reply button")
    expect(page.locator("#files-fault")).to_have_text("A file is larger than 5 MB.")
    page.set_input_files("#files", {"name": "r.png", "mimeType": "image/png", "buffer": b"png"})
    page.dblclick("#reply button")
    expect(page.locator("#sent")).to_have_text("Thank you. Your message has been sent.")
    expect(page.locator("#sent")).to_be_focused()
    expect(page.locator("#talk")).to_contain_text("r.png")
    (message,) = Input.objects.filter(run=run)
    assert (message.text, [a.name for a in Attachment.objects.all()]) == ("Here is my receipt.", ["r.png"])
    assert visit.errors == []


def test_page_works_without_scripts(browser: Browser, live_server: LiveServer, run: Run) -> None:
    visit = Visit(browser, live_server, run, java_script_enabled=False)
    page = visit.page
    expect(page.locator("[aria-current=step]")).to_contain_text("Waiting for a review by a person")
    page.fill("#text", "Sent without a script.")
    page.click("#reply button")
    expect(page.locator("#sent")).to_contain_text("Your message has been sent.")
    assert [i.text for i in Input.objects.filter(run=run)] == ["Sent without a script."]
    ended(run, "completed", "answered")
    page.click("noscript a")
    expect(page.locator("h1")).to_have_text("Your request has been answered")
    page.check("input[value=down]")
    page.fill("#word", "Slow.")
    page.click("#thumb button")
    expect(page.locator("#thumb .given")).to_contain_text("You said: no.")
    given = Feedback.objects.get(run=run)
    assert (given.rating, given.text) == ("down", "Slow.")
    assert visit.context.cookies() == []
    assert visit.errors == []
