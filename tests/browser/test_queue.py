"""The queue in a real Chromium: keys that move real focus, claims, snoozes, a bulk rejection; narrow, dark, for all."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from playwright.sync_api import Browser, Page
from pytest_django.live_server_helper import LiveServer

from agentsite.tenants import switches
from agentsite.tenants.models import Site
from approvals import holds
from approvals.models import Approval, Decision, Snooze
from tests import approving
from tests.browser import test_review_page as review
from tests.queues import LIST, decider, wait

browser = review.browser
pytestmark = review.pytestmark


@pytest.fixture
def queue(transactional_db: None) -> list[Approval]:
    """Five that wait, the riskiest first; the second is short of time."""
    Site.objects.get_or_create(id=1)
    return [wait(f"84{n}", risk=5 - n, ttl_s=600 if n == 1 else 86_400) for n in range(5)]


def desk(browser: Browser, server: LiveServer, **window: Any) -> review.Desk:
    return review.Desk(browser, server, User.objects.filter(username="lead_17").first() or decider(), **window)


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.textContent.trim() || document.activeElement.id"))


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def after(page: Page, *keys: str) -> str:
    press(page, *keys)
    return focused(page)


def test_keys_move_real_focus_and_decide_nothing(
    browser: Browser, live_server: LiveServer, queue: list[Approval]
) -> None:
    seat = desk(browser, live_server)
    page = seat.open(LIST)
    assert [after(page, key) for key in ("j", "j", "j", "k", "k", "k")] == ["840", "841", "842", "841", "840", "840"]
    assert after(page, "/") == "searchbar"
    page.keyboard.type("jk?co")
    assert page.input_value("#searchbar") == "jk?co" and focused(page) == "searchbar"
    page.fill("#searchbar", "")
    press(page, "Escape")
    assert not page.locator("details.keys").evaluate("d => d.open")
    assert after(page, "?").startswith("Keyboard") and page.locator("details.keys").evaluate("d => d.open")
    assert "No key approves or rejects" in page.locator("details.keys").inner_text()
    press(page, "?", "a", "r", "d", "x", "y", "Control+j")
    press(page, "j", "c")
    page.wait_for_selector(".messagelist .success")
    assert focused(page) == "840" and Approval.objects.get(order_id="840").claimed_by is not None
    press(page, "c")
    page.wait_for_selector("text=Released.")
    assert Approval.objects.get(order_id="840").claimed_by is None
    press(page, "j", "o")
    page.wait_for_selector("h1.sum")
    assert page.url.split("?")[0].endswith(f"/{quote(queue[1].pk)}/change/")
    page.go_back()
    press(page, "j", "Enter")
    page.wait_for_selector("h1.sum")
    assert page.url.split("?")[0].endswith("/change/")
    assert not Decision.objects.exists() and seat.errors == []


def test_claim_and_snooze_are_made_in_the_list_and_on_the_page(
    browser: Browser, live_server: LiveServer, queue: list[Approval]
) -> None:
    seat = desk(browser, live_server, java_script_enabled=False)
    page = seat.open(f"{LIST}?view=needs_me")
    assert page.locator(".field-expires time.soon").inner_text() == "in 9 min"
    page.click("button[aria-label='Claim order 842']")
    assert "You, until" in page.locator("tr", has_text="842").inner_text() and page.url.endswith("?view=needs_me")
    row = page.locator("tr", has_text="843")
    row.locator("summary").click()
    row.locator("button:has-text('4 hours')").click()
    assert "for you alone" in page.locator(".messagelist").inner_text()
    assert "843" not in page.locator("#result_list").inner_text()
    page.click("text=1 put off by you")
    assert "843" in page.locator("#result_list").inner_text()
    holds.claim(queue[4].pk, decider("lead_18"))
    page = seat.open(f"{LIST}{queue[4].pk}/change/")
    assert "lead_18 is looking at this" in page.locator(".holds").inner_text()
    page = seat.open(f"{LIST}{queue[0].pk}/change/")
    page.click(".holds button:has-text('Claim')")
    assert "You are looking at this" in page.locator(".holds").inner_text()
    page.click(".holds button:has-text('Release')")
    assert Approval.objects.get(pk=queue[0].pk).claimed_by is None and Snooze.objects.count() == 1
    assert seat.errors == []


def test_bulk_rejection_shows_all_of_it_and_then_asks_why(
    browser: Browser, live_server: LiveServer, queue: list[Approval]
) -> None:
    seat = desk(browser, live_server)
    page = seat.open(LIST)
    page.check("tr:has-text('840') input.action-select")
    page.check("tr:has-text('842') input.action-select")
    assert page.locator(".action-counter").inner_text() == "2 of 5 selected"
    page.click("button:has-text('Reject…')")
    page.wait_for_selector("h1:has-text('Reject 2 approvals')")
    assert "840" in page.locator(".stack").inner_text() and not Decision.objects.exists()
    page.click("button:has-text('Reject 2 approvals')")
    assert page.evaluate("document.querySelector('#reason_code').validity.valueMissing")
    page.select_option("#reason_code", "not_covered")
    page.fill("#reason", "Outside the window.")
    page.click("button:has-text('Reject 2 approvals')")
    page.wait_for_selector("text=Rejected: 2 of 2.")
    rejected = Approval.objects.filter(status="rejected").values_list("order_id", flat=True)
    assert sorted(rejected) == ["840", "842"] and seat.errors == []


@pytest.mark.parametrize(("width", "scheme"), [(1300, "light"), (390, "dark")])
def test_every_page_of_the_queue_fits_is_accessible_and_logs_no_error(
    browser: Browser, live_server: LiveServer, queue: list[Approval], width: int, scheme: str
) -> None:
    root = approving.person("root", is_superuser=True)
    other = decider("lead_18")
    holds.claim(queue[0].pk, other)
    holds.claim(queue[2].pk, root)
    holds.assign(queue[3].pk, other, root)
    approving.decide(queue[4], other, "reject", reason="Kept the goods")
    switches.flip(approving.TENANT, stop=True, by="ops_3", reason="refunds look wrong")
    seat = review.Desk(browser, live_server, root, viewport={"width": width, "height": 900}, color_scheme=scheme)
    for path in (LIST, f"{LIST}?view=pending&why=threshold", f"{LIST}?view=decided", f"{LIST}?q=none", "/admin/",
                 f"{LIST}{queue[0].pk}/change/", "/admin/tenants/tenant/"):  # fmt: skip
        page = seat.open(path)
        if path == LIST:
            page.click("details.filters summary")
            page.locator("details.snooze summary").first.click()
        looks_right(seat, page, path)
    seat.open(f"{LIST}?view=pending")
    page.check("tr:has-text('841') input.action-select")
    page.check("tr:has-text('840') input.action-select")
    page.click("button:has-text('Assign…')")
    page.wait_for_selector("h1:has-text('Assign 2 approvals')")
    looks_right(seat, page, "assign")
    page.go_back()
    page.click("button:has-text('Reject…')")
    page.wait_for_selector("h1:has-text('Reject')")
    looks_right(seat, page, "reject")
    assert seat.errors == []


def looks_right(seat: review.Desk, page: Page, where: str) -> None:
    assert seat.overflow() <= 0, where
    review.settle(page)
    found = Axe().run(page).response["violations"]
    grave = [f"{v['id']}: {v['nodes'][0]['html'][:200]}" for v in found if v["impact"] in ("serious", "critical")]
    assert grave == [], where
